"""Find where sharing pays: the gain of every method over `local` against images per class and classes per client.

No paper has this. All 23 methods train the 5x5 network of FedCoSR on CIFAR-10 without a radio. A client has m classes
and q images of each; the number of steps on whole models is the same everywhere, 10 steps of 10 images in each of 20
rounds, so that places differ in what clients know and not in how long they learn. Steps on heads alone come on top:
FedRep's and FedPAC's in each round, those of fine-tuning and of RepPer after the last one. Gains are those of the last
evaluation, which all methods have at the same time. pFedMe and Per-FedAvg keep their own rates. The choices are ours,
and were made before the first run (experiments/protocol.md).

Scale `small`: 20 clients, 20 test images of a class per client, three seeds. Scale `paper`: four numbers of images, 60
rounds, 100 test images, five seeds.

    semcom sweep collaboration --scale small
    python -m semcom_papers.experiments.hypotheses results/collaboration-small
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from semcom.config import ChannelConfig, DataConfig, ModelConfig, PartitionConfig, RunConfig, TrainConfig
from semcom.studies.analysis.statistics import compute_t_interval
from semcom.studies.experiment import Grid
from semcom_papers.experiments.arms import ALL
from semcom_papers.experiments.papers.items import make_item
from semcom_papers.experiments.verdicts import (
    OPEN,
    REFUTED,
    SUPPORTED,
    Row,
    decide,
    describe,
    over_places,
    read_variant,
    tabulate_by_seed,
)

SIZES: dict[str, dict[str, Any]] = {
    "smoke": {"rounds": 1, "steps": 2, "clients": 3, "test": 3, "seeds": (0,)},
    "small": {"rounds": 20, "steps": 10, "clients": 20, "test": 20, "seeds": (0, 1, 2)},
    "paper": {"rounds": 60, "steps": 10, "clients": 20, "test": 100, "seeds": (0, 1, 2, 3, 4)},
}
WAYS = {"smoke": (2,), "small": (2, 5, 10), "paper": (2, 5, 10)}
"""Scale -> classes of a client."""
SHOTS = {"smoke": (3,), "small": (5, 30), "paper": (5, 20, 80, 200)}
"""Scale -> training images of each."""


def make_collaboration_base(scale: str) -> RunConfig:
    """Make the configuration that the runs of a scale share."""
    size, smoke = SIZES[scale], scale == "smoke"
    return RunConfig(
        data=DataConfig(name="digits" if smoke else "cifar10", size=16 if smoke else 32),
        partition=PartitionConfig(options={"test_per_class": size["test"]}),
        model=ModelConfig(encoder="cnn-linear", features=64),
        channel=ChannelConfig(kind="none"),
        clients=size["clients"],
        train=TrainConfig(rounds=size["rounds"], local_steps=size["steps"], lr=1e-3, optimizer="adam", batch_size=10),
    )


def _make_grid(scale: str) -> Grid:
    vary = {"partition.ways": WAYS[scale], "partition.shots": SHOTS[scale], "seed": SIZES[scale]["seeds"]}
    return Grid(make_collaboration_base(scale), vary)


COLLABORATION = make_item(
    "collaboration", "none",
    "What every method gains over local training, against images per class and classes per client",
    ALL, _make_grid, "partition.shots", ("collaboration", "collaboration-ways"),
)  # fmt: skip

SMALL_GAIN = 3.0
"""Gain that methods without a common encoder do not reach by the hypothesis, in points."""
MAP = ("partition.ways", "partition.shots")
"""Fields of a place: m, q."""


def judge_collaboration_gains(frame: pd.DataFrame) -> Iterator[Row]:
    """Judge which methods gain over `local`: with a common encoder, without, and most methods with two classes."""
    found = tabulate_by_seed(frame, "last", MAP)
    personal = read_variant(frame, "fedbabu", "last", MAP, "personal")
    gains = found.assign(fedbabu=personal).drop(columns="local").sub(found["local"], axis=0)
    several = gains[gains.index.get_level_values("partition.ways") > 2]
    for method in ("fedper", "fedrep", "fedbabu"):
        title = "a common encoder and an own head gain with several classes"
        yield decide(title, method, over_places(several[method]))
    for method in ("fedproto", "lg_fedavg", "fedgh", "fedcl"):
        cells = gains[method].groupby(list(MAP)).mean()
        place = f"{method} (largest {cells.max():.1f} at m {cells.idxmax()[0]:g}, q {cells.idxmax()[1]:g})"
        title = f"prototypes or heads alone gain less than {SMALL_GAIN:g} points"
        yield decide(title, place, over_places(gains[method]), SMALL_GAIN, above=False)
    for method in gains:
        yield describe("mean gain over all places", method, over_places(gains[method]))
    for method in gains.columns.drop("fedavg_ft"):
        more = over_places(gains["fedavg_ft"] - gains[method])
        yield describe("fine-tuned FedAvg minus others, all places", method, more)
    headline = found.drop(columns="local").sub(found["local"], axis=0)
    for shots, part in headline.xs(2, level="partition.ways").groupby("partition.shots"):
        intervals = [compute_t_interval(part[method].dropna().to_numpy()) for method in part]
        none, some = (sum(test) for test in zip(*((i.high < 1, i.low > 0) for i in intervals), strict=True))
        said = SUPPORTED if none > len(intervals) / 2 else REFUTED if some > len(intervals) / 2 else OPEN
        place = f"q {shots:g}: {none} of {len(intervals)} methods gain less than 1 point, {some} gain"
        mean = compute_t_interval(part.mean(axis=1).to_numpy())
        ends = {"difference": mean.mean, "low": mean.low, "high": mean.high, "seeds": len(part)}
        yield {"hypothesis": "with two classes most methods do not gain", "place": place, **ends, "answer": said}
