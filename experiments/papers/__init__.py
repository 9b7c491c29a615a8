"""Read the numbers in the tables of the five papers, and every ordering or number that their texts claim.

    from semcom_papers.experiments import papers

    papers.read_paper_table("fedcosr")  # a row per cell
    papers.read_paper_claims()  # a row per claim
    papers.read_paper_points()  # where in the space of runs a column of a table stands

README.md beside this file explains the columns. Files are checked when they are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from semcom import METHODS
from semcom.config import ConfigError

PAPERS = ("fedcl-letter", "fedcosr", "fedcrl", "fedcrc", "repper")
"""The papers, by the names of their files."""

OWN: Mapping[str, tuple[str | None, Mapping[str, Any]]] = {
    "averaged": (None, {}),
    "fedcrl": ("fedcosr", {}),
    "fedcrc-per": ("fedcrc", {"view": "personal"}),
    "fedcl-ideal-downlink": ("fedcl", {"channel.downlink": "ideal"}),
    "fedproto-prototype": ("fedproto", {"view": "prototype"}),
    "fedproto-over-the-air": ("fedproto", {"air.parameters": "analog"}),
    "fedproto-over-the-air-prototype": ("fedproto", {"air.parameters": "analog", "view": "prototype"}),
    "fedcosr-without-la": ("fedcosr", {"hyper.local_aggregation": False}),
    "fedcosr-without-sep": ("fedcosr", {"hyper.separate": False}),
    "fedcosr-without-crl": ("fedcosr", {"hyper.alpha": 0.0}),
}
"""Names of rows that are no method of semcom -> the method and the settings that they stand for.

`averaged` has no method: it is the mean over the methods of a table. FedCRL is FedCoSR in runs without a `fedcrl`.
"""

MARKS = ("1", "2", "3", "+", "-", "up", "down", "?", "bold", "underlined")
"""Marks that papers print beside a number: rank, better or worse than before or than the average, typeface.

`?` is a mark that the text has lost.
"""

RELATIONS = ("above", "below", "by", "equals", "falls_with", "rises_with", "best", "top")
"""Relations of `left` to `right` that a claim may state."""

METRICS = (
    "accuracy", "accuracy_std", "accuracy_of_each", "class_accuracy", "gain", "fall", "spread",
    "roughness", "speed", "silhouette", "silhouette-gain", "knn_purity", "gradient", "predictor_distance", "floats",
)  # fmt: skip
"""Metrics of claims; the default is accuracy."""

PARTS = ("class_size", "class_rank", "new_client", "round")
"""Fields that tell the parts of one run apart: a client's frequent and rare classes (by two names), new clients, and
parts of the training. `semcom_papers.experiments.claims.evidence` has the numbers of each."""

QUANTIFIERS = ("all", "almost-all", "most", "some", "any")
"""Fraction of its comparisons that a claim is about; the default is all."""

ASPECTS = ("axis", "metric", "quantifier", "formula")
"""Keys that `at` may have beside fields of a run."""

CELL = ("paper", "item", "row", "column", "value", "std", "unit", "page", "legible", "note", "marks", "std_marks")
CLAIM = (
    "id", "paper", "item", "page", "says", "left", "right", "at", "relation", "value", "unit", "reading",
    "contradicted_by", "protocol", "note",
)  # fmt: skip
POINT = ("paper", "item", "column", "at")
"""Columns of the files."""

FOLDER = Path(__file__).parent


def read_paper_table(paper: str) -> pd.DataFrame:
    """Read the numbers of one of `PAPERS`, a row per cell of its tables.

    Returns:
        The columns `CELL`; `value` and `std` are floats (NaN if not printed), `page` an integer or missing, all others
        text.

    Raises:
        ConfigError: there is no such paper.
        ValueError: the file is damaged; the message names the file and the line.
    """
    if paper not in PAPERS:
        raise ConfigError(f"paper: {paper!r} is unknown: known are {', '.join(PAPERS)}")
    name = f"{paper}.csv"
    frame = _read(name, CELL)
    known = _list_names()
    placed = {(p["item"], p["column"]) for _, p in _number_lines(read_paper_points()) if p["paper"] == paper}
    _check_unique(name, frame, ["item", "row", "column"])
    for line, cell in _number_lines(frame):
        _require(cell["paper"] == paper, name, line, f"the paper is {cell['paper']!r}")
        _require(cell["legible"] in ("yes", "repaired", "no"), name, line, f"legible is {cell['legible']!r}")
        _require(cell["legible"] == "yes" or cell["note"] != "", name, line, "a repair needs a note")
        for mark in (cell["marks"] + " " + cell["std_marks"]).split():
            _require(mark in MARKS, name, line, f"mark {mark!r} is unknown")
        if not is_setting(cell["item"]):
            _require(cell["row"] in known, name, line, f"method {cell['row']!r} is unknown")
            there = (cell["item"], cell["column"]) in placed
            _require(there, name, line, f"points.csv does not have column {cell['column']!r} of {cell['item']}")
    return _parse_numbers(name, frame, ("value", "std"))


def read_paper_claims() -> pd.DataFrame:
    """Read the claims of all papers, a row per ordering or number.

    Returns:
        The columns `CLAIM`; `value` is a float (NaN without a number), `page` an integer or missing, all others text.
        `parse_point` reads `at`; `split_cells` splits several cells.

    Raises:
        ValueError: the file is damaged; the message names the file and the line.
    """
    name, frame = "claims.csv", _read("claims.csv", CLAIM)
    _check_unique(name, frame, ["id"])
    printed, methods = {paper: read_paper_table(paper) for paper in PAPERS}, _list_names()
    known = {paper: set(zip(t["item"], t["row"], t["column"], strict=True)) for paper, t in printed.items()}
    for line, claim in _number_lines(frame):
        _require(claim["paper"] in PAPERS, name, line, f"paper {claim['paper']!r} is unknown")
        _check_claim(name, line, claim, methods)
        for cell in split_cells(claim["contradicted_by"]):
            _require(cell in known[claim["paper"]], name, line, f"there is no cell {'/'.join(cell)}")
    return _parse_numbers(name, frame, ("value",))


def read_paper_points() -> pd.DataFrame:
    """Read the columns of all tables with the point that each stands for; columns `POINT`, all text.

    Raises:
        ValueError: the file is damaged; the message names the file and the line.
    """
    name, frame = "points.csv", _read("points.csv", POINT)
    _check_unique(name, frame, ["paper", "item", "column"])
    for line, point in _number_lines(frame):
        _require(point["paper"] in PAPERS, name, line, f"paper {point['paper']!r} is unknown")
        _parse_point_at(name, line, point["at"])
    return frame


def parse_point(text: str) -> dict[str, tuple[str, ...]]:
    """Parse a point into field -> values: "clients=5|20;channel.snr_db=9" has two values of `clients` and one SNR.

    Raises:
        ValueError: the text has another form, or a field twice.
    """
    found: dict[str, tuple[str, ...]] = {}
    for pair in filter(None, text.split(";")):
        field, equals, values = pair.partition("=")
        if not (field and equals and all(values.split("|"))) or field in found:
            raise ValueError(f"{pair!r} in {text!r} is not field=value, or has its field twice")
        found[field] = tuple(values.split("|"))
    return found


def split_cells(text: str) -> list[tuple[str, ...]]:
    """Split `contradicted_by` into cells, each (item, row, column)."""
    return [tuple(cell.split("/")) for cell in filter(None, text.split(";"))]


def is_setting(item: str) -> bool:
    """Check whether the rows of an item are settings of experiments instead of methods."""
    return item == "fedcrl-table1" or item.endswith("-settings")


# Reading and checking ------------------------------------------------------------------------------------------------


def _read(name: str, columns: tuple[str, ...]) -> pd.DataFrame:
    frame = pd.read_csv(FOLDER / name, dtype=str, keep_default_na=False, encoding="utf-8")
    _require(tuple(frame.columns) == columns, name, 1, f"the columns are {', '.join(frame.columns)}")
    return frame


def _number_lines(frame: pd.DataFrame) -> Iterable[tuple[int, dict[str, str]]]:
    return enumerate(frame.to_dict("records"), start=2)


def _parse_numbers(name: str, frame: pd.DataFrame, columns: tuple[str, ...]) -> pd.DataFrame:
    for line, row in _number_lines(frame):
        for column in (*columns, "page"):
            _require(re.fullmatch(r"(\d+(\.\d+)?)?", row[column]) is not None, name, line, f"{column} is no number")
    pages = pd.to_numeric(frame["page"]).astype("Int64")
    return frame.assign(page=pages, **{column: pd.to_numeric(frame[column]).astype(float) for column in columns})


def _check_unique(name: str, frame: pd.DataFrame, key: list[str]) -> None:
    for index in frame.index[frame.duplicated(key)]:
        _require(False, name, int(index) + 2, f"{' '.join(frame.loc[index, key])} occurs twice")


def _check_claim(name: str, line: int, claim: Mapping[str, str], methods: set[str]) -> None:
    relation, here = claim["relation"], _parse_point_at(name, line, claim["at"])
    _require(relation in RELATIONS, name, line, f"relation {relation!r} is unknown")
    _require(claim["unit"] in ("", "points", "percent-relative"), name, line, f"unit {claim['unit']!r} is unknown")
    _require(claim["protocol"] in ("known", "unknown"), name, line, f"protocol is {claim['protocol']!r}")
    _require(claim["protocol"] == "known" or claim["note"] != "", name, line, "an unknown protocol needs a note")
    _require(claim["says"].endswith("."), name, line, "`says` is no sentence")
    _require(claim["left"] != "", name, line, "`left` is empty")
    for method in claim["left"].split() + claim["right"].split():
        _require(method in methods, name, line, f"method {method!r} is unknown")
    _require(relation not in ("falls_with", "rises_with") or "axis" in here, name, line, f"{relation} needs an axis")
    _require(set(here.get("metric", ())) <= set(METRICS), name, line, "the metric is unknown")
    _require(set(here.get("quantifier", ())) <= set(QUANTIFIERS), name, line, "the quantifier is unknown")


def _parse_point_at(name: str, line: int, text: str) -> dict[str, tuple[str, ...]]:
    try:
        return parse_point(text)
    except ValueError as error:
        raise ValueError(f"{name}, line {line}: {error}") from None


def _list_names() -> set[str]:
    return {*METHODS.names(), *OWN}


def _require(good: bool, name: str, line: int, problem: str) -> None:
    if not good:
        raise ValueError(f"{name}, line {line}: {problem}")
