"""FedRoD: both heads worked by hand, its reduction, classes without images, its views."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from semcom.engine.store.population import Population
from semcom.engine.train.view import count_confusion
from semcom.methods.fedrod import FedRoD
from semcom.models.registry import HEADS
from tests.methods.arms import X, Y, assert_toy, play, rounds, toy_world
from tests.methods.by_hand import Toy, mean
from tests.worlds import client, random_federation, world

GAMMA, LR = 0.6, 0.5


def heads(pop: Population, k: int, head: str) -> Toy:
    """A client's encoder under one of its heads."""
    t = {name: value.numpy() for name, value in client(pop, k).items()}
    return Toy(t["encoder.1.weight"], t[f"head.{head}.0.weight"], t[f"head.{head}.0.bias"])


def test_two_rounds_by_hand() -> None:
    w = toy_world("fedrod", LR, hyper={"gamma": GAMMA}, train={"local_epochs": 2})
    before, *after = rounds(w, n=2)
    shared, own = heads(before.model, 0, "generic"), [heads(before.model, k, "personal") for k in (0, 1)]
    assert_toy(own[0], shared)  # a copy
    for state in after:
        trained = []
        for k in (0, 1):
            local, prior = shared, GAMMA * np.log(np.bincount(Y[k]))
            for _ in range(2):
                slope = Toy(local.W, local.V, local.b + prior).slope(X[k], Y[k])
                extra = Toy(local.W, local.V + own[k].V, local.b + own[k].b).slope(X[k], Y[k])
                own[k] = Toy(local.W, own[k].V - LR * extra.V, own[k].b - LR * extra.b)
                local = local.plus(slope, -LR)
            trained.append(local)
        shared = mean(trained)
        for k in (0, 1):
            assert_toy(heads(state.model, k, "generic"), shared)
            assert_toy(heads(state.model, k, "personal"), Toy(shared.W, own[k].V, own[k].b))


def test_zero_gamma_is_fedavg_with_a_second_head() -> None:
    setting: dict[str, Any] = {"n": 3, "channel": {"kind": "rayleigh"}, "train": {"local_epochs": 2}}
    rod, average = play("fedrod", hyper={"gamma": 0.0}, **setting), play("fedavg", **setting)
    names = rod.model.named()
    for name, t in average.model.named().items():
        assert torch.equal(names[name.replace("head.", "head.generic.")], t)


def test_a_class_without_images_has_no_part() -> None:
    """The balanced softmax is over the client's own classes, and the other classes have zero gradients."""
    data = random_federation((7, 5, 3), classes=5)
    data = dataclasses.replace(data, labels=data.labels % 3)
    w = world("fedrod", data=data, train={"optimizer": "sgd"})
    for k, counts in enumerate(w.count_classes(np.arange(3)).tolist()):
        assert counts == data.labels[data.train[k]].bincount(minlength=5).tolist() and counts[3:] == [0, 0]
    before, after = rounds(w)
    moved = after.model.named()["head.generic.0.weight"] - before.model.named()["head.generic.0.weight"]
    assert bool((moved[:, 3:].abs() < 1e-15).all()) and moved.isfinite().all() and bool((moved[:, :3] != 0).any())


def test_global_is_the_generic_head_alone() -> None:
    w = world("fedrod", model={"head": "mlp"})
    method = FedRoD(w.config.hyper)
    state = rounds(w, method, n=2)[-1]
    views = method.views(state, w)
    assert list(views) == ["personal", "global"] and views["personal"].population is state.model
    table = w.session.draws.federation.test
    counts = count_confusion(w.session, views, None, table)
    plain = world("fedavg", model={"head": "mlp"})
    plain.session.tally.begin(2)
    alone = {n.replace("head.generic.", "head."): t for n, t in state.model.named().items() if "personal" not in n}
    other = {"global": type(views["global"])(plain.population().replaced(alone))}
    assert torch.equal(counts["global"], count_confusion(plain.session, other, None, table)["global"])


def test_a_head_with_batchnorm_is_tested_with_its_running_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parts are trained one by one, and tested together: neither batch nor order of a test has an effect."""

    def with_batchnorm(features: int, shape: tuple[int, ...]) -> nn.Module:
        return nn.Sequential(nn.BatchNorm1d(features), nn.Linear(features, *shape))

    monkeypatch.setattr(HEADS, "_added", {**HEADS._added, "test-normed": with_batchnorm})
    w = world("fedrod", model={"head": "test-normed"}, train={"optimizer": "sgd"})
    method = FedRoD(w.config.hyper)
    state = rounds(w, method)[-1]
    held = {name: t.clone() for name, t in state.model.named().items()}
    counts = [
        count_confusion(w.session, method.views(state, w), None, w.session.draws.federation.test)["personal"]
        for _ in range(2)
    ]
    assert torch.equal(*map(torch.as_tensor, counts))
    assert all(torch.equal(held[name], t) for name, t in state.model.named().items())


def test_apfl_trains_a_network_with_dropout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own copy of the network, which is called by the names of the first, has no masks of its own."""

    def with_dropout(features: int, shape: tuple[int, ...]) -> nn.Module:
        return nn.Sequential(nn.Dropout(0.5), nn.Linear(features, *shape))

    monkeypatch.setattr(HEADS, "_added", {**HEADS._added, "test-dropped": with_dropout})
    before, after = rounds(world("apfl", model={"head": "test-dropped"}, train={"optimizer": "sgd"}))
    moved = {name: not torch.equal(t, after.model.named()[name]) for name, t in before.model.named().items()}
    assert moved["head.1.weight"] and moved["own.head.1.weight"]
