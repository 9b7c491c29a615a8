"""A part of the exchange that has a kind: the access to the air, the compression, the rate; each owns its options."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Protocol

from channels import Link
from channels.options import BaseOptions


class Planned(Protocol):
    """A resolved run before its data are read."""

    @property
    def options(self) -> Any:
        """The options of the air."""

    @property
    def link(self) -> Link:
        """The channel."""

    @property
    def method(self) -> Any:
        """The method, with what it says of itself."""

    @property
    def error_free(self) -> bool:
        """Whether parameters, prototypes and the like are sent, and without errors."""

    @property
    def fades(self) -> bool:
        """Whether the channel has gains other than 1."""


class Part:
    """Base of what is chosen by name for the air.

    Attributes:
        Options: its options, a frozen dataclass; ranges are checked by its `check`.
    """

    Options: ClassVar[type] = BaseOptions

    @classmethod
    def list_unused(cls, run: Planned) -> Iterator[tuple[str, str]]:
        """Yield what does nothing in a run and is refused unless it has its default, and the reason.

        It is the name of an option, or empty for the part itself. {method} and {kind} of the link may be in the reason.
        """
        yield from ()
