"""What is said of requests that cannot be met: `python -m tests.wordings`, with `--write` after a change of words.

wordings.txt is the table and the record: below each request stands the one line with which it is refused. A command is
given after "$", what Python is asked after ">>>"; the names that it may use are those of this file. Tests of a refusal
look at `ConfigError.field` and at what is left behind, and leave the words to this file.
"""

# ruff: noqa: F401 - the requests use what is imported here

from __future__ import annotations

import contextlib
import difflib
import functools
import io
import itertools
import math
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import semcom
from semcom import (
    ChannelConfig,
    DataConfig,
    ModelConfig,
    RunConfig,
    TrainConfig,
    embedding,
    knn_purity,
    resolve,
    silhouette,
    study,
)
from semcom.attacks.attack import Attack
from semcom.channels import make_link, theory
from semcom.channels.coding.image import ImageChain
from semcom.channels.coding.modem import make_modem
from semcom.channels.coding.qam import QAM
from semcom.cli import main as cli
from semcom.cli.grids import Typed
from semcom.config import ConfigError
from semcom.data.load import load_dataset
from semcom.data.partitions import partition_dataset
from semcom.runs.request import limits
from semcom.studies.analysis.sheet import make_sheet
from semcom.studies.experiment import Experiment, Grid
from semcom.studies.grid import set_fields
from semcom.studies.overrides import parse_seeds_override, parse_vary_override
from semcom.studies.registry import EXPERIMENTS, find_experiment
from semcom.studies.sweep.request import apply_request, parse_request
from tests import worlds
from tests.data import test_datasets, test_partitions
from tests.runs.request import test_unused_settings
from tests.runs.request.test_nonsense import Hostile, Stranger, deep
from tests.runs.rounds import test_new_clients
from tests.studies import folders, test_overrides

RECORD = Path(__file__).with_suffix(".txt")
CUT = (
    r"((?:known are|there are|it is for|give one of) (?:[^,;]+, ){2})(?:[^,;]+, ){4}[^;]*",  # names: there will be more
    r"((?:is no JSON file|cannot be imported: (?:ModuleNotFound|FileNotFound|Syntax)Error): )[^;]*",  # Python's words
    r"(archive of plain arrays \()[^;]*",
    r"(.{300}).*",
)
"""Patterns of which the first group is recorded."""

NAMELESS = ("'", "clients, seed: ", "a value of type ", "hyper.a value of type ", "a b ")
"""How lines begin that are about a stray word, several fields, or a key that is no name."""
LINKS = (">>> make_link(", ">>> ImageChain(", ">>> QAM(", ">>> make_modem(", ">>> theory.")
"""Requests to the package `channels`, which knows no ConfigError."""


def commanded(line: str) -> None:
    """Carry out a command, which prints its refusal and leaves no file."""
    before, box, out = sorted(Path().iterdir()), io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(box), contextlib.redirect_stdout(out):
        status = cli.main(shlex.split(line))
    said = box.getvalue()
    assert (status, out.getvalue()) == (2, "") and said.startswith("semcom: error: "), (line, status, said)
    assert sorted(Path().iterdir()) == before, f"{line}: it left a file"
    raise ConfigError(said.removeprefix("semcom: error: ").removesuffix("\n"))


def stored(text: str) -> None:
    """Train what a config.json holds."""
    with file("config.json", lambda path: path.write_text(text)):
        commanded("train --config config.json --out out")


def plugin(source: str) -> None:
    """Train with a plug-in, of which no module stays behind."""
    with file("broken.py", lambda path: path.write_text(source)):
        try:
            commanded("train fedavg --out out --plugin broken.py")
        finally:
            assert not [name for name in sys.modules if "broken.py" in name]


@contextlib.contextmanager
def file(name: str, write: Callable[[Path], object]) -> Iterator[None]:
    """Hold a file while a request is made."""
    write(Path(name))
    try:
        yield
    finally:
        Path(name).unlink()


def run(fields: dict[str, Any]) -> None:
    semcom.run(RunConfig(**{"method": "fedavg", "device": "cpu", "out": "out", **fields}))


def given(method: str, **fields: Any) -> None:
    resolve(test_unused_settings.request(method, **fields))


def joining(**options: Any) -> None:
    semcom.run(test_new_clients.request("local", out="out", **options))


def asked(request: dict[str, Any], of: Experiment = test_overrides.MINE) -> None:
    apply_request(of, "smoke", parse_request(**request)).runs("smoke")


def sweep(name: str, **options: Any) -> None:
    semcom.sweep(name, out="r", **options)


def declared(fields: dict[str, Any]) -> None:
    """Sweep an experiment with some fields of its own."""
    vary = {"channel.snr_db": (9.0,), "seed": (0,), **fields.pop("vary", {})}
    grid = Grid(set_fields(find_experiment("demo").scales["smoke"].base, fields.pop("base", {})), vary)
    usual = {"title": "", "paper": "none", "variants": ("fedavg",), "scales": {"smoke": grid}}
    EXPERIMENTS._added["mixed"] = Experiment("mixed", **{**usual, **fields})
    sweep("mixed")


def npz(change: dict[str, Any]) -> None:
    with file("set.npz", lambda path: np.savez(path, **test_datasets.arrays(**change))):
        commanded("train fedavg --out out --data.name set.npz")


def split_file(change: dict[str, Any]) -> None:
    arrays = {"train_0": [0, 1], "test_0": [300], "train_1": [2, 3], "test_1": [301]} | change
    given = {name: np.array(value) for name, value in arrays.items() if value is not None}
    with file("split.npz", lambda path: np.savez(path, **given)):
        divide(2, kind="file", path="split.npz")


def divide(clients: int, **options: Any) -> None:
    partition_dataset(test_partitions.EVEN, worlds.divided(**options), clients, 0)


x, y, CPU = np.arange(480.0).reshape(80, 6), np.arange(80) % 2, torch.device("cpu")
typed, number, JOINT = Typed(["fedproto", "fedcl"], RunConfig()), test_overrides.typed, test_overrides.JOINT


def refusal(request: str) -> str:
    """Return what is said of a request: one line, which names a field."""
    before = sorted(Path().iterdir())
    try:
        if request.startswith("$ semcom"):
            commanded(request.removeprefix("$ semcom"))
        else:
            eval(request.removeprefix(">>> "), dict(globals()))
    except ValueError as error:
        line = str(error)
        assert line.isprintable() and len(line) <= 1005, request
        assert ConfigError(line).field or line.startswith(NAMELESS), f"{request}: no field in {line}"
        assert isinstance(error, ConfigError) or request.startswith(LINKS), f"{request}: {error!r}"
        assert sorted(Path().iterdir()) == before, f"{request}: it left a file"
        line = line.replace(os.getcwd() + os.sep, "")
        return functools.reduce(lambda text, pattern: re.sub(pattern, r"\1...", text), CUT, line)
    raise AssertionError(f"{request}: it was not refused")


def record(text: str) -> str:
    """Return the record with what is said today below each request."""
    lines: list[str] = []
    for line in filter(None, text.splitlines()):
        if line.startswith("# "):
            lines += ["", line, ""]
        elif line.startswith(("$ ", ">>> ")):
            lines += [line, refusal(line)]
    return "\n".join(lines).lstrip() + "\n"


def main() -> int:
    """Compare all wordings, print what differs, and return the exit status."""
    before = RECORD.read_text()
    limits.measure_free_memory = lambda device: 2**30  # type: ignore[assignment]
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for method, snr, seed in itertools.product(("fedavg", "fedcl"), (0.0, 9.0), range(3)):
            folders.simple(Path("s"), folders.config(method, seed, snr), [0.5, 0.5])
        failed = folders.begin(Path("s/bad"), folders.config("fedcl", 3, 9.0), [])
        (failed / "error.txt").write_text("RunError: the loss is NaN\n")
        now = record(before)
    if "--write" in sys.argv:
        RECORD.write_text(now)
    lines = list(difflib.unified_diff(before.splitlines(), now.splitlines(), "before", "now", lineterm="", n=1))
    print("\n".join(lines) or "unchanged")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
