"""Weights in files: safetensors (written and read here, as it is a header and bytes), and files of `torch.save`.

https://huggingface.co/docs/safetensors: 8 bytes of the header's length, the header as JSON, then the numbers.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from semcom.config import ConfigError
from semcom.files import open_file

TYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""Types that can be stored -> their names in safetensors."""


def encode_weights(tensors: Mapping[str, Tensor], notes: Mapping[str, str]) -> bytes:
    """Encode tensors by name as a safetensors file, with `notes` as its metadata.

    Raises:
        ConfigError: a tensor is of none of `TYPES`.
    """
    header: dict[str, Any] = {"__metadata__": dict(notes)}
    parts, end = list[bytes](), 0
    for name, t in tensors.items():
        if t.dtype not in TYPES:
            raise ConfigError(f"model.encoder: {name} is {t.dtype}, which no file of weights holds; take another type")
        part = t.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        place = [end, end := end + len(part)]
        header[name] = {"dtype": TYPES[t.dtype], "shape": list(t.shape), "data_offsets": place}
        parts.append(part)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # safetensors wants the numbers aligned to 8 bytes
    return b"".join([struct.pack("<Q", len(text)), text, *parts])


def read_weights(path: str) -> dict[str, Tensor]:
    """Read tensors by name from a file that ends in .safetensors, or else from a file of `torch.save`, on the CPU.

    The latter is read for its tensors only, never as code. They may be under the name `state_dict`.

    Raises:
        ConfigError: it cannot be read, or holds no tensors.
    """
    try:
        with open_file(Path(path)) as file:
            if Path(path).suffix == ".safetensors":
                found, _ = decode_weights(file.read())
            else:
                found = torch.load(file, map_location="cpu", weights_only=True)
    except OSError as error:
        raise ConfigError(f"model.weights: {path!r} cannot be read: {error.strerror or error}") from None
    except Exception as error:  # of a damaged file torch raises half a dozen kinds
        raise ConfigError(f"model.weights: {path!r} is no file of weights ({type(error).__name__})") from None
    found = found.get("state_dict", found) if isinstance(found, dict) else found
    if not (isinstance(found, dict) and found and all(isinstance(t, Tensor) for t in found.values())):
        raise ConfigError(f"model.weights: {path!r} holds no tensors by name; store a `state_dict()`")
    return found


def decode_weights(content: bytes) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Decode the bytes of `encode_weights` to tensors by name, and the notes."""
    (length,) = struct.unpack("<Q", content[:8])
    header, numbers = json.loads(content[8 : 8 + length]), bytearray(content[8 + length :])
    notes, types = header.pop("__metadata__", {}), {name: kind for kind, name in TYPES.items()}
    found = {}
    for name, of in header.items():
        start, end = of["data_offsets"]
        raw = torch.frombuffer(numbers, dtype=torch.uint8)[start:end].clone() if end > start else torch.empty(0)
        found[name] = raw.view(types[of["dtype"]]).view(of["shape"])
    return found, notes
