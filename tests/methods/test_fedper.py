"""FedPer: worked by hand over two rounds, and who was absent."""

from __future__ import annotations

import torch

from tests.methods.arms import X, Y, assert_toys, play, rounds, toy_world, toys
from tests.methods.by_hand import mean
from tests.worlds import client, world


def test_two_rounds_by_hand() -> None:
    """Bodies are averaged, heads are kept: in round 2 each client has a model of its own."""
    before, *after = rounds(toy_world("fedper"), n=2)
    models = toys(before.model)
    for state in after:
        trained = [m.step(X[k], Y[k], 0.5) for k, m in enumerate(models)]
        body = mean(trained)
        models = [body.under(m) for m in trained]
        assert_toys(state.model, models)


def test_the_first_round_is_half_fedavg_half_local() -> None:
    """The body, with its running statistics, is FedAvg's. The heads are those of local training."""
    models = {m: play(m, n=1).model for m in ("fedper", "fedavg", "local")}
    for k in range(3):
        mine = client(models["fedper"], k)
        for name, t in mine.items():
            like = models["fedavg" if name.startswith("encoder.") else "local"]
            assert torch.equal(t, client(like, k)[name])


def test_an_absent_client_gets_the_newest_body_and_keeps_its_head() -> None:
    w = world("fedper", sizes=(7, 5, 3, 6), train={"participation": 0.5})
    before, after = rounds(w)
    (absent, *_), (present, *_) = sorted(set(range(4)) - set(w.sample().tolist())), w.sample()
    own, old, other = client(after.model, absent), client(before.model, absent), client(after.model, int(present))
    assert all(torch.equal(t, other[n] if n.startswith("encoder.") else old[n]) for n, t in own.items())
