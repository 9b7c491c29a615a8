"""FedCL's lead over FedProto where both regularisers weigh the same (docs/protocol.md).

Both pull a feature to a centroid of its class: FedCL by lambda times the squared distance summed over the d features,
FedProto by lambda times their mean. Here FedCL takes the mean too (`reduction`), so that one lambda is one weight, and
it goes from FedProto's default, 1, over what the letter's figures have for FedCL, 4, to d = 64. `fedcl with mean
centroids` tells whether the generator matters. At `small` the narrow encoder has all of these, the wide one the
largest.

    semcom sweep letter-weight --scale small
    python -m experiments.hypotheses results/letter-weight-small
"""

from __future__ import annotations

from experiments.base import Experiment, Grid, Variant, each_scale
from experiments.fedcl_letter import base

MEAN = {"hyper.reduction": "mean"}
"""FedCL's distance as FedProto has it."""
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
SEEDS = {"small": (14, 15, 16, 17), "paper": (14, 15, 16, 17, 18)}
"""None of those with which the lead was seen first."""


def _grid(scale: str) -> Grid:
    return Grid(base(scale, 9.0), {PLACE: PLACES[scale], "seed": SEEDS[scale]})


LETTER_WEIGHT = Experiment(
    name="letter-weight",
    title="FedCL and FedProto with regularisers of one weight",
    paper="none (what the FedCL letter's lead could follow from)",
    variants=(Variant("fedcl", "fedcl", MEAN), PLAIN, "fedproto"),
    scales=each_scale(_grid, ("small", "paper")),
    axis="hyper.lam",
    figures=("letter-weight",),
)
"""FedCL against FedProto over the weight of their regularisers."""
