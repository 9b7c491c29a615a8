"""The parts that all benchmarks share: flags (fields of dataclasses), clocks and tables."""

from __future__ import annotations

import json
import logging
import platform
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent
from timeit import default_timer
from typing import Any

import joblib
import pandas as pd
import psutil
import torch

from semcom.channels.options import COUNT
from semcom.config import ConfigError, RunError
from semcom.config.checks import require_in_config
from semcom.files import format_json, write_atomically
from semcom.runs.folder.machine import name_processor
from semcom.runs.folder.versions import read_commit, read_versions

logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)  # the timers import it; it warns of no GPU
from torch.utils import benchmark  # noqa: E402

logger = logging.getLogger(__name__)

BUSY = 0.3  # load per core from which others must be at work: threads that wait for each other then suffer most
MIB = 2**20


@dataclass(frozen=True)
class Outcome:
    """Outcome of a benchmark: tables for a terminal, all measurements, and the settings that all rows share.

    Texts in the column "error" describe failures of the job in the column "name".
    """

    text: str
    rows: pd.DataFrame
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Bench:
    """A benchmark: its flags, and how it measures."""

    quick: bool = False
    """Tiny workloads: they show that everything works; the numbers mean nothing."""
    json: str | None = None
    """JSON file that everything measured is written to."""

    def carry_out(self) -> None:
        """Measure, print the tables, write the file.

        Raises ConfigError, before anything is measured, for flags that cannot be met, and RunError where some of it
        failed; the tables and the file hold the rest.
        """
        if self.json is not None and Path(self.json).is_dir():
            raise ConfigError(f"json: {self.json!r} is a folder; give a file")
        outcome = self.measure()
        print(outcome.text)
        if self.json is not None:
            rows = json.loads(outcome.rows.to_json(orient="records", double_precision=15))  # a missing number is null
            write_atomically(self.json, format_json({**outcome.settings, "rows": rows}, indent=2) + "\n")
            print(f"written to {self.json}")
        if "error" in outcome.rows and len(failed := outcome.rows.dropna(subset="error")):
            first = failed.iloc[0]
            raise RunError(f"{len(failed)} measurements failed; the first: {first['name']}: {first.error}")

    @abstractmethod
    def measure(self) -> Outcome:
        """Measure. Raises ConfigError for flags that cannot be met."""

    def count(self, name: str, full: int, quick: int) -> int:
        """Read a whole number from a flag, or its default. Raises ConfigError below 1."""
        value = getattr(self, name)
        require_in_config(name, value, COUNT)
        return value if value is not None else quick if self.quick else full


def choose_bench(field: str, text: str | None, known: Sequence[str]) -> list[str]:
    """Parse names separated by commas (None: all), in the order of `known`. Raises ConfigError for an unknown name."""
    given = list(known) if text is None else [name.strip() for name in text.split(",")]
    for name in given:
        if name not in known:
            raise ConfigError(f"{field}: {name!r} is not one of {', '.join(known)}")
    return [name for name in known if name in given]


def describe_bench_machine() -> dict[str, Any]:
    """Describe the machine before any work begins, and warn if others are at work."""
    cores, load = joblib.cpu_count(), psutil.getloadavg()[0]
    if load > BUSY * cores:
        logger.warning("others are at work here (load %.1f on %d cores): numbers will be off", load, cores)
    cpu, found = name_processor(), read_versions()
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "title": ", ".join(part for part in (cpu, f"{cores} cores", gpu, f"torch {found['torch']}") if part),
        "cpu": cpu,
        "cores": cores,
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "load": load,
        "gpu": gpu,
        "cuda": torch.version.cuda,
        "system": platform.platform(),
        "versions": found,
        "commit": read_commit(),
    }


def choose_bench_clock(device: torch.device | str) -> Callable[[], float]:
    """Choose the wall clock; that of a GPU waits until the device has done all its work."""
    return benchmark.timer if torch.device(device).type == "cuda" else default_timer


def measure_bench_seconds(work: Callable[[], object], clock: Callable[[], float]) -> float:
    """Measure how long something takes once."""
    begun = clock()
    work()
    return clock() - begun


def make_bench_timer(work: Callable[[], object], device: torch.device | str) -> benchmark.Timer:
    """Make torch's timer of something short, on one thread."""
    return benchmark.Timer("work()", globals={"work": work}, timer=choose_bench_clock(device))


def format_bench_cells(title: str, values: pd.Series, form: str) -> tuple[str, Iterable[str]]:
    """Format numbers as a column, with a dash for a missing one."""
    return title, ["-" if pd.isna(value) else format(value, form) for value in values]


def spread_bench(lists: pd.Series) -> pd.DataFrame:
    """Compute min, median and max of each list of numbers; NaN for an empty list."""
    return lists.explode().astype(float).groupby(level=0, sort=False).agg(["min", "median", "max"])


def format_bench_spread(title: str, lists: pd.Series, form: str) -> list[tuple[str, Iterable[str]]]:
    """Format min, median and max of each list of numbers as three columns."""
    return [
        format_bench_cells(f"{title}: {name}" if name == "min" else name, v, form)
        for name, v in spread_bench(lists).items()
    ]


def format_bench_table(*columns: tuple[str, Iterable[str]]) -> str:
    """Align columns: the first to the left, the others to the right."""
    (first, names), *others = columns
    rows = zip(*(texts for _, texts in others), strict=True)
    frame = pd.DataFrame(list(rows), index=list(names), columns=[title for title, _ in others])
    return indent(frame.rename_axis(columns=first).to_string(col_space=[len(title) + 1 for title in frame]), "   ")
