"""FedAvg + FT and FedProx + FT: fine-tuning by hand, and the states that it leaves unchanged."""

from __future__ import annotations

import pytest
import torch

from semcom.engine.train.view import count_confusion
from semcom.methods.registry import METHODS
from tests.methods.arms import X, Y, assert_toys, ended, flat, rounds, storages, toy_world, toys
from tests.worlds import gap, world

ARMS = ("fedavg_ft", "fedprox_ft")


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("tune", ["head", "all"])
def test_fine_tuning_by_hand(arm: str, tune: str) -> None:
    """Three full-batch epochs of plain CE from the aggregate at a separate rate."""
    hyper = {"tune": tune, **({"mu": 5.0} if arm == "fedprox_ft" else {})}
    w = toy_world(arm, hyper=hyper, finish={"epochs": 3, "lr": 0.7, "optimizer": "sgd"})
    state, views = ended(w)
    assert list(views) == ["personal", "global"] and views["global"].population is state.model
    want = toys(state.model)
    for _ in range(3):
        steps = [model.step(X[k], Y[k], 0.7) for k, model in enumerate(want)]
        want = [model.under(step) if tune == "head" else step for model, step in zip(want, steps, strict=True)]
    assert_toys(views["personal"].population, want)


@pytest.mark.parametrize("tune", ["head", "all"])
def test_the_runs_optimiser_and_schedule_are_not_those_of_fine_tuning(tune: str) -> None:
    """After round 3 the run's rate is a tenth of its start, but fine-tuning moves the models as without a schedule."""
    found = []
    for train in ({}, {"lr": 0.3, "momentum": 0.9, "weight_decay": 0.1, "lr_milestones": (2,), "rounds": 3}):
        w = toy_world("fedavg_ft", hyper={"tune": tune}, finish={"epochs": 3}, train=train)
        method = METHODS.get("fedavg_ft")(w.config.hyper)
        w.session.tally.begin(4)
        found.append(method.finish(method.setup(w), w)["personal"].population)
    assert gap(*found) == 0


@pytest.mark.parametrize("arm", [*ARMS, "fedbabu"])
def test_no_epochs_are_no_fine_tuning(arm: str) -> None:
    """Then personal is global, in its weights and in every answer."""
    w = world(arm, finish={"epochs": 0})
    state, views = ended(w)
    assert views["personal"].population is views["global"].population is state.model
    counts = count_confusion(w.session, views, None, w.session.draws.federation.test)
    assert torch.equal(counts["personal"], counts["global"])


@pytest.mark.parametrize("tune", ["head", "all"])
def test_fine_tuning_makes_copies(tune: str) -> None:
    """The State and its storage stay unchanged. Tuning the head keeps the body, with its running statistics."""
    w = world("fedavg_ft", hyper={"tune": tune})
    method = METHODS.get("fedavg_ft")(w.config.hyper)
    state = rounds(w, method)[-1]
    before, sent = flat(state).clone(), w.air.counters()
    w.session.tally.begin(2)
    personal = method.finish(state, w)["personal"].population
    assert torch.equal(flat(state), before) and w.air.counters()["up"] == sent["up"]
    for name, t in personal.named().items():
        moved = not torch.equal(t, state.model.named()[name])
        assert moved == (tune == "all" or name.startswith("head."))
        assert not moved or (len(t.unique(dim=0)) == 3 and not storages([t]) & storages(list(state.model.tensors())))


def test_fine_tuning_draws_anew() -> None:
    """After two rounds and after three, the same model would be tuned in another order and noise."""
    w = world("fedavg_ft")
    method = METHODS.get("fedavg_ft")(w.config.hyper)
    state, found = rounds(w, method)[-1], []
    for r in (2, 3, 3):
        w.session.tally.begin(r)
        found.append(method.finish(state, w)["personal"].population)
    assert gap(found[0], found[1]) > 0 and gap(found[1], found[2]) == 0


@pytest.mark.parametrize("arm", [*ARMS, "fedbabu"])
def test_only_those_who_are_tested_tune(arm: str) -> None:
    """As they would among all."""
    some, everyone = (ended(world(arm, train={"eval_clients": n}))[1] for n in (2, None))
    one, other = some["personal"].population, everyone["personal"].population
    assert len(one.ids) == 2 and gap(one, other.select(one.ids)) == 0
    assert len(some["global"].population.ids) == 3
