"""The page beside a figure: its caption, the table, the exact command, and what the results depend on."""

from __future__ import annotations

import pandas as pd

from experiments.registry import experiment
from experiments.table import aggregate, markdown_table
from figures.base import Drawing

SETTING = {
    "data.name": "dataset",
    "clients": "clients",
    "partition.kind": "partition",
    "partition.ways": "ways",
    "partition.shots": "shots",
    "channel.kind": "channel",
    "train.rounds": "rounds",
    "train.local_epochs": "local epochs",
    "train.batch_size": "batch size",
    "train.optimizer": "optimiser",
    "train.lr": "rate",
}
"""Columns of the setting -> how the page calls them."""


def page(chosen: Drawing, frame: pd.DataFrame, numbers: pd.DataFrame) -> str:
    """The page as Markdown.

    Args:
        chosen: the figure.
        frame: the table of the sweep.
        numbers: the plotted numbers.
    """
    source = experiment(chosen.experiment)
    cells = aggregate(frame, source.axis)
    failed = int((frame["status"] == "failed").sum())
    missing = f" {failed} of {len(frame)} runs failed and are missing." if failed else ""
    return "\n".join(
        [
            f"# {chosen.name}: {source.title}",
            "",
            f"![{source.title}]({chosen.name}.png)",
            "",
            f"{chosen.caption(numbers)}{missing}",
            "",
            markdown_table(cells, source.axis),
            "",
            *(f"* {name}: {text}" for name, text in _facts(chosen, frame, source.paper)),
            "",
            "```sh",
            frame["command"].iloc[0],  # it draws the figure, too
            "```",
            "",
        ]
    )


def _facts(chosen: Drawing, frame: pd.DataFrame, paper: str) -> list[tuple[str, str]]:
    """Where the figure comes from: paper item, scale, setting, seeds, versions, commit."""
    shots = (frame["partition.kind"] == "shots").all()
    columns = {c: n for c, n in SETTING.items() if shots or c not in ("partition.ways", "partition.shots")}
    versions = [f"{c.removeprefix('versions.')} {_distinct(frame[c])}" for c in frame if c.startswith("versions.")]
    return [
        ("Paper item", paper),
        ("Scale", str(frame["scale"].iloc[0])),
        ("Setting", ", ".join(f"{name} {_distinct(frame[c])}" for c, name in columns.items())),
        ("Seeds", _distinct(frame["seed"])),
        ("Versions", ", ".join(versions) or "not stored"),
        ("Commit", _distinct(frame["commit"]) if "commit" in frame else "not stored"),
        ("Plotted numbers", f"{chosen.name}.csv (accuracy as a fraction of 1)"),
    ]


def _distinct(column: pd.Series) -> str:
    """The different values of a column, in their order."""
    return " / ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in column.dropna().unique()) or "not stored"
