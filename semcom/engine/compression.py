"""Compression of what goes up: fewer bits for each number, or fewer numbers.

`quantise` rounds each number to one of 2^b levels, evenly spaced between minus and plus the largest magnitude of its
tensor, up or down at random so that it is right on average (D. Alistarh et al., "QSGD", NeurIPS 2017). `keep_largest`
keeps a part of a tensor's numbers; what is left out is not lost where the sender adds it to what it sends next (error
feedback: S. Stich, J.-B. Cordonnier, M. Jaggi, "Sparsified SGD with memory", NeurIPS 2018).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


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


def count_quantised_bits(numbers: int, bits: int, bits_per_float: int) -> int:
    """Count the bits of a quantised tensor: its numbers, and its largest magnitude as it is."""
    return numbers * bits + bits_per_float


def count_sparse_bits(numbers: int, fraction: float, bits_per_float: int) -> int:
    """Count the bits of the numbers that are kept of a tensor, and of their places in it."""
    return count_kept(numbers, fraction) * (bits_per_float + math.ceil(math.log2(numbers)))
