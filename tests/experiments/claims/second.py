"""The verdict rule of experiments/protocol.md a second time, in both editions, by code that shares none with
`semcom_papers.experiments.claims`: `verdict` is the first one, `judge` the second.

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

from semcom.studies.registry import EXPERIMENTS, find_experiment
from semcom_papers.experiments import papers
from tests.archives import open_runs

RESULTS = Path(papers.__file__).parents[1] / "results"
Seeds = dict[tuple[int, str], float]
"""Seed and kinds of device -> a number. The first edition leaves the kinds empty, so that all are of one kind."""
SPREADS = {"accuracy_std", "fall", "spread", "roughness", "floats"}
"""What is best where it is lowest."""
THIRDS = ("head", "middle", "tail")
SPANS = {"first tenth": (0.0, 0.1), "third quarter": (0.5, 0.75), "last quarter": (0.75, 1.0)}
PRINTED = {"accuracy", "accuracy_std", "gain", "fall", "spread"}
"""What the papers' tables have numbers of."""
OF_ACCURACIES = {"accuracy", "accuracy_of_each", "class_accuracy", "gain", "fall", "spread"}
"""Accuracies and differences of them: these may be level, and a "no" about them needs power."""
TWINS = {
    "fedcrl-table2": "fedcosr-table2", "fedcrl-table3": "fedcosr-table3", "fedcrl-curves": "fedcosr-fig5",
    "fedcrl-tsne": "fedcosr-fig9",
}  # fmt: skip
"""Item -> the item whose runs its claims are held against in the second edition."""
OWN_RATES = {"fedcosr-table2": "fedcosr-table2-rates", "fedcosr-table3": "fedcosr-table3-rates"}
CLASSES = {"cifar10": 10, "cifar100": 100, "mnist": 10, "fashion_mnist": 10, "svhn": 10, "emnist": 47}
MOST_SEEDS = 1000


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
    dashes: frozenset[str] = frozenset()
    """Arms of which a run guesses here."""


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
                return {(0, ""): float(printed)} if printed else {}

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
def read_runs(item: str) -> tuple[list[str], tuple[Run, ...]]:
    """The fields along which the runs of an item vary, and the runs."""
    path = RESULTS / f"{item}-small.zip"
    if not path.exists():
        return [], ()
    with zipfile.ZipFile(path) as archive:
        sweep = json.loads(archive.read("sweep.json"))
    with open_runs(path) as archive:
        inside = set(archive.namelist())
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
    return [f for axis in sweep["axes"] if axis not in ("variant", "seed") for f in axis.split(",")], tuple(runs)


@functools.cache
def of_runs(item: str, edition: int = 1, own_rates: bool = False) -> tuple[Point, ...]:
    source = item if edition == 1 else TWINS.get(item, item)
    axes, found = read_runs(source)
    runs = list(found)

    def place_of(run: Run) -> tuple[str, ...]:
        return tuple(text(run.fields.get(axis)) for axis in axes)

    if own_rates and source in OWN_RATES:
        places = {place_of(run) for run in runs}
        better = [run for run in read_runs(OWN_RATES[source])[1] if place_of(run) in places]
        replaced = {(place_of(run), run.variant) for run in better}
        runs = [run for run in runs if (place_of(run), run.variant) not in replaced] + better
    reduced = find_experiment(source).reduced.get("small", {}) if source in EXPERIMENTS.names() else {}
    stands = {(name, text(k)): text(v) for name, of in reduced.items() for k, v in of.items()}
    ended = any("finish" in run.summary for run in runs)
    points = []
    for place in dict.fromkeys(map(place_of, runs)):
        here = [run for run in runs if place_of(run) == place]
        shared = {n: text(v) for n, v in here[0].fields.items() if all(r.fields.get(n) == v for r in here)}
        shared = {name: stands.get((name, value), value) for name, value in shared.items()}
        known = {*papers.OWN, *(run.variant for run in here)} - {"averaged"} if edition == 2 else set()
        dashes = frozenset(arm for arm in known if any(guesses(run) for run, _ in runs_of(here, arm)))
        for part, value in parts(here):
            number = functools.cache(functools.partial(number_of, source, here, part, value, ended, edition, dashes))
            points.append(Point(item, {**shared, part: value} if part else shared, number, part or None, dashes))
    return tuple(points)


def guesses(run: Run) -> bool:
    """By the headline: the mean over the last evaluations, of the first view."""
    scores = run.summary["views"][next(iter(run.summary["views"]))]
    each = scores.get("clients", [])
    alike = len(each) > 1 and max(each) - min(each) < 1e-9 and scores["accuracy"] <= 0.5
    return alike or scores["accuracy"] <= 1.25 / CLASSES[run.fields["data.name"]]


def parts(runs: list[Run]) -> list[tuple[str, str]]:
    found = [("", "")]
    found += [("round", span) for span in SPANS]
    for third in THIRDS:
        if any(third in run.summary.get("groups", {}) for run in runs):
            found += [("class_size", third), ("class_rank", third)]
    most = max(len(run.summary.get("new_clients", {}).get("head", {}).get("clients", [])) for run in runs)
    return found + [("new_client", str(i)) for i in range(most)]


def runs_of(runs: list[Run], arm: str) -> list[tuple[Run, str | None]]:
    """The runs of an arm, each with the view that it is tested by if not the first one."""
    mine, view = [run for run in runs if run.variant == arm], None
    if arm in papers.OWN:
        name, settings = papers.OWN[arm]
        view = settings.get("view")
        wanted = {k: v for k, v in settings.items() if k != "view"}
        if not mine:
            mine = [r for r in runs if r.fields["method"] == name and (wanted or r.variant == name)]
            mine = [r for r in mine if all(r.fields.get(k) == v for k, v in wanted.items())]
    return [(run, view) for run in mine]


def number_of(
    item: str,
    runs: list[Run],
    part: str,
    value: str,
    ended: bool,
    edition: int,
    dashes: frozenset[str],
    method: str,
    metric: str,
) -> Seeds:
    if method == "averaged":
        variants = [v.name for v in find_experiment(item).compared() if v.name not in dashes]
        each = [number_of(item, runs, part, value, ended, edition, dashes, name, metric) for name in variants]
        seeds = set.intersection(*map(set, each))
        return {seed: float(np.mean([of[seed] for of in each])) for seed in seeds}
    if method in dashes and not metric.startswith("floats"):
        return {}
    found: Seeds = {}
    for run, view in runs_of(runs, method):
        number = one(run, view, part, value, ended, metric)
        if number is not None:
            found[run.fields["seed"], run.summary["device"] if edition == 2 else ""] = number
    return found


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
    names: list[str]
    target: float | None = None
    places: int = 0
    lead: bool = False
    point: float = 1.0
    counted: bool = False
    effects: list[float] = field(default_factory=list)
    """What the paper prints of each of `values`, 2 points at least, on the claimed side."""


def minus(a: Seeds, b: Seeds) -> Seeds:
    return {seed: a[seed] - b[seed] for seed in a if seed in b}


def along(each: list[Seeds], how: Callable[[list[float]], float]) -> Seeds:
    """A number made of those of several points: of the seeds that all have, whatever their devices."""
    by_seed = [{seed: (kind, value) for (seed, kind), value in of.items()} for of in each]
    seeds = set.intersection(*map(set, by_seed))
    return {(s, " ".join(of[s][0] for of in by_seed)): how([of[s][1] for of in by_seed]) for s in sorted(seeds)}


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
        self.items = row["item"].split()

    def points(self, edition: int) -> list[Point]:
        """Places of runs, with own rates where the claim does not hold places against each other."""
        own_rates = edition == 2 and not self.axis
        return [point for item in self.items for point in of_runs(item, edition, own_rates)]

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

        return [p for p in points if p.item in self.items and p.part == spoken and fits(p)]

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
                return along([each[0], each[-1]], lambda ends: ends[0] - ends[1])
            return along(each, lambda values: max(values) - min(values))
        if self.metric in ("gain", "silhouette-gain"):
            base = "silhouette" if self.metric != "gain" else "accuracy"
            best = self.best([line[0].number(r, base) for r in self.rivals(line) if r != method])
            return minus(line[0].number(method, base), best)
        return line[0].number(method, self.metric)

    def rivals(self, line: list[Point]) -> list[str]:
        return [name for name in self.right if not any(name in self.dashes(point) for point in line)]

    def dashes(self, point: Point) -> frozenset[str]:
        """The arms that count for nothing at a point. What they send is counted all the same."""
        return frozenset() if self.metric == "floats" else point.dashes

    def best(self, each: list[Seeds]) -> Seeds:
        known = [values for values in each if values]
        if not known or (self.lacking and len(known) < len(each)):
            return {}
        return max(known, key=average)

    def dashed(self, points: list[Point]) -> list[Point]:
        """The points of the claim at which the arms that it is about guess: as if they had not been run."""
        return [point for point in self.here(points) if self.dashes(point).issuperset(self.left)]

    def compared(self, points: list[Point]) -> Iterator[Compared]:
        dashed = self.dashed(points)
        here = [point for point in self.here(points) if point not in dashed]
        if self.relation in ("falls_with", "rises_with"):
            for line, method in itertools.product(self.lines(here), self.left):
                for pair in map(list, itertools.pairwise(line)):
                    yield from self.told(method, pair, self.step)
            return
        together = self.metric in ("fall", "spread")
        for line in self.lines(here) if together else [[p] for p in here]:
            for method in self.arms(line):
                yield from self.told(method, line, self.at)

    def told(self, method: str, line: list[Point], how: Callable[..., Iterator[Compared]]) -> Iterator[Compared]:
        """Comparisons of a method at some points, with the effects that the paper prints there."""
        if any(method in self.dashes(point) for point in line):
            return
        shadow = [shade for point in line for shade in of_tables(self.row["paper"]) if stands_for(shade, point)]
        printed: dict[str, Seeds] = {}
        if self.lacking and self.metric in PRINTED and len(shadow) == len(line):
            paper = Claim(self.row, lacking=False)
            for one in getattr(paper, how.__name__)(method, shadow):
                printed |= dict(zip(one.names, one.values, strict=True))
        for one in how(method, line):
            each = [average(printed.get(name, {})) * (-1 if one.places else 1) for name in one.names]
            if one.target is not None:
                each = [abs(one.target)]
            one.effects = [effect if effect > 2 else 2.0 for effect in each]
            yield one

    def arms(self, line: list[Point]) -> list[str]:
        if self.quantifier != "any":
            return self.left
        known = [name for name in self.left if self.measure(name, line)]
        return [max(known, key=lambda name: average(self.measure(name, line)))] if known else self.left[:1]

    def step(self, method: str, line: list[Point]) -> Iterator[Compared]:
        ends = [self.measure(method, [point]) for point in line]
        yield self.beside("", along(ends, lambda values: values[1] - values[0]), low=self.relation == "falls_with")

    def beside(self, name: str, difference: Seeds, low: bool) -> Compared:
        values = {seed: -v if low else v for seed, v in difference.items()}
        return Compared([values], [name], counted=self.metric == "floats")

    def at(self, method: str, line: list[Point]) -> Iterator[Compared]:
        mine, counted = self.measure(method, line), self.metric == "floats"
        rivals = {name: self.measure(name, line) for name in self.rivals(line) if name != method}
        if self.right and not rivals:
            return
        own = average(line[0].number(method, "accuracy"))
        relative = self.row["unit"] == "percent-relative"
        if self.relation == "top":
            ahead = {n: minus(mine, r) if self.metric in SPREADS else minus(r, mine) for n, r in rivals.items()}
            ahead = {name: values for name, values in ahead.items() if values or self.lacking} or {"": {}}
            yield Compared(list(ahead.values()), list(ahead), places=int(self.stated))
        elif self.relation in ("by", "equals"):
            rest = self.best(list(rivals.values())) if self.right else {}
            whole = average(rest) if self.right else own
            target = self.stated * (whole / 100 if relative else 1)
            values = minus(mine, rest) if self.right else mine
            if self.formula:
                formula = line[0].number(method, f"{self.metric}_formula")
                target = average(formula)
                values = {seed: v + target for seed, v in minus(mine, formula).items()}
            point = (target if self.formula else whole) / 100 if counted else 1.0
            yield Compared([values], [""], target, lead=bool(self.right), point=point, counted=counted)
        else:
            low = self.relation == "below" or (self.relation == "best" and self.metric in SPREADS)
            if not self.right:
                limit = self.stated * (own / 100 if relative else 1)
                yield self.beside("", {seed: v - limit for seed, v in mine.items()}, low)
            for name, theirs in rivals.items():
                yield self.beside(name, minus(mine, theirs), low)


def stands_for(printed: Point, point: Point) -> bool:
    same = all(point.fields.get(name) == value for name, value in printed.fields.items())
    return point.part is None and printed.item == point.item and same


# The rule ------------------------------------------------------------------------------------------------------------


def interval(values: Seeds, counted: bool) -> tuple[float, float] | None:
    """95 %, Student's t over seeds; None where there is none."""
    numbers = np.round(list(values.values()), 9)
    if len(numbers) < 2:
        return None
    if np.ptp(numbers) == 0:
        return (numbers[0], numbers[0]) if counted else None
    half = t_limit(len(numbers)) * numbers.std(ddof=1) / math.sqrt(len(numbers))
    return numbers.mean() - half, numbers.mean() + half


@functools.cache
def t_limit(count: int, level: float = 0.05) -> float:
    return float(stats.t.ppf(1 - level / 2, count - 1))


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
    """By the first edition."""
    if contradicted(row):
        return "contradicted by the paper itself"
    if row["protocol"] == "unknown":
        return "protocol unknown"
    claim = Claim(row, lacking=True)
    points = claim.points(1)
    found = list(claim.compared(points))
    if not any(values for one in found for values in one.values):
        return "not run"
    return decide(list(map(answer, found)), claim.quantifier, missing(claim, points))


def missing(claim: Claim, points: list[Point]) -> bool:
    """Whether items or values that a claim speaks of were not run."""
    there = {(name, value) for point in points for name, value in point.fields.items()}
    return {p.item for p in points} != set(claim.items) or any(
        (name, value) not in there for name, values in claim.asked.items() for value in values
    )


def decide(answers: list[str], quantifier: str, lacks: bool) -> str:
    """What answers come to; `lacks`: whether points are missing that could overturn it. Only the second has `level`."""
    yes, level, total = answers.count("yes"), answers.count("level"), len(answers)
    overturned = {"some": {"no"}, "most": {"yes", "no"}, "almost-all": {"yes", "no"}}.get(quantifier, {"yes"})
    if enough(yes, total, quantifier):
        return "inconclusive" if lacks and "yes" in overturned else "reproduced"
    if enough(yes + level, total, quantifier):
        return "inconclusive" if lacks else "level"
    if not enough(total - answers.count("no"), total, quantifier):
        return "inconclusive" if lacks and "no" in overturned else "not reproduced"
    return "inconclusive"


# The second edition of the rule --------------------------------------------------------------------------------------


def spread_of(values: Seeds) -> tuple[float, float, int]:
    """Mean, standard deviation over seeds, and their number."""
    numbers = np.round(list(values.values()), 9)
    return float(numbers.mean()), float(numbers.std(ddof=1)), len(numbers)


def p_value(values: Seeds, counted: bool, low: float = 0.0, high: float = 0.0) -> float:
    """Student's t, two-sided, of a mean against the nearer end of a range; 1 inside it, NaN without an interval."""
    if interval(values, counted) is None:
        return math.nan
    mean, sd, count = spread_of(values)
    beyond = max(low - mean, mean - high, 0.0)
    if sd == 0:
        return 0.0 if beyond > 0 else 1.0
    return 2 * float(stats.t.sf(beyond / sd * math.sqrt(count), count - 1))


def holm(p_values: list[float]) -> list[float]:
    """Holm's correction over the tests that could be made."""
    made = sorted((i for i, p in enumerate(p_values) if not math.isnan(p)), key=p_values.__getitem__)
    adjusted, worst = [math.nan] * len(p_values), 0.0
    for rank, i in enumerate(made):
        worst = max(worst, min(1.0, (len(made) - rank) * p_values[i]))
        adjusted[i] = worst
    return adjusted


def is_number(one: Compared) -> bool:
    """Whether it is a yes by its width, which no p-value belongs to."""
    return one.target is not None and not (one.lead and one.target != 0)


def answers_of(claim: Claim, found: list[Compared]) -> list[str]:
    """What comparisons say: by Holm over those of the claim, of `top` over the rivals at all its points."""
    free_yes, free_no = claim.quantifier in ("all", "any"), claim.quantifier == "some"
    if claim.relation == "top":
        raw = [p_value(values, one.counted) for one in found for values in one.values]
        behind, ahead = (iter(raw if free else holm(raw)) for free in (free_yes, free_no))
        each = [([next(behind) for _ in one.values], [next(ahead) for _ in one.values]) for one in found]
        return [answer_top(one, *ps, claim.metric in OF_ACCURACIES) for one, ps in zip(found, each, strict=True)]
    yes = [p_value(one.values[0], one.counted) for one in found]
    ends = [(t - 2 * one.point, t + 2 * one.point) for one in found for t in [one.target or 0.0]]
    ends = [(0.0, 0.0) if one.target is None else end for one, end in zip(found, ends, strict=True)]
    no = [p_value(one.values[0], one.counted, *end) for one, end in zip(found, ends, strict=True)]
    yes, no = (yes if free_yes else holm(yes)), (no if free_no else holm(no))
    answers = []
    for one, p_yes, p_no in zip(found, yes, no, strict=True):
        said = answer(one)
        if (said == "yes" and p_yes > 0.05 and not is_number(one)) or (said == "no" and p_no > 0.05):
            said = "open"
        if claim.metric in OF_ACCURACIES and said != "yes":
            low, high = interval(one.values[0], one.counted) or (-math.inf, math.inf)
            bounded = claim.relation in ("above", "below") and not claim.right and claim.stated != 0
            if one.target is None and not bounded and low > -2 and high < 2:
                said = "level"
            elif said == "no" and not could_say_yes(one, low, high):
                said = "open"
        answers.append(said)
    return answers


def could_say_yes(one: Compared, low: float, high: float) -> bool:
    """Whether a no counts: a yes would have been found, or nothing but a no is left."""
    if is_number(one):
        return high - low <= 8
    beyond = low > 2 if one.target is not None and one.target < 0 else high < -2
    return beyond or finds(one.values[0], one.effects[0]) >= 0.8


def answer_top(one: Compared, behind_p: list[float], ahead_p: list[float], in_points: bool) -> str:
    behind = sum(average(v) < 0 and p <= 0.05 for v, p in zip(one.values, behind_p, strict=True))
    ahead = 0
    for values, effect, p in zip(one.values, one.effects, ahead_p, strict=True):
        if average(values) > 0 and p <= 0.05:
            low, _ = interval(values, one.counted) or (0.0, 0.0)
            ahead += not in_points or low > 2 or finds(values, effect) >= 0.8
    ends = [interval(values, one.counted) for values in one.values]
    if None not in ends and len(ends) - behind < one.places:
        return "yes"
    if in_points and None not in ends and sum(end[1] >= 2 for end in ends if end) < one.places:
        return "level"
    return "no" if ahead >= one.places else "open"


def finds(values: Seeds, effect: float, seeds: int | None = None, level: float = 0.05) -> float:
    """The probability that a t test finds an effect, on its side of 0, with so many seeds and the spread there is."""
    if interval(values, counted=False) is None:
        return 0.0
    _, sd, count = spread_of(values)
    return power_of_t(effect / sd, seeds or count, level)


@functools.cache
def power_of_t(effect: float, count: int, level: float) -> float:
    if count < 2:
        return 0.0
    found = float(stats.nct.sf(t_limit(count, level), count - 1, effect * math.sqrt(count)))
    return found if math.isfinite(found) else 1.0  # scipy gives none so far out


def chance_of_yes(one: Compared, seeds: int | None, level: float) -> float:
    """The probability that a comparison says yes."""
    if is_number(one):
        if interval(one.values[0], counted=False) is None:
            return 0.0
        _, sd, count = spread_of(one.values[0])
        count = seeds or count
        return float(count > 1 and 2 * t_limit(count) * sd / math.sqrt(count) <= 8)
    each = [finds(values, effect, seeds, level) for values, effect in zip(one.values, one.effects, strict=True)]
    return chance_of(each, lambda count: len(each) - count < one.places if one.places else count == 1)


def chance_of(each: list[float], good: Callable[[int], bool]) -> float:
    """The probability that a good number of independent events happen."""
    counts = {0: 1.0}
    for p in each:
        counts = {n: counts.get(n, 0.0) * (1 - p) + counts.get(n - 1, 0.0) * p for n in range(len(counts) + 1)}
    return sum(p for n, p in counts.items() if good(n))


def power_of(claim: Claim, found: list[Compared], seeds: int | None = None) -> float:
    """With what probability the effects are found that the claim needs."""
    if claim.metric not in OF_ACCURACIES or not any(interval(v, one.counted) for one in found for v in one.values):
        return math.nan
    level = 0.05 if claim.quantifier in ("all", "any") else 0.05 / sum(len(one.values) for one in found)
    each = [chance_of_yes(one, seeds, level) for one in found]
    return chance_of(each, lambda count: enough(count, len(found), claim.quantifier))


def seeds_of(claim: Claim, found: list[Compared]) -> float:
    """The least number of seeds that find them with 0.8, by halving; NaN if that is more than `MOST_SEEDS`."""
    low, high = 1, MOST_SEEDS
    if not power_of(claim, found, high) >= 0.8:
        return math.nan
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power_of(claim, found, middle) >= 0.8 else (middle, high)
    return high


@dataclass
class Judgement:
    """`power`: NaN where there is none; `needs`: how many seeds find the effects, NaN where that is not known."""

    state: str
    counts: dict[str, int]
    power: float
    needs: float


def judge(row: dict[str, str]) -> Judgement:
    """By the second edition."""
    claim = Claim(row, lacking=True)
    points = claim.points(2)
    found = list(claim.compared(points))
    answers = answers_of(claim, found)
    counts = {name: answers.count(name) for name in ("yes", "level", "no", "open")}
    dashed = claim.dashed(points)
    lacks = missing(claim, points) or bool(dashed)
    if row["protocol"] == "unknown":
        state = "protocol unknown"
    elif not any(values for one in found for values in one.values):
        state = "not run"
    else:
        state = decide(answers, claim.quantifier, lacks)
    judged = state not in ("protocol unknown", "not run")
    power, needs = (power_of(claim, found), seeds_of(claim, found)) if judged else (math.nan, math.nan)
    return Judgement(state, counts, power, needs)
