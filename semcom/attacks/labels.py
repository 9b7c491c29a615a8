"""Labels: what goes up beside or in a model says of the shares of a client's classes, without a look at its images.

Features of split training go up with their labels, and so do counts; prototypes say which classes a client has. The
update of an averaged classifier says the rest: the gradient of the cross-entropy by its bias is the mean of p - y, p
the model's probabilities and y the label (L. Zhu, Z. Liu, S. Han, "Deep Leakage from Gradients", NeurIPS 2019, and what
followed). With P the mean p of each class, `[C, C]`, which the listener estimates on images of his own, it is (P - 1)
pi.
"""

from __future__ import annotations

import numpy as np
import torch

from semcom.attacks.known import choose_known_images
from semcom.config import ConfigError
from semcom.engine.train.view import View, infer_in_view
from semcom.methods.base import Method
from semcom.methods.registry import METHODS
from semcom.runs.result.result import Result

CERTAIN = 1e3
"""Weight of the sum of all shares, 1, beside the equations of the gradient."""


def solve_shares(gradient: np.ndarray, confusion: np.ndarray, has: np.ndarray) -> np.ndarray:
    """Find the shares of classes, `[C]`, not negative and of sum 1, that explain a gradient by least squares.

    Args:
        gradient: by the biases, the mean of p - y, `[C]`.
        confusion: P, mean probabilities of the model for images of each class, `[C, C]`, a column for each.
        has: classes that the client may have, bool `[C]`.

    Example:
        >>> import numpy as np
        >>> from semcom.attacks.labels import solve_shares
        >>> solve_shares(np.array([0.5, -0.5]), np.full((2, 2), 0.5), np.array([True, True])).round(6)
        array([0., 1.])
    """
    from scipy.optimize import nnls  # takes half a second to import

    a = np.vstack([confusion - np.eye(len(gradient)), np.full((1, len(gradient)), CERTAIN)])[:, has]
    shares = np.zeros(len(gradient))
    shares[has] = nnls(a, np.append(gradient, CERTAIN))[0]
    return shares / shares.sum()


def compute_variation(one: np.ndarray, other: np.ndarray) -> float:
    """Compute the distance in total variation of two distributions: half the sum of absolute differences."""
    return float(np.abs(one - other).sum() / 2)


def infer_labels(
    result: Result, victims: np.ndarray, *, known: int, seed: int, view: str | None = None
) -> dict[str, float]:
    """Find the shares of the victims' classes by what the run's method sends up.

    Of an averaged classifier it is the update by one step on all training images, by the plain cross-entropy, of the
    view `global` if there is one.

    Returns:
        `label`, the error in total variation, and `label_guess`, that of the shares among the attacker's own images.
        Both are means over the victims.

    Raises:
        ConfigError: the task asks for no classes, or no image is left to the attacker.
    """
    if not result.world.session.draws.task.classifies:
        raise ConfigError(f"kind: labels are of classes, and the task is {result.config.task}")
    method: Method = METHODS.get(result.config.method)(result.config.hyper)
    view = find_shared_view(result, view)
    federation = result.federation
    classes, owned = len(federation.classes), federation.owned
    mine = choose_known_images(federation, victims, result.clients, "encoder", known, seed)
    guess = count_shares(federation.labels.cpu()[mine.index], classes)
    confusion = None
    errors, guesses = [], []
    for victim in victims.tolist():
        index = federation.train[victim]
        truth = count_shares(federation.labels[index].cpu(), classes)
        has = owned[victim] if method.tells else np.ones(classes, dtype=bool)
        if method.split or method.tells == "counts":
            found = truth
        elif _sends_head(result, method, view):
            if confusion is None:
                confusion = _estimate_confusion(result, victims, mine.index, view)
            p = _answer_in_training(result, victim, federation.images[index], view).mean(0).numpy()
            found = solve_shares(p - truth, confusion, has)
        else:
            found = guess if not method.tells else has / has.sum()
        errors.append(compute_variation(found, truth))
        guesses.append(compute_variation(guess, truth))
    return {"label": float(np.mean(errors)), "label_guess": float(np.mean(guesses))}


def find_shared_view(result: Result, view: str | None) -> str | None:
    """Find the view whose models go up, if none is given: `global`, or else the headline (None)."""
    return "global" if view is None and "global" in result.views else view


def count_shares(labels: torch.Tensor, classes: int) -> np.ndarray:
    """Compute the shares of classes among labels `[n]`, `[C]`."""
    return (torch.bincount(labels, minlength=classes).double() / len(labels)).numpy()


def _sends_head(result: Result, method: Method, view: str | None) -> bool:
    """Check whether parameters of the classifier go up: what is frozen does not."""
    moving = _find_view(result, view).population.moving(method.averages)
    parts = (moving,) if isinstance(moving, str) else moving
    return any(not part or part.startswith("head.") for part in parts)


def _answer_in_training(result: Result, client: int, images: torch.Tensor, view: str | None) -> torch.Tensor:
    """Compute the probabilities of classes, `[b, C]`, over the link and at the SNR of training."""
    session, chosen = result.world.session, _find_view(result, view)
    heard = infer_in_view(session, chosen, client, images, None, session.draws.training_link)
    return torch.cat([chosen.answer(each)[0] for each in heard]).cpu().double().softmax(-1)


def _find_view(result: Result, view: str | None) -> View:
    return result.views[view or next(iter(result.views))]


def _estimate_confusion(result: Result, victims: np.ndarray, index: torch.Tensor, view: str | None) -> np.ndarray:
    """Estimate P on the attacker's images, by the model of somebody who is no victim, if there is anybody."""
    others = np.setdiff1d(result.clients, victims)
    by = int(others[0]) if len(others) else int(victims[0])
    labels = result.federation.labels.cpu()[index]
    p = _answer_in_training(result, by, result.federation.images.cpu()[index], view)
    columns = [p[labels == c].mean(0) if bool((labels == c).any()) else p.mean(0) for c in range(p.shape[1])]
    return torch.stack(columns, 1).numpy()
