"""Classifiers of scikit-learn per client: the same answers, as linear scores through the channel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from semcom.engine.train.view import View
from semcom.engine.world import World
from semcom.methods.parts.classifiers import fit_linear_classifiers, linear_classifiers, linear_scores
from tests.methods.test_fedgh import features
from tests.worlds import confusion, random_federation, world

KINDS: Any = pytest.mark.parametrize("kind", ["svm", "lr"])


def reference(kind: str) -> Any:
    return LinearSVC(dual=False) if kind == "svm" else LogisticRegression(max_iter=1000)


def blobs(classes: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = np.repeat(classes, 12)
    return rng.normal(size=(len(labels), 4)) + rng.normal(size=(8, 4))[labels], labels


@KINDS
@pytest.mark.parametrize("classes", [[0, 1], [2, 5], [1, 4, 7], [0, 1, 2, 3, 4]])
def test_the_largest_score_is_scikit_learns_answer(kind: Any, classes: list[int]) -> None:
    features, labels = blobs(classes)
    weight, bias = fit_linear_classifiers(kind, features, labels)
    assert weight.shape == (len(classes), 4) and bias.shape == (len(classes),)
    scores, theirs = features @ weight.T + bias, reference(kind).fit(features, labels)
    assert np.array_equal(np.array(classes)[scores.argmax(1)], theirs.predict(features))
    if kind == "lr":
        np.testing.assert_allclose(softmax(scores, 1), theirs.predict_proba(features), rtol=0, atol=1e-12)


@KINDS
def test_one_class_has_nothing_to_decide(kind: Any) -> None:
    weight, bias = fit_linear_classifiers(kind, *blobs([3]))
    assert weight.shape == (1, 4) and not weight.any() and bias.shape == (1,) and not bias.any()


@KINDS
def test_a_support_vector_machine_by_hand(kind: Any) -> None:
    """Two samples at +-1 on a line: by symmetry no bias. The squared hinge gives 2 C (1 - w) 2 = w, and lr a root."""
    weight, bias = fit_linear_classifiers(kind, np.array([[-1.0], [1.0]]), np.array([0, 1]))
    w = weight[1, 0] * (1 if kind == "svm" else 2)  # the difference of two logits
    assert bias == pytest.approx([0, 0], abs=1e-3) and weight[0, 0] == -weight[1, 0]
    slope = w - 4 * (1 - w) if kind == "svm" else w - 2 / (1 + np.exp(w))  # of |w|^2/2 + C sum of losses
    assert slope == pytest.approx(0, abs=1e-3)


def clean(**overrides: Any) -> World:
    """Clients with classes 0, 1, 2, with 1, 2 and with only 2, over an ideal link."""
    data = random_federation((9, 7, 4), classes=4)
    labels = data.labels.clone()
    for k, own in enumerate(([0, 1, 2], [1, 2], [2])):
        labels[data.train[k]] = torch.tensor(own).repeat(9)[: len(data.train[k])]
    owned = np.array([[1, 1, 1, 0], [0, 1, 1, 0], [0, 0, 1, 0]], dtype=bool)
    fields = {"images": data.images, "labels": labels, "train": data.train, "test": data.test, "owned": owned}
    made = type(data)(**fields, validation=data.validation, classes=data.classes)
    return world("local", data=made, classes=4, **{"channel": {"kind": "ideal"}, **overrides})


@KINDS
@pytest.mark.parametrize("chunk", [1, 2, 3])
def test_each_client_has_the_classifier_of_its_own_features(kind: Any, chunk: int) -> None:
    w = clean(chunk=chunk)
    rows = linear_classifiers(w, w.population(), kind)
    for k, classes in enumerate(([0, 1, 2], [1, 2])):
        model = reference(kind).fit(*features(w.population(), w, k))
        weight, bias = model.coef_, model.intercept_
        if len(classes) == 2:
            weight, bias = (np.concatenate([-t, t]) / (1 if kind == "svm" else 2) for t in (weight, bias))
        np.testing.assert_allclose(rows["weight"][k, classes], weight, rtol=0, atol=1e-6)
        np.testing.assert_allclose(rows["bias"][k, classes], bias, rtol=0, atol=1e-6)
    own = torch.as_tensor(w.owned(np.arange(3)))
    assert (rows["bias"] == -torch.inf).equal(~own) and not rows["weight"][~own].any()


@KINDS
def test_they_decide_through_the_channel_and_among_owned_classes(kind: Any) -> None:
    w = clean(channel={"kind": "awgn", "snr_db": 0})
    pop = w.population()
    view = View(pop, linear_scores, linear_classifiers(w, pop, kind))
    counts = confusion(w, view)
    answered = counts.sum(1)
    assert not answered[~w.owned(np.arange(3))].any() and answered[2, 2] == len(w.session.draws.federation.test[2])
    assert (answered[:2] > 0).sum() > 2
    assert not torch.equal(confusion(w, view, 60.0), counts)


def test_features_are_heard_as_in_training() -> None:
    """They are noisy where training uses the link. The meter of tests does not count them."""
    noisy = {"channel": {"kind": "awgn", "snr_db": 0}}
    heard, silent, ideal = clean(**noisy), clean(**noisy, train={"through_link": False}), clean()
    a, b, c = (linear_classifiers(w, w.population(), "lr")["weight"] for w in (heard, silent, ideal))
    assert not torch.equal(a, b) and torch.equal(b, c)
    assert (
        heard.session.tally.meters["train_up"].signal is not None and heard.session.tally.meters["test"].signal is None
    )


def test_scores_by_hand() -> None:
    rows = {
        "weight": torch.tensor([[[1.0, 0.0], [0.0, 2.0]], [[0.0, 0.0], [5.0, 5.0]]]),
        "bias": torch.tensor([[0.5, 0.0], [0.0, -torch.inf]]),
    }
    x = torch.tensor([[[3.0, 4.0]], [[1.0, 1.0]]])
    assert linear_scores(x, x, rows).tolist() == [[[3.5, 8.0]], [[0.0, -torch.inf]]]
