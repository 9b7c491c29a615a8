"""Processes that tests start and lose."""

from __future__ import annotations

import time
from pathlib import Path


def gone(pid: int, patience: float = 0.0) -> bool:
    """Whether a process has ended."""
    until = time.monotonic() + patience
    while True:
        try:
            ended = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
        except (FileNotFoundError, ProcessLookupError):
            ended = True
        if ended or time.monotonic() > until:
            return ended
        time.sleep(0.02)
