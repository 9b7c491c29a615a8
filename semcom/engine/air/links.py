"""The link of a run, which is built here and nowhere else."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from semcom.channels import LINKS
from semcom.config import ConfigError, Resolved
from semcom.config.options import spell_options_as_flags
from semcom.engine.air.registry import ACCESS

if TYPE_CHECKING:
    from semcom.channels import Link


def build_link(config: Resolved) -> tuple[Link, tuple[str, ...]]:
    """Build the channel of a run with its options, and collect the link's warnings.

    Raises:
        ConfigError: the options do not fit, or the features make no symbols.
    """
    c, batch, d = config.channel, config.train.batch_size, config.model.features
    if d % 2 and LINKS.get(c.kind).radio:
        raise ConfigError(f"model.features: {d} is odd; two real features make one complex symbol")
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            link = LINKS.get(c.kind)(c.options)
            link = link.in_band(config.clients, config.participants, batch, d)
    except ValueError as error:
        raise ConfigError(spell_options_as_flags(str(error), "channel", c.options)) from None
    if link.users > 1:
        _check_users(link.users, config)
    if link.antennas > 1 and ACCESS.get(access := config.air.access).adds_up:
        raise ConfigError(
            f"channel.antennas: {link.antennas} are weighed for each client by itself, and air.access {access} adds "
            "all up; choose one"
        )
    return link, tuple(spell_options_as_flags(str(warning.message), "channel", c.options) for warning in said)


def _check_users(users: int, config: Resolved) -> None:
    """Raise ConfigError unless the clients of a round make whole groups, each on a resource of its own."""
    if config.participants % users:
        raise ConfigError(f"channel.users: {users} do not divide the {config.participants} clients of a round")
    if ACCESS.get(access := config.air.access).adds_up:
        raise ConfigError(f"channel.users: {users} are told apart, and air.access {access} adds all up; choose one")
