"""Updates in fewer bits: what arrives, and what is counted."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from semcom.engine.air.compression import keep_largest, quantise
from semcom.engine.store.population import Population
from semcom.engine.world import World
from tests import worlds
from tests.engine.air.test_air import BOTH, SIZES
from tests.methods import arms
from tests.worlds import mapped

VALUES = torch.randn(3, 4, 50, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def uniforms(seed: int) -> Tensor:
    return torch.rand(3, 200, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("bits", [1, 2, 8, 32])
def test_a_quantised_number_is_off_by_less_than_a_step(bits: int) -> None:
    step = 2 * VALUES.flatten(1).abs().amax(1) / (2**bits - 1)
    found = quantise(VALUES, bits, uniforms(0))
    assert ((found - VALUES).abs() < step[:, None, None] * (1 + 1e-9)).all()
    if bits < 32:
        assert all(len(row.unique()) <= 2**bits for row in found.flatten(1))


@pytest.mark.parametrize("bits", [1, 3])
def test_a_quantised_number_is_right_on_average(bits: int) -> None:
    """Up with the chance of its place between two levels: the variance is that of a coin."""
    many = torch.stack([quantise(VALUES, bits, uniforms(seed)) for seed in range(400)])
    step = (2 * VALUES.flatten(1).abs().amax(1) / (2**bits - 1))[:, None, None]
    place = (VALUES / step + (2**bits - 1) / 2) % 1
    error, variance = many.mean(0) - VALUES, step**2 * place * (1 - place)
    assert (error.abs() < 5.5 * (variance / 400).sqrt() + 0.02 * step).all()
    assert many.var(0).mean() == pytest.approx(float(variance.mean()), rel=0.02)


def test_zeros_stay_zeros() -> None:
    assert not quantise(0 * VALUES, 4, uniforms(0)).any() and not keep_largest(0 * VALUES, 0.1).any()


def test_the_largest_are_kept() -> None:
    found = keep_largest(VALUES, 0.1)
    for sent, row in zip(found.flatten(1), VALUES.flatten(1), strict=True):
        chosen = sent != 0
        assert chosen.sum() == 20 and torch.equal(sent[chosen], row[chosen])
        assert row[chosen].abs().min() > row[~chosen].abs().max()
    assert (keep_largest(VALUES[:, :1, :3], 0.01) != 0).flatten(1).sum(1).tolist() == [1, 1, 1]
    assert torch.equal(keep_largest(VALUES, 1.0), VALUES)


def moved(pop: Population, seed: int) -> Population:
    generator = torch.Generator().manual_seed(seed)
    return mapped(pop, lambda name, t: t + torch.randn(t.shape, generator=generator, dtype=t.dtype).abs())


def compressed(**air: Any) -> World:
    return worlds.world("fedavg", SIZES, air=air)


def test_what_is_left_out_goes_up_later() -> None:
    """The sum of what has arrived and of what is still kept is the sum of all updates, of each client."""
    w = compressed(compress="top-k", top_fraction=0.2)
    received = w.population(shared=BOTH)
    w.remember(BOTH)
    some = np.array([0, 2])
    arrived, updates = dict[str, Tensor](), dict[str, Tensor]()
    for round_ in range(1, 4):
        w.session.tally.begin(round_)
        started = received.select(some)
        trained = moved(started.spread(), round_)
        for total, of in ((arrived, w.air.up(trained, BOTH, since=started)), (updates, trained)):
            for name, t in of.named().items():
                total[name] = total.get(name, 0) + (t - started.named()[name])
    kept, others = (
        w.air.compression.residual.select(some).named(),
        w.air.compression.residual.select(np.array([1])).named(),
    )
    for name, t in kept.items():
        torch.testing.assert_close(arrived[name] + t, updates[name])
    assert sum(float(t.abs().sum()) for t in kept.values()) > 1 and not any(t.any() for t in others.values())
    assert torch.equal(arrived["encoder.1.running_var"], updates["encoder.1.running_var"])
    zero = received.spread().named()["encoder.3.weight"][:2]
    last = w.air.up(moved(started.spread(), 9), BOTH, since=started).named()["encoder.3.weight"] - zero
    assert (last != 0).flatten(1).sum(1).tolist() == [38, 38]  # of 192, a fifth


NUMBERS = (48, 3, 3, 3, 192, 12, 3)
"""Of the tensors that are compressed: convolution, BatchNorm's weight, bias and mean, convolution, head's both."""


@pytest.mark.parametrize(
    ("air", "floats", "bits"),
    [
        ({"compress": "quantise", "quantise_bits": 5}, sum(NUMBERS), sum(5 * n + 16 for n in NUMBERS)),
        (
            {"compress": "top-k", "top_fraction": 0.25},
            sum(max(1, round(n / 4)) for n in NUMBERS),
            sum(max(1, round(n / 4)) * (16 + math.ceil(math.log2(n))) for n in NUMBERS),
        ),
    ],
)
def test_bits_are_counted_by_formula(air: dict[str, Any], floats: int, bits: int) -> None:
    """Beside the three running variances and BatchNorm's counter, if there is one, which go up as they are."""
    w = compressed(**air, bits_per_float=16, bits_per_use=4.0)
    received = w.air.down(w.population(shared=BOTH), BOTH)
    rest = int(received.numbers(BOTH)[0]) - sum(NUMBERS)
    assert rest in (3, 4)
    before = w.air.totals["down"].bits
    w.air.up(received.spread(), BOTH, since=received)
    up = w.air.totals["up"]
    assert up.floats == 3 * (floats + rest) and up.bits == 3 * (bits + 16 * rest) == 4 * up.uses
    assert before == 3 * 16 * (sum(NUMBERS) + rest)  # the broadcast is not compressed


@pytest.mark.parametrize("method", ["fedavg", "fedproto", "fedgh", "fedcosr", "fedamp", "fedpac"])
def test_all_that_goes_up_is_quantised(method: str) -> None:
    """32 bits are as good as none, 4 are fewer and noisier; what comes down costs the same."""
    states, sent = [], []
    for air in ({}, {"compress": "quantise", "quantise_bits": 32}, {"compress": "quantise", "quantise_bits": 4}):
        w = worlds.world(method, SIZES, air=air)
        states.append(arms.rounds(w, n=2)[-1].model)  # prototypes come down from the second on
        sent.append({way: (t.floats, t.bits) for way, t in w.air.totals.items()})
    assert worlds.gap(states[0], states[1]) < 1e-6 < 1e-5 < worlds.gap(states[0], states[2])
    assert sent[0]["down"] == sent[1]["down"] == sent[2]["down"]
    (floats, plain), (_, most), (same, least) = (of["up"] for of in sent)
    assert floats == same and plain < most < 1.5 * plain and least < 0.5 * plain


def test_prototypes_are_counted_by_formula() -> None:
    """b bits for each number of a class that a client owns, and its largest magnitude; absent classes stay zero."""
    w = worlds.world("fedproto", SIZES, air={"compress": "quantise", "quantise_bits": 3, "bits_per_float": 16})
    values = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values[1, 2:] = 0
    values[2] = 0
    found = w.air.send("up", "prototypes", values, np.arange(3), np.array([20, 8, 0]))
    assert w.air.totals["up"].bits == 3 * 28 + 2 * 16 and w.air.totals["up"].floats == 28
    assert not found[1, 2:].any() and not found[2].any()
    step = 2 * values.flatten(1).abs().amax(1) / 7
    assert ((found - values).abs() <= step[:, None, None] * (1 + 1e-9)).all() and len(found[0].unique()) <= 8


def test_a_feature_that_is_zero_is_sent_as_any_other() -> None:
    """With one bit two values arrive for what a client owns, as many as a bit has, and none for the other class."""
    w = worlds.world("fedproto", SIZES, air={"compress": "quantise", "quantise_bits": 1})
    values = torch.randn(3, 5, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64).clamp(min=0)
    values[:, 4] = 0
    found = w.air.send("up", "prototypes", values, np.arange(3), np.array([160, 160, 160]))
    most = values.flatten(1).amax(1)
    for arrived, level in zip(found, most, strict=True):
        assert arrived[:4].abs().unique().tolist() == pytest.approx([float(level)]) and not arrived[4].any()


def test_draws_are_keyed_by_client() -> None:
    w = compressed(compress="quantise", quantise_bits=2)
    received = w.population(shared=BOTH)
    trained = moved(received.spread(), 0)
    one = w.air.up(trained, BOTH, since=received).select(np.array([2]))
    alone = w.air.up(trained.select(np.array([2])), BOTH, since=received.select(np.array([2])))
    assert worlds.gap(one, alone) == 0
