"""Membership: whether an image was trained on, by the loss of a client's model on it.

S. Yeom, I. Giacomelli, M. Fredrikson, S. Jha, "Privacy Risk in Machine Learning: Analyzing the Connection to
Overfitting", IEEE CSF 2018: below a threshold of the loss an image is taken for a member. The area under the ROC curve
is over all thresholds: 0.5 for a guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from semcom.config import ConfigError
from semcom.engine.host.keys import keyed
from semcom.runs.result.result import Result


class Area(NamedTuple):
    """An area under a ROC curve, and the variance of its estimate.

    Attributes:
        auc, variance: of the area.
        shares: of each member the part of the others that it is above, and of each other one that of the members.
    """

    auc: float
    variance: float
    shares: tuple[np.ndarray, np.ndarray]


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
    shares = (ranks[:m] - rankdata(members)) / len(others), (ranks[m:] - rankdata(others)) / m
    return Area(float(shares[0].mean()), float(sum(np.var(of, ddof=1) / len(of) for of in shares)), shares)


def compute_variance_of_mean(areas: Sequence[Area], images: Sequence[tuple[np.ndarray, np.ndarray]]) -> float:
    """Compute the variance of the mean of areas, with the terms of an image that several share taken together.

    Args:
        areas: of each client.
        images: of each client the numbers of its members, and of the others, in the order of `Area.shares`.
    """
    total = 0.0
    for side in (0, 1):
        parts = [of.shares[side] for of in areas]
        terms = np.concatenate([(of - of.mean()) / np.sqrt(len(of) * (len(of) - 1)) for of in parts])
        _, which = np.unique(np.concatenate([of[side] for of in images]), return_inverse=True)
        total += float(np.square(np.bincount(which, terms)).sum())
    return total / len(areas) ** 2


def infer_membership(result: Result, victims: np.ndarray, view: str | None = None) -> dict[str, float]:
    """Tell training images of clients from test images of the same classes by the losses of their models.

    Returns:
        `auc`, the mean over the clients, and `auc_low` and `auc_high`, the ends of its 95 % interval over images.

    Raises:
        ConfigError: the task asks for no classes, or a client has too few images.
    """
    if not result.world.session.draws.task.classifies:
        raise ConfigError(f"kind: member is about the losses of classes, and the task is {result.config.task}")
    federation, areas, images = result.federation, list[Area](), list[tuple[np.ndarray, np.ndarray]]()
    for victim in victims.tolist():
        owned, tests = torch.from_numpy(federation.owned[victim]), federation.test[victim].cpu()
        sides = federation.train[victim].cpu(), tests[owned[federation.labels.cpu()[tests]]]
        if min(map(len, sides)) < 2:
            raise ConfigError(
                f"clients: client {victim} has fewer than two training or test images of its classes; none follows"
            )
        index = torch.cat(sides)
        # In one pass and mixed, so that both meet the same fades.
        order = torch.randperm(len(index), generator=keyed(victim, "member"))
        scores = torch.empty(len(index), len(federation.classes), dtype=torch.float64)
        scores[order] = result.decode(victim, federation.images.cpu()[index[order]], view).double()
        losses = torch.nn.functional.cross_entropy(scores, federation.labels.cpu()[index], reduction="none")
        found = torch.split(-losses, [len(side) for side in sides])
        areas.append(compute_area(found[0].numpy(), found[1].numpy()))
        images.append((sides[0].numpy(), sides[1].numpy()))
    mean, half = float(np.mean([each.auc for each in areas])), 1.96 * compute_variance_of_mean(areas, images) ** 0.5
    return {"auc": mean, "auc_low": max(0.0, mean - half), "auc_high": min(1.0, mean + half)}
