"""FedDyn: by hand over two rounds, its first round beside FedProx, and the meaning of h."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from semcom.methods.feddyn import FedDyn
from tests.methods.arms import X, Y, as_toy, assert_toy, assert_toys, compare_noise, play, rounds, toy_world, toys
from tests.methods.by_hand import mean
from tests.worlds import gap, world

ALPHA, LR = 0.3, 0.5


def test_two_rounds_by_hand() -> None:
    """Two full-batch epochs on CE - <g_k, w> + alpha/2 ||w - w_received||^2."""
    w = toy_world("feddyn", LR, hyper={"alpha": ALPHA}, train={"local_epochs": 2})
    before, *after = rounds(w, n=2)
    shared = as_toy(before.model, 0)
    h, own = shared.plus(shared, -1), toys(before.own)
    for state in after:
        trained = []
        for k in (0, 1):
            local = shared
            for _ in range(2):
                local = local.tied_step(X[k], Y[k], LR, shared, ALPHA).plus(own[k], LR)
            trained.append(local)
        own = [own[k].plus(trained[k].plus(shared, -1), -ALPHA) for k in (0, 1)]
        h = h.plus(mean(trained).plus(shared, -1), -ALPHA)
        shared = mean(trained).plus(h, -1 / ALPHA)
        assert_toys(state.model, shared)
        assert_toys(state.own, own)
        assert_toy(as_toy(state.h, 0), h)


def test_round_one_goes_twice_as_far_as_fedprox() -> None:
    """Without g_k the clients train as FedProx's with mu = alpha, and h doubles their mean step."""
    start = rounds(world("feddyn"), n=0)[0].model.named()
    dyn, prox = (play(m, 1, hyper={name: 0.3}).model for m, name in (("feddyn", "alpha"), ("fedprox", "mu")))
    names = dyn.parameters()
    for name, t in prox.named().items():
        wanted = 2 * t - start[name] if name in names else t
        torch.testing.assert_close(dyn.named()[name], wanted, rtol=0, atol=1e-12)


def test_h_is_the_sum_of_the_gradients() -> None:
    """By the clients' numbers of images, also of those that are absent."""
    w = world("feddyn", sizes=(7, 5, 3, 6), train={"participation": 0.5})
    state = rounds(w, n=5)[-1]
    for name, t in state.own.named().items():
        assert t.abs().max() > 1e-4
        np.testing.assert_allclose(
            state.h.named()[name][0], np.average(t.numpy(), axis=0, weights=(7, 5, 3, 6)), rtol=0, atol=1e-14
        )


def test_h_keeps_the_noise_of_all_models() -> None:
    """At 10 dB its power is a tenth of that of the changes of g_k, over the square of the number of clients."""
    states = rounds(world("feddyn", sizes=(4,) * 4, air={"parameters": "analog"}), n=10)
    assert compare_noise(states, lambda state: state.h) == pytest.approx(0.1 / 4**2, rel=0.4)


def test_a_large_alpha_holds_the_clients_back() -> None:
    still, model = (
        rounds(world("feddyn", hyper={"alpha": 1e9}, train={"optimizer": "sgd", "lr": 1e-10}), n=n)[-1].model
        for n in (0, 1)
    )
    weights = {n: t for n, t in model.named().items() if n in model.parameters()}
    assert max(float((t - still.named()[n]).abs().max()) for n, t in weights.items()) < 1e-8
    assert gap(still, model) > 1e-3  # running statistics move


def test_alpha_is_positive() -> None:
    with pytest.raises(ValueError, match="alpha: 0.0 is not"):
        FedDyn.Hyper(alpha=0.0).check()
