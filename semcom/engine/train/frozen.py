"""Training images as frozen encoders see them: features in the place of images, so that heads train without encoders.

A frozen encoder answers the same in every epoch: it runs once per image, and a long training of a head costs what the
head costs. The link lies behind it and is met anew at every visit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from semcom.data.federation import Federation, Ragged
from semcom.engine.draws import Draws
from semcom.engine.session import Session
from semcom.engine.store.population import Cohort, Population
from semcom.engine.train.forward import Batch, StackedModel, channels_last
from semcom.engine.train.precision import rounding
from semcom.engine.train.visit import EVAL_BATCH


@dataclass(frozen=True)
class Features(Federation):
    """A federation with features before the link, `[M, d]`, where `images` are: a row per training image and owner."""

    def gather(self, index: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return the features at `index` (int64, any shape) as `[*index.shape, d]`."""
        return self.images[index].to(dtype)


@torch.no_grad()
def encoded(session: Session, pop: Population) -> Features:
    """Return the features of the training images of the clients in `pop`; the other clients have none.

    Each rank runs the encoders of its part of the clients, in evaluation mode, and then has the features of all.
    """
    draws, team = session.draws, session.team
    images = draws.federation
    sizes = np.zeros(len(images.train), dtype=np.int64)
    sizes[pop.ids] = images.train.sizes[pop.ids]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    train = Ragged(torch.arange(int(offsets[-1]), device=draws.device), offsets)
    rows = torch.cat([images.train[int(k)] for k in pop.ids])
    found = torch.zeros(len(rows), draws.config.model.features, dtype=draws.dtype, device=draws.device)
    mine = team.share(sizes[pop.ids])[team.rank]
    with rounding(draws.config.precision):
        for cohort in pop.select(pop.ids[mine]).stacks():
            for client in cohort.ids:
                owned = images.train[int(client)]
                found[train[int(client)]] = torch.cat([*_features(draws, cohort, client, owned)])
    empty = replace(train, flat=train.flat[:0], offsets=np.zeros_like(offsets))
    everyone = {"images": team.sum(found), "labels": images.labels[rows], "train": train}
    return Features(**{**vars(images), **everyone, "test": empty, "validation": empty})


def _features(draws: Draws, cohort: Cohort, client: int, owned: Tensor) -> Iterator[Tensor]:
    """Yield the features `[b, d]` of a client's images at `owned`, batch by batch."""
    tensors = {name: channels_last(t) for name, t in cohort.select(np.array([client])).tensors.items()}
    model = StackedModel(cohort.network, {}, tensors, autocast=draws.autocast)
    classes = len(draws.federation.classes)
    for index in owned.split(EVAL_BATCH):
        x, y = draws.federation.gather(index, draws.dtype), draws.federation.labels[index]
        batch = Batch(x[None], y[None], None, torch.ones(1, dtype=torch.bool, device=x.device), classes)
        yield model.encode(batch)[0]
