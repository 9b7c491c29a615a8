"""Images that come back: closed forms of their numbers, a step worked by hand, the optimum of linear coding."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.ndimage import gaussian_filter
from scipy.signal import convolve2d
from torch import Tensor, nn

import semcom
from semcom.config import ConfigError, DataConfig, ModelConfig, RunConfig
from semcom.data.dataset import Dataset, find_picture
from semcom.data.federation import Federation, federate
from semcom.data.load import count_picture_numbers, load_dataset
from semcom.data.split import Split
from semcom.engine.train.view import View, _measure_pictures, measure_views
from semcom.methods.registry import METHODS
from semcom.models import deepjscc
from semcom.models.heads import dcgan_head
from semcom.models.own import replace_by_own_layers
from semcom.models.registry import ENCODERS, HEADS
from semcom.plots.base import Plot
from semcom.plots.kinds import settle_kind
from semcom.plots.lines import compute_lines
from semcom.runs.request.resolve import resolve
from semcom.runs.rounds.load import load
from semcom.runs.rounds.runner import run
from semcom.studies.sweep.request import parse_request
from semcom.studies.sweep.tune import plan_search
from semcom.tasks.metric import MSE, PSNR, SSIM, Metric, read_task_metrics
from semcom.tasks.reconstruction import PSNR_CAP_DB, Reconstruction, ms_ssim
from semcom.tasks.registry import TASKS, make_task
from tests.methods.arms import X, as_toy, play, rounds, toy_world
from tests.models.test_stacks import same
from tests.refusals import refuses
from tests.worlds import federation, gap, ragged, request, world

TASK: dict[str, Any] = {"task": "reconstruction"}
UNABLE = ("fedproto", "fedpac", "fedgh", "fedcrc", "fedcrl", "fedcosr", "fedrod", "repper")
"""Methods that work on the classes of answers."""
ABLE = [name for name in METHODS.names() if METHODS.ships(name) and name not in UNABLE]


# -- the numbers ---------------------------------------------------------------------------------------------------


def measured(found: Tensor, images: Tensor) -> dict[str, float]:
    """Measure the metrics of one image."""
    return {name: float(each) for name, each in Reconstruction().measure(found[None, None], images[None, None]).items()}


@pytest.mark.parametrize("error", [0.5, 0.02, 1e-3])
def test_psnr_of_a_constant_error(error: float) -> None:
    """20 log10(255 / e): an error of `error` on the scale of [-1, 1] is 127.5 times that in bytes."""
    images = torch.rand(3, 16, 16, dtype=torch.float64) - 0.5
    found = measured(images + error, images)
    assert found["psnr"] == pytest.approx(20 * math.log10(255 / (127.5 * error)), abs=1e-9)
    assert found["mse"] == pytest.approx((error / 2) ** 2, rel=1e-9)


def test_an_image_without_error_has_the_cap() -> None:
    images = torch.rand(3, 16, 16) * 2 - 1
    assert measured(images, images) == {"psnr": PSNR_CAP_DB, "ssim_valid": pytest.approx(1.0), "mse": 0.0}


@pytest.mark.parametrize(
    ("size", "names"), [(175, ["psnr", "ssim_valid", "mse"]), (176, ["psnr", "ssim_valid", "ms_ssim_valid", "mse"])]
)
def test_ms_ssim_is_measured_where_its_scales_fit(size: int, names: list[str]) -> None:
    """Constant images 0.3 and 0.5 differ only in the luminance of the last scale, with exponent 0.1333."""
    task = make_task(resolve(RunConfig("fedavg", data=DataConfig(size=size), **TASK)))
    assert [metric.name for metric in task.metrics] == names
    found, images = (torch.full((1, 1, 1, size, size), 2 * value - 1) for value in (0.3, 0.5))
    each = task.measure(found, images)
    assert list(each) == names
    if "ms_ssim_valid" in each:
        luminance = (2 * 0.3 * 0.5 + 1e-4) / (0.3**2 + 0.5**2 + 1e-4)
        assert float(each["ms_ssim_valid"]) == pytest.approx(luminance**0.1333, abs=1e-4)


def test_pixels_are_clipped_before_they_are_judged() -> None:
    images = torch.ones(1, 16, 16)
    assert measured(images + 3, images)["psnr"] == PSNR_CAP_DB


@pytest.mark.parametrize(("a", "b"), [(0.2, 0.6), (0.5, 0.55)])
def test_ssim_of_constant_images(a: float, b: float) -> None:
    """Without variances the structural part is 1, and the luminance (2 a b + c) / (a^2 + b^2 + c), c = 0.01^2."""
    x, y = (torch.full((1, 16, 16), 2 * value - 1, dtype=torch.float64) for value in (a, b))
    assert measured(x, y)["ssim_valid"] == pytest.approx((2 * a * b + 1e-4) / (a * a + b * b + 1e-4), abs=1e-5)


def compare_windows(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Compute SSIM and its contrast of one channel in [0, 1] as Wang et al. define them, by SciPy on inner windows."""
    line = np.exp(-(np.arange(-5, 6) ** 2) / 4.5)
    window = np.outer(line, line) / line.sum() ** 2

    def mean(of: np.ndarray) -> np.ndarray:
        return convolve2d(of, window, mode="valid")

    a, b = mean(x), mean(y)
    contrast = (2 * (mean(x * y) - a * b) + 0.03**2) / (mean(x * x) - a * a + mean(y * y) - b * b + 0.03**2)
    return float((contrast * (2 * a * b + 0.01**2) / (a * a + b * b + 0.01**2)).mean()), float(contrast.mean())


def draw_pair(*shape: int) -> tuple[Tensor, Tensor]:
    """Smooth images in [0, 1], and the same with noise at 20 dB."""
    rng = np.random.default_rng(0)
    smooth = gaussian_filter(rng.random(shape), (0, 2, 2)) * 3 - 1
    return tuple(torch.as_tensor(x.clip(0, 1)) for x in (smooth, smooth + 0.1 * rng.standard_normal(shape)))  # type: ignore[return-value]


def test_ssim_is_over_the_windows_inside_the_picture() -> None:
    """As the definition by SciPy has it, for pictures that are no squares too."""
    for shape in ((3, 32, 32), (1, 16, 27)):
        x, y = draw_pair(*shape)
        expected = np.mean([compare_windows(*pair)[0] for pair in zip(x.numpy(), y.numpy(), strict=True)])
        assert measured(2 * y - 1, 2 * x - 1)["ssim_valid"] == pytest.approx(expected, abs=1e-12)


def test_ms_ssim_is_a_product_over_five_scales_of_each_channel() -> None:
    """The same windows at each scale. An odd side is padded by half a pixel on both sides, as in pytorch-msssim 1.0.

    Its result for this pair is 0.921606 (float32).
    """
    x, y = draw_pair(2, 176, 183)
    products = []
    for a, b in zip(x.numpy(), y.numpy(), strict=True):
        product = 1.0
        for scale, exponent in enumerate((0.0448, 0.2856, 0.3001, 0.2363, 0.1333)):
            whole, contrast = compare_windows(a, b)
            product *= (whole if scale == 4 else contrast) ** exponent
            a, b = (np.pad(t, [(n % 2, n % 2) for n in t.shape]) for t in (a, b))
            a, b = (
                t[: t.shape[0] // 2 * 2, : t.shape[1] // 2 * 2].reshape(len(t) // 2, 2, -1, 2).mean((1, 3))
                for t in (a, b)
            )
        products.append(product)
    found = ms_ssim(y[None, None], x[None, None])
    assert float(found) == pytest.approx(np.mean(products), abs=1e-12)
    assert float(found) == pytest.approx(0.921606, abs=2e-6)


def test_clients_and_runs_are_means_over_images() -> None:
    """Of three images at -20, -10 and 0 dB of MSE the PSNR is 10 dB, not that of the mean MSE."""
    images, errors = torch.zeros(1, 3, 1, 16, 16), torch.tensor([0.1, 0.1**0.5, 1.0]).view(1, 3, 1, 1, 1)
    found = Reconstruction().measure(images + 2 * errors - 1, images - 1)
    assert float(found["psnr"].mean()) == pytest.approx(10.0, abs=1e-4)


# -- pictures with a border ------------------------------------------------------------------------------------------


def answer(outputs: Tensor, seen: Federation) -> Any:
    """Build the answer that is measured for one client of a federation. Only its images and their indices count."""
    index = torch.arange(len(seen.images))[None]
    batch = SimpleNamespace(target=seen.gather(index, torch.float64))
    return SimpleNamespace(batch=batch, federation=seen, index=index), outputs[None]


def frame(images: np.ndarray, sides: np.ndarray | None = None, size: int = 32) -> Federation:
    """A federation of these test images and one for training."""
    both = np.concatenate([images, images])
    sides = None if sides is None else np.concatenate([sides, sides])
    dataset = Dataset("own", both, np.arange(len(both)) % 2, len(images), ("a", "b"), sides=sides)
    parts = [np.arange(len(images))], [np.arange(len(images), len(both))], [np.arange(0)]
    return federate(dataset, Split(*parts), size)


def test_the_border_is_not_measured() -> None:
    """Pictures of 16x27 in a square of 32: an error of 0.2 inside gives the same metric whatever the error outside.

    20 log10(255 / 25.5) = 20 dB, and SSIM is that of the pictures without a border. The whole square gives other
    values.
    """
    pictures = np.random.default_rng(0).integers(64, 192, (3, 2, 16, 27)).astype(np.uint8)
    seen = frame(pictures)
    heard, _ = answer(seen.images, seen)
    inside = (..., slice(8, 24), slice(2, 29))
    outputs = heard.batch.target + 0.5
    outputs[inside] = heard.batch.target[inside] + 0.2
    task = Reconstruction()
    found = _measure_pictures(task, heard, outputs.flatten(2))
    np.testing.assert_allclose(found["psnr"], 20.0, atol=1e-9)
    assert torch.allclose(found["ssim_valid"], task.measure(outputs[inside], heard.batch.target[inside])["ssim_valid"])
    assert torch.all((task.measure(outputs, heard.batch.target)["psnr"] - 20).abs() > 3)
    assert seen.numbers == 2 * 16 * 27


def test_each_picture_has_a_border_of_its_own() -> None:
    """As those of an image folder, 32x20 and 12x32: errors of 0.2 and 0.02 inside, 20 and 40 dB."""
    sides = np.array([[32, 20], [12, 32]])
    seen = frame(np.full((2, 3, 32, 32), 128, dtype=np.uint8), sides)
    heard, _ = answer(seen.images, seen)
    outputs = torch.ones_like(heard.batch.target)
    outputs[0, 0, :, :, 6:26] = heard.batch.target[0, 0, :, :, 6:26] + 0.2
    outputs[0, 1, :, 10:22] = heard.batch.target[0, 1, :, 10:22] + 0.02
    double = SimpleNamespace(**{**vars(heard), "index": heard.index[:, :2]})
    double.batch = SimpleNamespace(target=heard.batch.target[:, :2])
    found = _measure_pictures(Reconstruction(), double, outputs[:, :2])
    np.testing.assert_allclose(found["psnr"], [[20.0, 40.0]], atol=1e-9)
    assert seen.numbers == 3 * (32 * 20 + 12 * 32) / 2


def test_two_uneven_borders_are_refused() -> None:
    """White pictures of 30x30 in black images of 31x31 are where the federation says, or are not taken."""
    images, sides = np.zeros((1, 1, 31, 31), dtype=np.uint8), np.array([[30, 30]])
    images[..., :30, :30] = 255
    with pytest.raises(ConfigError, match=r"^data.name: 'own': some pictures"):
        frame(images, sides, 32)
    seen = frame(images, sides, 33)
    assert (seen.images[0][find_picture(33, 30, 30)] == 255).all()


def test_a_folder_tells_the_sides_of_its_pictures(tmp_path: Path) -> None:
    """A photograph of 40x20 becomes 32x16, and a square picture has no border."""
    for part in ("train", "test"):
        for label, sides in (("a", (20, 40)), ("b", (10, 10))):
            (tmp_path / part / label).mkdir(parents=True)
            Image.new("RGB", sides, (200, 100, 50)).save(tmp_path / part / label / "one.png")
    dataset = load_dataset(DataConfig(name=str(tmp_path)))
    assert dataset.sides is not None and dataset.sides.tolist() == 2 * [[32, 16], [32, 32]]
    assert dataset.images[0, 0, 0].tolist() == 8 * [0] + 16 * [200] + 8 * [0]


def test_a_run_looks_at_the_pictures_alone() -> None:
    """Bars of 8x8 in a square of 32: white images have a PSNR by hand, and k/n and bits are those of 64 numbers.

    They are too small for SSIM.
    """
    result = run(request("local", **TASK, train={"rounds": 1}, plugins=()))
    data = result.federation
    assert result.summary["bandwidth_ratio"] == 4 / 2 / 64 and Reconstruction().target_bits(data) == 8 * 64
    assert [m["name"] for m in result.summary["task"]["metrics"]] == ["psnr", "mse"]
    whole = replace(result.world.session.draws.federation, sides=None)
    assert Reconstruction().target_bits(whole) == 8 * 32 * 32


@pytest.mark.parametrize(("size", "numbers"), [(32, 28 * 28), (64, 56 * 56)])
def test_a_ratio_is_that_of_the_picture(size: int, numbers: int) -> None:
    """MNIST has 28x28 pixels in a square of 32, and 56x56 in a square of 64."""
    images = np.zeros((2, 1, 28, 28), dtype=np.uint8)
    assert count_picture_numbers(Dataset("own", images, np.arange(2), 1, ("a", "b")), size) == numbers


def test_an_old_ssim_is_not_read_as_a_new_one() -> None:
    """`ssim` of a stored run used mirrored borders, so it has another name and label than today's metric."""
    stored = {"task": {"name": "reconstruction", "metrics": [asdict(PSNR), asdict(Metric("ssim", "SSIM"))]}}
    assert [(m.name, m.label) for m in read_task_metrics(stored)] == [("psnr", "PSNR"), ("ssim", "SSIM (padded)")]
    assert SSIM.name == "ssim_valid" and SSIM.label == "SSIM"


# -- training --------------------------------------------------------------------------------------------------------


def test_one_step_by_hand() -> None:
    """Without a link y = V W x + b, and loss mean((y - x)^2): one step of SGD on all images of each client."""
    w = toy_world("local", 0.1, channel={"kind": "none"}, **TASK)
    before, after = rounds(w)
    for k, x in enumerate(X):
        model, got = as_toy(before.model, k), as_toy(after.model, k)
        z = x @ model.W.T
        slope = 2 * (z @ model.V.T + model.b - x) / x.size
        np.testing.assert_allclose(got.V, model.V - 0.1 * slope.T @ z, atol=1e-12)
        np.testing.assert_allclose(got.b, model.b - 0.1 * slope.sum(0), atol=1e-12)
        np.testing.assert_allclose(got.W, model.W - 0.1 * (slope @ model.V).T @ x, atol=1e-12)


@pytest.mark.parametrize(("method", "hyper"), [("fedprox", {"mu": 0.0}), ("fedala", {"p": 0})])
def test_reductions_hold(method: str, hyper: dict[str, Any]) -> None:
    one, other = play(method, hyper=hyper, **TASK), play("fedavg", **TASK)
    mine = one.model if hasattr(one, "model") else one.initialised
    assert gap(mine, other.model) == 0


def test_chunks_change_nothing() -> None:
    one, other = (play("local", chunk=chunk, **TASK) for chunk in (1, 3))
    assert gap(one.model, other.model) < 1e-12


def test_the_original_is_sent_where_the_base_station_trains() -> None:
    """Split training sends 8 bits for each of an image's 64 numbers and d numbers of features. d numbers come down."""
    w = world("fedcl", sizes=(7, 5), channel={"kind": "awgn"}, **TASK)
    w.session.tally.features(np.arange(2), [[7], [5]], back=True)
    up = w.air.totals["up"]
    assert (up.floats, up.bits) == (12 * 4, 12 * 64 * 8)


@pytest.mark.parametrize("method", UNABLE)
def test_methods_that_need_classes_are_refused(method: str) -> None:
    with pytest.raises(ConfigError, match=f"^task: .* {method} "):
        resolve(RunConfig(method, **TASK))


@pytest.mark.parametrize("method", ABLE)
def test_every_other_method_rebuilds_images(method: str) -> None:
    """After two rounds on bars, each view is better than white images with 3.3 dB.

    In float32, because its convolutions are much faster: the SSIM of a test costs more than the training.
    """
    result = run(request(method, **TASK, precision="float32", train={"rounds": 2, "eval_every": 2}))
    assert all(3.5 < view["psnr"] < 40 for view in result.summary["views"].values()), result.summary["views"]
    assert result.summary["psnr"] == next(iter(result.summary["views"].values()))["psnr"]
    assert "accuracy" not in str(result.summary["views"])


# -- the optimum of linear coding ------------------------------------------------------------------------------------

EIGENVALUES = np.array([1.0, 0.7, 0.35, 0.25, 0.12, 0.06, 0.02, 0.01]) * 0.1
"""Variances of the source's eight numbers on the scale of [-1, 1]. With 0.1, three standard deviations lie inside."""
SENT, SNR_DB = 4, 8.0


class Budget(nn.Module):
    """A matrix with an output of mean square 1 over the source, not over each sample."""

    def __init__(self, source: int, sent: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(sent, source) / source**0.5)
        self.register_buffer("variances", torch.tensor(EIGENVALUES[:source]))

    def forward(self, x: Tensor) -> Tensor:
        power = (self.weight.square() * self.variances).sum() / len(self.weight)
        return x.flatten(1) @ self.weight.T / power.sqrt()


@ENCODERS.register("test-budget")
def budget(channels: int, features: int) -> nn.Module:
    return Budget(len(EIGENVALUES), features)


@TASKS.register("test-error")
class OnlyError(Reconstruction):
    """For images that are too small for SSIM."""

    metrics = (MSE,)

    def measure(self, outputs: Tensor, target: Tensor) -> dict[str, Tensor]:
        return {"mse": (outputs.reshape(target.shape) - target).square().flatten(2).mean(-1)}


def bound() -> float:
    """The least mean squared error of linear coding (Lee & Petersen, 1976): with power by water-filling."""
    noise = 10 ** (-SNR_DB / 10)
    best = math.inf
    for n in range(1, SENT + 1):  # numbers that are sent at all
        roots = np.sqrt(EIGENVALUES[:n])
        level = roots.sum() / (SENT / noise + n)
        power = roots / level - 1  # over the noise
        if (power > 0).all():
            best = min(best, float((EIGENVALUES[:n] / (1 + power)).sum() + EIGENVALUES[n:].sum()))
    return best / len(EIGENVALUES)


def test_a_linear_autoencoder_reaches_the_optimum_of_linear_coding() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(8000, len(EIGENVALUES), generator=generator, dtype=torch.float64) * torch.tensor(EIGENVALUES).sqrt()
    images = ((x.clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8).view(-1, 1, 1, len(EIGENVALUES))
    data = federation(images, torch.zeros(8000, dtype=torch.int64), ragged([4000]), ragged([4000], 4000), 2)
    train = {"lr": 0.01, "batch_size": 1000, "rounds": 250, "lr_milestones": (150, 220), "lr_decay": 0.2}
    link = {"kind": "awgn", "snr_db": SNR_DB, "power": "free"}
    asked = {"model": {"features": SENT}, "train": train, "channel": link, "task": "test-error"}
    w = world("local", data=data, encoder="test-budget", **asked)
    state = rounds(w, n=250)[-1]
    (found,) = measure_views(w.session, {"": View(state.model)}, (SNR_DB,), data.test)
    assert 10 * math.log10(float(found[""]["mse"].clients[0]) / bound()) == pytest.approx(0.0, abs=0.1)


# -- networks --------------------------------------------------------------------------------------------------------


def test_deepjscc_has_the_papers_layers() -> None:
    """32x32 colour images at k/n = 1/12: 8 maps of 8x8, 5x5 weights, and PReLU slopes for all filters but the last."""
    encoder, decoder = deepjscc.deepjscc_encoder(3, 512), deepjscc.deepjscc_decoder(512, (3, 32, 32))
    pairs = [(3, 16), (16, 32), (32, 32), (32, 32), (32, 8)]
    for network, slopes in ((encoder, 16 + 3 * 32), (decoder, 3 * 32 + 16)):
        biases = 16 + 3 * 32 + (8 if network is encoder else 3)
        weights = sum(25 * a * b for a, b in pairs)
        assert sum(p.numel() for p in network.parameters()) == weights + biases + slopes
    x = torch.rand(2, 3, 32, 32)
    assert encoder(x).shape == (2, 512) and decoder(encoder(x)).shape == x.shape


@pytest.mark.parametrize(("size", "stages"), [(32, 3), (64, 4), (96, 4), (160, 5)])
def test_dcgan_mirrors_its_encoder(size: int, stages: int) -> None:
    network = dcgan_head(64, (3, size, size))
    up = [layer for layer in network if isinstance(layer, nn.ConvTranspose2d)]
    assert [layer.in_channels for layer in up] == [64 << i for i in reversed(range(stages))]
    assert network(torch.rand(2, 64)).shape == (2, 3, size, size)


@pytest.mark.parametrize("training", [True, False])
def test_decoders_on_stacks_are_those_of_each_client(training: bool) -> None:
    x, z = (
        -torch.rand(3, 2, 3, 32, 32, dtype=torch.float64),
        -torch.rand(3, 2, 128, dtype=torch.float64),
    )  # slopes count
    same(replace_by_own_layers(deepjscc.deepjscc_encoder(3, 128)).double().train(training), x)
    same(replace_by_own_layers(deepjscc.deepjscc_decoder(128, (3, 32, 32))).double().train(training), z)


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"model": ModelConfig(head="deepjscc")}, "model.head"),
        ({"model": ModelConfig(head="dcgan")}, "model.head"),
        ({"model": ModelConfig(encoder="deepjscc", features=100), **TASK}, "model.features"),
        ({"model": ModelConfig(bandwidth_ratio="1/7000")}, "model.bandwidth_ratio"),
        ({"model": ModelConfig(bandwidth_ratio="none")}, "model.bandwidth_ratio"),
        ({"keep": ("images",), "out": "x"}, "keep"),
        ({"keep": ("confusion",), "out": "x", **TASK}, "keep"),
        ({"task": "reconstrucion"}, "task"),
    ],
)
def test_what_does_not_fit_is_refused(asked: dict[str, Any], field: str, tmp_path: Path) -> None:
    out = {"out": str(tmp_path / "run")} if "out" in asked else {}
    with pytest.raises(ConfigError) as refused:
        run(RunConfig("fedavg", clients=2, **{**asked, **out}))
    assert refused.value.field == field


def test_a_study_goes_over_the_bandwidth_ratio(tmp_path: Path) -> None:
    """It varies the number of features and plots against the ratio. 1/12 of 1,024 is not a whole number."""
    small: dict[str, Any] = {"clients": 2, "train.rounds": 1}
    vary = {"model.bandwidth_ratio": ("1/16", "1/4")}
    semcom.sweep(methods=("local",), seeds=(0,), set=small, vary=vary, out=tmp_path)
    study = semcom.study(tmp_path)
    assert study.axes == ("model.features",) and sorted(study.runs["model.features"]) == [128, 512]
    part, plot = settle_kind(study, Plot(x="model.bandwidth_ratio"))
    assert plot.kind == "lines" and compute_lines(part, plot)[str(plot.x)].tolist() == [0.0625, 0.25]
    asked = parse_request(("local",), 0, small, vary, {"train.lr": (0.1, 0.2)})
    search = plan_search(None, None, asked, (), tmp_path / "tuned").runs.values()
    assert {(run.model.features, run.train.lr) for run in search} == {(n, lr) for n in (128, 512) for lr in (0.1, 0.2)}
    with refuses("model.bandwidth_ratio", "1/12"):
        semcom.sweep(methods=("local",), vary={"model.bandwidth_ratio": ("1/12",)}, out=tmp_path / "other")


@pytest.mark.parametrize(("asked", "features"), [("1/8", 256), ("0.0625", 128)])
def test_a_bandwidth_ratio_asks_for_features(asked: str, features: int) -> None:
    """Digits have one channel of 32x32 numbers. The run equals a run with that number of features."""
    found = resolve(RunConfig("fedavg", model=ModelConfig(bandwidth_ratio=asked)))
    assert found == resolve(RunConfig("fedavg", model=ModelConfig(features=features)))
    assert HEADS.ships("deepjscc")


# -- results ---------------------------------------------------------------------------------------------------------


def test_images_come_back(tmp_path: Path) -> None:
    """Over a perfect link `decode` gives the images that the arrays keep, and their PSNR is that of the tests."""
    asked = request("fedper", **TASK, channel={"kind": "ideal"}, train={"rounds": 2}, keep=("images",))
    result = run(RunConfig(**{**vars(asked), "out": str(tmp_path / "run")}))
    kept = np.load(tmp_path / "run" / "arrays.npz")
    originals, back = kept["originals/images"], kept["images/personal"][0]
    for client in range(4):
        mine = kept["originals/client"] == client
        images = torch.as_tensor(originals[mine])
        assert mine.sum() == 4
        assert np.abs(result.decode(client, images).numpy().astype(int) - back[mine]).max() <= 1  # bytes, rounded
        assert torch.equal(load(tmp_path / "run").decode(client, images), result.decode(client, images))
    tests = result.federation.images[result.federation.test[0]]
    errors = ((result.decode(0, tests).double() - tests) / 255)[..., 12:20, 12:20]  # pictures of 8x8, without border
    psnr = float((-10 * errors.square().flatten(1).mean(1).log10()).mean())
    assert psnr == pytest.approx(result.metrics[-1]["views"]["personal"]["clients"][0], abs=0.01)
    with pytest.raises(ConfigError, match="call decode"):
        result.predict(0, tests)


def test_scores_of_classes_are_decoded_too() -> None:
    result = run(request("fedavg", train={"rounds": 1}, channel={"kind": "ideal"}))
    images = result.federation.images[:5]
    assert torch.equal(result.decode(1, images).argmax(-1), result.predict(1, images))


def test_what_a_run_reports(tmp_path: Path) -> None:
    """Metrics have their own names at each test SNR, and the worst clients are those with the lowest PSNR."""
    asked = request("local", **TASK, channel={"snr_db": 10.0, "test_snr_db": "10,-5"}, train={"rounds": 2})
    result = run(asked)
    view = result.summary["views"]["personal"]
    assert view["psnr"] == pytest.approx(np.mean(view["clients"]))
    assert view["psnr_worst10"] == min(view["clients"])
    assert view["psnr_pooled"] == pytest.approx(np.average(view["clients"], weights=result.federation.test.sizes))
    assert view["psnr_at"]["10"] == pytest.approx(view["psnr"]) and view["psnr_at"]["-5"] < view["psnr"]
    assert view["mse_at"]["-5"] > view["mse_at"]["10"] == pytest.approx(view["mse"])
    assert view["psnr_best"] >= view["psnr_last"] and semcom.TASKS.names()[0] == "classification"
