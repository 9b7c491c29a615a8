"""Whatever lies in a folder, every command says what it is in a line, and does not wait."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semcom.cli import main as cli
from semcom.config import run_hash
from semcom.config.errors import LONGEST
from semcom.studies.results import table
from tests.runs.request.test_nonsense import examples
from tests.studies.folders import config, simple

SWEEP = {"experiment": "study", "scale": "own", "command": "semcom sweep", "axes": {"variant": ["fedcl", "local"]}}
FILES = ("sweep.json", "results.parquet", "results.md")
OF_RUN = ("config.json", "summary.json", "metrics.jsonl", "error.txt", "arrays.npz", "checkpoint.pt")
TEXTS = ("", "{}", "[]", "null", "[" * 100_000, '{"a":' * 100_000, "\xff\xfe", '{"round": 1e999}\n')
VALUES: tuple[Any, ...] = (None, 1, "x", [1], {"a": [1]}, {"variant": None}, {"channel.snr_db": "x"})
COMMANDS = (
    "show S",
    "show S/K",
    "results S",
    "results S --what runs",
    "results S --what rounds",
    "results S --what classes",
    "table S",
    "compare S fedcl local",
    "pack S --arrays --out O/p.zip",
    "report S --out O/r.html",
    "plot S --kind curves --out O",
    "train fedcl --config S/K --clients 0",
    "train fedcl --train.rounds 1 --out S/K",
    "sweep demo --scale smoke --out S --dry-run",
    "sweep demo --scale smoke --out O/new --dry-run --reuse S",
)
LIMIT_S = 60


def contents() -> st.SearchStrategy[str | None | dict[str, Any]]:
    """A text, a pipe (None), or a sweep.json with something else in one of its fields."""
    changed = st.tuples(st.sampled_from([*SWEEP, "variants", "plugins", "set"]), st.sampled_from(VALUES))
    return st.one_of(st.sampled_from([*TEXTS, None]), st.text(), changed.map(lambda pair: {**SWEEP, pair[0]: pair[1]}))


def study(folder: Path) -> str:
    """Write a sweep of four runs, and return the hash of one."""
    runs = [config(method, seed) for method in ("fedcl", "local") for seed in (0, 1)]
    for of in runs:
        simple(folder, of, [0.2, 0.4 + of.seed / 10])
    origin = {"experiment": "study", "scale": "own", "command": "semcom sweep"}
    rows = [table.make_table_row(of, {**origin, "variant": of.method}, None, None) for of in runs]
    table.write_table(table.make_table(rows), folder / "results.parquet")
    (folder / "sweep.json").write_text(json.dumps({**SWEEP, "variants": {run_hash(of): of.method for of in runs}}))
    return run_hash(runs[0])


@contextmanager
def bounded() -> Iterator[None]:
    """End what waits for ever."""
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it waits"))
    signal.alarm(LIMIT_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def check(file: str, content: str | None | dict[str, Any], commands: tuple[str, ...]) -> None:
    """Carry out commands on a study of which one file is something else."""
    with tempfile.TemporaryDirectory() as place:
        key, out = study(Path(place, "S")), Path(place, "O")
        path = Path(place, "S", *([key] if file in OF_RUN else []), file)
        path.unlink(missing_ok=True)
        if content is None:
            os.mkfifo(path)
        else:
            text = content if isinstance(content, str) else json.dumps(content)
            path.write_bytes(text.encode("latin-1" if text[:1] == "\xff" else "utf-8", "surrogatepass"))
        for command in commands:
            out.mkdir(exist_ok=True)
            words = [word.replace("/K", f"/{key}") for word in command.split()]
            words = [f"{place}/{word}" if word[:2] in ("S", "S/", "O", "O/") else word for word in words]
            with bounded():
                status, error = said(words)
            lines = [line for line in error.splitlines() if " WARNING " not in line]
            assert status in (0, 1, 2) and len(lines) <= (status == 2) + 40 * (status != 2), (command, error)
            assert status == 0 or len(lines[-1]) <= LONGEST + 100, (command, error)


def said(words: list[str]) -> tuple[int, str]:
    """Return the exit status of a command, and what it has said on stderr."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryFile("w+") as error, open(os.devnull, "w") as null:
        patch.setattr("sys.stderr", error)
        patch.setattr("sys.stdout", null)
        status = cli.main(words)
        error.seek(0)
        return status, error.read()


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.json", "{}"),
        ("sweep.json", TEXTS[4]),
        ("checkpoint.pt", None),
        ("results.parquet", ""),
    ],
)
def test_known_ones_in_all_commands(file: str, content: str | None | dict[str, Any]) -> None:
    check(file, content, COMMANDS)


@examples(15)
@given(st.sampled_from([*FILES, *OF_RUN]), contents(), st.sampled_from(COMMANDS))
def test_any_file_of_a_study_may_be_anything(file: str, content: str | None | dict[str, Any], command: str) -> None:
    check(file, content, (command,))
