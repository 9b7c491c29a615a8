"""Measure FedCL's lead over FedProto with regularisers of equal weight (experiments/protocol.md).

Both pull a feature to a centroid of its class: FedCL by lambda times the squared distance summed over the d features,
FedProto by lambda times their mean. Here FedCL takes the mean too (`reduction`), so that one lambda is one weight, and
it goes from FedProto's default, 1, over FedCL's in the letter's figures, 4, to d = 64. `fedcl with mean centroids`
shows whether the generator matters. At `small` the narrow encoder has all of these weights, the wide encoder the
largest.

`letter-pull` asks why generated centroids tolerate the largest weight. A contrastive loss keeps them apart; and they
are shorter than class means, so that they pull features less. An untrained generator has the length without the
contrast; with InfoNCE it has the contrast, and keeps its length.

    semcom sweep letter-weight --scale small
    python -m semcom_papers.experiments.hypotheses results/letter-weight-small
    semcom sweep letter-pull --scale small --reuse results/letter-weight-small
    python -m semcom_papers.experiments.hypotheses results/letter-pull-small
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from semcom.studies.experiment import Grid, Variant
from semcom_papers.experiments.claims.rule import NEAR
from semcom_papers.experiments.letter.figures import base
from semcom_papers.experiments.letter.lead import GIVES, GIVES_NOT, ORIGIN, STATED, describe_reach
from semcom_papers.experiments.papers.items import make_item
from semcom_papers.experiments.verdicts import OPEN, REFUTED, SUPPORTED, Row, decide_at_each, describe, tabulate_by_seed

MEAN = {"hyper.reduction": "mean"}
"""FedCL's distance in FedProto's form."""
AS_PRINTED = Variant("fedcl", "fedcl", MEAN)
PLAIN = Variant("fedcl with mean centroids", "fedcl", {**MEAN, "hyper.centroids": "mean"})
ENCODER, LAMBDA = "model.encoder", "hyper.lam"
PLACE = (ENCODER, "train.rounds", LAMBDA)
"""The fields that vary."""
LARGEST = 64.0
"""The number of features: FedProto then has the sum, at its default."""
PLACES = {
    "smoke": tuple(("dcgan-narrow", 2, lam) for lam in (1.0, LARGEST)),
    "small": (
        *(("dcgan-narrow", 30, lam) for lam in (1.0, 4.0, 16.0, LARGEST)),
        ("dcgan", 60, LARGEST),
    ),
    "paper": tuple(("dcgan", 200, lam) for lam in (1.0, 4.0, 16.0, LARGEST, 256.0)),
}
"""Scale -> encoder, rounds and lambda."""
STILL = 1e-12
"""A rate that moves no weight."""
UNTRAINED = Variant("fedcl with an untrained generator", "fedcl", {**MEAN, "hyper.scg_lr": STILL})
INFONCE = Variant("fedcl with InfoNCE", "fedcl", {**MEAN, "hyper.scg_loss": "infonce"})
SEEDS = {"smoke": (14,), "small": (14, 15, 16, 17), "paper": (14, 15, 16, 17, 18)}
"""Other seeds than those with which the lead was seen first."""


def _make_grid(scale: str) -> Grid:
    return Grid(base(scale, 9.0), {PLACE: PLACES[scale], "seed": SEEDS[scale]})


def _make_pull(scale: str) -> Grid:
    largest = tuple(place for place in PLACES[scale] if place[-1] == LARGEST)
    return Grid(base(scale, 9.0), {PLACE: largest, "seed": SEEDS[scale]})


# fmt: off
# FedCL against FedProto over the weight of their regularisers.
LETTER_WEIGHT = make_item("letter-weight", ORIGIN, "FedCL and FedProto with regularisers of one weight",
                          (AS_PRINTED, PLAIN, "fedproto"), _make_grid, LAMBDA)
# Why generated centroids tolerate a large lambda.
LETTER_PULL = make_item("letter-pull", ORIGIN, "FedCL with the largest lambda, and what its generator is",
                        (AS_PRINTED, UNTRAINED, INFONCE, PLAIN, "fedproto"), _make_pull, ENCODER, figures=())
# fmt: on


def judge_lambda_weight(frame: pd.DataFrame) -> Iterator[Row]:
    """Judge FedCL's lead over FedProto with regularisers of one weight, and the contribution of its generator."""
    places = [ENCODER, LAMBDA]
    found = tabulate_by_seed(frame, places=places)
    lead, plain = (found[name] - found["fedproto"] for name in ("fedcl", PLAIN.name))
    title = f"FedCL leads FedProto by more than {NEAR:g} points with lambda {LARGEST:g} for both"
    for row in decide_at_each(title, lead.xs(LARGEST, level=LAMBDA), [ENCODER], limit=NEAR):
        yield row
        for stated in STATED["fedproto"]:
            reach = {GIVES: SUPPORTED, GIVES_NOT: REFUTED}.get(describe_reach(row["low"], row["high"], stated), OPEN)
            yield {**row, "hypothesis": f"this can be the letter's lead of {stated:g}", "answer": reach}
    title = f"it is so without the generator: more than {NEAR:g} points"
    yield from decide_at_each(title, plain.xs(LARGEST, level=LAMBDA), [ENCODER], limit=NEAR)
    by_lambda = lead.unstack(LAMBDA).dropna()
    grown = by_lambda[LARGEST] - by_lambda[1.0]
    yield from decide_at_each("the lead grows with lambda", grown, [ENCODER], f"{{}}, {LARGEST:g} minus 1")
    yield from decide_at_each("FedCL minus FedProto", lead, places, "{}, lambda {:g}", describe)
    for name in ("fedcl", PLAIN.name, "fedproto"):
        by_lambda = found[name].unstack(LAMBDA).dropna()
        more = by_lambda[LARGEST] - by_lambda.drop(columns=LARGEST).max(axis=1)
        yield from decide_at_each(
            f"lambda {LARGEST:g} minus the best one below", more, [ENCODER], f"{{}}, {name}", describe
        )


def judge_pull_weight(frame: pd.DataFrame) -> Iterator[Row]:
    """Judge whether generated centroids tolerate a large lambda by their contrast, or only by their length."""
    for number, place in (("accuracy", "{}"), ("among_own", "{}, among own classes")):
        found = tabulate_by_seed(frame, number, [ENCODER])
        trained = found["fedcl"] - found[UNTRAINED.name]
        yield from decide_at_each("training the generator helps", trained, [ENCODER], place)
        for name in (UNTRAINED.name, INFONCE.name):
            title = f"{name} leads FedProto by more than {NEAR:g} points"
            yield from decide_at_each(title, found[name] - found["fedproto"], [ENCODER], place, limit=NEAR)
