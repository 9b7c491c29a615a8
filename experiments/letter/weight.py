"""FedCL's lead over FedProto where both regularisers weigh the same (docs/protocol.md).

Both pull a feature to a centroid of its class: FedCL by lambda times the squared distance summed over the d features,
FedProto by lambda times their mean. Here FedCL takes the mean too (`reduction`), so that one lambda is one weight, and
it goes from FedProto's default, 1, over what the letter's figures have for FedCL, 4, to d = 64. `fedcl with mean
centroids` tells whether the generator matters. At `small` the narrow encoder has all of these, the wide one the
largest.

`letter-pull` asks what it is about generated centroids that stands the largest one. They are kept apart by a
contrastive loss; and they are shorter than class means, so that they pull features less. A generator that is never
trained has the length and not the contrast; with InfoNCE it has the contrast, and keeps its length.

    semcom sweep letter-weight --scale small
    python -m experiments.hypotheses results/letter-weight-small
    semcom sweep letter-pull --scale small --reuse results/letter-weight-small
    python -m experiments.hypotheses results/letter-pull-small
"""

from __future__ import annotations

from experiments.letter.figures import base
from semcom.studies.experiment import Experiment, Grid, Variant, each_scale

MEAN = {"hyper.reduction": "mean"}
"""FedCL's distance as FedProto has it."""
AS_PRINTED = Variant("fedcl", "fedcl", MEAN)
PLAIN = Variant("fedcl with mean centroids", "fedcl", {**MEAN, "hyper.centroids": "mean"})
PLACE = ("model.encoder", "train.rounds", "hyper.lam")
"""The fields that vary."""
LARGEST = 64.0
"""The number of features: FedProto then has the sum, at its default."""
PLACES = {
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
SEEDS = {"small": (14, 15, 16, 17), "paper": (14, 15, 16, 17, 18)}
"""None of those with which the lead was seen first."""


def _grid(scale: str) -> Grid:
    return Grid(base(scale, 9.0), {PLACE: PLACES[scale], "seed": SEEDS[scale]})


def _pull(scale: str) -> Grid:
    largest = tuple(place for place in PLACES[scale] if place[-1] == LARGEST)
    return Grid(base(scale, 9.0), {PLACE: largest, "seed": SEEDS[scale]})


LETTER_WEIGHT = Experiment(
    name="letter-weight",
    title="FedCL and FedProto with regularisers of one weight",
    paper="none (what the FedCL letter's lead could follow from)",
    variants=(AS_PRINTED, PLAIN, "fedproto"),
    scales=each_scale(_grid, ("small", "paper")),
    axis="hyper.lam",
    figures=("letter-weight",),
)
"""FedCL against FedProto over the weight of their regularisers."""
LETTER_PULL = Experiment(
    name="letter-pull",
    title="FedCL with the largest lambda, and what its generator is",
    paper="none (what the FedCL letter's lead could follow from)",
    variants=(AS_PRINTED, UNTRAINED, INFONCE, PLAIN, "fedproto"),
    scales=each_scale(_pull, ("small", "paper")),
    axis="model.encoder",
)
"""What about generated centroids stands a large lambda."""
