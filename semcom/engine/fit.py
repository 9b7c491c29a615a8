"""Local training of a population: the one place with a loop over chunks, steps and mini-batches.

A chunk of k clients is trained at once. Their losses are summed and differentiated once; gradients of different clients
do not mix, and an elementwise optimiser on stacked leaves is an independent optimiser per client. So `chunk=1` is the
classic loop, and a larger one the same computation, vectorised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from semcom.engine.exchange import Done, merge
from semcom.engine.forward import Batch, StackedModel, channels_last
from semcom.engine.plan import Schedule, batch_sizes
from semcom.engine.population import Cohort, Population, in_part
from semcom.engine.ranks import ALONE
from semcom.models.split import SplitModel

if TYPE_CHECKING:
    from semcom.engine.world import World

Log = dict[str, Tensor]


@dataclass(frozen=True)
class Context:
    """What an objective gets besides the model and the batch.

    Attributes:
        rows: per-client context, frozen, `[k, ...]` each.
        shared: context that all clients have in common.
        carry: per-client accumulators, `[k, ...]`, that the objective changes in place.
    """

    rows: Mapping[str, Tensor]
    shared: Mapping[str, Tensor]
    carry: Mapping[str, Tensor]


Objective = Callable[[StackedModel, Any, Context], "Tensor | tuple[Tensor, Log]"]


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
        """The rate torch's optimiser runs at, the largest: scaling an update up would enlarge its error."""
        return max(self.lr) if isinstance(self.lr, tuple) else self.lr

    def scale(self, ids: np.ndarray) -> np.ndarray | None:
        """A client's rate over `base_lr`, `[n]`, at most 1; None where all are equal."""
        if not isinstance(self.lr, tuple) or len(set(self.lr)) == 1:
            return None
        return np.array(self.lr)[ids] / self.base_lr

    def build(self, leaves: list[Tensor]) -> torch.optim.Optimizer:
        """torch's optimiser on stacked leaves; `fused` is torch's fastest form on CPU and CUDA."""
        if self.name == "sgd":
            return torch.optim.SGD(
                leaves, self.base_lr, momentum=self.momentum, weight_decay=self.weight_decay, fused=True
            )
        return torch.optim.Adam(leaves, self.base_lr, weight_decay=self.weight_decay, fused=True)


class Diverged(Exception):
    """A loss, or a weight, that is not finite; `clients` are the ids (none for a network of the base station)."""

    def __init__(self, stream: str, clients: Sequence[int]) -> None:
        where = f"client {', '.join(map(str, clients))}" if clients else f"the base station's {stream}"
        super().__init__(f"non-finite loss or weights at {where}")
        self.clients = list(clients)


class Chunk:
    """One chunk in training: the working copy of its rows, its optimiser, and the cut to clients still active."""

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
        """Leaves only the first n clients in training; prefix views, so that the others do not move by a bit."""
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
        """Frozen parameters and buffers of the active clients."""
        return {n: t[: self.n] for n, t in self.stack.items() if n not in self.leaves}

    def differentiate(self, loss: Tensor) -> None:
        """Gradients of the clients' losses `[n]`. Raises RuntimeError for another shape or an unused leaf."""
        if loss.shape != (self.n,):
            raise RuntimeError(f"the objective gave a loss of shape {list(loss.shape)}; one per client is [{self.n}]")
        leaves = list(self.leaves.values())
        grads = torch.autograd.grad(loss.sum(), leaves, allow_unused=True)
        for name, leaf, grad in zip(self.leaves, leaves, grads, strict=True):
            if grad is None:
                raise RuntimeError(f"the objective does not use {name}, which is to be trained; leave it out of train=")
            leaf.grad = grad if _lie_alike(grad, leaf) else torch.empty_like(leaf).copy_(grad)

    def step(self) -> None:
        """One step of the optimiser."""
        leaves = list(self.leaves.values())
        before = None if self.scale is None else [leaf.detach().clone() for leaf in leaves]
        self.optimizer.step()
        if before is not None:
            self._rescale(leaves, before)

    def _rescale(self, leaves: list[Tensor], before: list[Tensor]) -> None:
        """Scales each client's row of the update to its own rate."""
        assert self.scale is not None
        with torch.no_grad():
            for leaf, old in zip(leaves, before, strict=True):
                scale = self.scale[: self.n].to(leaf.dtype).view(-1, *[1] * (leaf.dim() - 1))
                leaf.copy_(old + scale * (leaf - old))

    def finite(self) -> Tensor:
        """Whether all of a client's trained numbers are finite, bool `[k]`: the last update shows in no loss."""
        rows = [self.stack[name].detach().flatten(1).isfinite().all(1) for name in self.leaves]
        return torch.stack(rows).all(0)

    def result(self) -> Cohort:
        """The trained rows as a cohort, in ascending order of ids."""
        back = torch.as_tensor(np.argsort(self.ids), device=next(iter(self.stack.values())).device)
        tensors = {n: t if n in self.shared else t.detach()[back] for n, t in self.stack.items()}
        return replace(self.cohort, tensors=tensors, ids=np.sort(self.ids), shared=self.shared)


@dataclass(frozen=True)
class Fit:
    """What `fit` needs for every chunk; see `World.fit` for the fields."""

    world: World
    objective: Objective
    train: tuple[str, ...]
    rows: Mapping[str, Tensor]
    shared: Mapping[str, Tensor]
    carry: Mapping[str, Tensor]
    epochs: int | tuple[int, ...]
    steps: int | None
    batch: int
    optimizer: Optimizer
    stream: str

    def __call__(self, pop: Population) -> tuple[Population, Log, dict[str, Tensor]]:
        """Trains every client of `pop`: this rank its part of them."""
        split = isinstance(pop.cohorts[0].network, SplitModel)
        team = self.world.team if split else ALONE
        sizes = [self._sizes(int(k)) if split else [] for k in pop.ids]
        if split:
            self.world.count_features(pop.ids, sizes)
        samples = np.array([sum(batches) for batches in sizes])
        # What a pass costs is not known here; with the number of weights it grows.
        parts = team.share((samples + 1) * pop.numbers(self.train))
        mine = parts[team.rank]
        done = self._own(pop.rows(pop.ids[mine]), mine)
        if team.size > 1:
            with self.world.clock.fine("exchange"):
                done = merge(pop, self.train, done, parts, team)
        carried = {name: done.carried.get(name, t) for name, t in self.carry.items()}
        if not done.finite.all():
            raise Diverged(self.stream, pop.ids[~done.finite.cpu().numpy()].tolist() if split else [])
        return done.trained, done.log, carried

    def _own(self, pop: Population, at: np.ndarray) -> Done:
        """Trains the clients of `pop`, which are at the positions `at` of all."""
        where = torch.as_tensor(at, device=self.world.device)
        log: Log = {}
        rows = {name: t[where] for name, t in self.rows.items()}
        carried = {name: t[where] for name, t in self.carry.items()}
        finite = torch.ones(len(at), dtype=torch.bool, device=self.world.device)
        cohorts = []
        for cohort in pop.stacks():
            parts = []
            for order in self._chunks(cohort):
                chunk = Chunk(cohort, order, self.train, self.optimizer)
                inside = torch.as_tensor(np.searchsorted(pop.ids, chunk.ids), device=self.world.device)
                self._train(chunk, inside, rows, carried, log, finite)
                parts.append(chunk.result())
            cohorts.append(_join(parts))
        return Done(Population(tuple(cohorts)), log, carried, finite)

    def _chunks(self, cohort: Cohort) -> list[np.ndarray]:
        """Row numbers of the cohort's clients, chunk by chunk, most steps first."""
        steps = np.array([self._steps(int(k)) for k in cohort.ids])
        order = np.argsort(-steps, kind="stable")
        k = self.world.chunk_of(len(order))
        return [order[i : i + k] for i in range(0, len(order), k)]

    def _epochs(self, client: int) -> int:
        return self.epochs[client] if isinstance(self.epochs, tuple) else self.epochs

    def _steps(self, client: int) -> int:
        """Number of steps of a client in this phase."""
        if self.steps is not None:
            return self.steps
        return -(-int(self.world.federation.train.sizes[client]) // self.batch) * self._epochs(client)

    def _sizes(self, client: int) -> list[int]:
        """A client's mini-batches in this phase."""
        epoch, steps = batch_sizes(int(self.world.federation.train.sizes[client]), self.batch), self._steps(client)
        return (epoch * -(-steps // len(epoch)))[:steps]

    def _train(
        self,
        chunk: Chunk,
        where: Tensor,
        given: Mapping[str, Tensor],
        carried: dict[str, Tensor],
        log: Log,
        finite: Tensor,
    ) -> None:
        """All steps of one chunk; `where` are its clients' positions in the rank's population."""
        clock = self.world.clock
        mine = {name: t[where] for name, t in carried.items()}
        rows = {name: t[where] for name, t in given.items()}
        feed = self._feed(chunk)
        means = Means(len(where), self.world.device)
        fine = torch.ones(len(where), dtype=torch.bool, device=self.world.device)
        for step in range(feed.steps):
            n = feed.active(step)
            chunk.cut(n)
            with clock.fine("batches"):
                batch, model = feed.take(step, chunk, self.train)
            context = Context(_first(rows, n), self.shared, _first(mine, n))
            with clock.fine("forward"):
                answer = self.objective(model, batch, context)
            loss, extra = answer if isinstance(answer, tuple) else (answer, {})
            with clock.fine("backward"):
                chunk.differentiate(loss)
            with clock.fine("optimiser"):
                chunk.step()
            fine[:n] &= loss.detach().isfinite()
            means.add({"loss": loss, **extra}, batch)
        finite[where] = fine & chunk.finite()
        for name, t in mine.items():
            carried[name][where] = t
        for name, t in means.result().items():
            log.setdefault(name, torch.zeros(len(finite), dtype=t.dtype, device=t.device))[where] = t

    def _feed(self, chunk: Chunk) -> Feed | Blind:
        """Where the chunk's batches come from."""
        if isinstance(chunk.cohort.network, SplitModel):
            return Feed(self, chunk.ids)
        assert self.steps is not None
        return Blind(self.steps, len(chunk.ids))


class Feed:
    """Mini-batches of a chunk, with the link's realisation for each."""

    def __init__(self, fit: Fit, ids: np.ndarray) -> None:
        self.world = world = fit.world
        plans = [world.plan(int(k), fit.batch, fit._epochs(int(k)), fit.steps, fit.stream) for k in ids]
        self.schedule = Schedule(plans)
        self.steps = self.schedule.steps
        self.signals = world.signals(ids, self.schedule, fit.stream)

    def active(self, step: int) -> int:
        """Clients that have not finished."""
        return self.schedule.active(step)

    def take(self, step: int, chunk: Chunk, train: tuple[str, ...]) -> tuple[Batch, StackedModel]:
        """The batch of a step, and the chunk's models as they stand."""
        cut = self.schedule.cut(step)
        signal, link = self.signals(cut), self.world.training_link
        fixed, autocast = chunk.fixed(), self.world.autocast
        model = StackedModel(chunk.cohort.network, chunk.leaves, fixed, train, link, signal, autocast)
        return self.world.batch(self.schedule, cut), model


class Blind:
    """Steps without data, for a network that has no input (the SCG)."""

    def __init__(self, steps: int, n: int) -> None:
        self.steps, self.n = steps, n

    def active(self, step: int) -> int:
        """All."""
        return self.n

    def take(self, step: int, chunk: Chunk, train: tuple[str, ...]) -> tuple[None, StackedModel]:
        """No batch, and the networks as they stand."""
        return None, StackedModel(chunk.cohort.network, chunk.leaves, chunk.fixed(), train)


class Means:
    """Per-client means of logged values over the samples of the last epoch (over all steps without data)."""

    def __init__(self, n: int, device: torch.device) -> None:
        self.sums: Log = {}
        self.count = torch.zeros(n, device=device, dtype=torch.float64)

    def add(self, values: Log, batch: Batch | None) -> None:
        """Adds a step's values `[n]`, weighted by the client's samples in it."""
        n = len(next(iter(values.values())))
        weight = self.count.new_ones(n) if batch is None else (batch.count * batch.last).double()
        self.count[:n] += weight
        for name, value in values.items():
            total = self.sums.setdefault(name, torch.zeros_like(self.count))
            # A weight of zero must not carry a NaN of an earlier epoch into the mean.
            total[:n] += torch.where(weight > 0, value.detach().double() * weight, 0.0)

    def result(self) -> Log:
        """name -> `[n]`."""
        return {name: total / self.count for name, total in self.sums.items()}


def _lie_alike(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors of one shape have the same order in memory, as a fused optimiser takes for granted."""
    return all(a == b for a, b, n in zip(one.stride(), other.stride(), one.shape, strict=True) if n > 1)


def _pick(stack: Tensor, at: Tensor, shared: bool) -> Tensor:
    """Rows `at` of a stack as a copy; a shared tensor gives each its own."""
    return stack.repeat_interleave(len(at), 0) if shared else stack[at]


def _first(tensors: Mapping[str, Tensor], n: int) -> dict[str, Tensor]:
    """The first n rows of each."""
    return {name: t[:n] for name, t in tensors.items()}


def _join(parts: Sequence[Cohort]) -> Cohort:
    """Chunks of one cohort as one again, in ascending order of ids."""
    if len(parts) == 1:
        return parts[0]
    ids = np.concatenate([p.ids for p in parts])
    order = np.argsort(ids)
    back = torch.as_tensor(order, device=next(iter(parts[0].tensors.values())).device)
    tensors = {
        n: t if n in parts[0].shared else torch.cat([p.tensors[n] for p in parts])[back]
        for n, t in parts[0].tensors.items()
    }
    return replace(parts[0], tensors=tensors, ids=ids[order])
