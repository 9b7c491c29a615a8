"""Plans and schedules: every sample once per epoch, the last partial batch too, and the right rows at every step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from semcom import config
from semcom.engine.host.sending import send_to_device
from semcom.engine.train.phase import Phase
from semcom.engine.train.plan import Cut, Plan, Schedule, pad_clients, plan_batch_sizes, plan_batches
from tests import worlds
from tests.engine.ops import Ops

SIZE = st.integers(1, 13)


def schedule(batch: int) -> config.Schedule:
    return config.fill_from_preset(config.TrainConfig(batch_size=batch), {})


def make(n: int, batch: int, epochs: int = 1, steps: int | None = None, client: int = 0) -> Plan:
    sizes = Phase(epochs=epochs, steps=steps).sizes(client, n, schedule(batch))
    return plan_batches(range(1000 * client, 1000 * client + n), sizes, n, (0, "order", 1, client))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(SIZE, SIZE, st.integers(1, 4))
def test_every_epoch_is_a_permutation(n: int, batch: int, epochs: int) -> None:
    p = make(n, batch, epochs)
    per_epoch = -(-n // batch)
    assert p.steps == per_epoch * epochs and p.last == per_epoch * (epochs - 1)
    assert p.sizes == ([batch] * (n // batch) + [n % batch] * bool(n % batch)) * epochs
    for order in p.order.view(epochs, n):
        assert sorted(order.tolist()) == list(range(n))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(SIZE, SIZE, st.integers(1, 20))
def test_a_number_of_steps_cuts_the_last_epoch_short(n: int, batch: int, steps: int) -> None:
    p, whole = make(n, batch, steps=steps), make(n, batch, epochs=20)
    assert p.steps == steps and len(p.order) == sum(p.sizes)
    assert torch.equal(p.order, whole.order[: len(p.order)]) and p.sizes == whole.sizes[:steps]
    assert p.last == max(0, steps - -(-n // batch))  # as many steps as an epoch has: it would miss samples otherwise


@settings(max_examples=60, deadline=None, derandomize=True)
@given(SIZE, SIZE, st.integers(1, 4), st.floats(0, 1))
def test_a_fraction_visits_the_same_samples_in_every_epoch(n: int, batch: int, epochs: int, fraction: float) -> None:
    phase = Phase(epochs=epochs, fraction=fraction)
    m = phase.samples(n)
    assert m == max(1, round(fraction * n))
    p = plan_batches(range(n), phase.sizes(0, n, schedule(batch)), m, (0, "order", 1, 0))
    seen = p.order.view(epochs, m)
    assert all(set(epoch.tolist()) == set(seen[0].tolist()) for epoch in seen) and len(set(seen[0].tolist())) == m
    assert p.sizes == plan_batch_sizes(m, batch) * epochs


def test_epochs_differ_and_the_key_decides() -> None:
    p = make(12, 4, 2)
    assert not torch.equal(p.order[:12], p.order[12:])
    assert torch.equal(p.order, make(12, 4, 2).order) and torch.equal(p.order[:12], make(12, 5, 1).order)
    other = plan_batches(range(12), [4] * 6, 12, (0, "order", 2, 0))
    assert not torch.equal(p.order, other.order)


def test_one_order_in_each_round_of_a_world() -> None:
    w = worlds.world(sizes=(9, 9), train={"batch_size": 4})
    first = w.session.draws.plan(0, Phase()).order
    assert torch.equal(first, w.session.draws.plan(0, Phase()).order)
    assert not torch.equal(first, w.session.draws.plan(1, Phase()).order - 9)
    assert not torch.equal(first, w.session.draws.plan(0, Phase(stream="tune")).order)
    w.session.tally.begin(2)
    assert not torch.equal(first, w.session.draws.plan(0, Phase()).order)


CHUNK = st.lists(st.tuples(SIZE, st.integers(1, 3)), min_size=1, max_size=5)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(CHUNK, st.integers(1, 6))
def test_a_cut_picks_exactly_the_rows_of_the_step(clients: list[tuple[int, int]], batch: int) -> None:
    plans = sorted((make(n, batch, e, client=k) for k, (n, e) in enumerate(clients)), key=lambda p: -p.steps)
    schedule = Schedule(plans)
    assert schedule.steps == plans[0].steps
    rows = pad_clients([torch.stack([p.order, -p.order], 1) for p in plans])  # any per-sample draw
    visited: list[list[int]] = [[] for _ in plans]
    for step in range(schedule.steps):
        cut = schedule.cut(step)
        assert cut.n == schedule.active(step) == sum(p.steps > step for p in plans)
        assert cut.last.tolist() == [step >= p.last for p in plans[: cut.n]]
        index, drawn = cut(schedule.order), cut(rows)
        assert index.shape == drawn.shape[:2] == (cut.n, max(p.sizes[step] for p in plans[: cut.n]))
        mask = torch.ones_like(index, dtype=torch.bool) if cut.mask is None else cut.mask
        if cut.mask is not None:
            assert not cut.mask.all()  # a mask only where something is padded
        assert mask.sum(1).tolist() == [p.sizes[step] for p in plans[: cut.n]]
        assert torch.equal(drawn[..., 0], index) and torch.equal(drawn[..., 1], -index)
        for i, p in enumerate(plans[: cut.n]):
            assert set(index[i].tolist()) <= set(p.order.tolist())  # padding repeats the client's own
            visited[i] += index[i][mask[i]].tolist()
    assert visited == [p.order.tolist() for p in plans]


@settings(max_examples=25, deadline=None, derandomize=True)
@given(CHUNK, st.integers(1, 6))
def test_a_step_of_the_same_shape_is_taken_by_its_number_on_the_device(clients: Any, batch: int) -> None:
    plans = sorted((make(n, batch, e, client=k) for k, (n, e) in enumerate(clients)), key=lambda p: -p.steps)
    schedule = Schedule(plans, recorded=True)
    for step in range(schedule.steps):
        for other in range(schedule.steps):
            if schedule.shape(other) == schedule.shape(step):
                cut, expected = schedule.cut(step, torch.tensor([other])), schedule.cut(other)
                assert torch.equal(cut(schedule.order), expected(schedule.order)) and cut.n == expected.n
                assert torch.equal(cut.last, expected.last)
                assert (cut.mask is None) == (expected.mask is None)
                assert cut.mask is None or torch.equal(cut.mask, expected.mask)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(CHUNK, st.integers(1, 6))
def test_what_steps_need_is_there_before_the_first_one(clients: list[tuple[int, int]], batch: int) -> None:
    """A step only takes views of it: nothing is computed, and nothing comes from the host."""
    plans = sorted((make(n, batch, e, client=k) for k, (n, e) in enumerate(clients)), key=lambda p: -p.steps)
    schedule = Schedule(plans)
    with Ops() as ops:
        cuts = [schedule.cut(step) for step in range(schedule.steps)]
    assert set(ops.names) <= {"aten::slice", "aten::select", "aten::as_strided", "aten::alias"} and ops.bytes == 0
    assert len({t.untyped_storage().data_ptr() for cut in cuts for t in places(cut)}) <= 4


@pytest.mark.parametrize("sizes", [[(2, 2, 1)], [(2, 2), (2, 2)], [(3, 3, 1), (3, 2), (1,)]])
def test_all_of_a_schedule_goes_to_a_device(sizes: list[tuple[int, ...]]) -> None:
    """The meta device stands in for an accelerator: a tensor of the host beside it would be an error."""
    schedule = Schedule([Plan(torch.arange(sum(own)), list(own), 0) for own in sizes])
    schedule.place(send_to_device(schedule.host, torch.device("meta")))
    for step in range(schedule.steps):
        cut = schedule.cut(step)
        assert all(t.is_meta for t in places(cut)) and cut(schedule.order).shape[0] == cut.n


def places(cut: Cut) -> list[Tensor]:
    return [t for t in (cut.last, cut.mask, *(cut.at or ())) if t is not None]


def test_pad() -> None:
    one, two = torch.ones(2, 4), torch.full((3, 4), 2.0)
    padded = pad_clients([one, two])
    assert padded.shape == (2, 3, 4) and torch.equal(padded[0, :2], one) and not padded[0, 2].any()
    assert torch.equal(padded[1], two)
    assert torch.equal(pad_clients([one, one]), torch.stack([one, one]))
