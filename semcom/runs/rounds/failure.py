"""The description of an error that ends a run."""

from __future__ import annotations

import traceback
from pathlib import Path

from semcom.engine.host.ranks import WorkerLost
from semcom.engine.train.descent import Diverged
from semcom.runs.folder.folder import WriteError
from semcom.runs.request.limits import MemoryShort

NEEDS_CONTEXT = (WriteError, MemoryShort, WorkerLost)
"""Errors whose message names neither round nor checkpoint."""


def describe_failure(error: BaseException) -> str:
    """Describe an error in a line; an unforeseen one with its type and its place."""
    if isinstance(error, (*NEEDS_CONTEXT, Diverged)):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    last = [*frames, *(frame for frame in frames if "site-packages" not in frame.filename)][-1]  # not torch's own
    text = " ".join(str(error).split())
    return f"{type(error).__name__}{': ' if text else ''}{text} ({Path(last.filename).name}, line {last.lineno})"
