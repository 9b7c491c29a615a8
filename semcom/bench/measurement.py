"""What was measured, and the numbers that follow from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from semcom.bench.variants import Variant
from semcom.bench.workloads import Workload


@dataclass(frozen=True)
class Measurement:
    """One variant of a workload.

    Attributes:
        workload, variant: what and how.
        seconds: of each round that counts (empty where it failed).
        setup_s: from the start of its process until it was ready.
        threads: of torch in each process.
        resident_bytes: peak resident memory of its processes together; None where the system does not tell.
        device_bytes: peak memory of its tensors on a GPU; None without one.
        error: why it failed; None: it did not.
    """

    workload: Workload
    variant: Variant
    seconds: tuple[float, ...] = ()
    setup_s: float | None = None
    threads: int | None = None
    resident_bytes: int | None = None
    device_bytes: int | None = None
    error: str | None = None

    @property
    def rates(self) -> tuple[float, float, float]:
        """Samples per second: least, median, most."""
        rates = sorted(self.workload.visited / s for s in self.seconds)
        return rates[0], median(rates), rates[-1]

    @property
    def rate(self) -> float | None:
        """Median samples per second; None where it failed."""
        return self.rates[1] if self.seconds and self.error is None else None


@dataclass(frozen=True)
class Growth:
    """One variant of a workload with several numbers of clients, in ascending order of them."""

    variant: str
    measurements: tuple[Measurement, ...]


@dataclass(frozen=True)
class CaseResult:
    """All variants of one case.

    Attributes:
        name: of the case.
        workload: what was measured.
        flops_per_sample: arithmetic of a training step over its samples.
        peaks: device -> FLOP/s of products of matrices at best.
        measurements: a row per variant; the plain loop of a device comes before its others.
        growth: per device, where it was measured.
        rounded_from: reduced-precision variant -> the variant that it is, but for its precision.
    """

    name: str
    workload: Workload
    flops_per_sample: float
    peaks: Mapping[str, float]
    measurements: tuple[Measurement, ...]
    growth: tuple[Growth, ...] = ()
    rounded_from: Mapping[str, str] | None = None

    def find(self, name: str) -> Measurement | None:
        """The variant of that name, if it was measured."""
        return next((m for m in self.measurements if m.variant.name == name), None)

    def times(self, measurement: Measurement, other: str) -> float | None:
        """Speed over that of the variant `other`, by medians; None where one is missing."""
        base = self.find(other)
        if base is None or base.rate is None or measurement.rate is None:
            return None
        return measurement.rate / base.rate

    def times_plain(self, measurement: Measurement) -> float | None:
        """Speed over that of the plain loop on the same device."""
        return self.times(measurement, "plain" if measurement.variant.device == "cpu" else "plain-cuda")

    def share_of_peak(self, measurement: Measurement) -> float | None:
        """FLOP/s of the whole round over those of the products."""
        peak = self.peaks.get(measurement.variant.device)
        return None if not peak or measurement.rate is None else measurement.rate * self.flops_per_sample / peak


@dataclass(frozen=True)
class Report:
    """A whole invocation of `semcom bench engine`."""

    machine: Mapping[str, Any]
    repeats: int
    cases: Sequence[CaseResult]

    def failures(self) -> list[str]:
        """One line for each variant that failed."""
        grown = [(case, m) for case in self.cases for growth in case.growth for m in growth.measurements]
        all_ = [(case, m) for case in self.cases for m in case.measurements] + grown
        return [
            f"case {case.name}, {m.variant.name}, K = {m.workload.clients}: {m.error}" for case, m in all_ if m.error
        ]
