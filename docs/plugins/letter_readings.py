"""Readings of the FedCL letter that no field of a run has: a plug-in with the study of them (docs/protocol.md).

    semcom sweep docs/plugins/letter_readings.py --scale small

The norm of Eq. 10 without its square, as the authors' proof has it; a generator whose random inputs are trained too;
features that are bounded. Beside them, what fields have: 100 and 1,000 steps of the generator in a round, FedProto's
public setting, and one update in a round.
"""

from __future__ import annotations

from torch import nn

from experiments.letter.figures import base
from semcom import ENCODERS, METHODS
from semcom.methods.base import task_loss
from semcom.methods.fedcl import FedCL, generate
from semcom.methods.parts.prototypes import Prototypes, collect
from semcom.models.encoders import dcgan_narrow
from semcom.models.scg import SCG
from semcom.studies.experiment import Experiment, Grid, Variant, each_scale
from semcom.studies.grid import set_fields
from semcom.studies.registry import EXPERIMENTS

SMALLEST = 1e-12
"""What keeps the gradient of a norm finite at 0."""


@METHODS.register("fedcl-unsquared")
class Unsquared(FedCL):
    """FedCL with the norm itself in Eq. 10, not its square."""

    def objective(self, model, batch, context):
        """Return cross-entropy plus lambda times the mean distance to the centroid, `[k]`."""
        features, logits = model(batch)
        collect(context.carry, features, batch)
        k, _, d = features.shape
        target = context.common["centroids"].expand(k, -1, -1).gather(1, batch.y.unsqueeze(-1).expand(-1, -1, d))
        known = context.common["known"].expand(k, -1).gather(1, batch.y)
        distance = batch.mean(((features - target).square().sum(-1) + SMALLEST).sqrt() * known)
        task = task_loss(logits, batch)
        return task + context.common["lam"] * distance, {"task": task, "distance": distance}


class TrainedInputs(SCG):
    """The generator with its random vectors as parameters."""

    def __init__(self, classes: int, features: int) -> None:
        super().__init__(classes, features)
        vectors = self.vectors
        del self.vectors
        self.vectors = nn.Parameter(vectors)


@METHODS.register("fedcl-trained-inputs")
class WithTrainedInputs(FedCL):
    """FedCL whose generator trains its inputs too."""

    def setup(self, world):
        """Start as FedCL does, from another generator."""
        plain = super().setup(world)
        scg = world.server(lambda: TrainedInputs(world.classes, world.features), "scg")
        first = Prototypes(generate(scg), plain.centroids.known)
        return self.State(plain.model, scg, self._optimizer(world).state(scg), first)


@ENCODERS.register("dcgan-narrow-bounded")
def bounded(channels: int, features: int, size: int) -> nn.Module:
    """The narrow DCGAN-like encoder with features in [-1, 1], by a hyperbolic tangent."""
    return nn.Sequential(dcgan_narrow(channels, features, size), nn.Tanh())


PUBLIC = {"train.optimizer": "sgd", "train.lr": 0.01, "train.momentum": 0.5, "train.batch_size": 4}
"""FedProto's public setting."""
ONCE = {"train.local_steps": 1, "train.rounds": 450, "train.eval_every": 150}
"""One update in a round, and as many as in 30 rounds of 15."""
BOUNDED = {"model.encoder": "dcgan-narrow-bounded"}


def _grid(scale: str) -> Grid:
    start = set_fields(base(scale, 9.0), {"train.rounds": 2 if scale == "smoke" else 30})
    return Grid(start, {"seed": (20,) if scale == "smoke" else (20, 21, 22, 23)})


EXPERIMENTS.register("letter-readings")(
    Experiment(
        name="letter-readings",
        title="Readings of the letter that were not tested",
        paper="none (what the FedCL letter's lead could follow from)",
        variants=(
            "fedcl",
            "fedproto",
            Variant("fedcl with mean centroids", "fedcl", {"hyper.centroids": "mean"}),
            Variant("fedcl 100 steps of the SCG", "fedcl", {"hyper.scg_steps": 100}),
            Variant("fedcl 1000 steps of the SCG", "fedcl", {"hyper.scg_steps": 1000}),
            Variant("fedcl trained inputs", "fedcl-trained-inputs"),
            Variant("fedcl trained inputs and 100 steps", "fedcl-trained-inputs", {"hyper.scg_steps": 100}),
            Variant("fedcl unsquared norm", "fedcl-unsquared", {"hyper.lam": 1 / 64}),
            Variant("fedcl unsquared norm 8 lambda", "fedcl-unsquared", {"hyper.lam": 1 / 8}),
            Variant("fedcl bounded features", "fedcl", BOUNDED),
            Variant("fedproto bounded features", "fedproto", BOUNDED),
            Variant("fedcl public setting", "fedcl", PUBLIC),
            Variant("fedproto public setting", "fedproto", PUBLIC),
            Variant("fedcl one update", "fedcl", ONCE),
            Variant("fedproto one update", "fedproto", ONCE),
        ),
        scales=each_scale(_grid, ("smoke", "small")),
        axis="seed",
    )
)
