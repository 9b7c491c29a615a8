"""`semcom channel-check`: the physical layer against its closed forms, with the installed versions and on a device."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from json import dumps
from pathlib import Path
from typing import Any

from channels.check import LIMIT, Finding, Lab, findings, table
from semcom.config import ConfigError, RunError
from semcom.files import write_atomically
from semcom.request import find_device
from semcom.results import versions


def channel_check(device: str, seed: int, json: str | None) -> None:
    """Prints the table and writes it to a file.

    Args:
        device: "auto", "cpu", "cuda", ...
        seed: of every draw.
        json: the file, if there is to be one.

    Raises:
        ConfigError: no such device, or no place for the file.
        RunError: something is wrong; the table shows it.
    """
    if json is not None and Path(json).is_dir():
        raise ConfigError(f"json: {json!r} is a folder; give a file")
    lab = Lab(find_device(device), seed)
    installed = {name: version for name, version in versions().items() if name in ("semcom", "torch", "sionna-no-rt")}
    print(f"{', '.join(f'{n} {v}' for n, v in installed.items())}; device {lab.device}, seed {seed}", flush=True)
    found = list(findings(lab))
    print(table(found))
    if json is not None:
        facts = {"versions": versions(), "device": str(lab.device), "seed": seed, "limit": LIMIT}
        write_atomically(json, dumps(facts | {"findings": [_plain(f) for f in found]}, indent=2) + "\n")
        print(f"written to {json}")
    _judge(found)


@dataclass(frozen=True)
class CheckFlags:
    """Measures the channels against their closed forms: theory, measured, standard error, deviation.

    The exit status is 1 if any deviation is beyond five standard errors.
    """

    device: str = "auto"
    """cpu, cuda, cuda:1, ... (auto: CUDA where there is one)."""
    seed: int = 0
    """Of every draw: the same seed measures the same numbers."""
    json: str | None = None
    """File that the table is written to as well."""


def _judge(found: list[Finding]) -> None:
    """Says that all is well. Raises RunError where it is not."""
    wrong = [f for f in found if not f.agrees]
    if wrong:
        first = wrong[0]
        raise RunError(
            f"{len(wrong)} of {len(found)} quantities are beyond {LIMIT:g} standard errors; the first: "
            f"{first.quantity}: {first.measured:.5g} is not {first.theory:.5g}"
        )
    print(f"{len(found)} quantities, all within {LIMIT:g} standard errors")


def _plain(f: Finding) -> dict[str, Any]:
    """A finding for a JSON file, which knows no infinity."""
    return asdict(f) | {"deviation": f.deviation if math.isfinite(f.deviation) else None}
