"""The end of a process together with its parent. It imports no torch, so that it can come first."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

HEARTBEAT_S = 0.5
"""Seconds between looks at the parent."""
STOPPING = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGXCPU") if hasattr(signal, name)
)
"""Signals that end work before its time: batch systems send one of them before they kill."""
_PR_SET_PDEATHSIG = 1


def exit_with_parent(parent: int, look: bool = False) -> None:
    """Exit as soon as the parent process has ended, even by SIGKILL.

    Args:
        parent: process id, as the parent gave it: it may have ended already.
        look: whether to look at the parent twice a second, too. The system reports only the end of the thread that
            started this process, and that thread may end before the others do.
    """
    if sys.platform.startswith("linux") and not look:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    else:
        threading.Thread(target=_watch_parent, args=(parent,), daemon=True).start()
    if os.getppid() != parent:
        os._exit(1)


def leave_signals_to_parent() -> None:
    """Ignore signals that end work early: the parent answers them, and this process ends with it.

    The signal that its own processor time is up reaches only this process, which passes it on.
    """
    for number in (signal.SIGINT, *STOPPING):
        signal.signal(number, signal.SIG_IGN)
    if hasattr(signal, "SIGXCPU"):
        signal.signal(signal.SIGXCPU, lambda number, frame: os.kill(os.getppid(), number))


def _watch_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(HEARTBEAT_S)
    os._exit(1)
