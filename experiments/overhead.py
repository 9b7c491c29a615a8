"""What each method sends, measured, beside the formulas of FedCoSR, Section V-C2.

The paper counts parameters per client and round: phi(theta) of a whole model, phi(phi) of its encoder, phi(pi) of its
head, and phi(Omega) of the centroids of C classes, C k numbers; up and down together. A client sends the centroids of
its own classes and receives those of all, so C is here what each way carries. All 23 methods run in its
default division of CIFAR-10, over AWGN at 10 dB, so that FedCL's features cross a link. In the first round there is
nothing to be sent down yet; so what counts is the third round, what a run of three rounds sends beyond one of two.
Measured are floats, bits, channel uses, airtime and energy (docs/metrics.md); the paper speaks of floats alone. Scale
`small` has a twentieth of the images, with which some clients own fewer classes, and send fewer centroids.

    semcom sweep overhead --scale small
    python -m semcom_papers.experiments.overhead results/overhead-small

prints the table: measured up and down, what the formula says, and the ratio. The formulas count too much where a method
sends a part of the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

import semcom
from semcom.config import RunConfig
from semcom.studies.analysis.means import format_markdown
from semcom.studies.experiment import Grid
from semcom.studies.grid import set_fields
from semcom.studies.names import METHODS
from semcom.studies.results.archive import read_stored_table
from semcom.studies.results.outcome import locate_run_folder, train_and_add_outcome
from semcom_papers.experiments.arms import ALL
from semcom_papers.experiments.fedcosr.items import KIND, SEEDS, get_first_division, make_fedcosr_base
from semcom_papers.experiments.papers.items import make_item
from semcom_papers.experiments.shell import run_on_named_studies

if TYPE_CHECKING:
    from semcom.runs.result.result import Result

WHOLE = ("fedavg", "fedprox", "moon", "pfedme", "ditto", "perfedavg", "fedrep", "lg_fedavg", "fedper", "fedamp")
"""Methods that send a whole model both ways by the paper, with FedALA and FedPAC."""


@dataclass(frozen=True)
class Sizes:
    """Numbers that a formula counts.

    Attributes:
        encoder: parameters of the encoder, phi(phi).
        head: parameters of the head, phi(pi).
        owned: numbers in the centroids of a client's own classes, the mean over clients: phi(Omega), up.
        centroids: those of all classes: phi(Omega), down.
    """

    encoder: int
    head: int
    owned: float
    centroids: int


Formula = Callable[[Sizes], float]
Traffic = Mapping[str, Mapping[str, float]]


def _list_all_parts(of: Sizes) -> float:
    return 2 * (of.encoder + of.head)


def _encoder_and_centroids(of: Sizes) -> float:
    return 2 * of.encoder + of.owned + of.centroids


FORMULAS: Mapping[str, Formula] = {
    **dict.fromkeys((*WHOLE, "fedala", "fedpac"), _list_all_parts),
    "local": lambda of: 0,
    "fedproto": lambda of: of.owned + of.centroids,
    "fedgh": lambda of: of.owned + of.head,
    "fedcosr": _encoder_and_centroids,
    "fedcrl": _encoder_and_centroids,
}
"""Method -> floats per client and round, up and down together, by Section V-C2, which has no others."""


def measure_sizes(result: Result) -> Sizes:
    """Measure the sizes of a finished run's models at its first client: all have one architecture."""
    population = next(iter(result.views.values())).population
    encoder, head = (int(population.numbers(part)[0]) for part in ("encoder.", "head."))
    owned, features = result.federation.owned, result.config.model.features
    return Sizes(encoder, head, float(owned.sum(1).mean()) * features, owned.shape[1] * features)


def train_and_count_overhead(config: RunConfig) -> None:
    """Train with and without the last round; store the traffic of that round, and the number by the paper's formula.

    `traffic` in the summary is per participating client of the last round, not of all rounds. `floats_formula` is the
    formula's number, null without a formula.
    """
    rounds = int(config.train.rounds or 0)
    shorter = semcom.run(
        set_fields(config, {"out": str(locate_run_folder(config) / "before"), "train.rounds": rounds - 1})
    )
    formula = FORMULAS.get(config.method)

    def counted(result: Result) -> dict[str, Any]:
        last = isolate_last_round(result.summary["traffic"], shorter.summary["traffic"], rounds)
        return {"traffic": last, "floats_formula": float(formula(measure_sizes(result))) if formula else None}

    train_and_add_outcome(config, counted)


def isolate_last_round(whole: Traffic, before: Traffic, rounds: int) -> dict[str, dict[str, float]]:
    """Compute the traffic of the last round from the means over all rounds and over those before it.

    Args:
        whole: direction -> quantity -> mean per client and round, over all rounds.
        before: the same over all rounds but the last.
        rounds: T, at least 2, with the same number of clients in each.
    """
    return {
        way: {name: rounds * value - (rounds - 1) * before[way][name] for name, value in counts.items()}
        for way, counts in whole.items()
    }


def _make_grid(scale: str) -> Grid:
    short = {
        "train.rounds": 2 if scale == "smoke" else 3,
        "channel.kind": "awgn",
        "partition.fraction": {"smoke": 0.1, "small": 0.05}.get(scale, 1.0),
    }
    seeds = SEEDS[scale] if scale != "small" else (0, 1)
    return Grid(set_fields(make_fedcosr_base(scale), {**get_first_division(scale), **short}), {"seed": seeds})


OVERHEAD = make_item(
    "overhead", "FedCoSR and FedCRL, the sections on communication",
    "What each method sends per client and round, measured, beside FedCoSR's formulas",
    ALL, _make_grid, KIND, figures=(), train=train_and_count_overhead,
)  # fmt: skip


def tabulate_overhead_costs(frame: pd.DataFrame) -> pd.DataFrame:
    """Tabulate the costs of each method from the table of the sweep, means over seeds.

    Returns:
        Columns: method, up, down (floats), bits, uses, airtime_ms, energy_j (both ways together, energy in joules at
        unit symbol energy), formula, ratio (measured floats over the formula's); NaN without a formula.
    """
    rows = []
    for variant, runs in frame[frame["status"] == "done"].groupby("variant", sort=False):
        row: dict[str, Any] = {"method": METHODS.get(str(variant), variant)}
        row |= {way: runs[f"traffic.{way}.floats"].mean() for way in ("up", "down")}
        row |= {cost: _sum_ways(runs, cost) for cost in ("bits", "uses")}
        row |= {"airtime_ms": 1000 * _sum_ways(runs, "airtime_s"), "energy_j": _sum_ways(runs, "energy_j")}
        formula = float(runs["floats_formula"].astype(float).mean()) if "floats_formula" in runs else math.nan
        row |= {"formula": formula, "ratio": (row["up"] + row["down"]) / formula if formula else math.nan}
        rows.append(row)
    return pd.DataFrame(rows)


def _sum_ways(runs: pd.DataFrame, cost: str) -> float:
    return float(sum(runs[f"traffic.{way}.{cost}"].mean() for way in ("up", "down")))


def _format_cell(value: object) -> str:
    """Format a cell: three digits of small numbers, large numbers without decimals, a dash for NaN."""
    if not isinstance(value, float):
        return str(value)
    return "-" if math.isnan(value) else f"{value:.3g}" if value < 10 else f"{value:,.0f}"


def _print_costs(path: str) -> None:
    print(format_markdown(tabulate_overhead_costs(read_stored_table(path)).map(_format_cell)))


if __name__ == "__main__":
    run_on_named_studies(_print_costs)
