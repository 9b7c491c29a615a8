"""The links of a run, all built here."""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING

from channels import link_options, make_link
from semcom.config import ConfigError, Resolved

if TYPE_CHECKING:
    from channels import Link

logger = logging.getLogger(__name__)


def build_link(config: Resolved, log: bool = False) -> Link:
    """The channel of a run, with the options of a resolved configuration.

    What a link warns of is logged on demand: once a run will do.

    Raises ConfigError where the options do not fit.
    """
    c, batch = config.channel, config.train.batch_size
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            link = make_link(c.kind, **c.options())
            link = link.in_band(config.clients, config.participants, batch, config.model.features)
    except ValueError as error:
        raise ConfigError(_flagged(str(error), c.kind)) from None
    for warning in said if log else ():
        logger.warning(_flagged(str(warning.message), c.kind))
    return link


def _flagged(text: str, kind: str) -> str:
    """What a link says of one of its options, with the option as the command line spells it."""
    name, colon, rest = text.partition(":")
    return f"channel.{name.replace('_', '-')}{colon}{rest}" if name in link_options(kind) else text
