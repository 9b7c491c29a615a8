"""What a run is made of before its data are read: built once, and passed on to whatever needs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from semcom.config import Resolved
from semcom.methods.base import Method
from semcom.runs.request.sources import Version

if TYPE_CHECKING:
    from channels import Link


@dataclass(frozen=True)
class Setup:
    """A resolved run with its method and its links.

    Attributes:
        config: without open fields.
        method: made with `config.hyper`.
        link: the channel of the clients that train.
        joined_link: that of the new clients, who have the band to themselves; None if there are none.
        cautions: what the link warns of, to be logged when the run begins.
        reads: the files that own code opened as it was built, with their versions.
    """

    config: Resolved
    method: Method
    link: Link
    joined_link: Link | None
    cautions: tuple[str, ...]
    reads: Mapping[str, Version] = field(default_factory=dict)
