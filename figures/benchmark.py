"""The benchmark's ranks, by the rules of experiments/protocol.md, and its table of every method in every setting.

semcom figure benchmark --results experiments/results/benchmark-small.zip
python -m semcom_papers.figures.benchmark experiments/results/benchmark-small.zip
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from semcom.plots.base import Drawing, Plot
from semcom.plots.ranks import RANKS, tabulate_ranks
from semcom.studies.analysis.means import format_markdown
from semcom.studies.analysis.ranks import compare_to_control
from semcom.studies.analysis.study import study
from semcom.studies.names import SHIPPED
from semcom_papers.experiments.benchmark_ends import (
    CONSTANT,
    CONTROL,
    COSTS,
    NUMBERS,
    SETTING,
    average_settings,
    select_ends,
    tabulate_views,
)
from semcom_papers.experiments.shell import run_on_named_studies


def rank_ends(ends: pd.DataFrame, all_runs: bool = False) -> pd.DataFrame:
    """Rank the methods by `tabulate_ranks`, without runs that guess unless all are asked for."""
    return tabulate_ranks(average_settings(ends, all_runs), list(SETTING))


BENCHMARK = Drawing(
    "benchmark",
    "benchmark",
    Plot(kind="ranks", y="last"),
    numbers=lambda of, plot: rank_ends(select_ends(tabulate_views(of))),
    caption=lambda cells, plot: (
        f"{RANKS.caption(cells, plot)} Each method by the view that its paper's clients use, without runs that guess."
    ),
    shows=SETTING,
)


def compare_with_control(cells: pd.DataFrame) -> dict[str, float]:
    """Test each method against fine-tuned FedAvg by `compare_to_control`, in the settings of all methods: p-values."""
    wide = cells.pivot(index="variant", columns=list(SETTING), values="mean").dropna(axis=1)
    if CONTROL not in wide.index:
        return {}
    return compare_to_control({str(name): row.to_numpy(float) for name, row in wide.iterrows()}, CONTROL)


def _name_settings(cells: pd.DataFrame) -> pd.Series:
    """Name the setting of each row, with its network if there are several."""
    several = cells["model.encoder"].nunique() > 1

    def name(row: pd.Series) -> str:
        m, beta = row["partition.classes"], row["partition.beta"]
        skew = f"m = {m:g}" if row["partition.kind"] == "pathological" else f"beta = {beta:g}"
        words = [row["data.name"], skew, f"{row['clients']} clients", *([row["model.encoder"]] if several else ())]
        return ", ".join(words)

    return cells.apply(name, axis=1)


def tabulate_methods(ends: pd.DataFrame) -> pd.DataFrame:
    """Format the table of the benchmark: methods by rank; accuracy and worst tenth in each setting, in %."""
    cells, ranks = average_settings(ends), rank_ends(ends)
    with_guesses = rank_ends(ends, all_runs=True).set_index("variant")["mean"]
    against = compare_with_control(cells)
    cells["setting"] = _name_settings(cells)
    rows = []
    for _, rank in ranks.iterrows():
        own = cells[cells["variant"] == rank["variant"]].set_index("setting")
        name = SHIPPED.value("variant", rank["variant"])
        row = {"method": name, "mean rank": _format_interval(rank), "group": rank["cliques"]}
        row["mean rank, all runs"] = f"{with_guesses[rank['variant']]:.1f}"
        row |= {f"p against {CONTROL}": f"{against[rank['variant']]:.2g}" if rank["variant"] in against else ""}
        row |= {name: _format_cell(own.loc[name]) for name in dict.fromkeys(cells["setting"]) if name in own.index}
        row |= {name: f"{own[name].mean():,.0f}" for name in COSTS}
        rows.append(row)
    return pd.DataFrame(rows).fillna("")


def tabulate_beside(views: pd.DataFrame) -> pd.DataFrame:
    """Format the table without ranks: other views, and constant answers, in each setting."""
    others = views[~views["counts"]]
    named = zip(others["variant"], others["view"], strict=True)
    others = others.assign(answers=[f"{SHIPPED.value('variant', name)}, {view}" for name, view in named])
    once = views.dropna(subset=list(CONSTANT)).drop_duplicates([*SETTING, "seed"])
    constant = [
        once.assign(answers=text, guess=False, accuracy=once[name], pooled=np.nan, worst10=np.nan)
        for name, text in CONSTANT.items()
    ]
    cells = average_settings(pd.concat([others, *constant]), by="answers")
    cells = cells.assign(setting=_name_settings(cells), cell=cells.apply(_format_cell, axis=1))
    order = {name: list(dict.fromkeys(cells[name])) for name in ("answers", "setting")}
    wide = cells.pivot(index="answers", columns="setting", values="cell")
    return wide.loc[order["answers"], order["setting"]].fillna("").reset_index().rename_axis(columns=None)


def describe_top_cliques(ends: pd.DataFrame) -> str:
    """Describe the top clique without runs that guess and with all runs; empty if both are the same."""
    without, with_guesses = (
        [
            SHIPPED.value("variant", row["variant"])
            for _, row in rank_ends(ends, all_runs).iterrows()
            if "1" in row["cliques"].split()
        ]
        for all_runs in (False, True)
    )
    if {*without} == {*with_guesses}:
        return ""
    return f"The top clique is {', '.join(without)}; with runs that guess it is {', '.join(with_guesses)}."


def _format_interval(rank: pd.Series) -> str:
    ends = "" if np.isnan(rank["low"]) else f" ({rank['low']:.1f} to {rank['high']:.1f})"
    return f"{rank['mean']:.1f}{ends}"


def _format_cell(row: pd.Series) -> str:
    """Format accuracy, that over all test images and the worst tenth; in parentheses the runs that guess or failed."""
    text = " / ".join("-" if np.isnan(row[name]) else f"{100 * row[name]:.1f}" for name in NUMBERS)
    return f"{text} ({row['guesses']:.0f})" if row["guesses"] else text


def _print_tables(path: str) -> None:
    views = tabulate_views(study(path))
    ends = select_ends(views)
    tables = map(format_markdown, (tabulate_methods(ends), tabulate_beside(views)))
    print("\n\n".join(filter(None, (*tables, describe_top_cliques(ends)))))


if __name__ == "__main__":
    run_on_named_studies(_print_tables)
