"""FedGH: two rounds worked by hand, and the base station's steps one by one."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from semcom.engine.store.population import Population
from semcom.engine.world import World
from tests.methods.arms import X, Y, as_toy, assert_toy, assert_toys, play, rounds, toy_world, toys
from tests.methods.by_hand import Toy
from tests.worlds import client, plain, random_federation, world

MIXED = {"encoder": "test-conv,test-conv-wide"}
Head = tuple[np.ndarray, np.ndarray]
Pair = tuple[np.ndarray, int]


def taught(head: Head, pairs: list[Pair], lr: float) -> Head:
    """One step of SGD on the cross-entropy of each prototype, in this order: dL/dV = (p - e_c) m', dL/db = p - e_c."""
    v, b = head
    for mean, label in pairs:
        logits = v @ mean + b
        e = np.exp(logits - logits.max())
        g = e / e.sum() - np.eye(len(b))[label]
        v, b = v - lr * np.outer(g, mean), b - lr * g
    return v, b


def class_means(features: np.ndarray, labels: np.ndarray) -> list[Pair]:
    """Mean feature and label of each class that there is."""
    return [(features[labels == c].mean(0), int(c)) for c in np.unique(labels)]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_two_rounds_by_hand(momentum: float) -> None:
    """The head is overwritten, all weights train, and phi learns from the trained encoders' class means.

    A third class without owners has no prototype. The base station does not use the run's momentum.
    """
    lr, w = 0.25, toy_world("fedgh", hyper={"server_lr": 0.25}, classes=3, train={"momentum": momentum})
    before, *after = rounds(w, n=2)
    models = toys(before.model)
    for state in after:
        trained = [model.step(X[k], Y[k], 0.5) for k, model in enumerate(models)]
        pairs = [pair for k, model in enumerate(trained) for pair in class_means(model.features(X[k]), Y[k])]
        phi = taught((models[0].V, models[0].b), pairs, lr)
        backwards = taught((models[0].V, models[0].b), pairs[::-1], lr)
        assert np.abs(phi[0] - backwards[0]).max() > 1e-4  # an order that shows
        models = [Toy(model.W, *phi) for model in trained]
        assert_toys(state.trained, trained)
        assert_toys(state.model, models)


def features(pop: Population, w: World, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Compute the features of a client's training images in evaluation mode over an ideal link, with their labels."""
    index = w.session.draws.federation.train[k]
    head = {"head.0.weight": torch.eye(4).double(), "head.0.bias": torch.zeros(4).double()}
    x = w.session.draws.federation.gather(index, torch.float64)
    return plain({**client(pop, k), **head}, x).numpy(), w.session.draws.federation.labels[index].numpy()


def test_the_schedule_of_the_run_is_not_the_base_stations() -> None:
    """From round 2 on clients train at a thousandth of their rate, while phi still learns at its own rate."""
    w = toy_world("fedgh", hyper={"server_lr": 0.25}, train={"lr_milestones": (2,), "lr_decay": 1e-3})
    _, before, after = rounds(w, n=2)
    phi, own = as_toy(before.model, 0), toys(after.trained)
    assert_toy(own[0], as_toy(before.model, 0).step(X[0], Y[0], 0.5e-3))
    v, b = taught((phi.V, phi.b), [p for k in (0, 1) for p in class_means(own[k].features(X[k]), Y[k])], 0.25)
    assert_toys(after.model, [Toy(model.W, v, b) for model in own])


@pytest.mark.parametrize("encoder", [{}, MIXED])
@pytest.mark.parametrize("train", [{"optimizer": "sgd", "weight_decay": 0.5, "momentum": 0.5}, {"optimizer": "adam"}])
def test_the_base_station_by_hand(encoder: dict[str, str], train: dict[str, Any]) -> None:
    """BatchNorm, unequal clients, half of them in a round, encoders of their own: plain SGD by the order of the ids."""
    w = world(
        "fedgh",
        (7, 5, 3, 6),
        channel={"kind": "ideal"},
        hyper={"server_lr": 0.3},
        train={**train, "participation": 0.5, "local_epochs": 2},
        **encoder,
    )
    before, after = rounds(w)
    ids = [int(k) for k in w.sample()]
    assert len(ids) == 2
    head = client(before.model, 0)
    pairs = [pair for k in ids for pair in class_means(*features(after.trained, w, k))]
    v, b = taught((head["head.0.weight"].numpy(), head["head.0.bias"].numpy()), pairs, 0.3)
    for k in range(4):
        got = client(after.model, k)
        np.testing.assert_allclose(got["head.0.weight"], v, rtol=0, atol=1e-12)
        np.testing.assert_allclose(got["head.0.bias"], b, rtol=0, atol=1e-12)
    assert all(c.shared == {"head.0.weight", "head.0.bias"} for c in after.model.cohorts)


@pytest.mark.parametrize("setting", [{}, MIXED])
def test_a_server_rate_of_zero_keeps_phi(setting: dict[str, Any]) -> None:
    start, *_, end = rounds(world("fedgh", hyper={"server_lr": 0.0}, **setting), n=3)
    for k in range(3):
        one, other = client(start.model, k), client(end.model, k)
        for name, t in one.items():
            assert torch.equal(t, other[name]) == name.startswith("head."), name


@pytest.mark.parametrize("server_lr", [0.0, 0.1])
def test_phi_is_all_that_a_client_hears_of_others(server_lr: float) -> None:
    """Other images at one client: with a phi that does not move the others do not feel it by a bit."""
    data = random_federation((7, 5, 3))
    images = data.images.clone()
    images[data.train[1]] = 255 - images[data.train[1]]
    setting: dict[str, Any] = {"n": 2, "hyper": {"server_lr": server_lr}}
    one, other = (play("fedgh", data=dataclasses.replace(data, images=x), **setting) for x in (data.images, images))
    for k in range(3):
        same = [torch.equal(t, client(other.trained, k)[n]) for n, t in client(one.trained, k).items()]
        assert all(same) if k != 1 and server_lr == 0 else not any(same)


def test_the_base_station_logs_its_loss_apart() -> None:
    """The mean over its steps, each measured before the step."""
    w = toy_world("fedgh", hyper={"server_lr": 0.0})
    before, after = rounds(w)
    head = as_toy(before.model, 0)
    pairs = [p for k in (0, 1) for p in class_means(as_toy(after.trained, k).features(X[k]), Y[k])]
    logits = [head.V @ mean + head.b for mean, _ in pairs]
    losses = [np.log(np.exp(z).sum()) - z[c] for z, (_, c) in zip(logits, pairs, strict=True)]
    assert set(w.session.tally.log) == {"loss", "phi/loss"}
    assert w.session.tally.log["phi/loss"].tolist() == pytest.approx([np.mean(losses)], abs=1e-12)
