"""Requests that are too large: refused with what they would take, or ended in one line where the system says no."""

from __future__ import annotations

import re
import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch

from semcom.config import PartitionConfig, RunConfig, RunError
from semcom.data.dataset import Dataset
from semcom.data.federation import federate
from semcom.data.partitions import partition_dataset
from semcom.methods.registry import METHODS
from semcom.runs import limits
from semcom.runs.images import read_run_images
from semcom.runs.limits import CLIENT, check_model_limits, check_size_limits, limit_memory
from semcom.runs.resolve import resolve
from semcom.runs.runner import run
from tests import worlds
from tests.refusals import refuses

GIB = 2**30
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def one_gib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "measure_free_memory", lambda device: GIB)


def request(**fields: Any) -> RunConfig:
    return RunConfig(method="fedavg", device="cpu", **fields)


def test_many_clients_are_not_too_many() -> None:
    for clients in (100_000, 1_000_000):
        config = resolve(request(clients=clients))
        assert check_size_limits(config) is None
    assert resolve(request(seed=10**40)).seed == 10**40


def test_a_client_takes_at_least_what_is_said() -> None:
    """Measured: tables, lists and offsets of 500 clients with three images each."""
    labels = np.arange(1_500) % 10
    dataset = Dataset("set", np.zeros((1_500, 1, 1, 1), np.uint8), labels, 1_375, tuple("0123456789"))
    federate(dataset, partition_dataset(dataset, PartitionConfig(kind="iid"), 10, 0))  # what is imported once
    tracemalloc.start()
    federate(dataset, partition_dataset(dataset, PartitionConfig(kind="iid"), 500, 0))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak > 500 * CLIENT


def test_the_numbers_of_a_network_are_counted_exactly() -> None:
    result = run(worlds.request("local", train={"rounds": 1}))
    exact = sum(t.numel() for t in result.world.population().cohorts[0].network.state_dict().values())
    assert limits._count_model_numbers(result.config, "test-patches", result.federation) == exact


def test_a_run_that_fits_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the byte: 4 times the weights, in float64."""
    config = worlds.request("local")
    members = read_run_images(config).members
    least = 4 * 8 * limits._count_model_numbers(config, "test-patches", members)
    monkeypatch.setattr(limits, "measure_free_memory", lambda device: least)
    check_model_limits(config, members, CPU)
    monkeypatch.setattr(limits, "measure_free_memory", lambda device: least - 1)
    with refuses("model.features", 4):
        check_model_limits(config, members, CPU)


def test_of_several_machines_each_holds_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 20 clients, 20 on one machine or 10 on each of two: 2 times the weights, and 2 for each of them."""
    w = worlds.world("local", sizes=(20,) * 20, chunk=20)
    config, members = w.config, w.session.draws.federation
    numbers = limits._count_model_numbers(config, config.model.encoder, members)
    for machines, k in ((1, 20), (2, 10)):
        monkeypatch.setattr(limits, "launched_size", lambda n=machines: n)
        monkeypatch.setattr(limits, "measure_free_memory", lambda device, k=k: 8 * numbers * (2 + 2 * k))
        check_model_limits(config, members, CPU)
        monkeypatch.setattr(limits, "measure_free_memory", lambda device, k=k: 8 * numbers * (2 + 2 * k) - 1)
        with refuses("chunk", 20, f"{k} networks"):
            check_model_limits(config, members, CPU)


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
def test_memory_that_is_refused_is_a_failed_run(error: Exception, message: str) -> None:
    """What a run has trained by then is kept: `test_stop`."""
    with pytest.raises(RunError, match=f"{re.escape(message)}$"), limit_memory():
        raise error


def test_memory_that_runs_out_before_training_is_one_line_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Any, world: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(METHODS.get("fedavg"), "setup", refuse)
    with pytest.raises(RunError, match="^there is not enough memory$"):
        run(worlds.request("fedavg"))


def test_other_errors_are_not_taken_for_it() -> None:
    with pytest.raises(RuntimeError, match="^shapes$"), limit_memory():
        raise RuntimeError("shapes")
    with pytest.raises(RunError, match="^round 1: can't allocate memory$"), limit_memory():
        raise RunError("round 1: can't allocate memory")
