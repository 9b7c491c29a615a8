"""semcom on CUDA: it runs, computes what a CPU does, and never waits. On a machine's GPU, else on a virtual one.

The virtual one (`tests/virtual.py`) computes with the host's kernels, and all draws are the host's, so equal means bit
for bit there. The host waits for the device around training, not in it. What only the virtual one can tell (launches,
draws, what is refused) is skipped on a real one.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from semcom.cli import main as cli
from semcom.engine.air.air import Air
from semcom.engine.train import arena, fit, replay
from semcom.engine.train.context import Context
from semcom.engine.train.forward import Batch, StackedModel
from semcom.engine.world import World
from semcom.methods.base import task_loss
from semcom.methods.registry import METHODS
from semcom.models import convolution
from semcom.models.batchnorm import BatchNorm
from semcom.runs.result.result import Result
from semcom.runs.rounds.runner import run
from semcom_papers.experiments.bench import engine as bench_engine
from semcom_papers.experiments.bench.__main__ import main as carry_out_bench
from semcom_papers.experiments.bench.engine import CASES
from semcom_papers.experiments.bench.rounds import Rounds
from semcom_papers.experiments.bench.workloads import Variant, list_workload_variants, make_synthetic_workload
from tests import worlds
from tests.experiments.bench.test_rounds import here  # noqa: F401 - a fixture
from tests.runs.rounds.test_run import interrupt, timeless, weights
from tests.virtual import CARDS, GPU, POSSIBLE, REAL, Record, VirtualGPU, inherited, steps

pytestmark = pytest.mark.skipif(not (POSSIBLE or REAL), reason="takes a torch with CUDA")
virtual = pytest.mark.skipif(not POSSIBLE, reason="takes a virtual GPU")


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have also the few steps of these tests replayed by a graph, and ways to convolve tried once."""
    monkeypatch.setattr(replay, "LEAST", 1)
    monkeypatch.setattr(replay, "_refused", set())
    monkeypatch.setattr(convolution, "REPEATS", 1)


ARMS = [name for name in METHODS.names() if not name.startswith("test-")]
Chunks = Sequence[tuple[int, Record]]
"""The number of steps of each chunk in training, and what they did."""


def request(method: str = "fedcl", device: str = "cpu", **overrides: Any) -> Any:
    """A run of two rounds of four unequal clients, with BatchNorm, padding and noise both ways."""
    usual: dict[str, Any] = {"chunk": 4, "encoder": "test-deep"} | overrides
    usual["train"] = {"rounds": 2, **usual.get("train", {})}
    return worlds.request(method, device=device, **usual)


def outcome(result: Result) -> tuple[str, list[Tensor]]:
    """All that a run gives but times: lines and summary as text, and weights on the host."""
    names = ("views", "finish", "new_clients", "traffic", "snr_received_db")
    told = [*map(timeless, result.metrics), *(result.summary.get(name) for name in names)]
    return json.dumps(told), [t.cpu() for t in weights(result)]


def assert_alike(found: tuple[str, list[Tensor]], expected: tuple[str, list[Tensor]], error: float = 0.0) -> None:
    """Assert that two outcomes differ by no more than an error, relative to numbers above 1."""
    words, numbers = zip(*(split(text) for text, _ in (found, expected)), strict=True)
    assert words[0] == words[1]
    assert numbers[0] == pytest.approx(numbers[1], rel=error, abs=error, nan_ok=True)
    assert len(found[1]) == len(expected[1]) > 0
    for one, other in zip(found[1], expected[1], strict=True):
        torch.testing.assert_close(one, other, rtol=error, atol=error)


def split(text: str) -> tuple[list[str], list[float]]:
    number = r"-?\d+\.?\d*(?:e[-+]\d+)?|NaN"
    return re.split(number, text), [float(found) for found in re.findall(number, text)]


def all_waits(chunks: Chunks) -> Counter[str]:
    return sum((record.waits for _, record in chunks), Counter())


def agrees(method: str = "fedcl", error: float = 1e-8, building: int = 0, **overrides: Any) -> None:
    """Assert that a run on CUDA is that on a CPU, waits for nothing in its steps, and draws nothing on the device.

    The first chunks may wait, as many as are `building` what a process builds once.
    """
    expected = outcome(run(request(method, **overrides)))
    with GPU() as gpu, steps(gpu) as chunks:
        found = outcome(run(request(method, "cuda", **overrides)))
    assert_alike(found, expected, error)
    assert sum(n for n, _ in chunks) > 1 and all_waits(chunks[building:]) == {}
    assert REAL or all(record.launches.total() > 5 * n for n, record in chunks)
    assert gpu.record.draws == {} and replay._refused == set()


# Runs ----------------------------------------------------------------------------------------------------------------


ALIKE = ("local", "fedper", "fedbabu", "lg_fedavg", "fedavg_ft", "fedprox_ft", "fedcrl")
"""Methods whose steps on a device are those of another one, of other parts."""


@pytest.mark.parametrize("arm", [arm for arm in ARMS if REAL or arm not in ALIKE])
def test_every_method(arm: str) -> None:
    """In stacks, whose sums are rounded in another order; 1e-8 for Adam, which divides rounding by small gradients."""
    agrees(arm)


@pytest.mark.parametrize("arm", ["fedcl", "fedproto", "perfedavg", "repper"])
def test_a_method_with_one_client_after_the_other(arm: str) -> None:
    agrees(arm, chunk=1, clients=2, train={"rounds": 1})


LINKS: dict[str, dict[str, Any]] = {
    "none": {"kind": "none"},
    "ideal": {"kind": "ideal"},
    "awgn": {"kind": "awgn", "snr_db": "0:18", "downlink_snr_db": 5.0, "test_snr_db": "0,10"},
    "rayleigh": {"kind": "rayleigh"},
    "rayleigh-batch": {"kind": "rayleigh", "coherence": "batch", "equaliser": "zf", "downlink": "ideal"},
    "rician": {"kind": "rician"},
    "ofdm-rayleigh": {"kind": "ofdm", "profile": "rayleigh"},
    "ofdm-tdl-ls": {"kind": "ofdm", "profile": "tdl-a", "csi": "ls"},
    "ofdm-cdl-ls": {"kind": "ofdm", "profile": "cdl-c", "csi": "ls"},
    "digital": {"kind": "digital"},
    "digital-rayleigh": {"kind": "digital", "fading": "rayleigh"},
}


def over(link: str) -> dict[str, Any]:
    """Settings of a run over a link; a block of the digital one takes some features to be filled, and its time."""
    clients, size = (2, 32) if link.startswith("digital") else (4, 4)
    return {"channel": LINKS[link], "clients": clients, "model": {"features": size}, "train": {"rounds": 1}}


@pytest.mark.parametrize("link", LINKS)
def test_every_link(link: str) -> None:
    """The digital one builds its code in the first round, whose chunks are the clients' and the base station's.

    On a real GPU, estimated channels and soft decoding differ as float32 does. A block that one device just decodes and
    the other does not then changes all that follows, so over fading codes no numbers are compared.
    """
    coded = link.startswith("digital")
    setting = over(link) | {"train": {"rounds": 1 + coded}}
    single = REAL and (coded or link.endswith("ls"))
    error = math.inf if REAL and link == "digital-rayleigh" else 1e-5 if single else 1e-7 if coded else 1e-8
    agrees(**setting, building=2 * coded, error=error)


@pytest.mark.parametrize("link", ["ofdm-cdl-ls", "digital"])
def test_a_run_on_the_cpu_of_a_machine_with_a_gpu(link: str) -> None:
    expected = outcome(run(request(**over(link))))
    with GPU() as gpu:
        assert_alike(outcome(run(request(**over(link)))), expected)
    assert gpu.record == Record()


@pytest.mark.parametrize("kind", ["mlp", "svm", "lr"])
def test_every_last_stage(kind: str) -> None:
    epochs = {"epochs": 2} if kind == "mlp" else {}
    agrees("fedavg", finish={"kind": kind, **epochs}, new_clients=2, train={"rounds": 1})


SHARED = {"antennas": 2, "users": 2, "combining": "mmse", "round_doppler": 0.1}
SETTINGS: dict[str, dict[str, Any]] = {
    "new clients that train": {"method": "fedavg", "new_clients": 2, "new_steps": 3},
    "analog parameters": {"method": "fedavg", "air": {"parameters": "analog"}},
    "optimiser": {"train": {"optimizer": "sgd", "momentum": 0.9, "weight_decay": 0.1}},
    "rates and epochs per client": {"train": {"lr": (0.01, 0.02, 0.03, 0.02), "local_epochs": (1, 3, 2, 1)}},
    "participation": {"store": "host", "train": {"participation": 0.5, "rounds": 3}},
    "validation": {"partition": {"validation": 0.2}},
    "dropout": {"encoder": "test-deep-dropout"},
    "vmap": {"encoder": "test-deep-vmap"},
    "mixed encoders": {"method": "fedproto", "encoder": "test-deep,test-pool"},
    "losses of FedCL": {"hyper": {"scg_loss": "infonce", "source": "pass"}},
    "second order": {"method": "perfedavg", "hyper": {"variant": "hf"}},
    "images rebuilt": {"method": "fedavg", "task": "reconstruction", "model": {"head": "linear"}},
    "users and fading over rounds": {"channel": {"kind": "rayleigh", "coherence": "round"} | SHARED},
    "SNR as an input": {"channel": {"snr_db": "0:18"}, "model": {"snr_input": True}},
    "quantised updates": {"method": "fedavg", "air": {"compress": "quantise"}},
    "superposed": {"method": "fedavg", "air": {"parameters": "analog", "access": "superposed"}},
    "private updates": {"method": "fedavg", "encoder": "mlp", "air": {"privacy": "gaussian"}},
    "private updates at once": {
        "method": "fedavg",
        "encoder": "mlp",
        "air": {"parameters": "analog", "access": "superposed", "privacy": "gaussian", "noise_by": "clients"},
    },
    "lost updates": {"method": "fedavg", "air": {"rate": "capacity", "outage": 0.3, "repeat": False}},
    "an adversary, and noise of the clients": {
        "method": "fedcl",
        "channel": {"kind": "rayleigh", "feature_noise": 0.5},
        "train": {"adversary": 0.3, "rounds": 1},
    },
    "deadline": {
        "method": "fedavg",
        "network": {"flops": 1e9, "flops_spread": 1.0},
        "train": {"deadline_s": 0.001, "rounds": 2},
    },
}


@pytest.mark.parametrize("name", SETTINGS)
def test_other_settings(name: str) -> None:
    agrees(**{"train": {"rounds": 1}} | SETTINGS[name])


@pytest.mark.parametrize(
    ("precision", "error", "encoder"),
    [
        ("float32", 1e-5, "test-deep"),
        ("tf32", 1e-5, "test-deep"),
        ("bf16", 2.0**-8, "test-deep"),
        ("bf16", 2.0**-8, "test-deep-vmap"),
    ],
)
def test_every_precision(precision: Any, error: float, encoder: str) -> None:
    """Ways to convolve are tried in the first run of a process, which waits for them. The virtual TF32 is float32."""
    error = 2.0**-8 if REAL and precision == "tf32" else error
    setting: dict[str, Any] = {"encoder": encoder, "train": {"rounds": 1, "optimizer": "sgd", "lr": 0.01}}
    expected = run(request("fedavg", precision="float32" if precision == "tf32" else precision, **setting))
    with GPU() as gpu:
        config = request("fedavg", "cuda", precision=precision, **setting)
        run(config)
        with steps(gpu) as chunks:
            found = run(config)
        for one, other in zip(weights(found), weights(expected), strict=True):
            torch.testing.assert_close(one.cpu(), other, rtol=error, atol=error)
    assert found.metrics[0]["loss"] == pytest.approx(expected.metrics[0]["loss"], rel=error)
    assert len(chunks) == 1 and all_waits(chunks) == {}


@virtual
@pytest.mark.parametrize("chunk", [1, 4])
def test_a_fit_waits_once(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """For whether all numbers are finite: what its chunks need is sent to them without a wait."""
    fit, waits = World.fit, []

    def noting(self: World, *args: Any, **kwargs: Any) -> Any:
        with gpu.apart() as record:
            fitted = fit(self, *args, **kwargs)
        waits.append(record.waits.total())
        return fitted

    monkeypatch.setattr(World, "fit", noting)
    with GPU() as gpu:
        run(request(device="cuda", chunk=chunk, train={"lr": (0.01, 0.02, 0.03, 0.02), "participation": 0.75}))
    assert waits == [1] * 4, "two of FedCL in each of two rounds"


@virtual
def test_a_mean_that_is_sent_at_once_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What truncation cuts off is known to the host, which draws the fading; weights are there already."""
    average, waits = Air.average, []

    def noting(self: Air, *args: Any, **kwargs: Any) -> Any:
        with gpu.apart() as record:
            mean = average(self, *args, **kwargs)
        waits.append(record.waits.total())
        return mean

    monkeypatch.setattr(Air, "average", noting)
    air = {"parameters": "analog", "access": "superposed", "truncation_db": 0.0}
    asked: dict[str, Any] = {"air": air, "channel": {"kind": "rayleigh"}, "train": {"rounds": 2}}
    with GPU() as gpu:
        found = run(request("fedavg", "cuda", **asked))
        assert waits == [0, 0]
        assert found.metrics[0]["cut-off"] > 0


@pytest.mark.parametrize(
    ("method", "store", "devices"),
    [("fedcl", "host", ("cpu", "cuda")), ("ditto", "disk", ("cuda", "cpu")), ("fedproto", "device", ("cuda", "cpu"))],
)
def test_a_run_that_goes_on_elsewhere(method: str, store: str, devices: tuple[str, str], tmp_path: Path) -> None:
    setting: dict[str, Any] = {"store": store, "train": {"rounds": 3, "participation": 0.75}}
    whole = outcome(run(request(method, out=str(tmp_path / "whole"), **setting)))
    setting["train"] |= {"checkpoint_every": 1}
    with GPU():
        first, second = (request(method, device, out=str(tmp_path / "parts"), **setting) for device in devices)
        interrupt(first, 2)
        assert_alike(outcome(run(second)), whole, 1e-8)


def test_two_processes() -> None:
    setting = {"chunk": 1, "channel": {"kind": "rayleigh"}, "train": {"rounds": 1}, "plugins": ("tests.worlds",)}
    with inherited(), GPU():
        alone, both = (outcome(run(request(device="cuda", processes=n, **setting))) for n in (1, 2))
    assert_alike(both, alone, 1e-12)  # sums of what is measured are added in another order


@virtual
def test_two_processes_with_a_gpu_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CARDS, "2")
    setting = {"chunk": "auto", "train": {"rounds": 2}, "plugins": ("tests.worlds",), "processes": "auto"}
    with inherited(), GPU():
        both = run(request(device="cuda", **setting))
        found = outcome(both)
    assert both.config.processes == 2
    assert_alike(found, outcome(run(request(**setting | {"processes": 1}))), 1e-8)


# Commands ------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("thin")
def test_make_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command of the Makefile with fewer rounds, clients and SNRs."""
    words = f"sweep demo --scale smoke --set clients=2 --set train.rounds=1 --set channel.snr_db=9 --out {tmp_path}"
    with GPU() as gpu, steps(gpu) as chunks:
        assert cli.main(words.split()) == 0
    assert len(chunks) == 4 and all_waits(chunks) == {}, "two of FedCL, one of FedProto and of FedAvg"
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines() if "%" in line or "±" in line]


@pytest.mark.usefixtures("few_draws")
def test_channel_check(capsys: pytest.CaptureFixture[str]) -> None:
    with GPU() as gpu:
        assert cli.main(["channel-check", "--device", "cuda"]) == 0
    out = capsys.readouterr().out
    assert "device cuda:0" in out and "all within 5 standard errors" in out
    assert REAL or gpu.record.launches.total() > 1000


@pytest.mark.usefixtures("here")
def test_bench_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With smaller networks; `test_launches_of_a_step` has the true ones."""
    small = {"b": replace(bench_engine.SMALL["b"], encoder="test-deep", features=8, samples=4, pool=100)}
    monkeypatch.setattr(bench_engine, "SMALL", small)
    names = [variant.name for variant in list_workload_variants(cuda=True) if variant.device == "cuda"]
    words = f"engine --quick --cases b --variants {','.join(names)} --repeats 1 --growth 2"
    with GPU():
        carry_out_bench([*words.split(), "--json", str(tmp_path / "bench.json")])
    rows = json.loads((tmp_path / "bench.json").read_text())["rows"]
    assert [row["variant"] for row in rows if not row["growing"]] == names
    assert [row["error"] for row in rows] == [None] * (len(names) + 3)


# Launches ------------------------------------------------------------------------------------------------------------

LAUNCHES = {("a", "float32"): (55, 0, 40), ("b", "float32"): (109, 40, 59), ("b", "bf16"): (128, 40, 59)}
"""Launches in cases of `semcom_papers.experiments.bench`, in a round in which all steps are replayed: of a step of all
clients at once, of the base station's one, and of all that is not in a step, for any number of clients.

As many as there are now. Lower a number when a step gets by with fewer; raise it only for a reason."""


@virtual
@pytest.mark.parametrize(("case", "precision"), LAUNCHES)
def test_launches_of_a_round(case: str, precision: Any) -> None:
    few, many = (launches(case, precision, samples) for samples in (8, 16))
    found = (many[0] - few[0]) / 2, *few[1:]
    assert few[0] == 2 * found[0] and many[1:] == few[1:], "what a fit does once is not in its steps"
    assert all(n <= most for n, most in zip(found, LAUNCHES[case, precision], strict=True)), found


def launches(case: str, precision: Any, samples: int) -> tuple[int, int, int]:
    """Launches in the third round of clients with batches of four: of their steps, the base station's, and the rest."""
    workload = replace(CASES[case], clients=samples // 2, samples=samples, batch=4, pool=200)
    variant = Variant("cuda", device="cuda", chunk="auto", precision=precision)
    with GPU() as gpu, pytest.MonkeyPatch.context() as patch:
        patch.setattr(convolution, "_time_way", lambda work: 1.0)  # the first way to convolve, whatever is faster
        play = Rounds(workload.config(variant), make_synthetic_workload(workload))
        for _ in range(2):
            play()
        with steps(gpu) as chunks, gpu.apart() as whole:
            play()
    assert chunks[0][0] == samples // 4 and all_waits(chunks) == {}
    assert len(chunks) == 1 or chunks[1][0] == 1
    clients, server = chunks[0][1].launches.total(), sum(record.launches.total() for _, record in chunks[1:])
    return clients, server, whole.launches.total() - clients - server


@virtual
@pytest.mark.parametrize(("fading", "most"), [("awgn", 238), ("rayleigh", 258)])
def test_launches_of_a_step_over_codes(fading: str, most: int) -> None:
    """Decoding is one kernel each way, where Triton is there."""
    pytest.importorskip("triton")
    setting = {"channel": {"kind": "digital", "fading": fading}, "model": {"features": 64}, "train": {"rounds": 2}}
    with GPU() as gpu, steps(gpu) as chunks:
        run(request(device="cuda", **setting))
    n, record = chunks[2]
    assert record.launches["semcom::decode_ldpc"] == 2 * n and record.launches.total() <= most * n


@virtual
@pytest.mark.parametrize("arm", ["fedcl", "fedproto", "ditto", "moon", "fedpac"])
def test_a_later_round_works_on_the_memory_of_the_first(arm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that are carried out anew touch what a recorded step has touched: a replay reads and writes nothing else.

    That a replay computes what a CPU does is in all the runs above, in which later rounds replay steps of earlier ones.
    """
    fits: list[dict[int, Any]] = []  # with what lies at an address, so that nothing else comes to lie there
    take = fit.Fit._take_steps

    def noting(self: fit.Fit, *args: Any) -> None:
        with replay.Touched() as touched:
            take(self, *args)
        fits.append(touched.outside)

    monkeypatch.setattr(fit.Fit, "_take_steps", noting)
    with GPU(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay, "record_graph", lambda work, what: None)
        run(request(arm, "cuda", train={"rounds": 4}))
    each = len(fits) // 4
    assert each and [set(fit) for fit in fits[2 * each : 3 * each]] == [set(fit) for fit in fits[3 * each :]]


# Planted faults ------------------------------------------------------------------------------------------------------


def train(objective: Callable[[StackedModel, Batch, Context], Tensor]) -> Counter[str]:
    """Train three clients on CUDA, and return the waits in their steps."""
    with GPU() as gpu, steps(gpu) as chunks:
        world = worlds.world("fedavg", chunk=3, device="cuda")
        world.fit(world.population(), objective)
    return all_waits(chunks)


WAITS: dict[str, Callable[[Tensor, Batch], Tensor]] = {
    "item": lambda loss, batch: loss * loss.sum().item(),
    "mask": lambda loss, batch: loss * (batch.y[batch.y > 0] > 0).all(),
    "blocking copy": lambda loss, batch: loss * torch.ones(len(loss), pin_memory=True).to(loss.device),
}
REFUSED: dict[str, Callable[[Tensor, Batch], Tensor]] = {
    "tensor on the host": lambda loss, batch: loss * torch.ones(len(loss)),
    "generator of the host": lambda loss, batch: loss * torch.rand_like(loss, generator=torch.Generator()),
}


def objective(slip: Callable[[Tensor, Batch], Tensor]) -> Callable[[StackedModel, Batch, Context], Tensor]:
    return lambda model, batch, context: slip(task_loss(model(batch)[1], batch), batch)


@pytest.mark.parametrize("slip", WAITS)
def test_a_wait_in_a_step_is_seen(slip: str) -> None:
    found = train(objective(WAITS[slip]))
    assert found and (REAL or all("at tests/test_cuda.py:" in what for what in found))


def test_what_does_not_wait_is_not_taken_for_a_wait() -> None:
    def pinned(loss: Tensor, batch: Batch) -> Tensor:
        return loss * torch.ones(len(loss), pin_memory=True).to(loss.device, non_blocking=True)

    assert train(objective(pinned)) == {}


@virtual
@pytest.mark.parametrize("slip", REFUSED)
def test_what_cuda_cannot_do_in_a_step_is_seen(slip: str) -> None:
    with pytest.raises((RuntimeError, TypeError), match="cuda:0|generator"):
        train(objective(REFUSED[slip]))


@virtual
def test_cudnn_batch_norm_in_vmap_is_seen(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """It asks for an order of memory which vmap does not tell, as soon as weights have their channels last.

    Such a network then goes on client by client.
    """

    def native(self: BatchNorm, x: Tensor, weight: Any, bias: Any, mean: Any, var: Any) -> Tensor:
        return functional.batch_norm(x, mean, var, weight, bias, self.training, self.momentum, self.eps)

    def last(stack: Tensor) -> Tensor:
        return torch.empty_like(stack.movedim(2, -1).contiguous().movedim(-1, 2) if stack.dim() == 5 else stack)

    monkeypatch.setattr(BatchNorm, "_native", native)
    monkeypatch.setattr(arena, "lay_for_training", last)
    with VirtualGPU(), caplog.at_level("WARNING"):
        run(request("fedavg", "cuda", encoder="test-deep-vmap"))
    assert "querying is_contiguous inside of vmap" in caplog.text
