"""The figures of a report, by Plotly. Each has traces for all points and views of a study, and a menu to select them.

Accuracies are in percent. A variant has the same look in all figures.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from markupsafe import Markup

from semcom.channels.scene import read_scene
from semcom.config import ConfigError
from semcom.escape import escape_html
from semcom.plots.map import STANDS_M, locate_streets
from semcom.plots.report.facts import sort_field_values
from semcom.plots.report.names import format_metric, name_heading, name_metric, name_value
from semcom.plots.report.subject import Subject
from semcom.runs.folder.arrays import CONFUSION
from semcom.studies.analysis.efficiency import COSTS, list_leaks
from semcom.studies.analysis.study import Study
from semcom.studies.names import SHIPPED, capitalise, name_field
from semcom.studies.results.table import is_empty
from semcom.tasks.metric import Metric

MOST_POINTS = 1_000_000
"""Numbers of learning curves on a page. Beyond, it shows every second evaluation, or every third ..."""
MOST_CLIENTS = 300_000
"""Accuracies of clients on a page. Beyond, it shows every second client, or every third ..."""
MOST_CELLS = 1_000_000
"""Cells of confusion matrices on a page: those of the first runs."""
COLOURS = ("#0072b2", "#d55e00", "#8f5ad1", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#777777")
"""On white and on black: Okabe and Ito's, but for their black."""
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "triangle-down", "cross", "star", "pentagon")
SHADES = ((0, "#ffffff"), (1, "#6baed6"))
"""Dark text is readable on all of them."""
UNITS = {
    "uses": "channel uses",
    "airtime_s": "airtime in s",
    "time_s": "time of the rounds in s",
    "energy_j": "energy in J",
    "samples": "training samples",
}
GRID = {"automargin": True, "zeroline": False, "gridcolor": "rgba(128,128,128,0.22)", "linecolor": "#888"}
GRID |= {"ticks": "outside", "tickcolor": "#888"}
CLEAR = "rgba(0,0,0,0)"
"""The page shows through, be it light or dark; page.css colours the texts."""
LAYOUT: dict[str, Any] = {
    "template": go.layout.Template(layout={"xaxis": GRID, "yaxis": GRID}),
    "height": 430,
    "margin": {"l": 50, "r": 15, "t": 36, "b": 45},
    "legend": {"orientation": "h", "x": 0, "y": -0.2, "yanchor": "top"},
    "font": {"size": 13, "color": "#1a1a1a"},
    "paper_bgcolor": CLEAR,
    "plot_bgcolor": CLEAR,
    "modebar": {"bgcolor": CLEAR, "color": "#888", "activecolor": "#0072b2"},
}
ROW, CHARACTERS = 20, 120
"""Height of a row of a legend in pixels, and the characters of its names that fit into one on a desk."""
Point = Mapping[str, Any]
"""Axis -> value."""


@dataclass
class Figure:
    """A figure, the note above it, and the choices of its menu: words, places of the visible traces, and the layout."""

    id: str
    title: str
    note: str
    traces: list[Any] = field(default_factory=list)
    choices: list[tuple[str, list[int], dict[str, Any]]] = field(default_factory=list)

    def offer(self, words: str, traces: Sequence[Any], **layout: Any) -> None:
        """Offer some traces, if any, and add new traces to the figure."""
        places = {id(trace): i for i, trace in enumerate(self.traces)}  # by identity: traces compare by content
        for trace in traces:
            if id(trace) not in places:
                places[id(trace)] = len(self.traces)
                self.traces.append(trace)
        if traces:
            self.choices.append((words, [places[id(trace)] for trace in traces], layout))

    def html(self, place: str) -> Markup:
        """Render the element with the figure, which shows the first choice. Empty without choices.

        Args:
            place: the id of the element.
        """
        if not self.choices:
            return Markup()
        _, first, layout = self.choices[0]
        for i, trace in enumerate(self.traces):
            trace.visible = i in first
        named = (len(trace.name or "") + 8 for trace in self.traces if trace.visible and trace.showlegend is not False)
        room = ROW * (sum(named) // CHARACTERS)  # or the rows of a long legend would squeeze the axes
        made = go.Figure(self.traces, {**LAYOUT, "height": LAYOUT["height"] + room, **layout})
        config = {"responsive": True, "displaylogo": False, "showSendToCloud": False}
        return Markup(made.to_html(config, full_html=False, include_plotlyjs=False, div_id=place))


class Places:
    """The points of a study, and where its variants stand.

    A variant that has one value of a field, which others vary, is a reference, and stands wherever that is chosen.
    """

    def __init__(self, study: Study) -> None:
        rows = [(run.variant, {axis: run.field(axis) for axis in study.axes}) for run in study.tests if run.fields]
        values = {axis: pd.Series([name_value(at[axis]) for _, at in rows]) for axis in study.axes}
        variants = pd.Series([name for name, _ in rows], dtype=object)
        counts = {axis: of.groupby(variants).nunique() for axis, of in values.items()}
        self.own = {name: [axis for axis in study.axes if counts[axis].get(name, 0) > 1] for name in study.variants}
        self.axes = [axis for axis in study.axes if any(axis in own for own in self.own.values())]
        self.points = [at for name, at in rows if self.own[name] == self.axes] or [at for _, at in rows]
        self.metric, self.labels = study.metric, study.labels
        self.order = {name: i for i, name in enumerate(study.variants)}

    def but(self, along: str | None = None) -> list[dict[str, Any]]:
        """List the points without one axis."""
        axes = [axis for axis in self.axes if axis != along]
        found = {tuple(name_value(at[axis]) for axis in axes): {axis: at[axis] for axis in axes} for at in self.points}
        return list(found.values())

    def groups(
        self, frame: pd.DataFrame, *more: str, along: str | None = None
    ) -> Iterator[tuple[str, Point, list[Any], pd.DataFrame]]:
        """Yield variant, point, values of further columns and rows, variant by variant, from a table of the study."""
        axes = [axis for axis in self.axes if axis != along]
        found = frame.groupby(["variant", *axes, *more], sort=False, dropna=False)
        for (name, *key), part in sorted(found, key=lambda group: self.order[group[0][0]]):
            yield name, dict(zip(axes, key[: len(axes)], strict=True)), key[len(axes) :], part

    def stands(self, name: str, at: Point, chosen: Point) -> bool:
        """Check whether a variant's numbers at a point are shown at the chosen point."""
        return all(
            axis not in self.own[name] or name_value(at[axis]) == name_value(value) for axis, value in chosen.items()
        )

    def look(self, name: str, pale: bool = False) -> dict[str, Any]:
        """Choose the common look of a variant's traces. Its name is escaped, since Plotly reads HTML."""
        i = self.order[name]
        colour, dash = COLOURS[i % len(COLOURS)], DASHES[0 if pale else i % len(DASHES)]
        if pale:  # as Plotly takes it in all its versions
            colour = "rgba({},{},{},0.35)".format(*bytes.fromhex(colour[1:]))
        return {
            "name": escape_html(name_value(name, "variant", self.labels)),
            "legendgroup": str(i),
            "legendrank": i + 1,
            "line": {"color": colour, "dash": dash},
            "marker": {"color": colour, "symbol": SYMBOLS[i % len(SYMBOLS)]},
        }

    def bars(self, name: str, rows: pd.DataFrame, mean: str) -> dict[str, Any]:
        """Compute the error bars of means, zero for a mean of one seed."""
        ends = {"array": rows["high"] - rows[mean], "arrayminus": rows[mean] - rows["low"]}
        look = {"color": self.look(name)["line"]["color"], "thickness": 1.2, "width": 4}
        return {**look, **{end: _scaled(reach.fillna(0), self.metric) for end, reach in ends.items()}}


def figures(subject: Subject) -> list[Figure]:
    """Make the figures of a study. A figure without choices is not shown."""
    places, study = Places(subject.study), subject.study
    results = study.results
    headline = results[results["headline"].astype(bool)]
    unfinished = study.rounds.dropna(subset=["view"])
    first = pd.concat([headline, unfinished]).drop_duplicates("variant")
    own = dict(zip(first["variant"], first["view"], strict=True))
    views = list(dict.fromkeys(results["view"]))
    choices = [
        (
            _words(SHIPPED.point(at), view and f"view {view}") or "all runs",
            at,
            dict.fromkeys(own, view) if view else own,
        )
        for at in places.but()
        for view in ([None, *views] if len(views) > 1 else [None])
    ]
    shown_runs = headline if subject.view is None else results[results["view"] == subject.view]
    return [
        _accuracy(subject, places, shown_runs),
        _curves(study, places, choices),
        _clients(study, places, choices),
        _classes(study, places, choices),
        _confusion(subject),
        _costs(subject, places),
        *([_map_clients(study, places, choices)] if "x_m" in study.clients else []),
    ]


Choices = Sequence[tuple[str, Point, Mapping[str, str | None]]]
"""Words, chosen point, and the view of each variant."""


def _words(*parts: str | None) -> str:
    return ", ".join(filter(None, parts))


def _axis(title: str, **more: Any) -> dict[str, Any]:
    return {"title": {"text": escape_html(title)}, **more}


def _hover(*lines: str) -> str:
    return "<br>".join(("%{fullData.name}", *lines)) + "<extra></extra>"


def _percents(values: Any) -> np.ndarray:
    return (100 * np.asarray(values, dtype=float)).astype(np.float32)  # half the bytes in the page


def _scaled(values: Any, metric: Metric) -> np.ndarray:
    return _percents(values) if metric.share else np.asarray(values, dtype=np.float32)


def _form(metric: Metric, axis: str) -> str:
    return f"%{{{axis}:.{metric.digits}f}} {metric.shown_unit}".rstrip()


def _accuracy(subject: Subject, places: Places, runs: pd.DataFrame) -> Figure:
    """Draw the headline along each axis, and of each variant: means with their intervals, and single runs."""
    note = "Large: means over seeds with 95 % intervals, where there are several seeds. Small: single runs."
    metric = subject.study.metric
    at_x = "%{x}: " + _form(metric, "y")
    made, means = Figure("accuracy", capitalise(metric.label), note), subject.study.mean(view=subject.view)
    values = {axis: sort_field_values(subject.study, axis) for axis in places.axes}
    numeric = [axis for axis, of in values.items() if all(isinstance(v, int | float) and not is_empty(v) for v in of)]
    for along in [*sorted(values, key=lambda axis: (axis not in numeric, -len(values[axis]))), None]:
        traces = []
        for name, at, _, rows in places.groups(means, along=along):
            rows = rows.sort_values(along) if along in numeric else rows
            ends = [
                f"{format_metric(metric, low)} to {format_metric(metric, high)}"
                for low, high in zip(rows["low"], rows["high"], strict=True)
            ]
            mean = go.Scatter(
                x=_places_on(along, rows, name, along in numeric), y=_scaled(rows["mean"], metric),
                mode="lines+markers" if along in numeric else "markers", error_y=places.bars(name, rows, "mean"),
                customdata=list(zip(rows["n"], ends, strict=True)), **places.look(name), line_width=2.2, marker_size=9,
                hovertemplate=_hover(at_x, "seeds: %{customdata[0]}, interval: %{customdata[1]}"),
            )  # fmt: skip
            traces.append((name, at, mean))
        for name, at, _, rows in places.groups(runs, along=along):
            single = go.Scatter(
                x=_places_on(along, rows, name, along in numeric), y=_scaled(rows[metric.name], metric), mode="markers",
                hovertemplate=_hover(at_x, "seed %{customdata[0]}, run %{customdata[1]}"),
                customdata=list(zip(rows["seed"].map(name_value), rows["hash"], strict=True)),
                **places.look(name, pale=True), showlegend=False,
            )  # fmt: skip
            traces.append((name, at, single))
        few = along in numeric and len(values[str(along)]) <= 15
        ticks = {"tickmode": "array", "tickvals": values[str(along)]} if few else {"tickmode": "auto"}
        axis = _axis(name_heading(along or "method"), type="linear" if along in numeric else "category", **ticks)
        words = f"along {name_heading(along)}" if along else "each method"
        for at in places.but(along):
            shown_here = [trace for name, own, trace in traces if places.stands(name, own, at)]
            made.offer(_words(words, SHIPPED.point(at)), shown_here, xaxis=axis, yaxis=_axis(name_metric(metric)))
    return made


def _places_on(along: str | None, rows: pd.DataFrame, name: str, numeric: bool) -> list[Any]:
    """Place rows of a variant on an axis, or without an axis at its name."""
    texts = [name] * len(rows) if along is None else [name_value(value) for value in rows[along]]
    return [float(v) for v in rows[along]] if numeric else [escape_html(text) for text in texts]


def _curves(study: Study, places: Places, choices: Choices) -> Figure:
    """Draw learning curves: single runs thin, and their mean over those rounds in which all were evaluated thick."""
    rounds = study.rounds.assign(done=study.rounds["hash"].map(study.runs.set_index("hash")["status"]).eq("done"))
    losses = rounds.drop_duplicates(["hash", "round"]).dropna(subset=["loss"]) if "loss" in rounds else rounds[:0]
    tested = rounds[rounds["view"].notna()]
    every = max(1, math.ceil((len(tested) + len(losses)) / MOST_POINTS))
    note = "Thin: single runs. Thick: their mean, over rounds in which all of them were evaluated."
    made = Figure("curves", "Learning curves", note + _thinned("evaluation", every))
    axis = _axis("round", dtick=_choose_step(rounds["round"].max()))
    metric = study.metric
    tested, losses = tested.assign(value=_scaled(tested[metric.name], metric)), losses.assign(value=losses.get("loss"))
    traces = [
        (name, own, view, _curves_of(places, name, rows, every, _form(metric, "y")))
        for name, own, (view,), rows in places.groups(tested, "view")
    ]
    for words, at, views in choices:
        of = [each for name, own, view, each in traces if views[name] == view and places.stands(name, own, at)]
        made.offer(words, sum(of, []), xaxis=axis, yaxis=_axis(name_metric(metric)))
    groups = places.groups(losses)
    found = [(name, own, _curves_of(places, name, rows, every, "%{y:.4g}")) for name, own, _, rows in groups]
    for at in places.but():
        of = [each for name, own, each in found if places.stands(name, own, at)]
        made.offer(_words("training loss", SHIPPED.point(at)), sum(of, []), xaxis=axis, yaxis=_axis("training loss"))
    return made


def _choose_step(rounds: float) -> int | None:
    """Choose the whole step of the ticks of few rounds; None: for many Plotly takes whole ones itself."""
    return next((step for step in (1, 2, 5) if rounds <= 10 * step), None)


def _curves_of(places: Places, name: str, rows: pd.DataFrame, every: int, form: str) -> list[go.Scatter]:
    """Draw a variant's runs as one trace with gaps between the curves, and their mean as another."""
    # Thinned from the end, so that the last evaluation stays.
    parts = [part.iloc[(len(part) - 1) % every :: every] for _, part in rows.groupby("hash", sort=False)]
    # A NaN after each run breaks the line, so that one trace holds all runs.
    thin = pd.concat([with_gap for part in parts for with_gap in (part, part[-1:].assign(value=np.nan))])
    whole = rows[rows["done"]] if rows["done"].any() else rows
    count = whole["hash"].nunique()
    means = whole.groupby("round")["value"].agg(["mean", "size"]).query("size == @count")["mean"]
    return [
        go.Scatter(
            x=thin["round"].to_numpy(), y=thin["value"].to_numpy(np.float32), customdata=thin["seed"].to_numpy(),
            mode="lines" if len(thin) > 2 * len(parts) else "markers", **places.look(name, pale=True), line_width=1,
            hovertemplate=_hover("seed %{customdata}", f"round %{{x}}: {form}"), showlegend=False,
        ),
        go.Scatter(
            x=means.index.to_numpy(), y=means.to_numpy(np.float32), mode="lines" if len(means) > 1 else "markers",
            **places.look(name), line_width=2.4, hovertemplate=_hover(f"mean of {count}", f"round %{{x}}: {form}"),
        ),
    ]  # fmt: skip


def _thinned(what: str, every: int) -> str:
    return f" To save room, one {what} of {every} is shown." if every > 1 else ""


def _clients(study: Study, places: Places, choices: Choices) -> Figure:
    every, metric = max(1, math.ceil(len(study.clients) / MOST_CLIENTS)), study.metric
    note = "A point per client and seed; boxes from the lower to the upper quartile, with the median."
    made = Figure("clients", "Clients", note + _thinned("client", every))
    kept = study.clients[study.clients.groupby(["hash", "view"], sort=False).cumcount() % every == 0]
    traces = []
    for name, own, (view,), rows in places.groups(kept, "view"):
        look = places.look(name, pale=True) | {"line": {"color": places.look(name)["line"]["color"], "width": 1.3}}
        points = {"boxpoints": "all" if len(rows) <= 5000 else "outliers", "jitter": 0.5, "pointpos": 0}
        box = go.Box(
            y=_scaled(rows[metric.name], metric), customdata=rows[["client", "seed"]].to_numpy(int), hoveron="points",
            hovertemplate=_hover(f"client %{{customdata[0]}}, seed %{{customdata[1]}}: {_form(metric, 'y')}"),
            fillcolor=CLEAR, showlegend=False, **look, **points,
        )  # fmt: skip
        traces.append((name, own, view, box))
    for words, at, views in choices:
        of = [box for name, own, view, box in traces if views[name] == view and places.stands(name, own, at)]
        made.offer(words, of, yaxis=_axis(name_metric(metric, " of a client")))
    return made


def _map_clients(study: Study, places: Places, choices: Choices) -> Figure:
    """Draw the clients where they stand around the base station, coloured by the headline, one variant at a time."""
    note = (
        "Clients at their places in the last round, coloured by their {}, in a scene the mean over seeds; triangles: "
    )
    note += "out of sight."
    metric, ground = study.metric, _draw_buildings(study)
    made, traces = Figure("map", "Map", note.format(metric.label)), []
    base = go.Scatter(x=[0], y=[0], mode="markers", name="base station", hoverinfo="name", showlegend=False)
    base.update(marker={"symbol": "star", "size": 16, "color": "#d55e00", "line": {"color": "#fff", "width": 1}})
    rows = study.clients.dropna(subset=["x_m"])
    for name, own, (view,), part in places.groups(rows, "view"):
        found = part.groupby(["client", "x_m", "y_m", "los"], as_index=False)[[metric.name, "snr_db"]].mean()
        scale = {"colorscale": "Viridis", "colorbar": {"thickness": 12, "title": {"text": metric.shown_unit}}}
        marks = {"size": 13, "symbol": np.where(found["los"], "circle", "triangle-up"), "line": {"color": "#fff"}}
        dots = go.Scatter(
            x=found["x_m"], y=found["y_m"], mode="markers", showlegend=False, customdata=found[["client", "snr_db"]],
            marker={"color": _scaled(found[metric.name], metric), **scale, **marks},
            hovertemplate=f"client %{{customdata[0]}}: {_form(metric, 'marker.color')}<br>%{{customdata[1]:.1f}} dB"
            "<extra></extra>",
        )  # fmt: skip
        traces.append((name, own, view, dots, float(found[["x_m", "y_m"]].abs().to_numpy().max()) * 1.1 + 10))
    for words, at, views in choices:
        for name, own, view, dots, reach in traces:
            if views[name] == view and places.stands(name, own, at):
                title = _words(name_value(name, "variant", places.labels), words)
                ends = {"range": [-reach, reach], "showgrid": False}
                layout = {"xaxis": _axis("x in m", **ends), "yaxis": _axis("y in m", scaleanchor="x", **ends)}
                made.offer(title, [*ground, base, dots], height=560, **layout)
    return made


def _draw_buildings(study: Study) -> list[go.Heatmap]:
    """Draw what stands in the scene of a study's runs, if it is one, and can be read."""
    try:
        scene = read_scene(locate_streets(study))
    except (ConfigError, ValueError):
        return []
    rows, columns = scene.heights_m.shape
    (left, low), cell = scene.corner_m - scene.base_m[:2], scene.cell_m
    built = np.where(scene.heights_m > STANDS_M, 1.0, np.nan).astype(np.float32)
    grey = [[0, "rgba(128,128,128,0.35)"], [1, "rgba(128,128,128,0.35)"]]
    return [go.Heatmap(z=built, x0=left, dx=cell, y0=low, dy=cell, colorscale=grey, showscale=False, hoverinfo="skip")]


def _classes(study: Study, places: Places, choices: Choices) -> Figure:
    """Draw the accuracy by class: a row per variant, means over seeds."""
    note = "Accuracy in % by class over all clients, mean over seeds; a class that nobody tests is blank."
    made, groups = Figure("classes", "Classes", note), places.groups(study.classes, "view")
    means = [(name, own, view, rows.groupby("class")[study.metric.name].mean()) for name, own, (view,), rows in groups]
    for words, at, views in choices:
        of = {n: row for n, own, view, row in means if views[n] == view and places.stands(n, own, at)}
        table, hover = pd.DataFrame(of).T, "%{y}<br>class %{x}: %{z:.1f} %<extra></extra>"
        names = [escape_html(name_value(name, "variant", places.labels)) for name in table.index]
        map_ = _map(_percents(table), hover, table.size <= 300, x=list(table), y=names)
        made.offer(words, [map_] if of else [], **_map_layout("class", "", table.shape[1], 160 + 34 * len(of)))
    return made


def _map(shares: np.ndarray, hover: str, written: bool, **more: Any) -> go.Heatmap:
    """Draw a map of shares in percent, with texts in the cells if they fit."""
    look: dict[str, Any] = {"zmin": 0, "zmax": 100, "colorscale": SHADES, "xgap": 1, "ygap": 1, "hovertemplate": hover}
    text = {"texttemplate": "%{z:.0f}" if written else None, "textfont": {"color": "#1a1a1a"}}
    return go.Heatmap(z=shares, colorbar={"title": {"text": "%"}, "thickness": 12}, **look, **text, **more)


def _map_layout(x: str, y: str, columns: int, height: float) -> dict[str, Any]:
    """Lay out a map: its first row on top, no lines between its cells."""
    ticks = {"showgrid": False, **({"dtick": 1} if columns <= 20 else {})}
    return {"xaxis": _axis(x, **ticks), "yaxis": _axis(y, **ticks, autorange="reversed"), "height": height}


def _confusion(subject: Subject) -> Figure:
    """Draw the test images of a run by true and predicted class, for as many runs as fit."""
    made, kept, held, cells, prefix = Figure("confusion", "Confusion", ""), 0, 0, 0, f"{CONFUSION}/"
    hover = "true %{y}, predicted %{x}<br>%{customdata} images, %{z:.1f} %<extra></extra>"
    for run in (run for run in subject.study.tests if run.is_first_test):
        matrices = {n.removeprefix(prefix): a.sum(0) for n, a in run.arrays().items() if n.startswith(prefix)}
        kept, cells = kept + bool(matrices), cells + sum(each.size for each in matrices.values())
        held = kept if cells <= MOST_CELLS else held
        for view, counts in matrices.items() if cells <= MOST_CELLS else ():
            with np.errstate(invalid="ignore"):  # a class without images
                shares = _percents(counts / counts.sum(1, keepdims=True))
            place = SHIPPED.point({axis: run.field(axis) for axis in subject.study.axes})
            words = _words(run.variant, place, f"seed {run.fields.get('seed')}", f"view {view}")
            map_ = _map(shares, hover, len(counts) <= 12, customdata=counts)
            layout = _map_layout("predicted class", "true class", len(counts), 520)
            made.offer(subject.names.text(words), [map_], **layout)
    note = "Shares of the test images of a true class, of all clients; a class without any is blank."
    left = f" To save room, the matrices of {held} of {kept} runs are here." if held < kept else ""
    made.note = note + left if kept else "No run kept its confusion matrices: train with --keep confusion."
    return made


def _costs(subject: Subject, places: Places) -> Figure:
    """Draw the headline against each cost, with a line through the efficient variants of a point."""
    note = (
        "Filled: efficient methods, which no other one beats in {} at no higher cost among the runs of its own point. "
        "This compares means."
    )
    metric = subject.study.metric
    made = Figure("costs", f"{capitalise(metric.label)} against cost", note.format(metric.label))
    leaks = list_leaks(subject.study.stored)
    for cost in ("uses", *(name for name in COSTS if name != "uses"), *leaks):
        found, unit = subject.study.pareto(cost, view=subject.view), UNITS.get(cost) or name_field(cost)
        unit = unit if cost != "energy_j" or subject.study.in_joule else "energy in symbols"
        marks = []
        for name, own, _, row in places.groups(found[found["cost"].notna()]) if found["cost"].gt(0).any() else ():
            look = places.look(name)
            mark = look["marker"] | {"size": 11, "line": {"color": look["marker"]["color"], "width": 2}}
            look["marker"] = mark | ({} if row["efficient"].all() else {"color": CLEAR})
            trace = go.Scatter(
                x=row["cost"], y=_scaled(row[metric.name], metric), mode="markers",
                error_y=places.bars(name, row, metric.name),
                hovertemplate=_hover(_form(metric, "y"), f"%{{x:.4g}} {unit}"), **look,
            )  # fmt: skip
            marks.append((name, own, row, trace))
        for at in places.but():
            there = [(row, trace) for name, own, row, trace in marks if places.stands(name, own, at)]
            if not there:
                continue
            rows = pd.concat([row for row, _ in there]).sort_values("cost")
            front, dots = rows[rows["efficient"]], {"color": "#999", "width": 1, "dash": "dot"}
            line = go.Scatter(x=front["cost"], y=_scaled(front[metric.name], metric), mode="lines", line=dots)
            line.update(showlegend=False, hoverinfo="skip")
            scale = "log" if 0 < 20 * rows["cost"].min() < rows["cost"].max() else "linear"
            of_run = "" if cost in leaks else " of the whole run, all clients and directions"
            axis = _axis(f"{unit}{of_run}", type=scale)
            words = _words(unit, SHIPPED.point(at))
            made.offer(words, [line, *(trace for _, trace in there)], xaxis=axis, yaxis=_axis(name_metric(metric)))
    return made
