"""The channel of a configuration: its link's options are filled in, and those of other links refused."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from semcom.channels import LINKS
from semcom.channels.fading import Rayleigh
from semcom.channels.options import BaseOptions
from semcom.config import ChannelConfig, ModelConfig, RunConfig, TrainConfig, from_dict, run_hash, to_dict
from semcom.engine.air.links import build_link
from semcom.runs.request.resolve import resolve
from semcom.runs.rounds.runner import run
from tests import worlds
from tests.refusals import refuses
from tests.worlds import linked


def resolved(**channel: Any) -> RunConfig:
    return resolve(RunConfig(channel=linked(**channel)))


def test_a_link_s_defaults_are_filled_in_and_others_stay_open() -> None:
    assert asdict(resolved(kind="ideal").channel.options) == {}
    assert asdict(resolved(kind="awgn").channel.options) == {
        "feature_noise": 0.0,
        "downlink": "noisy",
        "power": "normalised",
    }
    wanted = {"downlink": "noisy", "feedback": "gain", "equaliser": "zf", "coherence": "sample", "antennas": 1}
    wanted |= {"users": 1, "combining": "mmse", "power_control": "none", "round_doppler": None, "feature_noise": 0.0}
    assert asdict(resolved(kind="rayleigh", equaliser="zf").channel.options) == wanted


def test_the_hash_covers_what_was_left_open() -> None:
    """So spelling a default out is the same run, and a resolved configuration resolves to itself."""
    config = resolved(kind="rayleigh")
    assert run_hash(config) == run_hash(resolved(kind="rayleigh", equaliser="mmse", coherence="sample"))
    for other in ({"equaliser": "zf"}, {"antennas": 2}, {"feedback": "none"}):
        assert run_hash(config) != run_hash(resolved(kind="rayleigh", **other))
    assert resolve(from_dict(to_dict(config))) == config


def test_a_run_over_impulse_responses_is_known_by_their_content(tmp_path: Path) -> None:
    """Not by the path: the same content elsewhere is the same run, another content is another."""
    hashes = []
    for name, phase in (("one", 1.0), ("two", 1.0), ("one", 1.0j)):
        path = tmp_path / f"{name}.npz"
        np.savez(path, a=np.full((20, 1, 1), phase), tau=np.zeros((20, 1)))
        hashes.append(run_hash(resolved(kind="cir", path=str(path))))
    assert hashes[0] == hashes[1] != hashes[2]


def test_what_a_link_works_out_itself_is_filled_in_too() -> None:
    """20 clients x 134 subcarriers for 50 x 64 / 2 symbols over 12 of 14 OFDM symbols, 15 kHz each."""
    config = resolved(kind="ofdm")
    c = config.channel.options
    assert (c.subcarriers, config.air.bandwidth_hz) == (2680, 2680 * 15e3)
    assert (c.profile, c.csi, c.pilots, c.equaliser) == ("tdl-a", "perfect", (2, 11), "mmse")
    assert (c.delay_spread_ns, c.carrier_ghz, c.speed_mps, c.shares) == (100.0, 3.5, 3.0, None)
    assert resolve(from_dict(to_dict(config))) == config
    assert resolved(kind="ofdm", profile="rayleigh").channel.options.delay_spread_ns is None
    assert resolved(kind="awgn").air.bandwidth_hz == 1e6
    half = resolve(RunConfig(channel=ChannelConfig(kind="ofdm"), train=TrainConfig(participation=0.5)))
    assert half.channel.options.subcarriers == 1340


def test_a_warning_of_a_link_is_logged_once_the_run_begins(caplog: pytest.LogCaptureFixture) -> None:
    """Of two links that it holds for, with new clients; resolving it says nothing."""
    config = worlds.request("local", channel={"kind": "ofdm", "delay_spread_ns": 1000.0}, new_clients=1)
    resolve(config)
    assert not caplog.records
    run(config)
    (line,) = [r.getMessage() for r in caplog.records if "delay-spread" in r.getMessage()]
    assert line.startswith("channel.delay-spread-ns: 1000 puts the last path of tdl-a at 9.66 us")


@pytest.mark.parametrize("kind", ["ideal", "awgn", "rayleigh", "ofdm", "digital"])
def test_symbols_take_two_features_each(kind: str) -> None:
    """What is not sent needs no symbols."""
    with refuses("model.features", 7):
        resolve(RunConfig(channel=ChannelConfig(kind=kind), model=ModelConfig(features=7)))
    assert resolve(RunConfig(channel=ChannelConfig(kind="none"), model=ModelConfig(features=7))).model.features == 7


def test_a_link_of_the_user_s_has_options_through_the_same_fields() -> None:
    @LINKS.register("test-half-open")
    class HalfOpen(Rayleigh):
        """Takes the coherence and the equaliser, with a default of its own, and something that has no field."""

        @dataclass(frozen=True)
        class Options(BaseOptions):
            """The options."""

            coherence: str = "sample"
            equaliser: str = "none"
            other: int = 7

        options: Options

    config = resolved(kind="test-half-open")
    assert asdict(config.channel.options) == {"coherence": "sample", "equaliser": "none", "other": 7}
    link, _ = build_link(config)
    assert isinstance(link, HalfOpen) and (link.equaliser, link.options.other) == ("none", 7)
    with refuses("channel.downlink"):
        resolved(kind="test-half-open", downlink="ideal")
