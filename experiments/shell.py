"""Print a report on the studies that are named on the command line of `python -m MODULE`."""

from __future__ import annotations

import sys
from collections.abc import Callable

from semcom.config import ConfigError


def run_on_named_studies(print_report: Callable[..., None], at_most: int = 1) -> None:
    """Call a function with the folders or archives of studies that the command line names.

    Args:
        print_report: prints a report on the studies.
        at_most: largest number of studies that it takes.

    Raises:
        SystemExit: too few or too many studies, or an unreadable study; the message is one line.
    """
    named = sys.argv[1:]
    if not 1 <= len(named) <= at_most:
        words = " ".join(["FOLDER-OR-ARCHIVE", *["[FOLDER-OR-ARCHIVE]"] * (at_most - 1)])
        raise SystemExit(f"error: name the study: {words}")
    try:
        print_report(*named)
    except ConfigError as error:
        raise SystemExit(f"error: {error}") from None
