"""Registry of objects that users may add: links here; methods, datasets, encoders and heads in `semcom`."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import CodeType
from typing import Any, Generic, Literal, TypeVar

from semcom.channels.options import find_undeclared_option

T = TypeVar("T")

_SOURCE: ContextVar[str | None] = ContextVar("source", default=None)
"""The plug-in that is being loaded."""
_NAMES: ContextVar[list[str] | None] = ContextVar("names", default=None)
"""Names that it has registered so far."""


@contextmanager
def registering_source(source: str) -> Iterator[list[str]]:
    """Let names that are registered inside belong to `source`, a plug-in: no other plug-in can take them.

    The yielded list collects these names.
    """
    found: list[str] = []
    token, names = _SOURCE.set(source), _NAMES.set(found)
    try:
        yield found
    finally:
        _SOURCE.reset(token)
        _NAMES.reset(names)


@dataclass(frozen=True)
class Place:
    """The script, or the cell of a notebook, that registers something."""

    file: str
    known: dict[str, Any]
    """Globals of the caller."""
    cell: str
    """Text of the executed cell, or empty for a script."""


def find_registering_place() -> Place | None:
    """Find the place in the main module that registers something, or None if only other modules are executed."""
    frame = sys._getframe(1)
    while frame is not None:
        known = frame.f_globals
        if frame.f_code.co_name == "<module>" and known.get("__name__") == "__main__":
            return Place(locate_code_source(frame.f_code), known, read_executed_cell(known))
        frame = frame.f_back  # type: ignore[assignment]
    return None


def locate_code_source(code: CodeType) -> str:
    """Make the path of the file of a code object absolute; a profiled script carries the name of its call."""
    file = code.co_filename
    return file if file.startswith("<") else os.path.abspath(file)


def read_executed_cell(known: dict[str, Any]) -> str:
    """Read the notebook cell that is executed with these globals, or return an empty text for a script."""
    cells = known.get("In") if "get_ipython" in known else None
    return str(cells[-1]) if isinstance(cells, list) and cells else ""


_depends: dict[str | None, dict[object, tuple[object, ...]]] = {}
"""Plug-in (None: outside of plug-ins) -> statement -> declared dependencies of its code."""


def depends(*things: object) -> None:
    """Declare dependencies of everything that a plug-in, a script or a notebook registers, beside its code.

    Args:
        things: files and folders as `Path`, which count by their content, and plain values, as `os.environ["MODE"]`.

    Example:
        >>> import semcom
        >>> semcom.depends("version 3 of the measurements")
    """
    caller = sys._getframe(1)
    _depends.setdefault(_SOURCE.get(), {})[caller.f_code.co_filename, caller.f_lineno] = things


def list_depends(source: str | None) -> list[object]:
    """List the dependencies that a plug-in, or a script or notebook (None), has declared by `depends`."""
    return [thing for things in _depends.get(source, {}).values() for thing in things]


class Registry(Generic[T]):
    """Mapping of names to objects. Built-in entries are imported when they are first requested.

    Args:
        kind: word for an entry in an error ("method", "dataset", ...).
        builtin: "module:attribute" of each entry that ships with the package, by name.
        base: "module:attribute" of the class that entries subclass. Without it entries are functions.
        made: the entries are instances of `base`, which may be a union of classes.
        options: the name under which an entry declares its options, if it may have any.
        catalogue: finds further entries like `builtin`, and describes entries that it could not find in a line.
        beside: entries like `builtin` that are found by name but not listed.
    """

    def __init__(
        self,
        kind: str,
        builtin: Mapping[str, str],
        base: str | None = None,
        made: bool = False,
        options: Literal["Hyper", "Options"] | None = None,
        catalogue: Callable[[], tuple[Mapping[str, str], str]] | None = None,
        beside: Mapping[str, str] | None = None,
    ) -> None:
        self.kind, self._beside = kind, dict(beside or {})
        self._own, self._catalogue, self._problem = dict(builtin), catalogue, ""
        self._base, self._made, self._options = base, made, options
        self._added: dict[str, T] = {}
        self._sources: dict[str, str | None] = {}
        self._places: dict[str, Place | None] = {}
        self._depends: dict[str, Sequence[object]] = {}

    @property
    def _builtin(self) -> dict[str, str]:
        """The entries that are imported when they are asked for, those of the catalogue among them."""
        if self._catalogue is not None:
            find, self._catalogue = self._catalogue, None
            more, self._problem = find()
            self._own |= {name: place for name, place in more.items() if name not in self._own}
        return self._own

    def unknown(self, name: str) -> str:
        """Explain that `name` is unknown: list the known names, the nearest first, and any missing entries."""
        words = describe_unknown_name(name, self.names()) if self.names() else f"{name!r} is unknown"
        return "; ".join(filter(None, (words, self._problem)))

    def names(self) -> list[str]:
        """List all known names: the built-in names in their order, then the added names."""
        return [*self._builtin, *(name for name in self._added if name not in self._builtin)]

    def register(self, name: str, depends: Sequence[object] = ()) -> Callable[[T], T]:
        """Return a decorator that adds an object under `name`.

        Args:
            name: of the entry.
            depends: its dependencies beside its code (see `depends` of this module).

        Raises ValueError for a name that is taken. The decorator raises it for an object that is no valid entry.
        """
        if self.ships(name):
            raise ValueError(f"{self.kind} {name!r} ships with semcom: choose another name")
        source, owner = _SOURCE.get(), self._sources.get(name)
        if name in self._added and None not in (source, owner) and source != owner:
            raise ValueError(f"{self.kind} {name!r} is registered by the plug-in {owner}: choose another name")

        def add(entry: T) -> T:
            if problem := self._unfit(entry):
                raise ValueError(f"{self.kind} {name!r}: {problem}")
            self._added[name], self._sources[name] = entry, source
            self._places[name], self._depends[name] = find_registering_place(), tuple(depends)
            if (names := _NAMES.get()) is not None:
                names.append(name)
            return entry

        return add

    def _unfit(self, entry: object) -> str | None:
        """Describe why an entry is invalid, or return None for a valid entry."""
        if self._base is None:
            return self._undeclared(entry) if callable(entry) else f"{entry!r:.80} is no function"
        base, shown = _import_entry(self._base), self._base.replace(":", ".")
        if self._made:
            return None if isinstance(entry, base) else f"{entry!r:.80} is no {shown}"
        if not isinstance(entry, type) or not issubclass(entry, base):
            return f"{getattr(entry, '__name__', repr(entry)):.80} is no subclass of {shown}"
        if missing := sorted(getattr(entry, "__abstractmethods__", ())):
            return f"{entry.__name__} lacks {' and '.join(f'`{m}`' for m in missing)}, which every {self.kind} has"
        return self._undeclared(entry)

    def _undeclared(self, entry: object) -> str | None:
        """Describe the error in an entry's options, or return None if they are valid."""
        if self._options is None:
            return None
        for other in {"Hyper", "Options"} - {self._options}:
            if hasattr(entry, other):
                return f"it declares {other}; the options of a {self.kind} are called {self._options}"
        return find_undeclared_option(entry, self._options)

    def source(self, name: str) -> str | None:
        """Return the plug-in that registered an entry, or None for an entry from elsewhere."""
        return self._sources.get(name)

    def origin(self, name: str) -> Place | None:
        """Return the statement of a script or a cell that registered an entry, or None for other entries."""
        return self._places.get(name)

    def depends(self, name: str) -> Sequence[object]:
        """Return the declared dependencies of an entry beside its code."""
        return self._depends.get(name, ())

    def place(self, name: str) -> str | None:
        """Return "module:attribute" of an entry that ships, imported or not, or None for any other."""
        return None if name in self._added else self._builtin.get(name) or self._beside.get(name)

    def ships(self, name: str) -> bool:
        """Check whether an entry ships with the package."""
        return name in self._builtin or name in self._beside

    def __contains__(self, name: object) -> bool:
        own = name in self._added or name in self._own or name in self._beside
        return own or name in self._builtin  # own first: no catalogue is read

    def get(self, name: str) -> T:
        """Look up the entry called `name`. Raises ValueError that lists the known names for an unknown name."""
        if name in self._added:
            return self._added[name]
        if name not in self:
            raise ValueError(f"{self.kind}: {self.unknown(name)}")
        return _import_entry(self._own.get(name) or self._beside[name])


def describe_unknown_name(name: str, known: Sequence[str]) -> str:
    """Describe an unknown name: list the known names, and suggest the nearest."""
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{name!r} is unknown: {hint}known are {', '.join(known)}"


def _import_entry(place: str) -> Any:
    module, attribute = place.split(":")
    return getattr(importlib.import_module(module), attribute)
