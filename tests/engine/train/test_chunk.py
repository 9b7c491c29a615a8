"""How many clients at once: what one takes, what is free, and equal chunks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from semcom.engine import world as world_module
from semcom.engine.host.ranks import ALONE
from semcom.engine.train import chunk as module
from semcom.engine.train import fit
from semcom.engine.train.chunk import COPIES, ENOUGH, PASSES, UNFOLDED, choose_chunk, estimate_chunk_memory
from semcom.engine.train.visit import EVAL_BATCH
from semcom.methods.base import task_loss
from semcom.models.own import replace_by_own_layers
from semcom.models.split import SplitModel
from tests import worlds

IMAGE = torch.Size([1, 8, 8])
CPU, CUDA = torch.device("cpu"), torch.device("cuda")
WEIGHTS = 3 * 16 + 4 * 3 + 4 * 3 * 16 + 4 * 3 + 3
"""Conv, BatchNorm (two parameters, two buffers), conv, head."""
VALUES = 64 + 3 * (3 * 4 * 4) + 4 + 4 + 3
"""Image; conv, BatchNorm and LeakyReLU at 4x4; conv, flat; logits."""
COLUMNS = 16 * 16
"""A kernel of 4x4 on one channel, at 4x4 places; the second one has a single place, and 3 channels."""


def network(encoder: Any = worlds.conv) -> nn.Module:
    with torch.device("meta"):
        return SplitModel(replace_by_own_layers(encoder(1, 4)), nn.Sequential(nn.Linear(4, 3)))


@pytest.mark.parametrize("batch", [1, 2, 50, 500])
def test_footprint_by_hand(batch: int) -> None:
    unfolded = UNFOLDED * COLUMNS
    tests = EVAL_BATCH * (2 * 64 + unfolded)  # the image is the largest; a layer's input and output are there at once
    expected = COPIES * WEIGHTS + max((PASSES * VALUES + unfolded) * batch, tests)
    assert estimate_chunk_memory(network(), IMAGE, batch) == 4 * expected
    assert estimate_chunk_memory(network(), IMAGE, batch, 8) == 8 * expected


def test_a_footprint_leaves_the_network_as_it_was() -> None:
    net = network()
    for training in (True, False):
        net.train(training)
        estimate_chunk_memory(net, IMAGE, 2)
        assert all(m.training == training and not m._forward_hooks for m in net.modules())
    with pytest.raises(RuntimeError):
        estimate_chunk_memory(net, torch.Size([1, 2, 2]), 2)  # too small for the kernels
    assert not any(m._forward_hooks for m in net.modules())


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    found = {"cpu": 0, "cuda": 0}
    monkeypatch.setattr(module, "measure_free_memory", lambda device: found[device.type])
    yield found


def test_a_convolution_on_a_cpu_trains_alone(free: dict[str, int]) -> None:
    free["cpu"] = 1 << 50
    assert choose_chunk(network(), IMAGE, 2, CPU) == 1
    assert choose_chunk(network(worlds.linear), torch.Size([1, 1, 2]), 2, CPU) > 1


@pytest.mark.parametrize(("encoder", "image", "device"), [("linear", (1, 1, 2), CPU), ("conv", (1, 8, 8), CUDA)])
def test_elsewhere_a_third_of_what_is_free_is_filled(
    encoder: str, image: tuple[int, ...], device: torch.device, free: dict[str, int]
) -> None:
    net = network(getattr(worlds, encoder))
    each = estimate_chunk_memory(net, torch.Size(image), 2)
    for room, clients in ((0, 1), (1, 1), (3 * each - 1, 1), (3 * each, 1), (21 * each + 3, 7)):
        free[device.type] = room
        assert choose_chunk(net, torch.Size(image), 2, device) == clients
    assert choose_chunk(net, torch.Size(image), 4000, device) < 7  # larger batches, fewer clients


def test_an_accelerator_takes_no_more_than_keep_it_busy(free: dict[str, int]) -> None:
    free |= dict.fromkeys(free, 1 << 40)
    assert choose_chunk(network(), IMAGE, 2, CUDA) == ENOUGH
    assert choose_chunk(network(worlds.linear), torch.Size([1, 1, 2]), 2, CPU) > ENOUGH


W = worlds.world()


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(1, 200), st.none() | st.integers(1, 250))
def test_chunks_are_as_few_as_need_be_and_the_largest_as_small_as_that_allows(n: int, most: int | None) -> None:
    W.session.chunk = most
    k, chunks = W.session.chunk_of(n), -(-n // min(n, most or n))
    assert 1 <= k <= min(n, most or n) and -(-n // k) == chunks
    assert k == 1 or -(-n // (k - 1)) > chunks


def test_a_fit_takes_clients_in_these_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    built = fit.Chunk.__init__

    def noted(self: fit.Chunk, *given: Any) -> None:
        built(self, *given)
        sizes.append(len(self.ids))

    monkeypatch.setattr(fit.Chunk, "__init__", noted)
    for most, expected in ((3, [3, 2]), (4, [3, 2]), (5, [5]), (1, [1] * 5), (9, [5])):
        w = worlds.world(sizes=(3, 2, 2, 1, 1), chunk=most)
        w.fit(w.population(), lambda model, batch, context: task_loss(model(batch)[1], batch))
        assert sizes == expected
        sizes.clear()


def test_the_world_takes_what_all_of_its_networks_and_ranks_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ranks:
        """Two ranks, of which the other one finds room for nine."""

        rank, size = 0, 2

        def exchange(self, mine: int) -> list[int]:
            return [mine, 9]

    def chosen(*room: int, team: Any = ALONE, chunk: int | str = "auto") -> int | None:
        rooms = iter(room)
        monkeypatch.setattr(world_module, "choose_chunk", lambda *network: next(rooms))
        w = worlds.world("local", encoder="test-conv,test-conv-wide", chunk=chunk)
        w.session.tally.team = team
        assert w.session.chunk == (None if chunk == "auto" else chunk)
        w.population()
        w.population()  # once and for all
        return w.session.chunk

    shared = Ranks()
    assert chosen(7, 4) == 4 and chosen(1, 8) == 1 and chosen(chunk=5) == 5
    assert chosen(20, 12, team=shared) == 4 and chosen(1, 1, team=shared) == 1  # on one machine, half for each


def test_a_resumed_world_keeps_its_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory may be free or not, but the order of a sum must not change in the middle of a run."""
    rooms = iter((6, 2, 2, 2))
    monkeypatch.setattr(world_module, "choose_chunk", lambda *network: next(rooms))
    worlds_ = [worlds.world(chunk=chunk) for chunk in ("auto", "auto", 3)]
    for w in worlds_:
        w.population()
    first, again, fixed = worlds_
    counters = first.session.counters()
    assert (counters["chunk"], again.session.chunk, fixed.session.counters()["chunk"]) == (6, 2, 3)
    moved = {**counters, "chunk": 9, "chosen_for_cuda": 1}
    again.session.resume(moved)
    assert again.session.chunk == 2  # of another kind of device it would be far off
    again.session.resume(counters)
    fixed.session.resume(counters)
    assert (again.session.chunk, fixed.session.chunk) == (6, 3)  # what the user sets wins
    assert worlds.world(chunk="auto").session.counters()["chunk"] == 0  # none chosen yet
