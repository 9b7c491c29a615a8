"""Registry of things that users may add: links here; methods, datasets, encoders and heads in `semcom`."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Generic, TypeVar

T = TypeVar("T")

_SOURCE: ContextVar[str | None] = ContextVar("source", default=None)
"""The plug-in that is being loaded."""


@contextmanager
def registering(source: str) -> Iterator[None]:
    """Let names that are registered inside belong to `source`, a plug-in: no other plug-in can take them."""
    token = _SOURCE.set(source)
    try:
        yield
    finally:
        _SOURCE.reset(token)


class Registry(Generic[T]):
    """Mapping of names to objects; built-in entries are imported only when they are asked for.

    Args:
        kind: word for an entry in an error ("method", "dataset", ...).
        builtin: "module:attribute" of each entry that ships with the package, by name.
    """

    def __init__(self, kind: str, builtin: Mapping[str, str]) -> None:
        self.kind = kind
        self._builtin = dict(builtin)
        self._added: dict[str, T] = {}
        self._sources: dict[str, str | None] = {}

    def names(self) -> list[str]:
        """Return all known names: the built-in ones in their order, then the added ones."""
        return [*self._builtin, *(name for name in self._added if name not in self._builtin)]

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that adds an object under `name`. Raises ValueError for a name that is taken."""
        if name in self._builtin:
            raise ValueError(f"{self.kind} {name!r} ships with semcom: choose another name")
        source, owner = _SOURCE.get(), self._sources.get(name)
        if name in self._added and None not in (source, owner) and source != owner:
            raise ValueError(f"{self.kind} {name!r} is registered by the plug-in {owner}: choose another name")

        def add(entry: T) -> T:
            self._added[name], self._sources[name] = entry, source
            return entry

        return add

    def __contains__(self, name: object) -> bool:
        return name in self._added or name in self._builtin

    def get(self, name: str) -> T:
        """Return the entry called `name`. Raises ValueError for an unknown name, with those that are known."""
        if name in self._added:
            return self._added[name]
        if name not in self._builtin:
            raise ValueError(self.unknown(name))
        module, attribute = self._builtin[name].split(":")
        return getattr(importlib.import_module(module), attribute)

    def unknown(self, name: str) -> str:
        """Return the error message for an unknown name, in one line."""
        near = difflib.get_close_matches(name, self.names(), n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        return f"{self.kind} {name!r} is unknown: {hint}known are {', '.join(self.names())}"
