"""Features of frozen encoders in the place of training images, so that heads train without encoders.

A frozen encoder gives the same output in every epoch: it runs once per image, and a long training of a head costs only
the head. The link lies behind it and is met anew at every visit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from semcom.channels import make_link
from semcom.data.federation import Federation, Ragged
from semcom.engine.store.population import Population
from semcom.engine.train.session import Session
from semcom.engine.train.visit import Outputs, infer_on_visit


@dataclass(frozen=True)
class Features(Federation):
    """A federation with features before the link, `[M, d]`, where `images` are: a row per training image and owner."""

    originals: Federation
    """The images that were encoded."""
    places: Tensor
    """Where they are in it, int64 `[M]`."""

    @property
    def sources(self) -> Federation:
        """The federation with the images."""
        return self.originals

    def gather_sources(self, index: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Gather the images whose features are at `index`."""
        return self.originals.gather_sources(self.places[index], dtype)

    def gather(self, index: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Gather the features at `index` (int64, any shape) as `[*index.shape, d]`."""
        return self.images[index].to(dtype)


def encode_frozen(session: Session, pop: Population) -> Features:
    """Encode the training images of the clients in `pop`; other clients have no features.

    They are encoded as for a test, and no noise is drawn. Each rank runs the encoders of its part of the clients, and
    then has the features of all.
    """
    draws, images = session.draws, session.draws.federation
    sizes = np.zeros(len(images.train), dtype=np.int64)
    sizes[pop.ids] = images.train.sizes[pop.ids]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    owned = Ragged(torch.cat([images.train[int(k)] for k in pop.ids]), offsets)
    found = torch.zeros(len(owned.flat), draws.config.model.features, dtype=draws.dtype, device=draws.device)

    def note(heard: Outputs) -> None:
        real = heard.batch.weight > 0
        found[heard.at[real]] = heard.raw[real]

    infer_on_visit(session, {"": pop}, owned, note, stream="encoded", link=make_link("none"))
    train = replace(owned, flat=torch.arange(len(found), device=draws.device))
    empty = Ragged(owned.flat[:0], np.zeros_like(offsets))
    everyone = {"images": session.team.sum(found), "labels": images.labels[owned.flat], "train": train}
    whence: dict[str, Any] = {"originals": images, "places": owned.flat}
    return Features(**{**vars(images), **everyone, "test": empty, "validation": empty}, **whence)
