"""Requests that are too large: refused with what they would take, or ended in one line where the system says no."""

from __future__ import annotations

import re
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from semcom.config import ConfigError, PartitionConfig, RunConfig, RunError
from semcom.data.dataset import Dataset
from semcom.data.federation import federate
from semcom.data.partitions import partition
from semcom.engine.train import fit as fit_module
from semcom.methods.registry import METHODS
from semcom.runs import limits
from semcom.runs.images import read_images
from semcom.runs.limits import CLIENT, check_models, check_size, within_memory
from semcom.runs.resolve import resolve
from semcom.runs.runner import run
from tests import worlds

GIB = 2**30
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def one_gib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "free_memory", lambda device: GIB)


def request(**fields: Any) -> RunConfig:
    return RunConfig(method="fedavg", device="cpu", **fields)


TOO_LARGE: list[tuple[dict[str, Any], str]] = [
    (
        {"clients": 99999999999},
        "clients: 99999999999 is too large: the lists of their images take at least 37,252.9 GiB",
    ),
    ({"clients": 1000000000}, "clients: 1000000000 is too large: .* take at least 372.5 GiB"),
    ({"new_clients": 10**10}, "new-clients: 10000000000 is too large: .* take at least 3,725.3 GiB"),
    ({"new_clients": 10**10, "channel": {"snr_db": ",".join(["9"] * 20)}}, "new-clients: 10000000000 is too large"),
    ({"clients": 10**10, "channel": {"kind": "ofdm"}}, "clients: 10000000000 is too large"),
    ({"processes": 1000, "clients": 1000}, "processes: 1000 is too large: so many processes take at least 195.7 GiB"),
    (
        {"model": {"features": 10**6}},
        r"model.features: 1000000 is too large: the network dcgan of 4,106,657,930 numbers",
    ),
    ({"model": {"features": 10**18}}, "model: 'dcgan' or 'linear' cannot be made with 1000000000000000000 features"),
    (
        {"method": "local", "model": {"encoder": "cnn,dcgan", "features": 30000}},
        "model.features: 30000 is too large: the network dcgan of",
    ),
    ({"chunk": 20, "model": {"features": 5000}}, "chunk: 20 is too large: 20 networks dcgan of .* take at least 3.3"),
    (
        {"partition": {"options": {"shots": 10**20}}},
        "partition.shots: 100000000000000000000 is more than 9223372036854775807",
    ),
    ({"air": {"bits_per_float": 10**20}}, "air.bits-per-float: 100000000000000000000 is more than"),
    ({"train": {"local_epochs": (1, 10**20), "lr": 0.1}, "clients": 2}, "train.local-epochs: 100000000000000000000 is"),
    ({"method": "fedcl", "hyper": {"scg_steps": 10**20}}, "hyper.scg-steps: 100000000000000000000 is more than"),
]


@pytest.mark.parametrize(("fields", "message"), TOO_LARGE, ids=[message[:50] for _, message in TOO_LARGE])
def test_what_is_too_large_is_refused_with_what_it_takes(fields: dict[str, Any], message: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(ConfigError, match=f"^{message}") as stop:
        run(RunConfig(**{"method": "fedavg", "device": "cpu", "out": str(out), **fields}))
    line = str(stop.value)
    assert "\n" not in line and not out.exists()
    assert "cannot be made" in line or "is more than" in line or line.endswith("GiB, and 1.0 GiB are free")


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
    result = run(worlds.request("local", train={"rounds": 1}))
    exact = sum(t.numel() for t in result.world.population().cohorts[0].network.state_dict().values())
    assert limits._count_numbers(result.config, "test-patches", result.federation) == exact


def test_a_run_that_fits_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the byte: 4 times the weights, in float64."""
    config = worlds.request("local")
    members = read_images(config).members
    least = 4 * 8 * limits._count_numbers(config, "test-patches", members)
    monkeypatch.setattr(limits, "free_memory", lambda device: least)
    check_models(config, members, CPU)
    monkeypatch.setattr(limits, "free_memory", lambda device: least - 1)
    with pytest.raises(ConfigError, match="model.features: 4 is too large"):
        check_models(config, members, CPU)


def test_of_several_machines_each_holds_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 20 clients, 20 on one machine or 10 on each of two: 2 times the weights, and 2 for each of them."""
    w = worlds.world("local", sizes=(20,) * 20, chunk=20)
    config, members = w.config, w.session.draws.federation
    numbers = limits._count_numbers(config, config.model.encoder, members)
    for machines, k in ((1, 20), (2, 10)):
        monkeypatch.setattr(limits, "launched_size", lambda n=machines: n)
        monkeypatch.setattr(limits, "free_memory", lambda device, k=k: 8 * numbers * (2 + 2 * k))
        check_models(config, members, CPU)
        monkeypatch.setattr(limits, "free_memory", lambda device, k=k: 8 * numbers * (2 + 2 * k) - 1)
        with pytest.raises(ConfigError, match=f"^chunk: 20 is too large: {k} networks"):
            check_models(config, members, CPU)


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
