"""The common setting of a study's runs, in words, and the rounds that their numbers belong to."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING

import pandas as pd

from semcom.channels import LINKS
from semcom.config import ChannelConfig, ConfigError, RunConfig
from semcom.declarations import describe_entry
from semcom.methods.registry import METHODS
from semcom.runs.result.accuracy import LAST
from semcom.studies.analysis.compare import Views, choose_view
from semcom.studies.analysis.defaults import list_default_fields
from semcom.studies.names import SHIPPED
from semcom.studies.overrides import format_plain_value, name_file

if TYPE_CHECKING:
    from semcom.studies.analysis.study import Study

SETTING = (
    "data.name",
    "clients",
    "partition.kind",
    "partition.ways",
    "partition.shots",
    "partition.beta",
    "partition.classes",
    "model.encoder",
    "model.features",
    "channel.kind",
    "channel.snr_db",
    "train.rounds",
    "train.local_epochs",
    "train.local_steps",
    "train.batch_size",
    "train.optimizer",
    "train.lr",
)
"""Columns of the setting."""
AIR = ("channel", "air", "network")
"""Sections whose other fields are in it where they are not what they are in a run that sets none of them."""
OF_ONE_ROUND = ("best", "best_round", "last")
"""Numbers that say themselves which round they are of, or what follows the name of a task's metric in such a one."""


def describe_rounds(study: Study, metric: str, view: Views = None) -> str:
    """Describe the rounds that a number of a view is of, in a sentence; nothing where its name says it, or of others.

    Args:
        study: the runs; those that are not done do not count.
        metric: number of a view, under its own name.
        view: name of the view, or variant -> view, as of `Study.compare`.
    """
    lengths, last_stage, stopped = set[int](), list[str](), False
    for run in study.stored:
        name = choose_view(view, run.variant) or run.headline
        if run.summary is None or metric not in (run.view(name) or {}):
            continue
        if name in run.summary.get("finish", {}).get("views", {}):
            last_stage.append(study.labels.value("variant", run.variant))
        elif "stopped" in run.summary:
            stopped = True
        elif "rounds" in run.summary:  # an experiment's own training may not tell
            lengths.add(min(LAST, run.summary["rounds"]))
    if metric.removeprefix(f"{study.metric.name}_") in OF_ONE_ROUND or not (lengths or last_stage or stopped):
        return ""
    window = f"mean of its last {' or '.join(map(str, sorted(lengths)))} rounds" if max(lengths, default=0) > 1 else ""
    of_rounds = window or ("one after its last round" if lengths else "")
    after = f"one after its last stage ({', '.join(dict.fromkeys(last_stage))})" if last_stage else ""
    early = "mean from its best round on validation images on, if it stopped early" if stopped else ""
    return f"The number of a run is the {' or the '.join(filter(None, (of_rounds, early, after)))}."


def describe_setting(frame: pd.DataFrame, shown: Collection[str] = ()) -> str:
    """List what `runs` of a study have in common, such as "dataset cifar10, partition dirichlet, Dirichlet beta 0.1".

    Args:
        frame: `Study.runs`.
        shown: columns that are told elsewhere.
    """
    columns = [c for c in (*SETTING, *_list_set_fields(frame)) if c in frame and c not in shown]
    used = {c: _drop_unused(frame, c) for c in dict.fromkeys(columns)}
    return ", ".join(SHIPPED.place(c, list_settings(values)) for c, values in used.items() if values.notna().any())


def _list_set_fields(frame: pd.DataFrame) -> list[str]:
    """List the columns of `AIR` of which a run has another value than one that sets no field of its channel."""
    found = list[str]()
    for kind, runs in frame.groupby("channel.kind") if "channel.kind" in frame else ():
        with suppress(ConfigError):  # of a plug-in that is not loaded
            plain = list_default_fields(RunConfig("fedavg", channel=ChannelConfig(str(kind))))
            usual = {c: format_plain_value(v) for c, v in plain.items() if c.split(".")[0] in AIR and c in runs}
            others = [c for c, v in usual.items() if _has_other(runs[c], v)]  # few of a hundred
            found += [c for c in others if _has_other(_drop_unused(runs, c), usual[c])]
    return found


def _has_other(column: pd.Series, usual: str) -> bool:
    return bool({*map(format_plain_value, column.dropna())} - {usual})


def list_settings(column: pd.Series) -> str:
    """List the different values of a column, in their order."""
    return " / ".join(dict.fromkeys(map(name_file, map(format_plain_value, column.dropna())))) or "not stored"


def _drop_unused(frame: pd.DataFrame, column: str) -> pd.Series:
    """Drop the runs that do not use a field from its column: their default has no effect."""
    methods = [name for name in frame["method"].unique() if name in METHODS]
    idle = [name for name in methods if column in describe_entry(METHODS, name).unused]
    used = ~frame["method"].isin(idle)
    if column == "channel.snr_db":
        kinds = [kind for kind in frame["channel.kind"].unique() if kind in LINKS]
        used &= ~frame["channel.kind"].isin([kind for kind in kinds if not describe_entry(LINKS, kind).noisy])
        used &= frame["network.kind"].eq("list") if "network.kind" in frame else True
    return frame.loc[used, column]
