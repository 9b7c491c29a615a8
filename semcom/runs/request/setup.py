"""What a run is made of before its data are read: built once, and passed on to whatever needs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from semcom.channels import Link
from semcom.config import Resolved
from semcom.methods.base import Method
from semcom.runs.request.sources import Version


@dataclass(frozen=True)
class Setup:
    """A resolved run with its method and its links.

    Attributes:
        config: without open fields.
        method: made with `config.hyper`.
        link: the channel of the clients that train.
        joined_link: that of the new clients, who have the band to themselves (None: no new clients).
        cautions: warnings of the link, to be logged when the run begins.
        reads: the files that own code opened during set-up, with their versions.
    """

    config: Resolved
    method: Method
    link: Link
    joined_link: Link | None
    cautions: tuple[str, ...]
    reads: Mapping[str, Version] = field(default_factory=dict)

    @property
    def error_free(self) -> bool:
        """True if parameters, prototypes and the like are sent, and without errors."""
        return self.method.exchanges and self.config.air.parameters == "ideal"

    @property
    def fades(self) -> bool:
        """True if the channel has gains other than 1."""
        return type(self.link.carrier).gain is not Link.gain
