"""Parts of the air and the network that are chosen by name, such as access and places; each owns its options."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Protocol

from semcom.channels import Link
from semcom.channels.options import BaseOptions
from semcom.config import Resolved

NO_CHANNEL = "there is no channel with channel.kind {kind}"
NO_NOISE = "{kind} has no noise"
NOTHING_SENT = "{method} sends nothing"


class Planned(Protocol):
    """A resolved run before its data are read."""

    @property
    def config(self) -> Resolved:
        """Return the resolved configuration."""

    @property
    def link(self) -> Link:
        """Return the channel of the run."""

    @property
    def method(self) -> Any:
        """The method, with its declared traits."""

    @property
    def error_free(self) -> bool:
        """True if parameters, prototypes and the like are sent, and without errors."""

    @property
    def fades(self) -> bool:
        """True if the channel has gains other than 1."""


class Part:
    """Base of everything in the air or the network that is chosen by name.

    Attributes:
        Options: its options, a frozen dataclass whose `check` checks their ranges.
    """

    Options: ClassVar[type] = BaseOptions

    @classmethod
    def list_unused(cls, run: Planned) -> Iterator[tuple[str, str]]:
        """Yield each setting without effect in a run, and the reason. It is refused unless it has its default.

        A setting is the name of an option, that of another section's field ("channel.snr_db"), or empty for the part
        itself. The reason may have {method} and {kind}, that of the link.
        """
        yield from ()
