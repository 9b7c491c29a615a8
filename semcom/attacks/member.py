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
from torch import Tensor

from semcom.config import ConfigError
from semcom.data.federation import Federation
from semcom.engine.host.keys import keyed
from semcom.runs.result.result import Result


class Area(NamedTuple):
    """An area under a ROC curve, and what its variance follows from.

    Attributes:
        auc: the area.
        shares: of each member the part of the others that it is above, and of each other one that of the members.
    """

    auc: float
    shares: tuple[np.ndarray, np.ndarray]


def compute_area(members: np.ndarray, others: np.ndarray) -> Area:
    """Compute the area under the ROC curve of scores, larger for members, with ties counted half.

    Example:
        >>> import numpy as np
        >>> from semcom.attacks.member import compute_area
        >>> compute_area(np.array([3.0, 2.0]), np.array([1.0, 2.0])).auc
        0.875
    """
    from scipy.stats import rankdata  # takes half a second to import

    m, ranks = len(members), rankdata(np.concatenate([members, others]))
    shares = (ranks[:m] - rankdata(members)) / len(others), (ranks[m:] - rankdata(others)) / m
    return Area(float(shares[0].mean()), shares)


def compute_variance_of_mean(areas: Sequence[Area], images: Sequence[tuple[np.ndarray, np.ndarray]]) -> float:
    """Compute the variance of the mean of areas, with the terms of an image that several share taken together.

    That of one area is DeLong, DeLong and Clarke-Pearson's (Biometrics 44, 1988).

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
    federation, areas = result.federation, list[Area]()
    images = {victim: _list_images(federation, victim) for victim in victims.tolist()}
    if small := [victim for victim, sides in images.items() if min(map(len, sides)) < 2]:
        raise ConfigError(
            f"clients: client {small[0]} has fewer than two training or test images of its classes; none follows"
        )
    for victim, sides in images.items():
        index = torch.cat(sides)
        # In one pass and mixed, so that both meet the same fades.
        order = torch.randperm(len(index), generator=keyed(victim, "member"))
        scores = torch.empty(len(index), len(federation.classes), dtype=torch.float64)
        scores[order] = result.decode(victim, federation.images[index[order]], view).double()
        losses = torch.nn.functional.cross_entropy(scores, federation.labels.cpu()[index], reduction="none")
        found = torch.split(-losses, [len(side) for side in sides])
        areas.append(compute_area(found[0].numpy(), found[1].numpy()))
    numbers = [(members.numpy(), others.numpy()) for members, others in images.values()]
    mean, half = float(np.mean([each.auc for each in areas])), 1.96 * compute_variance_of_mean(areas, numbers) ** 0.5
    return {"auc": mean, "auc_low": max(0.0, mean - half), "auc_high": min(1.0, mean + half)}


def _list_images(federation: Federation, victim: int) -> tuple[Tensor, Tensor]:
    """List the numbers of a client's training images, and of its test images of classes that it has."""
    tests, owned = federation.test[victim].cpu(), torch.from_numpy(federation.owned[victim])
    return federation.train[victim].cpu(), tests[owned[federation.labels.cpu()[tests]]]
