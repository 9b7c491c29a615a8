"""FedAvg + FT and FedProx + FT: fine-tuning worked by hand, and what is left alone by it."""

from __future__ import annotations

import pytest
import torch

from semcom.engine.train.view import count_confusion
from semcom.methods.registry import METHODS
from tests.methods.arms import X, Y, as_toy, assert_toy, ended, flat, play, rounds, storages, toy_world
from tests.worlds import gap, world

ARMS = ("fedavg_ft", "fedprox_ft")


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("tune", ["head", "all"])
def test_fine_tuning_by_hand(arm: str, tune: str) -> None:
    """Three full-batch epochs of CE alone, from the aggregate on, at a rate of their own."""
    hyper = {"tune": tune, **({"mu": 5.0} if arm == "fedprox_ft" else {})}
    w = toy_world(arm, hyper=hyper, finish={"epochs": 3, "lr": 0.7, "optimizer": "sgd"})
    state, views = ended(w)
    assert list(views) == ["personal", "global"] and views["global"].population is state.model
    for k in (0, 1):
        model = as_toy(state.model, k)
        for _ in range(3):
            step = model.step(X[k], Y[k], 0.7)
            model = model.under(step) if tune == "head" else step
        assert_toy(as_toy(views["personal"].population, k), model)


@pytest.mark.parametrize("tune", ["head", "all"])
def test_the_runs_optimiser_and_schedule_are_not_those_of_fine_tuning(tune: str) -> None:
    """After round 3 the run's rate is a tenth of what it was, and the models that it gave move as they do without."""
    found = []
    for train in ({}, {"lr": 0.3, "momentum": 0.9, "weight_decay": 0.1, "lr_milestones": (2,), "rounds": 3}):
        w = toy_world("fedavg_ft", hyper={"tune": tune}, finish={"epochs": 3}, train=train)
        method = METHODS.get("fedavg_ft")(w.config.hyper)
        w.session.tally.begin(4)
        found.append(method.finish(method.setup(w), w)["personal"].population)
    assert gap(*found) == 0


@pytest.mark.parametrize("arm", ARMS)
def test_rounds_are_those_of_the_method_without(arm: str) -> None:
    alone = arm.removesuffix("_ft")
    assert gap(play(arm, n=3).model, play(alone, n=3).model) == 0
    assert METHODS.get(arm).preset == METHODS.get(alone).preset


def test_zero_mu_is_fedavg_ft() -> None:
    a, b = (ended(world(arm, hyper=hyper))[1] for arm, hyper in (("fedprox_ft", {"mu": 0.0}), ("fedavg_ft", {})))
    assert all(gap(a[name].population, b[name].population) == 0 for name in ("personal", "global"))


@pytest.mark.parametrize("arm", ARMS)
def test_no_epochs_are_no_fine_tuning(arm: str) -> None:
    """Then personal is global, in its weights and in every answer."""
    w = world(arm, finish={"epochs": 0})
    state, views = ended(w)
    assert views["personal"].population is views["global"].population is state.model
    counts = count_confusion(w.session, views, None, w.session.draws.federation.test)
    assert torch.equal(counts["personal"], counts["global"])


@pytest.mark.parametrize("tune", ["head", "all"])
def test_fine_tuning_makes_copies(tune: str) -> None:
    """The State and its storage stay as they are; the body of a tuned head too, with its running statistics."""
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


@pytest.mark.parametrize("arm", ARMS)
def test_traffic_is_that_of_fedavg(arm: str) -> None:
    w, other = world(arm), world("fedavg")
    ended(w, n=2)
    rounds(other, n=2)
    assert w.air.totals == other.air.totals and w.air.totals["up"].floats > 0
