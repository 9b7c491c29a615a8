"""The feed of a chunk in training, step by step: batches and draws for clients, neither for the base station."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from semcom.engine.host.sending import send_to_device
from semcom.engine.store.population import Cohort, Order, Population
from semcom.engine.train.arena import Arena
from semcom.engine.train.context import Given
from semcom.engine.train.descent import Chunk
from semcom.engine.train.forward import Batch, StackedModel, lay_channels_last
from semcom.engine.train.phase import Phase
from semcom.engine.train.plan import Schedule, pad_clients, select_step
from semcom.engine.train.session import Session


@dataclass(frozen=True)
class Step:
    """The inputs of one step: the mini-batch, the current models, and the step's part of the context."""

    batch: Batch | None
    model: StackedModel
    models: Mapping[str, StackedModel]
    takes: Mapping[str, Batch]
    per_step: Mapping[str, Tensor]


class Feed(Protocol):
    """The steps of a chunk, one after another.

    Attributes:
        steps: S.
        weights: weight of each step in the means of what is logged, float64 `[k, S]`.
        counts: sums of the weights, float64 `[k]`.
        counted: number of clients whose weight is not zero, for each step; known on the host.
        host: what is sent to the device, in nested dicts.
    """

    steps: int
    weights: Tensor
    counts: Tensor
    counted: list[int]
    host: dict[str, Any]

    @property
    def inputs(self) -> dict[str, Any]:
        """The tensors on the device that the steps read, in nested dicts."""
        ...

    def place(self, arena: Arena | None, inputs: Mapping[str, Any]) -> None:
        """Send `host` to the device, in one copy, and go on with `inputs` as they lie in an arena, if there is one."""
        ...

    def active(self, step: int) -> int:
        """Return the number of clients that have not finished before a step."""
        ...

    def shape(self, step: int) -> object:
        """Return a value that is equal for two steps if the same operations carry both out."""
        ...

    def take(self, step: int, on_device: Tensor | None = None) -> Step:
        """Gather the inputs of a step, after the chunk was cut to its active clients.

        With `on_device`, `[1]`, its number is read on the device (see `Schedule.cut`).
        """
        ...


class ClientFeed:
    """The mini-batches of a chunk of clients, with the draws for each."""

    def __init__(self, session: Session, chunk: Chunk, train: tuple[str, ...], given: Given, phase: Phase) -> None:
        draws, ids = session.draws, chunk.ids
        self.session, self.chunk, self.train = session, chunk, train
        plans = [draws.plan(int(k), phase) for k in ids]
        self.schedule = Schedule(plans, recorded=draws.device.type == "cuda")
        self.steps, self.counted = self.schedule.steps, self.schedule.counted
        network, sizes = chunk.cohort.network, [p.sizes for p in plans]
        meters = session.tally.meters["train_up"], session.tally.meters["train_down"]
        self.signals = {"": draws.signals(ids, sizes, phase.draws(), network, train, meters)}
        self.signals |= {name: draws.signals(ids, sizes, phase.draws(name)) for name in given.frozen}
        self.takes = {
            take.name: draws.signals(ids, sizes, phase.draws(take.name), network, train, meters) for take in phase.takes
        }
        orders = {
            take.name: pad_clients([draws.plan(int(k), phase, take.name).order for k in ids])
            for take in phase.takes
            if not take.same
        }
        total = [len(p.order) for p in plans]
        uniforms = {"": draws.uniforms(ids, total, phase.uniforms, phase.draws())} if phase.uniforms else {}
        p = draws.augmentation.numbers
        names = ("", *orders) if p else ()
        augment = {name: draws.uniforms(ids, total, p, "augment", phase.stream, name) for name in names}
        self.host: dict[str, Any] = {"schedule": self.schedule.host, "orders": orders, "uniforms": uniforms}
        self.host["augment"] = augment
        self.host["signals"] = {name: signals.drawn for name, signals in self.signals.items()}
        self.host["takes"] = {name: signals.drawn for name, signals in self.takes.items()}
        self.models = {name: _stack_models(pop, ids) for name, pop in {**given.anchors, **given.frozen}.items()}

    @property
    def inputs(self) -> dict[str, Any]:
        """The tensors on the device that the steps read, in nested dicts."""
        return {"models": {name: c.tensors for name, c in self.models.items()}}

    def place(self, arena: Arena | None, inputs: Mapping[str, Any]) -> None:
        """Send `host` to the device, in one copy, and go on with `inputs` as they lie in an arena, if there is one."""
        draws = self.session.draws
        there = send_to_device(self.host, draws.device) if arena is None else arena.send(self.host, draws.device)
        self.models = {name: replace(c, tensors=inputs["models"][name]) for name, c in self.models.items()}
        self.schedule.place(there["schedule"])
        self.weights, self.counts = self.schedule.weights, there["schedule"]["counts"]
        self.uniforms = there["uniforms"].get("")
        self.augment = there["augment"]
        self.signals = {name: replace(s, drawn=there["signals"][name]) for name, s in self.signals.items()}
        self.takes = {name: replace(s, drawn=there["takes"][name]) for name, s in self.takes.items()}
        owned = draws.federation.train.flat
        orders = {"": self.schedule.order, **there["orders"]}
        into: dict[str, Tensor] = {}
        if arena is not None:
            into = arena.kept.setdefault("orders", {name: torch.empty_like(order) for name, order in orders.items()})
        self.orders = {name: torch.take(owned, order, out=into.get(name)) for name, order in orders.items()}

    def active(self, step: int) -> int:
        """Count the clients that have not finished before a step."""
        return self.schedule.active(step)

    def shape(self, step: int) -> object:
        """Return a value that is equal for two steps if the same operations carry both out."""
        return self.schedule.shape(step)

    def take(self, step: int, on_device: Tensor | None = None) -> Step:
        """Gather the inputs of a step, after the chunk was cut to its active clients."""
        cut, draws, chunk = self.schedule.cut(step, on_device), self.session.draws, self.chunk
        signals = {name: signal(cut) for name, signal in self.signals.items()}
        uniforms = None if self.uniforms is None else cut(self.uniforms)
        augment = {name: cut(numbers) for name, numbers in self.augment.items()}
        same = augment.get("")
        batch = draws.batch(self.orders[""], cut, signals=signals, uniforms=uniforms, augment=same)
        takes = {
            name: draws.batch(
                self.orders.get(name, self.orders[""]), cut, signals={"": signal(cut)}, augment=augment.get(name, same)
            )
            for name, signal in self.takes.items()
        }
        link, autocast = draws.training_link, draws.autocast
        model = chunk.model(self.train, link, autocast)
        if weight := draws.config.train.adversary:
            model = replace(model, adversary=weight)
        models = {
            name: StackedModel(c.network, {}, _cut_own_tensors(c, cut.n), (), link, autocast, name)
            for name, c in self.models.items()
        }
        return Step(batch, model, models, takes, {})


class ServerFeed:
    """The steps of a network of the base station, which trains without clients' data."""

    def __init__(self, chunk: Chunk, train: tuple[str, ...], given: Given, phase: Phase) -> None:
        self.chunk, self.train, self.per_step = chunk, train, given.per_step
        self.steps = next((len(t) for t in given.per_step.values()), phase.steps or 0)
        n = len(chunk.ids)
        self.host = {"weights": np.ones((n, self.steps)), "counts": np.full(n, float(self.steps))}
        self.counted = [n] * self.steps

    @property
    def inputs(self) -> dict[str, Any]:
        """The tensors on the device that the steps read, in nested dicts."""
        return {"per_step": self.per_step}

    def place(self, arena: Arena | None, inputs: Mapping[str, Any]) -> None:
        """Send `host` to the device, in one copy, and go on with `inputs` as they lie in an arena, if there is one."""
        device = self.chunk.cohort.device
        there = send_to_device(self.host, device) if arena is None else arena.send(self.host, device)
        self.weights, self.counts, self.per_step = there["weights"], there["counts"], inputs["per_step"]

    def active(self, step: int) -> int:
        """Count the networks: none finishes before the others."""
        return len(self.chunk.ids)

    def shape(self, step: int) -> object:
        """Return the same value for all steps."""
        return None

    def take(self, step: int, on_device: Tensor | None = None) -> Step:
        """Return the current networks and the step's context; there is no batch."""
        per_step = {name: select_step(t, 0, step, on_device) for name, t in self.per_step.items()}
        return Step(None, self.chunk.model(self.train), {}, {}, per_step)


def _stack_models(pop: Population, ids: np.ndarray) -> Cohort:
    """Stack the models of the clients `ids`, of one architecture, in this order."""
    (cohort,) = pop.select(ids).stacks()
    at = Order(np.searchsorted(cohort.ids, ids), cohort.device)
    tensors = {n: t if n in cohort.shared else lay_channels_last(at(t)) for n, t in cohort.tensors.items()}
    return replace(cohort, tensors=tensors, ids=ids)


def _cut_own_tensors(cohort: Cohort, n: int) -> dict[str, Tensor]:
    """Select the first n clients' own tensors, and all shared tensors."""
    return {name: t if name in cohort.shared else t[:n] for name, t in cohort.tensors.items()}
