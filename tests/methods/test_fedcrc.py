"""FedCRC: two rounds worked by hand, phase by phase, and its views."""

from __future__ import annotations

import numpy as np
import pytest

from semcom.methods.registry import METHODS
from tests.methods.arms import X, Y, as_toy, assert_toy, assert_toys, play, rounds, toy_world, toys
from tests.methods.by_hand import Toy, mean
from tests.worlds import gap, world

PARTS = ("encoder.", "head.")


def divergence(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """KL(p || q) per row."""
    return (p * np.log(p / q)).sum(1, keepdims=True)


def guided_step(model: Toy, own: Toy, x: np.ndarray, y: np.ndarray, lr: float, kind: str) -> Toy:
    """Take one step of the global predictor on CE + KL with p from the own predictor and q = softmax(z).

    d KL(p || q)/dz = q - p, and d KL(q || p)/dz = q (log(q / p) - KL(q || p)).
    """
    f, q, p = model.features(x), model.probabilities(x), own.probabilities(x)
    pull = q - p if kind == "forward" else q * (np.log(q / p) - divergence(q, p))
    g = (q - np.eye(len(model.b))[y] + pull) / len(x)
    return Toy(model.W, model.V - lr * g.T @ f, model.b - lr * g.sum(0))


@pytest.mark.parametrize("kind", ["forward", "reverse"])
@pytest.mark.parametrize("tau", [0.0, 0.7])
def test_two_rounds_by_hand(kind: str, tau: float) -> None:
    """Three epochs on the body under phi_g, three on h_k over it, one on phi_g beside h_k, and the moving average."""
    w = toy_world("fedcrc", hyper={"tau": tau, "divergence": kind}, train={"local_epochs": 3}, classes=3)
    before, *after = rounds(w, n=2)
    model, heads = as_toy(before.model, 0), toys(before.personal)
    assert_toy(as_toy(before.own, 1), as_toy(before.personal, 1))
    for state in after:
        guided = []
        for k in (0, 1):
            body = model
            for _ in range(3):
                body = body.step(X[k], Y[k], 0.5).under(body)
            heads[k] = body.under(heads[k])
            for _ in range(3):
                heads[k] = heads[k].under(heads[k].step(X[k], Y[k], 0.5))
            guided.append(guided_step(body, heads[k], X[k], Y[k], 0.5, kind))
        newest = mean(guided)
        model = newest.under(mean([model, newest], [tau, 1 - tau]))
        assert_toys(state.model, model)
        assert_toys(state.personal, [model.under(head) for head in heads])
        assert_toys(state.own, heads)  # on the bodies that they were trained on


def test_losses_by_hand() -> None:
    """One epoch of full batches: the predictor's only step begins after the other two phases."""
    w = toy_world("fedcrc")
    before, after = rounds(w)
    logged = {"loss", "personal/loss", "predictor/loss", "predictor/task", "predictor/divergence"}
    assert set(w.session.tally.log) == logged
    start = as_toy(before.model, 0)
    for k in (0, 1):
        body = start.step(X[k], Y[k], 0.5).under(start)
        own, n = body.under(as_toy(after.personal, k)), np.arange(len(X[k]))
        q, p = body.probabilities(X[k]), own.probabilities(X[k])
        task, kl = -np.log(q[n, Y[k]]).mean(), divergence(p, q).mean()
        expected = {"predictor/task": task, "predictor/divergence": kl, "predictor/loss": task + kl}
        expected["loss"] = -np.log(start.probabilities(X[k])[n, Y[k]]).mean()
        expected["personal/loss"] = task  # h_k begins as phi_g does
        for name, value in expected.items():
            assert float(w.session.tally.log[name][k]) == pytest.approx(value, abs=1e-12), name


def test_the_own_predictor_does_not_depend_on_the_guided_one() -> None:
    """In one round h_k comes before phi_g, so tau and the divergence change the clients' models but not h_k."""
    one = play("fedcrc", n=1, hyper={"tau": 0.1, "divergence": "reverse"})
    other = play("fedcrc", n=1)
    assert gap(one.personal, other.personal) == 0 and gap(one.model, other.model) > 0


def test_the_views_of_the_personal_model() -> None:
    """h_k, after its client's last participation, with the mean body and with the client's own."""
    w = world("fedcrc", sizes=(7, 5, 3, 6), train={"participation": 0.5})
    *_, state = rounds(w, n=3)
    views = METHODS.get("fedcrc")(w.config.hyper).views(state, w)
    assert [*views] == ["global", "personal", "own_body"]
    own, mean_body = views["own_body"].population, views["personal"].population
    assert gap(own.take("encoder.", state.model), mean_body) == 0
    assert all(gap(own.select(np.array([k])), mean_body.select(np.array([k]))) > 1e-4 for k in w.sample())


@pytest.mark.parametrize("init", ["common", "client"])
def test_predictors_begin_as_the_clients_do(init: str) -> None:
    start = rounds(world("fedcrc", model={"init": init}), n=0)[0]
    heads = start.personal.named("head.")["head.0.weight"]
    assert len(heads.unique(dim=0)) == (1 if init == "common" else 3)
    assert all(len(t) == 1 for t in start.model.cohorts[0].tensors.values())


@pytest.mark.parametrize("steps", [1, 4])
def test_the_predictor_has_one_epoch_however_long_the_others_are(steps: int) -> None:
    w = world("fedcrc", sizes=(7, 5, 3), train={"batch_size": 2, "local_steps": steps})
    rounds(w)
    # of 4, 3 and 2 batches in an epoch, the last of one sample
    assert w.session.tally.visited == {1: 2 * 6, 4: 2 * (7 + (5 + 2) + 2 * 3)}[steps] + 15
