"""Gradients and steps on stacks of clients, whatever the chunk is trained for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from semcom.channels import Link
from semcom.engine.host.sending import clone_all, copy_all, send_to_device
from semcom.engine.store.population import Cohort, Order, Population, find_untrained, list_trained_parameters
from semcom.engine.train.arena import Arena
from semcom.engine.train.forward import Alone, Leaves, StackedModel, lay_channels_last

Project = Callable[[str, Tensor], Tensor]
"""The function `(name, leaf [k, ...]) -> leaf` that puts a leaf where it may be, after every step."""

STEPS = "step"
"""The name of the number of Adam's steps in an optimiser's state."""

Memory = dict[str, dict[str, Tensor]]
"""The state of an optimiser: slot -> leaf -> tensor. For Adam also its steps, one number for each leaf."""


@dataclass(frozen=True)
class Optimizer:
    """An elementwise optimiser of `torch.optim`, new at every fit unless its state is passed on.

    Attributes:
        name: adam, adamw or sgd.
        lr: learning rate, one for all or one per client of the federation.
        momentum, weight_decay: as in torch.
        parts: names of parts of a network and factors of their rates, the longest name first.
    """

    name: str = "adam"
    lr: float | tuple[float, ...] = 1e-3
    momentum: float = 0.0
    weight_decay: float = 0.0
    parts: tuple[tuple[str, float], ...] = ()

    @property
    def base_lr(self) -> float:
        """The rate that torch's optimiser runs at, the largest: scaling an update up would enlarge its error."""
        return max(self.lr) if isinstance(self.lr, tuple) else self.lr

    @property
    def slots(self) -> tuple[str, ...]:
        """The tensors of torch's optimiser for each leaf, by torch's names, without Adam's number of steps."""
        if self.name == "sgd":
            return ("momentum_buffer",) if self.momentum else ()
        return "exp_avg", "exp_avg_sq"

    def state(self, pop: Population) -> Population:
        """Make the state of a new optimiser for a network of the base station: zeros, named `slot/parameter`.

        Args:
            pop: a population of one, all of whose parameters are to be trained.

        Returns:
            a population of one for a State and `World.fit`; without tensors if the optimiser has no state.
        """
        (cohort,) = pop.stacks()
        like = {name: cohort.tensors[name] for name in pop.parameters()}
        tensors = {f"{slot}/{name}": torch.zeros_like(t) for slot in self.slots for name, t in like.items()}
        if self.name != "sgd":
            tensors[STEPS] = torch.zeros(len(cohort.ids), device=cohort.device)  # float32, as torch counts
        return Population((replace(cohort, tensors=tensors),))

    def scaled(self, factor: float) -> Optimizer:
        """Return the optimiser at `factor` times its rates."""
        lr = tuple(rate * factor for rate in self.lr) if isinstance(self.lr, tuple) else self.lr * factor
        return replace(self, lr=lr)

    def averaged(self) -> Optimizer:
        """Return the optimiser at the mean of the clients' rates, for a network of the base station."""
        return replace(self, lr=float(np.mean(self.lr)))

    def factor(self, name: str) -> float:
        """Return the factor of a leaf's rate."""
        return find_part_factor(self.parts, name)

    def scale(self, ids: np.ndarray) -> np.ndarray | None:
        """Compute the clients' rates over `base_lr`, `[n]`, at most 1; None if all are equal."""
        if not isinstance(self.lr, tuple) or len(set(self.lr)) == 1:
            return None
        return np.array(self.lr)[ids] / self.base_lr

    def step(self, leaves: Mapping[str, Tensor], memory: Memory) -> None:
        """Move stacked leaves along their gradients, in torch's fused form, the fastest on CPU and CUDA.

        It uses torch's functions instead of its classes, which import torch's compiler: two seconds in each process.

        Args:
            leaves: by name; each has its gradient.
            memory: the state after the steps so far, empty before the first; it is updated.
        """
        if not memory and self.name != "sgd":
            memory |= self.begin(leaves)
        step, rate = self._step_sgd if self.name == "sgd" else self._step_adam, self.base_lr
        with torch.no_grad():
            for factor, some in self._group(leaves).items():
                step(some, memory, rate * factor)

    def _group(self, leaves: Mapping[str, Tensor]) -> dict[float, Mapping[str, Tensor]]:
        """Group leaves by the factors of their rates, as torch has groups of parameters."""
        if not self.parts:
            return {1.0: leaves}
        groups: dict[float, dict[str, Tensor]] = {}
        for name, leaf in leaves.items():
            groups.setdefault(self.factor(name), {})[name] = leaf
        return {**groups}

    def _step_sgd(self, leaves: Mapping[str, Tensor], memory: Memory, rate: float) -> None:
        kept = memory.get("momentum_buffer", {})
        buffers = [kept.get(name) for name in leaves]
        sgd(
            [*leaves.values()],
            _list_gradients(leaves),
            buffers,
            fused=True,
            lr=rate,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            dampening=0.0,
            nesterov=False,
            maximize=False,
        )
        for slot in self.slots:
            memory.setdefault(slot, {}).update({n: t for n, t in zip(leaves, buffers, strict=True) if t is not None})

    def begin(self, leaves: Mapping[str, Tensor]) -> Memory:
        """Make the state before the first step: zeros that lie as the leaves do."""
        memory = {slot: {name: torch.zeros_like(t) for name, t in leaves.items()} for slot in self.slots}
        if self.name != "sgd":
            memory[STEPS] = {name: torch.zeros((), device=t.device) for name, t in leaves.items()}
        return memory

    def _step_adam(self, leaves: Mapping[str, Tensor], memory: Memory, rate: float) -> None:
        means, squares, steps = ([memory[slot][name] for name in leaves] for slot in (*self.slots, STEPS))
        adam(
            [*leaves.values()],
            _list_gradients(leaves),
            means,
            squares,
            [],
            steps,
            fused=True,
            lr=rate,
            beta1=0.9,
            beta2=0.999,
            eps=1e-8,
            weight_decay=self.weight_decay,
            decoupled_weight_decay=self.name == "adamw",
            amsgrad=False,
            maximize=False,
        )


def find_part_factor(parts: Sequence[tuple[str, float]], name: str) -> float:
    """Find the factor of a weight's rate among those of parts, the longest name first; of APFL's `own.` the model's."""
    at = f"{name.removeprefix('own.')}."
    return next((factor for part, factor in parts if at.startswith(f"{part}.")), 1.0)


def _list_gradients(leaves: Mapping[str, Tensor]) -> list[Tensor]:
    return [leaf.grad for leaf in leaves.values() if leaf.grad is not None]


class Diverged(Exception):
    """A loss, a weight or an answer that is not finite.

    Args:
        stream: the training or test.
        clients: ids of the clients concerned (none for a network of the base station).
        what: the quantity.
    """

    def __init__(self, stream: str, clients: Sequence[int], what: str = "loss or weights") -> None:
        where = f"client {', '.join(map(str, clients))}" if clients else f"the base station's {stream}"
        super().__init__(f"non-finite {what} at {where}")
        self.clients = list(clients)


class Workbench:
    """The working copy of a cohort in training: training happens in place on it, never on the population's own tensors.

    On a GPU the working copy is that of a chunk, in an arena.

    Attributes:
        cohort: the original.
        order: positions in the cohort of the clients here, descending by steps, `[n]`.
        shared: names of the tensors that stay common to all: those that are not trained.
        tensors: by name, `[n, ...]`; `[1, ...]` if shared.
        trained: memory for the own tensors after training, on a GPU; elsewhere they are the same.
    """

    def __init__(self, cohort: Cohort, order: np.ndarray, train: tuple[str, ...]) -> None:
        self.cohort, self.order = cohort, order
        self.shared = find_untrained(cohort, train)
        at, k, accelerated = Order(order, cohort.device), len(order), cohort.device.type == "cuda"

        def own(name: str, t: Tensor) -> Tensor:
            if name not in cohort.shared:
                return at(t) if accelerated else at.copy(t)
            return t.expand(k, *t.shape[1:]) if accelerated else t.repeat_interleave(k, 0)

        # Each client gets a copy of its own of a shared tensor that is trained.
        mine = {n: own(n, t) for n, t in cohort.tensors.items() if n not in self.shared}
        mine = mine if accelerated else {n: lay_channels_last(t) for n, t in mine.items()}
        self.tensors = {n: mine.get(n, t) for n, t in cohort.tensors.items()}
        self.trained = {n: t.new_empty(t.shape) for n, t in mine.items()} if accelerated else mine

    def result(self) -> Cohort:
        """Return the trained models as a cohort, in ascending order of ids."""
        back = Order(np.argsort(self.order), self.cohort.device)
        own = {n: back(t).contiguous() for n, t in self.trained.items()}
        tensors = {n: own.get(n, t) for n, t in self.cohort.tensors.items()}
        return replace(self.cohort, tensors=tensors, shared=self.shared)


class Chunk:
    """A chunk in training: clients of a workbench, their optimiser, and the cut to the active clients.

    Attributes:
        ids: the clients, `[k]`.
        n: number of active clients.
        leaves: trained tensors, `[n, ...]` by name.
        memory: the optimiser's state for them.
        alone: for a chunk of one client, all tensors without the client axis, in the same memory.
    """

    def __init__(self, bench: Workbench, at: slice, train: tuple[str, ...], optimizer: Optimizer) -> None:
        self.bench, self.at, self.train = bench, at, train
        self.cohort, self.ids = bench.cohort, bench.cohort.ids[bench.order[at]]
        self.stack = {n: t if n in bench.shared else t[at] for n, t in bench.tensors.items()}
        self._params: Leaves | None = None
        self._ones: Tensor | None = None
        self.optimizer, self.memory, self._whole = optimizer, Memory(), Memory()
        scale = optimizer.scale(self.ids)
        self.scale = None if scale is None else send_to_device(torch.from_numpy(scale), self.cohort.device)
        self.n = len(self.ids)

    @property
    def inputs(self) -> dict[str, Any]:
        """The tensors on the device that the steps work on, in nested dicts."""
        return {"stack": self.stack} | ({} if self.scale is None else {"scale": self.scale})

    def place(self, arena: Arena | None, there: Mapping[str, Any]) -> None:
        """Begin to train with the tensors of `inputs` in an arena, if there is one."""
        self.stack, self.scale = there["stack"], there.get("scale")
        chosen = set(list_trained_parameters(self.cohort.network, self.train))
        self.leaves = {n: t.requires_grad_() for n, t in self.stack.items() if n in chosen}
        self.alone = self._alone() if len(self.ids) == 1 else None
        if arena is not None:
            self._params, self._ones = arena.kept.get("called", (None, None))
            if "memory" not in arena.kept:
                arena.kept["memory"] = self.optimizer.begin(self.leaves)
                arena.zeros["memory"] = [t for slot in arena.kept["memory"].values() for t in slot.values()]
            self.memory = dict(arena.kept["memory"])

    def leave(self, arena: Arena | None) -> None:
        """Bring the trained models back to the workbench."""
        if arena is not None:
            arena.kept["called"] = self._params, self._ones
            trained = {n: t[self.at] for n, t in self.bench.trained.items()}
            copy_all(list(trained.values()), [self.stack[n] for n in trained])

    def recall(self, state: Cohort) -> None:
        """Continue with an optimiser's state from `Optimizer.state` or `remembered`: one network, all its parameters.

        Raises:
            ValueError: it is the state of another optimiser or network.
        """
        slots = self.optimizer.slots
        names = {f"{slot}/{name}" for slot in slots for name in self.leaves}
        if state.tensors.keys() - {STEPS} != names:
            raise ValueError("the optimiser's state is that of another optimiser or network")
        if not self.memory:
            self.memory = self.optimizer.begin(self.leaves)
        into = [self.memory[slot][name] for slot in slots for name in self.leaves]
        copy_all(into, [state.tensors[f"{slot}/{name}"] for slot in slots for name in self.leaves])
        if STEPS in state.tensors:
            steps = list(self.memory[STEPS].values())
            copy_all(steps, [state.tensors[STEPS][0]] * len(steps))

    def remembered(self, state: Cohort) -> Cohort:
        """Return the optimiser's state after the last step, with the names of the `state` before the first."""
        tensors = {f"{slot}/{name}": self.memory[slot][name] for slot in self.optimizer.slots for name in self.leaves}
        if STEPS in state.tensors:
            tensors[STEPS] = self.memory[STEPS][next(iter(self.leaves))].reshape(1)
        if self.cohort.device.type == "cuda":  # where the next fit takes the memory
            tensors = dict(zip(tensors, clone_all(list(tensors.values())), strict=True))
        return replace(state, tensors=tensors)

    def _alone(self) -> dict[str, Tensor]:
        """View the only client's tensors without its axis, in the same memory; trained ones take gradients."""
        plain = {name: t.detach().squeeze(0) for name, t in self.stack.items()}
        return {name: t.requires_grad_() if name in self.leaves else t for name, t in plain.items()}

    def model(
        self, train: tuple[str, ...], link: Link | None = None, autocast: torch.dtype | None = None
    ) -> StackedModel:
        """Return the models of the active clients for one step.

        A single client's networks are called with its own tensors, without a stack, unless the objective asked for
        `params` in the first step: then the networks are called with these, as gradients by them need.
        """
        network, fixed, before = self.cohort.network, self.fixed(), self._params
        if self.alone is None:
            return StackedModel(network, self.leaves, fixed, train, link, autocast)
        self._params = Leaves({name: self.alone[name] for name in self.leaves}, before is not None and before.asked)
        alone = None if before is None or before.asked else Alone(self.alone, self._params, fixed)
        return StackedModel(network, self._params, fixed, train, link, autocast, alone=alone)

    def cut(self, n: int) -> None:
        """Leave only the first n clients in training; as prefix views, so that the others do not move by a bit."""
        if n == self.n:
            return
        whole = self._whole = self._whole or dict(self.memory)
        self.leaves = {name: self.stack[name].detach()[:n].requires_grad_() for name in self.leaves}
        for slot in whole.keys() - {STEPS}:
            self.memory[slot] = {name: t[:n] for name, t in whole[slot].items()}
        self.n = n

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
        # On a CPU a sum is as fast, and torch imports sympy for a second to take what is given.
        if loss.is_cuda and (self._ones is None or len(self._ones) != self.n or self._ones.dtype != loss.dtype):
            self._ones = torch.ones_like(loss)
        if self.alone is None:
            self._descend_along(compute_gradients(loss, self.leaves, self._ones))
        else:
            grads = compute_gradients(loss, {name: self.alone[name] for name in self.leaves}, self._ones)
            self._descend_along({name: grad.unsqueeze(0) for name, grad in grads.items()})

    def follow(self, grads: Mapping[str, Tensor]) -> None:
        """Take `grads`, one for each leaf, as the gradient of the step.

        Raises:
            RuntimeError: other names or another shape than those of the leaves.
        """
        if grads.keys() != self.leaves.keys():
            odd = ", ".join(sorted(grads.keys() ^ self.leaves.keys()))
            raise RuntimeError(f"each leaf in training takes one gradient; these names do not match: {odd}")
        for name, leaf in self.leaves.items():
            if grads[name].shape != leaf.shape:
                shape = list(grads[name].shape)
                raise RuntimeError(f"the gradient of {name} has shape {shape}, not {list(leaf.shape)}")
        self._descend_along({name: grad.detach() for name, grad in grads.items()})

    def _descend_along(self, grads: Mapping[str, Tensor]) -> None:
        """Hand each leaf its gradient, in the leaf's order in memory, which a fused optimiser takes for granted."""
        for name, leaf in self.leaves.items():
            grad = grads[name]
            leaf.grad = grad if _lie_alike(grad, leaf) else torch.empty_like(leaf).copy_(grad)

    def step(self) -> None:
        """Take one step of the optimiser."""
        leaves = list(self.leaves.values())
        before = None if self.scale is None else [leaf.detach().clone() for leaf in leaves]
        self.optimizer.step(self.leaves, self.memory)
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

    def finite(self, doubt: Tensor) -> Tensor:
        """Check whether all trained numbers of a client are finite, bool `[k]`: no loss shows the last update.

        So must the numbers of `doubt` be, `[k]`.
        """
        rows = [self.bench.trained[name][self.at].detach() for name in self.leaves]
        # A sum is finite if its terms are, unless it overflows; it takes a thirtieth of the time of looking at each.
        if self.cohort.device.type == "cuda":
            return doubt.add(torch.cat([t.flatten(1) for t in rows], 1).sum(1, dtype=torch.float64), alpha=0) == 0
        sums = [t.reshape(len(t), -1).sum(1, dtype=torch.float64) for t in rows]
        return doubt.isfinite() & torch.stack(sums).isfinite().all(0)


def compute_gradients(loss: Tensor, leaves: Mapping[str, Tensor], ones: Tensor | None = None) -> dict[str, Tensor]:
    """Compute the gradients of the clients' losses `[k]` by their own leaves `[k, ...]`, by name.

    Args:
        loss: the losses.
        leaves: by name.
        ones: like the losses, kept on a GPU from step to step (None: the losses are summed).

    Raises:
        RuntimeError: the losses do not use a leaf.
    """
    grads = torch.autograd.grad(loss.sum() if ones is None else loss, list(leaves.values()), ones, allow_unused=True)
    for name, grad in zip(leaves, grads, strict=True):
        if grad is None:
            raise RuntimeError(f"the objective does not use {name}, which is to be trained; leave it out of train=")
    return dict(zip(leaves, grads, strict=True))


def _lie_alike(one: Tensor, other: Tensor) -> bool:
    """Check that two tensors of one shape have the same order in memory."""
    mine, its = one.stride(), other.stride()
    return mine == its or all(n == 1 or a == b for a, b, n in zip(mine, its, one.shape, strict=True))
