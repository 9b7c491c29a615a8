"""Measure accuracy against seconds and joule: alone, and nine ways to learn together in a cell. No paper has this.

20 clients in a disc of 200 m, Rayleigh fading, 10 MHz, rates by 5G's schemes; a client computes 10 GFLOP/s on average,
some two or three times as fast as others. Local sends nothing, FedProto class means; FedCL sends features up and gets
gradients. FedPer sends its encoder, FedAvg its model: as it is, with 8 bits for each number, or the largest 5 % of its
update; FedAvg also uncoded and all at once. A round waits for its slowest client. Network, schedule and division are
those of `experiments/wireless.py`; the choices are ours.

Scale `small`: 60 rounds, 20 test images of a class per client, three seeds. Scale `paper`: 200 rounds, 100 test images,
five seeds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pandas as pd

from semcom.config import AirConfig, ChannelConfig, NetworkConfig, RunConfig
from semcom.studies.experiment import Grid, Variant
from semcom_papers.experiments import wireless
from semcom_papers.experiments.papers.items import make_item
from semcom_papers.experiments.verdicts import Row, decide, describe, pend, read_variant, tabulate_by_seed

BITS = {"air.compress": "quantise"}
TOP = {"air.compress": "top-k", "air.top_fraction": 0.05}
ADDED = (
    Variant("local", "local", {"air.rate": "fixed"}),
    "fedproto",
    Variant("fedper-8bit", "fedper", BITS),
    Variant("fedper-top", "fedper", TOP),
)
"""Arms that explain the others, declared after the first six had been run, and before their own runs."""
VARIANTS = (
    "fedcl",
    "fedper",
    "fedavg",
    Variant("fedavg-8bit", "fedavg", BITS),
    Variant("fedavg-top", "fedavg", TOP),
    Variant("fedavg-at-once", "fedavg", {"air.parameters": "analog", "air.access": "superposed", "air.rate": "fixed"}),
    *ADDED,
)
ROUNDS = {"smoke": 2, "small": 60, "paper": 200}
LARGE_LOSS, SMALL_LOSS = 5.0, 2.0
"""Least cost of sending all at once, and largest cost of fewer bits, by the hypotheses, in points."""


def _make_grid(scale: str) -> Grid:
    base = wireless.make_wireless_base(scale)
    found: RunConfig = replace(
        base,
        channel=ChannelConfig(kind="rayleigh"),
        air=AirConfig(rate="mcs", bandwidth_hz=10e6),
        network=NetworkConfig(kind="cell", options={"radius_m": 200.0, "flops": 1e10, "flops_spread": 0.5}),
        train=replace(base.train, rounds=ROUNDS[scale], eval_every=1 if scale == "smoke" else 2),
    )
    return Grid(found, {"seed": wireless.SIZES[scale]["seeds"]})


WIRELESS_TIME = make_item(
    "wireless-time", "none",
    "Accuracy against the seconds and joule that training alone and nine ways to learn together take in a cell",
    VARIANTS, _make_grid, "network.radius_m", ("wireless-time", "wireless-time-energy"),
)  # fmt: skip


def judge_wireless_costs(frame: pd.DataFrame) -> Iterator[Row]:
    """Judge the cost of fewer bits and of sending at once, the time of FedCL's rounds, and its gain over Local.

    The answer on arms without runs is "pending".
    """
    last, whole = tabulate_by_seed(frame, "last"), frame.pivot(index="seed", columns="variant", values="time_s")
    title = f"fewer bits cost less than {SMALL_LOSS:g} points"
    half = "and less than half of the time, in percent"
    for name in ("fedavg-8bit", "fedavg-top", "fedper-8bit", "fedper-top"):
        if name not in last:
            yield from (pend(title, name), pend(half, name))
            continue
        plain = name.partition("-")[0]
        yield decide(title, name, last[plain] - last[name], SMALL_LOSS, above=False)
        yield decide(half, name, 100 * whole[name] / whole[plain], 50, False)
    title = f"all at once costs more than {LARGE_LOSS:g} points"
    received = read_variant(frame, "fedavg-at-once", "last", [], "received")
    yield decide(title, "fedavg-at-once", last["fedavg"] - received, LARGE_LOSS)
    title = "FedPer is more accurate at the end than FedCL"
    yield decide(title, "", last["fedper"] - last["fedcl"])
    title = "FedCL's rounds take less than a tenth of FedPer's, in percent"
    for name, place in (("fedper", ""), ("fedper-8bit", "fedper-8bit"), ("fedper-top", "fedper-top")):
        there = name in whole
        yield decide(title, place, 100 * whole["fedcl"] / whole[name], 10, False) if there else pend(title, place)
    title = "it is more accurate at the end than training alone"
    for name in ("fedcl", "fedproto"):
        there = name in last and "local" in last
        yield decide(title, name, last[name] - last["local"]) if there else pend(title, name)
    for name in whole:
        yield describe("time of all rounds in s", str(name), whole[name])
