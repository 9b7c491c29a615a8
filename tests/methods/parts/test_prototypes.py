"""The base station's prototypes: from an empty start, through the air, with absent owners, on disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from semcom.config import RunError
from semcom.engine.store.population import Population
from semcom.methods.parts.prototypes import Prototypes
from semcom.runs.folder.checkpoint import load_checkpoint, save_checkpoint, state_from_checkpoint, state_to_checkpoint
from tests.worlds import gap, world

MEANS = torch.tensor([[[1.0, 2.0], [0.0, 0.0], [4.0, 0.0]], [[3.0, 4.0], [0.0, 0.0], [0.0, 0.0]]]).double()
COUNTS = torch.tensor([[3.0, 0.0, 2.0], [1.0, 0.0, 0.0]]).double()
"""Counts of two clients: class 0 has two owners, class 1 has no owner, class 2 has one owner."""
OLD = Prototypes(torch.tensor([[9.0, 9.0], [5.0, 6.0], [0.0, 0.0]]).double(), torch.tensor([True, True, False]))


def test_there_are_none_at_first() -> None:
    none = Prototypes.none(world(classes=3))
    assert torch.equal(none.values, torch.zeros(3, 4, dtype=torch.float64)) and none.known.tolist() == [False] * 3


@pytest.mark.parametrize(("how", "first"), [("mean", [2.0, 3.0]), ("counts", [1.5, 2.5])])
def test_a_class_without_owners_keeps_what_it_had(how: str, first: list[float]) -> None:
    new = OLD.renewed(MEANS, COUNTS, how)  # type: ignore[arg-type]
    assert new.values.tolist() == [first, [5.0, 6.0], [4.0, 0.0]] and new.known.tolist() == [True, True, True]
    assert OLD.values.tolist() == [[9.0, 9.0], [5.0, 6.0], [0.0, 0.0]] and OLD.known.tolist() == [True, True, False]


def test_traffic() -> None:
    """Down: d per known class to each client. Up: d per class with samples at a client."""
    w, ids = world(sizes=(7, 5, 3)), np.array([0, 2])
    received = OLD.down(w, ids)
    assert torch.equal(received, OLD.values.expand(2, -1, -1)) and w.air.totals["down"].floats == 2 * 2 * 2
    new = OLD.up(w, ids, MEANS, COUNTS, "mean")
    assert torch.equal(new.values, OLD.renewed(MEANS, COUNTS, "mean").values)
    assert w.air.totals["up"].floats == (2 + 1) * 2


def test_noise_is_of_the_name_they_have_on_the_air() -> None:
    """Uncoded: every client hears its own noise, two names differ, the same name and round do not."""
    w, ids = world(air={"parameters": "analog"}), np.array([0, 2])
    one, again, other = (OLD.down(w, ids, name) for name in ("prototypes", "prototypes", "centroids"))
    assert torch.equal(one, again) and not torch.equal(one, other) and not torch.equal(one[0], one[1])
    assert not torch.equal(OLD.up(w, ids, MEANS, COUNTS, "mean").values, OLD.renewed(MEANS, COUNTS, "mean").values)


@dataclass(frozen=True)
class State:
    model: Population
    prototypes: Prototypes


def test_they_come_back_from_a_checkpoint(tmp_path: Path) -> None:
    model = world("local").population()
    save_checkpoint(tmp_path / "c.pt", state_to_checkpoint(State(model, OLD)))
    template = State(model, Prototypes(torch.zeros(3, 2).double(), torch.zeros(3, dtype=torch.bool)))
    found = state_from_checkpoint(template, load_checkpoint(tmp_path / "c.pt"))
    assert isinstance(found.prototypes, Prototypes) and gap(found.model, model) == 0
    assert torch.equal(found.prototypes.values, OLD.values) and torch.equal(found.prototypes.known, OLD.known)


@pytest.mark.parametrize("wrong", [None, torch.zeros(3, 2).double(), {}, {"values": OLD.values}])
def test_a_checkpoint_of_another_state_is_refused(wrong: dict[str, Tensor] | Tensor | None) -> None:
    state = State(world("local").population(), OLD)
    values = state_to_checkpoint(state)
    with pytest.raises(RunError, match="does not fit this run"):
        state_from_checkpoint(state, {**values, "prototypes": wrong})
    assert torch.equal(state_from_checkpoint(state, values).prototypes.values, OLD.values)
