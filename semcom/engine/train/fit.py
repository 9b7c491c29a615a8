"""Local training of a population, with the only loop over chunks, steps and mini-batches.

A chunk of k clients is trained at once. Their losses are summed and differentiated once; gradients of different clients
do not mix, and an elementwise optimiser on stacked leaves is an independent optimiser per client. So `chunk=1` is the
classic loop, and a larger chunk the same computation, vectorised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from semcom.engine.host.ranks import ALONE
from semcom.engine.host.sending import clone_all, copy_all, list_leaves
from semcom.engine.store.population import Cohort, Order, Population, list_trained_parameters
from semcom.engine.train.arena import Arena
from semcom.engine.train.context import Context, Fitted, Given, Gradient, Log, Objective
from semcom.engine.train.descent import Chunk, Diverged, Optimizer, Project, Workbench
from semcom.engine.train.exchange import Done, merge_ranks
from semcom.engine.train.feed import ClientFeed, Feed, ServerFeed
from semcom.engine.train.forward import StackedModel
from semcom.engine.train.phase import Phase
from semcom.engine.train.plan import select_step
from semcom.engine.train.replay import replay_steps
from semcom.engine.train.session import Session
from semcom.models.split import SplitModel


@dataclass(frozen=True)
class Fit:
    """The training of a population; `World.fit` explains the fields."""

    session: Session
    objective: Objective
    train: tuple[str, ...]
    given: Given
    phase: Phase
    optimizer: Optimizer
    project: Project | None
    optimizer_state: Population | None

    def __call__(self, pop: Population) -> Fitted:
        """Train every client of `pop`; each rank trains its part of them."""
        fed = self._is_fed(pop.cohorts[0].network)
        if fed and self.optimizer_state is not None:
            raise ValueError("optimizer_state: it goes on at the base station alone; a client's optimiser is new")
        team = self.session.team if fed else ALONE
        sizes = [self._sizes(int(k)) if fed else [] for k in pop.ids]
        if fed:
            self._count(pop, sizes)
        samples = np.array([sum(batches) for batches in sizes])
        # The cost of a pass is not known here; it grows with the number of weights.
        parts = team.share((samples + 1) * pop.numbers(self.train))
        mine = parts[team.rank]
        done = self._own(pop.select(pop.ids[mine]), mine)
        if team.size > 1:
            with self.session.clock.fine("exchange"):
                done = merge_ranks(pop, self.train, done, parts, team)
        carried = {name: done.carried.get(name, t) for name, t in self.given.carry.items()}
        if not done.finite.all():
            raise Diverged(self.phase.stream, pop.ids[~done.finite.cpu().numpy()].tolist() if fed else [])
        return Fitted(done.trained, done.log, carried, done.optimizer_state)

    def _count(self, pop: Population, sizes: Sequence[list[int]]) -> None:
        """Count steps of these sizes: the traffic of their mini-batches, and the time of the passes over them."""
        each = 1 + len(self.phase.takes)
        learns = np.zeros(len(pop.ids), dtype=bool)  # an encoder that does not train has no use for gradients
        for c in pop.cohorts:
            trained = list_trained_parameters(c.network, self.train)
            learns[pop.at(c)] = any(name.startswith("encoder.") for name in trained)
        for back in np.unique(learns).tolist():
            some = np.flatnonzero(learns == back)
            self.session.tally.features(pop.ids[some], [sizes[int(i)] * each for i in some], back)
        images = np.array([sum(batches) for batches in sizes])
        passes = self.objective.passes if isinstance(self.objective, Gradient) else None
        self.session.compute(pop, (passes or each) * images, self.train)
        for other in self.given.frozen.values():
            self.session.compute(other, each * images, ())

    def _sizes(self, client: int) -> list[int]:
        return self.session.draws.sizes(client, self.phase)

    def _is_fed(self, network: nn.Module) -> bool:
        """Check whether the network trains on clients' data, unlike a network of the base station."""
        return isinstance(network, SplitModel) and not self.given.per_step

    def _own(self, pop: Population, at: np.ndarray) -> Done:
        """Train the clients of `pop`, which are at the positions `at` of all."""
        device = self.session.draws.device
        where = Order(at, device)
        done = Collected(
            {name: where(t) for name, t in self.given.per_client.items()},
            dict(zip(self.given.carry, clone_all([where(t) for t in self.given.carry.values()]), strict=True)),
            {},
            torch.empty(len(at), dtype=torch.bool, device=device),
        )
        cohorts, state = [], Population(())
        for cohort in pop.stacks():
            bench = Workbench(cohort, self._order(cohort), self.train)
            n, k = len(bench.order), self.session.chunk_of(len(bench.order))
            optimizer = self.optimizer if self._is_fed(cohort.network) else self.optimizer.averaged()
            for i in range(0, n, k):
                chunk = Chunk(bench, slice(i, i + k), self.train, optimizer)
                self._train(chunk, Order(np.searchsorted(pop.ids, chunk.ids), device), done)
                if self.optimizer_state is not None:
                    (kept,) = self.optimizer_state.stacks()
                    state = Population((chunk.remembered(kept),))
            cohorts.append(bench.result())
        return Done(Population(tuple(cohorts)), done.log, done.carried, done.finite, state)

    def _order(self, cohort: Cohort) -> np.ndarray:
        """Sort the positions of the cohort's clients by steps, descending."""
        steps = np.array([len(self._sizes(int(k))) if self._is_fed(cohort.network) else 0 for k in cohort.ids])
        return np.argsort(-steps, kind="stable")

    def _feed(self, chunk: Chunk) -> Feed:
        if self._is_fed(chunk.cohort.network):
            return ClientFeed(self.session, chunk, self.train, self.given, self.phase)
        return ServerFeed(chunk, self.train, self.given, self.phase)

    def _train(self, chunk: Chunk, where: Order, done: Collected) -> None:
        """Take all steps of one chunk, whose clients are at the positions `where` of the rank's population."""
        feed = self._feed(chunk)
        carry = {name: where(t) for name, t in done.carried.items()}
        per_client = {name: where(t) for name, t in done.per_client.items()}
        given = {"carry": carry, "per_client": per_client, "common": self.given.common}
        arena, inputs = None, {**given, **chunk.inputs, **feed.inputs}
        if where.device.type == "cuda":
            arena = self._find_arena(chunk, feed, inputs)
            inputs = arena.place(inputs)
            given = {name: inputs[name] for name in given}
        chunk.place(arena, inputs)
        feed.place(arena, inputs)
        means = Means(feed, arena)
        if arena is not None:
            arena.clear()
        if self.optimizer_state is not None:
            chunk.recall(*self.optimizer_state.stacks())
        self._take_steps(chunk, feed, partial(self._step, chunk, feed, means, given), arena)
        chunk.leave(arena)
        done.note(where, chunk.finite(means.find_doubt()), given["carry"], means.result())

    def _take_steps(self, chunk: Chunk, feed: Feed, step: Callable[..., None], arena: Arena | None) -> None:
        """Take all steps, once everything is in place."""
        if arena is not None and not self.session.clock.is_fine:
            first = 1 if chunk.alone is None else 2  # a single client's networks are called in another way at first
            shapes = [feed.shape(number) for number in range(feed.steps)]
            replay_steps(step, shapes, first, self.phase.stream, chunk.cohort.device, arena)
        else:
            for number in range(feed.steps):
                step(number)

    def _find_arena(self, chunk: Chunk, feed: Feed, inputs: Mapping[str, Any]) -> Arena:
        """Find the tensors in place for steps that launch the same as this fit's."""
        about = self.objective, self.train, self.phase, self.optimizer, self.project, chunk.bench.shared
        sent = tuple((t.shape, t.dtype) for t in list_leaves(feed.host))
        return self.session.arenas.find(chunk.cohort.network, about, inputs, sent, chunk.cohort.device)

    def _step(
        self,
        chunk: Chunk,
        feed: Feed,
        means: Means,
        given: Mapping[str, Mapping[str, Tensor]],
        number: int,
        on_device: Tensor | None = None,
    ) -> None:
        """Take the step of a number, which is also on the device in a step that is recorded."""
        clock, n = self.session.clock, feed.active(number)
        chunk.cut(n)
        with clock.fine("batches"):
            taken = feed.take(number, on_device)
        first, carried = _take_first_clients(given["per_client"], n), _take_first_clients(given["carry"], n)
        context = Context(first, given["common"], taken.per_step, carried, taken.models, taken.takes)
        loss, extra = self._descend(chunk, taken.model, taken.batch, context)
        with clock.fine("optimiser"):
            chunk.step()
            if self.project is not None:
                chunk.project(self.project)
        means.add({"loss": loss, **extra}, number, on_device)

    def _descend(self, chunk: Chunk, model: StackedModel, batch: Any, context: Context) -> tuple[Tensor, Log]:
        """Compute the gradients of a step; return the loss `[k]` and the other logged values."""
        clock = self.session.clock
        if isinstance(self.objective, Gradient):
            with clock.fine("gradient"):
                grads, log = self.objective.of(model, batch, context)
            chunk.follow(grads)
            return log["loss"], log
        with clock.fine("forward"):
            answer = self.objective(model, batch, context)
        loss, extra = answer if isinstance(answer, tuple) else (answer, {})
        with clock.fine("backward"):
            chunk.differentiate(loss)
        return loss, extra


@dataclass
class Collected:
    """The results of a rank's chunks so far, `[n, ...]` each, and the context that the chunks are cut from."""

    per_client: Mapping[str, Tensor]
    carried: dict[str, Tensor]
    log: Log
    finite: Tensor

    def note(self, where: Order, finite: Tensor, carried: Mapping[str, Tensor], means: Log) -> None:
        """Note the results of a chunk of the clients at `where`."""
        n = len(self.finite)
        if where.is_whole(n):
            self.finite, self.log = finite, means
            copy_all([self.carried[name] for name in carried], list(carried.values()))
            return
        self.finite[where.index] = finite
        for name, t in carried.items():
            self.carried[name][where.index] = t
        for name, t in means.items():
            self.log.setdefault(name, torch.zeros(n, dtype=t.dtype, device=t.device))[where.index] = t


class Means:
    """The means per client of logged values over the samples of the last epoch (without data: over all steps).

    Attributes:
        doubt: 0 for each client, `[k]`, NaN once a loss was not finite that its sum has not.
    """

    def __init__(self, feed: Feed, arena: Arena | None) -> None:
        self.weights, self.counts, self.counted, self.arena = feed.weights, feed.counts, feed.counted, arena
        self.names: list[str] = []
        self.sums = self.weights[:0]  # nothing is logged before the last epoch
        if arena is None or "doubt" not in arena.kept:
            self.doubt = torch.zeros(len(self.weights), device=self.weights.device)
        else:
            self.doubt = arena.kept["doubt"]
        if arena is not None:
            self.names, self.sums = arena.kept.get("sums", (self.names, self.sums))
            arena.kept["doubt"], arena.zeros["means"] = self.doubt, [self.doubt, self.sums]

    def add(self, values: Log, step: int, on_device: Tensor | None = None) -> None:
        """Add a step's values, `[n]` each, of the active clients; see `Schedule.cut`."""
        loss = values["loss"].detach()
        if self.counted[step] != len(loss):  # otherwise the sum shows it
            self.doubt[: len(loss)].add_(loss, alpha=0)  # zero times what is not finite is NaN, and stays it
        if not self.counted[step]:
            return
        if not self.names:
            self.names = list(values)
            self.sums = self.weights.new_zeros(len(values), len(self.weights))
            if self.arena is not None:
                self.arena.kept["sums"] = self.names, self.sums
        rows = torch.stack([values[name].detach() for name in self.names])
        n = rows.shape[1]
        weight = select_step(self.weights[:n], 1, step, on_device)
        terms = rows * weight
        # A weight of zero must not carry a NaN of an earlier epoch into the mean.
        self.sums[:, :n].add_(terms if self.counted[step] == n else torch.where(weight > 0, terms, 0.0))

    def find_doubt(self) -> Tensor:
        """Compute 0 for each client, `[k]`, NaN if a loss was not finite."""
        return self.doubt.add(self.sums[self.names.index("loss")], alpha=0) if self.names else self.doubt

    def result(self) -> Log:
        """Compute the means by name, `[n]` each."""
        return dict(zip(self.names, self.sums / self.counts, strict=True))


def _take_first_clients(tensors: Mapping[str, Tensor], n: int) -> dict[str, Tensor]:
    return {name: t[:n] for name, t in tensors.items()}
