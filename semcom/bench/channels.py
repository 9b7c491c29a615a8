"""`semcom bench channels`: what a pass through each link costs, beside the bare training step of the DCGAN encoder."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import torch

from semcom.bench.machine import machine, one_thread
from semcom.bench.names import chosen
from semcom.bench.passes import CALLS, CLIENTS, FEATURES, SAMPLES, STEPS, Case, EncoderStep, Pass, seconds
from semcom.bench.text import Cells, aligned, plural
from semcom.config.checks import COUNT, require
from semcom.engine.host.memory import keep_freed_memory

logger = logging.getLogger(__name__)

FLAT, KNOWN, ESTIMATED = ({"cpu": 0.005, "cuda": 0.10}, {"cpu": 0.01, "cuda": 0.25}, {"cpu": 0.02, "cuda": 0.25})
"""Targets of links without subcarriers, and of OFDM with a known and with an estimated channel."""
CASES: Mapping[str, Case] = {
    case.name: case
    for case in (
        Case("ideal", "ideal"),
        Case("awgn", "awgn", {}, FLAT),
        Case("rayleigh", "rayleigh", {}, FLAT),
        Case("rician", "rician", {}, FLAT),
        Case("ofdm-rayleigh", "ofdm", {"profile": "rayleigh"}, KNOWN),
        Case("ofdm-tdl", "ofdm", {"profile": "tdl-a"}, KNOWN),
        Case("ofdm-tdl-ls", "ofdm", {"profile": "tdl-a", "csi": "ls"}, ESTIMATED),
        Case("ofdm-cdl", "ofdm", {"profile": "cdl-a"}, KNOWN),
        Case("ofdm-cdl-ls", "ofdm", {"profile": "cdl-a", "csi": "ls"}, ESTIMATED),
        Case("digital", "digital"),
        Case("digital-rayleigh", "digital", {"fading": "rayleigh"}),
    )
}
"""What is measured, by name."""


@dataclass(frozen=True)
class LinkResult:
    """What one link took.

    Attributes:
        case: which one.
        call: seconds per call, forward and backward, in each repeat.
        draw: seconds to draw one client's realisation of a round, one direction, in each repeat.
    """

    case: Case
    call: tuple[float, ...]
    draw: tuple[float, ...]


@dataclass(frozen=True)
class DeviceResult:
    """All links on one device; `step` are seconds of the bare encoder step of all clients in each repeat."""

    device: str
    step: tuple[float, ...]
    links: tuple[LinkResult, ...]

    def share(self, link: LinkResult) -> float:
        """Median call over the median bare step."""
        return median(link.call) / median(self.step)

    def round_share(self, link: LinkResult, clients: int) -> float:
        """Median draw for all clients over the median bare steps of the round that it is for."""
        return clients * median(link.draw) / (STEPS * median(self.step))

    def met(self, link: LinkResult) -> bool | None:
        """Whether the target is met; None where there is none."""
        most = link.case.most.get(self.device)
        return None if most is None else self.share(link) < most


@dataclass(frozen=True)
class ChannelsReport:
    """A whole invocation."""

    machine: Mapping[str, Any]
    clients: int
    repeats: int
    devices: Sequence[DeviceResult]


def bench(links: str | None = None, repeats: int | None = None, quick: bool = False) -> ChannelsReport:
    """Measures on the CPU with one thread, and on a GPU where there is one. The encoder and the links take turns.

    Args:
        links: names of `CASES`, separated by commas (None: all).
        repeats: that count, after one that does not (None: 15).
        quick: 2 clients and 2 repeats.

    Raises:
        ConfigError: a link that is not measured, or a number that makes no sense.
    """
    names = list(CASES) if links is None else chosen("links", links, list(CASES))
    repeats = (2 if quick else 15) if repeats is None else repeats
    require("repeats", repeats, COUNT)
    clients = 2 if quick else CLIENTS
    facts, devices = machine(), ["cpu", "cuda:0"] if torch.cuda.is_available() else ["cpu"]
    keep_freed_memory()
    with one_thread(), torch.random.fork_rng():
        found = [_measure(torch.device(d), [CASES[name] for name in names], clients, repeats) for d in devices]
    return ChannelsReport(facts, clients, repeats, found)


def _measure(device: torch.device, cases: Sequence[Case], clients: int, repeats: int) -> DeviceResult:
    """All links on a device, in one order and then the other; the first turn is the warm-up."""
    step, passes = EncoderStep(device, clients), {case.name: Pass(case, device, clients) for case in cases}
    steps: list[float] = []
    calls: dict[str, list[float]] = {name: [] for name in passes}
    draws: dict[str, list[float]] = {name: [] for name in passes}
    for turn in range(repeats + 1):
        steps.append(seconds(step, device))
        logger.info("%s, turn %d of %d: bare step %.3g s", device.type, turn, repeats, steps[-1])
        for name in passes if turn % 2 else reversed(passes):
            calls[name].append(seconds(passes[name], device, CALLS))
            draws[name].append(seconds(passes[name].draw, device))
    links = [LinkResult(case, tuple(calls[case.name][1:]), tuple(draws[case.name][1:])) for case in cases]
    return DeviceResult(device.type, tuple(steps[1:]), tuple(links))


def table(report: ChannelsReport) -> str:
    """A block per device, after a line about the machine."""
    m = report.machine
    facts = [m["cpu"], f"{m['cores']} cores", m["gpu"], f"torch {m['versions']['torch']}"]
    work = f"{report.clients} clients x {SAMPLES} samples x {FEATURES // 2} symbols, forward and backward"
    head = f"{', '.join(f for f in facts if f)}; {work}; {plural(report.repeats, 'repeat')} after a warm-up"
    return "\n\n".join([head, *(_device(result, report.clients) for result in report.devices)])


def _device(result: DeviceResult, clients: int) -> str:
    """One device: the bare step, a row per link, and what missed its target."""
    low, middle, high = _milliseconds(result.step)
    threads = ", one thread" if result.device == "cpu" else ""
    title = f"{result.device}{threads}; bare step of the encoders: {middle} ms (min {low}, max {high})"
    call, draw = (
        ("ms/call: min", "median", "max", "% of step", "target"),
        ("ms/draw: min", "median", "max", "% of round"),
    )
    rows: list[Cells] = [("link", *call, *draw), *(_row(result, link, clients) for link in result.links)]
    missed = [link.case.name for link in result.links if result.met(link) is False]
    aims = f"targets missed by {', '.join(missed)}" if missed else "targets met"
    draws = f"a draw is one client's round of {STEPS} steps in one direction; % of round: those of all clients"
    return "\n".join([title, *aligned(rows), f"{draws}; {aims}"])


def _row(result: DeviceResult, link: LinkResult, clients: int) -> Cells:
    """One link."""
    most = link.case.most.get(result.device)
    target = "-" if most is None else f"< {100 * most:g}"
    share = f"{100 * result.share(link):.3f}"
    drawn = f"{100 * result.round_share(link, clients):.3f}"
    return (link.case.name, *_milliseconds(link.call), share, target, *_milliseconds(link.draw), drawn)


def _milliseconds(times: Sequence[float]) -> tuple[str, str, str]:
    """Least, median and most."""
    low, middle, high = (f"{1e3 * t:.{4 if t >= 1 else 3}g}" for t in (min(times), median(times), max(times)))
    return low, middle, high


def as_json(report: ChannelsReport) -> dict[str, Any]:
    """Everything as plain values."""
    return {
        "benchmark": "channels",
        "machine": dict(report.machine),
        "clients": report.clients,
        "samples": SAMPLES,
        "features": FEATURES,
        "steps_per_draw": STEPS,
        "repeats": report.repeats,
        "devices": [
            {
                "device": result.device,
                "bare_step_seconds": list(result.step),
                "links": [
                    asdict(link)
                    | {
                        "share_of_step": result.share(link),
                        "met": result.met(link),
                        "draw_share_of_round": result.round_share(link, report.clients),
                    }
                    for link in result.links
                ],
            }
            for result in report.devices
        ],
    }
