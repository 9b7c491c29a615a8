"""Runs over the digital link: every kind of training goes through it, in any chunks, and its uses are counted."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from semcom import run
from semcom.config import ChannelConfig, FinishConfig, ModelConfig, RunConfig, TrainConfig
from semcom.methods.registry import METHODS
from tests.worlds import divided, linked, used

BASE = RunConfig(
    partition=divided(kind="shots", ways=2, shots=4, shots_spread=2, test_per_class=4),
    model=ModelConfig(encoder="dcgan-narrow", features=32),
    channel=linked(kind="digital", snr_db="4:20", test_snr_db="12,3", fading="rayleigh"),
    clients=2,
    train=TrainConfig(rounds=2, batch_size=4),
    precision="float64",
    device="cpu",
)


@pytest.mark.parametrize("method", ["fedcl", "fedrep", "perfedavg", "repper"])
def test_it_trains_and_tests_in_any_chunks(method: str) -> None:
    """Clients with different numbers of samples, so with padding: the same losses and answers to the last digits."""
    gradients = {"downlink_snr_db": 12.0} if METHODS.get(method).split else {}
    base = dataclasses.replace(
        BASE,
        method=method,
        channel=dataclasses.replace(BASE.channel, options={**BASE.channel.options, "code_rate": 0.75}, **gradients),
        train=dataclasses.replace(BASE.train, **used(method, {"eval_every": 2})),
        finish=FinishConfig(epochs=None if METHODS.get(method).finishing is None else 2),
    )
    one, all_ = (run(dataclasses.replace(base, chunk=chunk)) for chunk in (1, 2))
    for row, same in zip(one.metrics, all_.metrics, strict=True):
        assert row["loss"] == pytest.approx(same["loss"], rel=1e-9)
    assert one.summary["views"] == all_.summary["views"]
    for name, snr in one.summary["snr_received_db"].items():
        assert snr == pytest.approx(all_.summary["snr_received_db"][name])


def test_features_and_gradients_take_the_uses_of_the_analog_link() -> None:
    traffic = {
        kind: run(dataclasses.replace(BASE, channel=ChannelConfig(kind=kind))).summary["traffic"]
        for kind in ("digital", "awgn")
    }
    assert traffic["digital"] == traffic["awgn"]
    assert traffic["digital"]["down"]["uses"] > 0


def test_other_options_are_another_run() -> None:
    """So none of them is silently without effect."""
    settings: tuple[dict[str, Any], ...] = (
        {},
        {"code_rate": 0.75},
        {"modulation": 64},
        {"fading": "rician"},
        {"downlink": "ideal"},
    )
    losses = {
        run(dataclasses.replace(BASE, channel=linked(kind="digital", snr_db=9.0, **given))).metrics[-1]["loss"]
        for given in settings
    }
    assert len(losses) == len(settings)
