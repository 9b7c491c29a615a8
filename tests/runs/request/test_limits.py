"""Requests that are too large: refused with what they would take, or ended in one line where the system says no."""

from __future__ import annotations

import re
import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch

from semcom.config import PartitionConfig, Resolved, RunConfig, RunError
from semcom.data.dataset import Dataset
from semcom.data.federation import Federation, federate
from semcom.data.partitions import partition_dataset
from semcom.engine.train.chunk import Footprint, measure_footprint
from semcom.methods.registry import METHODS
from semcom.runs.request import limits
from semcom.runs.request.images import read_run_images
from semcom.runs.request.limits import CLIENT, check_model_limits, check_size_limits, limit_memory
from semcom.runs.request.resolve import resolve
from semcom.runs.rounds.runner import run
from tests import worlds
from tests.refusals import refuses

GIB = 2**30
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def one_gib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "measure_free_memory", lambda device: GIB)


def request(**fields: Any) -> RunConfig:
    return RunConfig(method="fedavg", device="cpu", **fields)


def count_numbers(config: Resolved, members: Federation) -> int:
    return limits.count_model_numbers(limits._make_network(config, config.model.encoder, members))


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
    assert count_numbers(result.config, result.federation) == exact


def test_a_run_that_fits_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the byte: 4 times the weights, in float64."""
    config = worlds.request("local")
    patch_footprint(monkeypatch)
    members = read_run_images(config).members
    check_least(monkeypatch, config, members, 4 * 8 * count_numbers(config, members), "model.features", 4)


def check_least(
    monkeypatch: pytest.MonkeyPatch, config: Resolved, members: Federation, least: int, field: str, *words: object
) -> None:
    """Check that a run is taken where so many bytes are free, and refused for a field with one less."""
    monkeypatch.setattr(limits, "measure_free_memory", lambda device: least)
    check_model_limits(config, members, CPU)
    monkeypatch.setattr(limits, "measure_free_memory", lambda device: least - 1)
    with refuses(field, *words):
        check_model_limits(config, members, CPU)


def patch_footprint(monkeypatch: pytest.MonkeyPatch, **numbers: int) -> None:
    """Let a network of no weights make and keep so many numbers of an image."""
    nothing = dict.fromkeys(("weights", "made", "largest", "columns", "kept", "passed"), 0)
    monkeypatch.setattr(limits, "measure_footprint", lambda network, image: Footprint(**{**nothing, **numbers}))


def test_what_training_keeps_by_hand() -> None:
    """An image, what its first convolution makes for BatchNorm, and that for the next (in place), features, logits."""
    config = worlds.request("local")
    members = read_run_images(config).members
    of = measure_footprint(limits._make_network(config, "test-patches", members), members.images.shape[1:])
    image, first = 32 * 32, 3 * 4 * 4
    assert (of.kept, of.passed) == (image + 2 * first + 4, image + first)
    assert of.weights == count_numbers(config, members)


@pytest.mark.parametrize(("batch", "chunk", "k"), [(2, "auto", 1), (10**9, "auto", 1), (4, 3, 2), (10**9, 4, 4)])
def test_mini_batches_that_do_not_fit_are_refused(
    batch: int, chunk: Any, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the byte: what each network in training keeps of a mini-batch, which is no larger than a client's images."""
    config = worlds.request("local", chunk=chunk, train={"batch_size": batch})
    members = read_run_images(config).members
    b = min(batch, int(members.train.sizes.max()))
    patch_footprint(monkeypatch, kept=10**6)
    field = "train.batch_size" if k == 1 else "chunk"
    check_least(monkeypatch, config, members, k * b * 8 * 10**6, field, f"mini-batches of {b:,} images")


def test_tests_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """125 images at once, or all of a client, whatever the mini-batch."""
    config = worlds.request("local", train={"batch_size": 1})
    members = read_run_images(config).members
    images = min(125, int(members.test.sizes.max()))
    patch_footprint(monkeypatch, passed=10**6)
    check_least(monkeypatch, config, members, images * 8 * 10**6, "data.size", f"{images} test images")


@pytest.mark.parametrize("made", [10**6, 10**8])
def test_a_training_that_may_not_fit_is_warned_of(
    made: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Twice what the layers make of two images, in float64, beside a GiB: 0.03 or 3.0."""
    config = worlds.request("local", train={"batch_size": 2})
    patch_footprint(monkeypatch, made=made)
    check_model_limits(config, read_run_images(config).members, CPU)
    assert [text.split(":")[0] for text in caplog.messages] == (made == 10**8) * ["train.batch-size"]


def test_of_several_machines_each_holds_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 20 clients, 20 on one machine or 10 on each of two: 2 times the weights, and 2 for each of them."""
    w = worlds.world("local", sizes=(20,) * 20, chunk=20)
    config, members = w.config, w.session.draws.federation
    numbers = count_numbers(config, members)
    patch_footprint(monkeypatch)
    for machines, k in ((1, 20), (2, 10)):
        monkeypatch.setattr(limits, "count_launched_ranks", lambda n=machines: n)
        check_least(monkeypatch, config, members, 8 * numbers * (2 + 2 * k), "chunk", 20, f"{k} networks")


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
