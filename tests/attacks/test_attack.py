"""Attacks against closed forms: the LMMSE estimator, the identity, nothing to see; areas under ROC curves."""

from __future__ import annotations

import math
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import semcom
from semcom.attacks import attack
from semcom.attacks.gradient import Scale, compute_gradient, match_images
from semcom.attacks.invert import compare_images, fit_linear
from semcom.attacks.known import choose_known_images
from semcom.attacks.labels import compute_variation, solve_shares
from semcom.attacks.listen import Ear, make_key
from semcom.attacks.member import compute_area, compute_variance_of_mean
from semcom.attacks.options import Attack, Secret
from semcom.channels.power import normalise_power
from semcom.cli.main import main
from semcom.config import ConfigError
from semcom.data.federation import scale_bytes
from semcom.models.registry import ENCODERS
from semcom.runs.result.result import Result
from semcom.studies.names import name_field
from tests import worlds

PIXELS = 64


@ENCODERS.register("test-pixels")
def pixels(channels: int, features: int) -> nn.Module:
    """Features that are the pixels themselves."""
    made = nn.Linear(channels * PIXELS, features)
    with torch.no_grad():
        made.weight.copy_(torch.eye(features, channels * PIXELS))
        made.bias.zero_()
    return nn.Sequential(nn.Flatten(), made)


@ENCODERS.register("test-blind")
def blind(channels: int, features: int) -> nn.Module:
    """Features that do not depend on the image."""
    made = nn.Linear(channels * PIXELS, features)
    nn.init.zeros_(made.weight)
    return nn.Sequential(nn.Flatten(), made)


def victim(out: Path, encoder: str, features: int, method: str = "local", **more: Any) -> Path:
    """A run of four clients that hardly learns, on bars of 8x8 pixels."""
    partition = {"ways": 2, "shots": 5, **more.pop("partition", {})}
    fields = {"data": {"name": "test-bars", "size": more.pop("size", 8)}, "partition": partition, "out": str(out)}
    train = {"rounds": 1, "lr": 1e-12, "batch_size": 4, **more.pop("train", {})}
    model = {"features": features, "init": "client" if method == "local" else "common", **more.pop("model", {})}
    semcom.run(worlds.settings(method, encoder, 4, **fields, train=train, model=model, **more))
    return out


def linear(folder: Path, **more: Any) -> dict[str, float]:
    return semcom.attack(folder, decoder="linear", clients=2, steps=1, **more).numbers


def test_features_that_are_the_image_give_it_away(tmp_path: Path) -> None:
    """Without noise the linear decoder finds the identity: a PSNR above 60 dB."""
    found = linear(victim(tmp_path, "test-pixels", PIXELS, channel={"kind": "none"}))
    assert found["psnr"] > 60 > found["psnr_class"] > found["psnr_mean"]


def test_features_that_tell_nothing_give_the_mean_image(tmp_path: Path) -> None:
    found = linear(victim(tmp_path, "test-blind", 8, channel={"kind": "awgn", "snr_db": 10.0}))
    assert found["psnr"] == pytest.approx(found["psnr_mean"], abs=0.2)


@pytest.mark.parametrize("snr_db", [-3.0, 10.0])
def test_a_linear_encoder_over_awgn_leaves_the_error_of_the_lmmse_estimator(tmp_path: Path, snr_db: float) -> None:
    """y = A x + n: the trace of C - C A^T (A C A^T + no I)^-1 A C, C the covariance of the images; to 2 %."""
    channel = {"kind": "awgn", "power": "free", "snr_db": snr_db}
    result = semcom.load(victim(tmp_path, "test-pixels", 8, channel=channel))
    generator = torch.Generator().manual_seed(0)
    shared = torch.randn(4000, 1, 8, 1, generator=generator) / 2  # rows of pixels go together
    target = (shared + torch.randn(4000, 1, 8, 8, generator=generator) / 4).expand(-1, 1, 8, 8).contiguous()
    x = target.flatten(1).double()
    ear, a = Ear(result.world), torch.eye(8, PIXELS, dtype=torch.float64)
    features = (x @ a.T).float()
    found = fit_linear(ear, 0, features, target, 0)
    error = (found(ear.hear(features, 0, "fresh")).double().flatten(1) - x).square().sum(1).mean()
    c = torch.cov(x.T)
    gain = c @ a.T @ torch.linalg.inv(a @ c @ a.T + 10 ** (-snr_db / 10) * torch.eye(8, dtype=torch.float64))
    assert float(error) == pytest.approx(float(torch.trace(c - gain @ a @ c)), rel=0.02)


def test_a_bad_channel_hides_and_another_encoder_too(tmp_path: Path) -> None:
    """The network sees less at -10 dB than at 20; the personal encoder of another client is of little use."""
    channel = {"kind": "awgn", "snr_db": 20.0}
    folder = victim(tmp_path, "test-conv", 16, channel=channel)
    own = semcom.attack(folder, clients=1, steps=200).numbers
    noisy = semcom.attack(folder, clients=1, steps=200, at="eavesdropper", snr_db=-10.0).numbers
    other = semcom.attack(folder, clients=1, steps=200, knows="clients", known=100).numbers
    assert own["psnr"] > noisy["psnr"] + 0.5 and own["psnr"] > other["psnr"]
    assert own["psnr_mean"] == noisy["psnr_mean"]  # which needs no listening
    summary = semcom.load(folder).summary["leak"]
    assert summary["invert_with"] == "clients 1, known 2000, steps 200, seed 0"
    assert summary["psnr"] == own["psnr"] and summary["eavesdropper--10dB"]["psnr"] == noisy["psnr"]
    found = semcom.study(folder)
    (row,) = found.runs.to_dict("records")
    assert row["leak.psnr"] == own["psnr"] and row["leak.clients.psnr"] == other["psnr"]
    assert found.mean(metric="leak.psnr")["mean"].tolist() == [own["psnr"]]


def test_of_a_shared_encoder_pairs_of_other_clients_are_as_good_as_ones_own(tmp_path: Path) -> None:
    folder = victim(tmp_path, "test-conv", 8, method="fedavg")
    result, index = semcom.load(folder), torch.arange(5)
    images = result.federation.images[index]
    assert torch.equal(result.encode(images, 0), result.encode(images, 3))
    again = [linear(folder, knows="clients", known=1000) for _ in range(2)]
    assert again[0] == again[1]  # and the same numbers each time


def test_the_attackers_images_are_no_victims(tmp_path: Path) -> None:
    federation = semcom.load(victim(tmp_path, "test-conv", 8)).federation
    victims = np.array([1, 2])
    theirs = {int(i) for k in victims for table in (federation.train, federation.test) for i in table[int(k)]}
    mine = choose_known_images(federation, victims, np.arange(4), "encoder", 30, 0)
    assert len(mine.index) == 30 == len(set(mine.index.tolist())) and not theirs & set(mine.index.tolist())
    others = choose_known_images(federation, victims, np.arange(4), "clients", 1000, 0)
    owned = {k: set(federation.train[k].tolist()) for k in (0, 3)}
    assert all(i in owned[k] for i, k in zip(others.index.tolist(), others.client.tolist(), strict=True))
    assert len(others.index) == sum(map(len, owned.values()))
    with pytest.raises(ConfigError, match="^clients: all 4 are victims, and no image is left to the attacker$"):
        choose_known_images(federation, np.arange(4), np.arange(4), "clients", 10, 0)


def test_areas_are_those_of_scikit_learn_and_their_variance_that_of_drawing_again() -> None:
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(0)
    areas, told = [], []
    for _ in range(400):
        members, others = rng.normal(0.7, 1, 60).round(1), rng.normal(0, 1.5, 40).round(1)  # with ties
        found = compute_area(members, others)
        labels, scores = np.repeat([1, 0], [60, 40]), np.concatenate([members, others])
        assert found.auc == pytest.approx(roc_auc_score(labels, scores))
        areas.append(found.auc)
        told.append(compute_variance_of_mean([found], [(np.arange(60), np.arange(40))]))
    assert np.mean(told) == pytest.approx(np.var(areas), rel=0.2)  # of 400 the variance is known to 7 %


def test_images_that_clients_share_make_no_second_sample() -> None:
    rng = np.random.default_rng(0)
    one = compute_area(rng.normal(0.7, 1, 60), rng.normal(0, 1, 40))
    variance = sum(np.var(of, ddof=1) / len(of) for of in one.shares)  # DeLong's
    mine, others, shared = (np.arange(100), np.arange(100, 200)), np.arange(300, 360), np.arange(400, 440)
    assert compute_variance_of_mean([one], [(others, shared)]) == pytest.approx(variance)
    assert compute_variance_of_mean([one, one], [(others, shared)] * 2) == pytest.approx(variance)
    apart = [(others, shared), (mine[0][:60], mine[1][:40])]
    assert compute_variance_of_mean([one, one], apart) == pytest.approx(variance / 2)


def test_members_and_others_meet_the_same_fades(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They pass in one go and mixed: the gain of a pass, or of a batch of it, is that of both."""
    channel = {"kind": "rayleigh", "coherence": "round", "snr_db": 10.0}
    folder = victim(tmp_path, "test-conv", 8, method="fedavg", channel=channel)
    federation, passes, decode = semcom.load(folder).federation, list[torch.Tensor](), Result.decode

    def note(self: Result, client: int, images: torch.Tensor, view: str | None = None) -> torch.Tensor:
        passes.append(images)
        return decode(self, client, images, view)

    monkeypatch.setattr(Result, "decode", note)
    semcom.attack(folder, kind="member", clients=1)
    (sent,) = passes
    mine, others = (federation.images[table[0]] for table in (federation.train, federation.test))
    assert len(sent) == len(mine) + len(others) and not torch.equal(sent[: len(mine)], mine)


def test_classes_that_a_client_never_saw_make_no_others(tmp_path: Path) -> None:
    train = {"rounds": 60, "lr": 0.03, "batch_size": 4, "eval_every": 60}
    found = []
    for classes in ("own", "all"):
        more = {"train": train, "channel": {"kind": "none"}, "partition": {"test_classes": classes}}
        found.append(semcom.attack(victim(tmp_path / classes, "test-pixels", 64, **more), kind="member").numbers["auc"])
    assert found[0] == pytest.approx(found[1])


def test_a_model_that_has_not_learnt_knows_no_member_and_one_that_has_does(tmp_path: Path) -> None:
    found = semcom.attack(victim(tmp_path / "a", "test-conv", 8), kind="member").numbers
    assert found["auc_low"] < 0.5 < found["auc_high"]
    long = {"rounds": 60, "lr": 0.03, "batch_size": 4, "eval_every": 60}
    folder = victim(tmp_path / "b", "test-pixels", 64, train=long, channel={"kind": "none"})
    learnt = semcom.attack(folder, kind="member").numbers
    assert learnt["auc_low"] > 0.5
    assert semcom.load(folder).summary["leak"]["auc"] == learnt["auc"]


def test_who_is_heard_beside_others_is_refused(tmp_path: Path) -> None:
    channel = {"kind": "rayleigh", "users": 2, "antennas": 2}
    folder = victim(tmp_path, "test-conv", 8, channel=channel)
    why = "^attack: the run's 2 users share a resource, and a listener hears clients one by one; attack another run$"
    with pytest.raises(ConfigError, match=why):
        semcom.attack(folder)


def test_noise_where_there_is_none_is_refused(tmp_path: Path) -> None:
    folder = victim(tmp_path, "test-conv", 8, channel={"kind": "none"})
    with pytest.raises(ConfigError, match="^snr_db: 3.0 has no effect, as none has no noise$"):
        semcom.attack(folder, at="eavesdropper", snr_db=3.0)


def test_the_command_prints_what_was_seen_and_without_looking(tmp_path: Path, capsys: Any) -> None:
    folder = victim(tmp_path, "test-conv", 8)
    assert main(["attack", str(folder), "--clients", "1", "--steps", "5"]) == 0
    out = capsys.readouterr().out
    assert "rebuilt from features:" in out and "mean image of the class:" in out and (folder / "leak.png").exists()
    assert main(["attack", str(folder), "--kind", "member"]) == 0
    assert capsys.readouterr().out.startswith("membership: AUC 0.")
    drawn = tmp_path / "new" / "seen.png"
    assert main(["attack", str(folder), "--clients", "1", "--steps", "5", "--out", str(drawn)]) == 0 and drawn.exists()


def test_attacks_that_end_together_keep_the_numbers_of_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = victim(tmp_path, "test-conv", 8)
    read = attack.read_summary

    def read_slowly(where: Path) -> Any:
        found = read(where)
        time.sleep(0.2)
        return found

    monkeypatch.setattr(attack, "read_summary", read_slowly)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda name: attack.store_leak(folder, Attack(), attack.Leak({"psnr": 1.0}, None, name)), "ab"))
    summary = read(folder)
    assert summary is not None and summary["leak"].keys() == {"a", "b"}


def test_images_with_room_for_it_have_an_ssim() -> None:
    images = torch.rand(3, 1, 16, 16, generator=torch.Generator().manual_seed(0)) * 2 - 1
    found = compare_images(images, images)
    assert found == {"psnr": 100.0, "ssim": pytest.approx(1.0)}
    assert compare_images(images[..., :8, :8], images[..., :8, :8]) == {"psnr": 100.0}


def test_a_border_does_not_count() -> None:
    """A picture of 12 x 16 in a square, off by 0.2 of [-1, 1], beside one without a border, off by 0.4."""
    wanted, sides = torch.zeros(2, 1, 16, 16), torch.tensor([[12, 16], [16, 16]])
    found = wanted + torch.tensor([0.2, 0.4]).view(2, 1, 1, 1)
    found[0, :, :2], found[0, :, 14:] = 0, 0
    expected = np.mean([10 * np.log10(4 / off**2) for off in (0.2, 0.4)])
    assert compare_images(found, wanted, sides)["psnr"] == pytest.approx(expected, abs=1e-4)
    assert compare_images(found, wanted)["psnr"] > expected + 0.5


def test_rebuilt_images_are_measured_as_images_that_come_back(tmp_path: Path) -> None:
    """PSNR by hand, the mean over a client's images."""
    result: Result = semcom.load(victim(tmp_path, "test-conv", 8))
    found = semcom.attack(tmp_path, clients=1, steps=5)
    assert found.rebuilt is not None
    wanted, seen = (scale_bytes(t, torch.float64) / 2 for t in (found.rebuilt.originals, found.rebuilt.rebuilt))
    by_hand = (-10 * (wanted - seen).square().flatten(1).mean(1).log10()).mean()
    assert found.numbers["psnr"] == pytest.approx(float(by_hand), abs=0.02)  # of bytes
    assert len(wanted) == len(result.federation.test[0]) and math.isfinite(found.numbers["accuracy"])


def test_another_client_has_his_own_images_and_encoder(tmp_path: Path) -> None:
    channel = {"kind": "awgn", "snr_db": 10.0}
    federation = semcom.load(victim(tmp_path, "test-conv", 16, channel=channel)).federation
    his = choose_known_images(federation, np.array([0]), np.arange(4), "own", 1000, 0)
    assert sorted(his.index.tolist()) == sorted(federation.train[1].tolist()) and set(his.client.tolist()) == {1}
    found = linear(tmp_path, at="client", snr_db=10.0)
    assert semcom.load(tmp_path).summary["leak"]["client-10dB-linear"]["psnr"] == found["psnr"]
    assert found["psnr"] < linear(tmp_path)["psnr"]  # of his own encoder, and of the victim's


@pytest.mark.parametrize("secret", ["permutation", "rotation"])
def test_a_key_hides_from_whom_has_no_pairs_under_it(tmp_path: Path, secret: Secret) -> None:
    """Lengths and angles stay; without the key the encoder is of no use, with pairs under it the key is of none."""
    folder = victim(tmp_path, "test-pixels", 16, channel={"kind": "awgn", "snr_db": 20.0})
    world = semcom.load(folder).world
    x = torch.randn(5, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    turned = make_key(secret, world, 0)(x)
    assert torch.allclose(turned @ turned.T, x @ x.T)
    assert not torch.equal(turned, x) and not torch.equal(make_key(secret, world, 1)(x), turned)
    if secret == "permutation":
        assert torch.equal(turned.sort(1).values, x.sort(1).values)
    far = {"at": "eavesdropper", "snr_db": 20.0}
    plain, hidden = linear(folder, **far), linear(folder, **far, secret=secret)
    paired = linear(folder, **far, secret=secret, knows="pairs")
    assert hidden["psnr"] < hidden["psnr_mean"] < plain["psnr"]
    assert paired["psnr"] == pytest.approx(plain["psnr"], abs=0.2)


def test_noise_of_the_clients_own_limits_a_listener_that_the_channel_does_not(tmp_path: Path) -> None:
    """Heard at 60 dB, features with noise of variance v are worth those without it at -10 log10 v dB; to 3 %."""
    variance, errors = 0.5, []
    target = torch.rand(3000, 1, 8, 8, generator=torch.Generator().manual_seed(0)) * 2 - 1
    features = target.flatten(1)
    for own, snr_db in ((variance, 60.0), (0.0, -10 * math.log10(variance)), (0.0, 60.0)):
        channel = {"kind": "awgn", "snr_db": 10.0, "feature_noise": own}
        ear = Ear(
            semcom.load(victim(tmp_path / f"{own}-{snr_db}", "test-pixels", PIXELS, channel=channel)).world, snr_db
        )
        found = fit_linear(ear, 0, features, target, 0)(ear.hear(features, 0, "fresh"))
        errors.append(float((found - target).square().mean()))
    assert errors[0] == pytest.approx(errors[1], rel=0.03)
    assert errors[2] < errors[1] / 10


def test_shares_of_classes_follow_from_an_update_of_the_classifier() -> None:
    """Exactly, if the listener's images are as the victim's; within the classes that it may have."""
    generator = np.random.default_rng(0)
    p = generator.dirichlet(np.ones(4), 4).T  # a column for each class
    for truth in (np.array([0.5, 0.3, 0.2, 0.0]), np.array([0.0, 0.0, 0.0, 1.0])):
        assert solve_shares((p - np.eye(4)) @ truth, p, np.ones(4, dtype=bool)) == pytest.approx(truth, abs=1e-9)
    found = solve_shares((p - np.eye(4)) @ np.array([0.5, 0.5, 0, 0]), p, np.array([False, True, True, False]))
    assert found[[0, 3]].tolist() == [0, 0] and found.sum() == pytest.approx(1)
    assert compute_variation(np.array([0.5, 0.5, 0.0]), np.array([0.0, 0.5, 0.5])) == 0.5


@pytest.mark.parametrize(
    ("method", "told"),
    [
        ("fedcl", "all"),
        ("fedcosr", "all"),
        ("fedproto", "classes"),
        ("local", ""),
        ("fedper", ""),
        ("fedavg", "update"),
    ],
)
def test_what_goes_up_tells_labels(tmp_path: Path, method: str, told: str) -> None:
    """Counts and labels tell all, prototypes the classes, of equal shares here, and encoders nothing beyond a guess."""
    found = semcom.attack(victim(tmp_path, "test-conv", 8, method=method), kind="labels", clients=2).numbers
    if told in ("all", "classes"):
        assert found["label"] == pytest.approx(0, abs=1e-12)
    elif told == "update":
        assert found["label"] < 0.2 * found["label_guess"]
    else:
        assert found["label"] == found["label_guess"] > 0.2
    assert semcom.load(tmp_path).summary["leak"]["label"] == found["label"]


def test_a_gradient_of_one_image_gives_it_away(tmp_path: Path) -> None:
    """With a linear model and one image the gradient is the image times a vector, so its direction is that of x."""
    folder = victim(tmp_path, "test-pixels", PIXELS, method="fedavg", channel={"kind": "none"})
    found = semcom.attack(folder, kind="gradient", clients=1, batch=1, steps=300)
    assert found.rebuilt is not None
    assert found.setting == "gradient" and found.numbers["psnr"] > found.numbers["psnr_class"] + 5
    kept = semcom.study(folder).stored[0].arrays()
    assert np.array_equal(kept["leak/gradient/rebuilt"], found.rebuilt.rebuilt.numpy())


def test_an_update_of_a_model_is_the_gradient_that_training_takes(tmp_path: Path) -> None:
    """Its bias is told by p - y: the mean over the batch."""
    result = semcom.load(victim(tmp_path, "test-conv", 8, method="fedavg", channel={"kind": "none"}))
    module, index = result.module(0), result.federation.train[0][:4]
    images, labels = result.federation.gather(index, torch.float64), result.federation.labels[index]
    names = [name for name, _ in module.named_parameters()]
    found = dict(zip(names, compute_gradient(module, names, images, labels, again=False), strict=True))
    p = module(images).detach().softmax(1) - torch.nn.functional.one_hot(labels, module(images).shape[1])
    bias = [name for name in names if name.startswith("head.") and name.endswith("bias")][-1]
    assert torch.allclose(found[bias], p.mean(0), atol=1e-6)


@pytest.mark.parametrize("method", ["local", "fedcl", "fedproto"])
def test_without_a_model_that_goes_up_there_is_no_gradient(tmp_path: Path, method: str) -> None:
    why = f"^kind: gradient is about models that go up, and {method} sends none$"
    with pytest.raises(ConfigError, match=why):
        semcom.attack(victim(tmp_path, "test-conv", 8, method=method), kind="gradient")


def test_found_images_are_matched_to_those_they_stand_for() -> None:
    wanted = torch.arange(3.0).view(3, 1, 1, 1).expand(3, 1, 2, 2)
    order = match_images(wanted[[2, 0, 1]] + 0.1, wanted)
    assert torch.equal(wanted[[2, 0, 1]][order], wanted)


def test_each_listener_has_noise_of_his_own_and_hears_the_same_noise_of_the_client(tmp_path: Path) -> None:
    channel = {"kind": "awgn", "snr_db": 10.0, "feature_noise": 0.5}
    world = semcom.load(victim(tmp_path, "test-pixels", 16, channel=channel)).world
    x = torch.randn(50, 16, generator=torch.Generator().manual_seed(0))
    near, far = (Ear(world, snr_db, "eavesdropper").hear(x, 0, "x") for snr_db in (100.0, 10.0))
    base = Ear(world).hear(x, 0, "x")
    assert not torch.allclose(base, far, atol=0.1)
    rests = torch.stack([(base - near).flatten(), (far - near).flatten()])
    assert abs(float(torch.corrcoef(rests)[0, 1])) < 0.2  # and theirs are independent
    assert rests.square().mean(1).tolist() == pytest.approx([0.1, 0.1], rel=0.3)


def test_of_a_method_with_personal_models_the_update_is_that_of_the_shared_one(tmp_path: Path) -> None:
    folder = victim(tmp_path, "test-conv", 8, method="ditto")
    named, usual = (semcom.attack(folder, kind="labels", clients=2, view=view).numbers for view in ("global", None))
    assert named == usual


def test_a_dead_feature_has_no_slope() -> None:
    x = torch.zeros(2, 4, requires_grad=True)
    (found,) = torch.autograd.grad(Scale()(x).sum(), x)
    assert bool(found.isfinite().all())
    full = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(Scale()(full), normalise_power(full))


def test_figures_of_attacks(tmp_path: Path) -> None:
    """Images beside what was rebuilt, with their PSNR by hand; accuracy against what leaks."""
    study = tmp_path / "study"
    for method in ("fedavg", "fedper"):
        folder = victim(study / method, "test-conv", 8, method=method)
        semcom.attack(folder, kind="gradient", clients=1, steps=2, batch=2) if method == "fedavg" else None
        found = semcom.attack(folder, clients=1, steps=5)
        semcom.attack(folder, clients=1, steps=5, at="eavesdropper", snr_db=0.0)
        semcom.attack(folder, clients=2, steps=5, knows="clients")  # on others: without a place beside these
    assert found.rebuilt is not None
    semcom.plot(study, semcom.Plot(kind="leak"), name="leak", out=tmp_path)
    drawn = pd.read_csv(tmp_path / "leak.csv")
    assert set(drawn["listener"]) == {"base", "eavesdropper-0dB"}
    rows = drawn[(drawn["variant"] == "fedper") & (drawn["listener"] == "base")]
    some = found.rebuilt.pick(4)
    error = (found.rebuilt.rebuilt[some].double() - found.rebuilt.originals[some].double()) / 255
    assert rows["psnr"].tolist() == pytest.approx((-10 * error.square().flatten(1).mean(1).log10()).tolist())
    semcom.plot(study, semcom.Plot(kind="pareto", x="leak.eavesdropper-0dB.psnr"), name="pareto", out=tmp_path)
    at = pd.read_csv(tmp_path / "pareto.csv").set_index("variant")["leak.eavesdropper-0dB.psnr"]
    assert at["fedper"] == semcom.load(study / "fedper").summary["leak"]["eavesdropper-0dB"]["psnr"]
    assert name_field("leak.eavesdropper-0dB.psnr") == "PSNR of rebuilt images, eavesdropper at 0 dB (dB)"
    with pytest.raises(ConfigError, match=r"^cost: leak.psnr_mean does not grow with what is given away"):
        semcom.study(study).pareto("leak.psnr_mean")
    with pytest.raises(ConfigError, match="has no rebuilt images; call semcom attack for it first"):
        semcom.plot(victim(tmp_path / "plain", "test-conv", 8), semcom.Plot(kind="leak"), out=tmp_path)


def test_the_border_of_what_is_rebuilt_does_not_count_in_its_figure(tmp_path: Path) -> None:
    """Bars of 8x8 in a square of 32."""
    folder = victim(tmp_path / "run", "lenet", 8, size=32)
    found = semcom.attack(folder, clients=1, steps=5).rebuilt
    assert found is not None
    semcom.plot(folder, semcom.Plot(kind="leak"), name="leak", out=tmp_path)
    inside = (found.pick(4), slice(None), slice(12, 20), slice(12, 20))
    error = (found.rebuilt[inside].double() - found.originals[inside].double()) / 255
    by_hand = (-10 * error.square().flatten(1).mean(1).log10()).tolist()
    assert pd.read_csv(tmp_path / "leak.csv")["psnr"].tolist() == pytest.approx(by_hand)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"channel": {"kind": "rayleigh", "users": 2, "antennas": 2}}, "^kind: gradient is of a client by itself"),
        ({"model": {"snr_input": True}}, "^kind: gradient is about networks of images alone"),
    ],
)
def test_an_update_that_cannot_be_taken_alone_is_refused(tmp_path: Path, more: Any, why: str) -> None:
    folder = victim(tmp_path, "test-conv", 8, method="fedavg", **more)
    with pytest.raises(ConfigError, match=why):
        semcom.attack(folder, kind="gradient")


@pytest.mark.parametrize("kind", ["gradient", "labels"])
def test_an_update_is_of_training_whatever_tests_meet(tmp_path: Path, kind: str) -> None:
    few = {"steps": 5} if kind == "gradient" else {}
    found = []
    for name, tests in (("a", None), ("b", "-10,20")):
        channel = {"kind": "awgn", "snr_db": 20.0, "test_snr_db": tests}
        folder = victim(tmp_path / name, "test-conv", 8, method="fedavg", channel=channel)
        found.append(semcom.attack(folder, kind=kind, clients=1, **few).numbers)
    assert found[0] == found[1]


def test_what_is_frozen_goes_up_in_no_update(tmp_path: Path) -> None:
    """Of a frozen encoder the head's gradient is left, of a frozen head nothing that tells the shares of classes."""
    folders = (
        victim(tmp_path / part, "test-conv", 8, method="fedavg", train={"lr_parts": [f"{part}=0"]})
        for part in ("encoder", "head")
    )
    gradient, labels = (
        semcom.attack(folder, kind=kind, clients=1, **few).numbers
        for folder, kind, few in zip(folders, ("gradient", "labels"), ({"steps": 5}, {}), strict=True)
    )
    assert math.isfinite(gradient["psnr"]) and labels["label"] == labels["label_guess"]
