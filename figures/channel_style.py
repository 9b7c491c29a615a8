"""The common look of the channel's figures: a closed form as a line, measurements as points with their intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semcom.plots.style import choose_line_styles

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


def draw_channel_points(axes: Axes, cells: pd.DataFrame, x: str, label: str, index: int) -> None:
    """Draw `theory` over column `x` and, where there is one, `measured` with [`low`, `high`], in line style `index`."""
    style = choose_line_styles(index + 1)[index]
    line = {name: style[name] for name in ("color", "linestyle")}
    mark = {"color": style["color"], "marker": style["marker"], "markerfacecolor": "none"}
    found = cells.dropna()
    interval = [found["measured"] - found["low"], found["high"] - found["measured"]]
    axes.plot(cells[x], cells["theory"], marker="none", **line)
    axes.errorbar(found[x], found["measured"], yerr=interval, capsize=0, linestyle="none", **mark)
    axes.plot([], [], label=label, **(line | mark))  # the legend's: both in one


def draw_channel_legend(axes: Axes) -> None:
    """Put a legend above the axes, since lines are everywhere inside, that says what lines and points are."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.set_figheight(3.0)  # room for it
    title = "Lines: theory. Points: measured, 95% intervals."
    axes.legend(title=title, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)


def count_covered(cells: pd.DataFrame) -> str:
    """Count the intervals that hold the closed form, in words."""
    found = cells.dropna()
    holds = (found["low"] <= found["theory"]) & (found["theory"] <= found["high"])
    return f"{int(holds.sum())} of {len(found)} hold the closed form"
