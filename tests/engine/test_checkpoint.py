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
from semcom.engine.checkpoint import load, restore, save, state_dict
from semcom.engine.population import Population
from tests import worlds


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
        changed = model.rows(np.array(ids)).map(lambda _, t, factor=factor: t * factor)  # type: ignore[misc]
        model = model.put(changed)
    return State(model, old.centroids, old.known)


@pytest.mark.parametrize("store", ["host", "disk"])
@pytest.mark.parametrize("again", ["host", "disk"])
def test_a_state_comes_back_bit_by_bit(store: str, again: str, tmp_path: Path) -> None:
    old, template = trained(state(seed=1, store=store, out=tmp_path)), state(seed=1, store=again, out=tmp_path)
    save(tmp_path / "c.pt", {"state": state_dict(old), "round": 7})
    content = load(tmp_path / "c.pt")
    new = restore(template, content["state"], tmp_path)
    assert content["round"] == 7 and worlds.gap(new.model, old.model) == 0
    assert torch.equal(new.centroids, old.centroids) and torch.equal(new.known, old.known)
    assert [c.shared for c in new.model.cohorts] == [c.shared for c in old.model.cohorts]
    assert worlds.gap(template.model, old.model) > 0  # and the template is left alone
    files = {"rows-1.bin", "rows-2.bin"} if "disk" in (store, again) else set()
    assert {path.name for path in tmp_path.iterdir()} == {"c.pt", *files}


def test_stored_tensors_have_a_storage_of_their_own() -> None:
    """A common start is one row, expanded; a view would drag all of its storage along."""
    w = worlds.world("local")
    big = torch.zeros(1000, dtype=torch.float64)
    model = w.population(shared="head.")
    values = state_dict(State(model.put(model.rows(np.array([0, 1]))), big[:2], big[3:4]))
    stored = values["model"]["0"]
    flat = [*stored["common"].values(), *stored["rows"]["records"], values["centroids"], values["known"]]
    assert all(t.untyped_storage().nbytes() == t.numel() * t.element_size() for t in flat)
    assert len({t.data_ptr() for t in flat}) == len(flat)


def test_another_state_is_refused() -> None:
    values = state_dict(state())
    for other in (
        state(encoder="test-conv"),
        state(shared=()),
        State(state().model, torch.zeros(3, 5, dtype=torch.float64), state().known),
        State(state().model, state().centroids.float(), state().known),
    ):
        with pytest.raises(RunError, match="does not fit this run"):
            restore(other, values)
    for name in ("model", "centroids", "known"):
        with pytest.raises(RunError, match="does not fit this run"):
            restore(state(), {k: v for k, v in values.items() if k != name})


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("bomb"),))


def test_a_file_that_is_no_checkpoint_gets_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "c.pt"
    save(path, {"state": state_dict(state())})
    whole = path.read_bytes()
    torch.save(Bomb(), tmp_path / "bomb.pt")
    for content in (whole[:1000], whole[:-10], b"", b"hello", (tmp_path / "bomb.pt").read_bytes()):
        path.write_bytes(content)
        with pytest.raises(RunError, match="move it away to start again") as error:
            load(path)
        assert "\n" not in str(error.value) and str(path) in str(error.value)
    assert not (tmp_path / "bomb").exists()  # nothing in a file is executed


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c.pt"
    save(path, {"round": 1})

    def full(*args: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="no space"):
        save(path, {"round": 2})
    assert load(path) == {"round": 1}
