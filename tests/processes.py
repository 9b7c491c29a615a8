"""Processes that tests start and lose: forks of a server, which has imported torch once for all of them.

A test of how Python itself starts or ends, as with closed streams or beside a module of the user's, starts Python.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any
from unittest import mock

import psutil

SERVER = multiprocessing.get_context("forkserver")
NAMES = ["tests.forked", "tests.worlds", "semcom.cli.main", "semcom.studies.sweep.sweep"]
SERVER.set_forkserver_preload([*NAMES, "multiprocessing.resource_tracker"])
"""The last name is for a sweep that is ended in this process: it ends its children but those with that name."""


def start_server() -> None:
    """Start what forks, unless it runs. It has one thread, since a fork has no other."""
    with mock.patch.dict(os.environ, OMP_NUM_THREADS="1"):
        forkserver.ensure_running()


class Forked:
    """A process in this folder and environment that ends with the status that `work(*arguments)` returns.

    It is used as one of `subprocess.Popen`. Its output is text in `stdout` and `stderr`, or in a file that is given.
    """

    def __init__(self, work: Callable[..., object], *arguments: Any, stderr: IO[bytes] | None = None) -> None:
        start_server()
        pipes = [os.pipe(), os.pipe()]
        self.stdout, self.stderr = (os.fdopen(reader) for reader, _ in pipes)
        if stderr is not None:
            os.dup2(stderr.fileno(), pipes[1][1])
        streams = [Connection(writer, readable=False) for _, writer in pipes]
        self._process = SERVER.Process(target=_carry_out, args=(streams, dict(os.environ), work, arguments))
        self._process.start()
        for stream in streams:
            stream.close()
        self.pid, self.kill = self._process.pid or 0, self._process.kill

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()
        self.wait()
        self.stdout.close()
        self.stderr.close()

    @property
    def returncode(self) -> int | None:
        """The exit status, or None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """As `returncode`."""
        return self._process.exitcode

    def wait(self, seconds: float | None = None) -> int | None:
        """Wait for its end; return its exit status."""
        self._process.join(seconds)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)


def _carry_out(streams: list[Connection], environment: dict[str, str], work: Callable[..., Any], given: Any) -> None:
    for descriptor, stream in enumerate(streams, 1):
        os.dup2(stream.fileno(), descriptor)
        stream.close()
    os.environ.clear()
    os.environ.update(environment)
    sys.exit(work(*given))


def start_python(words: list[str], *, stderr: IO[bytes], **_: Any) -> Forked:
    """Stand in for `subprocess.Popen` of the ranks of a run: `[python, -c, program, parent, ...]`."""
    return Forked(_run_program, words[2], words[3:], stderr=stderr)


def _run_program(program: str, words: list[str]) -> None:
    sys.argv = ["-c", *words]
    exec(program, {"__name__": "__main__"})


def finish(work: Callable[..., object], *arguments: Any) -> str:
    """What a process has printed that carried this out."""
    with Forked(work, *arguments) as process:
        printed = process.stdout.read()
        assert process.wait() == 0, process.stderr.read()
        return printed


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


Door = tuple[str, str, int]
"""A socket that accepts connections: the name of a process that has it, its address and port, as the kernel tells."""


def list_doors(*processes: psutil.Process) -> set[Door]:
    """The doors of processes, of which some may be ending."""
    found = set()
    for process in processes:
        with suppress(psutil.Error):
            for at in process.net_connections("inet"):
                if at.status == psutil.CONN_LISTEN:
                    found.add((process.name(), at.laddr.ip.removeprefix("::ffff:"), at.laddr.port))
    return found


def list_listening() -> set[bytes]:
    """What the kernel calls the sockets of this machine that accept connections: /proc/net/tcp takes it far longer."""
    found = set()
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4) as kernel:  # NETLINK_SOCK_DIAG
        for family in (socket.AF_INET, socket.AF_INET6):  # all of them in the state TCP_LISTEN
            asked = struct.pack("=IHHIIBBxxI48x", 72, 20, 0x301, 0, 0, family, socket.IPPROTO_TCP, 1 << 10)
            kernel.send(asked)
            over = False
            while not over:
                content = kernel.recv(1 << 16)
                while content:
                    size, kind = struct.unpack_from("=IH", content)
                    over = over or kind != 20
                    found |= {content[20:68]} if kind == 20 else set()  # addresses, ports, and a number used once
                    content = content[(size + 3) & ~3 :]
    return found


@contextmanager
def watch_doors(pid: int | None = None) -> Iterator[set[Door]]:
    """Collect all doors that a process (None: this one) and its descendants open meanwhile, however shortly."""
    root, opened, over = psutil.Process(pid), set[Door](), threading.Event()
    known, before = list_listening(), list_doors(root, *root.children(recursive=True))

    def watch() -> None:
        nonlocal known
        while not over.wait(0.005):
            if (now := list_listening()) - known:  # to ask all processes each time would take a core
                opened.update(list_doors(root, *root.children(recursive=True)) - before)
            known = now

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield opened
    finally:
        over.set()
        watcher.join()
