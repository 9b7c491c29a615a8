"""The channel of a configuration: its link's options are filled in, and those of other links refused."""

from __future__ import annotations

import dataclasses

import pytest

from channels import LINKS
from channels.fading import Rayleigh
from semcom.config import ChannelConfig, ConfigError, RunConfig, from_dict, run_hash, to_dict
from semcom.links import build_link
from semcom.request import resolve


def resolved(**channel: object) -> RunConfig:
    return resolve(RunConfig(channel=ChannelConfig(**channel)))  # type: ignore[arg-type]


def test_a_link_s_defaults_are_filled_in_and_others_stay_open() -> None:
    assert resolved(kind="ideal").channel.options() == {}
    assert resolved(kind="awgn").channel.options() == {"downlink": "noisy"}
    wanted = {"downlink": "noisy", "equaliser": "zf", "coherence": "sample"}
    assert resolved(kind="rayleigh", equaliser="zf").channel.options() == wanted


def test_the_hash_covers_what_was_left_open() -> None:
    """So spelling a default out is the same run, and a resolved configuration resolves to itself."""
    config = resolved(kind="rayleigh")
    assert run_hash(config) == run_hash(resolved(kind="rayleigh", equaliser="mmse", coherence="sample"))
    assert run_hash(config) != run_hash(resolved(kind="rayleigh", equaliser="zf"))
    assert resolve(from_dict(to_dict(config))) == config


def test_an_option_that_would_do_nothing_is_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        resolved(kind="awgn", equaliser="zf")
    assert str(refused.value) == "channel.equaliser: 'zf' is not for awgn, which takes downlink"


def test_a_link_of_the_user_s_has_options_through_the_same_fields() -> None:
    @LINKS.register("test-half-open")
    class HalfOpen(Rayleigh):
        """Takes the equaliser alone, with a default of its own, and something that has no field."""

        def __init__(self, *, equaliser: str = "none", other: int = 7) -> None:
            super().__init__(equaliser=equaliser)
            self.other = other

    config = resolved(kind="test-half-open")
    assert config.channel.options() == {"equaliser": "none"}
    link = build_link(config)
    assert isinstance(link, HalfOpen) and (link.equaliser, link.other) == ("none", 7)
    with pytest.raises(ConfigError, match=r"channel.downlink: 'ideal' is not for test-half-open, which takes"):
        resolve(dataclasses.replace(config, channel=dataclasses.replace(config.channel, downlink="ideal")))
