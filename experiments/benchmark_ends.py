"""Read the final numbers of the benchmark's runs, and judge its hypotheses (experiments/protocol.md, "The benchmark").

python -m semcom_papers.experiments.hypotheses experiments/results/benchmark-small.zip
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from semcom.config import ConfigError
from semcom.plots.ranks import tabulate_ranks
from semcom.studies.analysis.guessing import is_guess
from semcom.studies.analysis.study import Study, study
from semcom.studies.results.run import Stored
from semcom_papers.experiments.benchmark import DIVISION, VIEWS
from semcom_papers.experiments.verdicts import OPEN, REFUTED, SUPPORTED, Row, decide, describe, pend

SETTING = (*DIVISION, "clients", "model.encoder")
"""Fields that distinguish settings; some have one value at a scale."""
CONTROL = "fedavg_ft"
"""Method that the others are tested against."""
NUMBERS = ("accuracy", "pooled", "worst10")
COSTS = ("floats", "samples", "seconds")
"""Floats of a client in a round, both ways; training samples of all rounds; seconds of all sections of a run."""
CONSTANT = {"own": "each client's most frequent class", "common": "the most frequent class of all"}
"""Constant answers in summary.json -> their names."""
LEAD = 2.0
"""Points above the control that no method reaches by the hypothesis."""
SAME = 0.7
"""Rank correlation above which two orders count as the same."""


def read_final(run: Stored, view: str) -> dict[str, Any]:
    """Read a view of the last evaluation of a finished run, or of its last stage, from metrics.jsonl."""
    return next(line["views"][view] for line in reversed(run.lines()) if view in line.get("views", {}))


def tabulate_views(of: Study) -> pd.DataFrame:
    """Tabulate runs and views: variant, the fields of `SETTING`, seed, view, counts, guess and numbers.

    Numbers are `NUMBERS`, `COSTS`, and the accuracies of `CONSTANT`. `counts` is True for the view that a method is
    ranked by. A failed run has one row without a view or numbers, and counts as guessing.

    Raises:
        ConfigError: no run has finished.
    """
    rows = []
    numbers = (*NUMBERS, *COSTS, *CONSTANT)
    for run in of.stored:
        fields = {name: run.fields.get(name) for name in (*SETTING, "seed")}
        row: dict[str, Any] = {"variant": run.variant, **fields, "view": None, "counts": True, "guess": True}
        if run.status == "done" and run.summary is not None:
            counting = VIEWS.get(run.variant, run.headline)
            whole = {name: run.summary.get("constant", {}).get(name) for name in CONSTANT}  # None in older runs
            whole["floats"] = sum(way["floats"] for way in run.summary.get("traffic", {}).values())
            whole["samples"] = run.summary.get("samples")
            whole["seconds"] = sum(s for name, s in run.summary.get("seconds", {}).items() if "/" not in name)
            for view in run.summary["views"]:
                end = read_final(run, view)
                guess = is_guess(end["accuracy"], end["clients"], len(end.get("classes", ())) or None)
                of_view = {"view": view, "counts": view == counting, "guess": guess}
                rows.append({**row, **of_view, **{name: end.get(name) for name in NUMBERS}, **whole})
        elif run.status == "failed":
            rows.append({**row, **dict.fromkeys(numbers)})
    found = pd.DataFrame(rows)
    if found.empty or found["view"].isna().all():
        raise ConfigError("results: no run finished")
    return found.astype(dict.fromkeys(numbers, float))


def select_ends(views: pd.DataFrame) -> pd.DataFrame:
    """Select the rows of `tabulate_views` that count, one per run, of the seeds that all variants of a setting have."""
    ends = views[views["counts"]]
    seeds = ends.groupby([*SETTING, "seed"], dropna=False)["variant"]
    return ends[seeds.transform("nunique") == ends["variant"].nunique()]


def read_ends(path: Path | str) -> pd.DataFrame:
    """Read the views that count of the runs in a study's folder or archive."""
    return select_ends(tabulate_views(study(path)))


def average_settings(ends: pd.DataFrame, all_runs: bool = False, by: str = "variant") -> pd.DataFrame:
    """Average over the seeds that do not guess: a row per variant and setting.

    Args:
        ends: result of `select_ends`.
        all_runs: whether runs that guess count too; a failed one then has 0.
        by: column in place of variant.

    Returns:
        Columns: `by`, `SETTING`, mean (accuracy; -1 if all runs guess, which is the last place), `NUMBERS`, `COSTS`
        (medians, as a run may have waited), guesses (their number), n (all seeds).
    """
    there = ends[list(NUMBERS)]
    kept = ends.assign(**(there.fillna(0.0) if all_runs else there.mask(ends["guess"])))
    groups = kept.groupby([by, *SETTING], sort=False, dropna=False)
    counted = {"guesses": groups["guess"].sum(), "n": groups.size()}
    found = groups[list(NUMBERS)].mean().join(groups[list(COSTS)].median()).assign(**counted).reset_index()
    return found.assign(mean=found["accuracy"].fillna(-1.0))


def tabulate_accuracies(ends: pd.DataFrame) -> pd.DataFrame:
    """Lay out accuracies in percent: a row per setting and seed, a column per variant, NaN for a run that guesses.

    Only seeds of all settings are kept, of a result of `select_ends`; fields that a setting lacks are "".
    """
    rows = ends.assign(accuracy=100 * ends["accuracy"].mask(ends["guess"]))
    rows[list(SETTING)] = rows[list(SETTING)].astype(object).where(rows[list(SETTING)].notna(), "")
    wide = rows.pivot(index=[*SETTING, "seed"], columns="variant", values="accuracy").astype(float)
    settings = wide.groupby("seed").size()
    common = settings.index[settings == len(rows[list(SETTING)].drop_duplicates())]
    return wide[wide.index.get_level_values("seed").isin(common)]


def judge_benchmark_ranks(ends: pd.DataFrame) -> Iterator[Row]:
    """Judge the three hypotheses by a result of `select_ends`."""
    found = tabulate_accuracies(ends)
    ranks = tabulate_ranks(average_settings(ends), list(SETTING)).set_index("variant")
    yield from _judge_control(found, ranks)
    views = ends.groupby("variant")["view"].first()
    personalised = [name for name in found if name != "local" and views[name] != "global"]
    yield from _judge_classes(found[personalised].sub(found["local"], axis=0).median(axis=1))
    yield _judge_order(found)


def _judge_control(found: pd.DataFrame, ranks: pd.DataFrame) -> Iterator[Row]:
    """Judge whether the control is among the best, and the lead of each method over it."""
    behind, critical = ranks.loc[CONTROL, "mean"] - ranks["mean"].min(), ranks.loc[CONTROL, "critical"]
    leads = found.drop(columns=CONTROL).sub(found[CONTROL], axis=0).groupby("seed").mean().dropna(axis=1, how="all")
    title = f"fewer than {LEAD:g} points above fine-tuned FedAvg"
    rows = [decide(title, str(name), leads[name], LEAD, above=False) for name in leads]
    answers = {row["answer"] for row in rows}
    said = REFUTED if behind >= critical or REFUTED in answers else SUPPORTED if answers == {SUPPORTED} else OPEN
    most = max(rows, key=lambda row: row["difference"], default=pend("", "none"))
    place = f"{behind:.1f} ranks behind the best, critical {critical:.1f}; largest lead: {most['place']}"
    yield {**most, "hypothesis": "fine-tuned FedAvg is in the top clique", "place": place, "answer": said}
    yield from rows


def _judge_classes(gains: pd.Series) -> Iterator[Row]:
    """Judge whether the median personalised method gains more over Local with many classes a client than with few."""
    where = gains.index.to_frame()
    few, many = where["partition.kind"] == "pathological", where["partition.beta"] == 0.5
    places = ["data.name", "clients", "model.encoder", "seed"]
    parts = {name: gains[of].groupby(places).mean() for name, of in (("m classes a client", few), ("beta 0.5", many))}
    more = parts["beta 0.5"] - parts["m classes a client"]
    yield decide("sharing pays more with more classes a client", "", more.groupby("seed").mean())
    for name, part in parts.items():
        yield describe("gain of the median personalised method over Local", name, part.groupby("seed").mean())


def _judge_order(found: pd.DataFrame) -> Row:
    """Judge whether the order of the methods is the same with all clients in a round and with some of many."""
    title, divisions = "the order is the same with 20 of 100 clients (rho)", [*DIVISION, "model.encoder", "seed"]
    ranks = found.fillna(-1.0).rank(axis=1, ascending=False)
    sizes = sorted({*ranks.index.get_level_values("clients")})
    if len(sizes) < 2:
        return pend(title, "")
    one, other = (ranks.xs(size, level="clients").reorder_levels(divisions) for size in sizes)
    both = one.index.intersection(other.index)
    means = [part.loc[both].groupby("seed").mean() for part in (one, other)]
    return decide(title, "", means[0].corrwith(means[1], axis=1, method="spearman"), SAME)
