"""Every method under one protocol: FedCRL's network on small clients with skewed labels, no channel, equal budgets.

The network, the batch size and the two partitions are FedCRL's (its Table I and Section V-A). FedCoSR has these layers
and partitions too, and gives neither batch size, optimiser nor rate. SGD at 0.005 is our choice: FedCRL trains by Adam
at 0.003. These papers have no radio, so the link is `none`, without power normalisation. The clients have about 300
training images each, as many as 20 of them can have in an afternoon on two cores, and 30 rounds. Every method passes
its clients' images once per round through the encoder in training; phases that train a head alone come on top.
"""

from __future__ import annotations

from semcom.config import ChannelConfig, DataConfig, ModelConfig, PartitionConfig, RunConfig, TrainConfig
from semcom.studies.experiment import Experiment, Grid
from semcom_papers.experiments.arms import ALL


def _make_grid(data: str, fraction: float, features: int, rounds: int) -> Grid:
    base = RunConfig(
        data=DataConfig(name=data),
        partition=PartitionConfig(options={"fraction": fraction}),
        model=ModelConfig(encoder="cnn-dropout", features=features),
        channel=ChannelConfig(kind="none"),
        clients=20,
        train=TrainConfig(rounds=rounds, lr=0.005, optimizer="sgd", batch_size=16),
    )
    return Grid(base, {"partition.kind": ("pathological", "dirichlet"), "seed": (0,)})


ARMS_SMALL = Experiment(
    name="arms-small",
    title="All methods on small clients with skewed labels, without a channel",
    paper="none (the partitions of FedCoSR's Table II, in small)",
    variants=ALL,
    scales={"smoke": _make_grid("digits", 1.0, 16, 2), "small": _make_grid("cifar10", 8000 / 60000, 128, 30)},
    axis="partition.kind",
    figures=("arms-small",),
)
