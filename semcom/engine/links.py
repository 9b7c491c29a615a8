"""The link of a run, which is built here and nowhere else."""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING

from channels import LINKS
from semcom.config import ConfigError, Resolved
from semcom.config.options import with_flag_name

if TYPE_CHECKING:
    from channels import Link

logger = logging.getLogger(__name__)


def build_link(config: Resolved, log: bool = False) -> Link:
    """Build the channel of a run, with the options of a resolved configuration.

    Args:
        config: of the run.
        log: whether to log the link's warnings: one process does.

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
        raise ConfigError(with_flag_name(str(error), "channel", c.options)) from None
    for warning in said if log else ():
        logger.warning(with_flag_name(str(warning.message), "channel", c.options))
    return link
