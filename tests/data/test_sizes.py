"""Images of sizes other than 32x32: their conversion, networks, and runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from semcom.channels.coding.image import ImageChain
from semcom.config import DataConfig, PartitionConfig, RunConfig, list_identity_differences, run_hash
from semcom.data.dataset import Dataset
from semcom.data.federation import federate
from semcom.data.load import load_dataset
from semcom.data.partitions import partition_dataset
from semcom.data.pfllib import measure_pfllib_side
from semcom.data.readers import fit_images
from semcom.data.split import Split
from semcom.methods.parts.augment import UNIFORMS, augment
from semcom.models.registry import ENCODERS, build_encoder, own_features
from semcom.runs.request import limits
from semcom.runs.request.images import read_run_images
from semcom.runs.request.resolve import resolve
from semcom.runs.rounds.runner import run
from tests import worlds
from tests.refusals import refuses

ENCODER_NAMES = [name for name in ENCODERS.names() if ENCODERS.ships(name)]


def grey(*sides: int) -> np.ndarray:
    return np.full((2, 3, *sides), 77, np.uint8)


@pytest.mark.parametrize(
    ("sides", "size", "becomes"),
    [
        ((32, 32), 64, (64, 64)),
        ((28, 28), 64, (56, 56)),  # with its border of 2 in 32
        ((28, 28), 32, (28, 28)),
        ((48, 48), 64, (64, 64)),
        ((64, 64), 64, (64, 64)),
        ((100, 50), 64, (64, 32)),
        ((40, 30), 96, (96, 72)),
        ((40, 30), 32, (32, 24)),
        ((16, 8), 64, (32, 16)),
        ((32, 32), 16, (16, 16)),
        ((28, 28), 16, (14, 14)),
        ((16, 16), 16, (16, 16)),
        ((1, 30), 16, (1, 15)),
    ],
)
def test_images_fill_the_same_part_of_every_square(sides: tuple[int, int], size: int, becomes: tuple[int, int]) -> None:
    assert np.array_equal(fit_images(grey(*sides), size), grey(*becomes))


def test_an_image_is_enlarged_bilinearly() -> None:
    """Pixel j of 64 lies at (j + 0.5) / 2 - 0.5 of 32: three quarters of one pixel and a quarter of the next."""
    images = np.zeros((1, 1, 32, 32), np.uint8)
    images[0, 0, 10, 20] = 160
    large = fit_images(images, 64)[0, 0]
    expected = np.zeros((64, 64))
    weights = np.array([0.25, 0.75, 0.75, 0.25])
    expected[19:23, 39:43] = 160 * np.outer(weights, weights)
    assert np.array_equal(large, expected)


@pytest.mark.parametrize("size", [16, 64])
def test_an_image_folder_is_read_at_its_size(tmp_path: Path, size: int) -> None:
    """From the file itself, not by way of 32x32."""
    noise = np.random.default_rng(0).integers(0, 256, (40, 80, 3), dtype=np.uint8)
    for name in ("train/ant", "train/bee", "test/ant", "test/bee"):
        (tmp_path / name).mkdir(parents=True)
        Image.fromarray(noise).save(tmp_path / name / "one.png")
    found = load_dataset(DataConfig(str(tmp_path), size=size)).images
    inside = Image.fromarray(noise).resize((size, size // 2), Image.Resampling.BILINEAR)
    assert found.shape == (4, 3, size, size)
    assert np.array_equal(found[0][:, size // 4 : -size // 4], np.moveaxis(np.asarray(inside), -1, 0))
    assert not found[:, :, : size // 4].any() and not found[:, :, -size // 4 :].any()


def test_the_border_is_that_of_the_size() -> None:
    labels, one = np.array([0, 0]), (np.array([0]),)
    dataset = Dataset("toy", grey(56, 40), labels, 1, ("a",))
    images = federate(dataset, Split(one, (np.array([1]),), (np.array([], int),)), 64).images.numpy()
    assert images.shape == (2, 3, 64, 64) and (images[:, :, 4:60, 12:52] == 77).all()
    assert images.astype(int).sum() == 77 * 2 * 3 * 56 * 40
    with refuses("data.name", "toy", (56, 40)):
        federate(dataset, Split(one, (np.array([1]),), (np.array([], int),)))


def test_a_split_does_not_depend_on_the_size() -> None:
    shares = PartitionConfig(kind="dirichlet", options={"fraction": 0.3})
    splits = [partition_dataset(load_dataset(DataConfig("digits", size=size)), shares, 4, 1) for size in (32, 64)]
    for one, other in zip(splits[0].train + splits[0].test, splits[1].train + splits[1].test, strict=True):
        assert np.array_equal(one, other)


# Networks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in ENCODER_NAMES if name != "mlp"])
def test_every_encoder_takes_larger_images(name: str) -> None:
    d = own_features(ENCODERS.get(name)) or (256 if name == "deepjscc" else 10)
    net = build_encoder(name, (3, 64, 64), d).eval()
    assert net(torch.zeros(2, 3, 64, 64)).shape == (2, d)
    usual, plain = build_encoder(name, (3, 32, 32), d), ENCODERS.get(name)(3, d)
    assert [p.shape for p in usual.parameters()] == [p.shape for p in plain.parameters()]


@pytest.mark.parametrize(
    ("size", "widths", "left"),
    [(8, [64], 4), (16, [64, 128], 4), (64, [64, 128, 256, 512], 4), (96, [64, 128, 256, 512], 6), (31, [64, 128], 7)],
)
def test_dcgan_grows_a_stage_per_doubling(size: int, widths: list[int], left: int) -> None:
    net = build_encoder("dcgan", (1, size, size), 6)
    assert [m.out_channels for m in net.modules() if isinstance(m, nn.Conv2d)] == widths
    assert [m.num_features for m in net.modules() if isinstance(m, nn.BatchNorm2d)] == widths[1:]
    last = net[-1] if isinstance(net, nn.Sequential) else None
    assert isinstance(last, nn.Linear) and last.in_features == left**2 * widths[-1]
    assert net(torch.zeros(2, 1, size, size)).shape == (2, 6)


def test_the_pools_of_the_plain_networks() -> None:
    """64 -> 60, 30, 26, 13 pixels a side, and 64 -> 32, 16, 8, 4, which leaves 1,024 numbers."""
    layers = [m for m in build_encoder("cnn", (3, 64, 64), 8).modules() if isinstance(m, nn.Linear)]
    assert [m.in_features for m in layers] == [64 * 13 * 13]
    assert not [m for m in build_encoder("conv4", (3, 64, 64), 1024).modules() if isinstance(m, nn.Linear)]
    assert [m.in_features for m in build_encoder("conv4", (3, 64, 64), 256).modules() if isinstance(m, nn.Linear)] == [
        1024
    ]


def test_a_network_for_images_of_another_size_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def tied(channels: int, features: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(channels * 32 * 32, features))

    monkeypatch.setitem(ENCODERS._added, "test-tied", tied)
    model: Any = {"encoder": "test-tied", "features": 8}
    with refuses("model.encoder", "[1, 64, 64] per sample", "mat1 and mat2"):
        run(
            RunConfig(
                "local", data=DataConfig(size=64), device="cpu", clients=2, out=str(tmp_path / "out"), model=model
            )
        )
    assert not list(tmp_path.glob("out/metrics*"))


# Runs ----------------------------------------------------------------------------------------------------------------


def test_a_run_on_larger_images(tmp_path: Path) -> None:
    """From digits to a prediction, which refuses 32x32 images."""
    result = run(
        RunConfig(
            method="fedcl",
            device="cpu",
            clients=2,
            out=str(tmp_path / "out"),
            data=DataConfig(size=64),
            partition=PartitionConfig(options={"ways": 2, "shots": 3, "test_per_class": 4}),
            model={"encoder": "dcgan-narrow", "features": 8},  # type: ignore[arg-type]
            train={"rounds": 1, "batch_size": 3},  # type: ignore[arg-type]
        )
    )
    assert result.federation.images.shape == (1797, 1, 64, 64)
    assert json.loads((tmp_path / "out" / "config.json").read_text())["data"]["size"] == 64
    assert result.predict(0, result.federation.images[:5]).shape == (5,)
    with refuses("images", "[b, 1, 64, 64]"):
        result.predict(0, np.zeros((1, 1, 32, 32), np.uint8))


def test_the_size_is_part_of_what_a_run_is_and_32_is_what_it_was() -> None:
    """The hashes of the code in which there was no size."""
    runs = [resolve(RunConfig(method=method, device="cpu")) for method in ("local", "fedavg")]
    assert [run_hash(config) for config in runs] == ["02c55566533c", "ba8cde6db9e7"]
    large = replace(runs[0], data=replace(runs[0].data, size=64))
    assert run_hash(large) != run_hash(runs[0]) and list_identity_differences(runs[0], large) == [
        "data.size: 32 there, 64 here"
    ]


def test_larger_images_count_against_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the host before they are made, whether from a dataset or from a folder."""
    size, needed = 128, 1797 * 128**2
    config = worlds.request("local")
    config = replace(config, data=DataConfig("digits", size=size), partition=PartitionConfig(kind="iid"))
    monkeypatch.setattr(limits, "measure_free_memory", lambda device: needed - 1)
    with refuses("data.size", 128, "1,797"):
        read_run_images(config)
    monkeypatch.setattr(limits, "measure_free_memory", lambda device: needed)
    assert read_run_images(config).members.images.numel() == needed
    for part in ("train", "test"):
        (tmp_path / part / "ant").mkdir(parents=True)
        Image.new("L", (4, 4)).save(tmp_path / part / "ant" / "one.png")
    monkeypatch.setattr(limits, "measure_free_memory", lambda device: 10**6)
    large = RunConfig(method="local", device="cpu", clients=1, data=DataConfig(str(tmp_path), size=1000))
    with refuses("data.size", 1000, "3x1000x1000"):
        resolve(large)


def test_views_and_codecs_take_any_size() -> None:
    """Whole crops in the middle change no pixel. A good channel delivers the codec's image."""
    x = torch.rand(3, 1, 40, 64) * 2 - 1
    u = torch.full((3, UNIFORMS), 0.5)
    torch.testing.assert_close(augment(x, u, smallest=1.0), x, atol=1e-5, rtol=0)
    ramp = torch.arange(64).expand(1, 3, 64, 64).to(torch.uint8) * 3
    for codec in ("webp", "jpeg"):
        for headers in ("sent", "free"):
            chain = ImageChain(4000, 64, 3 / 4, codec, headers=headers)
            received = chain.send(ramp, 60.0, torch.Generator().manual_seed(0))
            assert not received.lost.any() and _distance(received.images, ramp) < 4


def _distance(one: Tensor, other: Tensor) -> float:
    return float((one.double() - other.double()).abs().mean())


def test_the_images_of_pfllib_may_be_larger(tmp_path: Path) -> None:
    """64x64 images from a file of that size, found as they are stored."""
    from semcom.cli import main as cli

    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (8, 64, 64, 3), dtype=np.uint8), np.arange(8) % 2
    np.savez(tmp_path / "set.npz", x_train=images[:6], y_train=labels[:6], x_test=images[6:], y_test=labels[6:])
    for part, indices in (("train", [5, 1, 0]), ("test", [7])):
        (tmp_path / "set" / part).mkdir(parents=True)
        x = np.moveaxis(images[indices], -1, 1) / 127.5 - 1
        np.savez(tmp_path / "set" / part / "0.npz", data={"x": x, "y": labels[indices]})
    assert measure_pfllib_side(str(tmp_path / "set")) == 64
    words = ["--from-pfllib", str(tmp_path / "set"), "--data.name", str(tmp_path / "set.npz")]
    assert cli.main(["split", *words, "--out", str(tmp_path / "split.npz")]) == 0
    with np.load(tmp_path / "split.npz") as file:
        assert file["train_0"].tolist() == [0, 1, 5] and file["test_0"].tolist() == [7]
