"""OFDM and Rician fading inside the engine: exchange over the air, and accounts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from semcom.engine.world import World
from tests import worlds
from tests.engine.visits import SIZES, task


def make(channel: dict[str, Any], **overrides: Any) -> World:
    return worlds.world("test-split", SIZES, channel=channel, model={"init": "client"}, **overrides)


# -- uncoded exchange ------------------------------------------------------------------------------------------------

K, NUMBERS = 32, 501
IDS, ALL = np.arange(K), np.full(K, NUMBERS)


def analog(**channel: Any) -> World:
    return worlds.world("fedavg", sizes=(1,) * K, air={"parameters": "analog"}, channel=channel)


def values() -> Tensor:
    scale = torch.logspace(-6, 6, K, dtype=torch.float64)[:, None]
    return scale * torch.randn(K, NUMBERS, generator=torch.Generator().manual_seed(7), dtype=torch.float64)


EXCHANGES: dict[str, dict[str, Any]] = {
    "rician": {"kind": "rician", "coherence": "symbol"},
    "flat": {"kind": "ofdm", "profile": "rayleigh"},
    "tdl": {"kind": "ofdm"},
    "ls": {"kind": "ofdm", "csi": "ls", "speed_mps": 0.0},
}


@pytest.mark.parametrize("channel", EXCHANGES.values(), ids=EXCHANGES)
@pytest.mark.parametrize("direction", ["up", "down"])
def test_a_tensor_arrives_equalised(channel: dict[str, Any], direction: Any) -> None:
    """Zero forcing: without noise as it was sent, odd number of numbers and all."""
    sent = values()
    got = analog(equaliser="zf", snr_db="inf", **channel).air.send(direction, "x", sent, IDS, ALL)
    torch.testing.assert_close(got, sent, rtol=1e-9, atol=0.0)


@pytest.mark.parametrize("kind", ["rician", "ofdm"])
def test_the_noise_of_a_tensor_is_that_of_the_snr(kind: str) -> None:
    """Without equaliser the error is n + (h - 1) x, mean square no + 2 as E|h|^2 = 1, E h = 0; a unit is a client."""
    own: dict[str, Any] = {"coherence": "symbol"} if kind == "rician" else {}
    sent = values()
    got = analog(kind=kind, equaliser="none", snr_db=0.0, **own).air.send("up", "x", sent, IDS, ALL)
    error = ((got - sent).square().mean(1) / sent.square().mean(1)).sub(3)
    assert abs(error.mean()) < 5 * error.std() / K**0.5


def test_channel_gains_of_a_tensor_are_those_of_the_direction_and_the_client() -> None:
    w, sent = analog(kind="ofdm", csi="ls"), values()
    one = w.air.send("up", "x", sent[[3, 5]], np.array([3, 5]), ALL[:2])
    torch.testing.assert_close(one[1], w.air.send("up", "x", sent[[5]], np.array([5]), ALL[:1])[0], rtol=1e-12, atol=0)
    assert not torch.allclose(one[1], w.air.send("down", "x", sent[[5]], np.array([5]), ALL[:1])[0])


# -- accounts --------------------------------------------------------------------------------------------------------


def test_mini_batches_and_models_take_whole_slots() -> None:
    """10 subcarriers for 4 clients: 2 each. A mini-batch of 2 samples x 2 symbols takes a slot of 14 x 15/14 x 10/4."""
    channel = {"kind": "ofdm", "subcarriers": 10}
    w = make(channel, air={"parameters": "analog", "symbol_energy": 2.0})
    w.fit(w.population(), task)
    steps, samples = 4 + 2 + 1 + 3, sum(SIZES)
    down, up = w.air.totals["down"], w.air.totals["up"]
    assert down.uses == pytest.approx(steps * 15 * 2.5) and down.airtime_s == pytest.approx(steps * 1e-3)
    assert down.energy_j == pytest.approx(2.0 * (2 * samples + steps * 4) * 15 / 14)
    labels = samples * np.log2(3) / 2.0
    assert up.uses - down.uses == pytest.approx(labels)
    assert up.airtime_s - down.airtime_s == pytest.approx(labels * 4 / (10 * 15e3))
    assert up.energy_j - down.energy_j == pytest.approx(2.0 * labels)
    w.air.send("up", "x", torch.ones(2, 50, dtype=torch.float64), np.array([0, 2]), np.array([50, 48]))
    assert up.uses - down.uses - labels == pytest.approx((2 + 1) * 15 * 2.5)  # 25 and 24 symbols, 24 a slot


def test_a_small_share_of_the_band_takes_longer() -> None:
    """Features of one mini-batch, 4 symbols over 12 x width: a slot for each, whatever it holds, of 1 ms."""
    w = make({"kind": "ofdm", "csi": "ls", "equaliser": "zf", "shares": (0.4, 0.3, 0.2, 0.1), "subcarriers": 10})
    w.air.features(np.array([0, 3]), [[2], [2]], 4, math.log2(3), back=False)
    labels = 2 * np.log2(3) / 2.0
    assert w.air.totals["up"].uses == pytest.approx(15 * (4 + 1) + 2 * labels)
    assert w.air.totals["up"].airtime_s == pytest.approx(2e-3 + labels / 6e4 + labels / 1.5e4)
