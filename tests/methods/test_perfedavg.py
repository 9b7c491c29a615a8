"""Per-FedAvg: worked by hand, against the meta-gradient itself, its batches, and the models that are tested."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from semcom.engine.train.context import Context, Log
from semcom.engine.train.forward import Batch, StackedModel
from semcom.methods.parts.slopes import take_whole_gradient_step
from semcom.methods.perfedavg import PerFedAvg
from semcom.methods.registry import METHODS
from semcom.runs.folder.checkpoint import state_from_checkpoint, state_to_checkpoint
from semcom.runs.result.evaluation import evaluate_views
from tests.methods.arms import X, Y, as_toy, assert_toy, assert_toys, rounds, toy_world, toys
from tests.methods.by_hand import Toy, mean
from tests.worlds import client, gap, world

ALPHA, BETA, DELTA = 0.4, 0.3, 0.01
HAND = {"alpha": ALPHA, "beta": BETA, "delta": DELTA}


Samples = tuple[np.ndarray, np.ndarray]
"""Images `[n, 2]` and labels `[n]`."""


def direction(w: Toy, variant: str, outer: Samples, inner: Samples, third: Samples) -> Toy:
    """Compute the client's descent direction."""
    slope = w.step(*inner, ALPHA).slope(*outer)
    if variant == "fo":
        return slope
    ahead, behind = (w.plus(slope, d).slope(*third) for d in (DELTA, -DELTA))
    return slope.plus(ahead.plus(behind, -1), -ALPHA / (2 * DELTA))


@pytest.mark.parametrize("variant", ["fo", "hf"])
def test_two_rounds_by_hand(variant: str) -> None:
    world_ = toy_world("perfedavg", hyper={**HAND, "variant": variant})
    start, *states = rounds(world_, n=2)
    w = as_toy(start.model, 0)
    for state in states:
        ways = [direction(w, variant, *[(X[k], Y[k])] * 3) for k in (0, 1)]  # full batches: all three are the same
        w = mean([w.plus(way, -BETA) for way in ways])
        assert_toy(as_toy(state.model, 0), w)


@pytest.mark.parametrize("variant", ["fo", "hf"])
def test_the_schedule_scales_the_outer_rate_alone(variant: str) -> None:
    """From round 2 on it is half of beta, by the schedule or by hand, while alpha stays."""
    w = world("perfedavg", hyper={**HAND, "variant": variant}, train={"lr_milestones": (2,), "lr_decay": 0.5})
    _, first, second = rounds(w, n=2)
    by_hand = world("perfedavg", hyper={**HAND, "variant": variant, "beta": BETA / 2})
    by_hand.session.tally.begin(2)
    assert gap(second.model, PerFedAvg(by_hand.config.hyper).round(first, by_hand).model) < 1e-12


def test_hf_descends_the_loss_after_a_step() -> None:
    """Against central differences of CE(w - alpha grad CE(w)) in every weight, with one client."""
    world_ = toy_world("perfedavg", hyper={**HAND, "variant": "hf", "delta": 1e-4})
    start, after = rounds(world_)
    w, h = as_toy(start.model, 0), 1e-5

    def meta_loss(at: Toy, k: int) -> float:
        chosen = at.step(X[k], Y[k], ALPHA).probabilities(X[k])[np.arange(len(Y[k])), Y[k]]
        return float(-np.log(chosen).mean())

    for part in ("W", "V", "b"):
        want = np.zeros_like(getattr(w, part))
        for at in np.ndindex(want.shape):
            unit = Toy(*(np.zeros_like(getattr(w, p)) for p in ("W", "V", "b")))
            getattr(unit, part)[at] = 1
            slopes = [(meta_loss(w.plus(unit, h), k) - meta_loss(w.plus(unit, -h), k)) / (2 * h) for k in (0, 1)]
            want[at] = 3 / 5 * slopes[0] + 2 / 5 * slopes[1]
        got = (getattr(w, part) - getattr(as_toy(after.model, 0), part)) / BETA
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-6)


def test_the_batches_of_a_step_have_orders_of_their_own() -> None:
    """The outer order is FedAvg's. Over an epoch each order visits all of a client's samples once."""
    seen: dict[str, list[torch.Tensor]] = {"outer": [], "inner": [], "third": []}

    class Watched(PerFedAvg):
        def gradient(self, model: StackedModel, batch: Batch, context: Context) -> tuple[dict[str, Tensor], Log]:
            for name, taken in {"outer": batch, **context.takes}.items():
                seen[name].append(taken.x.flatten(2).sum(-1).squeeze(0))
            return super().gradient(model, batch, context)

    w = world("perfedavg", sizes=(8,), hyper={"variant": "hf"})
    rounds(w, Watched(w.config.hyper))
    orders = {name: torch.cat(values) for name, values in seen.items()}
    assert len({tuple(order.tolist()) for order in orders.values()}) == 3
    assert len({tuple(order.sort().values.tolist()) for order in orders.values()}) == 1


@pytest.mark.parametrize("variant", ["fo", "hf"])
def test_each_gradient_is_of_its_own_batch(variant: str) -> None:
    """One step on single samples. The seen images are the two bytes over 127.5, minus 1."""
    seen: list[list[Samples]] = []

    class Watched(PerFedAvg):
        def gradient(self, model: StackedModel, batch: Batch, context: Context) -> tuple[dict[str, Tensor], Log]:
            shown = [batch, *(context.takes[name] for name in ("inner", "third") if name in context.takes)]
            for k in range(len(batch.x)):
                seen.append([(b.x[k].flatten(1).numpy(), b.y[k].numpy()) for b in shown])
            return super().gradient(model, batch, context)

    hyper = {**HAND, "variant": variant}
    w = toy_world("perfedavg", hyper=hyper, train={"batch_size": 1, "local_steps": 1}, chunk=2)
    start, after = rounds(w, Watched(w.config.hyper))
    first = as_toy(start.model, 0)
    ways = [direction(first, variant, outer, inner, third[0] if third else inner) for outer, inner, *third in seen]
    assert any(not np.array_equal(shown[0][0], shown[-1][0]) for shown in seen)
    assert_toy(as_toy(after.model, 0), mean([first.plus(way, -BETA) for way in ways]))


@pytest.mark.parametrize("batch", [1, 2, 50])
def test_personal_is_one_step_on_all_own_data(batch: int) -> None:
    """In pieces of any size: 3 and 2 samples, the last piece smaller."""
    w = toy_world("perfedavg", hyper=HAND, train={"batch_size": batch})
    method = PerFedAvg(w.config.hyper)
    state = rounds(w, method)[-1]
    personal = method.views(state, w)["personal"].population
    assert_toys(personal, [model.step(X[k], Y[k], ALPHA) for k, model in enumerate(toys(state.model))])


def test_without_alpha_personal_is_global() -> None:
    w = world("perfedavg", hyper={"alpha": 0.0})
    method = PerFedAvg(w.config.hyper)
    views = method.views(rounds(w, method)[-1], w)
    for k in range(3):
        mine, shared = (client(views[name].population, k) for name in ("personal", "global"))
        assert all(torch.equal(mine[name], shared[name]) for name in mine)


def test_adapting_leaves_no_trace_and_can_be_done_again() -> None:
    """Neither counters, logs nor the state move. Another process finds the same models after a restart."""
    w = world("perfedavg", hyper=HAND)
    method = PerFedAvg(w.config.hyper)
    state = rounds(w, method)[-1]
    before, log = w.session.counters(), dict(w.session.tally.log)
    with w.session.tally.uncounted():  # as a run asks for views
        first = method.views(state, w)["personal"].population
    assert w.session.counters() == before and w.session.tally.log.keys() == log.keys()
    again = world("perfedavg", hyper=HAND)
    template = method.setup(again)
    resumed = method.views(state_from_checkpoint(template, state_to_checkpoint(state)), again)["personal"].population
    assert gap(first, resumed) == 0
    statistics = (client(p, 0)["encoder.1.running_mean"] for p in (first, state.model))
    assert torch.equal(*statistics)


def test_only_those_who_are_tested_adapt() -> None:
    """A step is taken when a client's model is read, and the first client's once more, for the shapes."""
    w = world("perfedavg", sizes=(7, 5, 3, 2), train={"eval_clients": 2}, chunk=1)
    method = METHODS.get("perfedavg")(w.config.hyper)
    views = method.views(method.setup(w), w)
    before = w.session.tally.visited
    evaluate_views(w.session, views)
    assert w.session.tally.visited == before  # it is done aside
    one = np.array([1])
    stepped = take_whole_gradient_step(w, views["global"].population.select(one), w.config.hyper.alpha)
    assert gap(views["personal"].population.select(one), stepped) == 0
