"""weights.safetensors: the models of a finished run once, in float32, in the place of its checkpoints."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from semcom.config import RunError
from semcom.files import CHECKPOINT, WEIGHTS, read_file, write_atomically
from semcom.models.weights import decode_weights, encode_weights
from semcom.runs.folder.checkpoint import Damaged, load_checkpoint

TENSOR, TUPLE = "<tensor>", "<tuple>"
"""Marks of what JSON has not, among the names of a table with one entry."""


def write_weights(folder: Path) -> Path:
    """Write the weights of a finished run from its checkpoint. Raises RunError or OSError; nothing is left then."""
    tensors: dict[str, Tensor] = {}
    text = json.dumps(_take_tensors(load_checkpoint(folder / CHECKPOINT), "", tensors))
    notes = {"semcom": text, "digest": _digest(text, tensors)}
    return write_atomically(folder / WEIGHTS, encode_weights(tensors, notes))


def load_weights(path: Path) -> dict[str, Any]:
    """Read a file of `write_weights` as the checkpoint that it was made of. Raises as `load_checkpoint`."""
    try:
        tensors, notes = decode_weights(read_file(path))
        if notes["digest"] != _digest(notes["semcom"], tensors):
            raise ValueError
        return _give_tensors(json.loads(notes["semcom"]), tensors)
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from error
    except Exception as error:
        raise Damaged(
            f"{path}: no weights of a run, or damaged ones; move it away, and train in another folder"
        ) from error


def _take_tensors(value: Any, place: str, tensors: dict[str, Tensor]) -> Any:
    """Convert a checkpoint's content to what JSON has, with names in the place of its tensors, which are collected."""
    if isinstance(value, Tensor):
        name = place if place not in tensors else f"{place}#{len(tensors)}"
        tensors[name] = value.float() if value.dtype == torch.float64 else value
        return {TENSOR: [name, str(value.dtype).removeprefix("torch.")]}
    if isinstance(value, dict):
        return {name: _take_tensors(held, f"{place}.{name}".lstrip("."), tensors) for name, held in value.items()}
    if isinstance(value, list | tuple):
        inside = [_take_tensors(held, f"{place}.{i}", tensors) for i, held in enumerate(value)]
        return inside if isinstance(value, list) else {TUPLE: inside}
    return value


def _give_tensors(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_give_tensors(held, tensors) for held in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {TENSOR}:
        name, kind = value[TENSOR]
        return tensors[name].to(getattr(torch, kind))
    if value.keys() == {TUPLE}:
        return tuple(_give_tensors(value[TUPLE], tensors))
    return {name: _give_tensors(held, tensors) for name, held in value.items()}


def _digest(text: str, tensors: dict[str, Tensor]) -> str:
    total = hashlib.sha256(text.encode())
    for name, t in sorted(tensors.items()):
        total.update(f"{name} {t.dtype} {tuple(t.shape)} ".encode())
        total.update(t.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()
