"""The order in which each client visits its samples in a phase, and the positions of each step in that order.

A draw (noise, fading) covers a client's whole phase with one entry per visited sample; a step takes its entries from
it. So neither padding nor a partial batch shifts a draw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from semcom.engine.host.keys import keyed
from semcom.engine.host.sending import send_to_device


@dataclass(frozen=True)
class Plan:
    """The plan of one client's phase.

    Attributes:
        order: positions in the lists of all clients, back to back, in visiting order, on the host, `[N]`.
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


def plan_batches(owned: range, sizes: list[int], samples: int, key: Sequence[object]) -> Plan:
    """Draw a client's visiting order: every epoch is a new permutation, cut into mini-batches; the last may be smaller.

    Args:
        owned: positions of the client's D_k samples.
        sizes: its mini-batches, epoch after epoch; the last epoch may be cut short.
        samples: number of samples that an epoch visits; fewer than D_k are drawn once, by the first permutation.
        key: names the draws.
    """
    generator = keyed(*key)

    def shuffled(of: Tensor) -> Tensor:
        return of[torch.randperm(len(of), generator=generator)]

    everything = torch.arange(owned.start, owned.stop)
    first = shuffled(everything)[:samples]
    epochs = -(-sum(sizes) // samples)
    again = first if samples < len(owned) else everything
    order = torch.cat([first, *(shuffled(again) for _ in range(epochs - 1))])
    # An epoch that is cut short would miss samples: the last epoch is as many steps as an epoch has.
    whole = np.searchsorted(np.cumsum(sizes), samples) + 1
    return Plan(order[: sum(sizes)], sizes, max(0, len(sizes) - int(whole)))


def plan_batch_sizes(n: int, batch: int) -> list[int]:
    """List the sizes of the mini-batches of n samples."""
    return [min(batch, n - i) for i in range(0, n, batch)]


def pad_clients(rows: Sequence[Tensor]) -> Tensor:
    """Stack tensors of clients, `[N_i, ...]`, into one `[k, max N, ...]`, with zeros at the end."""
    if len({len(r) for r in rows}) == 1:
        return torch.stack(list(rows))
    out = rows[0].new_zeros(len(rows), max(len(r) for r in rows), *rows[0].shape[1:])
    for i, r in enumerate(rows):
        out[i, : len(r)] = r
    return out


def select_step(t: Tensor, dim: int, step: int, on_device: Tensor | None) -> Tensor:
    """Select a step along a dimension; a number on the device, `[1]`, is read there."""
    return t.select(dim, step) if on_device is None else t.index_select(dim, on_device).squeeze(dim)


class Schedule:
    """The plans of one chunk side by side: clients sorted by steps, descending, so that the active ones are a prefix.

    All inputs of the steps lie on the device before the first step: the host never waits for an accelerator, nor the
    accelerator for the host. The schedule is made on the host, and `place` takes its tensors on a device.

    Args:
        plans: one per client in the chunk, in descending order of steps.
        recorded: whether steps may be recorded, which then read their numbers on the device.

    Attributes:
        steps: S, those of the first client.
        host: inputs of the steps, by name, on the host.
        counted: number of clients whose weight is not zero, for each step.
    """

    def __init__(self, plans: Sequence[Plan], recorded: bool = False) -> None:
        self.plans = plans
        self.steps = plans[0].steps
        sizes = np.array([p.sizes + [0] * (self.steps - p.steps) for p in plans])
        starts = np.concatenate([np.zeros((len(plans), 1), int), sizes.cumsum(1)[:, :-1]], 1)
        self._active, self._widths, self._first = (sizes > 0).sum(0).tolist(), sizes.max(0).tolist(), starts[0].tolist()
        self._sizes, self._starts = sizes, starts
        self._aligned = [self._is_aligned(step) for step in range(self.steps)]
        last = np.arange(self.steps)[None, :] >= np.array([p.last for p in plans])[:, None]
        weights = np.where(last, sizes, 0)
        self.counted = (weights > 0).sum(0).tolist()
        self.host = {
            "order": pad_clients([p.order for p in plans]),
            "last": last,
            "weights": weights.astype(np.float64),
            "counts": weights.sum(1).astype(np.float64),
        }
        if recorded:
            most = sizes.sum(1).max() - 1  # of numbers behind narrower steps than the widest, which are not read
            self.host["spans"] = np.minimum(starts[0][:, None] + np.arange(sizes.max(initial=0)), most)
        if not all(self._aligned):
            within = np.arange(sizes.max())
            mask = within < sizes[:, :, None]
            self._whole = [bool(mask[: self.active(s), s, : self._widths[s]].all()) for s in range(self.steps)]
            at = np.where(mask, starts[:, :, None] + within, 0)
            self.host |= {"at": at, "mask": mask, "rows": np.arange(len(plans))[:, None]}
        self.place(send_to_device(self.host, torch.device("cpu")))

    def place(self, there: Mapping[str, Tensor]) -> None:
        """Continue with the tensors of `host` on a device."""
        self._there = there

    @property
    def order(self) -> Tensor:
        """The positions that the clients visit in the lists of samples, `[k, N]`."""
        return self._there["order"]

    @property
    def weights(self) -> Tensor:
        """The number of samples of each step of a client's last epoch, elsewhere 0, float64 `[k, S]`."""
        return self._there["weights"]

    def active(self, step: int) -> int:
        """Count the clients that have not finished before a step."""
        return self._active[step]

    def shape(self, step: int) -> tuple[object, ...]:
        """Return a value that is equal for two steps if the same operations carry both out."""
        n, counted, aligned = self._active[step], self.counted[step], self._aligned[step]
        return n, self._widths[step], aligned, aligned or self._whole[step], counted == 0, counted == n

    def cut(self, step: int, on_device: Tensor | None = None) -> Cut:
        """Compute the positions of a step's samples, for the active clients.

        Args:
            step: the number of the step.
            on_device: the number on the device, `[1]`, which is read whenever the step is carried out: that of any step
                of the same shape.
        """
        n, width, there, start = self._active[step], self._widths[step], self._there, self._first[step]
        last = select_step(there["last"][:n], 1, step, on_device)
        if self._aligned[step]:
            span: slice | Tensor = slice(start, start + width)
            if on_device is not None:
                span = select_step(there["spans"][:, :width], 0, step, on_device)
            return Cut(n, last, None, None, span)
        mask = None if self._whole[step] else select_step(there["mask"][:n, :, :width], 1, step, on_device)
        at = select_step(there["at"][:n, :, :width], 1, step, on_device)
        return Cut(n, last, mask, (there["rows"][:n], at), None)

    def _is_aligned(self, step: int) -> bool:
        """Check whether all active clients take the same positions of their orders, so that a slice will do."""
        n = self.active(step)
        sizes, starts = self._sizes[:n, step], self._starts[:n, step]
        return bool((sizes == sizes[0]).all() and (starts == starts[0]).all())


@dataclass(frozen=True)
class Cut:
    """The positions of one step's samples.

    Attributes:
        n: number of active clients.
        last: whether the step belongs to the client's last epoch, bool `[n]`.
        mask: False in padding, `[n, b]` (None: no padding).
        at: index of client and position (None: a slice will do).
        span: slice or index of positions, the same for all clients (None: each has its own).
    """

    n: int
    last: Tensor
    mask: Tensor | None
    at: tuple[Tensor, Tensor] | None
    span: slice | Tensor | None

    def __call__(self, rows: Tensor) -> Tensor:
        """Cut a step out of a phase: `[k, N, ...] -> [n, b, ...]`; padding repeats one of the client's samples."""
        if isinstance(self.span, Tensor):
            return rows[: self.n].index_select(1, self.span)
        if self.span is not None:
            return rows[: self.n, self.span]
        assert self.at is not None
        return rows[self.at]
