"""Classifiers from scikit-learn, one per client, on the features that the base station receives.

Both are linear: a client's classifier is a vector of weights and a bias per class, so that it answers through the
channel as any head does. They are fitted on the host, one client after another.

Legend: n clients, C classes, d features.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from semcom.engine.store.population import Population
from semcom.engine.train.forward import Batch
from semcom.engine.world import World
from semcom.methods.parts.kinds import Kind
from semcom.methods.parts.passes import pass_training_images


def linear_classifiers(world: World, pop: Population, kind: Kind) -> dict[str, Tensor]:
    """Fit each client's classifier to its own training features, which pass the training link once.

    Returns:
        for `linear_scores`: "weight" `[n, C, d]` and "bias" `[n, C]`, which is minus infinity for classes that a client
        has no sample of.
    """
    n, c, d = len(pop.ids), world.classes, world.features
    weight, bias = np.zeros((n, c, d)), np.zeros((n, c))
    for at, (features, labels) in _gather_features(world, pop).items():
        classes = np.unique(labels)
        weight[at, classes], bias[at, classes] = fit_linear_classifiers(kind, features, labels)
    # A client's numbers are zero on every rank but its own.
    found = [world.session.team.sum(world.tensor(t)) for t in (weight, bias)]
    return {"weight": found[0], "bias": found[1].masked_fill(~world.tensor(world.owned(pop.ids)), -torch.inf)}


def linear_scores(features: Tensor, logits: Tensor, per_client: Mapping[str, Tensor]) -> Tensor:
    """Compute the scores of the classifiers in `per_client` on received features: `[k, b, d] -> [k, b, C]`."""
    return torch.baddbmm(per_client["bias"].unsqueeze(1), features, per_client["weight"].mT)


def fit_linear_classifiers(kind: Kind, features: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fit weights `[c, d]` and biases `[c]` of the c classes among `labels` `[N]`, ascending, to `features` `[N, d]`.

    `svm` is a linear support vector machine per class against the others, squared hinge, `lr` multinomial logistic
    regression; both with scikit-learn's penalty, C = 1. For a single class all numbers are zero.
    """
    from sklearn.linear_model import LogisticRegression  # takes a second to import
    from sklearn.svm import LinearSVC

    if len(np.unique(labels)) == 1:
        return np.zeros((1, features.shape[1])), np.zeros(1)
    # Only the primal solver makes no random draws.
    model = LinearSVC(dual=False) if kind == "svm" else LogisticRegression(max_iter=1000)
    model.fit(features, labels)
    weight, bias = model.coef_, model.intercept_
    if len(weight) == 1:  # two classes share one vector, which is positive for the second
        part = 1.0 if kind == "svm" else 0.5  # that of lr is the difference of their scores
        weight, bias = (part * np.concatenate([-t, t]) for t in (weight, bias))
    return weight, bias


def _gather_features(world: World, pop: Population) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Gather training features `[N, d]` in float64 and labels `[N]` of this rank's clients, by position in `pop`."""
    heard: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}

    def note(batch: Batch, features: Tensor, logits: Tensor, where: Tensor) -> None:
        real, x, y = batch.weight.bool().cpu().numpy(), features.double().cpu().numpy(), batch.y.cpu().numpy()
        for i, at in enumerate(where.tolist()):
            heard.setdefault(at, []).append((x[i][real[i]], y[i][real[i]]))

    pass_training_images(world, pop, note, "classifiers")
    return {at: (np.concatenate([x for x, _ in of]), np.concatenate([y for _, y in of])) for at, of in heard.items()}
