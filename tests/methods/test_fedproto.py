"""FedProto: worked by hand over two rounds, prototypes and their nearest-neighbour view."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from semcom.methods.fedproto import FedProto
from semcom.methods.parts.prototypes import find_nearest_prototype
from tests.methods.arms import X, Y, as_toy, assert_toy, rounds, toy_world, toys
from tests.worlds import world


def class_means(f: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.stack([f[y == c].mean(0) for c in (0, 1)])


@pytest.mark.parametrize("aggregation", ["mean", "counts"])
def test_two_rounds_by_hand(aggregation: str) -> None:
    """Round 1 has no prototypes. In round 2 each feature is pulled to its class's by 2 lambda (f - p) / (n d)."""
    lam = 3.0
    start, first, second = rounds(toy_world("fedproto", hyper={"lam": lam, "aggregation": aggregation}), n=2)
    models = toys(start.model)
    own = [class_means(m.features(X[k]), Y[k]) for k, m in enumerate(models)]
    count = np.array([[np.sum(y == c) for c in (0, 1)] for y in Y], dtype=float)
    weight = count if aggregation == "counts" else np.ones_like(count)
    shared = sum(weight[k][:, None] * own[k] for k in (0, 1)) / weight.sum(0)[:, None]
    np.testing.assert_allclose(first.prototypes.values, shared, atol=1e-12)
    for k in (0, 1):
        step = models[k].step(X[k], Y[k], 0.5)
        assert_toy(as_toy(first.model, k), step)
        f = step.features(X[k])
        pull = 2 * lam * (f - shared[Y[k]]) / (len(f) * f.shape[1])
        assert_toy(as_toy(second.model, k), step.step(X[k], Y[k], 0.5, pull))


def test_prototypes_come_from_the_last_epoch_only() -> None:
    """With two full-batch epochs, the features that count are those after one step."""
    start, after = rounds(toy_world("fedproto", train={"local_epochs": 2}))
    own = [class_means(as_toy(start.model, k).step(X[k], Y[k], 0.5).features(X[k]), Y[k]) for k in (0, 1)]
    np.testing.assert_allclose(after.prototypes.values, (own[0] + own[1]) / 2, atol=1e-12)


def test_a_pass_of_its_own_sees_the_trained_model() -> None:
    _, after = rounds(toy_world("fedproto", hyper={"source": "pass"}))
    own = [class_means(as_toy(after.model, k).features(X[k]), Y[k]) for k in (0, 1)]
    np.testing.assert_allclose(after.prototypes.values, (own[0] + own[1]) / 2, atol=1e-12)


def test_classes_without_owner_have_no_prototype() -> None:
    """A third class without owners stays unknown, adds no loss and is never the nearest."""
    w = toy_world("fedproto", classes=3)
    method = FedProto(w.config.hyper)
    state = rounds(w, method)[-1]
    assert state.prototypes.known.tolist() == [True, True, False]
    view = method.views(state, w)["prototype"]
    scores = find_nearest_prototype(torch.zeros(2, 1, 2, dtype=torch.float64), torch.zeros(2, 1, 3), view.per_client)
    assert (scores[..., 2] == -torch.inf).all()


def test_nearest_prototype_by_hand() -> None:
    f = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [0.9, 0.8]]])
    rows = {
        "prototypes": torch.tensor([[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]]),
        "among": torch.tensor([[True, True, False]]),
    }
    assert find_nearest_prototype(f, f, rows).argmax(-1).tolist() == [[0, 1, 0]]
    torch.testing.assert_close(
        -find_nearest_prototype(f, f, rows)[0, 2, :2], torch.tensor([(0.01 + 0.64) ** 0.5, (0.81 + 0.04) ** 0.5])
    )


def test_the_extra_pass_is_heard_as_training_heard_it() -> None:
    """Without a link in training the prototypes come from clean features. The meter of tests ignores the pass."""
    w = world("fedproto", hyper={"source": "pass"}, train={"through_link": False})
    rounds(w)
    assert w.session.tally.meters["test"].signal is None and w.session.tally.meters["train_up"].snr_db() == float("inf")
    clean = world("fedproto", hyper={"source": "pass"}, channel={"kind": "ideal"})
    assert torch.equal(rounds(w)[-1].prototypes.values, rounds(clean)[-1].prototypes.values)
