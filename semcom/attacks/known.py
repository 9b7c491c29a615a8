"""The images that an attacker has: none of them is a victim's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from semcom.attacks.options import Knows
from semcom.config import ConfigError
from semcom.data.federation import Federation
from semcom.engine.host.keys import keyed


@dataclass(frozen=True)
class Known:
    """The attacker's images: n of them, with their classes, and whose encoder he has their features from.

    Attributes:
        index: their places among the run's images, int64 `[n]`.
        client: of each, whose encoder it has passed, int64 `[n]`; -1: the victim's.
    """

    index: Tensor
    client: Tensor


def choose_known_images(
    federation: Federation,
    victims: np.ndarray,
    tested: np.ndarray,
    knows: Knows | Literal["own"],
    known: int,
    seed: int,
) -> Known:
    """Choose images that no victim has: any of the run's data, the training images of other clients, or of one.

    Args:
        federation: images and their owners.
        victims: clients.
        tested: clients that have models, the victims among them.
        knows: see `Attack`; "own": he is the first client who is no victim, and has nobody else's.
        known: number of images, at most.
        seed: of the choice.

    Raises:
        ConfigError: there are none.
    """
    others = np.setdiff1d(tested, victims)
    theirs = [of[k] for of in (federation.train, federation.test, federation.validation) for k in victims.tolist()]
    taken = torch.zeros(len(federation.images), dtype=torch.bool)
    taken[torch.cat(theirs).cpu()] = True
    if knows in ("clients", "own"):
        others = others[:1] if knows == "own" else others
        pool = torch.cat([federation.train[k] for k in others.tolist()] or [federation.train.flat[:0]]).cpu()
        client = torch.from_numpy(np.repeat(others, federation.train.sizes[others]))
        pool, client = pool[~taken[pool]], client[~taken[pool]]  # clients may share an image
    else:
        pool = (~taken).nonzero().flatten()
        client = torch.full_like(pool, -1)
    if not len(pool):
        raise ConfigError(f"clients: all {len(tested)} are victims, and no image is left to the attacker")
    some = torch.randperm(len(pool), generator=keyed(seed, "known"))[:known]
    return Known(pool[some], client[some])
