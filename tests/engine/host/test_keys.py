"""Keyed randomness."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from semcom.engine.host.keys import build_with_key, derive_key_seed, key_global_generator, keyed

KEY = st.tuples(st.integers(0, 3), st.sampled_from(["uplink", "order", ""]), st.integers(0, 30), st.integers(0, 30))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(KEY, KEY)
def test_a_seed_belongs_to_its_key(one: tuple[object, ...], other: tuple[object, ...]) -> None:
    assert (derive_key_seed(*one) == derive_key_seed(*other)) == (one == other)
    assert 0 <= derive_key_seed(*one) < 2**63


def test_seeds_are_the_same_everywhere() -> None:
    """Every process has another hash seed, this one too."""
    assert derive_key_seed(0, "uplink", 1, 2) == 7187617214879276818


def test_keys_do_not_run_together() -> None:
    assert derive_key_seed(1, 23) != derive_key_seed(12, 3)
    assert derive_key_seed("a", "b") != derive_key_seed("ab")
    assert derive_key_seed(1) != derive_key_seed("1") and derive_key_seed() != derive_key_seed("")


def test_a_generator_depends_on_its_key_alone() -> None:
    draws = [torch.rand(4, generator=keyed(0, "x", k)) for k in (1, 2, 1)]
    assert torch.equal(draws[0], draws[2]) and not torch.equal(draws[0], draws[1])


def test_streams_of_neighbours_are_independent() -> None:
    """Correlation of 64 keyed streams of 4000 normal numbers: each within 5 standard errors of zero."""
    rows = torch.stack([torch.randn(4000, generator=keyed(0, "noise", k), dtype=torch.float64) for k in range(64)])
    table = torch.corrcoef(rows) - torch.eye(64, dtype=torch.float64)
    assert table.abs().max() < 5 / 4000**0.5
    assert (rows.mean(1).abs() < 5 / 4000**0.5).all()


def test_the_global_generator_is_read_by_none_and_comes_back() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    one = build_with_key(lambda: nn.Linear(3, 2), 0, "head")
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(4)
    two = build_with_key(lambda: nn.Linear(3, 2), 0, "head")
    three = build_with_key(lambda: nn.Linear(3, 2), 0, "tail")
    assert torch.equal(one.weight, two.weight) and not torch.equal(one.weight, three.weight)
    before = torch.get_rng_state()
    with pytest.raises(ZeroDivisionError), key_global_generator("x"):
        torch.rand(5)
        raise ZeroDivisionError
    assert torch.equal(torch.get_rng_state(), before), "after an error too"
