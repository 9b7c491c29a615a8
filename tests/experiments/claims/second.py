"""The verdict rule of docs/protocol.md a second time, by code that shares none with `experiments.claims`.

It was written from that page and from experiments/papers/README.md. It reads the files of the papers, and the archives
of studies as the JSON that they hold, by itself. What it takes from the package are names: which method and settings a
name of the papers stands for, the variants of an experiment, and which values of a scale stand for a paper's.
"""

from __future__ import annotations

import csv
import functools
import itertools
import json
import math
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from experiments import papers
from semcom.studies.registry import EXPERIMENTS, find_experiment

RESULTS = Path(papers.__file__).parents[1] / "results"
Seeds = dict[int, float]
"""Seed -> a number."""
SPREADS = {"accuracy_std", "fall", "spread", "roughness", "floats"}
"""What is best where it is lowest."""
THIRDS = ("head", "middle", "tail")
SPANS = {"first tenth": (0.0, 0.1), "third quarter": (0.5, 0.75), "last quarter": (0.75, 1.0)}
PRINTED = {"accuracy", "accuracy_std", "gain", "fall", "spread"}
"""What the papers' tables have numbers of."""


def rows(name: str) -> list[dict[str, str]]:
    with (Path(papers.__file__).parent / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def pairs(text: str) -> dict[str, list[str]]:
    return {name: values.split("|") for name, values in (part.split("=") for part in text.split(";") if part)}


@dataclass
class Point:
    """A place at which methods meet: its fields as text, and a function of method and metric to numbers by seed."""

    item: str
    fields: dict[str, str]
    number: Callable[[str, str], Seeds]
    part: str | None = None


# Numbers of the papers, and of runs ----------------------------------------------------------------------------------


@functools.cache
def of_tables(paper: str) -> list[Point]:
    cells = {(c["item"], c["column"], c["row"]): c for c in rows(paper)}
    found = []
    for column in rows("points"):
        where = {name: values[0] for name, values in pairs(column["at"]).items()}
        if column["paper"] == paper and "metric" not in where:

            def number(method: str, metric: str, key: Any = (column["item"], column["column"])) -> Seeds:
                cell = cells.get((*key, method), {"value": "", "std": ""})
                printed = cell["std" if metric == "accuracy_std" else "value"]
                return {0: float(printed)} if printed else {}

            found.append(Point(column["item"], where, number))
    return found


def text(value: Any) -> str:
    """A value as claims spell it."""
    if isinstance(value, list):
        return ",".join(map(text, value))
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


@dataclass
class Run:
    variant: str
    fields: dict[str, Any]
    summary: dict[str, Any]
    lines: list[dict[str, Any]] = field(default_factory=list)


def flat(config: dict[str, Any], before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, dict):
            found |= flat(value, before if name == "options" else f"{before}{name}.")
        else:
            found[before + name] = value
    return found


@functools.cache
def of_runs(item: str) -> tuple[Point, ...]:
    path = RESULTS / f"{item}-small.zip"
    if not path.exists():
        return ()
    with zipfile.ZipFile(path) as archive:
        inside = set(archive.namelist())
        sweep = json.loads(archive.read("sweep.json"))
        runs = []
        for name in sorted(inside):
            key, _, file = name.partition("/")
            if file != "summary.json":
                continue
            summary = json.loads(archive.read(name))
            folder = f"{key}/training" if f"{key}/training/config.json" in inside else key
            config = json.loads(archive.read(f"{key}/config.json"))
            lines = []
            if f"{folder}/metrics.jsonl" in inside:
                lines = [json.loads(line) for line in archive.read(f"{folder}/metrics.jsonl").splitlines()]
            last = [summary["finish"]] if summary.get("finish") else []
            runs.append(Run(sweep["variants"][key], flat(config), summary, [*lines, *last]))
    axes = [f for axis in sweep["axes"] if axis not in ("variant", "seed") for f in axis.split(",")]
    reduced = find_experiment(item).reduced.get("small", {}) if item in EXPERIMENTS.names() else {}
    stands = {(name, text(k)): text(v) for name, of in reduced.items() for k, v in of.items()}
    ended = any("finish" in run.summary for run in runs)
    points = []
    places = {tuple(text(run.fields.get(axis)) for axis in axes): None for run in runs}
    for place in places:
        here = [run for run in runs if tuple(text(run.fields.get(axis)) for axis in axes) == place]
        shared = {n: text(v) for n, v in here[0].fields.items() if all(r.fields.get(n) == v for r in here)}
        shared = {name: stands.get((name, value), value) for name, value in shared.items()}
        for part, value in parts(here):
            number = functools.partial(number_of, item, here, part, value, ended)
            points.append(Point(item, {**shared, part: value} if part else shared, number, part or None))
    return tuple(points)


def parts(runs: list[Run]) -> list[tuple[str, str]]:
    found = [("", "")]
    found += [("round", span) for span in SPANS]
    for third in THIRDS:
        if any(third in run.summary.get("groups", {}) for run in runs):
            found += [("class_size", third), ("class_rank", third)]
    most = max(len(run.summary.get("new_clients", {}).get("head", {}).get("clients", [])) for run in runs)
    return found + [("new_client", str(i)) for i in range(most)]


def number_of(item: str, runs: list[Run], part: str, value: str, ended: bool, method: str, metric: str) -> Seeds:
    if method == "averaged":
        each = [number_of(item, runs, part, value, ended, v.name, metric) for v in find_experiment(item).compared()]
        seeds = set.intersection(*map(set, each))
        return {seed: float(np.mean([of[seed] for of in each])) for seed in seeds}
    mine, view = [run for run in runs if run.variant == method], None
    if method in papers.OWN:
        name, settings = papers.OWN[method]
        view = settings.get("view")
        wanted = {k: v for k, v in settings.items() if k != "view"}
        if not mine:
            mine = [r for r in runs if r.fields["method"] == name and (wanted or r.variant == name)]
            mine = [r for r in mine if all(r.fields.get(k) == v for k, v in wanted.items())]
    found = {run.fields["seed"]: one(run, view, part, value, ended, metric) for run in mine}
    return {seed: number for seed, number in found.items() if number is not None}


def one(run: Run, view: str | None, part: str, value: str, ended: bool, metric: str) -> float | None:
    """A number of a run or of a part of it, shares in percent."""
    summary, name = run.summary, view or next(iter(run.summary["views"]))
    scores = summary["views"][name]
    curve = {line["round"]: line["views"][name]["accuracy"] for line in run.lines if name in line.get("views", {})}
    if part == "round":
        return mean_over(curve, SPANS[value], summary["rounds"]) if metric == "accuracy" else None
    if part == "new_client":
        each = summary["new_clients"]["head"]["clients"]
        return 100 * each[int(value)] if metric == "accuracy_of_each" else None
    if part:
        third = summary.get("groups", {}).get(value, {})
        share = metric in ("accuracy", "class_accuracy")
        found = third.get("accuracy" if share else metric)
        return None if found is None else found * (100 if share else 1)
    if metric == "accuracy" and summary.get("new_clients"):
        joined = summary["new_clients"]
        return 100 * joined["global" if "global" in joined else "head"]["accuracy"]
    if metric == "accuracy":
        return 100 * scores["last" if ended else "accuracy"]
    if metric == "accuracy_std":
        return 100 * scores["accuracy_std"]
    if metric == "roughness":
        steps = [abs(curve[i + 1] - curve[i]) for i in curve if i + 1 in curve]
        return 100 * float(np.mean(steps)) if steps else None
    if metric == "speed":
        there = [i for i, accuracy in curve.items() if accuracy >= 0.9 * scores["accuracy"]]
        return 100 * (1 - min(there) / summary["rounds"]) if there and min(curve) < summary["rounds"] else None
    if metric == "floats":
        return sum(way["floats"] for way in summary["traffic"].values())
    if metric in ("silhouette", "knn_purity"):
        found = summary.get("clusters", {}).get(metric)
        return None if found is None else found * (100 if metric == "knn_purity" else 1)
    return summary.get(metric)


def mean_over(curve: dict[int, float], span: tuple[float, float], rounds: int) -> float | None:
    """Each evaluation stands for the rounds since the one before it."""
    start, end = (part * rounds for part in span)
    weights, before = {}, 0.0
    for i in sorted(curve):
        if start < i <= end:
            weights[i] = i - max(before, start)
        before = i
    return 100 * sum(w * curve[i] for i, w in weights.items()) / sum(weights.values()) if weights else None


# What a claim compares -----------------------------------------------------------------------------------------------


@dataclass
class Compared:
    """`values`: by seed, of one difference, or of `top` of every rival's lead. `target`: the number stated, if any."""

    values: list[Seeds]
    target: float | None = None
    places: int = 0
    lead: bool = False
    point: float = 1.0
    counted: bool = False


def minus(a: Seeds, b: Seeds) -> Seeds:
    return {seed: a[seed] - b[seed] for seed in a if seed in b}


def average(values: Seeds) -> float:
    return float(np.mean(list(values.values()))) if values else math.nan


class Claim:
    """A line of claims.csv, held against points that are the paper's own or those of runs (`lacking` says which).

    `lacking`: whether a rival without numbers leaves a comparison open, as one that was not run does.
    """

    def __init__(self, row: dict[str, str], lacking: bool) -> None:
        asked = pairs(row["at"])
        self.metric = asked.pop("metric", ["accuracy"])[0]
        self.axis = asked.pop("axis", [""])[0]
        self.quantifier = asked.pop("quantifier", ["all"])[0]
        self.formula = asked.pop("formula", None) is not None and row["relation"] == "equals"
        self.row, self.asked, self.lacking = row, asked, lacking
        self.left, self.right, self.relation = row["left"].split(), row["right"].split(), row["relation"]
        self.stated = float(row["value"] or "nan")

    def here(self, points: list[Point]) -> list[Point]:
        spoken = next((p for p in papers.PARTS if p == self.axis or p in self.asked), None)
        spoken = "new_client" if self.metric == "accuracy_of_each" else spoken
        mixed = len(self.asked.get("partition.kind", [])) > 1

        def fits(point: Point) -> bool:
            for name, values in self.asked.items():
                passed = mixed and name.startswith("partition.") and name not in point.fields
                if not passed and point.fields.get(name) not in values:
                    return False
            return True

        return [p for p in points if p.item in self.row["item"].split() and p.part == spoken and fits(p)]

    def lines(self, points: list[Point]) -> list[list[Point]]:
        """Points along the axis, a line for each combination of the other fields with several values."""
        others = [name for name, values in self.asked.items() if name != self.axis and len(values) > 1]
        found: dict[Any, list[Point]] = {}
        for point in points:
            if self.axis in point.fields:
                found.setdefault(tuple(point.fields.get(name) for name in others), []).append(point)
        listed = self.asked.get(self.axis)

        def position(point: Point) -> float:
            at = point.fields[self.axis]
            return listed.index(at) if listed else float(at)

        down = self.metric == "fall" and not listed
        return [sorted(line, key=position, reverse=down) for line in found.values() if len(line) > 1]

    def measure(self, method: str, line: list[Point]) -> Seeds:
        if self.metric in ("fall", "spread"):
            each = [p.number(method, "accuracy") for p in line]
            if self.metric == "fall":
                return minus(each[0], each[-1])
            seeds = set.intersection(*map(set, each))
            return {s: max(e[s] for e in each) - min(e[s] for e in each) for s in seeds}
        if self.metric in ("gain", "silhouette-gain"):
            base = "silhouette" if self.metric != "gain" else "accuracy"
            best = self.best([line[0].number(r, base) for r in self.right if r != method])
            return minus(line[0].number(method, base), best)
        return line[0].number(method, self.metric)

    def best(self, each: list[Seeds]) -> Seeds:
        known = [values for values in each if values]
        if not known or (self.lacking and len(known) < len(each)):
            return {}
        return max(known, key=average)

    def compared(self, points: list[Point]) -> Iterator[Compared]:
        here = self.here(points)
        if self.relation in ("falls_with", "rises_with"):
            for line, method in itertools.product(self.lines(here), self.left):
                for a, b in itertools.pairwise(line):
                    step = minus(self.measure(method, [b]), self.measure(method, [a]))
                    yield self.beside(step, low=self.relation == "falls_with")
            return
        together = self.metric in ("fall", "spread")
        for line in self.lines(here) if together else [[p] for p in here]:
            for method in self.arms(line):
                yield from self.at(method, line)

    def arms(self, line: list[Point]) -> list[str]:
        if self.quantifier != "any":
            return self.left
        known = [name for name in self.left if self.measure(name, line)]
        return [max(known, key=lambda name: average(self.measure(name, line)))] if known else self.left[:1]

    def beside(self, difference: Seeds, low: bool) -> Compared:
        values = {seed: -v if low else v for seed, v in difference.items()}
        return Compared([values], counted=self.metric == "floats")

    def at(self, method: str, line: list[Point]) -> Iterator[Compared]:
        mine, counted = self.measure(method, line), self.metric == "floats"
        rivals = {name: self.measure(name, line) for name in self.right if name != method}
        own = average(line[0].number(method, "accuracy"))
        relative = self.row["unit"] == "percent-relative"
        if self.relation == "top":
            ahead = [minus(mine, r) if self.metric in SPREADS else minus(r, mine) for r in rivals.values()]
            yield Compared([v for v in ahead if v or self.lacking] or [{}], places=int(self.stated))
        elif self.relation in ("by", "equals"):
            rest = self.best(list(rivals.values())) if self.right else {}
            whole = average(rest) if self.right else own
            target = self.stated * (whole / 100 if relative else 1)
            if self.formula:
                target = average(line[0].number(method, f"{self.metric}_formula"))
            point = (target if self.formula else whole) / 100 if counted else 1.0
            values = minus(mine, rest) if self.right else mine
            yield Compared([values], target, lead=bool(self.right), point=point, counted=counted)
        else:
            low = self.relation == "below" or (self.relation == "best" and self.metric in SPREADS)
            if not self.right:
                limit = self.stated * (own / 100 if relative else 1)
                yield self.beside({seed: v - limit for seed, v in mine.items()}, low)
            for theirs in rivals.values():
                yield self.beside(minus(mine, theirs), low)


# The rule ------------------------------------------------------------------------------------------------------------


def interval(values: Seeds, counted: bool) -> tuple[float, float] | None:
    """95 %, Student's t over seeds; None where there is none."""
    numbers = np.round(list(values.values()), 9)
    if len(numbers) < 2:
        return None
    if np.ptp(numbers) == 0:
        return (numbers[0], numbers[0]) if counted else None
    half = stats.t.ppf(0.975, len(numbers) - 1) * stats.sem(numbers)
    return numbers.mean() - half, numbers.mean() + half


def answer(one: Compared) -> str:
    if one.places:
        ends = [interval(values, one.counted) for values in one.values]
        if sum(end is not None and end[0] > 0 for end in ends) >= one.places:
            return "no"
        can_be = sum(end is None or end[1] > 0 for end in ends)
        return "yes" if can_be <= one.places - 1 and None not in ends else "open"
    end = interval(one.values[0], one.counted)
    if end is None or (one.target is not None and math.isnan(one.target)):
        return "open"
    low, high = end
    if one.target is None:
        return "yes" if low > 0 else "no" if high < 0 else "open"
    if low > one.target + 2 * one.point or high < one.target - 2 * one.point:
        return "no"
    if one.lead and one.target != 0:
        return "yes" if (low > 0 if one.target > 0 else high < 0) else "open"
    return "yes" if high - low <= 8 * one.point else "open"


def misses(one: Compared) -> bool:
    """Whether printed numbers speak against a claim by more than 2 points."""
    values = [next(iter(v.values())) for v in one.values]
    if one.places:
        return sum(v > 2 for v in values) >= one.places
    return values[0] < -2 if one.target is None else abs(values[0] - one.target) > 2


def enough(count: int, total: int, quantifier: str) -> bool:
    """Whether so many of the comparisons make a claim true."""
    if quantifier == "some":
        return count >= 1
    if quantifier == "most":
        return 2 * count > total
    return 5 * count >= 4 * total if quantifier == "almost-all" else count == total


def contradicted(row: dict[str, str]) -> bool:
    claim = Claim(row, lacking=False)
    if claim.metric not in PRINTED:
        return False
    found = [one for one in claim.compared(of_tables(row["paper"])) if all(one.values)]
    total = len(found)
    return total > 0 and not enough(total - sum(map(misses, found)), total, claim.quantifier)


def verdict(row: dict[str, str]) -> str:
    if contradicted(row):
        return "contradicted by the paper itself"
    if row["protocol"] == "unknown":
        return "protocol unknown"
    claim, items = Claim(row, lacking=True), row["item"].split()
    points = [point for item in items for point in of_runs(item)]
    found = list(claim.compared(points))
    if not any(values for one in found for values in one.values):
        return "not run"
    answers = [answer(one) for one in found]
    yes, no, total = answers.count("yes"), answers.count("no"), len(answers)
    there = {(name, value) for point in points for name, value in point.fields.items()}
    missing = {p.item for p in points} != set(items) or any(
        (name, value) not in there for name, values in claim.asked.items() for value in values
    )
    overturned = {"some": {"no"}, "most": {"yes", "no"}, "almost-all": {"yes", "no"}}.get(claim.quantifier, {"yes"})
    if enough(yes, total, claim.quantifier):
        return "inconclusive" if missing and "yes" in overturned else "reproduced"
    if not enough(total - no, total, claim.quantifier):
        return "inconclusive" if missing and "no" in overturned else "not reproduced"
    return "inconclusive"
