"""Compression of what goes up: fewer bits for each number, or fewer numbers.

`quantise` rounds each number to one of 2^b levels, evenly spaced between minus and plus the largest magnitude of its
tensor, up or down at random so that it is right on average (D. Alistarh et al., "QSGD", NeurIPS 2017). `keep_largest`
keeps a part of a tensor's numbers; what is left out is not lost where the sender adds it to what it sends next (error
feedback: S. Stich, J.-B. Cordonnier, M. Jaggi, "Sparsified SGD with memory", NeurIPS 2018).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from semcom.config import AirConfig
from semcom.engine.air.updates import map_update_starts
from semcom.engine.host.sending import send_to_device
from semcom.engine.store.population import Cohort, Population, Prefix, StoredCohort, in_part

Count = TypeVar("Count", int, np.ndarray)


def is_compressed(name: str, tensor: Tensor) -> bool:
    """Return whether a model's tensor is compressed: not BatchNorm's running variance, which could turn negative."""
    return tensor.is_floating_point() and not name.endswith("running_var")


def quantise(values: Tensor, bits: int, uniforms: Tensor) -> Tensor:
    """Round numbers at random to one of 2^bits levels: the error is below the step, `2 max|v| / (2^bits - 1)`.

    Args:
        values: a tensor per client, `[k, ...]`.
        bits: of each number.
        uniforms: in [0, 1), float64 `[k, n]` for n numbers of each client.
    """
    flat, levels = values.flatten(1).double(), 2**bits - 1
    largest = flat.abs().amax(1, keepdim=True)
    step = 2 * largest / levels
    place = torch.where(step > 0, (flat + largest) / step, 0.0)
    below = place.floor()
    drawn = (below + (uniforms < place - below)).clamp(max=levels)
    return (drawn * step - largest).to(values.dtype).view_as(values)


def keep_largest(values: Tensor, fraction: float) -> Tensor:
    """Set all but the largest magnitudes of each client's tensor to zero: `[k, ...]`, as many as `kept` says."""
    flat = values.flatten(1)
    largest = flat.abs().topk(count_kept(flat.shape[1], fraction), dim=1).indices
    return torch.zeros_like(flat).scatter(1, largest, flat.gather(1, largest)).view_as(values)


def count_kept(numbers: int, fraction: float) -> int:
    """Return how many of a tensor's numbers are kept, at least one."""
    return max(1, round(fraction * numbers))


def count_quantised_bits(numbers: Count, bits: int, bits_per_float: int) -> Count:
    """Count the bits of a quantised tensor, or of several: its numbers, and its largest magnitude as it is."""
    return numbers * bits + bits_per_float


def count_sparse_bits(numbers: int, fraction: float, bits_per_float: int) -> int:
    """Count the bits of the numbers that are kept of a tensor, and of their places in it."""
    return count_kept(numbers, fraction) * (bits_per_float + math.ceil(math.log2(numbers)))


@dataclass
class Compression:
    """The compression of a run.

    Attributes:
        config, key: as of an `Air`.
        residual: what `top-k` has left out of each client's updates so far; None: nothing is left out.
    """

    config: AirConfig
    key: Callable[[str, str, int], torch.Generator]
    residual: Population | None = None

    def send_models(self, pop: Population, part: Prefix, name: str, since: Population | None) -> Population:
        """Return the models as the base station has them; remember what `top-k` leaves out of their updates.

        Args:
            pop, part, name, since: as for `Air.up`.
        """
        before = None if self.residual is None else self.residual.select(pop.ids)
        memory = [None] * len(pop.cohorts) if before is None else before.stacks()
        cohorts, rest = [], []
        for c, start, left in zip(pop.spread(part).stacks(), map_update_starts(since, pop), memory, strict=True):
            arrived, missing = {}, {}
            for n in _list_compressed(c, part):
                if left is not None and n not in left.tensors:
                    raise ValueError(f"{n}: what top-k leaves out is remembered of parts in `Method.averages` alone")
                received = start(n).received
                update = c.tensors[n] - received
                wanted = update if left is None else update + left.tensors[n]
                sent = self._compress(name + n, wanted, c.ids)
                arrived[n], missing[n] = received + sent, wanted - sent
            cohorts.append(replace(c, tensors={**c.tensors, **arrived}))
            if left is not None:
                rest.append(replace(left, tensors={**left.tensors, **missing}))
        if self.residual is not None:
            self.residual = self.residual.put(Population(tuple(rest)))
        return Population(tuple(cohorts))

    def quantise_sent(self, name: str, values: Tensor, ids: np.ndarray) -> Tensor:
        """Return tensors `[n, ...]` as they arrive quantised; zeros, which may not be sent at all, stay zeros."""
        arrived = self._compress(name, values.reshape(len(values), -1), ids).view_as(values)
        return torch.where(values != 0, arrived, 0.0)

    def _compress(self, name: str, values: Tensor, ids: np.ndarray) -> Tensor:
        if self.config.compress == "top-k":
            return keep_largest(values, self.config.top_fraction)
        generators = [self.key("compress", name, int(k)) for k in ids]
        uniforms = [torch.rand(values[0].numel(), generator=g, dtype=torch.float64) for g in generators]
        return quantise(values, self.config.quantise_bits, send_to_device(torch.stack(uniforms), values.device))

    def count_models(self, pop: Population, part: Prefix) -> tuple[np.ndarray, np.ndarray]:
        """Return how many numbers and bits of its model each client sends, `[K]` both."""
        own, floats = self.config, pop.numbers(part)
        bits = floats * own.bits_per_float
        for c in pop.cohorts:
            for n in [c.tensors[name][0].numel() for name in _list_compressed(c, part)]:
                if own.compress == "quantise":
                    sent, size = n, count_quantised_bits(n, own.quantise_bits, own.bits_per_float)
                else:
                    sent = count_kept(n, own.top_fraction)
                    size = count_sparse_bits(n, own.top_fraction, own.bits_per_float)
                floats[pop.at(c)] += sent - n
                bits[pop.at(c)] += size - n * own.bits_per_float
        return floats, bits


def _list_compressed(c: Cohort | StoredCohort, part: Prefix) -> list[str]:
    """Return the tensors of a part that are compressed."""
    return [n for n, t in c.tensors.items() if in_part(n, part) and is_compressed(n, t)]
