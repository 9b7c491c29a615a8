"""The benchmark's ranks, by the rules of docs/protocol.md, and its table of every method in every setting.

semcom figure benchmark --results experiments/results/benchmark-small.zip
python -m figures.benchmark experiments/results/benchmark-small.zip
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from experiments.benchmark import DIVISION, VIEWS
from experiments.shell import run_on_studies_of_shell
from semcom.config import ConfigError
from semcom.plots.base import Drawing, Plot
from semcom.plots.ranks import RANKS, tabulate_ranks
from semcom.studies.analysis.guessing import is_guess
from semcom.studies.analysis.means import format_markdown
from semcom.studies.analysis.ranks import compare_to_control
from semcom.studies.analysis.study import Study, study
from semcom.studies.names import name_value
from semcom.studies.results.run import Stored

SETTING = (*DIVISION, "clients", "model.encoder")
"""The fields that tell settings apart; some have one value at a scale."""
CONTROL = "fedavg_ft"
"""The method that others are tested against one by one."""
NUMBERS = ("accuracy", "pooled", "worst10")


def read_end(run: Stored) -> dict[str, Any]:
    """Read what the last evaluation of a finished run says of the view that counts: a view of metrics.jsonl."""
    view = VIEWS.get(run.variant, run.headline)
    return next(line["views"][view] for line in reversed(run.lines()) if view in line.get("views", {}))


def tabulate_ends(of: Study) -> pd.DataFrame:
    """Return a row per finished run: variant, the fields of `SETTING`, seed, guess, `NUMBERS`, floats and seconds.

    Floats are those of a client in a round, both ways; seconds are of all sections of the run.

    Raises:
        ConfigError: no run has finished.
    """
    rows = []
    for run in of.stored:
        if run.status == "done" and run.summary is not None:
            end, traffic = read_end(run), run.summary["traffic"]
            row: dict[str, Any] = {"variant": run.variant, **{name: run.fields.get(name) for name in SETTING}}
            row |= {
                "seed": run.fields["seed"],
                "guess": is_guess(end["accuracy"], end["clients"], len(end.get("classes", ())) or None),
            }
            row |= {name: end.get(name, np.nan) for name in NUMBERS}
            row["floats"] = sum(way["floats"] for way in traffic.values())
            row["seconds"] = sum(s for name, s in run.summary.get("seconds", {}).items() if "/" not in name)
            rows.append(row)
    if not rows:
        raise ConfigError("results: no run finished")
    return pd.DataFrame(rows)


def average_settings(ends: pd.DataFrame, all_runs: bool = False) -> pd.DataFrame:
    """Return a row per variant and setting: means over the seeds that do not guess, `guesses` and n, all its seeds.

    Args:
        ends: of `tabulate_ends`.
        all_runs: whether runs that guess count too.

    Returns:
        Columns: variant, those of `SETTING`, mean (accuracy; -1 where all runs guess, which is the last place), those
        of `NUMBERS`, floats and seconds, guesses, n.
    """
    shown = [*NUMBERS, "floats", "seconds"]
    kept = ends if all_runs else ends.assign(**{name: ends[name].mask(ends["guess"]) for name in NUMBERS})
    groups = kept.groupby(["variant", *SETTING], sort=False, dropna=False)
    found = groups[shown].mean().assign(guesses=groups["guess"].sum(), n=groups.size()).reset_index()
    return found.assign(mean=found["accuracy"].fillna(-1.0))


def rank_benchmark(of: Study, plot: Plot, all_runs: bool = False) -> pd.DataFrame:
    """Return the ranks of `tabulate_ranks`, without runs that guess."""
    return tabulate_ranks(average_settings(tabulate_ends(of), all_runs), list(SETTING))


BENCHMARK = Drawing(
    "benchmark",
    "benchmark",
    Plot(kind="ranks", y="last"),
    numbers=rank_benchmark,
    caption=lambda cells, plot: (
        f"{RANKS.caption(cells, plot)} Each method by the view that its paper's clients use, without runs that guess."
    ),
    shows=SETTING,
)
"""Ranks of all methods."""


def compare_with_control(cells: pd.DataFrame) -> dict[str, float]:
    """Return method -> p-value against fine-tuned FedAvg, see `compare_to_control`; of the settings that all have."""
    wide = cells.pivot(index="variant", columns=list(SETTING), values="mean").dropna(axis=1)
    if CONTROL not in wide.index:
        return {}
    return compare_to_control({str(name): row.to_numpy(float) for name, row in wide.iterrows()}, CONTROL)


def _name_setting(row: pd.Series) -> str:
    skew = f"m = {row['partition.classes']:g}" if row["partition.kind"] == "pathological" else row["partition.beta"]
    return f"{row['data.name']}, {skew}, {row['clients']} clients"


def tabulate_benchmark(of: Study) -> pd.DataFrame:
    """Return the table of the benchmark as texts: methods by rank; accuracy and worst tenth in each setting, in %."""
    cells, ranks = average_settings(tabulate_ends(of)), rank_benchmark(of, BENCHMARK.plot)
    against = compare_with_control(cells)
    cells["setting"] = cells.apply(_name_setting, axis=1)
    rows = []
    for _, rank in ranks.iterrows():
        own = cells[cells["variant"] == rank["variant"]].set_index("setting")
        row = {"method": name_value("variant", rank["variant"]), "mean rank": _interval(rank), "group": rank["cliques"]}
        row |= {f"p against {CONTROL}": f"{against[rank['variant']]:.2g}" if rank["variant"] in against else ""}
        row |= {name: _cell(own.loc[name]) for name in dict.fromkeys(cells["setting"]) if name in own.index}
        row |= {"floats": f"{own['floats'].mean():,.0f}", "seconds": f"{own['seconds'].mean():.0f}"}
        rows.append(row)
    return pd.DataFrame(rows).fillna("")


def _interval(rank: pd.Series) -> str:
    ends = "" if np.isnan(rank["low"]) else f" ({rank['low']:.1f} to {rank['high']:.1f})"
    return f"{rank['mean']:.1f}{ends}"


def _cell(row: pd.Series) -> str:
    """Return accuracy, that over all test images and the worst tenth; in parentheses how many runs guess."""
    text = " / ".join("-" if np.isnan(row[name]) else f"{100 * row[name]:.1f}" for name in NUMBERS)
    return f"{text} ({row['guesses']:.0f})" if row["guesses"] else text


def _print_table(path: str) -> None:
    print(format_markdown(tabulate_benchmark(study(path))))


if __name__ == "__main__":
    run_on_studies_of_shell(_print_table)
