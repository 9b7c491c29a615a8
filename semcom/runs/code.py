"""The digest of what somebody has written in a script or a notebook, or that a script imports.

It is taken of what is there in memory, as that is what runs, whatever has become of the file or the cell: of the
compiled code of functions and of the values that they and their classes refer to, as far as these are the user's.
So comments, and what else stands in the script, do not count; another version of Python does.
"""

from __future__ import annotations

import bisect
import copyreg
import dis
import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import sys
import types
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from channels.registry import Registry
from semcom.runs.sources import is_own

_PLAIN = (type(None), type(...), bool, int, float, complex, str, bytes)
_WRITTEN_BY_PYTHON = {
    *("__module__", "__qualname__", "__doc__", "__dict__", "__weakref__", "__abstractmethods__", "_abc_impl"),
    *("__firstlineno__", "__static_attributes__", "__parameters__", "__orig_bases__"),
}
"""Attributes of a class that say nothing of what it does."""
_SILENT = ("CACHE", "EXTENDED_ARG", "NOP", "PUSH_NULL")
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_GLOBAL", "LOAD_METHOD")
_JUMPS = {*dis.hasjrel, *dis.hasjabs}
_LOADS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
_begun_empty: dict[int, Any] = {}
"""Lists, tables and sets that held nothing when they were first seen, by `id`: a run fills them, such as a cache."""


def digest_code(entry: Any) -> str:
    """Return the digest of a class, a function or an object, with all of the user's own that it refers to."""
    return _Walk().digest(entry)


class _Walk:
    """A walk over objects, breadth first; each is written down once, and then by its number."""

    def __init__(self) -> None:
        self.total, self.left = hashlib.sha256(), deque[Any]()
        self.numbers: dict[int, int] = {}
        self.kept: list[Any] = []  # so that no other object gets the `id` of one

    def digest(self, entry: Any) -> str:
        self.add(entry)
        if not self.left:  # somebody else's: its version is all that is known
            self.write("version", _read_version(entry))
        while self.left:
            for part in self.parts(self.left.popleft()):
                self.add(part)
            self.write("end")
        return self.total.hexdigest()

    def write(self, *words: object) -> None:
        self.total.update("".join(f"{word}\0" for word in words).encode(errors="surrogatepass"))

    def add(self, value: Any) -> None:
        """Write a value down: a plain one as it is, one of others by its name, any other by its number."""
        if type(value) in _PLAIN:
            self.write(type(value).__name__, repr(value))
        elif isinstance(value, np.ndarray | Tensor):
            self.write(type(value).__name__, *_digest_numbers(value))
        elif isinstance(value, type | types.FunctionType | types.ModuleType) and not _is_own(value):
            self.write(_name_object(value))
        elif isinstance(value, Registry):
            self.write(value.kind)
        elif id(value) in self.numbers and not isinstance(value, tuple | frozenset | types.CodeType):
            self.write("again", self.numbers[id(value)])
        else:
            self.numbers[id(value)] = len(self.numbers)
            self.kept.append(value)
            self.left.append(value)

    def parts(self, value: Any) -> Iterator[Any]:
        """Yield what a value consists of."""
        if isinstance(value, _Used):
            yield from value.parts()
        elif isinstance(value, types.ModuleType):  # alone: what is used of it has been added by name
            yield "module"
        elif isinstance(value, type):
            yield from ("class", *value.__bases__, type(value))
            for name, held in sorted(vars(value).items()):
                if name not in _WRITTEN_BY_PYTHON:
                    yield from (name, held)
        elif isinstance(value, types.FunctionType):
            yield from ("function", value.__defaults__, value.__kwdefaults__, *_flatten_state(vars(value)))
            yield from (_read_cell(cell) for cell in value.__closure__ or ())
            yield from (value.__code__, _Used(value))
        elif isinstance(value, types.CodeType):
            yield from (_describe_steps(value), value.co_names, value.co_varnames, value.co_freevars, value.co_flags)
            yield from (value.co_argcount, value.co_kwonlyargcount, value.co_posonlyargcount, value.co_consts)
        elif isinstance(value, staticmethod | classmethod):
            yield from (type(value).__name__, value.__func__)
        elif isinstance(value, property):
            yield from ("property", value.fget, value.fset, value.fdel)
        elif isinstance(value, types.MethodType):
            yield from ("method", value.__func__, value.__self__)
        elif isinstance(value, functools._lru_cache_wrapper):
            yield from ("cached", value.__wrapped__)
        elif isinstance(value, types.MappingProxyType):
            yield from ("proxy", dict(value))
        elif isinstance(value, tuple | list | dict | set | frozenset | deque) and _is_plain_container(value):
            yield from (type(value).__name__, *_list_contents(value))
        else:
            yield from _read_state(value)


class _Used:
    """What a function refers to by name."""

    def __init__(self, function: types.FunctionType) -> None:
        self.function = function

    def parts(self) -> Iterator[Any]:
        """Yield each name with its value; what the code itself assigns (`global`) is no part of what it is."""
        known, codes = self.function.__globals__, list(_list_codes(self.function.__code__))
        steps = [_disassemble(code) for code in codes]
        changed = {step.argval for each in steps for step in each if step.opname == "STORE_GLOBAL"}
        names = {step.argval for each in steps for step in each if step.opname in _LOADS}
        attributes = sorted({name for code in codes for name in code.co_names})
        found = {name: known[name] for name in sorted(names - changed) if name in known}
        for each in steps:
            for at, step in enumerate(each):
                if step.opname == "IMPORT_NAME":
                    found |= _import_own(step.argval, each[at - 2].argval, known.get("__package__"))
        for name, value in found.items():
            yield name
            yield from _take_used(value, attributes)


@functools.lru_cache(maxsize=4096)
def _disassemble(code: types.CodeType) -> tuple[dis.Instruction, ...]:
    return tuple(step for step in dis.get_instructions(code) if step.opname not in _SILENT)


def _describe_steps(code: types.CodeType) -> str:
    """Return the steps of a function, and where its exceptions lead, as they are whatever was compiled beside it.

    `torch.zeros()` has other steps where the import is in the same script than where it is in another cell.
    """
    steps = _disassemble(code)
    place = functools.partial(bisect.bisect_left, [step.offset for step in steps])
    lines = []
    for step in steps:
        if step.opname in _ATTRIBUTES:
            lines.append(f"{step.opname.replace('METHOD', 'ATTR')} {step.argval}")
        else:
            lines.append(f"{step.opname} {place(step.argval) if step.opcode in _JUMPS else step.arg}")
    handlers: Any = dis.Bytecode(code)  # its exception_entries are in no stub
    lines += [f"{place(at.start)} {place(at.end)} {place(at.target)}" for at in handlers.exception_entries]
    return "\n".join(lines)


def _take_used(value: Any, attributes: list[str]) -> Iterator[Any]:
    """Yield a value; of a module of the user's what is called like one of the attributes, of its modules in turn."""
    left, seen = [value], set[int]()
    while left:
        one = left.pop()
        if not isinstance(one, types.ModuleType) or not _is_own(one):
            yield one
        elif id(one) not in seen:
            seen.add(id(one))
            if not hasattr(one, "__file__") or not str(one.__file__).endswith(".py"):
                yield _digest_compiled(one)
            for name in attributes:
                if name in vars(one):
                    yield name
                    left.append(vars(one)[name])


def _import_own(name: str, level: Any, package: str | None) -> dict[str, Any]:
    """Return the user's module that a function imports, by its name; nothing for one of others, or for none."""
    try:
        whole = importlib.util.resolve_name("." * (level or 0) + name, package)
        top = whole.partition(".")[0]
        spec = None if top in sys.modules else importlib.util.find_spec(top)
        if is_own(top, spec.origin if spec else getattr(sys.modules.get(top), "__file__", None)):
            importlib.import_module(whole)
            return {top: sys.modules[top], whole: sys.modules[whole]}
    except Exception:  # the user's own code: the run says so where it is executed
        pass
    return {}


def _list_codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a function's code, and that of the functions inside it."""
    yield code
    for value in code.co_consts:
        if isinstance(value, types.CodeType):
            yield from _list_codes(value)


def _read_cell(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing has been assigned yet
        return "empty"


def _is_own(value: Any) -> bool:
    """Return whether a class, a function or a module is the user's."""
    name = value.__name__ if isinstance(value, types.ModuleType) else str(value.__module__)
    modules = (sys.modules.get(place) for place in (name, name.partition(".")[0]))
    file = next((found for module in modules if (found := getattr(module, "__file__", None))), None)
    return name == "__main__" or is_own(name, file)  # a notebook's main module is that of its kernel


def _name_object(value: Any) -> str:
    return value.__name__ if isinstance(value, types.ModuleType) else f"{value.__module__}.{value.__qualname__}"


def _read_version(entry: Any) -> str:
    """Return the version of the package that an entry is of."""
    top = str(getattr(entry, "__module__", "")).partition(".")[0]
    names = importlib.metadata.packages_distributions().get(top, [])
    return " ".join(f"{name} {importlib.metadata.version(name)}" for name in sorted(set(names)))


def _digest_compiled(module: types.ModuleType) -> bytes:
    """Return the content of a module that is not written in Python."""
    file = getattr(module, "__file__", None)
    if file is None:
        return b""
    with open(file, "rb") as binary:
        return hashlib.file_digest(binary, "sha256").digest()


def _digest_numbers(value: np.ndarray | Tensor) -> tuple[object, ...]:
    """Return type, shape and digest of an array or a tensor."""
    if isinstance(value, Tensor):
        if value.layout is not torch.strided or value.device.type == "meta":
            return value.dtype, tuple(value.shape), value.layout
        dtype: Any = value.dtype
        value = value.detach().cpu().resolve_conj().resolve_neg().contiguous().view(-1).view(torch.uint8).numpy()
    elif value.dtype.hasobject:
        return value.dtype, value.shape, repr(value.tolist())
    else:
        dtype = value.dtype
    return dtype, value.shape, hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()


def _is_plain_container(value: Any) -> bool:
    return type(value).__module__ in ("builtins", "collections") and type(value).__name__ != "Counter"


def _list_contents(value: Any) -> list[Any]:
    """Return what a container holds, in an order that is the same in any process."""
    if not isinstance(value, tuple | frozenset):
        if not value:
            _begun_empty[id(value)] = value
        if id(value) in _begun_empty:
            return []
    if isinstance(value, dict):
        return [part for item in value.items() for part in item]
    return sorted(value, key=repr) if isinstance(value, set | frozenset) else list(value)


def _read_state(value: Any) -> Iterator[Any]:
    """Yield the class of an object, and its state as pickle and copy see it; of one that has none, the class alone."""
    yield type(value) if _is_own(type(value)) else _name_object(type(value))
    try:
        reduce = copyreg.dispatch_table.get(type(value))
        reduced: Any = reduce(value) if reduce else value.__reduce_ex__(4)
    except Exception:  # a lock, an open file, a generator
        return
    if isinstance(reduced, str):
        yield reduced
        return
    make, arguments, state, items, pairs = (*reduced, None, None, None)[:5]
    yield from (make, arguments)
    yield from (part for held in (state if isinstance(state, tuple) else (state,)) for part in _flatten_state(held))
    yield from (part for held in (items, pairs) for part in held or ())


def _flatten_state(state: Any) -> list[Any]:
    """Return attributes by name; of an object they are its own table, which is not one that a run fills."""
    return [part for item in state.items() for part in item] if isinstance(state, dict) else [state]
