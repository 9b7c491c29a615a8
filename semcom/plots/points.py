"""Numbers that several kinds of figures draw: means over seeds with their intervals, by the fields of a request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from semcom.config import ConfigError
from semcom.plots.base import Plot, Style, Styles
from semcom.studies.analysis.compare import Views, check_views, choose_view
from semcom.studies.analysis.means import check_seeds_alone, compute_means, cut_intervals, find_cut_intervals
from semcom.studies.analysis.sheet import describe_sheet_intervals
from semcom.studies.analysis.study import Study
from semcom.studies.names import name_field
from semcom.studies.results.run import Stored

SETTING = "setting"
"""Column with the name of a setting, several fields in one."""
EMPTY = "none"
"""Text for an empty value of a hue, a panel or a category, by which it is found."""
ROOM = 0.05
"""How far the ordinate goes at most beyond the 0 and 1 that fractions end at."""


def average_over_seeds(study: Study, plot: Plot) -> pd.DataFrame:
    """Compute the means of a number of a view: the fields of the request, mean, low, high, n, interval and mark.

    Raises:
        ConfigError: as `Study.mean`.
    """
    return study.marked(plot.fields, view=plot.view, metric=plot.y)


def tabulate_by_setting(
    study: Study, plot: Plot, others: Sequence[str], fields: Sequence[str], name: Callable[..., str]
) -> pd.DataFrame:
    """Compute means over seeds, with several fields as one, `SETTING`.

    Args:
        study: the results.
        plot: the request for the number.
        others: the fields that stay.
        fields: the fields that become one, varied or not.
        name: function from their values to the name of the setting.

    Raises:
        ConfigError: as `Study.mean`.
    """
    cells = study.along(fields).mean([*others, *fields], metric=plot.y).sort_values(list(fields), kind="stable")
    cells.insert(0, SETTING, [name(*values) for values in cells[list(fields)].itertuples(index=False)])
    return cells.drop(columns=list(fields))


def average_table(study: Study, frame: pd.DataFrame, plot: Plot) -> pd.DataFrame:
    """Compute the means over seeds of a tidy table of the study, in the requested view."""
    if plot.y not in frame or not pd.api.types.is_numeric_dtype(frame[plot.y]):
        numbers = frame.select_dtypes("number").columns.difference([*plot.fields, "seed"])
        raise ConfigError(f"y: {plot.y!r} is no number here; there are {', '.join(numbers)}")
    return cut_intervals(compute_means(select_view(study, frame, plot.view), plot.fields, plot.y), plot.metric)


def select_view(study: Study, frame: pd.DataFrame, view: Views) -> pd.DataFrame:
    """Select the rows of one view (None: of each run's headline), or of the view of each variant.

    Raises:
        ConfigError: no run has the view.
    """
    check_views(view, study.variants)
    for name in {view} if isinstance(view, str) else set((view or {}).values()):
        if name not in set(frame["view"]):
            raise ConfigError(f"view: no run has {name!r}; there are {', '.join(frame['view'].dropna().unique())}")
    wanted = {run.hash: choose_view(view, run.variant) or run.headline for run in study.stored}
    return frame[frame["view"] == frame["hash"].map(wanted)]


def check_panels(frame: pd.DataFrame, plot: Plot) -> None:
    """Check that the runs of a panel, a row or several each, differ only in their seeds. Raises ConfigError."""
    check_field(frame, "facet", plot.facet)
    first, *others = [name for name in plot.fields if name in frame] or ["method"]
    check_seeds_alone(frame.drop_duplicates("hash"), others, first)


def check_field(runs: pd.DataFrame, asked: str, name: str | None) -> None:
    """Check that runs have a field of the request, as whole ones have no one test SNR. Raises ConfigError."""
    if name is not None and name not in runs:
        raise ConfigError(f"{asked}: whole runs are shown, which have no one {name}; give another field")


def tabulate_runs(study: Study, plot: Plot, read: Callable[[Stored], pd.DataFrame]) -> pd.DataFrame:
    """Read a table from the single run of each panel, and put the panel's value in front. Errors: several runs."""
    runs = study.runs[study.runs["status"] == "done"]
    check_panels(runs, plot)
    found, tables = {run.hash: run for run in study.stored}, []
    for value, part in split_panels(runs, plot):
        if len(part) > 1:
            seeds = ", ".join(map(str, part["seed"]))
            raise ConfigError(
                f"seed: a panel shows one run, and there are {seeds}; give one: --at seed={part['seed'].iloc[0]}"
            )
        table = read(found[part["hash"].iloc[0]])
        tables.append(table if plot.facet is None else pd.DataFrame({plot.facet: [value]}).merge(table, how="cross"))
    return pd.concat(tables, ignore_index=True)


def read_kept_arrays(run: Stored, view: Views, folder: str, keep: str) -> tuple[dict[str, np.ndarray], str]:
    """Read the arrays of a run, and name its view, of which it must have kept `folder`/VIEW. Raises ConfigError."""
    kept, shown = run.arrays(), str(choose_view(view, run.variant) or run.headline)
    if f"{folder}/{shown}" not in kept:
        others = [name.removeprefix(f"{folder}/") for name in kept if name.startswith(f"{folder}/")]
        wanted = f"there are {', '.join(others)}" if others else f"repeat it with semcom train ... --keep {keep}"
        raise ConfigError(f"view: {run.variant} kept no {keep} of {shown}; {wanted}")
    return kept, shown


def split_panels(frame: pd.DataFrame, plot: Plot) -> list[tuple[Any, pd.DataFrame]]:
    """Split a table by panel, in the order of its rows; an empty value is a panel too, `EMPTY`."""
    if plot.facet is None:
        return [(None, frame)]
    parts = frame.groupby(plot.facet, sort=False, dropna=False)
    return [(EMPTY if pd.isna(value) else value, part) for value, part in parts]


def describe_panels(cells: pd.DataFrame, plot: Plot, describe: Callable[[pd.DataFrame], str]) -> str:
    """Describe each panel, behind its label if there are several."""
    return "; ".join(
        (f"{plot.labels.place(plot.facet, value)}: " if plot.facet else "") + describe(part)
        for value, part in split_panels(cells, plot)
    )


def measure_ends(line: pd.DataFrame) -> list[pd.Series] | None:
    """Compute the lengths of the error bars, down and up, or None if no mean has an interval."""
    return [line["mean"] - line["low"], line["high"] - line["mean"]] if line["low"].notna().any() else None


def check_costs(study: Study, cells: pd.DataFrame, x: str, line: str) -> pd.DataFrame:
    """Check that the cost of each line is known, and add the unit of energies that are numbers of symbols."""
    if cells[x].isna().any():
        lacking = cells.loc[cells[x].isna(), line].iloc[0]
        raise ConfigError(f"x: the {x} of {lacking} are not known; leave it out, or take another cost")
    return cells if x != "energy_j" or study.in_joule else cells.assign(unit="symbols")


def name_abscissa(cells: pd.DataFrame, x: str) -> str:
    """Name an abscissa with its unit."""
    return name_field("energy_symbols" if x == "energy_j" and "unit" in cells else x)


def format_view(view: str | Mapping[str, str]) -> str:
    """Format a view as `--view` takes it: "personal", or "ditto=global,fedala=trained"."""
    return view if isinstance(view, str) else ",".join(f"{name}={of}" for name, of in view.items())


def describe_points(cells: pd.DataFrame, plot: Plot, shown: str = "bars") -> str:
    """Describe means: their quantity, their abscissa, and their error bars."""
    name = plot.metric.label
    start = f"Test {name}" if name.startswith("accuracy") else name[0].upper() + name[1:]
    against = f" against {name_abscissa(cells, plot.x)}" if plot.x else ""
    view = f", view {format_view(plot.view)}" if plot.view else ""
    cut = ", cut at 0 and 100 %" if find_cut_intervals(cells, plot.metric).any() else ""
    return f"{start}{against}{view}, {describe_sheet_intervals(cells, shown, cut=cut)}."


def list_hues(cells: pd.DataFrame, plot: Plot, styles: Styles) -> Iterator[tuple[str | None, Style, pd.DataFrame]]:
    """Yield the label, the look without marks, and the rows of each hue."""
    for hue, style in styles.items():
        look = {name: value for name, value in style.items() if not name.startswith("marker")}
        if plot.hue is None:
            yield None, look, cells
        else:
            yield plot.labels.place(plot.hue, hue), look, cells[cells[plot.hue] == hue]


def draw_key(figure: Figure, cells: pd.DataFrame, plot: Plot) -> None:
    """Draw one legend of the panels' dots or bars above them."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=min(3, len(labels)), frameon=False, markerscale=3)


def limit_ordinate(figure: Figure, cells: pd.DataFrame, plot: Plot) -> None:
    """End the ordinate of percentages a little beyond 0 and 1."""
    for axes in figure.axes if plot.metric.shown_unit == "%" else ():
        low, high = axes.get_ylim()
        axes.set_ylim(max(low, -ROOM), min(high, 1 + ROOM))
