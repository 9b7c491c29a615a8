"""The area under the ROC curve, against scikit-learn's, and in runs that ask for it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

import semcom
from semcom.config import run_hash
from semcom.runs.rounds.runner import run
from semcom.tasks.areas import RocArea, RocAreaOfAll
from tests import worlds


def compute_roc_areas(scores: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """Compute both metrics of one client."""
    given = torch.from_numpy(scores), torch.from_numpy(labels)
    return RocArea().compute(*given), RocAreaOfAll().compute(*given)


def test_areas_by_hand() -> None:
    """Of two samples of class 0 and two of class 1 three of four pairs are in order, for either class."""
    scores = np.array([[4.0, 0.0], [2.0, 1.0], [3.0, 0.5], [1.0, 2.0]])
    macro, micro = compute_roc_areas(scores, np.array([0, 0, 1, 1]))
    assert macro == pytest.approx(3 / 4)
    assert micro == pytest.approx((4 + 3 + 1 + 3) / 16), "4, 2, 0.5 and 2 against 0, 1, 3 and 1"
    assert compute_roc_areas(np.zeros((4, 2)), np.array([0, 0, 1, 1])) == (0.5, 0.5), "ties count half"
    assert np.isnan(compute_roc_areas(scores, np.zeros(4, dtype=int))[0]), "one class has no others"


def test_areas_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    labels, scores = rng.integers(0, 4, 60), rng.normal(size=(60, 6)).round(1)  # two classes nobody has, and ties
    own = np.eye(6)[labels]
    macro, micro = compute_roc_areas(scores, labels)
    assert macro == pytest.approx(np.mean([roc_auc_score(own[:, c], scores[:, c]) for c in range(4)]))
    assert micro == pytest.approx(roc_auc_score(own, scores, average="micro"))


def test_a_run_tells_the_areas_of_its_test_samples() -> None:
    plain = worlds.request("fedper", train={"rounds": 2}, channel={"kind": "ideal"})
    asked = worlds.request("fedper", train={"rounds": 2, "metrics": ("auc", "auc_micro")}, channel={"kind": "ideal"})
    assert run_hash(semcom.resolve(plain)) != run_hash(semcom.resolve(asked))
    before, result = run(plain), run(asked)
    view = result.summary["views"]["personal"]
    assert view["clients"] == before.summary["views"]["personal"]["clients"], "nothing else changes"
    assert "auc" not in before.summary["views"]["personal"]
    data, last = result.federation, result.metrics[-1]["views"]["personal"]
    found = []
    for client in range(4):
        own = data.test[client]
        scores = result.decode(client, data.images[own])
        found.append(compute_roc_areas(scores.numpy(), data.labels[own].numpy()))
    assert 0.5 < view["auc"] <= 1
    assert last["auc"] == pytest.approx(np.mean([macro for macro, _ in found]))
    sizes = data.test.sizes
    assert last["auc_micro"] == pytest.approx(np.average([micro for _, micro in found], weights=sizes))
    assert view["auc"] == pytest.approx(np.mean([line["views"]["personal"]["auc"] for line in result.metrics]))
