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
from torch import Tensor, nn

from semcom.engine.host.ranks import ALONE
from semcom.engine.store.population import Cohort, Population
from semcom.engine.train.descent import Chunk, Diverged, Optimizer, Project
from semcom.engine.train.exchange import Done, merge
from semcom.engine.train.forward import Batch, StackedModel, channels_last
from semcom.engine.train.phase import Phase
from semcom.engine.train.plan import Schedule, pad
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
        models: other models of the clients, frozen and in evaluation mode.
        takes: further mini-batches of the step.
        each: what belongs to this step of a network of the base station.
    """

    rows: Mapping[str, Tensor]
    shared: Mapping[str, Tensor]
    carry: Mapping[str, Tensor]
    models: Mapping[str, StackedModel]
    takes: Mapping[str, Batch]
    each: Mapping[str, Tensor]


Objective = Callable[[StackedModel, Any, Context], "Tensor | tuple[Tensor, Log]"]
Gradient = Callable[[StackedModel, Any, Context], tuple[dict[str, Tensor], Log]]


@dataclass(frozen=True)
class Fit:
    """What `fit` needs for every chunk; see `World.fit` for the fields."""

    world: World
    objective: Objective | None
    gradient: Gradient | None
    train: tuple[str, ...]
    rows: Mapping[str, Tensor]
    anchors: Mapping[str, Population]
    frozen: Mapping[str, Population]
    shared: Mapping[str, Tensor]
    carry: Mapping[str, Tensor]
    each: Mapping[str, Tensor]
    phase: Phase
    optimizer: Optimizer
    project: Project | None

    def __call__(self, pop: Population) -> tuple[Population, Log, dict[str, Tensor]]:
        """Trains every client of `pop`: this rank its part of them."""
        fed = self._is_fed(pop.cohorts[0].network)
        team = self.world.team if fed else ALONE
        sizes = [self.sizes(int(k)) if fed else [] for k in pop.ids]
        if fed:
            self.world.count_features(pop.ids, [batches * (1 + len(self.phase.takes)) for batches in sizes])
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
            raise Diverged(self.phase.stream, pop.ids[~done.finite.cpu().numpy()].tolist() if fed else [])
        return done.trained, done.log, carried

    def sizes(self, client: int) -> list[int]:
        """A client's mini-batches in this phase."""
        return self.phase.sizes(client, int(self.world.federation.train.sizes[client]))

    def _is_fed(self, network: nn.Module) -> bool:
        """Whether it trains on clients' data: a network of the base station does not."""
        return isinstance(network, SplitModel) and not self.each

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
        steps = np.array([len(self.sizes(int(k))) if self._is_fed(cohort.network) else 0 for k in cohort.ids])
        order = np.argsort(-steps, kind="stable")
        k = self.world.chunk_of(len(order))
        return [order[i : i + k] for i in range(0, len(order), k)]

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
        feed = Feed(self, chunk) if self._is_fed(chunk.cohort.network) else Blind(self, chunk)
        means = Means(len(where), self.world.device)
        fine = torch.ones(len(where), dtype=torch.bool, device=self.world.device)
        for step in range(feed.steps):
            n = feed.active(step)
            chunk.cut(n)
            with clock.fine("batches"):
                batch, model, also = feed.take(step)
            context = Context(_first(rows, n), self.shared, _first(mine, n), **also)
            loss, extra = self._descend(chunk, model, batch, context)
            with clock.fine("optimiser"):
                chunk.step()
                if self.project is not None:
                    chunk.project(self.project)
            fine[:n] &= loss.detach().isfinite()
            means.add({"loss": loss, **extra}, batch)
        finite[where] = fine & chunk.finite()
        for name, t in mine.items():
            carried[name][where] = t
        for name, t in means.result().items():
            log.setdefault(name, torch.zeros(len(finite), dtype=t.dtype, device=t.device))[where] = t

    def _descend(self, chunk: Chunk, model: StackedModel, batch: Any, context: Context) -> tuple[Tensor, Log]:
        """Finds what the optimiser is to descend in a step; returns the loss `[k]` and what else is logged."""
        clock = self.world.clock
        if self.gradient is not None:
            with clock.fine("gradient"):
                grads, log = self.gradient(model, batch, context)
            chunk.follow(grads)
            return log["loss"], log
        assert self.objective is not None
        with clock.fine("forward"):
            answer = self.objective(model, batch, context)
        loss, extra = answer if isinstance(answer, tuple) else (answer, {})
        with clock.fine("backward"):
            chunk.differentiate(loss)
        return loss, extra


class Feed:
    """Mini-batches of a chunk of clients, with the draws for each, and the models as they stand."""

    def __init__(self, fit: Fit, chunk: Chunk) -> None:
        self.fit, self.chunk, self.world = fit, chunk, fit.world
        world, phase, ids = fit.world, fit.phase, chunk.ids
        plans = [world.plan(int(k), phase) for k in ids]
        self.schedule = Schedule(plans)
        self.steps = self.schedule.steps
        network, sizes = chunk.cohort.network, [p.sizes for p in plans]
        self.signals = {"": world.signals(ids, sizes, phase.draws(), network, fit.train)}
        self.signals |= {name: world.signals(ids, sizes, phase.draws(name)) for name in fit.frozen}
        self.takes = {}
        for take in phase.takes:
            order = self.schedule.order if take.same else pad([world.plan(int(k), phase, take.name).order for k in ids])
            self.takes[take.name] = order, world.signals(ids, sizes, phase.draws(take.name), network, fit.train)
        total = [len(p.order) for p in plans]
        self.uniforms = world.uniforms(ids, total, phase.uniforms, phase.draws()) if phase.uniforms else None
        self.models = {name: _stacks(pop, ids) for name, pop in {**fit.anchors, **fit.frozen}.items()}

    def active(self, step: int) -> int:
        """Clients that have not finished."""
        return self.schedule.active(step)

    def take(self, step: int) -> tuple[Batch, StackedModel, dict[str, Any]]:
        """The batch of a step, the chunk's models as they stand, and the rest of the context."""
        cut, world, chunk = self.schedule.cut(step), self.world, self.chunk
        signals = {name: signal(cut) for name, signal in self.signals.items()}
        uniforms = None if self.uniforms is None else cut(self.uniforms)
        batch = world.batch(self.schedule.order, cut, signals=signals, uniforms=uniforms)
        takes = {
            name: world.batch(order, cut, signals={"": signal(cut)}) for name, (order, signal) in self.takes.items()
        }
        link, autocast, network = world.training_link, world.autocast, chunk.cohort.network
        model = StackedModel(network, chunk.leaves, chunk.fixed(), self.fit.train, link, autocast)
        models = {
            name: StackedModel(c.network, {}, _own_first(c, cut.n), (), link, autocast, name)
            for name, c in self.models.items()
        }
        return batch, model, {"models": models, "takes": takes, "each": {}}


class Blind:
    """Steps without clients' data, for a network of the base station."""

    def __init__(self, fit: Fit, chunk: Chunk) -> None:
        self.fit, self.chunk = fit, chunk
        self.steps = next((len(t) for t in fit.each.values()), fit.phase.steps or 0)

    def active(self, step: int) -> int:
        """All."""
        return len(self.chunk.ids)

    def take(self, step: int) -> tuple[None, StackedModel, dict[str, Any]]:
        """No batch, the networks as they stand, and what belongs to the step."""
        chunk, each = self.chunk, {name: t[step] for name, t in self.fit.each.items()}
        model = StackedModel(chunk.cohort.network, chunk.leaves, chunk.fixed(), self.fit.train)
        return None, model, {"models": {}, "takes": {}, "each": each}


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


def _stacks(pop: Population, ids: np.ndarray) -> Cohort:
    """Models of the clients `ids` of one architecture, in this order."""
    (cohort,) = pop.rows(ids).stacks()
    at = torch.as_tensor(np.searchsorted(cohort.ids, ids), device=cohort.device)
    tensors = {n: t if n in cohort.shared else channels_last(t[at]) for n, t in cohort.tensors.items()}
    return replace(cohort, tensors=tensors, ids=ids)


def _own_first(cohort: Cohort, n: int) -> dict[str, Tensor]:
    """The first n rows of what clients do not share, and what they do."""
    return {name: t if name in cohort.shared else t[:n] for name, t in cohort.tensors.items()}


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
