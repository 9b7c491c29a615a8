"""The links of a run, all built here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from channels import make_link

if TYPE_CHECKING:
    from channels import Link
    from semcom.config import RunConfig


def build_link(config: RunConfig) -> Link:
    """The channel of a run, with the options of a resolved configuration. Raises ValueError where they do not fit."""
    return make_link(config.channel.kind, **config.channel.options())
