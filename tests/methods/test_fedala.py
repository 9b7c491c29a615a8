"""FedALA: three rounds by hand, and the epochs and samples that W learns from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from semcom.config import ConfigError
from semcom.engine.store.population import Population
from semcom.engine.world import World
from semcom.methods.fedala import FedALA
from tests.methods.arms import X, Y, as_toy, assert_toy, flat, play, rounds, toy_world, toys
from tests.methods.by_hand import Toy, mean
from tests.worlds import client, gap, world

LR = 0.5
TOP = ("b", "V", "W")
"""The toy model's tensors, from the top."""


# -- by hand ---------------------------------------------------------------------------------------------------------


def mixed(shared: Toy, own: Toy, weights: dict[str, np.ndarray]) -> Toy:
    """w_k + (w - w_k) W where there are weights, w elsewhere."""
    return Toy(**{p: getattr(own, p) * (1 - weights[p]) + getattr(shared, p) * weights[p] for p in TOP})


def learnt(k: int, shared: Toy, own: Toy, weights: dict[str, np.ndarray], p: int, eta: float) -> dict[str, np.ndarray]:
    """Compute W after an epoch of one full batch: the chain rule through the mixture, then the clip."""
    slope = mixed(shared, own, weights).slope(X[k], Y[k])
    steps = {part: getattr(slope, part) * (getattr(shared, part) - getattr(own, part)) for part in TOP[:p]}
    return weights | {part: np.clip(weights[part] - eta * step, 0, 1) for part, step in steps.items()}


@pytest.mark.parametrize("eta", [1.0, 30.0])
@pytest.mark.parametrize("p", [1, 2, 3])
def test_three_rounds_by_hand(p: int, eta: float) -> None:
    """Round 1 is FedAvg's. In round 2 each W learns for 11 epochs with steady losses, and in round 3 for one epoch."""
    w = toy_world("fedala", LR, hyper={"eta": eta, "s": 1.0, "p": p})
    before, *after = rounds(w, n=3)
    shared, own = as_toy(before.model, 0), toys(before.model)
    weights = [{part: np.ones_like(getattr(shared, part)) for part in TOP} for _ in (0, 1)]
    for state, epochs in zip(after, (0, 11, 1), strict=True):
        for k in (0, 1):
            for _ in range(epochs):
                weights[k] = learnt(k, shared, own[k], weights[k], p, eta)
            start = mixed(shared, own[k], weights[k])
            assert_toy(as_toy(state.initialised, k), start)
            own[k] = start.step(X[k], Y[k], LR)
            assert_toy(as_toy(state.trained, k), own[k])
            assert_weights(state.weights, k, weights[k], p)
        shared = mean(own)
        assert_toy(as_toy(state.model, 0), shared)
    seen = np.concatenate([ws[part].ravel() for ws in weights for part in TOP[:p]])
    inside = (seen > 0) & (seen < 1)
    assert inside.any() if eta == 1 else (seen == 0).any() and (seen == 1).any()  # W moves; it is clipped both ways


def assert_weights(pop: Population, k: int, want: dict[str, np.ndarray], p: int) -> None:
    """The top p tensors have weights, and no others."""
    names = {"b": "head.0.bias", "V": "head.0.weight", "W": "encoder.1.weight"}
    got = client(pop, k)
    assert set(got) == {names[part] for part in TOP[:p]}
    for part in TOP[:p]:
        np.testing.assert_allclose(got[names[part]], want[part], rtol=0, atol=1e-12)


# -- how long, and on what -------------------------------------------------------------------------------------------


@pytest.fixture
def epochs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[int], list[float]]]:
    """Each epoch of W: its clients, and their losses."""
    seen: list[tuple[list[int], list[float]]] = []

    def fit(self: World, pop: Population, *args: Any, old: Any = World.fit, **named: Any) -> Any:
        answer = old(self, pop, *args, **named)
        if "phase" in named and named["phase"].stream == "ala":
            seen.append((pop.ids.tolist(), answer.log["loss"].tolist()))
        return answer

    monkeypatch.setattr(World, "fit", fit)
    return seen


Seen = list[tuple[list[int], list[float]]]


def test_a_client_learns_long_only_once(epochs: Seen) -> None:
    """With half of the clients a round: in its first round after the first one."""
    w = world("fedala", sizes=(7, 5, 3, 6), train={"participation": 0.5}, hyper={"cap": 3})
    method = FedALA(w.config.hyper)
    state, learned = method.setup(w), set()
    for r in range(1, 7):
        w.session.tally.begin(r)
        epochs.clear()
        newest = method.round(state, w)
        ids = w.sample().tolist()
        new = [k for k in ids if k not in learned]
        if r == 1:
            assert epochs == [] and not newest.learned.any()
        else:
            assert [clients for clients, _ in epochs] == ([ids, new, new] if new else [ids])
            learned |= set(ids)
            assert set(np.flatnonzero(newest.learned)) == learned
            assert len(w.session.tally.log["ala/loss"]) == 2
        for k in set(range(4)) - set(ids):
            for pop in ("initialised", "trained", "weights"):
                assert torch.equal(*(client(getattr(s, pop), k)["head.0.weight"] for s in (state, newest)))
        state = newest
    assert learned == {0, 1, 2, 3}


def test_w_learns_from_a_part_of_the_samples() -> None:
    """0.8 of 7, 5 and 3 samples are 6, 4 and 2. Three epochs, then one."""
    visited = []
    for hyper in ({"p": 0}, {"cap": 3}):
        w = world("fedala", hyper=hyper)
        rounds(w, n=3)
        visited.append(w.session.tally.visited)
    assert visited[0] == 3 * (7 + 5 + 3) and visited[1] - visited[0] == (3 + 1) * (6 + 4 + 2)


@pytest.mark.parametrize("kind", ["ideal", "awgn"])
def test_each_epoch_has_its_own_draws_of_the_link(kind: str, epochs: Seen) -> None:
    """When W stands still, the losses of the same samples differ by the noise only."""
    rounds(world("fedala", hyper={"eta": 1e-15}, channel={"kind": kind}), n=2)
    first = [losses[0] for clients, losses in epochs if 0 in clients]
    assert len(first) >= 11 and len({round(loss, 9) for loss in first}) == (1 if kind == "ideal" else len(first))


def test_the_rate_of_w_is_not_the_runs() -> None:
    """Neither the run's schedule nor its weight decay reaches W. The decay would shrink weights without a gradient."""
    moved = []
    for train in ({}, {"lr_milestones": (2,), "lr_decay": 0.1}):
        w = toy_world("fedala", LR, hyper={"s": 1.0, "cap": 1}, train=train)
        moved.append(rounds(w, n=2)[-1].weights)
    assert gap(*moved) == 0 and float((1 - client(moved[0], 0)["head.0.weight"]).abs().max()) > 1e-3
    w = toy_world("fedala", 1e-9, hyper={"s": 1.0}, train={"momentum": 0.9, "weight_decay": 0.5})
    assert float((1 - client(rounds(w, n=2)[-1].weights, 0)["head.0.weight"]).abs().max()) < 1e-6


def test_below_the_top_and_its_buffers_the_global_model_starts() -> None:
    """Learning W changes only W: BatchNorm's statistics are the received statistics."""
    w = world("fedala", hyper={"cap": 2, "eta": 50.0})
    states = rounds(w, n=2)
    start, received = states[2].initialised.named(), states[1].model.named()
    different = {n for n, t in start.items() if not torch.equal(t, received[n])}
    assert different == {"head.0.weight", "head.0.bias"}


def test_zero_eta_is_fedavg() -> None:
    """W stays 1 in all tensors, so only the rounding of w_k + (w - w_k) is left."""
    setting = {"channel": {"kind": "rayleigh"}, "train": {"optimizer": "sgd", "participation": 2 / 3}}
    hyper = {"eta": 0.0, "p": len(world("fedala", **setting).population().parameters())}
    ala = play("fedala", n=3, hyper=hyper, model={"init": "client"}, **setting)
    assert gap(ala.model, play("fedavg", n=3, **setting).model) < 1e-10  # whose start is common in any case
    assert (flat(ala) != 0).any() and all((t == 1).all() for t in ala.weights.tensors())


def test_more_tensors_than_the_model_has_are_refused() -> None:
    w = world("fedala", hyper={"p": 99})
    number = len(w.population().parameters())
    with pytest.raises(ConfigError, match=f"^hyper.p: 99 is more than the {number} parameter tensors of the model$"):
        FedALA(w.config.hyper).setup(w)
