"""Requests that are too large: refused with what they would take, or ended in one line where the system says no."""

from __future__ import annotations

import gc
import re
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from semcom.config import PartitionConfig, RunConfig, RunError
from semcom.data.dataset import Dataset
from semcom.data.federation import Federation, federate
from semcom.data.partitions import partition
from semcom.engine.train import fit as fit_module
from semcom.engine.train.view import View
from semcom.engine.world import World
from semcom.methods.registry import METHODS
from semcom.runs import limits
from semcom.runs.finish import finished
from semcom.runs.images import read_images
from semcom.runs.limits import CLIENT, check_size, check_work, within_memory
from semcom.runs.resolve import resolve
from semcom.runs.runner import run
from tests import worlds
from tests.refusals import refuses

GIB = 2**30
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def one_gib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "free_memory", lambda device: GIB)


def request(**fields: Any) -> RunConfig:
    return RunConfig(method="fedavg", device="cpu", **fields)


def test_a_batch_takes_no_more_than_the_clients_images() -> None:
    config = worlds.request("local", train={"batch_size": 10**9}, channel={"kind": "ofdm", "subcarriers": 100})
    assert check_work(config, read_images(config).members, None, CPU) is None


def test_many_clients_are_not_too_many() -> None:
    for clients in (100_000, 1_000_000):
        config = resolve(request(clients=clients))
        assert check_size(config) is None
    assert resolve(request(seed=10**40)).seed == 10**40


def test_a_client_takes_at_least_what_is_said() -> None:
    """Measured: tables, lists and offsets of 2,000 clients with three images each."""
    labels = np.arange(6_000) % 10
    dataset = Dataset("set", np.zeros((6_000, 1, 1, 1), np.uint8), labels, 5_500, tuple("0123456789"))
    federate(dataset, partition(dataset, PartitionConfig(kind="iid"), 10, 0))  # what is imported once
    tracemalloc.start()
    federate(dataset, partition(dataset, PartitionConfig(kind="iid"), 2_000, 0))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak > 2_000 * CLIENT


def test_the_numbers_of_a_network_are_counted_exactly() -> None:
    config = worlds.request("local")
    world = worlds.World(config, read_images(config).members, CPU, split=False)
    network = world.population().cohorts[0].network
    exact = sum(t.numel() for t in network.state_dict().values())
    assert limits._numbers(config, "test-patches", world.session.draws.federation) == exact


def test_a_run_that_fits_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the byte: 4 times the weights, in float64."""
    config = worlds.request("local")
    data = read_images(config)
    least = 4 * 8 * limits._numbers(config, "test-patches", data.members)
    monkeypatch.setattr(limits, "free_memory", lambda device: least)
    check_work(config, data.members, None, CPU)
    monkeypatch.setattr(limits, "free_memory", lambda device: least - 1)
    with refuses("model.features", 4):
        check_work(config, data.members, None, CPU)


# -- the last stage --------------------------------------------------------------------------------------------------

TRAINED: list[tuple[str, dict[str, Any], int, str]] = [
    # 40 clients with 20 images of 4 features each; a linear head has 15 numbers, an mlp 35, a whole model 267.
    # Adam holds a gradient and two moments of a client, or of as many as the chunk has; SGD the gradient alone.
    ("fedavg", {"kind": "linear"}, 8 * (800 * 4 + (40 + 3) * 15), "linear heads"),
    ("fedavg", {"kind": "mlp"}, 8 * (800 * 4 + (40 + 3) * 35), "mlp heads"),
    ("repper", {}, 8 * (800 * 4 + (40 + 3) * 15), "linear heads"),
    ("repper", {"optimizer": "sgd"}, 8 * (800 * 4 + (40 + 1) * 15), "linear heads"),
    ("fedavg_ft", {}, 8 * (800 * 4 + (40 + 3) * 15), "linear heads"),
    ("fedbabu", {}, 8 * (40 + 3) * 267, "fine-tuned copies of 267 numbers"),
    ("local", {"kind": "svm"}, 16 * 800 * 4, "the features of 800 images"),
]


@pytest.mark.parametrize(("method", "finish", "least", "what"), TRAINED)
def test_a_last_stage_that_fits_is_not_refused(
    method: str, finish: dict[str, Any], least: int, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the byte."""
    once = {} if finish.get("kind") == "svm" else {"epochs": 1}  # visits of a client take less than all their features
    w = worlds.world(method, sizes=(20,) * 40, finish={**finish, **once})
    members = w.session.draws.federation
    monkeypatch.setattr(limits, "free_memory", lambda device: least)
    check_work(w.config, members, None, CPU)
    monkeypatch.setattr(limits, "free_memory", lambda device: least - 1)
    with refuses("train.eval_clients", 40, what):
        check_work(w.config, members, None, CPU)


@pytest.mark.parametrize(
    ("method", "finish"),
    [("fedavg", {"kind": "mlp"}), ("local", {"kind": "linear"}), ("repper", {}), ("fedavg_ft", {}), ("fedbabu", {})],
)
@pytest.mark.parametrize("chunk", [4, 20])
def test_a_last_stage_holds_at_least_what_is_said(
    method: str, finish: dict[str, Any], chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measured, after each step: the tensors that live, and were not there before."""
    w = worlds.world(method, sizes=(20,) * 20, finish={**finish, "epochs": 1}, chunk=chunk, train={"batch_size": 20})
    said = compared(w, monkeypatch)["train.eval-clients"]
    arm, step, peak = METHODS.get(method)(w.config.hyper), fit_module.Chunk.step, 0
    state = arm.setup(w)
    gc.collect()  # what earlier tests left must not go while this one measures
    before = defer_signals()

    def measured(self: Any) -> None:
        nonlocal peak
        step(self)
        peak = max(peak, defer_signals() - before)

    monkeypatch.setattr(fit_module.Chunk, "step", measured)
    views = arm.finish(state, w) or arm.views(state, w)
    if finish:
        finished(w, views)
    assert said <= peak


@pytest.mark.parametrize("kind", ["svm", "lr"])
def test_classifiers_of_scikit_learn_hold_at_least_what_is_said(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    w = worlds.world("local", sizes=(20,) * 20, model={"features": 64}, finish={"kind": kind})
    views = {"": View(w.population())}
    said = compared(w, monkeypatch)["train.eval-clients"]
    finished(w, views)  # what is imported once
    tracemalloc.start()
    finished(w, views)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert said <= peak


def test_only_those_who_are_tested_count_in_a_last_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are drawn: at least, they are those with fewest images. New clients, by their own number, come on top."""
    w = worlds.world("local", sizes=(20, 3, 5, 9), train={"eval_clients": 2}, finish={"kind": "lr"}, new_clients=3)
    newcomers = worlds.random_federation((4, 6, 7))
    found = compared(w, monkeypatch, newcomers)
    assert (found["train.eval-clients"], found["new-clients"]) == (16 * (3 + 5) * 4, 16 * (4 + 6 + 7) * 4)
    w = worlds.world("local", new_clients=3, chunk=2)
    found = compared(w, monkeypatch, newcomers)
    assert "train.eval-clients" not in found and found["new-clients"] == 8 * (17 * 4 + (3 + 3 * 2) * 15)


@pytest.mark.parametrize(
    ("method", "options"),
    [("fedavg", {}), ("repper", {"finish": {"epochs": 0}}), ("fedbabu", {"finish": {"epochs": 0}})],
)
def test_without_a_last_stage_it_takes_nothing(
    method: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not {"train.eval-clients", "new-clients"} & set(compared(worlds.world(method, **options), monkeypatch))


def test_of_several_machines_each_holds_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    w = worlds.world("local", sizes=(20,) * 4, chunk=4, finish={"kind": "lr"})
    assert [compared(w, monkeypatch)[name] for name in ("train.eval-clients", "chunk")] == [16 * 80 * 4, 8 * 267 * 10]
    monkeypatch.setattr(limits, "launched_size", lambda: 2)
    assert [compared(w, monkeypatch)[name] for name in ("train.eval-clients", "chunk")] == [16 * 40 * 4, 8 * 267 * 6]


def compared(w: World, monkeypatch: pytest.MonkeyPatch, newcomers: Federation | None = None) -> dict[str, int]:
    """The bytes that a run is said to need, by the field that is as_config_error."""
    found: dict[str, int] = {}

    def note(field: str, value: object, what: str, needed: int, device: torch.device | None = None) -> None:
        found[field] = needed

    with monkeypatch.context() as patch:
        patch.setattr(limits, "_compare", note)
        check_work(w.config, w.session.draws.federation, newcomers, CPU)
    return found


def defer_signals() -> int:
    """The bytes of all tensors that live, each storage once."""
    live = [
        t.untyped_storage() for t in gc.get_objects() if type(t) in (torch.Tensor, torch.nn.Parameter) and not t.is_meta
    ]
    return sum({storage.data_ptr(): storage.nbytes() for storage in live}.values())


# -- memory that runs out --------------------------------------------------------------------------------------------

REFUSALS = [
    (MemoryError(), "there is not enough memory"),
    (MemoryError("Unable to allocate 7.45 GiB for an array"), "there is not enough memory: 7.45 GiB more were wanted"),
    (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), "memory: 2.00 GiB more were wanted"),
    (
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 920 bytes."),
        "there is not enough memory: 920 bytes more were wanted",
    ),
]


@pytest.mark.parametrize(("error", "message"), REFUSALS, ids=["bare", "numpy", "cuda", "torch"])
def test_memory_that_runs_out_is_a_failed_run(
    error: Exception, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, calls = fit_module.Chunk.step, []

    def refuse(*args: Any) -> Any:
        calls.append(1)
        if len(calls) == 20:
            raise error
        return step(*args)

    config = worlds.request(out=str(tmp_path), train={"checkpoint_every": 1})
    with monkeypatch.context() as patch, pytest.raises(RunError) as stop:
        patch.setattr(fit_module.Chunk, "step", refuse)
        run(config)
    assert re.fullmatch(rf"round (\d): .*{re.escape(message)}; last good state: round (\d), in .*", str(stop.value))
    assert len(run(config).metrics) == 6


def test_memory_that_runs_out_before_training_is_one_line_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Any, world: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(METHODS.get("fedavg"), "setup", refuse)
    with pytest.raises(RunError, match="^there is not enough memory$"):
        run(worlds.request("fedavg"))


def test_other_errors_are_not_taken_for_it() -> None:
    with pytest.raises(RuntimeError, match="^shapes$"), within_memory():
        raise RuntimeError("shapes")
    with pytest.raises(RunError, match="^round 1: can't allocate memory$"), within_memory():
        raise RunError("round 1: can't allocate memory")
