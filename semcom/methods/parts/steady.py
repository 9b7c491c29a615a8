"""Training for as many epochs as each client needs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from semcom.engine.store.population import Population

MEMORY, SPREAD = 10, 0.1
"""Losses are steady where the last 10 of more than 10 have a standard deviation below 0.1."""

Epoch = Callable[[Population, int], tuple[Population, Tensor]]
"""`(clients, number of the epoch from 0) -> (the clients after it, their losses [n])`."""


def train_until_steady(epoch: Epoch, pop: Population, most: np.ndarray) -> tuple[Population, Tensor]:
    """Train each client epoch by epoch until its losses are steady, or for the most epochs that it may.

    Args:
        epoch: trains some of the clients for an epoch.
        pop: n clients.
        most: epochs, at least 1, `[n]`.

    Returns:
        the trained population, and the losses of each client's last epoch, `[n]` on the host.
    """
    losses = np.full((0, len(most)), np.nan)
    newest, going = np.full(len(most), np.nan), np.full(len(most), True)
    while going.any():
        trained, found = epoch(pop.select(pop.ids[going]), len(losses))
        pop, newest[going] = pop.put(trained), found.cpu().numpy()
        losses = np.vstack([losses, newest])
        going &= (len(losses) < most) & ~is_steady(losses)
    return pop, torch.as_tensor(newest)


def is_steady(losses: np.ndarray) -> np.ndarray:
    """Check whether each client's losses, `[epochs, n]`, have become steady: bool `[n]`."""
    return (losses[-MEMORY:].std(0) < SPREAD) & (len(losses) > MEMORY)
