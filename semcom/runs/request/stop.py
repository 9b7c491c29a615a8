"""Signals that end work before its time become exceptions, which wait while something must be done as a whole.

Ctrl-C raises KeyboardInterrupt, as always. SIGTERM, SIGUSR1, SIGUSR2 and SIGXCPU, which batch systems send before they
kill, and SIGHUP, which a closed terminal sends, raise `Stopped`.
"""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from semcom.engine.host.orphan import STOPPING

STATUS = 75
"""Exit status after a signal of `STOPPING`, EX_TEMPFAIL of sysexits.h: the same command goes on where it stopped."""


class Stopped(SystemExit):
    """An end by SIGTERM or another signal of `STOPPING`. Uncaught, it ends the process with `STATUS`.

    Args:
        number: of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(STATUS)
        self.signal = signal.Signals(number).name


class _Waiting:
    """The state of the handler: the number of blocks that defer a signal, the signal, and actions before it."""

    blocks = 0
    error: KeyboardInterrupt | Stopped | None = None
    before: Callable[[], None] | None = None


@contextmanager
def raise_on_stop_signals(last: bool = False) -> Iterator[None]:
    """Let the signals of `STOPPING` and Ctrl-C raise exceptions inside; a handler of the user's stays.

    Only the main thread gets signals: elsewhere, and inside another such block, this has no effect. After the `last`
    block of a process they are ignored, as the exit of Python and libraries would else end in another status.
    """
    before = {}
    if threading.current_thread() is threading.main_thread():
        usual = (signal.SIG_DFL, signal.default_int_handler)
        before = {n: handler for n in (signal.SIGINT, *STOPPING) if (handler := signal.getsignal(n)) in usual}
    for number in before:
        signal.signal(number, _raise_or_defer)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if last else handler)


@contextmanager
def defer_stop_signals() -> Iterator[None]:
    """Defer a signal to the end of this block; a second Ctrl-C is not deferred."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _Waiting.blocks += 1
    try:
        yield
    finally:
        _Waiting.blocks -= 1
        error = _Waiting.error
        if error is not None and not _Waiting.blocks:
            _Waiting.error = None
            raise error


@contextmanager
def act_before_stop(action: Callable[[], None]) -> Iterator[None]:
    """Carry out `action` when a signal ends the block, before its exception is raised."""
    before, _Waiting.before = _Waiting.before, action
    try:
        yield
    finally:
        _Waiting.before = before


class TimeUp(RuntimeError):
    """The end of the time that some work was given."""


@contextmanager
def stop_after_minutes(minutes: float | None) -> Iterator[None]:
    """Stop the block, as SIGTERM would, after so many minutes (None: never), and raise TimeUp then.

    Only in the main thread, and inside `raise_on_stop_signals`.
    """
    if minutes is None:
        yield
        return
    up = threading.Event()

    def stop() -> None:
        up.set()
        _thread.interrupt_main(signal.SIGTERM)

    timer = threading.Timer(min(60 * minutes, threading.TIMEOUT_MAX / 2), stop)  # the system adds the clock to it
    timer.daemon = True
    timer.start()
    try:
        yield
    except Stopped as stopped:
        if not up.is_set():
            raise
        kept = "".join(f"; {note}" for note in getattr(stopped, "__notes__", ()))
        raise TimeUp(f"stopped after {minutes:g} minutes{kept}") from None
    finally:
        timer.cancel()


def _raise_or_defer(number: int, frame: FrameType | None) -> None:
    """Raise the exception of a signal, or put it off."""
    error = KeyboardInterrupt() if number == signal.SIGINT else Stopped(number)
    if number == getattr(signal, "SIGXCPU", None):
        signal.signal(number, signal.SIG_IGN)  # the system sends it every second from now on
    if _Waiting.blocks and not (number == signal.SIGINT and _Waiting.error is not None):
        _Waiting.error = _Waiting.error or error
        return
    _Waiting.error = None
    if _Waiting.before is not None:
        action, _Waiting.before = _Waiting.before, None
        action()
    raise error
