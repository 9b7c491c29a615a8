"""Mean ranks over the settings of a study, with bars that join methods without a significant difference.

A critical-difference diagram (Demsar, JMLR 2006) with a row for each method, so that any number fits.
"""

from __future__ import annotations

import math

import pandas as pd
from matplotlib.axes import Axes

from semcom.config import ConfigError
from semcom.plots.base import Kind, Plot, Styles
from semcom.plots.points import measure_ends
from semcom.studies.analysis.ranks import (
    carry_out_friedman_test,
    compute_critical_difference,
    compute_rank_intervals,
    find_cliques,
    rank_in_settings,
)
from semcom.studies.analysis.study import Study

ROW, GAP = 0.15, 0.35
"""Height of a row in inches, and room for a bar beside the dots in ranks."""


def compute_ranks(study: Study, plot: Plot) -> pd.DataFrame:
    """Rank the variants of a study in each of its settings, by means over seeds, as `tabulate_ranks` returns it.

    A number of which it is not known that more is better is ranked from the smallest on.
    """
    fields = list(study.axes)
    means = study.mean(["variant", *fields], view=plot.view, metric=plot.y)
    return tabulate_ranks(means if plot.metric.higher else means.assign(mean=-means["mean"]), fields)


def tabulate_ranks(means: pd.DataFrame, fields: list[str]) -> pd.DataFrame:
    """Rank variants in the settings that all of them have.

    Args:
        means: a row per variant and setting, with `mean` (more is better) and `n`, its number of seeds.
        fields: columns that identify the settings.

    Returns:
        Columns: variant, mean (rank), low, high (95 % interval over settings), n (settings), interval (its procedure,
            in words), cliques (numbers of the groups that do not differ), critical (difference), p (of Friedman's
            test), the best first.

    Raises:
        ConfigError: fewer than two settings have all variants with as many seeds.
    """
    keys = pd.Series([", ".join(map(str, row)) for row in means[fields].to_numpy()], means.index)
    wide = means.assign(setting=keys).pivot(index="setting", columns="variant", values=["mean", "n"])
    # A mean over fewer seeds scatters more, and would take first and last ranks by chance.
    whole = wide["mean"].notna().all(axis=1) & (wide["n"].nunique(axis=1) == 1)
    values = wide["mean"][whole]
    settings, methods = values.shape
    if settings < 2 or methods < 2:
        raise ConfigError(f"results: {settings} settings have all {methods} variants, each with as many seeds; wait")
    ranks = rank_in_settings(values.to_numpy(float))
    rows = pd.DataFrame(compute_rank_intervals(ranks), columns=["mean", "low", "high"])
    rows.insert(0, "variant", list(values.columns))
    rows = rows.sort_values("mean", kind="stable", ignore_index=True)
    critical = compute_critical_difference(methods, settings)
    groups = find_cliques(rows["mean"].tolist(), critical)
    inside = [[g for g, (first, last) in enumerate(groups, 1) if first <= i <= last] for i in range(len(rows))]
    return rows.assign(
        n=settings,
        interval=[
            "none: one rank in all settings" if math.isnan(low) else f"95 % t interval over {settings} settings"
            for low in rows["low"]
        ],
        cliques=[" ".join(map(str, each)) for each in inside],
        critical=critical,
        p=carry_out_friedman_test(ranks.mean(0), settings).p,
    )


def draw_ranks(axes: Axes, cells: pd.DataFrame, plot: Plot, styles: Styles) -> None:
    """Draw a dot with its interval for each method, the best on top, and a bar for each group that does not differ."""
    places = range(len(cells))
    bars = measure_ends(cells)
    axes.errorbar(cells["mean"], places, xerr=bars, fmt="o", color="black", elinewidth=0.6, markersize=3)
    right = max(cells["high"].fillna(cells["mean"]).max(), len(cells)) + GAP
    for column, (first, last) in enumerate(find_cliques(cells["mean"].tolist(), cells["critical"].iloc[0])):
        if last > first:
            at = right + GAP * column * len(cells) / 12
            axes.plot([at, at], [first - 0.3, last + 0.3], color="black", linewidth=1.6, solid_capstyle="butt")
    axes.set_yticks(places, [plot.labels.value("variant", name) for name in cells["variant"]])
    axes.set_ylim(len(cells) - 0.3, -0.7)
    axes.set_xlabel("Mean rank")
    axes.grid(axis="y", visible=True)
    axes.tick_params(axis="y", length=0)


def describe_ranks(cells: pd.DataFrame, plot: Plot) -> str:
    """Describe dots, intervals and bars, and the test."""
    n, critical, p = cells[["n", "critical", "p"]].iloc[0]
    return (
        f"Mean rank over {n:g} settings, in each of which methods are ranked by their means over seeds"
        f"{'' if plot.metric.higher else ', the smallest first'}; error bars: "
        f"95 % intervals over settings (Student's t). Methods beside one bar do not differ at 5 %: their mean ranks "
        f"are less than {critical:.2f} apart (Nemenyi's test). Friedman's test that none differs has p = {p:.2g}."
    )


RANKS = Kind(
    "mean ranks over settings, with bars that join methods which do not differ",
    compute_ranks,
    draw_ranks,
    describe_ranks,
    ("y", "view"),
    height=lambda cells, plot: 0.4 + ROW * len(cells),
    tabled=False,
    all_tests=True,
)
