"""Variants that take turns: only one works at any time, and each meets the machine in the same moods as the others."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from semcom.bench.measurement import Measurement
from semcom.bench.rounds import Job
from semcom.bench.session import Session
from semcom.bench.variants import Variant, cores
from semcom.bench.workloads import Workload
from semcom.config import RunError

logger = logging.getLogger(__name__)

SIZES = {"cpu": 2048, "cuda": 8192}
"""Rows and columns of the matrices whose products are a device's peak."""


class Entry:
    """A variant of a workload in its own process; once it has failed, it sits out.

    Attributes:
        seconds: what was measured.
        warm: seconds of its first round, which does not count.
    """

    def __init__(self, workload: Workload, variant: Variant) -> None:
        self.workload, self.variant = workload, variant
        self.seconds: list[float] = []
        self.warm: float | None = None
        self._error: str | None = None
        self._resident: int | None = None
        self._session: Session | None = None

    def start(self) -> None:
        """Starts the process, waits until it is ready, and warms it up by a round."""
        try:
            self._session = Session(Job(self.variant, self.workload))
            self._session.ready()
        except RunError as error:
            self._fail(error)
        else:
            self.warm = self._measure("warm-up")

    def measure(self) -> None:
        """One round that counts."""
        seconds = self._measure("round")
        if seconds is not None:
            self.seconds.append(seconds)

    def result(self) -> Measurement:
        """What was found."""
        session = self._session
        return Measurement(
            workload=self.workload,
            variant=self.variant,
            seconds=tuple(self.seconds),
            setup_s=session.setup_s if session else None,
            threads=session.threads if session else None,
            resident_bytes=self._resident,
            device_bytes=session.device_bytes if session else None,
            error=self._error,
        )

    def close(self) -> None:
        """Ends the process."""
        if self._session is not None:
            self._session.close()

    def _measure(self, what: str) -> float | None:
        if self._session is None or self._error is not None:
            return None
        try:
            seconds = self._session.measure()
        except RunError as error:
            self._fail(error)
            return None
        self._resident = self._session.resident()
        logger.info("%s, K = %d: %s %.3g s", self.variant.name, self.workload.clients, what, seconds)
        return seconds

    def _fail(self, error: RunError) -> None:
        """Sits out from now on; its memory is free for the others."""
        self._error = str(error)
        self.close()
        logger.warning("%s, K = %d failed: %s", self.variant.name, self.workload.clients, error)


class Peak:
    """The products of matrices that a device carries out: on a CPU in a one-thread process per core, all at once."""

    def __init__(self, device: str, size: int) -> None:
        variant = Variant("products", device="cuda" if device == "cuda" else "cpu")
        self.size, self.flops_per_second = size, [0.0]
        self._sessions = [Session(Job(variant, size=size)) for _ in range(1 if device == "cuda" else cores())]

    def measure(self) -> None:
        """Adds a measurement: the sum over processes of the speed of each one's best product. Raises RunError."""
        for session in self._sessions:
            if session.threads is None:
                session.ready()
        for session in self._sessions:
            session.ask()
        self.flops_per_second.append(sum(2 * self.size**3 / session.seconds() for session in self._sessions))
        logger.info("products of %d x %d: %.4g GFLOP/s", self.size, self.size, self.flops_per_second[-1] / 1e9)

    @property
    def best(self) -> float:
        """The most FLOP/s that were measured."""
        return max(self.flops_per_second)

    def close(self) -> None:
        """Ends the processes."""
        for session in self._sessions:
            session.close()


def take_turns(entries: Sequence[Entry], peaks: Sequence[Peak], repeats: int) -> None:
    """Repeats rounds of all entries, in one order and then the other, and the peaks beside them."""
    for turn in range(repeats):
        for entry in entries if turn % 2 == 0 else entries[::-1]:
            entry.measure()
        for peak in peaks:
            peak.measure()


@contextmanager
def entered(workloads: Sequence[Workload], variants: Sequence[Variant]) -> Iterator[list[Entry]]:
    """Entries for every workload and variant, warmed up; their processes end with the block."""
    entries = [Entry(workload, variant) for workload in workloads for variant in variants]
    with ExitStack() as stack:
        for entry in entries:
            stack.callback(entry.close)
            entry.start()
        yield entries
