"""The parent's end of a worker: start it, ask for a measurement, and leave nothing of it behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

from semcom.bench.memory import peak_resident
from semcom.bench.rounds import Job
from semcom.config import RunError

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""What would keep torch from its own number of threads."""
PATIENCE_S = 20.0
"""How long a worker that has nothing more to do may take to end."""


class Session:
    """A worker, between its start and its end; a context manager that closes it.

    Args:
        job: what it does.

    Attributes:
        setup_s: seconds from its start until it was ready (None before).
        threads: of torch, in its first process.
        device_bytes: peak memory of tensors on a GPU, as of the last measurement.
    """

    def __init__(self, job: Job) -> None:
        self.setup_s: float | None = None
        self.threads: int | None = None
        self.device_bytes: int | None = None
        self._begun, self._busy = time.perf_counter(), True
        self._process = subprocess.Popen(
            [sys.executable, "-m", "semcom.bench.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(job.variant.threads),
            start_new_session=True,  # an interrupt from the keyboard is the parent's to answer
        )
        with contextlib.suppress(BrokenPipeError):  # it died at once: `_receive` says so
            self._send(job.to_json())

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ready(self) -> None:
        """Waits until the worker can measure. Raises RunError if it cannot."""
        self.threads = self._receive()["threads"]
        self.setup_s = time.perf_counter() - self._begun

    def ask(self) -> None:
        """Asks for a measurement without waiting for it."""
        self._busy = True
        with contextlib.suppress(BrokenPipeError):
            self._send("round")

    def seconds(self) -> float:
        """Waits for the measurement that was asked for. Raises RunError if it failed."""
        answer = self._receive()
        self.device_bytes = answer["device_bytes"]
        return answer["seconds"]

    def measure(self) -> float:
        """Asks for a measurement and waits for it. Raises RunError if it failed."""
        self.ask()
        return self.seconds()

    def resident(self) -> int | None:
        """Peak resident bytes of the worker and its children so far."""
        return peak_resident(self._process.pid)

    def close(self) -> None:
        """Ends the worker and its children, also in the middle of something; may be called twice."""
        pipes = (self._process.stdin, self._process.stdout)
        for pipe in pipes:
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()
        if self._busy:
            self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(PATIENCE_S / 10 if self._busy else PATIENCE_S)
        self._process.kill()  # nothing happens where it has ended
        self._process.wait()

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _receive(self) -> dict[str, Any]:
        """The next answer. Raises RunError for a failure, or when the worker has ended without one."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            status = self._process.wait()
            killed = f"killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
            raise RunError(f"the process was {killed}" + (" (out of memory?)" if status == -signal.SIGKILL else ""))
        answer, self._busy = json.loads(line), False
        if "error" in answer:
            raise RunError(answer["error"])
        return answer


def environment(threads: int | None) -> dict[str, str]:
    """The environment of a worker; with `threads=None` torch finds its own number."""
    kept = {name: value for name, value in os.environ.items() if name not in THREADS}
    return kept if threads is None else kept | dict.fromkeys(THREADS, str(threads))
