"""Every setting that would do nothing is refused in one line; a default, and a setting that has an effect, is not."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from semcom.config import ConfigError, RunConfig, from_dict, to_dict
from semcom.methods.registry import METHODS
from semcom.runs.resolve import resolve
from tests import worlds

ARMS = [name for name in METHODS.names() if not name.startswith("test-")]


def request(method: str, **fields: Any) -> RunConfig:
    """A request that is not resolved; a section is a dictionary of its fields and options."""
    base = RunConfig(method=method, device="cpu")
    parts = {n: worlds.section(type(getattr(base, n)), **v) for n, v in fields.items() if n in worlds.SECTIONS}
    return dataclasses.replace(base, **{**fields, **parts})


def refused(method: str, **fields: Any) -> str:
    with pytest.raises(ConfigError) as error:
        resolve(request(method, **fields))
    assert "\n" not in str(error.value)
    return str(error.value)


SHOTS, OFDM, NONE = {"kind": "shots"}, {"kind": "ofdm"}, {"kind": "none"}
IDLE: list[tuple[str, dict[str, Any], str]] = [
    # partitions
    ("local", {"partition": {"beta": 0.5}}, "partition.beta: not for shots, which takes ways, shots,"),
    ("local", {"partition": {"fraction": 0.5}}, "partition.fraction: not for shots"),
    ("local", {"partition": {"kind": "iid", "ways": 4}}, "partition.ways: not for iid, which takes fraction, test,"),
    ("local", {"partition": {"kind": "pathological", "shots": 5}}, "partition.shots: not for pathological"),
    ("local", {"partition": {"kind": "dirichlet-client", "min_size": 5}}, "partition.min-size: not for"),
    (
        "local",
        {"partition": {"kind": "iid", "test": "own", "test_fraction": 0.5}},
        "partition.test-fraction: 0.5 has no effect with partition.test own; it has one with merged",
    ),
    ("local", {"partition": {"scarce_fraction": 0.5}}, "partition.scarce-fraction: 0.5 has no effect, as no client is"),
    ("local", {"data": {"width": 64}}, "data.width: not for digits, which takes no options"),
    ("local", {"partition": {"scarce": (1, 2, 1)}}, "partition.scarce: client 1 is named twice"),
    # schedules, networks
    ("fedavg", {"model": {"init": "client"}}, "model.init: 'client' has no effect, as fedavg does not use it"),
    ("fedprox", {"model": {"init": "client"}}, "model.init: 'client' has no effect, as fedprox does not use it"),
    ("fedbabu", {"model": {"init": "client"}}, "model.init: 'client' has no effect, as fedbabu does not use it"),
    ("repper", {"train": {"eval_every": 5}}, "train.eval-every: 5 has no effect, as repper does not use it"),
    # channels
    ("fedcl", {"channel": {"csi": "ls"}}, "channel.csi: not for awgn, which takes downlink"),
    ("fedcl", {"channel": {"kind": "ideal", "downlink": "ideal"}}, "channel.downlink: not for ideal, which takes no"),
    ("fedcl", {"channel": {**OFDM, "coherence": "batch"}}, "channel.coherence: not for ofdm"),
    ("fedcl", {"channel": {**OFDM, "csi": "ls", "equaliser": "none"}}, "channel.csi: 'ls' does nothing without"),
    ("fedcl", {"channel": {**OFDM, "profile": "rayleigh", "speed_mps": 9.0}}, "channel.speed-mps: 9.0 is not for"),
    ("fedcl", {"channel": {"kind": "digital", "coherence": "batch"}}, "channel.coherence: 'batch' has no effect with"),
    (
        "fedcl",
        {"channel": {"kind": "ideal", "snr_db": 3.0}},
        "channel.snr-db: 3.0 has no effect, as ideal has no noise",
    ),
    (
        "fedcl",
        {"channel": {"kind": "none", "snr_db": 3.0}},
        "channel.snr-db: 3.0 has no effect, as there is no channel with channel.kind none; leave it out",
    ),
    ("fedcl", {"channel": {**NONE, "test_snr_db": 3.0}}, "channel.test-snr-db: 3.0 has no effect, as there is no"),
    ("fedcl", {"channel": {**NONE, "downlink_snr_db": 3.0}}, "channel.downlink-snr-db: 3.0 has no effect, as there is"),
    ("fedcl", {"channel": {**NONE, "downlink": "ideal"}}, "channel.downlink: not for none, which takes no options"),
    ("fedavg", {"channel": {**NONE, "power": "free"}}, "channel.power: not for none, which takes no options"),
    ("fedavg", {"channel": NONE, "air": {"parameters": "analog"}}, "air.parameters: 'analog' has no effect, as there"),
    ("fedcl", {"channel": NONE, "air": {"bits_per_use": 4.0}}, "air.bits-per-use: 4.0 has no effect, as there is no"),
    ("fedcl", {"channel": NONE, "air": {"bandwidth_hz": 2e6}}, "air.bandwidth-hz: 2000000.0 has no effect, as there"),
    ("fedavg", {"channel": NONE, "air": {"symbol_energy": 2.0}}, "air.symbol-energy: 2.0 has no effect, as there is"),
    (
        "local",
        {"channel": NONE, "train": {"through_link": False}},
        "train.through-link: False has no effect, as there is no channel with channel.kind none; leave it out",
    ),
    ("fedavg", {"channel": {**OFDM, "power": "free"}}, "channel.power: not for ofdm, which takes"),
    ("fedavg", {"channel": {"power": "loud"}}, "channel.power: 'loud' is not one of normalised, free"),
    ("fedcl", {"channel": {"kind": "ideal", "test_snr_db": 3.0}}, "channel.test-snr-db: 3.0 has no effect"),
    ("fedcl", {"channel": {"kind": "ideal", "downlink_snr_db": 3.0}}, "channel.downlink-snr-db: 3.0 has no effect"),
    ("fedcl", {"channel": {"downlink": "ideal", "downlink_snr_db": 3.0}}, "channel.downlink-snr-db: 3.0 has no effect"),
    ("fedavg", {"channel": {"downlink_snr_db": 3.0}}, "channel.downlink-snr-db: 3.0 has no effect, as nothing comes"),
    ("fedavg", {"channel": {"downlink": "ideal"}}, "channel.downlink: 'ideal' has no effect, as fedavg sends no grad"),
    # what crosses the air
    ("fedcl", {"air": {"parameters": "analog"}}, "air.parameters: 'analog' has no effect, as fedcl exchanges no param"),
    ("local", {"air": {"parameters": "analog"}}, "air.parameters: 'analog' has no effect, as local exchanges no param"),
    ("fedcl", {"air": {"bits_per_float": 16}}, "air.bits-per-float: 16 has no effect, as no number is sent error-free"),
    ("fedavg", {"air": {"parameters": "analog", "bits_per_float": 16}}, "air.bits-per-float: 16 has no effect"),
    ("fedavg", {"air": {"parameters": "analog", "bits_per_use": 4.0}}, "air.bits-per-use: 4.0 has no effect"),
    ("local", {"air": {"bits_per_use": 4.0}}, "air.bits-per-use: 4.0 has no effect, as nothing is sent error-free"),
    ("local", {"air": {"bandwidth_hz": 2e6}}, "air.bandwidth-hz: 2000000.0 has no effect, as local sends nothing"),
    ("local", {"air": {"symbol_energy": 2.0}}, "air.symbol-energy: 2.0 has no effect, as local sends nothing"),
    # the schedule
    ("fedcl", {"train": {"through_link": False}}, "train.through-link: False has no effect, as fedcl always trains"),
    ("local", {"channel": {"kind": "ideal"}, "train": {"through_link": False}}, "train.through-link: False has no eff"),
    ("perfedavg", {"train": {"lr": 0.5}}, "train.lr: 0.5 has no effect, as perfedavg does not use it; leave it out"),
    ("perfedavg", {"train": {"lr": 0.5, "preset": "paper"}}, "train.lr: 0.5 has no effect"),
    ("perfedavg", {"train": {"optimizer": "sgd"}}, "train.optimizer: 'sgd' has no effect"),
    ("pfedme", {"train": {"lr": 0.5}}, "train.lr: 0.5 has no effect, as pfedme does not use it; leave it out"),
    ("pfedme", {"train": {"weight_decay": 0.1}}, "train.weight-decay: 0.1 has no effect"),
    ("fedavg", {"train": {"momentum": 0.9}}, "train.momentum: 0.9 has no effect with adam"),
    ("fedavg", {"train": {"lr_decay": 0.5}}, "train.lr-decay: 0.5 has no effect without"),
    ("fedavg", {"train": {"eval_clients": 20}}, "train.eval-clients: 20 has no effect, as these are all clients"),
    ("ditto", {"train": {"preset": "paper"}}, "train.preset: 'paper' has no effect, as ditto has no setting of its"),
    # new clients
    ("fedavg", {"new_steps": 5}, "new-steps: 5 has no effect without new clients"),
    ("fedavg", {"new_data": "mnist"}, "new-data: 'mnist' has no effect without new clients"),
    # hyperparameters
    ("fedavg", {"hyper": {"mu": 1.0}}, "hyper.mu: not for fedavg, which takes no options"),
    ("fedcl", {"hyper": {"centroids": "none", "lam": 1.0}}, "hyper.lam: 1.0 has no effect with hyper.centroids none"),
    ("fedcl", {"hyper": {"centroids": "none", "reduction": "mean"}}, "hyper.reduction: 'mean' has no effect"),
    ("fedcl", {"hyper": {"centroids": "none", "warmup": 3}}, "hyper.warmup: 3 has no effect"),
    ("fedcl", {"hyper": {"centroids": "none", "source": "pass"}}, "hyper.source: 'pass' has no effect"),
    ("fedcl", {"hyper": {"centroids": "mean", "scg_loss": "infonce"}}, "hyper.scg-loss: 'infonce' has no effect"),
    ("fedcl", {"hyper": {"centroids": "mean", "scg_steps": 2}}, "hyper.scg-steps: 2 has no effect"),
    ("fedcl", {"hyper": {"centroids": "mean", "scg_lr": 0.1}}, "hyper.scg-lr: 0.1 has no effect"),
    (
        "fedcl",
        {"hyper": {"tau": 0.5}},
        "hyper.tau: 0.5 has no effect with hyper.scg-loss letter; it has one with",
    ),
    (
        "fedcl",
        {"hyper": {"lam": 0.0, "scg_lr": 5.0}},
        "hyper.scg-lr: 5.0 has no effect with hyper.lam 0.0; it",
    ),
    ("fedcl", {"hyper": {"lam": 0.0, "reduction": "mean"}}, "hyper.reduction: 'mean' has no effect with hyper.lam"),
    (
        "fedcl",
        {"hyper": {"lam": 0.0, "warmup": 2}},
        "hyper.warmup: 2 has no effect with hyper.lam 0.0; it has",
    ),
    (
        "moon",
        {"hyper": {"mu": 0.0, "tau": 2.0}},
        "hyper.tau: 2.0 has no effect with hyper.mu 0.0; it has",
    ),
    (
        "fedala",
        {"hyper": {"p": 0, "eta": 2.0}},
        "hyper.eta: 2.0 has no effect with hyper.p 0; it has",
    ),
    ("fedala", {"hyper": {"eta": 0.0, "s": 0.5}}, "hyper.s: 0.5 has no effect with hyper.eta 0.0"),
    (
        "perfedavg",
        {"hyper": {"delta": 0.5}},
        "hyper.delta: 0.5 has no effect with hyper.variant fo; it has one",
    ),
    ("fedcosr", {"hyper": {"local_aggregation": False, "gamma": 0.5}}, "hyper.gamma: 0.5 has no effect"),
    # the last stage
    (
        "local",
        {"finish": {"epochs": 5}},
        "finish.epochs: 5 has no effect, as local trains nothing after the rounds with",
    ),
    (
        "fedavg",
        {"finish": {"lr": 0.7}},
        "finish.lr: 0.7 has no effect, as fedavg trains nothing after the rounds without",
    ),
    (
        "local",
        {"finish": {"kind": "svm", "epochs": 5}},
        "finish.epochs: 5 has no effect, as svm is not trained in epochs",
    ),
    ("local", {"finish": {"kind": "lr", "lr": 0.7}}, "finish.lr: 0.7 has no effect, as lr is not trained"),
    (
        "repper",
        {"finish": {"epochs": 0, "lr": 0.5}},
        "finish.lr: 0.5 has no effect, as finish.epochs is 0; leave it out",
    ),
    (
        "local",
        {"finish": {"epochs": 5}, "new_clients": 2},
        "finish.epochs: 5 has no effect, as new clients train for new",
    ),
    (
        "local",
        {"finish": {"kind": "svm"}, "new_clients": 2, "new_steps": 5},
        "new-steps: 5 has no effect, as svm is not",
    ),
    (
        "fedavg",
        {"finish": {"kind": "svm"}, "model": {"init": "client"}},
        "model.init: 'client' has no effect, as fedavg",
    ),
    (
        "perfedavg",
        {"train": {"lr": 0.5}, "new_clients": 2},
        "train.lr: 0.5 has no effect, as perfedavg does not use it",
    ),
]


@pytest.mark.parametrize(("method", "fields", "message"), IDLE)
def test_a_setting_that_would_do_nothing_is_refused(method: str, fields: dict[str, Any], message: str) -> None:
    assert refused(method, **fields).startswith(message)


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


@pytest.mark.parametrize("kind", ["none", "ideal", "awgn", "rayleigh", "ofdm", "digital"])
@pytest.mark.parametrize("arm", ARMS)
def test_a_resolved_configuration_can_be_given_again(arm: str, kind: str) -> None:
    """Its fields are all set; none of them is taken for a wish."""
    config = resolve(request(arm, channel={"kind": kind}))
    assert resolve(from_dict(to_dict(config))) == config
