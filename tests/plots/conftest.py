"""Folders of sweeps that never ran, with known accuracies."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import semcom
from semcom.config import run_hash
from semcom.studies.registry import find_experiment
from semcom.studies.results.table import TABLE, make_table, make_table_row, write_table
from semcom.studies.sweep.request import apply_request, parse_request
from tests.studies.conftest import quick_resolve  # used by each test
from tests.studies.folders import begin, simple

ACCURACY = {"fedcl": 0.6712345678901234, "fedproto": 0.65, "fedavg": 0.37}
GAIN = {0.0: -0.07, 9.0: 0.0, 18.0: 0.013}


@pytest.fixture(scope="module")
def resolving() -> Iterator[None]:
    """Patch resolving for fixtures of a module, which run before the patch of each test."""
    with pytest.MonkeyPatch.context() as patch:
        quick_resolve.__wrapped__(patch)  # type: ignore[attr-defined]
        yield


@pytest.fixture
def stored(tmp_path: Path) -> Callable[..., Path]:
    """Write the sweep of the letter's figure and return its folder."""

    def write(
        seeds: tuple[int, ...] = (0,), failing: str = "", scale: str = "small", name: str = "letter-fig2b"
    ) -> Path:
        origin = {"experiment": name, "scale": scale, "command": f"semcom sweep {name} --scale {scale}"}
        folder, rows, variants = tmp_path / "sweep", [], {}
        shutil.rmtree(folder, ignore_errors=True)
        for each in apply_request(
            find_experiment(name), scale, parse_request(seeds=seeds, vary={"channel.snr_db": tuple(GAIN)})
        ).grid(scale):
            config = semcom.resolve(each)
            variants[run_hash(config)] = config.method
            failed = config.method == failing
            if failed:
                begin(folder / run_hash(config), config, [])
                (folder / run_hash(config) / "error.txt").write_text("RunError: no\n")
            else:
                accuracy = ACCURACY[config.method] + GAIN[float(config.channel.snr_db)] + config.seed / 50
                versions = {"semcom": "0.1.0", "torch": "2.9.1"}
                simple(folder, config, [accuracy, accuracy], versions=versions, commit="abc1234")
            rows.append(
                make_table_row(config, {**origin, "variant": config.method}, None, "RunError: no" if failed else None)
            )
        (folder / "sweep.json").write_text(json.dumps({**origin, "variants": variants}))
        write_table(make_table(rows), folder / TABLE)
        return folder

    return write
