"""`semcom results`, `compare` and `pack`: a study's tables, the comparison of two methods, a study as a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import semcom
from semcom.cli import flags
from semcom.cli.fields import PLUGIN
from semcom.config import ConfigError
from semcom.escape import format_csv
from semcom.files import resolve_file, resolve_folder, resolve_target, write_atomically
from semcom.runs.request.plugins import load_plugins
from semcom.screen import say

if TYPE_CHECKING:
    import pandas as pd
    from _typeshed import DataclassInstance

    from semcom.studies.analysis.study import Study

What = Literal["runs", "mean", "results", "rounds", "clients", "classes", "confusion", "traffic"]
"""The tables of a study (`semcom.studies.analysis.study.Study`)."""
SHOWN = ("status", "error", "accuracy", "accuracy_std")
"""Columns of `runs` that are printed beside those that tell runs apart; a CSV file has all."""


@dataclass(frozen=True)
class ResultsFlags:
    """Print a table of a study, or write its tables as CSV; see docs/studies.md.

    FOLDER comes first: of a sweep (finished or not), of one run, or one that holds folders of runs.
    """

    what: What | None = None
    """Table: runs (one a row), mean (over seeds, with 95 % intervals), results (of each view and test SNR), rounds
    (learning curves), clients, classes, confusion or traffic (None: mean; with csv all of them)."""
    csv: str | None = None
    """Folder in which the table, or every one, is written as a CSV file of its name (None: it is printed)."""
    at: flags.At = ()
    """Only runs with these values, such as channel.snr_db=10 (several: channel.snr_db=0,10)."""
    plugins: PLUGIN = ()
    """Your Python file or module, with what the study needs of yours (repeatable)."""


@dataclass(frozen=True)
class CompareFlags:
    """Tell whether two methods of a study differ, at each of its points, with paired 95 % intervals.

    FOLDER, A and B come first: a study (see: semcom results --help), and two methods or variants of it.
    """

    at: flags.At = ()
    """Only runs with these values, such as channel.snr_db=10 (several: channel.snr_db=0,10)."""
    view: str | None = None
    """View whose accuracies are compared, or one of a method, such as fedcosr=trained; several separated by commas
    (None: the first one of each method, its headline)."""
    metric: str | None = None
    """Number of a view, such as accuracy (of another task, its headline), among_own or worst10; without a view, also
    one of the run, such as clusters.knn_purity or seconds.train (None: accuracy)."""
    until: float | None = None
    """Accuracy, such as 0.6: what each of the two had cost when it first reached this is printed instead."""
    cost: str | None = None
    """What it costs: time_s, energy_j, uses, bits, floats, airtime_s, samples or rounds (None: uses)."""
    csv: str | None = None
    """File in which all numbers of the comparisons are written (None: sentences alone are printed)."""
    plugins: PLUGIN = ()
    """Your Python file or module, with what the study needs of yours (repeatable)."""


@dataclass(frozen=True)
class PackFlags:
    """Write a study as one file: all but checkpoints and kept arrays, without the places of this machine.

    FOLDER comes first. Every other command that takes a study takes the file too.
    """

    out: str | None = None
    """The .zip file (None: FOLDER.zip)."""
    arrays: bool = False
    """Whether arrays that runs have kept (matrices, features) go in too."""


def carry_out_pack(words: list[str]) -> None:
    """Carry out `semcom pack FOLDER`."""
    from semcom.studies.results import archive

    (folder,), wanted = read_analysis_words(words, ("FOLDER",), PackFlags(), "semcom pack")
    say(f"archive: {archive.pack_archive(folder, wanted.out, arrays=wanted.arrays)}")


def carry_out_results(words: list[str]) -> None:
    """Carry out `semcom results FOLDER`."""
    (folder,), wanted = read_analysis_words(words, ("FOLDER",), ResultsFlags(), "semcom results")
    if wanted.csv is not None:
        resolve_folder(wanted.csv, "csv")
    study = semcom.study(folder).where(read_analysis_point(wanted.at))
    if wanted.csv is None:
        shown = [study.find_metric(name) for name in SHOWN]
        say(f"{study}\n{_format_table(_read_table(study, wanted.what or 'mean'), shown)}")
        return
    for name in [wanted.what] if wanted.what else _list_tables(study):
        frame = _read_table(study, cast(What, name))
        path = write_atomically(resolve_file(wanted.csv) / f"{name}.csv", format_csv(frame))
        say(f"table: {path}")


def carry_out_compare(words: list[str]) -> None:
    """Carry out `semcom compare FOLDER A B`."""
    (folder, first, second), wanted = read_analysis_words(words, ("FOLDER", "A", "B"), CompareFlags(), "semcom compare")
    target = None if wanted.csv is None else resolve_target(wanted.csv, "csv")
    study = semcom.study(folder).where(read_analysis_point(wanted.at))
    if wanted.until is None and wanted.cost is not None:
        raise ConfigError(f"cost: {wanted.cost} is what an accuracy costs; give --until, such as 0.6, or leave it out")
    if wanted.until is not None:
        if wanted.metric is not None:
            raise ConfigError(f"metric: --until is of the headline alone, and not of {wanted.metric}; leave it out")
        frame = _compute_costs(study, [first, second], wanted)
        say(_format_table(frame))
        if target is not None:
            say(f"table: {write_atomically(target, format_csv(frame))}")
        return
    found = study.compare_all([first, second], view=read_analysis_view(wanted.view), metric=wanted.metric or "accuracy")
    say(found)
    if target is not None:
        say(f"table: {write_atomically(target, format_csv(found.frame))}")


def read_analysis_words(
    words: list[str], names: Sequence[str], start: DataclassInstance, prog: str
) -> tuple[list[str], Any]:
    """Read as many leading words as there are names, and the flags after them, and load their plug-ins.

    Raises:
        ConfigError: there are fewer, a flag is wrong, or a plug-in cannot be imported.
    """
    given: list[str] = []
    rest = list(words)
    while len(given) < len(names) and rest and not rest[0].startswith("-"):
        given.append(rest.pop(0))
    wanted = flags.parse_flags(start, f"{prog} {' '.join(names)}", rest, extra={})
    if len(given) < len(names):
        raise ConfigError(f"{names[len(given)]}: none is given; the words are {prog} {' '.join(names)}")
    load_plugins(getattr(wanted, "plugins", ()))
    return given, wanted


def read_analysis_point(words: Sequence[str]) -> dict[str, list[str]]:
    """Parse words such as channel.snr_db=0,10 into field -> values. Raises ConfigError for any other word."""
    found: dict[str, list[str]] = {}
    for word in words:
        name, equals, values = word.partition("=")
        if not equals or not name or not values:
            raise ConfigError(f"at: {word!r} is not field=value, such as channel.snr_db=10")
        if name in found:
            raise ConfigError(f"at: {name} is given twice; give {name}={','.join(found[name])},{values}")
        found[name] = values.split(",")
    return found


def read_analysis_view(words: str | None) -> str | dict[str, str] | None:
    """Parse a view, or words such as fedcosr=trained,fedala=trained into method -> view.

    Raises:
        ConfigError: they are neither.
    """
    if words is None or "=" not in words:
        return words
    found = dict[str, str]()
    for word in words.split(","):
        name, _, view = word.partition("=")
        if not name or not view or name in found:
            raise ConfigError(f"view: {word!r} in {words!r} is not METHOD=VIEW, or is there twice")
        found[name] = view
    return found


def _compute_costs(study: Study, variants: Sequence[str], wanted: CompareFlags) -> pd.DataFrame:
    """Compute the cost at which two variants reach an accuracy. Raises ConfigError for an unknown variant."""
    if isinstance(view := read_analysis_view(wanted.view), dict):
        raise ConfigError(f"view: {wanted.view!r} is not one for both variants, as --until needs")
    for name in set(variants) - set(study.variants):
        raise ConfigError(f"compare: {name!r} is not in the study; there are {', '.join(study.variants)}")
    cost = wanted.cost or "uses"
    found = study.until(wanted.until or 0.0, cost, view=view)
    return found[found["variant"].isin(variants)].rename(columns={"cost": cost})


def _read_table(study: Study, what: What) -> pd.DataFrame:
    return study.mean() if what == "mean" else getattr(study, what)


def _list_tables(study: Study) -> list[str]:
    """List the tables of a study; confusion matrices are kept only on request."""
    kept = any(name.startswith("confusion/") for run in study.stored for name in run.arrays())
    return [name for name in get_args(What) if name != "confusion" or kept]


def _format_table(frame: pd.DataFrame, shown: Sequence[str] = ()) -> str:
    """Format a table; of runs only the columns that tell them apart, and how they ended."""
    if "status" in frame:
        front = list(frame.columns[: list(frame.columns).index("status")])
        frame = frame[[*front, *(name for name in shown if name in frame and frame[name].notna().any())]]
    return frame.to_string(index=False, na_rep="", float_format=lambda value: f"{value:.4g}")
