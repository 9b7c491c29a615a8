"""FedCRC: two rounds worked by hand, phase by phase, and its reductions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from semcom.methods.registry import METHODS
from tests.methods.arms import X, Y, as_toy, assert_toy, play, rounds, toy_world
from tests.methods.by_hand import Toy, mean
from tests.worlds import client, gap, world

PARTS = ("encoder.", "head.")


def divergence(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """KL(p || q) per row."""
    return (p * np.log(p / q)).sum(1, keepdims=True)


def guided_step(model: Toy, own: Toy, x: np.ndarray, y: np.ndarray, lr: float, kind: str) -> Toy:
    """One step of the global predictor on CE + KL, p being what the own predictor says and q = softmax(z).

    d KL(p || q)/dz = q - p, and d KL(q || p)/dz = q (log(q / p) - KL(q || p)).
    """
    f, q, p = model.features(x), model.probabilities(x), own.probabilities(x)
    pull = q - p if kind == "forward" else q * (np.log(q / p) - divergence(q, p))
    g = (q - np.eye(len(model.b))[y] + pull) / len(x)
    return Toy(model.W, model.V - lr * g.T @ f, model.b - lr * g.sum(0))


@pytest.mark.parametrize("kind", ["forward", "reverse"])
@pytest.mark.parametrize("tau", [0.0, 0.7])
def test_two_rounds_by_hand(kind: str, tau: float) -> None:
    """Three epochs on the body under phi_g, three on h_k on that body, one on phi_g beside h_k; the moving average."""
    w = toy_world("fedcrc", hyper={"tau": tau, "divergence": kind}, train={"local_epochs": 3}, classes=3)
    before, *after = rounds(w, n=2)
    model, heads, parts = as_toy(before.model, 0), [as_toy(before.personal, k) for k in (0, 1)], [3 / 5, 2 / 5]
    assert_toy(as_toy(before.own, 1), as_toy(before.personal, 1))
    for state in after:
        guided = []
        for k in (0, 1):
            body = model
            for _ in range(3):
                body = body.step(X[k], Y[k], 0.5).under(body)
            own = body.under(heads[k])
            for _ in range(3):
                own = own.under(own.step(X[k], Y[k], 0.5))
            heads[k] = own
            guided.append(guided_step(body, own, X[k], Y[k], 0.5, kind))
        newest = mean(guided, parts)
        model = newest.under(mean([model, newest], [tau, 1 - tau]))
        for k in (0, 1):
            assert_toy(as_toy(state.model, k), model)
            assert_toy(as_toy(state.personal, k), model.under(heads[k]))
            assert_toy(as_toy(state.own, k), heads[k])  # on the body that it was trained on


def test_losses_by_hand() -> None:
    """One epoch of full batches: what the predictor's only step begins with, after the other two phases."""
    w = toy_world("fedcrc")
    before, after = rounds(w)
    assert set(w.session.tally.log) == {
        "loss",
        "personal/loss",
        "predictor/loss",
        "predictor/task",
        "predictor/divergence",
    }
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


@pytest.mark.parametrize(
    "setting",
    [{}, {"participation": 2 / 3}, {"optimizer": "sgd", "momentum": 0.9, "weight_decay": 0.1, "local_epochs": 2}],
)
def test_a_predictor_that_stays_is_fedbabu(setting: dict[str, Any]) -> None:
    """tau = 1: the global model is FedBABU's before it is fine-tuned, over every link."""
    crc = play("fedcrc", n=3, hyper={"tau": 1.0}, train=setting)
    assert gap(crc.model, play("fedbabu", n=3, train=setting).model) == 0
    assert gap(play("fedcrc", n=3, train=setting).model, crc.model) > 0


def test_the_personal_model_has_the_mean_body() -> None:
    for state in rounds(world("fedcrc", sizes=(7, 5, 3, 6), train={"participation": 0.5}), n=3):
        assert gap(state.personal.take("head.", state.model), state.model) == 0


def test_the_own_predictor_does_not_depend_on_the_guided_one() -> None:
    """In one round h_k comes before phi_g: tau and the divergence change what clients get, not what h_k is."""
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


def test_absent_clients_keep_their_predictor() -> None:
    w = world("fedcrc", sizes=(7, 5, 3, 6), train={"participation": 0.5})
    before, after = rounds(w)
    for k in range(4):
        for name, t in client(before.personal, k).items():
            here = k in w.sample()
            assert torch.equal(client(after.personal, k)[name], t) != (here or name.startswith("encoder.")), (k, name)
        for name, t in client(before.own, k).items():
            assert torch.equal(client(after.own, k)[name], t) != (k in w.sample()), (k, name)


@pytest.mark.parametrize("init", ["common", "client"])
def test_predictors_begin_as_the_clients_do(init: str) -> None:
    start = rounds(world("fedcrc", model={"init": init}), n=0)[0]
    heads = start.personal.named("head.")["head.0.weight"]
    assert len(heads.unique(dim=0)) == (1 if init == "common" else 3)
    assert all(len(t) == 1 for t in start.model.cohorts[0].tensors.values())


def test_traffic() -> None:
    """The whole model both ways, h_k never; 2 E + 1 epochs over the participants' images."""
    w = world("fedcrc", sizes=(7, 5, 3, 6), train={"participation": 0.5, "local_epochs": 3})
    seen, numbers = 0, 0
    for r in (1, 2):
        w.session.tally.begin(r)
        ids = w.sample()
        seen += 7 * w.session.draws.federation.train.sizes[ids].sum()
        numbers += len(ids) * rounds(w, n=0)[0].model.numbers(PARTS)[0]
    rounds(w, n=2)
    assert w.air.totals["up"].floats == w.air.totals["down"].floats == numbers and w.session.tally.visited == seen


@pytest.mark.parametrize("steps", [1, 4])
def test_the_predictor_has_one_epoch_however_long_the_others_are(steps: int) -> None:
    w = world("fedcrc", sizes=(7, 5, 3), train={"batch_size": 2, "local_steps": steps})
    rounds(w)
    # of 4, 3 and 2 batches in an epoch, the last of one sample
    assert w.session.tally.visited == {1: 2 * 6, 4: 2 * (7 + (5 + 2) + 2 * 3)}[steps] + 15
