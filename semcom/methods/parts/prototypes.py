"""Prototypes: class means of features per client, their combination over clients, and what the base station keeps.

Legend: n clients, C classes, d features.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from semcom.engine.store.population import Population
from semcom.engine.train.forward import Batch
from semcom.engine.world import World
from semcom.methods.parts.passes import pass_training_images

How = Literal["mean", "counts"]
"""The weights of clients in a class's prototype: all alike (the code of FedProto's authors), or counts (its Eq. 6)."""


@dataclass(frozen=True)
class Prototypes:
    """The base station's prototype of each class, as a value: a round gives a new one.

    Attributes:
        values: `[C, d]`.
        known: classes that have one, bool `[C]` on the host; the others' values are zero.
    """

    values: Tensor
    known: Tensor

    @classmethod
    def none(cls, world: World) -> Prototypes:
        """Return prototypes of no class yet."""
        return cls(world.zeros(world.classes, world.features), torch.zeros(world.classes, dtype=torch.bool))

    def down(self, world: World, ids: np.ndarray, name: str = "prototypes") -> Tensor:
        """Send the prototypes to clients, and return what they receive, `[n, C, d]`.

        d numbers for each known class are counted, called `name` on the air.
        """
        n, d = len(ids), self.values.shape[1]
        floats = np.full(n, int(self.known.sum()) * d)
        return world.air.send("down", name, self.values.expand(n, -1, -1), ids, floats, broadcast=True)

    def up(
        self, world: World, ids: np.ndarray, means: Tensor, counts: Tensor, how: How, name: str = "prototypes"
    ) -> Prototypes:
        """Return the prototypes after clients have sent their means `[n, C, d]`.

        d numbers for each class that a client counts samples of are sent: with few local steps, a client may not have
        seen all of its classes. Those of clients that do not get through are left out.
        """
        floats = (counts > 0).sum(1).cpu().numpy() * means.shape[-1]
        sent = world.air.send("up", name, means, ids, floats)
        return self.renewed(sent, counts * world.tensor(world.arrived(ids, name))[:, None], how)

    def renewed(self, means: Tensor, counts: Tensor, how: How) -> Prototypes:
        """Return the prototypes made of means that are at the base station.

        A class whose owners are all absent keeps what it had.
        """
        has = (counts > 0).any(0)
        values = torch.where(has[:, None], combine_prototypes(means, counts, how), self.values)
        return Prototypes(values, self.known | has.cpu())


def prototypes(world: World, pop: Population, stream: str = "prototypes") -> tuple[Tensor, Tensor]:
    """Return class means of the received features over each client's training data, from a pass of their own.

    Returns:
        sums over counts `[K, C, d]` (zero where a client has no sample of a class) and counts `[K, C]`.
    """
    means, counts, _ = compute_prototype_moments(world, pop, stream)
    return means, counts


def compute_prototype_moments(
    world: World, pop: Population, stream: str = "prototypes"
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what `prototypes` does, and the mean of ||f||^2 per class, `[K, C]`."""
    c, d, team = world.classes, world.features, world.session.team
    sums, counts = world.zeros(len(pop.ids), c, d + 1), world.zeros(len(pop.ids), c)

    def add(batch: Batch, features: Tensor, logits: Tensor, where: Tensor) -> None:
        s, n = sum_features_by_class(torch.cat([features, features.square().sum(-1, keepdim=True)], -1), batch)
        sums[where] += s
        counts[where] += n

    pass_training_images(world, pop, add, stream)
    sums, counts = team.sum(sums), team.sum(counts)
    means = class_means(sums, counts)
    return means[..., :d].contiguous(), counts, means[..., d].contiguous()


def sum_features_by_class(features: Tensor, batch: Batch, weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Sum features per class, and count them: `[k, b, d] -> [k, C, d], [k, C]`.

    Args:
        features: `[k, b, d]`.
        batch: whose labels and padding count.
        weight: additional weight per client, `[k]` (bool or float).
    """
    # torch's one_hot reads the smallest and the largest label first.
    each = (batch.y.unsqueeze(-1) == torch.arange(batch.classes, device=features.device)).to(features.dtype)
    each = each * batch.weight.unsqueeze(-1)
    if weight is not None:
        each = each * weight.to(features.dtype)[:, None, None]
    return torch.einsum("kbc,kbd->kcd", each, features), each.sum(1)


def class_means(sums: Tensor, counts: Tensor) -> Tensor:
    """Divide sums `[..., C, d]` by counts `[..., C]`; zero where the count is."""
    return sums / counts.clamp(min=1).unsqueeze(-1)


def carry(world: World, n: int) -> dict[str, Tensor]:
    """Return empty accumulators for `collect`, for n clients."""
    c, d = world.classes, world.features
    return {"sums": world.zeros(n, c, d), "counts": world.zeros(n, c)}


def collect(into: Mapping[str, Tensor], features: Tensor, batch: Batch) -> None:
    """Add a training step's received features to the accumulators where it belongs to a client's last epoch."""
    sums, counts = sum_features_by_class(features.detach(), batch, batch.last)
    into["sums"].add_(sums)
    into["counts"].add_(counts)


def combine_prototypes(means: Tensor, counts: Tensor, how: How) -> Tensor:
    """Combine the prototypes of the clients that have one into one per class: `[n, C, d], [n, C] -> [C, d]`.

    Args:
        means: class means per client.
        counts: their numbers of samples; zero where a client has none.
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
    """Return the mean over a client's samples of ||f - target of its class||^2: `[k]`.

    Samples of a class without a target count as zero.

    Args:
        features: `[k, b, d]`.
        targets: one per class, `[k, C, d]` or `[C, d]`.
        known: which classes have one, bool `[k, C]` or `[C]`.
        batch: labels and padding.
    """
    k, _, d = features.shape
    target = targets.expand(k, -1, -1).gather(1, batch.y.unsqueeze(-1).expand(-1, -1, d))
    has = known.expand(k, -1).gather(1, batch.y)
    return batch.mean((features - target).square().sum(-1) * has)


def contrast_with_prototypes(
    features: Tensor, targets: Tensor, known: Tensor, batch: Batch, temperature: float
) -> tuple[Tensor, Tensor]:
    """Contrast each sample with the targets of all classes: InfoNCE by cosine, the target of its class being positive.

    Classes without a target are no negatives, and their samples add nothing.

    Args:
        features: `[k, b, d]`.
        targets: one per class, `[k, C, d]` or `[C, d]`.
        known: which classes have one, bool `[k, C]` or `[C]`.
        batch: labels and padding.
        temperature: divisor of the cosines.

    Returns:
        the mean over all samples `[k]`, and the part of the samples that have a target `[k]`.
    """
    normal = torch.nn.functional.normalize
    similarity = normal(features, dim=-1) @ normal(targets, dim=-1).mT / temperature
    known = known.expand(len(features), -1)
    # Not minus infinity: where no class has a target, the gradient of its softmax would be no number.
    similarity = similarity.masked_fill(~known.unsqueeze(1), torch.finfo(similarity.dtype).min)
    positive = similarity.gather(2, batch.y.unsqueeze(-1)).squeeze(-1)
    has = known.gather(1, batch.y)
    return batch.mean((similarity.logsumexp(-1) - positive) * has), batch.mean(has.to(features.dtype))
