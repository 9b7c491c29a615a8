"""The kinds of figures by name, and the defaults of a request."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from functools import partial
from typing import Any

import pandas as pd

from semcom.channels.registry import Registry
from semcom.config import ConfigError
from semcom.packages import read_package_catalogue
from semcom.plots.base import Kind, Plot
from semcom.plots.gain import OVER
from semcom.plots.points import EMPTY
from semcom.registry import find_entry
from semcom.runs.folder.arrays import is_leak
from semcom.studies.analysis.efficiency import COSTS
from semcom.studies.analysis.study import Study
from semcom.studies.grid import TEST
from semcom.studies.names import NAMED
from semcom.studies.overrides import name_file

KINDS: Registry[Kind] = Registry(
    "kind",
    {
        "lines": "semcom.plots.lines:LINES",
        "curves": "semcom.plots.curves:CURVES",
        "bars": "semcom.plots.bars:BARS",
        "dots": "semcom.plots.bars:DOTS",
        "heatmap": "semcom.plots.heatmap:HEATMAP",
        "gain": "semcom.plots.gain:GAIN",
        "clients": "semcom.plots.classes:CLIENTS",
        "classes": "semcom.plots.classes:CLASSES",
        "confusion": "semcom.plots.heatmap:CONFUSION",
        "divisions": "semcom.plots.divisions:DIVISIONS",
        "embedding": "semcom.plots.embedding:EMBEDDING",
        "pareto": "semcom.plots.pareto:PARETO",
        "ranks": "semcom.plots.ranks:RANKS",
        "images": "semcom.plots.images:IMAGES_KIND",
        "leak": "semcom.plots.images:LEAK_KIND",
        "constellation": "semcom.plots.radio:CONSTELLATION",
        "response": "semcom.plots.response:RESPONSE",
        "delays": "semcom.plots.response:DELAYS",
        "timeline": "semcom.plots.timeline:TIMELINE",
        "cell": "semcom.plots.radio:CELL",
        "snr-cdf": "semcom.plots.radio:SNR_CDF",
        "map": "semcom.plots.map:MAP",
    },
    base="semcom.plots.base:Kind",
    made=True,
    catalogue=partial(read_package_catalogue, "semcom.kinds"),
)
"""Kinds of figures by name."""
TAKEN = ("x", "y", "hue", "over", "window", "view")
"""Fields of a request that not every kind takes."""
OF_X = {"round": "curves", "client": "clients", "class": "classes", **dict.fromkeys(COSTS, "pareto")}
"""Abscissa that is no field of a configuration -> its kind; others are numbers of attacks, see `find_kind_of_x`."""


def find_kind_of_x(x: str | None) -> str | None:
    """Find the kind of an abscissa that is no field of a configuration; None for a field."""
    return "pareto" if is_leak(x) else OF_X.get(str(x))


PAIRED = ("method", "variant", "seed")
"""Fields that a gain, a mean over seeds of the difference of two variants, does not have."""


def settle_kind(study: Study, wanted: Plot) -> tuple[Study, Plot]:
    """Settle a request: return the part of a study that it draws, with its fields, and the filled-in request.

    Raises:
        ConfigError: no such kind or field, or a field that the kind does not take.
    """
    part = study.where(wanted.at)
    asked: dict[str, Any] = {name: _resolve_field(part, name, getattr(wanted, name)) for name in ("x", "hue", "facet")}
    part = part.along([name for name in asked.values() if name is not None and not find_kind_of_x(name)])
    chosen = replace(wanted, **asked, kind=wanted.kind or _find_kind(part, asked["x"]), labels=part.labels)
    kind = find_entry(KINDS, str(chosen.kind))
    _check_takes(chosen, kind)
    rows = chosen.kind in ("bars", "dots")
    x = chosen.x or kind.x or ((chosen.hue or "variant") if rows else None)
    hue = chosen.hue if x != chosen.hue else None
    hue = hue or (("variant" if x not in NAMED else None) if rows else kind.hue)
    plot = replace(chosen, x=x, hue=hue, facet=chosen.facet or (kind.facet if hue != kind.facet else None))
    plot = replace(plot, y="train" if plot.kind == "divisions" and plot.y == "accuracy" else part.find_metric(plot.y))
    plot = replace(plot, over=plot.over or OVER) if "over" in kind.takes else plot
    _check_request(plot)
    return part.along([name for name in plot.fields if not find_kind_of_x(name)]), plot


def _resolve_field(study: Study, asked: str, name: str | None) -> str | None:
    """Resolve a field of a request to its column. Raises ConfigError for an unknown field."""
    if name is None or (asked == "x" and find_kind_of_x(name)):
        return name
    return study.named(asked, [name])[0]


def _find_kind(study: Study, x: str | None) -> str:
    """Find the kind that follows from the abscissa: lines over numbers, bars over other values."""
    if kind := find_kind_of_x(x):
        return kind
    if x is None or x in NAMED:
        return "bars"
    values = [study.runs[x]] if x in study.runs else []
    numeric = x == TEST or all(pd.to_numeric(v, errors="coerce").map(math.isfinite).all() for v in values)
    return "lines" if numeric else "bars"


def _check_takes(plot: Plot, kind: Kind) -> None:
    for each in fields(Plot):
        given, usual = getattr(plot, each.name), getattr(Plot(), each.name)
        if each.name in TAKEN and given != usual and each.name not in kind.takes:
            raise ConfigError(f"{each.name}: {given!r} has no effect on {plot.kind}; leave it out")
    only = {name for name, of in OF_X.items() if of == plot.kind or (plot.kind == "curves" and of == "pareto")}
    of_x = find_kind_of_x(plot.x)
    if plot.x is not None and only and plot.x not in only and of_x != plot.kind:
        raise ConfigError(f"x: {plot.x!r} is not what {plot.kind} are over; give {' or '.join(sorted(only))}")
    if of_x and not only:
        raise ConfigError(f"x: {plot.kind} cannot be over {plot.x!r}; leave the kind out, or give a field of the runs")


def _check_request(plot: Plot) -> None:
    """Raise ConfigError for a request without an abscissa, with a field twice, or for unknown images."""
    if plot.x is None and "x" in KINDS.get(str(plot.kind)).takes:
        raise ConfigError(f"x: none is given; {plot.kind} take a field of the runs, such as channel.snr_db")
    for first, second in (("x", "hue"), ("x", "facet"), ("hue", "facet")):
        if getattr(plot, first) is not None and getattr(plot, first) == getattr(plot, second):
            raise ConfigError(f"{second}: {getattr(plot, second)} is {first} already; give another field")
    if plot.kind == "gain" and (name := next((name for name in (plot.x, plot.facet) if name in PAIRED), None)):
        wanted = "give a field of the runs, such as channel.snr_db"
        raise ConfigError(f"x: gains are differences of methods, paired by seed, and have no {name!r}; {wanted}")
    if plot.kind == "divisions" and plot.y not in ("train", "test"):
        raise ConfigError(f"y: {plot.y!r} is not one of train, test")


def check_numbers(cells: object, plot: Plot) -> None:
    """Check that the numbers of a kind have rows and the required columns, see `Kind.numbers`.

    Raises:
        ConfigError: they lack rows or a column. The message names the kind and the first missing column.
    """
    if not isinstance(cells, pd.DataFrame) or cells.empty:
        given = "no rows" if isinstance(cells, pd.DataFrame) else type(cells).__name__
        raise ConfigError(f"kind: the numbers of {plot.kind} are {given}; give a DataFrame with a row or more")
    tabled = KINDS.get(str(plot.kind)).tabled
    wanted = (*plot.fields, "mean", "low", "high", "n") if tabled else (plot.hue, plot.facet)
    if missing := [name for name in wanted if name is not None and name not in cells]:
        unless = ", or declare it with tabled=False" if tabled and missing[0] not in (plot.hue, plot.facet) else ""
        raise ConfigError(f"kind: the numbers of {plot.kind} have no column {missing[0]!r}; add it{unless}")


def name_files(cells: pd.DataFrame) -> pd.DataFrame:
    """Shorten absolute paths to the names of their files, unless several have one name."""
    texts = [name for name in cells if cells[name].map(lambda value: isinstance(value, str)).all()]
    short = {name: cells[name].map(name_file) for name in texts}
    return cells.assign(**{name: new for name, new in short.items() if new.nunique() == cells[name].nunique()})


def name_empty(cells: pd.DataFrame, plot: Plot) -> pd.DataFrame:
    """Replace empty values of hue, panels and, where it holds categories, the abscissa by the text `EMPTY`."""
    placed = plot.x if KINDS.get(str(plot.kind)).rows else None
    names = [name for name in (plot.hue, plot.facet, placed) if name is not None and cells[name].isna().any()]
    return cells.assign(**{name: cells[name].astype(object).where(cells[name].notna(), EMPTY) for name in names})
