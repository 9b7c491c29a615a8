"""Imported where processes of tests are forked: the parent of each is the one that asked for it, not the server.

They look for garbage as rarely as pytest does in conftest.py.
"""

from __future__ import annotations

import gc
import multiprocessing
import os

usual = os.getppid


def getppid() -> int:
    """Return the parent's id, and 1 when it has ended."""
    parent = multiprocessing.parent_process()
    if parent is None or parent.pid is None:
        return usual()
    return parent.pid if parent.is_alive() else 1


os.getppid = getppid
gc.set_threshold(100_000, 50, 100)
