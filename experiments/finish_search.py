"""Search the defaults of a last stage: epochs, rate and optimiser, on validation images, one setting for all.

Each run trains a method and freezes its encoders. On them, heads of either kind are trained from fresh weights with
every candidate, and FedBABU's whole models are fine-tuned with every rate for its five epochs. The scores are on images
that were set aside from the clients' training images; no test image is looked at.

The rule, written before the first run: the score of a candidate is its mean validation accuracy over datasets, methods
and stages. Those within half a point of the best score are tied, and the cheapest of them is chosen: the fewest epochs,
then SGD, then the smallest rate. The sweep stores the accuracies; this module prints the scores and the choice:

    semcom sweep finish-search --scale small --data.root data
    python -m semcom_papers.experiments.finish_search results/finish-search-small
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

import pandas as pd

import semcom
from semcom.config import FinishConfig, ModelConfig, PartitionConfig, RunConfig, TrainConfig, run_hash
from semcom.runs.folder.summary import write_summary
from semcom.studies.analysis.means import format_markdown
from semcom.studies.experiment import Experiment, Grid
from semcom.studies.grid import set_fields
from semcom.studies.results.archive import read_stored_table
from semcom.studies.results.outcome import locate_run_folder
from semcom_papers.experiments.letter.search import keep_tied
from semcom_papers.experiments.shell import run_on_named_studies

if TYPE_CHECKING:
    from semcom.engine.train.view import View
    from semcom.engine.world import World

EPOCHS = (10, 30, 100)
RATES = (
    ("sgd", 0.03), ("sgd", 0.1), ("sgd", 0.3), ("sgd", 1.0),
    ("adam", 0.001), ("adam", 0.003), ("adam", 0.01), ("adam", 0.03),
)  # fmt: skip
CANDIDATES = [FinishConfig(None, epochs, rate, name) for (name, rate), epochs in itertools.product(RATES, EPOCHS)]  # type: ignore[arg-type]
HEADS = ("linear", "mlp")
COLUMN = "search"
"""Key of the accuracies in a summary, and first part of their columns."""


def train_and_search(config: RunConfig) -> None:
    """Train, and store the validation accuracy of each candidate and stage as `search` in the summary."""
    result = semcom.run(set_fields(config, {"out": None}))
    body = next(iter(result.views.values()))
    found = {_name_candidate(candidate): dict(_score_stages(result.world, body, candidate)) for candidate in CANDIDATES}
    write_summary(locate_run_folder(config), {**result.summary, COLUMN: found, "hash": run_hash(config)})


def _name_candidate(candidate: FinishConfig) -> str:
    return f"{candidate.optimizer} {candidate.lr:g} x {candidate.epochs}"


def _score_stages(world: World, body: View, candidate: FinishConfig) -> Iterator[tuple[str, float]]:
    """Yield the validation accuracy after each stage trained by a candidate, after the rounds of a run."""
    from semcom.engine.train.view import View
    from semcom.methods.fedavg import FedAvg
    from semcom.methods.parts.heads import fine_tuned, with_classifiers

    trial = copy(world)
    trial.session = replace(world.session, chunk=None)  # all heads at once, which is faster
    trial.config = replace(world.config, finish=candidate)
    for kind in HEADS:
        yield kind, _measure_accuracy(trial, with_classifiers(trial, body.population, kind))
    if world.config.method == "fedbabu":
        trial.config = replace(world.config, finish=replace(candidate, epochs=5))
        yield "all", _measure_accuracy(trial, View(fine_tuned(trial, body.population, FedAvg.averages)))


def _measure_accuracy(world: World, view: View) -> float:
    """Measure the accuracy on validation images, the mean over clients."""
    from semcom.engine.train.view import count_confusion
    from semcom.runs.result.accuracy import compute_client_accuracies

    session = world.session
    table = session.draws.federation.validation
    counts = count_confusion(session, {"": view}, session.draws.test_snrs[0], table, "validation", metered=False)
    return float(compute_client_accuracies(counts[""].cpu().numpy()).mean())


def score_finish_candidates(frame: pd.DataFrame) -> pd.DataFrame:
    """Score the candidates in % from the table of a sweep, a row each, the best first.

    Columns: optimizer, lr, epochs, score, and the mean of each stage (`linear`, `mlp`, `all`).
    """
    rows = []
    for candidate in CANDIDATES:
        stages = {
            kind: frame.filter(items=[f"{COLUMN}.{_name_candidate(candidate)}.{kind}"]) for kind in (*HEADS, "all")
        }
        every = pd.concat(stages.values(), axis=1).stack()
        means = {kind: 100 * of.stack().mean() for kind, of in stages.items()}
        setting = {"optimizer": candidate.optimizer, "lr": candidate.lr, "epochs": candidate.epochs}
        rows.append({**setting, "score": 100 * every.mean(), **means})
    return pd.DataFrame(rows).sort_values("score", ascending=False, ignore_index=True, kind="stable")


def choose_finish_candidate(rows: pd.DataFrame) -> pd.Series:
    """Choose the cheapest of the candidates that are tied with the best."""
    tied = keep_tied(rows)
    return tied.assign(adam=tied.optimizer == "adam").sort_values(["epochs", "adam", "lr"]).drop(columns="adam").iloc[0]


BASE = RunConfig(
    partition=PartitionConfig(validation=0.25, options={"ways": 3}),
    model=ModelConfig(encoder="dcgan-narrow"),
    train=TrainConfig(rounds=10),
)
SIZES = {"digits": {"clients": 20, "partition.shots": 15}, "cifar10": {"clients": 10, "partition.shots": 40}}
"""Clients of a dataset, and their training images of each of their three classes, a quarter of which is set aside."""

FINISH_SEARCH = Experiment(
    name="finish-search",
    title="Epochs, rate and optimiser of a last stage, on validation images",
    paper="none",
    variants=("fedavg", "fedper", "repper", "local", "fedbabu"),
    scales={
        "smoke": Grid(BASE, {"data.name": ("digits",)}, {"data.name": SIZES}),
        "small": Grid(BASE, {"data.name": ("digits", "cifar10")}, {"data.name": SIZES}),
    },
    axis="data.name",
    train=train_and_search,
)


def _print_choice(path: str) -> None:
    table = score_finish_candidates(read_stored_table(path))
    texts = table.map(lambda value: f"{value:.1f}" if isinstance(value, float) and value > 1 else f"{value}")
    print(format_markdown(texts))
    choice = choose_finish_candidate(table)
    print(f"\nchosen: {choice.epochs} epochs of {choice.optimizer} at {choice.lr:g}")


if __name__ == "__main__":
    run_on_named_studies(_print_choice)
