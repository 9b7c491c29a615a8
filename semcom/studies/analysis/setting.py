"""What the runs of a study have in common, in words: the rounds that their numbers are of, and their setting."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import pandas as pd

from semcom.methods.registry import METHODS
from semcom.runs.accuracy import LAST
from semcom.studies.analysis.compare import Views, choose_view
from semcom.studies.names import name_value

if TYPE_CHECKING:
    from semcom.studies.analysis.study import Study

SETTING = {
    "data.name": "dataset",
    "clients": "clients",
    "partition.kind": "partition",
    "partition.ways": "ways",
    "partition.shots": "shots",
    "partition.beta": "Dirichlet beta",
    "partition.classes": "classes of a client",
    "model.encoder": "encoder",
    "model.features": "features",
    "channel.kind": "channel",
    "train.rounds": "rounds",
    "train.local_epochs": "local epochs",
    "train.local_steps": "local steps",
    "train.batch_size": "batch size",
    "train.optimizer": "optimiser",
    "train.lr": "rate",
}
"""Columns of the setting -> their names."""
OF_ONE_ROUND = ("best", "best_round", "last")
"""Numbers that say themselves which round they are of, or what follows the name of a task's metric in such a one."""


def describe_rounds(study: Study, metric: str, view: Views = None) -> str:
    """Describe the rounds that a number of a view is of, in a sentence; nothing where its name says it, or of others.

    Args:
        study: the runs; those that are not done do not count.
        metric: number of a view, under its own name.
        view: name of the view, or variant -> view, as of `Study.compare`.
    """
    lengths, last_stage = set[int](), list[str]()
    for run in study.stored:
        name = choose_view(view, run.variant) or run.headline
        if run.summary is None or metric not in (run.view(name) or {}):
            continue
        if name in run.summary.get("finish", {}).get("views", {}):
            last_stage.append(name_value("variant", run.variant))
        elif "rounds" in run.summary:  # an experiment's own training may not tell
            lengths.add(min(LAST, run.summary["rounds"]))
    if metric.removeprefix(f"{study.metric.name}_") in OF_ONE_ROUND or not (lengths or last_stage):
        return ""
    window = f"mean of its last {' or '.join(map(str, sorted(lengths)))} rounds" if max(lengths, default=0) > 1 else ""
    of_rounds = window or ("one after its last round" if lengths else "")
    after = f"one after its last stage ({', '.join(dict.fromkeys(last_stage))})" if last_stage else ""
    return f"The number of a run is the {' or the '.join(filter(None, (of_rounds, after)))}."


def describe_setting(frame: pd.DataFrame, shown: Collection[str] = ()) -> str:
    """List what `runs` of a study have in common, such as "dataset cifar10, partition dirichlet, Dirichlet beta 0.1".

    Args:
        frame: `Study.runs`.
        shown: columns that are told elsewhere.
    """
    given = {c: frame[c] for c in SETTING if c in frame and c not in shown and frame[c].notna().any()}
    return ", ".join(f"{SETTING[c]} {list_distinct(_used(frame, c))}" for c in given)


def list_distinct(column: pd.Series) -> str:
    """List the different values of a column, in their order."""
    return " / ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in column.dropna().unique()) or "not stored"


def _used(frame: pd.DataFrame, column: str) -> pd.Series:
    """Return a column without the runs of methods that do not use the field: theirs is a default of no effect."""
    idle = [name for name in frame["method"].unique() if name in METHODS and column in METHODS.get(name).unused]
    return frame.loc[~frame["method"].isin(idle), column]
