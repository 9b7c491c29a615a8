"""Reader of the arrays in a dictionary that NumPy has pickled, which executes no part of the pickle.

A pickle is a programme: it names functions and their arguments. Here the three names that NumPy writes for plain arrays
stand for objects that only note their arguments. Any other name, and any instruction that NumPy does not write, ends
the reading. Not even NumPy's own functions are called: a type with a false size would make them read foreign memory.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
from typing import Any

import numpy as np
import numpy.typing as npt

from semcom.config.errors import shorten_error

INSTRUCTIONS = frozenset({
    "PROTO", "FRAME", "STOP", "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "MEMOIZE", "BINPUT", "BINGET", "MARK",
    "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "SHORT_BINUNICODE", "BINUNICODE",
    "SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3",
    "EMPTY_LIST", "APPEND", "EMPTY_DICT", "SETITEM", "SETITEMS",
})  # fmt: skip
"""Instructions that NumPy writes with the protocols 3 and 4."""
NUMBERS = ("f2", "f4", "f8", "u1", "i1", "i2", "i4", "i8")
"""Types of the arrays that are read, without the order of their bytes."""


class _Type:
    """Stand-in for `numpy.dtype`: its arguments, and its byte order."""

    def __init__(self, name: object, *rest: object) -> None:
        self.name, self.order = name, "|"

    def __setstate__(self, state: Any) -> None:
        _version, self.order, *_parts = state


class _Array:
    """Stand-in for a `numpy.ndarray` under construction: its shape, type and bytes, or a list of objects."""

    def __init__(self, *given: object) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def values(self) -> npt.NDArray[Any]:
        """Build the array. Raises ValueError if it holds no numbers, or its bytes do not match its shape."""
        _version, shape, kind, fortran, data = self.state
        if type(kind) is not _Type or kind.name not in NUMBERS or kind.order not in ("<", ">", "|"):
            raise ValueError("no array of numbers")
        dtype = np.dtype(f"{kind.order}{kind.name}")
        if not all(type(side) is int and side >= 0 for side in shape) or type(data) is not bytes:
            raise ValueError("an array without a shape, or without bytes")
        if math.prod(shape) * dtype.itemsize != len(data):
            raise ValueError(f"an array of shape {shape} has {len(data)} bytes")
        return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran is True else "C")


class _Unpickler(pickle.Unpickler):
    """Unpickler that knows three names, each of a stand-in."""

    known = {
        **{(f"numpy.{core}.multiarray", "_reconstruct"): _Array for core in ("core", "_core")},
        ("numpy", "ndarray"): "numpy.ndarray",  # a word: it is only handed to the first
        ("numpy", "dtype"): _Type,
    }

    def find_class(self, module: str, name: str) -> Any:
        """Look up the stand-in for a name. Raises UnpicklingError for all others."""
        if (module, name) not in self.known:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which is not read")
        return self.known[module, name]


def read_pickled_dictionary(data: bytes) -> dict[str, npt.NDArray[Any]]:
    """Read the arrays of numbers, by name, from a dictionary that NumPy has pickled as an array of one object.

    Raises ValueError, in one line, for a pickle of any other content.
    """
    try:
        other = next((code.name for code, _, _ in pickletools.genops(data) if code.name not in INSTRUCTIONS), None)
        if other is not None:
            raise ValueError(f"it has the instruction {other}, which is not read")
        array = _Unpickler(io.BytesIO(data)).load()
        if type(array) is not _Array:
            raise ValueError("it is no array")
        (held,) = array.state[-1]
        if type(held) is not dict or not all(type(v) is _Array for v in held.values()):
            raise ValueError("it is no dictionary of arrays")
        return {str(name): value.values() for name, value in held.items()}
    except Exception as error:  # of a programme that somebody else wrote: almost anything may come out
        raise ValueError(f"its pickle is not one of arrays: {shorten_error(error)}") from None
