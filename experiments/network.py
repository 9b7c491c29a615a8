"""Measure the effect of antennas, users, outages and schedulers on accuracy and time in a cell with shared resources.

20 clients in a cell of 250 m with transmit powers so low that their mean SNRs lie around those of the other studies
(5 dBm: 0 to 35 dB with one user); 8 of them take part in a round. Users of a resource spread the same power over more
of the band. Their fading lasts for a round and goes on to the next. FedAvg and FedPer exchange models
error-free, at a rate that follows the SNR; FedCL trains through the link. The choices are ours: nothing is taken from a
paper. experiments/protocol.md says what is asked.

Scale `small`: 40 rounds of the schedule of `wireless-snr`, three seeds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pandas as pd

from semcom.config import AirConfig, ChannelConfig, NetworkConfig, RunConfig
from semcom.studies.experiment import Experiment, Grid, each_scale
from semcom_papers.experiments.verdicts import Row, decide, decide_level, describe, tabulate_by_seed
from semcom_papers.experiments.wireless import SIZES, make_wireless_base

FIELDS = ("channel.antennas", "channel.users", "network.scheduling", "air.outage")
SETTINGS: dict[str, tuple[tuple[Any, ...], ...]] = {
    "smoke": ((2, 2, "random", 0.1), (2, 2, "proportional-fair", 0.1)),
    "small": (
        (1, 1, "random", 0.1), (4, 1, "random", 0.1), (4, 2, "random", 0.1), (4, 4, "random", 0.1),
        (4, 2, "best-snr", 0.1), (4, 2, "proportional-fair", 0.1),
        (4, 2, "random", 0.01), (4, 2, "random", 0.3),
    ),
}  # fmt: skip
"""Scale -> antennas, users on a resource, scheduler and outage of each setting."""
METHODS = ("fedavg", "fedper", "fedcl")


def make_network_base(scale: str) -> RunConfig:
    """Make the configuration that the runs of a scale share."""
    smoke, base = scale == "smoke", make_wireless_base(scale)
    options = {"power_dbm": 5.0, "base_power_dbm": 15.0}
    return replace(
        base,
        channel=ChannelConfig(kind="rayleigh", options={"coherence": "round", "round_doppler": 0.1}),
        air=AirConfig(rate="capacity"),
        network=NetworkConfig(kind="cell", options=options),
        clients=4 if smoke else 20,
        train=replace(base.train, rounds=1 if smoke else 40, participation=0.5 if smoke else 0.4),
    )


def _make_grid(scale: str) -> Grid:
    return Grid(make_network_base(scale), {FIELDS: SETTINGS[scale], "seed": SIZES[scale]["seeds"]})


WIRELESS_NETWORK = Experiment(
    name="wireless-network",
    title="Antennas, users on a resource, schedulers and outages in a cell",
    paper="none",
    variants=METHODS,
    scales=each_scale(_make_grid, ("smoke", "small")),
    axis="channel.users",
)

SMALL_LOSS, NEAR = 2.0, 2.0
"""Points that sharing a resource costs at most, and within which two schedulers are the same."""


def judge_network_settings(frame: pd.DataFrame) -> Iterator[Row]:
    """Judge the gain by antennas, the cost of users on a resource, and the clients that schedulers neglect."""
    mean, worst = (tabulate_by_seed(frame, number, list(FIELDS)) for number in ("last", "worst10"))
    one, alone, pair, four = (mean.loc[each] for each in SETTINGS["small"][:4])
    for name in METHODS:
        yield decide("four antennas gain over one", name, alone[name] - one[name])
        title = f"four users on four antennas cost less than {SMALL_LOSS:g} points"
        yield decide(title, name, alone[name] - four[name], SMALL_LOSS, above=False)
        yield describe("two users on four antennas cost", name, alone[name] - pair[name])
    chance, best, fair = (worst.loc[SETTINGS["small"][i]] for i in (2, 4, 5))
    for name in METHODS:
        yield decide(
            "the best SNR leaves the least accurate tenth behind", name, best[name] - chance[name], above=False
        )
        yield decide_level(f"proportional fairness does not, within {NEAR:g} points", name, fair[name] - chance[name])
