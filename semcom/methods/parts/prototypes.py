"""Prototypes: class means of features per client, their combination over clients, and the base station's record.

Legend: n clients, C classes, d features.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import mse_loss

from semcom.engine.store.population import Population
from semcom.engine.train.forward import Batch
from semcom.engine.world import World
from semcom.methods.parts.passes import pass_training_images

How = Literal["mean", "counts"]
"""The weights of clients in a class's prototype: all alike (the code of FedProto's authors), or counts (its Eq. 6)."""


@dataclass(frozen=True)
class Prototypes:
    """The base station's prototype of each class, an immutable value that every round replaces.

    Attributes:
        values: `[C, d]`.
        known: classes with a prototype, bool `[C]` on the host. The values of the others are zero.
    """

    values: Tensor
    known: Tensor

    @classmethod
    def none(cls, world: World) -> Prototypes:
        """Make prototypes without any known class."""
        return cls(world.zeros(world.classes, world.features), torch.zeros(world.classes, dtype=torch.bool))

    def down(self, world: World, ids: np.ndarray, name: str = "prototypes") -> Tensor:
        """Send the prototypes to clients, and return what they receive, `[n, C, d]`.

        d numbers for each known class are counted, as `name` on the air.
        """
        n, d = len(ids), self.values.shape[1]
        floats = np.full(n, int(self.known.sum()) * d)
        return world.air.send("down", name, self.values.expand(n, -1, -1), ids, floats, broadcast=True)

    def up(
        self, world: World, ids: np.ndarray, means: Tensor, counts: Tensor, how: How, name: str = "prototypes"
    ) -> Prototypes:
        """Receive the clients' means `[n, C, d]`, and renew the prototypes.

        d numbers are sent for each class that a client counts samples of: with few local steps, a client may not have
        seen all of its classes. Clients that do not get through are left out.
        """
        floats = (counts > 0).sum(1).cpu().numpy() * means.shape[-1]
        sent = world.air.send("up", name, means, ids, floats)
        return self.renewed(sent, counts * world.tensor(world.arrived(ids, name))[:, None], how)

    def renewed(self, means: Tensor, counts: Tensor, how: How) -> Prototypes:
        """Renew the prototypes by means that are at the base station.

        A class whose owners are all absent keeps its prototype.
        """
        has = (counts > 0).any(0)
        values = torch.where(has[:, None], combine_prototypes(means, counts, how), self.values)
        return Prototypes(values, self.known | has.cpu())


def prototypes(world: World, pop: Population, stream: str = "prototypes") -> tuple[Tensor, Tensor]:
    """Compute class means of the received features over each client's training data, in a separate pass.

    Returns:
        sums over counts `[K, C, d]` (zero for a class without samples) and counts `[K, C]`.
    """
    means, counts, _ = compute_prototype_moments(world, pop, stream)
    return means, counts


def compute_prototype_moments(
    world: World, pop: Population, stream: str = "prototypes"
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute `prototypes`, and the mean of ||f||^2 per class, `[K, C]`."""
    c, d, team = world.classes, world.features, world.session.team
    sums, counts = world.zeros(len(pop.ids), c, d + 1), world.zeros(len(pop.ids), c)

    def add(batch: Batch, features: Tensor, logits: Tensor, where: Tensor) -> None:
        # The squared norm rides along as one more feature, so that one pass over the batch sums both.
        s, n = sum_features_by_class(torch.cat([features, features.square().sum(-1, keepdim=True)], -1), batch)
        sums[where] += s
        counts[where] += n

    pass_training_images(world, pop, add, stream)
    sums, counts = team.sum(sums), team.sum(counts)
    means = class_means(sums, counts)
    return means[..., :d].contiguous(), counts, means[..., d].contiguous()


def sum_features_by_class(features: Tensor, batch: Batch, counts: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Sum features per class, and count them: `[k, b, d] -> [k, C, d], [k, C]`.

    Args:
        features: `[k, b, d]`.
        batch: labels and padding.
        counts: whether a client's samples count, bool `[k]` (None: they do).
    """
    # torch's one_hot reads the smallest and the largest label first.
    each = batch.y.unsqueeze(-1) == number_classes(batch.classes, features.device)
    for chosen in (batch.mask, None if counts is None else counts[:, None]):
        each = each if chosen is None else each & chosen.unsqueeze(-1)
    each = each.to(features.dtype)
    return torch.einsum("kbc,kbd->kcd", each, features), each.sum(1)


@lru_cache(maxsize=16)
def number_classes(classes: int, device: torch.device) -> Tensor:
    """Make the numbers of all classes, int64 `[C]`, once on a device."""
    return torch.arange(classes, device=device)


def class_means(sums: Tensor, counts: Tensor) -> Tensor:
    """Divide sums `[..., C, d]` by counts `[..., C]`, with zero for a count of zero."""
    return sums / counts.clamp(min=1).unsqueeze(-1)


def carry(world: World, n: int) -> dict[str, Tensor]:
    """Make empty accumulators for `collect`, for n clients."""
    c, d = world.classes, world.features
    return {"sums": world.zeros(n, c, d), "counts": world.zeros(n, c)}


def collect(into: Mapping[str, Tensor], features: Tensor, batch: Batch) -> None:
    """Add a training step's received features to the accumulators if it belongs to a client's last epoch."""
    sums, counts = sum_features_by_class(features.detach(), batch, batch.last)
    torch._foreach_add_([into["sums"], into["counts"]], [sums, counts])


def combine_prototypes(means: Tensor, counts: Tensor, how: How) -> Tensor:
    """Combine the clients' prototypes to one per class, over its owners: `[n, C, d], [n, C] -> [C, d]`.

    Args:
        means: class means per client.
        counts: their numbers of samples, zero for a class that a client does not own.
        how: see `How`.
    """
    weight = counts if how == "counts" else (counts > 0).to(means.dtype)
    return torch.einsum("nc,ncd->cd", weight, means) / weight.sum(0).clamp(min=1).unsqueeze(-1)


def find_nearest_prototype(features: Tensor, logits: Tensor, per_client: Mapping[str, Tensor]) -> Tensor:
    """Score classes by minus the distance to their prototypes, for a view: `[k, b, d] -> [k, b, C]`.

    `per_client` are the "prototypes", `[k, C, d]`, and the classes "among" which it decides, bool `[k, C]`.
    """
    distance = torch.cdist(features, per_client["prototypes"])
    return (-distance).masked_fill(~per_client["among"].unsqueeze(1), -torch.inf)


def squared_distance(features: Tensor, targets: Tensor, known: Tensor, batch: Batch) -> Tensor:
    """Average ||f - target of its class||^2 over a client's samples: `[k]`.

    Samples of a class without a target count as zero.

    Args:
        features: `[k, b, d]`.
        targets: one per class, `[k, C, d]` or `[C, d]`.
        known: classes with a target, bool `[k, C]` or `[C]`.
        batch: labels and padding.
    """
    k, _, d = features.shape
    target = targets.expand(k, -1, -1).gather(1, batch.y.unsqueeze(-1).expand(-1, -1, d))
    has = known.expand(k, -1).gather(1, batch.y)
    return batch.mean(mse_loss(features, target, reduction="none").sum(-1) * has)


def contrast_with_prototypes(
    features: Tensor, targets: Tensor, known: Tensor, batch: Batch, temperature: float
) -> tuple[Tensor, Tensor]:
    """Contrast each sample with the targets of all classes: InfoNCE by cosine, the target of its class being positive.

    Classes without a target are no negatives, and their samples add no loss.

    Args:
        features: `[k, b, d]`.
        targets: one per class, `[k, C, d]` or `[C, d]`.
        known: classes with a target, bool `[k, C]` or `[C]`.
        batch: labels and padding.
        temperature: divisor of the cosines.

    Returns:
        the mean over all samples `[k]`, and the fraction of the samples that have a target `[k]`.
    """
    normal = torch.nn.functional.normalize
    similarity = normal(features, dim=-1) @ normal(targets, dim=-1).mT / temperature
    known = known.expand(len(features), -1)
    # Not minus infinity: where no class has a target, the gradient of its softmax would be no number.
    similarity = similarity.masked_fill(~known.unsqueeze(1), torch.finfo(similarity.dtype).min)
    positive = similarity.gather(2, batch.y.unsqueeze(-1)).squeeze(-1)
    has = known.gather(1, batch.y)
    return batch.mean((similarity.logsumexp(-1) - positive) * has), batch.mean(has.to(features.dtype))
