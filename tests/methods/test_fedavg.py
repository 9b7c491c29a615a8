"""FedAvg and local training: by hand, the weights of clients, and models as received."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from semcom.engine.train.view import View
from semcom.engine.world import World
from semcom.methods.fedavg import FedAvg
from semcom.methods.registry import METHODS
from tests.methods.arms import X, Y, assert_toys, rounds, toy_world, toys
from tests.methods.by_hand import mean
from tests.samples import has_mean
from tests.worlds import client, gap, world


def test_round_by_hand() -> None:
    w = toy_world("fedavg")
    before, after = rounds(w)
    assert_toys(after.model, mean([model.step(X[k], Y[k], 0.5) for k, model in enumerate(toys(before.model))]))


def test_local_by_hand() -> None:
    before, *_, after = rounds(toy_world("local"), n=2)
    assert_toys(after.model, [model.steps(X[k], Y[k], 0.5, 2) for k, model in enumerate(toys(before.model))])


def test_buffers_are_averaged() -> None:
    local, averaged = (rounds(world(m))[-1].model for m in ("local", "fedavg"))
    name = "encoder.1.running_var"
    want = sum(n / 15 * client(local, k)[name] for k, n in enumerate((7, 5, 3)))
    torch.testing.assert_close(client(averaged, 0)[name], want, rtol=0, atol=1e-14)


def test_absent_clients_do_not_count() -> None:
    """With half of the clients, the average is over those that took part, with their own p_k."""
    w = world("fedavg", sizes=(7, 5, 3, 6), train={"participation": 0.5})
    ids = w.sample()
    assert len(ids) == 2
    after = rounds(w)[-1].model
    alone = world("local", sizes=(7, 5, 3, 6))
    trained = rounds(alone)[-1].model
    sizes = np.array([7, 5, 3, 6])[ids]
    for name, value in client(after, 0).items():
        want = sum(n / sizes.sum() * client(trained, int(k))[name] for k, n in zip(ids, sizes, strict=True))
        torch.testing.assert_close(value, want, rtol=0, atol=1e-14)


def received(method: str = "fedavg", **channel: Any) -> tuple[World, Mapping[str, View]]:
    """The views after two rounds of exchange over the air."""
    w = world(method, air={"parameters": "analog"}, channel=channel)
    arm = METHODS.get(method)(w.config.hyper)
    return w, arm.views(rounds(w, arm, 2)[-1], w)


@pytest.mark.parametrize("method", ["fedavg", "fedper"])
def test_an_encoder_as_the_clients_receive_it(method: str) -> None:
    """Noise of 1 / SNR of each tensor's power, different per client and from training. The rest is exact."""
    w, views = received(method, snr_db=20.0)
    usual, view = views
    assert (usual, view) == ("global" if method == "fedavg" else "personal", "received")
    sent, got = (views[name].population.spread().named() for name in views)
    again = w.air.down(views[usual].population, "encoder.").spread().named()
    errors = []
    for name, tensor in got.items():
        noise = tensor - sent[name]
        if name.startswith("head.") or name.endswith("running_var"):
            assert not noise.any(), name
            continue
        assert not torch.equal(noise[0], noise[1]) and not torch.equal(tensor, again[name]), name
        errors.append((noise.flatten(1).square() / sent[name].flatten(1).square().mean(1, keepdim=True)).flatten())
    assert has_mean(torch.cat(errors), 0.01)


def test_what_arrives_without_errors_is_what_was_sent() -> None:
    _, views = received(snr_db="inf")
    assert gap(views["received"].population, views["global"].population.spread()) < 1e-12
    ideal = world("fedavg")
    assert [*FedAvg(None).views(rounds(ideal)[-1], ideal)] == ["global"]
    alone = world("lg_fedavg", air={"parameters": "analog"})
    arm = METHODS.get("lg_fedavg")(alone.config.hyper)
    assert "received" not in arm.views(rounds(alone, arm)[-1], alone), "its encoders never come down"
