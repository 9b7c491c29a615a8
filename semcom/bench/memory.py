"""The most memory that a process and its children ever had resident."""

from __future__ import annotations

from pathlib import Path

PROC = Path("/proc")


def peak_resident(pid: int, proc: Path = PROC) -> int | None:
    """Peak resident bytes of a process and all its descendants, added up; None where the system does not tell (Linux
    does, in `/proc`).

    Each process's own peak counts (VmHWM), and pages that several share count several times: an upper bound of what the
    tree occupied at one moment.
    """
    own = _high_water(proc / str(pid) / "status")
    if own is None:
        return None
    return own + sum(peak_resident(child, proc) or 0 for child in _children(pid, proc))


def _high_water(status: Path) -> int | None:
    """VmHWM in bytes."""
    try:
        lines = status.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), None)


def _children(pid: int, proc: Path) -> list[int]:
    """Processes that any thread of a process started."""
    found: list[int] = []
    for file in (proc / str(pid) / "task").glob("*/children"):
        try:
            found += [int(child) for child in file.read_text().split()]
        except OSError:  # the thread has ended
            continue
    return found
