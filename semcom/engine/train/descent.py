"""Gradients and steps on stacks of clients, whatever the chunk is trained for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from semcom.engine.store.population import Cohort, in_part
from semcom.engine.train.forward import channels_last

Project = Callable[[str, Tensor], Tensor]
"""The function `(name, leaf [k, ...]) -> leaf` that puts a leaf where it may be, after every step."""


@dataclass(frozen=True)
class Optimizer:
    """An elementwise optimiser of `torch.optim`, new at every fit.

    Attributes:
        name: adam or sgd.
        lr: learning rate, one for all or one per client of the federation.
        momentum, weight_decay: as in torch.
    """

    name: str = "adam"
    lr: float | tuple[float, ...] = 1e-3
    momentum: float = 0.0
    weight_decay: float = 0.0

    @property
    def base_lr(self) -> float:
        """The rate that torch's optimiser runs at, the largest: scaling an update up would enlarge its error."""
        return max(self.lr) if isinstance(self.lr, tuple) else self.lr

    def scaled(self, factor: float) -> Optimizer:
        """Return the optimiser at `factor` times its rates."""
        lr = tuple(rate * factor for rate in self.lr) if isinstance(self.lr, tuple) else self.lr * factor
        return replace(self, lr=lr)

    def scale(self, ids: np.ndarray) -> np.ndarray | None:
        """Return the clients' rates over `base_lr`, `[n]`, at most 1; None where all are equal."""
        if not isinstance(self.lr, tuple) or len(set(self.lr)) == 1:
            return None
        return np.array(self.lr)[ids] / self.base_lr

    def build(self, leaves: list[Tensor]) -> torch.optim.Optimizer:
        """Build torch's optimiser on stacked leaves; `fused` is its fastest form on CPU and CUDA."""
        if self.name == "sgd":
            return torch.optim.SGD(
                leaves, self.base_lr, momentum=self.momentum, weight_decay=self.weight_decay, fused=True
            )
        return torch.optim.Adam(leaves, self.base_lr, weight_decay=self.weight_decay, fused=True)


class Diverged(Exception):
    """A loss or a weight that is not finite; `clients` are the ids (none for a network of the base station)."""

    def __init__(self, stream: str, clients: Sequence[int]) -> None:
        where = f"client {', '.join(map(str, clients))}" if clients else f"the base station's {stream}"
        super().__init__(f"non-finite loss or weights at {where}")
        self.clients = list(clients)


class Chunk:
    """A chunk in training: a working copy of its models, its optimiser, and the cut to the clients still active."""

    def __init__(self, cohort: Cohort, order: np.ndarray, train: tuple[str, ...], optimizer: Optimizer) -> None:
        self.cohort, self.ids = cohort, cohort.ids[order]
        at = torch.as_tensor(order, device=next(iter(cohort.tensors.values())).device)
        parameters = {name for name, _ in cohort.network.named_parameters()}
        self.shared = frozenset(n for n in cohort.shared if not in_part(n, train))
        # A copy in the chunk's order: training happens in place on it and never on the population's own tensors.
        self.stack = {
            n: t if n in self.shared else channels_last(_pick(t, at, n in cohort.shared))
            for n, t in cohort.tensors.items()
        }
        self.leaves = {n: t.requires_grad_() for n, t in self.stack.items() if n in parameters and in_part(n, train)}
        self.optimizer = optimizer.build(list(self.leaves.values()))
        scale = optimizer.scale(self.ids)
        self.scale = None if scale is None else torch.as_tensor(scale, device=at.device)
        self.n = len(order)

    def cut(self, n: int) -> None:
        """Leave only the first n clients in training; as prefix views, so that the others do not move by a bit."""
        if n == self.n:
            return
        for group in self.optimizer.param_groups:
            group["params"] = [self._cut_leaf(leaf, n) for leaf in group["params"]]
        self.leaves = dict(zip(self.leaves, self.optimizer.param_groups[0]["params"], strict=True))
        self.n = n

    def _cut_leaf(self, leaf: Tensor, n: int) -> Tensor:
        view = leaf.detach()[:n].requires_grad_()
        state = self.optimizer.state.pop(leaf, {})
        self.optimizer.state[view] = {k: v[:n] if v.shape == leaf.shape else v for k, v in state.items()}
        return view

    def fixed(self) -> dict[str, Tensor]:
        """Return the frozen parameters and the buffers of the active clients."""
        return {n: t[: self.n] for n, t in self.stack.items() if n not in self.leaves}

    def differentiate(self, loss: Tensor) -> None:
        """Compute the gradients of the clients' losses `[n]`.

        Raises:
            RuntimeError: the losses have another shape, or do not use a leaf.
        """
        if loss.shape != (self.n,):
            raise RuntimeError(f"the objective gave a loss of shape {list(loss.shape)}; one per client is [{self.n}]")
        self.follow(gradients(loss, self.leaves))

    def follow(self, grads: Mapping[str, Tensor]) -> None:
        """Take `grads`, one for each leaf, as what the optimiser descends.

        Raises:
            RuntimeError: other names or another shape than those of the leaves.
        """
        if grads.keys() != self.leaves.keys():
            odd = ", ".join(sorted(grads.keys() ^ self.leaves.keys()))
            raise RuntimeError(f"each leaf in training takes one gradient; these names do not match: {odd}")
        for name, leaf in self.leaves.items():
            grad = grads[name].detach()
            if grad.shape != leaf.shape:
                raise RuntimeError(f"the gradient of {name} has shape {list(grad.shape)}, not {list(leaf.shape)}")
            leaf.grad = grad if _lie_alike(grad, leaf) else torch.empty_like(leaf).copy_(grad)

    def step(self) -> None:
        """Take one step of the optimiser."""
        leaves = list(self.leaves.values())
        before = None if self.scale is None else [leaf.detach().clone() for leaf in leaves]
        self.optimizer.step()
        if before is not None:
            self._rescale(leaves, before)

    def project(self, project: Project) -> None:
        """Apply `project` to every leaf."""
        with torch.no_grad():
            for name, leaf in self.leaves.items():
                leaf.copy_(project(name, leaf))

    def _rescale(self, leaves: list[Tensor], before: list[Tensor]) -> None:
        """Scale each client's update to its own rate."""
        assert self.scale is not None
        with torch.no_grad():
            for leaf, old in zip(leaves, before, strict=True):
                scale = self.scale[: self.n].to(leaf.dtype).view(-1, *[1] * (leaf.dim() - 1))
                leaf.copy_(old + scale * (leaf - old))

    def finite(self) -> Tensor:
        """Return whether all trained numbers of a client are finite, bool `[k]`: the last update shows in no loss."""
        rows = [self.stack[name].detach().flatten(1).isfinite().all(1) for name in self.leaves]
        return torch.stack(rows).all(0)

    def result(self) -> Cohort:
        """Return the trained models as a cohort, in ascending order of ids."""
        back = torch.as_tensor(np.argsort(self.ids), device=next(iter(self.stack.values())).device)
        tensors = {n: t if n in self.shared else t.detach()[back] for n, t in self.stack.items()}
        return replace(self.cohort, tensors=tensors, ids=np.sort(self.ids), shared=self.shared)


def gradients(loss: Tensor, leaves: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the gradients of the clients' losses `[k]` by their own leaves `[k, ...]`, by name.

    Raises:
        RuntimeError: the losses do not use a leaf.
    """
    grads = torch.autograd.grad(loss.sum(), list(leaves.values()), allow_unused=True)
    for name, grad in zip(leaves, grads, strict=True):
        if grad is None:
            raise RuntimeError(f"the objective does not use {name}, which is to be trained; leave it out of train=")
    return dict(zip(leaves, grads, strict=True))


def _lie_alike(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors of one shape have the same order in memory, as a fused optimiser takes for granted."""
    return all(a == b for a, b, n in zip(one.stride(), other.stride(), one.shape, strict=True) if n > 1)


def _pick(stack: Tensor, at: Tensor, shared: bool) -> Tensor:
    """Return a copy of the clients at positions `at`; each gets its own copy of a shared tensor."""
    return stack.repeat_interleave(len(at), 0) if shared else stack[at]
