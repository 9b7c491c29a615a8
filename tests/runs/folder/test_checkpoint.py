"""States on disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from semcom.config import RunError
from semcom.engine.store.population import Population
from semcom.engine.train.descent import Optimizer
from semcom.runs.folder.checkpoint import (
    fits_checkpoint_template,
    load_checkpoint,
    save_checkpoint,
    state_from_checkpoint,
    state_to_checkpoint,
)
from tests import worlds
from tests.worlds import mapped


@dataclass(frozen=True)
class State:
    model: Population
    centroids: Tensor
    known: Tensor


def state(
    encoder: str = "test-conv,test-conv-wide",
    shared: tuple[str, ...] = ("head.",),
    seed: int = 0,
    store: str = "host",
    out: Path | None = None,
) -> State:
    w = worlds.world("local", encoder=encoder, model={"init": "client"}, seed=seed, store=store, out=out and str(out))
    centroids = torch.randn(3, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return State(w.population(shared), centroids, torch.tensor([True, False, seed > 0]))


def trained(old: State) -> State:
    """With other rows for clients 0 and 2, in two versions."""
    model = old.model
    for factor, ids in ((2.0, [0, 2]), (3.0, [2])):
        changed = mapped(model.select(np.array(ids)), lambda _, t, factor=factor: t * factor)  # type: ignore[misc]
        model = model.put(changed)
    return State(model, old.centroids, old.known)


@pytest.mark.parametrize("store", ["host", "disk"])
@pytest.mark.parametrize("again", ["host", "disk"])
def test_a_state_comes_back_bit_by_bit(store: str, again: str, tmp_path: Path) -> None:
    old, template = trained(state(seed=1, store=store, out=tmp_path)), state(seed=1, store=again, out=tmp_path)
    save_checkpoint(tmp_path / "c.pt", {"state": state_to_checkpoint(old), "round": 7})
    content = load_checkpoint(tmp_path / "c.pt")
    new = state_from_checkpoint(template, content["state"], tmp_path)
    assert content["round"] == 7 and worlds.gap(new.model, old.model) == 0
    assert torch.equal(new.centroids, old.centroids) and torch.equal(new.known, old.known)
    assert [c.shared for c in new.model.cohorts] == [c.shared for c in old.model.cohorts]
    assert worlds.gap(template.model, old.model) > 0  # and the template is left alone
    files = {"rows-1.bin"} if "disk" in (store, again) else set()  # no client of the other cohort has trained
    assert {path.name for path in tmp_path.iterdir()} == {"c.pt", *files}


def test_stored_tensors_have_a_storage_of_their_own() -> None:
    """A common start is one row, expanded; a view would drag all of its storage along."""
    w = worlds.world("local")
    big = torch.zeros(1000, dtype=torch.float64)
    model = w.population(shared="head.")
    values = state_to_checkpoint(State(model.put(model.select(np.array([0, 1]))), big[:2], big[3:4]))
    stored = values["model"]["0"]
    flat = [*stored["common"].values(), *stored["rows"]["records"], values["centroids"], values["known"]]
    assert all(t.untyped_storage().nbytes() == t.numel() * t.element_size() for t in flat)
    assert len({t.data_ptr() for t in flat}) == len(flat)


def test_another_state_is_refused() -> None:
    values = state_to_checkpoint(state())
    for other in (state(encoder="test-conv"), state(shared=())):
        with pytest.raises(RunError, match="does not fit this run"):
            state_from_checkpoint(other, values)
    for name in ("model", "centroids", "known"):
        with pytest.raises(RunError, match="does not fit this run"):
            state_from_checkpoint(state(), {k: v for k, v in values.items() if k != name})


@pytest.mark.parametrize("shared", ["head.", "", "encoder."])
@pytest.mark.parametrize("kind", ["rows", "stacks", "moments"])
def test_tensors_of_other_names_are_another_network(kind: str, shared: str) -> None:
    """As of a version that called a layer otherwise, be it own to clients or common, or what Adam remembers of it."""
    start = state(encoder="test-conv", shared=(shared,))
    model = start.model if kind == "rows" else start.model.spread("")
    if kind == "moments":
        model = Optimizer("adam", 0.1).state(model.select(np.array([0])))
    values = state_to_checkpoint(State(model, start.centroids, start.known))
    found = state_from_checkpoint(start, values)
    assert worlds.gap(found.model, model) == 0
    (cohort,) = values["model"].values()
    for held in ("tensors", "common"):
        for name in list(cohort.get(held, {})):
            if name == "step":
                continue
            tensor, other = cohort[held].pop(name), name.replace("encoder.", "body.").replace("head.", "top.")
            cohort[held][other] = tensor
            with pytest.raises(RunError, match="does not fit this run"):
                state_from_checkpoint(start, values)
            del cohort[held][other]
            cohort[held][name] = tensor
    assert worlds.gap(state_from_checkpoint(start, values).model, model) == 0


def test_a_state_comes_back_in_its_own_shape() -> None:
    """Whatever `setup` gave: other clients, other tensors in common, other sizes and types."""
    start = state()
    some = start.model.select(np.array([2]))
    models = {
        "own": start.model.spread("head."),
        "of one client": some,
        "of one architecture": Population(start.model.cohorts[1:]),
        "in common": start.model.share({"head.bias": torch.ones(1, 4).double()}),
        "in another arithmetic": mapped(start.model.spread(""), lambda _, t: t.float()),
        "more at the base station": start.model.one("head."),
    }
    for name, model in models.items():
        now = State(model, torch.arange(5), torch.zeros(0))
        found = state_from_checkpoint(start, state_to_checkpoint(now))
        assert found.centroids.tolist() == [0, 1, 2, 3, 4] and found.known.shape == (0,)
        for mine, theirs in zip(found.model.cohorts, model.cohorts, strict=True):
            assert mine.ids.tolist() == theirs.ids.tolist() and mine.shared == theirs.shared, name
            assert mine.network is theirs.network and list(mine.tensors) == list(theirs.tensors), name
            pairs = [(t, theirs.tensors[key]) for key, t in mine.tensors.items()]
            assert all(one.dtype == other.dtype and torch.equal(one, other) for one, other in pairs), name


def test_a_checkpoint_of_a_version_that_relied_on_setup_is_read() -> None:
    """Such a file told neither clients nor what they share; one that was refused for it can be read."""
    start = state(encoder="test-conv")
    for model in (start.model, start.model.spread("head.")):
        values = state_to_checkpoint(State(model, start.centroids, start.known))
        for name, cohort in values["model"].items():
            old = {key: cohort[key] for key in ("common", "rows")} if "rows" in cohort else cohort["tensors"]
            values["model"][name] = old
        found = state_from_checkpoint(start, values)
        assert worlds.gap(found.model, model) == 0
        assert [c.shared for c in found.model.cohorts] == [c.shared for c in model.cohorts]


def test_counters_have_the_structure_of_a_template() -> None:
    template = {"round": 0, "seconds": {}, "air": {"up": {"bits": 0.0}}, "meters": [None, 0.5]}
    fine: dict[str, Any] = {"round": 7, "seconds": {"train": 0.5}, "air": {"up": {"bits": 3}}, "meters": [2.5, 1.0]}
    assert fits_checkpoint_template(template, fine) and fits_checkpoint_template(template, template)
    for wrong in (
        None,
        [],
        {},
        fine | {"more": 1},
        fine | {"round": "7"},
        fine | {"round": 7.0},
        fine | {"round": -1},
        fine | {"round": True},
        fine | {"round": None},
        fine | {"seconds": {"train": None}},
        fine | {"seconds": {1: 0.5}},
        fine | {"seconds": [0.5]},
        fine | {"air": {"up": {"bits": None}}},
        fine | {"air": {"up": {"bits": True}}},
        fine | {"air": {"up": {}}},
        fine | {"meters": [2.5]},
        fine | {"meters": (2.5, 1.0)},
        fine | {"meters": [2.5, torch.zeros(1)]},
        {name: value for name, value in fine.items() if name != "round"},
    ):
        assert not fits_checkpoint_template(template, wrong), wrong
