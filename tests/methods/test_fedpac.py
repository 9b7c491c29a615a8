"""FedPAC: by hand over two rounds, its prototypes, and the traffic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from semcom.methods.fedpac import FedPAC
from semcom.methods.parts.prototypes import compute_prototype_moments
from tests.methods.arms import X, Y, as_toy, assert_toys, play, rounds, toy_world, toys
from tests.methods.by_hand import Toy, mean
from tests.worlds import client, gap, random_federation, world

OWN: dict[str, Any] = {"lam": 0.0, "collaboration": False}


def class_means(model: Toy, k: int) -> np.ndarray:
    f = model.features(X[k])
    return np.stack([f[Y[k] == c].mean(0) for c in (0, 1)])


def moments_by_hand(model: Toy, k: int) -> tuple[np.ndarray, float]:
    """h and V of a client, from its samples."""
    f, n = model.features(X[k]), len(Y[k])
    share = np.array([np.mean(Y[k] == c) for c in (0, 1)])
    h = share[:, None] * class_means(model, k)
    return h, (np.square(f).sum() / n - np.square(h).sum()) / n


def combined_by_hand(trained: list[Toy], received: list[Toy]) -> list[Toy]:
    """Two clients' heads: a on one's own, where a^2 V_1 + (1 - a)^2 (V_2 + ||h_1 - h_2||^2) is least."""
    (h1, v1), (h2, v2) = (moments_by_hand(received[k], k) for k in (0, 1))
    apart = np.square(h1 - h2).sum()
    own = [(v + apart) / (v1 + v2 + apart) for v in (v2, v1)]
    return [mean(trained, [own[0], 1 - own[0]]), mean(trained, [1 - own[1], own[1]])]


@pytest.mark.parametrize("head_lr", [None, 0.2])
def test_two_rounds_by_hand(head_lr: float | None) -> None:
    """Two epochs on the head, three on the body. In round 2 each feature is pulled to its class's prototype."""
    lam, count = 3.0, np.array([[np.sum(y == c) for c in (0, 1)] for y in Y], dtype=float)
    hyper = {"lam": lam, "head_epochs": 2, "head_lr": head_lr}
    w = toy_world("fedpac", hyper=hyper, train={"local_epochs": 3})
    start, *after = rounds(w, n=2)
    received, shared = toys(start.model), None
    for state in after:
        trained = []
        for k, model in enumerate(received):
            for _ in range(2):
                model = model.under(model.step(X[k], Y[k], head_lr or 0.5))
            for _ in range(3):
                f = model.features(X[k])
                pull = 0 if shared is None else 2 * lam * (f - shared[Y[k]]) / f.size
                model = model.step(X[k], Y[k], 0.5, pull).under(model)
            trained.append(model)
        body, heads = mean(trained), combined_by_hand(trained, received)
        received = [body.under(head) for head in heads]
        shared = sum(count[k][:, None] * class_means(trained[k], k) for k in (0, 1)) / count.sum(0)[:, None]
        np.testing.assert_allclose(state.prototypes.values, shared, atol=1e-12)
        assert_toys(state.model, received)
        assert_toys(FedPAC(w.config.hyper).views(state, w)["trained"].population, trained)


def test_own_weights_are_fedrep(monkeypatch: pytest.MonkeyPatch) -> None:
    """a = e_i through the whole of the combination, in place of leaving it out."""
    monkeypatch.setattr("semcom.methods.fedpac.solve_head_weights", lambda h, v: torch.eye(len(v), dtype=torch.float64))
    ours = play("fedpac", n=3, hyper={"lam": 0.0}).model
    assert gap(ours, play("fedrep", n=3, hyper={"head_epochs": 1}).model) == 0


def test_alignment_starts_in_round_two() -> None:
    one, two = (play("fedpac", n=1, hyper={"lam": lam}).model for lam in (0.0, 9.0))
    assert gap(one, two) == 0
    one, two = (play("fedpac", n=2, hyper={"lam": lam}).model for lam in (0.0, 9.0))
    assert gap(one, two) > 1e-6


def test_moments_of_the_received_body_before_training() -> None:
    """In round 1 all have the common initial body: V and h are those of its features."""
    w = toy_world("fedpac")
    start = rounds(w, n=0)[0]
    means, counts, squares = compute_prototype_moments(w, start.model, "statistics")
    for k in (0, 1):
        model = as_toy(start.model, k)
        f = model.features(X[k])
        np.testing.assert_allclose(means[k], class_means(model, k), atol=1e-12)
        np.testing.assert_allclose(squares[k], [np.square(f[Y[k] == c]).sum(1).mean() for c in (0, 1)], atol=1e-12)


def test_a_class_without_global_prototype_has_the_clients_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Class 1 has never been seen: its target is the mean of the received body's features, in every batch."""
    w = world("fedpac", hyper={"lam": 2.0})
    method = FedPAC(w.config.hyper)
    state = rounds(w, method)[-1]
    known = state.prototypes.known & torch.tensor([True, False, True])
    gone = replace(state, prototypes=replace(state.prototypes, known=known))
    seen: list[Any] = []
    fit = w.fit

    def watched(*args: Any, **kwargs: Any) -> Any:
        seen.append(kwargs.get("given"))
        return fit(*args, **kwargs)

    monkeypatch.setattr(w, "fit", watched)
    w.session.tally.begin(2)
    method.round(gone, w)
    own = compute_prototype_moments(w, state.model.select(np.arange(3)), "statistics")[0]
    _, given = seen
    assert given.common["known"].tolist() == [True, True, True]
    assert torch.equal(given.per_client["targets"][:, 1], own[:, 1])
    assert torch.equal(given.per_client["targets"][:, [0, 2]], state.prototypes.values[[0, 2]].expand(3, -1, -1))


def test_absent_clients_keep_their_heads_and_are_in_no_programme() -> None:
    """With two of three clients in a round, the third client's images have no effect, and its head does not move."""
    data, train = random_federation((7, 5, 3)), {"participation": 2 / 3}
    w = world("fedpac", data=data, train=train)
    before, after = rounds(w)
    (absent,) = set(range(3)) - set(w.sample().tolist())
    for name in ("head.0.weight", "head.0.bias"):
        heads = client(before.model, absent)[name], client(after.model, absent)[name]
        assert torch.equal(*heads)
    images = data.images.clone()
    images[data.train[absent]] = 255 - images[data.train[absent]]
    other = rounds(world("fedpac", data=replace(data, images=images), train=train))[-1]
    assert gap(after.model, other.model) == 0 and torch.equal(after.prototypes.values, other.prototypes.values)


def test_traffic_without_combination() -> None:
    """Up: the body, and a prototype and a count per owned class. Down: the body, and d per known class."""
    w = world("fedpac", hyper={"collaboration": False})
    body = rounds(w, n=2)[-1].model.numbers("encoder.").sum()
    d, owned = 4, w.session.draws.federation.owned
    assert w.air.totals["up"].floats == 2 * (body + owned.sum() * (d + 1))
    assert w.air.totals["down"].floats == 2 * body + 3 * owned.any(0).sum() * d


def test_noise_on_what_is_not_sent_is_not_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uncoded exchange makes everything noisy, but a class without samples has no weight and no h, and V is not
    negative."""
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []

    def watched(h: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        seen.append((h, variance))
        return torch.eye(len(h), dtype=torch.float64)

    monkeypatch.setattr("semcom.methods.fedpac.solve_head_weights", watched)
    w = world("fedpac", classes=5, sizes=(4, 3, 2), air={"parameters": "analog"}, channel={"snr_db": "-10"})
    state = rounds(w, n=3)[-1]
    unowned = ~torch.as_tensor(w.session.draws.federation.owned)
    assert unowned.any() and len(seen) == 3
    for h, variance in seen:
        assert (h[unowned] == 0).all() and (h[~unowned] != 0).all() and (variance >= 0).all()
    assert state.prototypes.values.isfinite().all()
    assert (state.prototypes.values[~w.session.draws.federation.owned.any(0)] == 0).all()
