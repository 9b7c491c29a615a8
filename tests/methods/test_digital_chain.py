"""The digital chain as a baseline: a run reports delivered images or the answers of a classifier of clean images."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from semcom.channels.coding.choice import SampleImages
from semcom.channels.coding.image import ImageChain, Received, compress_images, send_images
from semcom.config import ChannelConfig, ConfigError, DataConfig, ModelConfig, PartitionConfig, RunConfig, TrainConfig
from semcom.engine.host.keys import keyed
from semcom.methods import digital_chain
from semcom.methods.registry import METHODS
from semcom.runs.request.resolve import resolve
from semcom.runs.rounds.runner import run

USES = 64


def asked(test_snr_db: str = "15,-20,30", **more: Any) -> RunConfig:
    """Configure two clients with 64 uses per image."""
    given: dict[str, Any] = {
        "task": "reconstruction",
        "clients": 2,
        "data": DataConfig(size=16),
        "model": ModelConfig(encoder="deepjscc", features=2 * USES),
        "channel": ChannelConfig(test_snr_db=test_snr_db),
        "partition": PartitionConfig(options={"ways": 3, "shots": 2, "test_per_class": 2}),
        "train": TrainConfig(rounds=2),
    }
    return RunConfig("digital-chain", **{**given, **more})


def psnr(images: torch.Tensor, back: torch.Tensor) -> torch.Tensor:
    """The PSNR of each image in dB, 100 at most."""
    error = ((images.double() - back.double()) / 255).square().flatten(1).mean(1)
    return (-10 * error.log10()).clamp(max=100)


def test_a_run_reports_what_the_chain_delivers() -> None:
    """The best choice for 15 dB, the client's own noise. At -20 dB no file fits, and all images are mean colours."""
    result = run(asked())
    federation, view = result.federation, result.summary["views"]["digital"]
    train = torch.cat([federation.images[federation.train[client]] for client in range(2)])
    (choice,) = SampleImages(train).choose_schemes(USES, torch.tensor([[15.0]]))
    assert view["clients"][0] != view["clients"][1]
    for client in range(2):
        start = int(federation.test.offsets[client])
        images = federation.images[federation.test[client]]
        chain = ImageChain(USES, *choice.scheme, choice.codec, headers="free")
        received = chain.send(images, 15.0, keyed(0, "image chain", client, start))
        assert view["clients"][client] == pytest.approx(float(psnr(images, received.images).mean()), abs=1e-4)
    tests = federation.images[federation.test.flat]
    colour = tests.double().mean((2, 3), keepdim=True).round().expand(tests.shape)
    lost, at = float(psnr(tests, colour).mean()), view["psnr_at"]
    assert at["-20"] == pytest.approx(lost, abs=1e-4) and at["30"] > at["15"] > lost
    assert result.summary["traffic"]["up"]["floats"] == 0 and result.summary["samples"] == 0


def test_the_bound_is_the_codec_at_capacity() -> None:
    """64 uses at 15 dB carry 322 bits or 40 bytes without loss, an upper bound for every chain at any SNR."""
    result = run(asked(hyper={"code": "capacity", "codec": "jpeg"}))
    federation, bound = result.federation, result.summary["views"]["digital"]["psnr_at"]
    tests = federation.images[federation.test.flat]
    received = compress_images(tests, ["jpeg"] * len(tests), [40] * len(tests), "free")
    assert bound["15"] == pytest.approx(float(psnr(tests, received.images).mean()), abs=1e-4)
    chain = run(asked(hyper={"codec": "jpeg"})).summary["views"]["digital"]["psnr_at"]
    assert all(bound[db] >= chain[db] for db in bound) and bound["15"] > chain["15"]


def test_a_fixed_scheme_has_a_cliff_and_gains_nothing_above_it() -> None:
    view = run(asked("30,40,0", hyper={"scheme_db": 15.0})).summary["views"]["digital"]["psnr_at"]
    assert view["30"] == view["40"] > view["0"] + 5


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"channel": ChannelConfig(kind="ofdm")}, "channel.kind"),
        ({"channel": ChannelConfig(kind="rayleigh", options={"coherence": "symbol"})}, "channel.coherence"),
        ({"channel": ChannelConfig(kind="rayleigh", options={"antennas": 2, "users": 2})}, "channel.users"),
        ({"channel": ChannelConfig(kind="rayleigh", options={"equaliser": "none"})}, "channel.equaliser"),
        ({"hyper": {"outage": 0.2}}, "hyper.outage"),
        ({"hyper": {"outage": 0.2, "scheme_db": 10.0}, "channel": ChannelConfig(kind="rayleigh")}, "hyper.outage"),
        ({"hyper": {"outage": 0.0}, "channel": ChannelConfig(kind="rayleigh")}, "hyper.outage"),
        ({"hyper": {"outage": "worst"}, "channel": ChannelConfig(kind="rayleigh")}, "hyper.outage"),
        ({"hyper": {"scheme_db": 10.0, "code": "capacity"}}, "hyper.scheme_db"),
        ({"new_clients": 1}, "new_clients"),
        ({"channel": ChannelConfig(options={"feature_noise": 1.0})}, "channel.feature_noise"),
        ({"channel": ChannelConfig(options={"power": "free"})}, "channel.power"),
    ],
)
def test_what_it_cannot_do_is_refused(more: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as refused:
        resolve(asked(**more))
    assert refused.value.field == field


@dataclass
class Sent:
    """The images of a run in the order of clients, and the SNR that each batch was planned for."""

    reckoned: list[list[list[float]]]
    power_db: list[float]
    lost: list[bool]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """Record the requests to the chain in the runs of a test."""
    found, choose = Sent([], [], []), SampleImages.choose_schemes

    def note_choice(sample: SampleImages, uses: int, snr_db: torch.Tensor) -> Any:
        found.reckoned.append(snr_db.tolist())
        return choose(sample, uses, snr_db)

    def note(*args: Any) -> Received:
        received, gain = send_images(*args), torch.ones(1) if args[-1] is None else args[-1]
        found.power_db.extend((20 * gain.abs().log10()).flatten().tolist())
        found.lost.extend(received.lost.tolist())
        return received

    monkeypatch.setattr(SampleImages, "choose_schemes", note_choice)
    monkeypatch.setattr(digital_chain, "send_images", note)
    return found


def fading(coherence: str = "sample", **hyper: Any) -> RunConfig:
    """Eight clients of twelve images over Rayleigh fading of 20 dB."""
    channel = ChannelConfig(kind="rayleigh", test_snr_db=20.0, options={"coherence": coherence})
    many = PartitionConfig(options={"ways": 3, "shots": 2, "test_per_class": 4})
    return asked(channel=channel, hyper=hyper, clients=8, partition=many, processes=1)


def test_an_image_is_lost_where_its_block_is_too_weak_for_the_scheme(sent: Sent) -> None:
    """Power 1, exponential: 30 % of the blocks are below -ln 0.7, for which the scheme is chosen."""
    run(fading(outage=0.3, codec="jpeg"))
    threshold = 10 * math.log10(-math.log(0.7))
    assert [float(snr_db) for each in sent.reckoned for (snr_db,) in each] == pytest.approx(
        [20 + threshold] * 8, abs=0.2
    )
    for power_db, lost in zip(sent.power_db, sent.lost, strict=True):
        assert not lost if power_db > threshold + 0.8 else lost or power_db > threshold - 4
    assert sum(power_db < threshold for power_db in sent.power_db) / 96 == pytest.approx(0.3, abs=0.1)


def test_the_outage_that_gives_the_best_images_is_searched(sent: Sent) -> None:
    """By the power that blocks may have, exponential: no other share of lost blocks gives better images."""
    best = run(fading(codec="jpeg")).summary["psnr"]
    (powers,) = sent.reckoned[0]
    assert np.mean(10 ** (np.array(powers) / 10)) == pytest.approx(100, rel=0.05)
    assert all(best > run(fading(codec="jpeg", outage=share)).summary["psnr"] - 0.3 for share in (0.01, 0.1, 0.4))


def test_a_sender_that_knows_each_block_loses_what_has_no_scheme(sent: Sent) -> None:
    """And so sends more of the strong ones: the mean PSNR is higher than with one scheme for all.

    The smallest JPEG here has 12 bytes, more than 64 uses carry at 2.6 dB: 64 log2(1 + 10^0.26) = 95.6 bits.
    """
    known = run(fading(outage=None, codec="jpeg")).summary["psnr"]
    reckoned = np.array([snr_db for each in sent.reckoned for (snr_db,) in each])
    assert reckoned == pytest.approx(20 + np.array(sent.power_db), abs=1e-4)
    weak = np.array(sent.lost)[reckoned < 2.6]
    assert len(weak) and weak.all() and np.mean(sent.lost) < 0.1
    assert known > run(fading(codec="jpeg")).summary["psnr"] + 0.5


def test_the_images_of_a_batch_meet_one_gain(sent: Sent) -> None:
    run(fading("batch"))
    assert len(set(np.round(sent.power_db, 4))) == 8


def classified(test_snr_db: str = "30,-20", **more: Any) -> RunConfig:
    """Configure two clients with a classifier that FedAvg trains on clean images."""
    some = PartitionConfig(options={"ways": 3, "shots": 20, "test_per_class": 4})
    given: dict[str, Any] = {"train": TrainConfig(rounds=8, lr=3e-3, batch_size=10), "partition": some}
    return asked(test_snr_db, task="classification", model=ModelConfig("dcgan-narrow", features=1024), **given | more)


def test_a_classifier_sees_the_images_that_arrive() -> None:
    """With ample uses it answers as on clean images, except for compression. A lost image gets its commonest class."""
    found = run(classified(hyper={"codec": "webp"}))
    clean = run(dataclasses.replace(classified(), method="fedavg", hyper=None, channel=ChannelConfig(kind="ideal")))
    at = found.summary["views"]["digital"]["at"]
    assert at["30"] == pytest.approx(clean.metrics[-1]["views"]["global"]["accuracy"], abs=0.1) and at["30"] > 0.5
    federation, shares = found.federation, []
    for client in range(2):
        common = federation.labels[federation.train[client]].bincount().argmax()
        shares.append((federation.labels[federation.test[client]] == common).double().mean().item())
    assert at["-20"] == pytest.approx(np.mean(shares))
    for view, other in zip(found.views.values(), clean.views.values(), strict=True):
        for one, same in zip(view.population.cohorts, other.population.cohorts, strict=True):
            assert all(torch.equal(one.tensors[name], same.tensors[name]) for name in one.tensors)


def test_each_image_is_sent_once_in_a_test(sent: Sent) -> None:
    """Though accuracy, that among own classes, and the areas under the ROC curve all ask for the answer to it."""
    train = TrainConfig(rounds=1, batch_size=10, metrics=("auc_micro",))
    view = run(classified("30,-20", processes=1, train=train, hyper={"codec": "jpeg"})).summary["views"]["digital"]
    assert view["auc_micro"] and view["among_own"] and len(sent.lost) == 2 * 2 * 12


@pytest.mark.usefixtures("forked_ranks")
def test_two_processes_and_fewer_tested_clients_see_the_same_images() -> None:
    def see(**more: Any) -> list[float]:
        return run(classified(hyper={"codec": "jpeg"}, **more)).summary["views"]["digital"]["clients"]

    alone = see(processes=1)
    assert see(processes=2) == alone
    assert see(processes=1, train=dataclasses.replace(classified().train, eval_clients=1))[0] in alone


def test_it_stands_beside_the_federated_methods() -> None:
    """It is found by name but not listed or counted among the methods."""
    assert "digital-chain" in METHODS and METHODS.ships("digital-chain") and "digital-chain" not in METHODS.names()
    with pytest.raises(ValueError, match="ships with semcom"):
        METHODS.register("digital-chain")


def test_pictures_are_sent_without_their_border(tmp_path: Any) -> None:
    """16 x 32 pixels in a square of 32: by hand, the codec at capacity on the pictures without borders."""
    rng = np.random.default_rng(0)
    smooth = np.kron(rng.integers(0, 256, (40, 4, 8, 3)), np.ones((1, 4, 4, 1))).astype(np.uint8)
    labels = np.arange(40) % 4
    np.savez(tmp_path / "wide.npz", x_train=smooth[:24], y_train=labels[:24], x_test=smooth[24:], y_test=labels[24:])
    data = DataConfig(name=str(tmp_path / "wide.npz"), size=32)
    result = run(asked("15", data=data, hyper={"code": "capacity"}, model=ModelConfig("deepjscc", features=8 * 64)))
    federation, view = result.federation, result.summary["views"]["digital"]
    inside = (..., slice(8, 24), slice(None))
    assert not federation.images[..., :8, :].any() and federation.images[inside].any()
    sample = SampleImages(digital_chain.sample_training_images(federation)[inside])
    for client in range(2):
        images = federation.images[federation.test[client]][inside]
        received = sample.compress_to_capacity(images, 4 * 64, [15.0] * len(images))
        assert view["clients"][client] == pytest.approx(float(psnr(images, received.images).mean()), abs=1e-4)
