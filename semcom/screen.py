"""Progress bars of rich at the bottom of the terminal, below all lines that are printed meanwhile."""

from __future__ import annotations

import codecs
import io
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import IO, TYPE_CHECKING, Any

from semcom.escape import escape_controls

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

END = "\0\n"
"""End of the last line before the terminal is given back; no other line has it."""
PATIENCE_S = 1.0
"""Seconds after which that line is not waited for any longer."""


def open_streams() -> None:
    """Let every standard stream take any text: a closed one gets the null device, and ASCII the nearest signs."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - until the end
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors=NEAREST)


def say(text: object, end: str = "\n", stream: IO[str] | None = None, start: str = "") -> None:
    """Print a text, in whatever signs the stream (None: stdout) has, and none that a terminal would obey.

    `start` and `end`, such as a carriage return, are printed unchanged.
    """
    stream = stream or sys.stdout
    encoding = getattr(stream, "encoding", None) or "utf-8"
    shown = escape_controls(str(text)).encode(encoding, NEAREST).decode(encoding)
    print(f"{start}{shown}", end=end, file=stream, flush=True)  # noqa: T201


def _replace_by_similar_signs(error: UnicodeError) -> tuple[str, int]:
    """Replace signs that an encoding lacks by similar ones."""
    assert isinstance(error, UnicodeEncodeError)
    return "".join(SIGNS.get(sign, "?") for sign in error.object[error.start : error.end]), error.end


NEAREST = "semcom.nearest"
"""Name of the error handler that replaces signs that an encoding lacks, see `SIGNS`."""
SIGNS = {"±": "+-", "–": "-", "→": "->", "…": "...", "━": "-", "╸": "-", "╺": "-"}
codecs.register_error(NEAREST, _replace_by_similar_signs)


def is_terminal_screen(stream: Any) -> bool:
    """Check whether a stream is a terminal on which text can be replaced by other text."""
    if stream is None or os.environ.get("TERM", "").lower() in ("dumb", "unknown"):
        return False
    try:
        return os.isatty(stream.fileno())
    except (OSError, ValueError):  # a stream of Python's own, without a file
        return False


def is_notebook() -> bool:
    """Check whether a notebook runs this, whose output takes a line in the place of the last one."""
    shell = sys.modules.get("IPython")
    return shell is not None and type(shell.get_ipython()).__name__ == "ZMQInteractiveShell"


@contextmanager
def show_bars_on_screen(transient: bool = False) -> Iterator[Progress]:
    """Show progress bars on the terminal that stderr is; each has a description, a number of steps and a `note`.

    Lines of this process, and of those that it starts, go above the bars: a pipe stands in the place of the terminal.

    Args:
        transient: whether the bars are removed at the end.
    """
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.table import Column

    pipe, wide = _pipe(), Column(overflow="fold")
    progress = Progress(
        TextColumn("{task.description}", markup=False, table_column=wide),
        MofNCompleteColumn(),
        BarColumn(10),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", markup=False, table_column=wide.copy()),
        console=pipe.console,
        refresh_per_second=2,
        speed_estimate_period=86_400.0,  # a step may take minutes
        transient=transient,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    saved: dict[int, int] = {}
    try:
        progress.start()
        for stream in (sys.stdout, sys.stderr):
            if is_terminal_screen(stream):
                stream.flush()
                number = stream.fileno()
                saved[number] = os.dup(number)
                os.dup2(pipe.end, number)
        yield progress
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        for number, terminal in saved.items():
            os.dup2(terminal, number)
            os.close(terminal)
        pipe.drain()
        with suppress(OSError):  # the terminal may have been closed
            progress.stop()


class _Pipe:
    """A pipe whose lines a thread prints on the terminal.

    Processes that have inherited it may live longer than the bars, as joblib's idle workers do: it is never closed.
    """

    console: Console

    def __init__(self) -> None:
        from rich.console import Console

        terminal = os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding=sys.stderr.encoding, errors="replace")
        self.console = Console(file=terminal, force_terminal=True, highlight=False)
        self._drained = threading.Event()
        read, self.end = os.pipe()
        threading.Thread(target=self._print, args=(read,), name="terminal", daemon=True).start()

    def drain(self) -> None:
        """Wait until all that was written before is printed."""
        self._drained.clear()
        os.write(self.end, END.encode())
        self._drained.wait(PATIENCE_S)

    def _print(self, read: int) -> None:
        from rich.text import Text

        with open(read, encoding="utf-8", errors="replace", newline="\n") as lines:
            for line in lines:
                text = line.removesuffix(END).removesuffix("\n")
                with suppress(OSError):  # the terminal may have been closed
                    if text or not line.endswith(END):
                        self.console.print(Text.from_ansi(text), soft_wrap=True)
                if line.endswith(END):
                    self._drained.set()


_pipe = cache(_Pipe)
