"""`semcom bench engine`: whole training rounds of the engine beside the plain per-client loop, in one invocation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

import torch

from semcom.bench.contest import SIZES, Entry, Peak, entered, take_turns
from semcom.bench.flops import flops_per_sample
from semcom.bench.machine import machine
from semcom.bench.measurement import CaseResult, Growth, Report
from semcom.bench.names import chosen
from semcom.bench.variants import Variant, rounded, variants
from semcom.bench.workloads import CASES, Case, Workload
from semcom.config import ConfigError
from semcom.config.checks import COUNT, require

GROWTH, SMALL_GROWTH = (5, 20, 80), (2, 4)
"""Numbers of clients that the cost of growing is measured with."""
ROUNDED = ("bf16", "cuda-tf32", "cuda-bf16")
"""Variants that follow from the best one of a device."""


def bench(
    cases: str = "a,b,c",
    only: str | None = None,
    growth: str | None = None,
    repeats: int | None = None,
    quick: bool = False,
) -> Report:
    """Measures.

    Args:
        cases: names of `CASES`, separated by commas.
        only: variants, separated by commas (None: all that this machine can carry out).
        growth: numbers of clients, separated by commas (None: 5,20,80; empty: none).
        repeats: rounds that count, per variant (None: 5).
        quick: tiny workloads: shows that everything works, and nothing else.

    Raises:
        ConfigError: a case or variant that does not exist, or a number that makes no sense.
    """
    picked = [CASES[name] for name in chosen("cases", cases, list(CASES))]
    wanted = Wanted(only)
    clients = _clients(growth, SMALL_GROWTH if quick else GROWTH)
    repeats = (2 if quick else 5) if repeats is None else repeats
    require("repeats", repeats, COUNT)
    facts = machine()
    with ExitStack() as stack:
        peaks = {device: Peak(device, 256 if quick else SIZES[device]) for device in wanted.devices()}
        for peak in peaks.values():
            stack.callback(peak.close)
        results = [_case(case, wanted, peaks, clients, repeats, quick) for case in picked]
    best = {device: peak.best for device, peak in peaks.items()}
    return Report(facts, repeats, [replace(result, peaks=best) for result in results])


class Wanted:
    """Which variants are to be measured.

    Args:
        only: their names, separated by commas; None: all.
    """

    def __init__(self, only: str | None) -> None:
        self._fixed = variants(torch.cuda.is_available())
        known = [v.name for v in self._fixed]
        known += [name for name in ROUNDED if torch.cuda.is_available() or not name.startswith("cuda")]
        self._names = known if only is None else chosen("variants", only, known)
        for name in self._names:
            if name in ROUNDED and not any(_same_device(name, v) and not v.plain for v in self.fixed()):
                raise ConfigError(f"variants: {name} follows from the best of the others on its device; name one too")

    def fixed(self) -> list[Variant]:
        """Those that are known beforehand."""
        return [v for v in self._fixed if v.name in self._names]

    def devices(self) -> list[str]:
        """Devices that are measured."""
        return list(dict.fromkeys(v.device for v in self.fixed()))

    def rounded(self, best: Variant) -> list[Variant]:
        """Those that follow from the best of a device."""
        return [v for v in rounded(best) if v.name in self._names]


def _case(
    case: Case, wanted: Wanted, peaks: Mapping[str, Peak], clients: Sequence[int], repeats: int, quick: bool
) -> CaseResult:
    """All variants of a case, then the cost of growing with the best one of each device."""
    workload = case.small if quick else case.workload
    with entered([workload], wanted.fixed()) as first:
        take_turns([e for e in first if not e.variant.plain], [], 1)  # a trial: which one is the best?
        best = {device: entry.variant for device in peaks if (entry := _best(first, device)) is not None}
        second = [v for variant in best.values() for v in wanted.rounded(variant)]
        for entry in first:
            entry.seconds.clear()
        with entered([workload], second) as more:
            take_turns([*first, *more], list(peaks.values()), repeats)
            measured = tuple(e.result() for e in (*first, *more))
    grown = _growth(workload, list(best.values()), clients, repeats) if case.grows else ()
    return CaseResult(
        name=case.name,
        workload=workload,
        flops_per_sample=flops_per_sample(workload),
        peaks={},  # all cases get the best that was met until the end
        measurements=measured,
        growth=grown,
        rounded_from={v.name: best[v.device].name for v in second},
    )


def _best(entries: Sequence[Entry], device: str) -> Entry | None:
    """The engine's fastest variant on a device; None where none has been measured."""
    ours = [e for e in entries if e.variant.device == device and not e.variant.plain and e.seconds]
    return min(ours, key=lambda e: min(e.seconds), default=None)


def _growth(workload: Workload, best: Sequence[Variant], clients: Sequence[int], repeats: int) -> tuple[Growth, ...]:
    """The cost of several numbers of clients, with the best variant of each device."""
    found = []
    for variant in best if clients else ():
        with entered([workload.grown(k) for k in clients], [variant]) as entries:
            take_turns(entries, [], repeats)
            found.append(Growth(variant.name, tuple(e.result() for e in entries)))
    return tuple(found)


def _same_device(rounded: str, variant: Variant) -> bool:
    """Whether a variant runs on the device of the reduced precision called `rounded`."""
    return rounded.startswith("cuda") == (variant.device == "cuda")


def _clients(text: str | None, default: tuple[int, ...]) -> list[int]:
    """Numbers of clients, ascending."""
    if text is None:
        return list(default)
    try:
        numbers = [int(word) for word in text.split(",") if word.strip()]
    except ValueError:
        raise ConfigError(f"growth: {text!r} is not a comma list of whole numbers") from None
    require("growth", tuple(numbers), COUNT)
    return sorted(set(numbers))
