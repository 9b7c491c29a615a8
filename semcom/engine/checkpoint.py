"""A method's State on disk: plain tensors and containers, loaded with `weights_only=True`, restored onto a template."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from semcom.config import RunError
from semcom.engine.population import Population
from semcom.engine.seal import is_sealed, write_sealed
from semcom.files import write_atomically


def state_dict(state: Any) -> dict[str, Any]:
    """A State as nested dicts of tensors; each tensor with storage of its own, as saving a view writes all of it."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(state):
        value = getattr(state, field.name)
        if isinstance(value, Population):
            values[field.name] = {
                str(i): {n: t.clone() for n, t in c.tensors.items()} for i, c in enumerate(value.cohorts)
            }
        else:
            values[field.name] = value.clone()
    return values


def restore(template: Any, values: dict[str, Any]) -> Any:
    """The State that `values` describe, with the structure of `template` (a State of the same run).

    Raises RunError when names or shapes differ: the file belongs to another run.
    """
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(template):
        like, value = getattr(template, field.name), values.get(field.name)
        if isinstance(like, Population):
            cohorts = [
                dataclasses.replace(
                    c, tensors={n: _fit(t, (value or {}).get(str(i), {}).get(n)) for n, t in c.tensors.items()}
                )
                for i, c in enumerate(like.cohorts)
            ]
            fields[field.name] = Population(tuple(cohorts))
        else:
            fields[field.name] = _fit(like, value)
    return dataclasses.replace(template, **fields)


def _fit(like: Tensor, value: Any) -> Tensor:
    """`value` on the device of `like`, if it has its shape and type."""
    if not isinstance(value, Tensor) or value.shape != like.shape or value.dtype != like.dtype:
        raise RunError("the checkpoint does not fit this run: a tensor is missing or has another shape")
    return value.to(like.device)


def save(path: Path, content: dict[str, Any]) -> None:
    """Writes a checkpoint atomically, with a digest of all its bytes. Raises OSError, as the system reported it."""
    write_atomically(path, lambda file: write_sealed(content, file))


def load(path: Path) -> dict[str, Any]:
    """Reads what `save` wrote; nothing in the file is executed, and nothing is parsed unless its digest is right.

    Raises RunError for any other file, and for one with a single bit changed.
    """
    try:
        with path.open("rb") as file:
            whole = is_sealed(file)
            content = torch.load(file, map_location="cpu", weights_only=True) if whole else None
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from error
    except Exception as error:
        reason = type(error).__name__
        raise RunError(f"{path}: not a readable checkpoint ({reason}); move it away to start again") from error
    if not isinstance(content, dict):
        raise RunError(f"{path}: not a checkpoint, or a damaged one; move it away to start again")
    return content
