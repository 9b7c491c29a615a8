"""Runs in which nearly nothing arrives say so, once, with the option and the share, whatever has kept it back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from semcom import run
from semcom.config import NetworkConfig
from semcom.engine.air.losses import MEANT, Losses
from semcom.methods.registry import METHODS
from tests import worlds
from tests.runs.rounds.test_run import interrupt

SUPERPOSED = {"parameters": "analog", "access": "superposed"}
FAR = {"channel": {"snr_db": "-20,10,10,10"}}


@pytest.mark.parametrize("method", ["fedavg", "fedproto", "fedrep"])
@pytest.mark.parametrize(
    ("options", "names", "share"),
    [
        ({"air": {"rate": "capacity", "repeat": False, "outage": 0.9999}}, "air.outage 0.9999: ", 100),
        ({"network": {"flops": 1e9}, "train": {"deadline_s": 1e-6}}, "train.deadline-s 1e-06: ", 100),
        ({"air": {"rate": "mcs", "coverage": "none"}, "channel": {"snr_db": -20.0}}, "air.coverage none: ", 100),
        ({"air": {"rate": "mcs", "coverage": "none"}, **FAR}, "air.coverage none: ", 25),
    ],
)
def test_what_kept_nearly_everything_back_is_named(
    method: str, options: dict[str, Any], names: str, share: float, caplog: pytest.LogCaptureFixture
) -> None:
    train = {"rounds": 2, **options.get("train", {})}
    (text,) = run(worlds.request(method, **{**options, "train": train})).summary["warnings"]
    assert text.startswith(f"{share}% of what 4 clients") and f"({names}{share}%)" in text
    assert text.endswith(f"; {'client 0' if share < 100 else '4 of them'} never once got through")
    assert caplog.messages.count(text) == 1


@pytest.mark.parametrize("rounds", [1, 3])
def test_superposed_symbols_that_are_cut_off_are_counted(rounds: int) -> None:
    """Above 10 dB of its mean the power of Rayleigh fading is with exp(-10), and the symbols fade by themselves."""
    fading = {"channel": {"kind": "rayleigh", "coherence": "symbol"}, "train": {"rounds": rounds}}
    result = run(worlds.request(air={**SUPERPOSED, "truncation_db": 10.0}, **fading))
    (text,) = result.summary["warnings"]
    mean = np.mean([line["cut-off"] for line in result.metrics])
    assert text.startswith(f"{100 * mean:.4g}% of what 4 clients") and "air.truncation-db 10.0: " in text
    assert run(worlds.request(air=SUPERPOSED, **fading)).summary["warnings"] == []


def test_an_outage_that_leaves_something_is_no_warning() -> None:
    few = run(worlds.request(air={"rate": "capacity", "repeat": False, "outage": 0.1}))
    assert few.summary["warnings"] == [] and few.summary["lost"] + few.summary["unreached"] > 0


def test_counts_go_on_after_an_interruption_and_end_up_alike(tmp_path: Path) -> None:
    """With half of all lost: what is counted is what the lines of the rounds say."""
    air = {"rate": "capacity", "repeat": False, "outage": 0.5}
    whole, halves = (worlds.request(air=air, out=str(tmp_path / name)) for name in ("whole", "halves"))
    result = run(whole)
    interrupt(halves, 3)
    again = run(halves)
    one, other = (each.world.air.arrivals.losses for each in (result, again))
    assert one.counts == other.counts and again.summary["warnings"] == result.summary["warnings"]
    assert sum(one.of("air.outage").values()) == result.summary["lost"] + result.summary["unreached"]
    assert sum(one.of(MEANT).values()) == 4 * 6  # a client that does not know of a round was to send in it all the same


@pytest.mark.parametrize("scheduling", ["best-snr", "round-robin"])
def test_clients_that_a_scheduler_never_chooses_are_told(scheduling: str) -> None:
    config = worlds.request(
        network=NetworkConfig(scheduling=scheduling),
        train={"participation": 0.25},
        channel={"snr_db": "30,10,0,-10"},
    )
    left = [f"network.scheduling {scheduling}: 3 of 4 clients never once took part"]
    assert run(config).summary["warnings"] == (left if scheduling == "best-snr" else [])


def test_blocks_that_all_have_wrong_bits_are_told() -> None:
    """Of a training that goes over a digital link; a curve of tests counts only where it is so at all of its points."""
    train, model = worlds.used("fedcl", {"rounds": 1}), {"features": 32}
    low = {"kind": "digital", "snr_db": -10.0, "downlink": "ideal"}
    (text,) = run(worlds.request("fedcl", channel=low, train=train, model=model)).summary["warnings"]
    assert "(train_up 100%, test 100%)" in text
    for tests, told in (("-10,-12", True), ("-10,30", False)):
        channel = {"kind": "digital", "snr_db": 30.0, "test_snr_db": tests}
        said = run(worlds.request("fedcl", channel=channel, train=train, model=model)).summary["warnings"]
        assert [text.split(":")[0] for text in said] == told * ["nearly every block had wrong bits (test 100%)"]


def test_shares_are_those_of_all_that_was_meant_to_be_sent() -> None:
    """10 transmissions of client 0 and 30 of client 7: 36.5 are missing, of them 9 of the first for one reason."""
    losses, config = Losses(), worlds.settings("fedavg", "test-conv", 4, air={"rate": "mcs"})
    losses.add(MEANT, [0] * 10 + [7] * 30)
    losses.add("air.outage", [0] * 9)
    assert losses.describe(config) is None
    losses.add("train.deadline_s", [0, 7], [0.5, 27])
    text = losses.describe(config)
    assert text is not None and text.startswith("91.25% of what 2 clients")
    assert "(train.deadline-s None: 68.8%, air.outage 0.1: 22.5%)" in text and "never once" not in text
    losses.add("air.coverage", [0], [0.5])
    assert (losses.describe(config) or "").endswith("client 0 never once got through")


def test_methods_that_send_nothing_lose_nothing() -> None:
    assert METHODS.get("local").exchanges is False
    assert run(worlds.request("local")).summary["warnings"] == []
