"""Reader of the arrays in a dictionary that NumPy has pickled, which runs nothing of the pickle.

A pickle is a programme: it names functions, and says what they are called with. Here the three names that NumPy writes
for plain arrays stand for objects that note what they are given and do nothing else; any other name, and any
instruction that NumPy does not write, ends the reading. Not even NumPy's own functions are called: a type that says it
is larger than it is would have them read memory that is not theirs.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
from typing import Any

import numpy as np
import numpy.typing as npt

from semcom.config.errors import one_line

INSTRUCTIONS = frozenset(
    (
        *("PROTO", "FRAME", "STOP", "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "MEMOIZE", "BINPUT", "BINGET", "MARK"),
        *("NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "SHORT_BINUNICODE", "BINUNICODE"),
        *("SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"),
        *("EMPTY_LIST", "APPEND", "EMPTY_DICT", "SETITEM", "SETITEMS"),
    )
)
"""What NumPy writes with the protocols 3 and 4."""
NUMBERS = ("f2", "f4", "f8", "u1", "i1", "i2", "i4", "i8")
"""Types of the arrays that are read, without the order of their bytes."""


class _Type:
    """Stands for `numpy.dtype`: what it is called with, and the order of its bytes."""

    def __init__(self, name: object, *rest: object) -> None:
        self.name, self.order = name, "|"

    def __setstate__(self, state: Any) -> None:
        _version, self.order, *_parts = state


class _Array:
    """Stands for `numpy.ndarray` that is being made: its shape, type and bytes; of an array of objects a list."""

    def __init__(self, *given: object) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def values(self) -> npt.NDArray[Any]:
        """Return the array. Raises ValueError if it is none of numbers, or its bytes are not as many as it says."""
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
        """Return the stand-in for a name. Raises UnpicklingError for all others."""
        if (module, name) not in self.known:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which is not read")
        return self.known[module, name]


def read_dictionary(data: bytes) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of numbers, by name, of a dictionary that NumPy has pickled as an array of one object.

    Raises ValueError, in one line, for a pickle of anything else.
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
        raise ValueError(f"its pickle is not one of arrays: {one_line(error)}") from None
