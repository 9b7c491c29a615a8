"""A terminal for tests: what is on it at the end of a process that had it."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys


def on_pty(code: str) -> tuple[str, int]:
    """What a terminal of 80 columns shows at the end of a Python process, and its exit status."""
    leader, follower = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", code], stdin=follower, stdout=follower, stderr=follower)
    os.close(follower)
    found = b""
    with open(leader, "rb", buffering=0) as stream:
        while True:
            try:
                part = stream.read(4096)
            except OSError:
                break
            if not part:
                break
            found += part
    return rendered(found.decode()), process.wait()


def rendered(text: str) -> str:
    """The lines that a terminal has at the end: what rich's few control sequences leave."""
    lines, row, column = [""], 0, 0
    for part in re.findall(r"\x1b\[[?0-9;]*[A-Za-z]|[^\x1b]", text):
        if part == "\x1b[1A":
            row -= 1
        elif part == "\x1b[2K":
            lines[row] = ""
        elif part == "\r":
            column = 0
        elif part == "\n":
            row += 1
            lines += [""] * (row == len(lines))
        elif not part.startswith("\x1b"):
            lines[row] = lines[row].ljust(column)[:column] + part + lines[row][column + 1 :]
            column += 1
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h"), "the cursor is there again"
    return "\n".join(lines)
