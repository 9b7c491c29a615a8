"""The end of a process together with the one that started it. Nothing here imports torch, so that it comes first."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

HEARTBEAT_S = 0.5
"""Seconds between looks at the parent."""
_PR_SET_PDEATHSIG = 1


def exit_with_parent(parent: int, look: bool = False) -> None:
    """Exit as soon as the parent process has ended, even by SIGKILL.

    Args:
        parent: process id, as the parent gave it: it may have ended already.
        look: whether to look at the parent twice a second though the system would tell of its end: it tells of the end
            of the thread that started this process, and that thread may end before the others do.
    """
    if sys.platform.startswith("linux") and not look:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    else:
        threading.Thread(target=_watch_parent, args=(parent,), daemon=True).start()
    if os.getppid() != parent:
        os._exit(1)


def leave_signals_to_parent() -> None:
    """Ignore signals that end work before its time: they are the parent's to answer, and this process ends with it."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)


def _watch_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(HEARTBEAT_S)
    os._exit(1)
