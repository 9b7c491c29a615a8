"""What a module tells of a study when it is called by `python -m`."""

from __future__ import annotations

import sys
from collections.abc import Callable

from semcom.config import ConfigError


def run_on_named_studies(tell: Callable[..., None], at_most: int = 1) -> None:
    """Call a function with the folders or archives of studies that the shell names, as texts.

    Args:
        tell: prints what there is to say of them.
        at_most: number of studies that it takes.

    Raises:
        SystemExit: none is named, or too many, or one cannot be read; its message is one line.
    """
    named = sys.argv[1:]
    if not 1 <= len(named) <= at_most:
        words = " ".join(["FOLDER-OR-ARCHIVE", *["[FOLDER-OR-ARCHIVE]"] * (at_most - 1)])
        raise SystemExit(f"error: name the study: {words}")
    try:
        tell(*named)
    except ConfigError as error:
        raise SystemExit(f"error: {error}") from None
