"""Registration: an unusable entry is refused at once, in one line."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import pytest

from semcom.channels.link import Link
from semcom.channels.options import BaseOptions
from semcom.channels.registry import Registry, registering_source


class Base(ABC):
    """Base of the entries."""

    @abstractmethod
    def start(self) -> int:
        """A method that each entry has."""

    @abstractmethod
    def end(self) -> int:
        """Another one."""


class Whole(Base):
    """An entry."""

    def start(self) -> int:
        return 1

    def end(self) -> int:
        return 2


class Half(Base):
    """No entry: it lacks `end`."""

    def start(self) -> int:
        return 1


class Plain(Whole):
    """Options that are no dataclass at all."""

    class Options:
        m: float = 1.0


class Forgotten(Whole):
    """Options that lack their decorator, which their base has."""

    class Options(Link.Options):
        m: float = 1.0


class Required(Whole):
    """An option without a default."""

    @dataclass(frozen=True)
    class Options(BaseOptions):
        m: float


class Undecorated(Whole):
    """Hyperparameters that are no dataclass."""

    class Hyper:
        m: float = 1.0


class Derived(Whole):
    """An option without a way to set it."""

    @dataclass(frozen=True)
    class Options(BaseOptions):
        m: float = field(default=1.0, init=False)


class Unreadable(Whole):
    """An option of a type that is not there."""

    @dataclass(frozen=True)
    class Options(BaseOptions):
        m: Nowhere = 1.0  # type: ignore[name-defined]  # noqa: F821


class Fine(Whole):
    """An entry with options."""

    @dataclass(frozen=True)
    class Options(BaseOptions):
        m: float = 1.0
        ks: tuple[int, ...] = field(default_factory=tuple)


PLACE = f"{__name__}.Base"
SUBCLASSES = functools.partial(Registry[Any], "thing", {}, base=f"{__name__}:Base", options="Options")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (int, f"int is no subclass of {PLACE}"),
        (len, f"len is no subclass of {PLACE}"),
        (3, f"3 is no subclass of {PLACE}"),
        (Half, "Half lacks `end`, which every thing has"),
        (Base, "Base lacks `end` and `start`, which every thing has"),
        (Plain, "Plain.Options is no dataclass; write @dataclass(frozen=True) above it"),
        (Forgotten, "Forgotten.Options is no dataclass; write @dataclass(frozen=True) above it"),
        (Undecorated, "it declares Hyper; the options of a thing are called Options"),
        (Derived, "Derived.Options.m cannot be set (init=False); work it out where it is used"),
        (Unreadable, "Unreadable.Options: the types of its fields cannot be read (NameError: "),
        (Required, "Required.Options.m has no default"),
    ],
)
def test_what_could_not_be_used_is_refused_where_it_is_registered(entry: Any, message: str) -> None:
    registry = SUBCLASSES()
    with pytest.raises(ValueError) as stop:
        registry.register("mine")(entry)
    assert str(stop.value).startswith(f"thing 'mine': {message}") and "mine" not in registry


def test_what_can_be_used_is_not() -> None:
    registry = SUBCLASSES()
    for entry in (Whole, Fine):
        assert registry.register("mine")(entry) is entry and registry.get("mine") is entry


def test_without_a_base_entries_are_functions() -> None:
    registry = Registry[Any]("thing", {})
    assert registry.register("mine")(len) is len
    assert registry.register("with")(Plain) is Plain, "where nobody asks for options, Options is just a name"
    with pytest.raises(ValueError, match="^thing 'other': 3 is no function$"):
        registry.register("other")(3)


def test_entries_may_be_instances() -> None:
    registry = Registry[Any]("thing", {}, base=f"{__name__}:Base", made=True)
    entry = Whole()
    assert registry.register("mine")(entry) is entry
    with pytest.raises(ValueError, match=f"^thing 'other': <class .*Whole'> is no {PLACE}$"):
        registry.register("other")(Whole)


def test_where_an_entry_comes_from() -> None:
    registry = Registry[Any]("thing", {"own": f"{__name__}:Whole"}, base=f"{__name__}:Base")
    registry.register("mine")(Whole)
    with registering_source("file.py"):
        registry.register("other")(Whole)
    assert [registry.source(name) for name in ("own", "mine", "other")] == [None, None, "file.py"]
    assert [registry.ships(name) for name in ("own", "mine", "other")] == [True, False, False]
