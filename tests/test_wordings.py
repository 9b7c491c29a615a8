"""Requests that cannot be met are refused as wordings.txt records."""

from __future__ import annotations

import subprocess
import sys


def test_what_is_said_is_what_is_recorded() -> None:
    """In a process of its own, where no other test has registered names."""
    done = subprocess.run([sys.executable, "-m", "tests.wordings"], capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\npython -m tests.wordings --write takes it over"
