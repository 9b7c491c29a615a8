"""Where sharing pays: what every method gains over `local` against images per class and classes per client.

No paper has this. All 23 methods train the 5x5 network of FedCoSR on CIFAR-10 without a radio. A client has m classes
and q images of each; the number of steps on whole models is the same everywhere, 10 steps of 10 images in each of 20
rounds, so that places differ in what clients know and not in how long they learn. Steps on heads alone come on top:
FedRep's and FedPAC's in each round, those of fine-tuning and of RepPer after the last one. Gains are those of the last
evaluation, which all methods have at the same time. pFedMe and Per-FedAvg keep their own rates. The choices are ours,
and were made before the first run (docs/protocol.md).

Scale `small`: 20 clients, 20 test images of a class per client, three seeds. Scale `paper`: four numbers of images, 60
rounds, 100 test images, five seeds.

    semcom sweep collaboration --scale small
    python -m experiments.hypotheses results/collaboration-small
"""

from __future__ import annotations

from typing import Any

from experiments.arms import ALL
from semcom.config import ChannelConfig, DataConfig, ModelConfig, PartitionConfig, RunConfig, TrainConfig
from semcom.studies.experiment import Experiment, Grid, each_scale

SIZES: dict[str, dict[str, Any]] = {
    "smoke": {"rounds": 1, "steps": 2, "clients": 3, "test": 3, "seeds": (0,)},
    "small": {"rounds": 20, "steps": 10, "clients": 20, "test": 20, "seeds": (0, 1, 2)},
    "paper": {"rounds": 60, "steps": 10, "clients": 20, "test": 100, "seeds": (0, 1, 2, 3, 4)},
}
WAYS = {"smoke": (2,), "small": (2, 5, 10), "paper": (2, 5, 10)}
"""Scale -> classes of a client."""
SHOTS = {"smoke": (3,), "small": (5, 30), "paper": (5, 20, 80, 200)}
"""Scale -> training images of each."""


def base(scale: str) -> RunConfig:
    """Return the configuration that the runs of a scale share."""
    size, smoke = SIZES[scale], scale == "smoke"
    return RunConfig(
        data=DataConfig(name="digits" if smoke else "cifar10", size=16 if smoke else 32),
        partition=PartitionConfig(options={"test_per_class": size["test"]}),
        model=ModelConfig(encoder="cnn-linear", features=64),
        channel=ChannelConfig(kind="none"),
        clients=size["clients"],
        train=TrainConfig(rounds=size["rounds"], local_steps=size["steps"], lr=1e-3, optimizer="adam", batch_size=10),
    )


def _grid(scale: str) -> Grid:
    vary = {"partition.ways": WAYS[scale], "partition.shots": SHOTS[scale], "seed": SIZES[scale]["seeds"]}
    return Grid(base(scale), vary)


COLLABORATION = Experiment(
    name="collaboration",
    title="What every method gains over local training, against images per class and classes per client",
    paper="none",
    variants=ALL,
    scales=each_scale(_grid),
    axis="partition.shots",
    figures=("collaboration", "collaboration-ways"),
)
"""The map of where sharing pays."""
