"""`semcom channel-check`: the physical layer against its closed forms, with the installed versions and on a device."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from json import dumps
from typing import Any, NoReturn

import numpy as np
import torch

from semcom.channels import theory
from semcom.channels.check import CHECKS, LIMIT, Finding, Lab, format_findings, run_checks
from semcom.config import AirConfig, RunError
from semcom.engine.air.air import Air, Traffic
from semcom.engine.air.registry import RATES
from semcom.files import resolve_target, write_atomically
from semcom.runs.folder.versions import read_versions
from semcom.runs.request.resolve import find_device
from semcom.screen import say

CLIENTS = (4, 20)
BAND, SAMPLES, FEATURES = 240, 90, 64
"""Subcarriers, and a mini-batch that fills a slot of them: 240 x 12 = 90 x 32."""


def channel_check(device: str, seed: int, json: str | None) -> None:
    """Print the table, and write it to a file.

    Args:
        device: "auto", "cpu", "cuda", ...
        seed: of every draw.
        json: the file (None: none is written).

    Raises:
        ConfigError: no such device, or no place for the file.
        RunError: something is wrong; the table shows it.
    """
    target = None if json is None else resolve_target(json, "json")
    lab = Lab(torch.empty(0, device=find_device(device)).device, seed)  # with its number: Sionna knows no bare "cuda"
    installed = {
        name: version for name, version in read_versions().items() if name in ("semcom", "torch", "sionna-no-rt")
    }
    say(f"{', '.join(f'{n} {v}' for n, v in installed.items())}; device {lab.device}, seed {seed}")
    found = list(run_checks(lab, {**CHECKS, "accounting": check_channel_accounting}))
    say(format_findings(found))
    if target is not None:
        facts = {"versions": read_versions(), "device": str(lab.device), "seed": seed, "limit": LIMIT}
        write_atomically(target, dumps(facts | {"findings": [_make_plain(f) for f in found]}, indent=2) + "\n")
        say(f"written to {json}")
    _judge(found)


def check_channel_accounting(lab: Lab) -> Iterator[Finding]:
    """Measure K clients in one band: each has 1/K of it, takes K times as long, and needs no more energy."""
    links = {"AWGN": ("awgn", {}), "OFDM": ("ofdm", {"profile": "rayleigh", "subcarriers": BAND})}
    for name, (kind, options) in links.items():
        alone = _measure_traffic(lab, 1, kind, options)
        for clients in CLIENTS:
            together = _measure_traffic(lab, clients, kind, options)
            title, longer = f"{name}, {clients} clients in a band", theory.airtime_s(1.0, clients, 1.0)
            yield _compare_counts(f"{title}: airtime of each / alone", longer, together.airtime_s, alone.airtime_s)
            yield _compare_counts(f"{title}: energy of each / alone", 1.0, together.energy_j, alone.energy_j)


def _measure_traffic(lab: Lab, clients: int, kind: str, options: Mapping[str, Any]) -> Traffic:
    """Measure the traffic of each of a band's clients in 5 steps; on OFDM it fills whole slots of the client's part."""

    def nothing(*_: object) -> NoReturn:
        raise AssertionError("counting draws nothing and sends nothing")

    link = lab.make(kind, **options).in_band(clients, clients, SAMPLES, FEATURES)
    air = Air(
        AirConfig(bandwidth_hz=link.bandwidth_hz or 1e6, options=RATES.get("fixed").Options()),
        link,
        nothing,
        nothing,
        nothing,
    )
    air.begin(1, clients)
    air.features(np.arange(clients), [[SAMPLES] * 5] * clients, FEATURES, 0.0)
    return Traffic(**air.per_client_round()["up"])


def _compare_counts(quantity: str, expected: float, count: float, alone: float) -> Finding:
    """Compare a ratio of two counts with its formula, exact up to rounding."""
    return Finding(quantity, expected, count / alone, expected * np.finfo(float).eps, None)


@dataclass(frozen=True)
class CheckFlags:
    """Measure the channels against their closed forms.

    The table has theory, measured value, standard error and deviation.

    The exit status is 1 if any deviation is beyond five standard errors.
    """

    device: str = "auto"
    """Device, such as cpu, cuda or cuda:1 (auto: CUDA where there is one)."""
    seed: int = 0
    """Seed of every draw: the same one measures the same numbers."""
    json: str | None = None
    """JSON file that the table is written to as well."""


def _judge(found: list[Finding]) -> None:
    """Print that all is well. Raises RunError where it is not."""
    wrong = [f for f in found if not f.agrees]
    if wrong:
        first = wrong[0]
        raise RunError(
            f"{len(wrong)} of {len(found)} quantities are beyond {LIMIT:g} standard errors; the first: "
            f"{first.quantity}: {first.measured:.5g} is not {first.theory:.5g}"
        )
    say(f"{len(found)} quantities, all within {LIMIT:g} standard errors")


def _make_plain(f: Finding) -> dict[str, Any]:
    """Convert a finding to plain values for JSON, which has no infinity."""
    return asdict(f) | {"deviation": f.deviation if math.isfinite(f.deviation) else None}
