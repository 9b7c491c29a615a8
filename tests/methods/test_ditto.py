"""Ditto: both models by hand over two rounds, and the target of the pull."""

from __future__ import annotations

import numpy as np
import torch

from semcom.methods.ditto import Ditto
from tests.methods.arms import X, Y, as_toy, assert_toy, assert_toys, rounds, toy_world, toys
from tests.methods.by_hand import mean
from tests.worlds import world

LAM, LR = 0.7, 0.5


def test_two_rounds_by_hand() -> None:
    """v is pulled to the received w, not to the w that the client or server computes in the same round."""
    w = toy_world("ditto", LR, hyper={"lam": LAM}, train={"local_epochs": 2})
    before, *after = rounds(w, n=2)
    shared, own = as_toy(before.model, 0), toys(before.personal)
    for state in after:
        for _ in range(2):
            own = [v.tied_step(X[k], Y[k], LR, shared, LAM) for k, v in enumerate(own)]
        shared = mean([shared.steps(X[k], Y[k], LR, 2) for k in (0, 1)])
        assert_toys(state.model, shared)
        assert_toys(state.personal, own)


def test_a_large_lambda_is_fedavg_as_received() -> None:
    """Only the pull matters: with lr lambda = 1 each step lands a gradient step away from the received w."""
    w = toy_world("ditto", LR, hyper={"lam": 1 / LR})
    *_, first, second = rounds(w, n=2)
    for k in (0, 1):
        step = as_toy(first.model, k).plus(as_toy(first.personal, k).slope(X[k], Y[k]), -LR)
        assert_toy(as_toy(second.personal, k), step)


def test_the_pull_is_towards_the_model_as_received() -> None:
    """Over a noisy downlink it differs from the sent model, so the models already differ at the first step."""
    for parameters in ("ideal", "analog"):
        w = toy_world("ditto", channel={"kind": "awgn"}, air={"parameters": parameters})
        rounds(w)
        assert (w.session.tally.log["distance"] > 0).all() == (parameters == "analog")


def test_what_is_logged_and_evaluated() -> None:
    """The loss is the personal loss. The global loss is FedAvg's, under its own name."""
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
