"""Ask who is left behind where places decide about reception and about classes: clients who walk in Munich.

20 clients in the scene `munich-20`, who walk for two minutes and back, in reach of a base station with four antennas;
10 of them take part in a round of four seconds. Frames meet the paths of the scene at the time of the round, with
transmit powers so low (-10 dBm up, 0 dBm down) that three clients are out of reach throughout, others at times.
Models go error-free at rates of 5G's MCS table, and are lost where the round is worse than the rate takes it to be;
FedCL trains through the link. Neighbours have similar classes (`partition.kind place`, 50 m), or not (0 m); a round's
clients are chosen by chance, or by their SNR. Beside the street stands 3GPP's average cell (UMi, 200 m) over Rayleigh
fading, with powers (18 and 28 dBm) by which its median SNR is that of the street. The choices are ours: nothing is
taken from a paper.

Scale `small`: 60 rounds, five seeds.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from semcom.channels.scene import read_scene
from semcom.config import (
    ChannelConfig,
    DataConfig,
    ModelConfig,
    NetworkConfig,
    PartitionConfig,
    RunConfig,
    TrainConfig,
)
from semcom.studies.analysis.study import study
from semcom.studies.experiment import Experiment, Grid, Variant, each_scale
from semcom_papers.experiments.benchmark_ends import read_final
from semcom_papers.experiments.verdicts import Row, decide, decide_level, describe

SCENE = "munich-20"
FIELDS = ("network.kind", "network.scheduling", "partition.length_m")
STREET, BEST, MIXED, BEST_MIXED, CELL = SETTINGS = (
    ("scene", "random", 50.0),
    ("scene", "best-snr", 50.0),
    ("scene", "random", 0.0),
    ("scene", "best-snr", 0.0),
    ("cell", "random", 50.0),
)
"""The street; a round's clients chosen by SNR; classes that do not follow places; both; the cell."""
LOSSES = {"air.rate": "mcs", "air.repeat": False, "air.coverage": "none"}
VARIANTS = (
    "local",
    Variant("fedavg", "fedavg", LOSSES),
    Variant("fedper", "fedper", LOSSES),
    Variant("fedcl", "fedcl", {"air.rate": "mcs"}),
)
TOGETHER = ("fedavg", "fedper", "fedcl")
"""Methods that are held against `local`."""
AROUND: dict[str, dict[str, Any]] = {
    "scene": {
        "network.scene": SCENE,
        "network.power_dbm": -10.0,
        "network.base_power_dbm": 0.0,
        "network.round_s": 4.0,
        "channel.kind": "cir",
        "channel.path": SCENE,
        "channel.time": "round",
        "channel.subcarriers": 600,
        "channel.spacing_khz": 30.0,
    },
    "cell": {
        "network.radius_m": 200.0,
        "network.power_dbm": 18.0,
        "network.base_power_dbm": 28.0,
        "air.bandwidth_hz": 18e6,
    },
}
"""Kind of network -> what else is set with it; 600 subcarriers of 30 kHz are 18 MHz."""
SAME = 3.0
"""Points within which a gain in the cell is that in the street."""


def _make_grid(scale: str) -> Grid:
    smoke = scale == "smoke"
    size = {"size": 20 if smoke else 400, "test_fraction": 0.5, "beta": 0.3}
    base = RunConfig(
        data=DataConfig(name="digits" if smoke else "cifar10", size=16 if smoke else 32),
        partition=PartitionConfig(kind="place", options={"scene": SCENE, **size}),
        model=ModelConfig(encoder="cnn-linear", features=64),
        channel=ChannelConfig(kind="rayleigh", options={"antennas": 4}),
        network=NetworkConfig(kind="cell"),
        clients=4 if smoke else 20,
        train=TrainConfig(
            rounds=1 if smoke else 60, participation=0.5, lr=1e-3, optimizer="adam", batch_size=16, eval_every=5
        ),
    )
    settings, seeds = ((STREET, CELL), (0,)) if smoke else (SETTINGS, (0, 1, 2, 3, 4))
    return Grid(base, {FIELDS: settings, "seed": seeds}, apart={"network.kind": AROUND})


CITY = Experiment(
    name="city",
    title="Who is left behind in the streets of Munich, where places decide about reception and classes",
    paper="none",
    variants=VARIANTS,
    scales=each_scale(_make_grid, ("smoke", "small")),
    axis="network.kind",
    figures=("city",),
)


def read_quarters(path: Path | str) -> pd.DataFrame:
    """Read accuracies of the last round, in percent: of all clients, the worst-placed quarter, and the rest.

    Places are ordered by the path gain in dB, averaged over the walk, or in the cell by the SNR.

    Returns:
        A row per run: variant, `FIELDS`, seed, mean, worst, rest.
    """
    gains = read_scene(SCENE).gains_db().mean(1)
    rows = []
    for run in study(path).stored:
        if run.status != "done" or run.summary is None:
            continue
        accuracy = 100 * np.array(read_final(run, str(run.headline))["clients"])
        fields = {name: run.field(name) for name in (*FIELDS, "seed")}
        placed = gains if fields["network.kind"] == "scene" else np.array(run.summary["cell"]["snr_db"])
        order = np.argsort(placed[: len(accuracy)], kind="stable")
        worst, rest = np.split(accuracy[order], [len(accuracy) // 4])
        numbers = {"mean": accuracy.mean(), "worst": worst.mean(), "rest": rest.mean()}
        rows.append({"variant": run.variant, **fields, **numbers})
    return pd.DataFrame(rows)


def judge_city(frame: pd.DataFrame) -> Iterator[Row]:
    """Judge who is left behind, what a scheduler does to them, and whether the cell says the same as the street."""
    frame = frame.assign(gap=frame["worst"] - frame["rest"])

    def read(number: str, setting: tuple[Any, ...]) -> pd.DataFrame:
        here = frame[(frame[list(FIELDS)] == list(setting)).all(axis=1)]
        return here.pivot(index="seed", columns="variant", values=number)

    gap, street, cell = read("gap", STREET), read("mean", STREET), read("mean", CELL)
    for name in ("local", *TOGETHER):
        yield describe("worst-placed quarter minus the rest, in the street", name, gap[name])
    for name in TOGETHER:
        title = "who is badly placed falls behind more than in training alone"
        yield decide(title, name, gap[name] - gap["local"], above=False)
    worse = read("gap", BEST) - gap
    mixed = read("gap", BEST_MIXED) - read("gap", MIXED)
    for name in TOGETHER:
        yield decide("a choice by SNR makes it worse", name, worse[name], above=False)
        yield decide("and more so where classes follow places", name, worse[name] - mixed[name], above=False)
        yield describe("a choice by SNR, all clients", name, (read("mean", BEST) - street)[name])
    for name in TOGETHER:
        gains = (street[name] - street["local"]) - (cell[name] - cell["local"])
        title = f"the cell says the same of the gain over training alone, within {SAME:g} points"
        yield decide_level(title, name, gains, SAME)
    for one, other in combinations(("local", *TOGETHER), 2):
        for place, numbers in (("the street", street), ("the cell", cell)):
            yield describe(f"{one} minus {other}", place, numbers[one] - numbers[other])
