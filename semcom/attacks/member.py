"""Membership: whether an image was trained on, by the loss of a client's model on it.

S. Yeom, I. Giacomelli, M. Fredrikson, S. Jha, "Privacy Risk in Machine Learning: Analyzing the Connection to
Overfitting", IEEE CSF 2018: below a threshold of the loss an image is taken for a member. The area under the ROC curve
is over all thresholds: 0.5 for a guess.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from semcom.config import ConfigError
from semcom.runs.result.result import Result


class Area(NamedTuple):
    """An area under a ROC curve, and the variance of its estimate."""

    auc: float
    variance: float


def compute_area(members: np.ndarray, others: np.ndarray) -> Area:
    """Compute the area under the ROC curve of scores, larger for members, with ties counted half.

    Its variance is that of DeLong, DeLong and Clarke-Pearson (Biometrics 44, 1988).

    Example:
        >>> import numpy as np
        >>> from semcom.attacks.member import compute_area
        >>> compute_area(np.array([3.0, 2.0]), np.array([1.0, 2.0])).auc
        0.875
    """
    from scipy.stats import rankdata  # takes half a second to import

    m, ranks = len(members), rankdata(np.concatenate([members, others]))
    # Of the others that each member is above, and of the members that each of the others is above.
    shares = (ranks[:m] - rankdata(members)) / len(others), (ranks[m:] - rankdata(others)) / m
    return Area(float(shares[0].mean()), float(sum(np.var(of, ddof=1) / len(of) for of in shares)))


def infer_membership(result: Result, victims: np.ndarray, view: str | None = None) -> dict[str, float]:
    """Tell training images of clients from their test images by the losses of their models.

    Returns:
        `auc`, the mean over the clients, and `auc_low` and `auc_high`, the ends of its 95 % interval over images.

    Raises:
        ConfigError: the task asks for no classes.
    """
    if not result.world.session.draws.task.classifies:
        raise ConfigError(f"kind: member is about the losses of classes, and the task is {result.config.task}")
    federation, areas = result.federation, []
    small = [k for k in victims.tolist() if min(federation.train.sizes[k], federation.test.sizes[k]) < 2]
    if small:
        raise ConfigError(
            f"clients: client {small[0]} has fewer than two training or test images, of which none follows"
        )
    for victim in victims.tolist():
        losses = []
        for table in (federation.train, federation.test):
            index = table[victim]
            scores = result.decode(victim, federation.images[index], view).double()
            losses.append(torch.nn.functional.cross_entropy(scores, federation.labels[index].cpu(), reduction="none"))
        areas.append(compute_area(-losses[0].numpy(), -losses[1].numpy()))
    mean = float(np.mean([each.auc for each in areas]))
    half = 1.96 * float(np.sum([each.variance for each in areas])) ** 0.5 / len(areas)
    return {"auc": mean, "auc_low": max(0.0, mean - half), "auc_high": min(1.0, mean + half)}
