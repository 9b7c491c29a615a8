"""Search the settings that the FedCL letter leaves open, on validation images: a schedule for all arms, then lambdas.

The letter gives the rate 0.001. It does not give batch size, local epochs, and lambda of FedCL and of FedProto; its
Eqs. 4 and 6 are SGD's, but it does not name an optimiser. The first sweep has every combination of optimiser, batch
size and local epochs, with as many passes over the images as the letter's figures have at scale `small`; the second
one, with the schedule chosen from the first, has five values of either lambda. Both grids are tried as a whole.

The rule, written before the first run. The score is the accuracy on images that were set aside from the clients'
training images, in the headline view, the mean of the last ten evaluations; no test image is looked at, and the figures
have other seeds. First sweep: the score of a schedule is its mean over the three arms. Second sweep: the score of a
lambda is that of its arm. Scores within half a point of the best are tied. Of tied schedules the one with the fewest
steps is chosen, then SGD; of tied lambdas the nearest to the default. The sweeps store the accuracies; this module
prints scores and choices:

    semcom sweep letter-search --scale small
    semcom sweep letter-search-lambda --scale small
    python -m semcom_papers.experiments.letter.search results/letter-search-small results/letter-search-lambda-small
"""

from __future__ import annotations

import math

import pandas as pd

from semcom.config import ConfigError, RunConfig
from semcom.studies.analysis.means import format_markdown
from semcom.studies.experiment import Grid, Variant
from semcom.studies.grid import set_fields
from semcom.studies.results.archive import read_stored_table
from semcom.studies.results.table import read_number_in_row
from semcom_papers.experiments.letter import figures as letter
from semcom_papers.experiments.papers.items import make_item
from semcom_papers.experiments.shell import run_on_named_studies

SEED = 1000
"""Seed of the search; figures take 0, 1, 2 ..."""
PASSES = {"smoke": letter.ROUNDS["smoke"], "small": letter.ROUNDS["small"]}
"""Scale -> passes over a client's images, E times T."""
EPOCHS = {"smoke": (1, 2), "small": (1, 5)}
"""Scale -> values of E."""
LAMBDAS = {"fedcl": (1 / 1024, 1 / 256, 1 / 64, 1 / 16, 1 / 4), "fedproto": (0.1, 0.3, 1.0, 3.0, 10.0)}
"""Method -> values of its lambda, the default in the middle."""
SCHEDULE = ("train.optimizer", "train.batch_size", "train.local_epochs")


def _make_search_base(scale: str) -> RunConfig:
    aside = {"partition.validation": 0.2, "partition.test_per_class": 10}
    return set_fields(letter.base(scale, eval_every=PASSES[scale]), aside)


def _make_schedules(scale: str) -> Grid:
    """Make the grid of all schedules, with the same number of passes each."""
    local = tuple((epochs, PASSES[scale] // epochs) for epochs in EPOCHS[scale])
    optimizers = tuple((name, size) for name in ("sgd", "adam") for size in (10, 20, 50))
    vary = {
        ("train.optimizer", "train.batch_size"): optimizers,
        ("train.local_epochs", "train.rounds"): local,
        "seed": (SEED,),
    }
    return Grid(_make_search_base(scale), vary)


LETTER_SEARCH = make_item(
    "letter-search", "FedCL letter (not in it)",
    "Optimiser, batch size and local epochs that the letter leaves open, on validation images",
    ("fedcl", "fedproto", "fedavg"), _make_schedules, "train.local_epochs", (), PASSES,
)  # fmt: skip


def score_schedules(frame: pd.DataFrame) -> pd.DataFrame:
    """Score the schedules of a sweep's table: a row each with the score and each arm's validation accuracy, in %.

    The best come first. `steps` are those of a client with 240 images in a run.
    """
    cells = frame.assign(accuracy=read_validation(frame)).pivot_table(
        "accuracy", [*SCHEDULE, "train.rounds"], "variant"
    )
    rows = cells.assign(score=cells.mean(axis=1, skipna=False)).mul(100).reset_index()
    steps = -(-240 // rows["train.batch_size"]) * rows["train.local_epochs"] * rows["train.rounds"]
    return rows.assign(steps=steps).sort_values("score", ascending=False, ignore_index=True, kind="stable")


def keep_tied(rows: pd.DataFrame) -> pd.DataFrame:
    """Keep the rows of a search whose `score`, in %, is tied with the best: at most half a point below it."""
    return rows[rows["score"] >= rows["score"].max() - 0.5]


def choose_schedule(rows: pd.DataFrame) -> pd.Series:
    """Choose the tied schedule with the fewest steps, then SGD's."""
    tied = keep_tied(rows)
    order = tied.assign(adam=tied["train.optimizer"] == "adam")
    return order.sort_values(["steps", "adam", "train.local_epochs"], kind="stable").drop(columns="adam").iloc[0]


def read_validation(frame: pd.DataFrame) -> pd.Series:
    """Read the validation accuracy of each run's headline view from the table of a search.

    Raises:
        ConfigError: a run has failed.
    """
    failed = frame[frame["status"] != "done"]
    if len(failed):
        raise ConfigError(f"search: {len(failed)} of {len(frame)} runs failed; repeat them before a choice is made")
    return frame.apply(read_number_in_row, axis=1, metric="validation").astype(float)


def _make_lambdas(scale: str) -> Grid:
    return Grid(_make_search_base(scale), {"seed": (SEED,)})


LETTER_SEARCH_LAMBDA = make_item(
    "letter-search-lambda", "FedCL letter (not in it)", "lambda of FedCL and of FedProto, on validation images",
    tuple(
        Variant(f"{method} {value:.3g}", method, {"hyper.lam": value})
        for method, values in LAMBDAS.items()
        for value in values
    ),
    _make_lambdas, "seed", (), PASSES,
)  # fmt: skip


def score_lambdas(frame: pd.DataFrame) -> pd.DataFrame:
    """Score the lambdas of a sweep's table: a row per method and lambda with its validation accuracy in %."""
    rows = frame.assign(score=100 * read_validation(frame), lam=frame["hyper.lam"].astype(float))
    return rows[["method", "lam", "score"]].sort_values(["method", "lam"], ignore_index=True)


def choose_lambda(rows: pd.DataFrame) -> dict[str, float]:
    """Choose method -> the tied lambda that is nearest to the default, as a factor."""
    return {str(name): choose_nearest(of, LAMBDAS[str(name)][2]) for name, of in rows.groupby("method")}


def choose_nearest(candidates: pd.DataFrame, default: float) -> float:
    """Choose the tied `lam` of the candidates that is nearest to a default, as a factor."""
    return float(min(keep_tied(candidates)["lam"], key=lambda value: abs(math.log(value / default))))


def _print(rows: pd.DataFrame) -> None:
    print(format_markdown(rows.map(lambda value: f"{value:.4g}" if isinstance(value, float) else str(value))) + "\n")


def _print_choices(schedules_of: str, lambdas_of: str | None = None) -> None:
    table = score_schedules(read_stored_table(schedules_of))
    _print(table)
    print(choose_schedule(table).to_string() + "\n")
    if lambdas_of is not None:
        values = score_lambdas(read_stored_table(lambdas_of))
        _print(values)
        print(choose_lambda(values))


if __name__ == "__main__":
    run_on_named_studies(_print_choices, at_most=2)
