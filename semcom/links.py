"""The links of a run, all built here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from channels import make_link
from semcom.config import RunConfig, filled, participants

if TYPE_CHECKING:
    from channels import Link


def build_link(config: RunConfig) -> Link:
    """The channel of a run, with the options of a resolved configuration. Raises ValueError where they do not fit."""
    link = make_link(config.channel.kind, **config.channel.options())
    numbers = filled(config.train.batch_size) * config.model.features
    return link.in_band(config.clients, participants(config), numbers)
