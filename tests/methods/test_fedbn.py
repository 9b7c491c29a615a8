"""FedBN: the averaged part is FedAvg's mean and the rest is personal. Without BatchNorm it is FedAvg."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from semcom.methods.fedbn import FedBN
from tests.methods.arms import play, rounds, toy_world
from tests.worlds import gap, random_federation, tensors, world

BATCHNORM = {f"encoder.1.{name}" for name in ("weight", "bias", "running_mean", "running_var")}


def test_drawn_batchnorm_is_each_clients_own_from_the_start() -> None:
    """DCGAN draws its factors."""
    data = random_federation((2, 2, 2))
    data = dataclasses.replace(data, images=data.images.repeat(1, 1, 4, 4))
    w = world("fedbn", data=data, encoder="dcgan-narrow", model={"init": "client"})
    begun = FedBN(w.config.hyper).setup(w).model.named()
    own = {name for name, t in begun.items() if len(t) == 3 and (t[0] != t[1]).any()}
    assert own and own == {f"{name.rpartition('.')[0]}.weight" for name in begun if name.endswith("running_mean")}


@pytest.mark.parametrize("kind", ["ideal", "rayleigh"])
def test_round_one_is_fedavg_beside_own_batchnorm(kind: str) -> None:
    bn, average, alone = (
        play(m, 1, channel={"kind": kind}, train={"local_epochs": 2}).model.named()
        for m in ("fedbn", "fedavg", "local")
    )
    assert BATCHNORM < bn.keys() == average.keys()
    for name, t in bn.items():
        assert torch.equal(t, (alone if name in BATCHNORM else average)[name])


def test_round_two_begins_with_the_mean_and_own_batchnorm() -> None:
    """By the clients' training from there, in words of the engine."""
    w = world("fedbn")
    method = FedBN(w.config.hyper)
    first = rounds(w, method)[-1]
    w.session.tally.begin(2)
    trained = w.fit(first.model, method.objective).models.named()
    p = torch.tensor([7, 5, 3], dtype=torch.float64) / 15
    for name, t in method.round(first, w).model.named().items():
        wanted = trained[name] if name in BATCHNORM else torch.tensordot(p, trained[name], 1).expand_as(t)
        torch.testing.assert_close(t, wanted, rtol=0, atol=1e-14)


def test_without_batchnorm_it_is_fedavg() -> None:
    own, average = (rounds(toy_world(m, train={"local_epochs": 2}), n=3)[-1].model for m in ("fedbn", "fedavg"))
    assert gap(own, average) == 0 and tensors(own).keys() == tensors(average).keys()
