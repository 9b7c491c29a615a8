"""The order in which each client visits its samples in a phase, and the positions of each step in that order.

A draw (noise, fading) covers a client's whole phase with one entry per visited sample; a step takes its entries from
it. So neither padding nor a partial batch shifts a draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from semcom.engine.random import keyed


@dataclass(frozen=True)
class Plan:
    """The plan of one client's phase.

    Attributes:
        order: indices into the federation's images in visiting order, `[N]`.
        sizes: mini-batch sizes in order, `[S]`, summing to N.
        last: first step of the last epoch.
    """

    order: Tensor
    sizes: list[int]
    last: int

    @property
    def steps(self) -> int:
        """The number of steps, S."""
        return len(self.sizes)


def plan(table: Tensor, sizes: list[int], samples: int, key: Sequence[object]) -> Plan:
    """Draw a client's visiting order: every epoch is a new permutation, cut into mini-batches; the last may be smaller.

    Args:
        table: the client's samples, `[D_k]`.
        sizes: its mini-batches, epoch after epoch; the last epoch may be cut short.
        samples: number of samples that an epoch visits; fewer than D_k are drawn once, by the first permutation.
        key: names the draws.
    """
    generator = keyed(table.device, *key)

    def shuffled(of: Tensor) -> Tensor:
        return of[torch.randperm(len(of), generator=generator, device=table.device)]

    first = shuffled(table)[:samples]
    epochs = -(-sum(sizes) // samples)
    order = torch.cat([first, *(shuffled(first if samples < len(table) else table) for _ in range(epochs - 1))])
    # An epoch that is cut short would miss samples: the last epoch is as many steps as an epoch has.
    whole = np.searchsorted(np.cumsum(sizes), samples) + 1
    return Plan(order[: sum(sizes)], sizes, max(0, len(sizes) - int(whole)))


def batch_sizes(n: int, batch: int) -> list[int]:
    """Return the sizes of the mini-batches that n samples are cut into."""
    return [min(batch, n - i) for i in range(0, n, batch)]


def pad(rows: Sequence[Tensor]) -> Tensor:
    """Stack tensors of clients, `[N_i, ...]`, into one `[k, max N, ...]`, with zeros at the end."""
    if len({len(r) for r in rows}) == 1:
        return torch.stack(list(rows))
    out = rows[0].new_zeros(len(rows), max(len(r) for r in rows), *rows[0].shape[1:])
    for i, r in enumerate(rows):
        out[i, : len(r)] = r
    return out


class Schedule:
    """The plans of one chunk side by side: clients sorted by steps, most first, so that the active ones are a prefix.

    All that the steps need lies on the device before the first one: the host never waits for an accelerator, nor the
    accelerator for the host.

    Args:
        plans: one per client in the chunk, in descending order of steps.

    Attributes:
        steps: S, those of the first client.
        order: indices of the images that the clients visit, `[k, N]`.
        weights: number of samples of each step of a client's last epoch, elsewhere 0, float64 `[k, S]`.
        counted: number of clients whose weight is not zero, for each step.
    """

    def __init__(self, plans: Sequence[Plan]) -> None:
        self.plans = plans
        self.steps = plans[0].steps
        self.order = pad([p.order for p in plans])
        sizes = np.array([p.sizes + [0] * (self.steps - p.steps) for p in plans])
        starts = np.concatenate([np.zeros((len(plans), 1), int), sizes.cumsum(1)[:, :-1]], 1)
        self._active, self._widths, self._first = (sizes > 0).sum(0).tolist(), sizes.max(0).tolist(), starts[0].tolist()
        self._sizes, self._starts = sizes, starts
        self._aligned = [self._is_aligned(step) for step in range(self.steps)]
        last = np.arange(self.steps)[None, :] >= np.array([p.last for p in plans])[:, None]
        self._last = torch.as_tensor(last, device=self.order.device)
        weights = np.where(last, sizes, 0)
        self.weights = torch.as_tensor(weights, dtype=torch.float64, device=self.order.device)
        self.counted = (weights > 0).sum(0).tolist()
        if not all(self._aligned):
            within = np.arange(sizes.max())
            mask = within < sizes[:, :, None]
            self._whole = [bool(mask[: self.active(s), s, : self._widths[s]].all()) for s in range(self.steps)]
            at = np.where(mask, starts[:, :, None] + within, 0)
            self._at, self._mask = (torch.as_tensor(t, device=self.order.device) for t in (at, mask))
            self._rows = torch.arange(len(plans), device=self.order.device)[:, None]

    def active(self, step: int) -> int:
        """Return the number of clients that have not finished before a step."""
        return self._active[step]

    def cut(self, step: int) -> Cut:
        """Return the positions of a step's samples, for the active clients."""
        n, width = self._active[step], self._widths[step]
        last, start = self._last[:n, step], self._first[step]
        if self._aligned[step]:
            return Cut(n, last, None, None, slice(start, start + width))
        mask = None if self._whole[step] else self._mask[:n, step, :width]
        return Cut(n, last, mask, (self._rows[:n], self._at[:n, step, :width]), None)

    def _is_aligned(self, step: int) -> bool:
        """Return whether all active clients take the same positions of their orders: a slice then does for an index."""
        n = self.active(step)
        sizes, starts = self._sizes[:n, step], self._starts[:n, step]
        return bool((sizes == sizes[0]).all() and (starts == starts[0]).all())


@dataclass(frozen=True)
class Cut:
    """The positions of one step's samples.

    Attributes:
        n: number of active clients.
        last: whether the step belongs to the client's last epoch, bool `[n]`.
        mask: False in padding, `[n, b]`; None where nothing is padded.
        at: index of client and position; None where a slice does.
        span: slice of positions, the same for all clients; None where it takes an index.
    """

    n: int
    last: Tensor
    mask: Tensor | None
    at: tuple[Tensor, Tensor] | None
    span: slice | None

    def __call__(self, rows: Tensor) -> Tensor:
        """Cut a step out of a phase: `[k, N, ...] -> [n, b, ...]`; padding repeats one of the client's samples."""
        if self.span is not None:
            return rows[: self.n, self.span]
        assert self.at is not None
        return rows[self.at]
