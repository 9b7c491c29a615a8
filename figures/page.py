"""The page beside a figure: its caption, the table, the exact command, and what the results depend on."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from experiments.registry import experiment
from experiments.table import aggregate, markdown, markdown_table
from figures.base import Drawing, Measured
from semcom.methods.registry import METHODS
from semcom.runs.folder import commit, versions

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
"""Columns of the setting -> their names on the page."""
SHOTS = ("partition.ways", "partition.shots")
"""Those of them that belong to the partition `shots` alone."""


def page(chosen: Drawing, frame: pd.DataFrame, numbers: pd.DataFrame) -> str:
    """Return the page of a sweep's figure as Markdown.

    Args:
        chosen: the figure.
        frame: the table of the sweep.
        numbers: the plotted numbers.
    """
    source = experiment(chosen.experiment)
    cells = aggregate(frame, source.axis)
    failed = int((frame["status"] == "failed").sum())
    missing = f" {failed} of {len(frame)} runs failed and are missing." if failed else ""
    table = markdown_table(cells, source.axis)
    command = frame["command"].iloc[0]  # it draws the figure, too
    facts = _facts(chosen, frame, source.paper)
    return _page(chosen.name, source.title, f"{chosen.caption(numbers)}{missing}", table, facts, command)


def measured(chosen: Measured, numbers: pd.DataFrame) -> str:
    """Return the page of a figure that measured its own `numbers`, as Markdown."""
    installed = ", ".join(f"{name} {version}" for name, version in versions().items())
    facts = [
        ("Versions", installed),
        ("Commit", commit() or "not known"),
        ("Plotted numbers", f"{chosen.name}.csv"),
    ]
    table = markdown(chosen.table(numbers))
    return _page(chosen.name, chosen.title, chosen.caption(numbers), table, facts, f"semcom figure {chosen.name}")


def _page(name: str, title: str, caption: str, table: str, facts: Sequence[tuple[str, str]], command: str) -> str:
    """Return a page of heading, picture, caption, table, facts and command."""
    lines = [
        f"# {name}: {title}",
        "",
        f"![{title}]({name}.png)",
        "",
        caption,
        "",
        table,
        "",
        *(f"* {fact}: {text}" for fact, text in facts),
        "",
        "```sh",
        command,
        "```",
        "",
    ]
    return "\n".join(lines)


def _facts(chosen: Drawing, frame: pd.DataFrame, paper: str) -> list[tuple[str, str]]:
    """Return where the figure comes from: paper item, scale, setting, seeds, versions, commit."""
    shots = (frame["partition.kind"] == "shots").all()
    columns = {c: n for c, n in SETTING.items() if c in frame and (shots or c not in SHOTS)}
    versions = [f"{c.removeprefix('versions.')} {_distinct(frame[c])}" for c in frame if c.startswith("versions.")]
    return [
        ("Paper item", paper),
        ("Scale", str(frame["scale"].iloc[0])),
        ("Setting", ", ".join(f"{name} {_distinct(_used(frame, c))}" for c, name in columns.items())),
        ("Seeds", _distinct(frame["seed"])),
        ("Versions", ", ".join(versions) or "not stored"),
        ("Commit", _distinct(frame["commit"]) if "commit" in frame else "not stored"),
        ("Plotted numbers", f"{chosen.name}.csv (accuracy as a fraction of 1)"),
    ]


def _used(frame: pd.DataFrame, column: str) -> pd.Series:
    """Return a column without the runs of methods that do not use the field: theirs is a default of no effect."""
    idle = [name for name in frame["method"].unique() if name in METHODS and column in METHODS.get(name).unused]
    return frame.loc[~frame["method"].isin(idle), column]


def _distinct(column: pd.Series) -> str:
    """Return the different values of a column, in their order."""
    return " / ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in column.dropna().unique()) or "not stored"
