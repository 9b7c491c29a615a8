"""pFedMe: by hand over two rounds, the views of theta, running statistics, and diverging rates."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from semcom.config import ConfigError
from semcom.methods.pfedme import PFedMe
from tests.methods.arms import X, Y, as_toy, assert_toys, play, rounds, toy_world
from tests.methods.by_hand import Toy, mean
from tests.methods.test_special_cases import FEDAVG
from tests.worlds import client, gap, world

LAM, LR_P, ETA, BETA, NU, K = 4.0, 0.2, 0.1, 0.6, 0.3, 3
HAND = {"lam": LAM, "lr_p": LR_P, "eta": ETA, "beta": BETA, "nu": NU, "inner_steps": K}


def trained(w: Toy, k: int, epochs: int = 2) -> tuple[Toy, Toy]:
    """Compute w and theta after full-batch epochs. theta continues from the last batch."""
    theta = w
    for _ in range(epochs):
        for _ in range(K):
            slope = theta.slope(X[k], Y[k]).plus(theta.plus(w, -1), LAM).plus(theta, NU)
            theta = theta.plus(slope, -LR_P)
        w = w.plus(w.plus(theta, -1), -ETA * LAM)
    return w, theta


def test_two_rounds_by_hand() -> None:
    start, first, second = rounds(toy_world("pfedme", hyper=HAND, train={"local_epochs": 2}), n=2)
    w = as_toy(start.model, 0)
    for state in (first, second):
        both = [trained(w, k) for k in (0, 1)]
        w = mean([w, mean([own for own, _ in both])], [1 - BETA, BETA])
        assert_toys(state.model, w)
        assert_toys(state.theta, [theta for _, theta in both])


def test_the_schedule_scales_the_rate_of_w_alone() -> None:
    """From round 2 on it is half of eta, by the schedule or by hand, while theta moves as fast as before."""
    w = world("pfedme", train={"lr_milestones": (2,), "lr_decay": 0.5})
    _, first, second = rounds(w, n=2)
    by_hand = world("pfedme", hyper={"eta": w.config.hyper.eta / 2})  # type: ignore[union-attr]
    by_hand.session.tally.begin(2)
    after = PFedMe(by_hand.config.hyper).round(first, by_hand)  # type: ignore[arg-type]
    assert max(gap(second.model, after.model), gap(second.theta, after.theta)) < 1e-12


def test_theta_is_then_what_the_client_trained() -> None:
    """With one client the mean is its own model."""
    w = world("pfedme", sizes=(7,), hyper=FEDAVG)
    state = rounds(w, n=2)[-1]
    mine, shared = client(state.theta, 0), client(state.model, 0)
    assert all((mine[name] - shared[name]).abs().max() < 1e-12 for name in mine)


def test_without_lambda_w_stays_and_theta_is_local() -> None:
    """Only the running statistics of the global model move, and theta starts at w in each round."""
    hyper = {"lam": 0.0, "inner_steps": 1, "lr_p": 0.1}
    start, first, second = rounds(world("pfedme", hyper=hyper), n=2)
    for state in (first, second):
        for name, value in client(state.model, 0).items():
            stays = bool((value - client(start.model, 0)[name]).abs().max() < 1e-15)  # a mean of equal models rounds
            assert stays is ("running" not in name)
    local = play("local", 1, sizes=(7, 5, 3), train={"optimizer": "sgd", "lr": 0.1})
    assert gap(first.theta, local.model) < 1e-12


@pytest.mark.parametrize("beta", [0.25, 2.0])
def test_the_server_moves_by_beta(beta: float) -> None:
    """Its running statistics are the clients' mean: taken further, a variance could turn negative."""
    setting = {"train": {"local_epochs": 8}, "sizes": (4, 3, 2)}
    start, whole = rounds(world("pfedme", hyper={"inner_steps": 1}, **setting))
    part = rounds(world("pfedme", hyper={"inner_steps": 1, "beta": beta}, **setting))[-1]
    for name, value in client(part.model, 0).items():
        old, new = client(start.model, 0)[name], client(whole.model, 0)[name]
        assert not name.endswith("running_var") or (2 * new - old < 0).any()
        old = new if "running" in name else old
        torch.testing.assert_close(value, (1 - beta) * old + beta * new, rtol=0, atol=1e-14)
    assert gap(part.theta, whole.theta) == 0


def test_running_statistics_move_once_per_batch() -> None:
    """At a rate of nearly zero all passes see the same: three of them count as one."""
    one, three = (play("pfedme", hyper={"lr_p": 1e-14, "inner_steps": k}) for k in (1, 3))
    assert gap(one.model, three.model) < 1e-11
    assert gap(one.theta, three.theta) < 1e-11


@pytest.mark.parametrize(
    ("hyper", "words"),
    [
        ({"lr_p": 0.2}, r"^hyper.lr-p: 0.2 times .* is 3, above 2: theta diverges$"),
        ({"lr_p": 0.13, "nu": 0.5}, "hyper.lr-p: 0.13 times .* is 2.015,"),
    ],
)
def test_rates_that_diverge_are_refused(hyper: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        world("pfedme", hyper=hyper)
