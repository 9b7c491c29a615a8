"""FedCoSR's Table II with a rate for each method, searched on validation images (experiments/protocol.md).

FedCoSR gives no rate; FedCRL's Table I gives Adam at 0.003 as "used in FedCRL", and states that the other methods have
the optimal hyperparameters of their own papers. `fedcosr-table2` has 0.003 for all methods without hyperparameters for
rates, at which MOON and FedRep collapse. Here each method's rate is chosen among three, for pFedMe and Per-FedAvg among
three pairs, FedCoSR's own included, so that no method is favoured.

    semcom sweep fedcosr-rates --scale small
    python -m semcom_papers.experiments.fedcosr.rates results/fedcosr-rates-small      # the choice: CHOSEN on cifar10
    semcom sweep fedcosr-table2-rates --scale small --reuse experiments/results/fedcosr-table2-small.zip
    semcom sweep fedcosr-table3-rates --scale small                      # two columns of Table III with that choice

The rule: the score of a candidate is its mean validation accuracy over the two divisions. Those within half a point of
the best are tied, and of them the one that `fedcosr-table2` has is chosen, else the best.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import pandas as pd

from semcom.studies.analysis.means import format_markdown
from semcom.studies.experiment import Grid, Variant
from semcom.studies.grid import set_fields
from semcom.studies.results.archive import read_stored_table
from semcom.studies.results.table import read_number_in_row
from semcom_papers.experiments.fedcosr.items import (
    DEFAULT,
    DIVISION,
    HARDER,
    KIND,
    SEEDS,
    SIZES,
    TABLE2,
    make_fedcosr_base,
    make_table3,
)
from semcom_papers.experiments.letter.search import keep_tied
from semcom_papers.experiments.papers.items import make_item
from semcom_papers.experiments.shell import run_on_named_studies

FIRST = 0
"""Place of `fedcosr-table2`'s candidate."""
COMMON = ({"train.lr": 0.003}, {"train.lr": 0.001}, {"train.lr": 0.0003})
OWN: Mapping[str, tuple[dict[str, float], ...]] = {
    "pfedme": (
        {"hyper.eta": 0.005, "hyper.lr_p": 0.01},
        {"hyper.eta": 0.05, "hyper.lr_p": 0.02},
        {"hyper.eta": 0.05, "hyper.lr_p": 0.05},
    ),
    "perfedavg": (
        {"hyper.alpha": 0.01, "hyper.beta": 0.001},
        {"hyper.alpha": 0.01, "hyper.beta": 0.01},
        {"hyper.alpha": 0.03, "hyper.beta": 0.03},
    ),
}
"""Method -> candidate pairs of its own rates, semcom's defaults first."""
CHOSEN: Mapping[str, int] = {
    "local": 2, "fedavg": 1, "fedprox": 1, "moon": 1, "pfedme": 1, "ditto": 1, "perfedavg": 1, "fedrep": 2,
    "lg_fedavg": 2, "fedper": 1, "fedamp": 1, "fedala": 1, "fedproto": 2, "fedpac": 1, "fedgh": 2, "fedcosr": 1,
}  # fmt: skip
"""Method -> place of the candidate that `fedcosr-rates` chose at `small`; no method keeps the first."""


def list_rate_candidates(method: str) -> tuple[dict[str, float], ...]:
    """List the candidates of a method, that of `fedcosr-table2` first."""
    return OWN.get(method, COMMON)


def make_trials(
    arms: Iterable[Variant], list_candidates: Callable[[str], Sequence[Mapping[str, float]]]
) -> Iterator[Variant]:
    """Make a variant for each candidate of each arm, with its place behind the arm's name."""
    for arm in arms:
        for place, candidate in enumerate(list_candidates(arm.method)):
            yield replace(arm, name=f"{arm.name} {place}", set={**arm.set, **candidate})


def _make_search(scale: str) -> Grid:
    """Make the default divisions with a fifth of the training images set aside."""
    aside = {"partition.validation": 0.2, "train.eval_every": SIZES[scale]["rounds"]}
    divisions = DEFAULT[scale][: 1 if scale == "smoke" else None]
    return Grid(set_fields(make_fedcosr_base(scale), aside), {DIVISION: divisions, "seed": (1000,)})


FEDCOSR_RATES = make_item(
    "fedcosr-rates", "FedCoSR (not in it)", "Rates of sixteen methods, on validation images",
    tuple(make_trials(TABLE2.compared(), list_rate_candidates)), _make_search, KIND, (), ("smoke", "small"),
)  # fmt: skip


def read_rate_scores(frame: pd.DataFrame, views: Mapping[str, str] = MappingProxyType({})) -> pd.DataFrame:
    """Read dataset, method, place and score of each candidate: its mean validation accuracy over divisions, in %.

    A candidate with a failed run, such as a diverged run, has the score NaN, as has one without a run in some division.

    Args:
        frame: table of the search.
        views: method -> view that counts, in place of its first one.

    Returns:
        Columns: data.name, method, place, score. Divisions of a dataset are told apart by `partition.beta`.
    """
    scores = [100 * float(read_number_in_row(r, "validation", views.get(r["method"]))) for _, r in frame.iterrows()]
    rows = frame.assign(place=frame["variant"].str.rsplit(" ", n=1).str[-1].astype(int), score=scores)
    rows["score"] = rows["score"].where(rows["status"] == "done")
    groups = rows.groupby(["data.name", "method", "place"])
    divisions = groups["partition.beta"].nunique(dropna=False)
    whole = divisions == divisions.groupby("data.name").transform("max")
    return groups["score"].apply(lambda of: of.mean(skipna=False)).where(whole).reset_index()


def choose_place(of: pd.DataFrame) -> int:
    """Choose the first candidate if its score is within half a point of the best, else the best: its place."""
    return FIRST if FIRST in set(keep_tied(of)["place"]) else int(of.set_index("place")["score"].idxmax())


def choose_rates(rows: pd.DataFrame) -> dict[str, dict[str, int]]:
    """Choose dataset -> method -> place of its candidate by `choose_place`, without methods that keep the first."""
    found: dict[str, dict[str, int]] = {}
    for (data, method), of in rows.dropna().groupby(["data.name", "method"]):
        if (place := choose_place(of)) != FIRST:
            found.setdefault(str(data), {})[str(method)] = place
    return found


def print_rate_choice(path: str, views: Mapping[str, str] = MappingProxyType({})) -> None:
    """Print the scores of a stored search and the places that they choose; `views` are those of `read_rate_scores`."""
    rows = read_rate_scores(read_stored_table(path), views)
    wide = rows.pivot(index=["data.name", "method"], columns="place", values="score").round(1).rename(columns=str)
    print(format_markdown(wide.reset_index().map(str)) + "\n")
    print(choose_rates(rows))


def _set_chosen(arm: Variant) -> Variant:
    """Set an arm's chosen rate; an arm with the rate of `fedcosr-table2` has the same runs."""
    place = CHOSEN.get(arm.name, FIRST)
    more: dict[str, Any] = list_rate_candidates(arm.method)[place] if place != FIRST else {}
    return replace(arm, set={**arm.set, **more})


def _make_table2(scale: str) -> Grid:
    divisions = DEFAULT[scale][: 1 if scale == "smoke" else None]
    return Grid(make_fedcosr_base(scale), {DIVISION: divisions, "seed": {**SEEDS, "small": tuple(range(10))}[scale]})


TUNED = tuple(map(_set_chosen, TABLE2.compared()))
UNSTABLE = {"smoke": HARDER["smoke"], "small": (HARDER["small"][1], HARDER["small"][3])}
"""Scale -> the columns of Table III in which the common rate leaves some seeds of some methods near guessing."""
# fmt: off
TABLE2_RATES = make_item("fedcosr-table2-rates", "FedCoSR, Table II",
                         "Sixteen methods in the default divisions, each with a rate of its own",
                         TUNED, _make_table2, KIND, figures=())
TABLE3_RATES = make_item("fedcosr-table3-rates", "FedCoSR, Table III",
                         "Sixteen methods with Dirichlet beta 1 and with fifty classes, each with a rate of its own",
                         TUNED, partial(make_table3, columns=UNSTABLE), KIND, (), ("smoke", "small"))
# fmt: on


if __name__ == "__main__":
    run_on_named_studies(print_rate_choice)
