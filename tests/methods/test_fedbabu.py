"""FedBABU: body updates and fine-tuning worked by hand; one head for all, which does not move."""

from __future__ import annotations

import pytest
import torch

from semcom.config import RunConfig
from semcom.engine.train.view import count_confusion
from semcom.methods.registry import METHODS
from semcom.runs.resolve import resolve
from tests.methods.arms import X, Y, as_toy, assert_toy, ended, flat, play, rounds, toy_world
from tests.methods.by_hand import mean
from tests.worlds import gap, world


def test_rounds_and_fine_tuning_by_hand() -> None:
    """Two rounds of two epochs on the body alone, then three on everything, from the aggregated body."""
    w = toy_world("fedbabu", finish={"epochs": 3, "lr": 0.7, "optimizer": "sgd"}, train={"local_epochs": 2})
    method = METHODS.get("fedbabu")(w.config.hyper)
    before, *after = rounds(w, method, n=2)
    start = as_toy(before.model, 0)
    for state in after:
        once = [start.step(X[k], Y[k], 0.5).under(start) for k in (0, 1)]
        start = mean([once[k].step(X[k], Y[k], 0.5).under(start) for k in (0, 1)], [3 / 5, 2 / 5])
        for k in (0, 1):
            assert_toy(as_toy(state.model, k), start)
    w.session.tally.begin(3)
    views = method.finish(after[-1], w)
    assert list(views) == ["global", "personal"] and views["global"].population is after[-1].model
    for k in (0, 1):
        model = start
        for _ in range(3):
            model = model.step(X[k], Y[k], 0.7)
        assert_toy(as_toy(views["personal"].population, k), model)


@pytest.mark.parametrize("optimizer", [{"optimizer": "adam"}, {"optimizer": "sgd", "weight_decay": 0.1}])
def test_the_head_does_not_move(optimizer: dict[str, object]) -> None:
    """Not by weight decay either, as it would inside the optimiser; and it is the head that FedAvg starts with."""
    start, *_, end = rounds(world("fedbabu", train={"local_epochs": 3, **optimizer}), n=3)
    fedavg = rounds(world("fedavg"), n=0)[0].model.named("head.")
    for name, t in end.model.named("head.").items():
        assert torch.equal(t, start.model.named()[name]) and torch.equal(t, fedavg[name])
    moved = [not torch.equal(t, start.model.named()[n]) for n, t in end.model.named("encoder.").items()]
    assert all(moved)


def test_the_head_is_common() -> None:
    """There is one model before fine-tuning, and the head is the first one for good."""
    start, _, after = (state.model for state in rounds(world("fedbabu"), n=2))
    assert after.cohorts[0].shared == frozenset(after.named())
    assert all(torch.equal(t, start.named()[name]) for name, t in after.named("head.").items())


def test_no_epochs_are_no_fine_tuning() -> None:
    """Then personal is global, in its weights and in every answer."""
    w = world("fedbabu", finish={"epochs": 0})
    state, views = ended(w, n=2)
    assert views["personal"].population is views["global"].population is state.model
    counts = count_confusion(w.session, views, None, w.session.draws.federation.test)
    assert torch.equal(counts["personal"], counts["global"])


def test_heads_that_are_asked_for_leave_its_own_stage_alone() -> None:
    """Five epochs for whole models, whatever the heads of `finish.kind` are trained for."""
    tuned = []
    for finish in ({"epochs": 5}, {"kind": "linear", "epochs": 2}):
        state, w = play("fedbabu", finish=finish), world("fedbabu", finish=finish)
        w.session.tally.begin(4)
        tuned.append(METHODS.get("fedbabu")(w.config.hyper).finish(state, w)["personal"].population)
    assert gap(*tuned) == 0
    assert resolve(RunConfig("fedbabu", finish={"kind": "linear"})).finish.epochs == 100


def test_fine_tuning_makes_copies() -> None:
    w = world("fedbabu")
    method = METHODS.get("fedbabu")(w.config.hyper)
    state = rounds(w, method)[-1]
    before = flat(state).clone()
    w.session.tally.begin(2)
    personal = method.finish(state, w)["personal"].population
    assert torch.equal(flat(state), before)
    assert all(len(t.unique(dim=0)) == 3 for t in personal.named().values())


def test_tuning_does_not_reach_the_rounds() -> None:
    assert gap(play("fedbabu", finish={"epochs": 0}).model, play("fedbabu", finish={"epochs": 7}).model) == 0
