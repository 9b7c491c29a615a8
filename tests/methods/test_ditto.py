"""Ditto: both models worked by hand over two rounds, and its two reductions, which hold at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from semcom.methods.ditto import Ditto
from tests.methods.arms import X, Y, as_toy, assert_toy, play, rounds, toy_world
from tests.methods.by_hand import mean
from tests.worlds import client, gap, world

LAM, LR = 0.7, 0.5


def test_two_rounds_by_hand() -> None:
    """v is pulled to w as received, not to what the client or the server makes of it in the same round."""
    w = toy_world("ditto", LR, hyper={"lam": LAM}, train={"local_epochs": 2})
    before, *after = rounds(w, n=2)
    shared, own = as_toy(before.model, 0), [as_toy(before.personal, k) for k in (0, 1)]
    for state in after:
        for _ in range(2):
            own = [v.tied_step(X[k], Y[k], LR, shared, LAM) for k, v in enumerate(own)]
        shared = mean([shared.step(X[k], Y[k], LR).step(X[k], Y[k], LR) for k in (0, 1)], [3 / 5, 2 / 5])
        for k in (0, 1):
            assert_toy(as_toy(state.model, k), shared)
            assert_toy(as_toy(state.personal, k), own[k])


SETTINGS: list[dict[str, Any]] = [
    {},
    {"channel": {"kind": "rayleigh"}, "model": {"init": "client"}},
    {"train": {"participation": 2 / 3, "local_epochs": 2}},
]


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("lam", [0.0, 3.0])
def test_the_global_part_is_fedavg(lam: float, setting: dict[str, Any]) -> None:
    """Whatever lambda is, with noise and unequal clients."""
    average = play("fedavg", n=3, **{**setting, "model": {}})  # whose start is common in any case
    assert gap(play("ditto", n=3, hyper={"lam": lam}, **setting).model, average.model) == 0


@pytest.mark.parametrize("setting", SETTINGS)
def test_zero_lambda_is_local(setting: dict[str, Any]) -> None:
    ditto = play("ditto", n=3, hyper={"lam": 0.0}, **setting)
    assert gap(ditto.personal, play("local", n=3, **setting).model) == 0


def test_a_large_lambda_is_fedavg_as_received() -> None:
    """The minimiser of the pull alone: with lr lambda = 1 each step lands a gradient step away from w as received."""
    w = toy_world("ditto", LR, hyper={"lam": 1 / LR})
    *_, first, second = rounds(w, n=2)
    for k in (0, 1):
        step = as_toy(first.model, k).plus(as_toy(first.personal, k).slope(X[k], Y[k]), -LR)
        assert_toy(as_toy(second.personal, k), step)


def test_the_pull_is_towards_the_model_as_received() -> None:
    """Over a noisy downlink that is not what was sent: both start from one model, and are apart at the first step."""
    for parameters in ("ideal", "analog"):
        w = toy_world("ditto", channel={"kind": "awgn"}, air={"parameters": parameters})
        rounds(w)
        assert (w.session.tally.log["distance"] > 0).all() == (parameters == "analog")


def test_absent_clients_keep_their_models() -> None:
    w = world("ditto", sizes=(7, 5, 3, 6), train={"participation": 0.5})
    before, after = rounds(w)
    for k in range(4):
        pairs = zip(client(before.personal, k).values(), client(after.personal, k).values(), strict=True)
        assert any(not torch.equal(a, b) for a, b in pairs) == (k in w.sample())


def test_what_is_logged_and_evaluated() -> None:
    """The loss is the personal one; the global one is FedAvg's, under its own name."""
    w, fedavg = world("ditto", hyper={"lam": 2.0}), world("fedavg")
    method = Ditto(w.config.hyper)
    state = rounds(w, method)[-1]
    rounds(fedavg)
    assert set(w.session.tally.log) == {"loss", "task", "distance", "global/loss"}
    np.testing.assert_allclose(
        w.session.tally.log["loss"], w.session.tally.log["task"] + w.session.tally.log["distance"], rtol=1e-12
    )
    assert torch.equal(w.session.tally.log["global/loss"], fedavg.session.tally.log["loss"])
    views = method.views(state, w)
    assert list(views) == ["personal", "global"]
    assert views["personal"].population is state.personal and views["global"].population is state.model
