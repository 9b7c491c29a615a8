"""Text at the bottom of the terminal that is kept up to date, below the lines that are printed meanwhile."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import RenderableType

SECONDS = 1.0
"""Time between two looks at what is shown."""


def on_terminal(stream: Any) -> bool:
    """Return whether a stream is a terminal on which text can be replaced by other text."""
    if stream is None or os.environ.get("TERM", "").lower() in ("dumb", "unknown"):
        return False
    try:
        return os.isatty(stream.fileno())
    except (OSError, ValueError):  # a stream of Python's own, without a file
        return False


class Screen:
    """A part of the terminal that shows what `render` returns, again and again; a context manager.

    Lines that are printed meanwhile go above it, also those of processes that this one starts: what of stdout and
    stderr is a terminal is replaced by a pipe until the end, whose lines a thread passes on. Only where stderr is a
    terminal, see `on_terminal`.

    Args:
        render: called in a thread of its own, every `seconds`, for something that rich can print.
        seconds: time between two calls.
        stays: whether the last text stays on the terminal at the end.
    """

    def __init__(self, render: Callable[[], RenderableType], seconds: float = SECONDS, stays: bool = False) -> None:
        self._render, self._seconds, self._stays = render, seconds, stays

    def __enter__(self) -> Screen:
        from rich.console import Console
        from rich.live import Live

        PIPE.open()
        self._console = Console(file=PIPE.terminal, force_terminal=True, highlight=False)
        self._live = Live(
            console=self._console,
            get_renderable=self._sized,
            refresh_per_second=1 / self._seconds,
            transient=not self._stays,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        try:
            PIPE.take(self._print)
            self._live.start(refresh=True)
        except BaseException:  # a signal may come here too
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            PIPE.give_back()
        finally:
            with suppress(OSError):  # the terminal may have been closed
                self._live.stop()

    def _sized(self) -> RenderableType:
        """Return what is shown, for the size that the terminal has now."""
        with suppress(OSError):
            columns, lines = os.get_terminal_size(PIPE.terminal.fileno())
            self._console.size = (columns or 80, lines or 24)
        return self._render()

    @property
    def lines(self) -> int:
        """Lines of the terminal."""
        return self._console.size.height

    def _print(self, text: str) -> None:
        """Print whole lines above what is shown."""
        from rich.text import Text

        self._console.print(Text.from_ansi(text), soft_wrap=True)


class _Pipe:
    """The pipe that stands in the place of the terminal, one for all screens of this process.

    Processes that have inherited it may live longer than a screen, as joblib's idle workers do: it is never closed, and
    without a screen what they print goes straight to the terminal.
    """

    terminal: TextIO

    def __init__(self) -> None:
        self._write: int | None = None
        self._saved: dict[int, int] = {}
        self._print: Callable[[str], None] | None = None
        self._rest = b""
        self._reached = threading.Event()
        self._lock = threading.Lock()

    def open(self) -> None:
        """Make the pipe and start its thread, once."""
        if self._write is None:
            terminal = os.dup(sys.stderr.fileno())
            self.terminal = os.fdopen(terminal, "w", encoding=sys.stderr.encoding, errors="replace")
            read, self._write = os.pipe()
            threading.Thread(target=self._pass_on, args=(read,), name="terminal", daemon=True).start()

    def take(self, print_: Callable[[str], None]) -> None:
        """Put the pipe in the place of each stream that is a terminal; whole lines go to `print_`."""
        assert self._write is not None
        self._print = print_
        for stream in (sys.stdout, sys.stderr):
            if on_terminal(stream):
                stream.flush()
                number = stream.fileno()
                self._saved[number] = os.dup(number)
                os.dup2(self._write, number)

    def give_back(self) -> None:
        """Put the terminal back, once all that was printed before has been passed on."""
        assert self._write is not None
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        while self._saved:
            number, saved = self._saved.popitem()
            os.dup2(saved, number)
            os.close(saved)
        self._reached.clear()
        os.write(self._write, MARK)
        self._reached.wait(PATIENCE_S)
        with self._lock:
            self._print = None

    def _pass_on(self, read: int) -> None:
        """Pass on what is written to the pipe, for ever."""
        while found := os.read(read, 1 << 16):
            *parts, last = (self._rest + found).split(MARK)
            with suppress(OSError):  # the terminal may have been closed
                for part in parts:
                    self._hand_on(part + b"\n" if part and not part.endswith(b"\n") else part)
                    self._reached.set()
                self._hand_on(last)

    def _hand_on(self, found: bytes) -> None:
        """Print whole lines, and keep the beginning of the last one; without a screen print everything."""
        with self._lock:
            lines, newline, self._rest = found.rpartition(b"\n")
            if self._print is None:
                os.write(self.terminal.fileno(), found)
                self._rest = b""
            elif newline:
                self._print(lines.decode(errors="replace").replace("\r\n", "\n"))


MARK = b"\x00\x1a\x00"
"""Bytes after which all that was printed before has been passed on; no text has them."""
PATIENCE_S = 1.0
"""Seconds after which that is not waited for any longer."""
PIPE = _Pipe()
