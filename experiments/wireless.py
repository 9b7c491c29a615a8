"""Compare every method against SNR, over the air and against heterogeneity: no paper has this.

All 23 methods train the 5x5 network of FedCoSR on CIFAR-10, over three channels (AWGN, Rayleigh fading with MMSE, OFDM
over a 3GPP TDL profile), at 10 dB, with models and prototypes exchanged free of errors or uncoded over the air (`local`
and `fedcl` exchange none). A run is trained once and tested at all SNRs. Images are few, 150 of a client, so that what
others know matters. The choices are ours: nothing is taken from a paper. pFedMe and Per-FedAvg keep their own rates,
and have too few of their small steps to learn much. `fedcrl` is `fedcosr` here, with other defaults of a preset alone.

Over the air, methods are shown by different models: most average an encoder, and are tested with the base station's,
which no client has (the view `received` has it as the client receives it); FedALA with the model as received; FedProto,
FedGH, Ditto, pFedMe and FedAMP with the client's own, trained on what was received.

Numbers are those of the end of training (`last`): fine-tuned methods and RepPer are tested there alone, and a mean over
earlier rounds would be held against it.

Scale `small`: 20 clients, 20 rounds, 20 test images of a class per client, three seeds. Scale `paper`: 60 rounds, 100
test images, five seeds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from semcom.config import ChannelConfig, DataConfig, ModelConfig, PartitionConfig, RunConfig, TrainConfig
from semcom.studies.experiment import Grid, Variant
from semcom.studies.grid import TEST_SNR
from semcom_papers.experiments.arms import ALL
from semcom_papers.experiments.papers.items import make_item
from semcom_papers.experiments.verdicts import (
    OPEN,
    Row,
    decide,
    decide_at_each,
    describe,
    over_places,
    read_variant,
    tabulate_by_seed,
)

NOTHING = {"air.parameters": "ideal"}
"""Setting of methods that exchange neither models nor prototypes."""
ARMS = tuple(Variant(str(arm), str(arm), NOTHING) if arm in ("local", "fedcl") else arm for arm in ALL)
"""All methods."""
SIZES: dict[str, dict[str, Any]] = {
    "smoke": {"rounds": 1, "clients": 3, "test": 3, "seeds": (0,)},
    "small": {"rounds": 20, "clients": 20, "test": 20, "seeds": (0, 1, 2)},
    "paper": {"rounds": 60, "clients": 20, "test": 100, "seeds": (0, 1, 2, 3, 4)},
}
SNRS = {
    "smoke": (10.0, 0.0),
    "small": (10.0, -15.0, -10.0, -5.0, 0.0, 5.0, 15.0),
    "paper": (10.0, *(float(snr) for snr in range(-15, 22, 3))),
}
"""Scale -> SNRs of the tests in dB; the first is that of training."""
CHANNELS = {"smoke": ("rayleigh",), "small": ("awgn", "rayleigh", "ofdm"), "paper": ("awgn", "rayleigh", "ofdm")}
WAYS = {
    "smoke": ((2, 5),),
    "small": ((2, 75), (3, 50), (5, 30), (10, 15)),
    "paper": ((2, 75), (3, 50), (5, 30), (10, 15)),
}
"""Scale -> classes of a client, and training images of each: their product is constant."""


def make_wireless_base(scale: str) -> RunConfig:
    """Make the configuration that the runs of a scale share."""
    size, smoke = SIZES[scale], scale == "smoke"
    split = {"ways": 3, "shots": 5 if smoke else 50, "test_per_class": size["test"]}
    return RunConfig(
        data=DataConfig(name="digits" if smoke else "cifar10", size=16 if smoke else 32),
        partition=PartitionConfig(options=split),
        model=ModelConfig(encoder="cnn-linear", features=64),
        channel=ChannelConfig(snr_db=10.0),
        clients=size["clients"],
        train=TrainConfig(rounds=size["rounds"], lr=1e-3, optimizer="adam", batch_size=16),
    )


def _make_snr(scale: str) -> Grid:
    vary = {"channel.kind": CHANNELS[scale], TEST_SNR: SNRS[scale], "seed": SIZES[scale]["seeds"]}
    return Grid(make_wireless_base(scale), vary)


def _make_exchange(scale: str) -> Grid:
    exchanges = ("ideal", "analog") if scale != "smoke" else ("analog",)
    vary = {"air.parameters": exchanges, TEST_SNR: SNRS[scale], "seed": SIZES[scale]["seeds"]}
    return Grid(make_wireless_base(scale), vary)


def _make_heterogeneity(scale: str) -> Grid:
    vary = {
        ("partition.ways", "partition.shots"): WAYS[scale],
        TEST_SNR: SNRS[scale],  # those of `wireless-snr`, whose runs over AWGN are some of these
        "seed": SIZES[scale]["seeds"],
    }
    return Grid(make_wireless_base(scale), vary)


# fmt: off
WIRELESS_SNR = make_item("wireless-snr", "none",
                         "All methods against test SNR over three channels, with exchange free of errors",
                         ALL, _make_snr, TEST_SNR)
# Over one channel, with what they exchange on the air too; `wireless-snr` has its error-free runs too.
WIRELESS_EXCHANGE = make_item("wireless-exchange", "none",
                              "All methods against test SNR over AWGN, with exchange free of errors and over the air",
                              ARMS, _make_exchange, TEST_SNR)
WIRELESS_HETEROGENEITY = make_item("wireless-heterogeneity", "none",
                                   "All methods against classes per client at constant data, trained at 10 dB",
                                   ALL, _make_heterogeneity, "partition.ways")
# fmt: on

CHANNEL = "channel.kind"
COMMON_DECODER = ("fedcl", "lg_fedavg", "fedgh")
"""Methods with personal encoders under a common decoder, as the view `personal` has them."""
SAME_ORDER = 0.95
"""Rank correlation above which two orders of methods count as the same."""
LARGE_LOSS, SMALL_LOSS = 5.0, 2.0
"""Least and largest cost of exchange over the air by the hypotheses, in points."""


def judge_wireless_snr(frame: pd.DataFrame) -> Iterator[Row]:
    """Judge the loss under a common decoder in noise, and whether channels change the order of methods."""
    more: dict[str, dict[str, pd.Series]] = {}  # number -> method -> its loss beyond that of local, in points
    for number in ("last", "among_own"):
        lost = {
            name: read_variant(frame, name, number, [CHANNEL], "personal", 10)
            - read_variant(frame, name, number, [CHANNEL], "personal", -5)
            for name in ("local", *COMMON_DECODER)
        }
        more[number] = {name: lost[name] - lost["local"] for name in COMMON_DECODER}
    title = "under a common decoder more is lost in noise than with local training"
    for name, values in more["last"].items():
        yield from decide_at_each(title, values, [CHANNEL], f"{name}, {{}}")
    g, h = (pd.concat(list(of.values()), axis=1).mean(axis=1, skipna=False) for of in more.values())
    for channel in g.index.get_level_values(CHANNEL).unique():
        lost = describe("what is lost more, mean of the three", f"{channel}, among ten classes: g", g[channel])
        yield lost
        yield describe("what is lost more, mean of the three", f"{channel}, among own: h", h[channel])
        half = decide("that is knowing the classes: h - g / 2", channel, h[channel] - g[channel] / 2, above=False)
        yield half if lost["low"] > 0 else {**half, "answer": OPEN}
    of_methods = tabulate_by_seed(frame, "last", [CHANNEL], test_snr_db=10).drop(columns="fedcrl").dropna()
    over_awgn = of_methods.loc["awgn"]
    pairs = combinations(over_awgn.index, 2)
    between = [over_awgn.loc[one].corr(over_awgn.loc[other], "spearman") for one, other in pairs]
    ends = {"low": min(between, default=math.nan), "high": max(between, default=math.nan)}
    reported = {"hypothesis": "(reported: rho of two seeds over AWGN, least to largest)", "place": ""}
    yield {**reported, "difference": float(np.mean(between)), **ends, "seeds": len(over_awgn), "answer": ""}
    for channel in ("rayleigh", "ofdm"):
        rho = over_awgn.corrwith(of_methods.loc[channel], axis=1, method="spearman")
        yield decide(f"the order of methods is that over AWGN: rho above {SAME_ORDER:g}", channel, rho, SAME_ORDER)


def judge_wireless_exchange(frame: pd.DataFrame) -> Iterator[Row]:
    """Judge the cost of exchange over the air for methods that average encoders, and for others."""
    found = tabulate_by_seed(frame, "last", ["air.parameters"], test_snr_db=10)
    free = found.loc["ideal"]
    for name in ("fedavg", "fedper", "fedrep"):
        analog = frame[frame["air.parameters"] == "analog"]
        received = read_variant(analog, name, "last", [], "received", 10)
        title = f"exchange over the air costs more than {LARGE_LOSS:g} points where encoders are averaged"
        yield decide(title, name, free[name] - received, LARGE_LOSS)
        yield describe("with the base station's encoder", name, free[name] - found.loc["analog"][name])
    for name in ("fedproto", "fedgh", "lg_fedavg"):
        title = f"it costs less than {SMALL_LOSS:g} points where they are not"
        yield decide(title, name, free[name] - found.loc["analog"][name], SMALL_LOSS, above=False)


def judge_wireless_heterogeneity(frame: pd.DataFrame) -> Iterator[Row]:
    """Judge whether common encoders gain over `local` with several classes, and less in noise."""
    several = frame[frame["partition.ways"] > 3]
    gains = {}
    for snr in (10, 0):
        found = tabulate_by_seed(several, "last", ["partition.ways"], test_snr_db=snr)
        for name in ("fedper", "fedrep"):
            gains[name, snr] = over_places(found[name] - found["local"])
    for (name, snr), gain in gains.items():
        yield decide("a common encoder gains with several classes", f"{name}, {snr} dB", gain)
    for name in ("fedper", "fedrep"):
        difference = gains[name, 0] - gains[name, 10]
        yield decide("it gains less in noise", f"{name}, 0 dB minus 10 dB", difference, above=False)
