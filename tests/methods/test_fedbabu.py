"""FedBABU: body updates and fine-tuning by hand, with one common head that does not move."""

from __future__ import annotations

import pytest
import torch

from semcom.config import RunConfig
from semcom.methods.registry import METHODS
from semcom.runs.request.resolve import resolve
from tests.methods.arms import X, Y, as_toy, assert_toys, play, rounds, toy_world
from tests.methods.by_hand import mean
from tests.worlds import gap, world


def test_rounds_and_fine_tuning_by_hand() -> None:
    """Two rounds of two epochs on only the body, then three epochs on all weights from the aggregated body."""
    w = toy_world("fedbabu", finish={"epochs": 3, "lr": 0.7, "optimizer": "sgd"}, train={"local_epochs": 2})
    method = METHODS.get("fedbabu")(w.config.hyper)
    before, *after = rounds(w, method, n=2)
    start = as_toy(before.model, 0)
    for state in after:
        once = [start.step(X[k], Y[k], 0.5).under(start) for k in (0, 1)]
        start = mean([once[k].step(X[k], Y[k], 0.5).under(start) for k in (0, 1)])
        assert_toys(state.model, start)
    w.session.tally.begin(3)
    views = method.finish(after[-1], w)
    assert list(views) == ["global", "personal"] and views["global"].population is after[-1].model
    assert_toys(views["personal"].population, [start.steps(X[k], Y[k], 0.7, 3) for k in (0, 1)])


@pytest.mark.parametrize("optimizer", [{"optimizer": "adam"}, {"optimizer": "sgd", "weight_decay": 0.1}])
def test_the_head_does_not_move(optimizer: dict[str, object]) -> None:
    """Weight decay inside the optimiser does not move it either. It is the initial head of FedAvg."""
    start, *_, end = rounds(world("fedbabu", train={"local_epochs": 3, **optimizer}), n=3)
    fedavg = rounds(world("fedavg"), n=0)[0].model.named("head.")
    for name, t in end.model.named("head.").items():
        assert torch.equal(t, start.model.named()[name]) and torch.equal(t, fedavg[name])
    assert not any(torch.equal(t, start.model.named()[n]) for n, t in end.model.named("encoder.").items())
    assert end.model.cohorts[0].shared == frozenset(end.model.named()), "there is one model before fine-tuning"


def test_heads_that_are_asked_for_leave_its_own_stage_alone() -> None:
    """Five epochs for whole models, whatever the heads of `finish.kind` are trained for."""
    tuned = []
    for finish in ({"epochs": 5}, {"kind": "linear", "epochs": 2}):
        state, w = play("fedbabu", finish=finish), world("fedbabu", finish=finish)
        w.session.tally.begin(4)
        tuned.append(METHODS.get("fedbabu")(w.config.hyper).finish(state, w)["personal"].population)
    assert gap(*tuned) == 0
    assert resolve(RunConfig("fedbabu", finish={"kind": "linear"})).finish.epochs == 100
