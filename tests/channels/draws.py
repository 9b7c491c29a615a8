"""Draws of a seed, and the gradient that reaches a client."""

from __future__ import annotations

import torch
from torch import Tensor

from semcom.channels import Link
from semcom.channels.split import Split

SNR = torch.tensor([3.0, 9.0], dtype=torch.float64)


def seeded(seed: int = 2) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def keys(*seeds: int) -> list[torch.Generator]:
    return [seeded(seed) for seed in seeds]


def randn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=seeded(seed))


def at_client(link: Link, gradient: Tensor, up, down=None, down_snr_db=None, mask=None, snr_db=SNR) -> Tensor:
    """Gradient with respect to the normalised features, given `gradient` at the receiver."""
    features = randn(*gradient.shape, seed=9).to(gradient.dtype).requires_grad_()
    back_db = snr_db if down_snr_db is None else down_snr_db
    descent = None if down is None else link._hop(down, back_db, features, None)
    received = Split.apply(features, link._hop(up, snr_db, features, None), descent, mask)
    return torch.autograd.grad(received, features, gradient)[0]
