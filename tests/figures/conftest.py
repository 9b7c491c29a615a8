"""Tables of sweeps that never ran, with known accuracies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.registry import experiment
from experiments.request import altered, asked
from experiments.results import TABLE, row, table, write_table

ACCURACY = {"fedcl": 0.6712345678901234, "fedproto": 0.65, "fedavg": 0.37}
GAIN = {0.0: -0.07, 9.0: 0.0, 18.0: 0.013}


@pytest.fixture
def stored(tmp_path: Path) -> Callable[..., Path]:
    """Writes results.parquet for the letter's figure; returns its folder."""

    def write(
        seeds: tuple[int, ...] = (0,), failing: str = "", scale: str = "small", name: str = "letter-fig2b"
    ) -> Path:
        origin = {"experiment": name, "scale": scale, "command": f"semcom sweep {name} --scale {scale}"}
        rows = []
        for config in altered(experiment(name), scale, asked(seeds=seeds)).grid(scale):
            accuracy = ACCURACY[config.method] + GAIN[float(config.channel.snr_db)] + config.seed / 50
            found = {
                "accuracy": accuracy,
                "accuracy_std": 0.11,
                "versions": {"semcom": "0.1.0", "torch": "2.9.1"},
                "commit": "abc1234",
            }
            failed = config.method == failing
            rows.append(
                row(
                    config,
                    {**origin, "variant": config.method},
                    None if failed else found,
                    "RunError: no" if failed else None,
                )
            )
        write_table(table(rows), tmp_path / "sweep" / TABLE)
        return tmp_path / "sweep"

    return write
