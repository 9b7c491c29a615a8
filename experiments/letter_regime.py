"""Where FedCL helps: its gain over `local` where images are few and clients are many (docs/protocol.md).

Methods that share nothing, prototypes, heads, a generator of centroids, or the encoder, at 9 dB: the map is over images
per class, classes per client and clients. All runs have the same number of local steps, 15 in each of 30 rounds, those
of 300 images in batches of 20; with fewer images a step sees them more often. `fedcl with mean centroids` has the plain
mean of the clients' centroids in the place of the generator's. `fedcl with a common encoder` averages the encoders too,
which then cross the air: all of the model is common then, as in FedAvg. `fedcl with common encoder and own decoders`,
with mean centroids, is FedPer with FedCL's training.

    semcom sweep letter-regime --scale small
    python -m experiments.hypotheses results/letter-regime-small
"""

from __future__ import annotations

from experiments.base import Experiment, Grid, Variant, each_scale
from experiments.fedcl_letter import base, of_lambda, seeds
from experiments.fields import set_fields

PLACE = ("partition.shots", "partition.ways", "clients")
"""The fields of the map: q, m, K."""
PLACES = {
    "smoke": ((5, 3, 4), (2, 3, 4)),
    "small": ((5, 3, 20), (20, 3, 20), (100, 3, 20), (10, 5, 50), (5, 3, 50)),
    "paper": tuple(
        (q, m, k) for q in (5, 10, 20, 50, 100) for m in (3, 5) for k in (5, 20, 50, 100) if q * m * k <= 30_000
    ),
}
"""Scale -> places of the map. No image has two owners: of CIFAR-10's 5,000 of each class some have to be left."""
STEPS = {"smoke": (2, 2), "small": (30, 15), "paper": (200, 15)}
"""Scale -> rounds, and local steps in each."""


VARIANTS = (
    *("local", "fedproto", "lg_fedavg", "fedgh", "fedcl"),
    Variant("fedcl with mean centroids", "fedcl", {"hyper.centroids": "mean"}),
    "fedper",
    Variant("fedcl with a common encoder", "fedcl", {"hyper.average_encoder": True}),
    Variant(
        *("fedcl with common encoder and own decoders", "fedcl"),
        {"hyper.centroids": "mean", "hyper.average_encoder": True, "hyper.average_decoder": False},
    ),
)
"""What shares nothing, prototypes, heads, a generator of centroids, the encoder, or encoder and centroids."""


def _grid(scale: str) -> Grid:
    rounds, steps = STEPS[scale]
    start = set_fields(base(scale, 9.0), {"train.rounds": rounds, "train.local_steps": steps, "train.batch_size": 20})
    return Grid(start, {PLACE: PLACES[scale], "seed": seeds(scale)}, own=of_lambda(scale, VARIANTS))


LETTER_REGIME = Experiment(
    name="letter-regime",
    title="Methods with personal or common encoders against images per class, classes and clients",
    paper="none (where the FedCL letter's idea should pay)",
    variants=VARIANTS,
    scales=each_scale(_grid),
    axis="partition.shots",
    figures=("letter-regime", "letter-regime-uses"),
)
"""The map."""
