"""FedRoD: both heads worked by hand, its reduction, classes without images, its views."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch

from semcom.engine.store.population import Population
from semcom.engine.train.view import count_confusion
from semcom.methods.fedrod import FedRoD
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
