"""Numbers that several kinds of figures draw: means over seeds with their intervals, by the fields of a request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pandas as pd
from matplotlib.figure import Figure

from semcom.config import ConfigError
from semcom.plots.base import Plot
from semcom.studies.analysis.compare import Views, check_views, choose_view
from semcom.studies.analysis.means import check_seeds_alone, compute_means
from semcom.studies.analysis.sheet import describe_sheet_intervals
from semcom.studies.analysis.study import Study
from semcom.studies.names import name_field

SETTING = "setting"
"""Column with what a setting, several fields in one, is called."""
ROOM = 0.05
"""How far the ordinate goes at most beyond the 0 and 1 that fractions end at."""


def average_points_over_seeds(study: Study, plot: Plot) -> pd.DataFrame:
    """Return the means of a number of a view: the fields of the request, mean, low, high, n, interval and mark.

    Raises:
        ConfigError: as `Study.mean`.
    """
    return study.marked(plot.fields, view=plot.view, metric=plot.y)


def tabulate_points_by_setting(
    study: Study, plot: Plot, others: Sequence[str], fields: Sequence[str], name: Callable[..., str]
) -> pd.DataFrame:
    """Return means over seeds, with several fields as one, `SETTING`.

    Args:
        study: the results.
        plot: the request, whose number is shown.
        others: the fields that stay.
        fields: those that become one, varied or not.
        name: function from their values to what the setting is called.

    Raises:
        ConfigError: as `Study.mean`.
    """
    cells = study.along(fields).mean([*others, *fields], metric=plot.y).sort_values(list(fields), kind="stable")
    cells.insert(0, SETTING, [name(*values) for values in cells[list(fields)].itertuples(index=False)])
    return cells.drop(columns=list(fields))


def tidy_points(study: Study, frame: pd.DataFrame, plot: Plot) -> pd.DataFrame:
    """Return the means over seeds of a tidy table of the study, of the view that is asked for."""
    if plot.y not in frame or not pd.api.types.is_numeric_dtype(frame[plot.y]):
        numbers = frame.select_dtypes("number").columns.difference([*plot.fields, "seed"])
        raise ConfigError(f"y: {plot.y!r} is no number here; there are {', '.join(numbers)}")
    return compute_means(select_points_of_view(study, frame, plot.view), plot.fields, plot.y)


def select_points_of_view(study: Study, frame: pd.DataFrame, view: Views) -> pd.DataFrame:
    """Return the rows of one view (None: of each run's headline), or of the view of each variant.

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
    """Check that the runs of a panel, a row or several each, differ in their seeds alone. Raises ConfigError."""
    first, *others = [name for name in plot.fields if name in frame] or ["method"]
    check_seeds_alone(frame.drop_duplicates("hash"), others, first)


def add_cost_unit(study: Study, cells: pd.DataFrame, x: str) -> pd.DataFrame:
    """Return numbers over a cost, with the unit of energies that are numbers of symbols."""
    return cells if x != "energy_j" or study.in_joule else cells.assign(unit="symbols")


def name_abscissa(cells: pd.DataFrame, x: str) -> str:
    """Return the name of an abscissa with its unit."""
    return name_field("energy_symbols" if x == "energy_j" and "unit" in cells else x)


def format_view(view: str | Mapping[str, str]) -> str:
    """Format a view as `--view` takes it: "personal", or "ditto=global,fedala=trained"."""
    return view if isinstance(view, str) else ",".join(f"{name}={of}" for name, of in view.items())


def describe_points(cells: pd.DataFrame, plot: Plot, shown: str = "bars") -> str:
    """Return the caption of means: what they are of, against what, and what error bars are."""
    name = plot.metric.label
    start = f"Test {name}" if name.startswith("accuracy") else name[0].upper() + name[1:]
    against = f" against {name_abscissa(cells, plot.x)}" if plot.x else ""
    view = f", view {format_view(plot.view)}" if plot.view else ""
    return f"{start}{against}{view}, {describe_sheet_intervals(cells, shown)}."


def limit_ordinate(figure: Figure, cells: pd.DataFrame, plot: Plot) -> None:
    """End the ordinate of fractions little beyond 0 and 1: an interval of few seeds can reach where none can be."""
    for axes in figure.axes if plot.metric.shown_unit == "%" else ():
        low, high = axes.get_ylim()
        axes.set_ylim(max(low, -ROOM), min(high, 1 + ROOM))


def describe_intervals_beyond(cells: pd.DataFrame, plot: Plot) -> str:
    """Return the sentence of a caption on intervals that `limit_ordinate` cuts; nothing where there are none."""
    beyond = plot.metric.shown_unit == "%" and (cells["low"].min() < -ROOM or cells["high"].max() > 1 + ROOM)
    return " Some intervals reach beyond the ordinate." if beyond else ""
