"""Every setting that would do nothing is refused in one line; a default, and a setting that has an effect, is not."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from semcom.config import RunConfig, from_dict, to_dict
from semcom.methods.registry import METHODS
from semcom.runs.request.resolve import resolve
from semcom.runs.rounds.runner import run
from tests import worlds
from tests.refusals import refuses

ARMS = [name for name in METHODS.names() if not name.startswith("test-")]


def request(method: str, **fields: Any) -> RunConfig:
    """A request that is not resolved; a section is a dictionary of its fields and options."""
    base = RunConfig(method=method, device="cpu")
    parts = {n: worlds.section(type(getattr(base, n)), **v) for n, v in fields.items() if n in worlds.SECTIONS}
    return dataclasses.replace(base, **{**fields, **parts})


BUSY: list[tuple[str, dict[str, Any]]] = [
    ("ditto", {"model": {"init": "client"}}),
    ("fedper", {"model": {"init": "client"}}),
    ("local", {"model": {"init": "client"}}),
    ("local", {"partition": {"kind": "iid", "test_fraction": 0.5}}),
    ("local", {"partition": {"scarce": (1,), "scarce_fraction": 0.5}}),
    ("fedavg", {"channel": {"downlink_snr_db": 3.0}, "air": {"parameters": "analog"}}),
    ("fedcl", {"channel": {"downlink_snr_db": 3.0}}),
    ("fedcl", {"channel": {"downlink": "ideal"}}),
    ("fedcl", {"air": {"bits_per_use": 4.0, "symbol_energy": 2.0, "bandwidth_hz": 2e6}}),
    ("local", {"network": {"kind": "cell"}, "air": {"bandwidth_hz": 2e6}}),  # whose noise the tests have
    ("fedproto", {"air": {"bits_per_float": 16, "bits_per_use": 4.0}}),
    ("fedavg", {"channel": {"kind": "ideal"}, "air": {"parameters": "analog"}}),  # it is counted otherwise
    ("local", {"train": {"through_link": False}}),
    ("fedavg", {"channel": {"kind": "none"}, "air": {"bits_per_float": 16}}),  # bits are counted all the same
    ("local", {"channel": {"power": "free", "snr_db": 3.0}, "train": {"through_link": False}}),
    ("perfedavg", {"finish": {"lr": 0.5}, "new_clients": 2}),  # whose heads are trained at that rate
    ("local", {"finish": {"kind": "linear", "lr": 0.5, "epochs": 3, "optimizer": "adam"}}),
    ("repper", {"finish": {"kind": "svm", "epochs": 3}}),  # beside which its own heads are trained
    ("repper", {"finish": {"epochs": 0, "lr": 0.5}, "new_clients": 2}),
    ("fedavg", {"finish": {"kind": "mlp"}, "model": {"init": "client"}}),  # with which the heads begin
    ("perfedavg", {"train": {"lr_milestones": (5,)}}),
    ("fedavg", {"train": {"eval_clients": 19}}),
    ("fedcl", {"hyper": {"centroids": "none", "lam": 0.0}}),  # what holds anyway
    ("fedcl", {"hyper": {"lam": 0.0}}),
    ("fedcl", {"hyper": {"lam": 0.0, "source": "pass"}}),  # which costs another uplink
    ("fedcl", {"hyper": {"scg_loss": "infonce", "tau": 0.5}}),
    ("moon", {"hyper": {"mu": 0.5, "tau": 2.0}}),
    ("fedala", {"hyper": {"p": 1, "eta": 2.0, "s": 0.5, "cap": 3}}),
    ("repper", {"finish": {"lr": 0.5}, "model": {"head": "mlp"}}),
]


@pytest.mark.parametrize(("method", "fields"), BUSY)
def test_a_setting_that_has_an_effect_is_not(method: str, fields: dict[str, Any]) -> None:
    config = resolve(request(method, **fields))
    assert resolve(from_dict(to_dict(config))) == config


FADES: dict[str, Any] = {"kind": "rayleigh", "feedback": "none"}
FREE: dict[str, Any] = {"train": {"through_link": False}}


@pytest.mark.parametrize(
    ("method", "fields", "effect"),
    [
        ("fedcl", {"channel": {**FADES, "equaliser": "zf"}}, False),
        ("fedcl", {"channel": {**FADES, "equaliser": "zf", "kind": "rician", "antennas": 2, "users": 2}}, False),
        ("fedcl", {"channel": {**FADES, "equaliser": "zf", "kind": "ofdm"}}, False),
        ("fedcl", {"channel": {**FADES, "equaliser": "zf", "kind": "ofdm", "csi": "ls"}}, True),
        ("fedcl", {"channel": FADES}, True),
        ("fedcl", {"channel": {**FADES, "equaliser": "none"}}, True),
        ("fedavg", {"channel": FADES}, True),
        ("fedavg", {"channel": FADES, **FREE}, False),
        ("local", {"channel": {**FADES, "equaliser": "none"}, **FREE}, False),
    ],
)
def test_the_gain_that_nobody_asks_for_is_no_setting(method: str, fields: dict[str, Any], effect: bool) -> None:
    """Where it has an effect, the numbers of a run without it are others; where it has none, it is refused."""
    wanted = worlds.request(method, **fields) if effect else None
    if wanted is None:
        with refuses("channel.feedback", "has no effect"):
            worlds.request(method, **fields)
        return
    usual = dataclasses.replace(
        wanted,
        channel=dataclasses.replace(wanted.channel, options={**vars(wanted.channel.options), "feedback": "gain"}),
    )
    assert run(wanted).metrics[0]["loss"] != run(usual).metrics[0]["loss"]


@pytest.mark.parametrize("kind", ["none", "ideal", "awgn", "rayleigh", "ofdm", "digital"])
@pytest.mark.parametrize("arm", ARMS)
def test_a_resolved_configuration_can_be_given_again(arm: str, kind: str) -> None:
    """Its fields are all set; none of them is taken for a wish."""
    config = resolve(request(arm, channel={"kind": kind}))
    assert resolve(from_dict(to_dict(config))) == config
