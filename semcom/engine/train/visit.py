"""Passes over data without training: evaluation, prototypes, embeddings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from channels import Link, Meter
from semcom.config import ConfigError, filled
from semcom.data.federation import Federation, Ragged
from semcom.engine.store.population import Cohort, Population
from semcom.engine.train.forward import Batch, Signal, StackedModel, channels_last
from semcom.engine.train.plan import Plan, Schedule, batch_sizes
from semcom.engine.train.precision import rounding

if TYPE_CHECKING:
    from semcom.engine.world import World

EVAL_BATCH = 250
"""Images per client and forward pass; large enough for full speed, small enough for a processor's cache."""

Scores = Callable[[Tensor, Tensor, Mapping[str, Tensor]], Tensor]
"""`(received features [k, b, d], logits [k, b, C], rows) -> scores [k, b, C]`; the largest one is the answer."""


@dataclass(frozen=True)
class View:
    """A way to use what a method trained: a population and, where it is not the head's logits, how it decides.

    Attributes:
        population: the models, K rows.
        scores: the decision (None: the logits).
        rows: per-client context of `scores`, `[K, ...]` each, in the order of `population.ids`.
    """

    population: Population
    scores: Scores | None = None
    rows: Mapping[str, Tensor] = field(default_factory=dict)

    def decide(self, features: Tensor, logits: Tensor, where: Tensor) -> Tensor:
        """Predicted classes `[k, b]` of the clients at positions `where`."""
        if self.scores is None:
            return logits.argmax(-1)
        return self.scores(features, logits, {n: t[where] for n, t in self.rows.items()}).argmax(-1)


Visitor = Callable[[Batch, Tensor, Tensor, Tensor], None]
"""`(batch, received features [k, b, d], logits [k, b, C], positions in the population [k])`."""


@torch.no_grad()
def visit(
    world: World,
    pop: Population,
    table: Ragged,
    fn: Visitor,
    *,
    stream: str,
    snr_db: Tensor | None = None,
    link: Link | None = None,
    meter: Meter | None = None,
    federation: Federation | None = None,
) -> None:
    """Shows every sample of every client in `pop`, through the uplink, in evaluation mode, to `fn`.

    Args:
        world: the run.
        pop: K models.
        table: which samples.
        fn: the visitor.
        stream: names the realisation of the channel.
        snr_db: `[K]` in the order of `pop.ids`, or None: the training SNR of this round.
        link: None: the run's.
        meter: where the received SNR is measured, if at all.
        federation: whose images `table` indexes (None: the world's).
    """
    source = Source(world, table, stream, link or world.link, meter, federation)
    with rounding(world.config.precision):
        for cohort in pop.cohorts:
            k = world.chunk_of(len(cohort.ids))
            for i in range(0, len(cohort.ids), k):
                rows = cohort.rows(cohort.ids[i : i + k])
                order = np.argsort(-table.sizes[rows.ids], kind="stable")
                where = torch.as_tensor(np.searchsorted(pop.ids, rows.ids[order]), device=world.device)
                snr = world.snr_db("up", rows.ids[order]) if snr_db is None else snr_db[where]
                for batch, features, logits in source.forward(rows, order, snr):
                    fn(batch, features, logits, where[: len(features)])


@dataclass(frozen=True)
class Source:
    """What a pass shows of each client; see `visit`."""

    world: World
    table: Ragged
    stream: str
    link: Link
    meter: Meter | None
    federation: Federation | None

    def forward(self, rows: Cohort, order: np.ndarray, snr_db: Tensor) -> Iterator[tuple[Batch, Tensor, Tensor]]:
        """Batches, received features and logits of the clients at `order` in a chunk, those with most samples first."""
        world, ids = self.world, rows.ids[order]
        at = torch.as_tensor(order, device=world.device)
        mine = {n: channels_last(t if n in rows.shared else t[at]) for n, t in rows.tensors.items()}
        schedule = Schedule([_in_order(self.table[int(client)]) for client in ids])
        sizes = [batch_sizes(len(p.order), filled(world.config.train.batch_size)) for p in schedule.plans]
        drawn = world.rows(self.link, ids, sizes, self.stream, "uplink")
        for step in range(schedule.steps):
            cut = schedule.cut(step)
            signal = Signal({n: cut(t) for n, t in drawn.items()}, snr_db[: cut.n], meter=self.meter)
            batch = world.batch(schedule.order, cut, self.federation, {"": signal})
            tensors = {n: t if n in rows.shared else t[: cut.n] for n, t in mine.items()}
            model = StackedModel(rows.network, {}, tensors, (), self.link, world.autocast)
            yield batch, *model(batch)


def _in_order(table: Tensor) -> Plan:
    """A client's samples as they lie, in large batches."""
    return Plan(table, batch_sizes(len(table), EVAL_BATCH), 0)


def confusion(world: World, views: Mapping[str, View], snr_db: float | None, table: Ragged) -> dict[str, Tensor]:
    """Counts of (true, predicted) classes per view and client, int64 `[K, C, C]`.

    Views of one population share its forward passes (and so the realisation of the channel).

    Args:
        world: the run.
        views: what to test.
        snr_db: test SNR of all clients, or None: their training SNR.
        table: which samples, usually `world.federation.test`.
    """
    c = len(world.federation.classes)
    counts = {
        n: torch.zeros(len(v.population.ids), c * c, dtype=torch.int64, device=world.device) for n, v in views.items()
    }
    groups: dict[int, list[str]] = {}
    for name, view in views.items():
        groups.setdefault(id(view.population), []).append(name)
    for names in groups.values():

        def count(batch: Batch, features: Tensor, logits: Tensor, where: Tensor, names: list[str] = names) -> None:
            for name in names:
                cell = batch.y * c + views[name].decide(features, logits, where)
                counts[name][where] = counts[name][where].scatter_add(1, cell, batch.weight.to(torch.int64))

        pop = views[names[0]].population
        fixed = None if snr_db is None else torch.full((len(pop.ids),), snr_db, device=world.device, dtype=world.dtype)
        share_out(world, pop, table, count, stream="test", snr_db=fixed, meter=world.meters["test"])
    return {name: world.team.sum(t).view(-1, c, c) for name, t in counts.items()}


def share_out(
    world: World,
    pop: Population,
    table: Ragged,
    fn: Visitor,
    *,
    stream: str,
    snr_db: Tensor | None = None,
    link: Link | None = None,
    meter: Meter | None = None,
) -> None:
    """`visit`, with each rank showing its part of the clients to its `fn`; positions are those in all of `pop`."""
    mine = world.team.share(table.sizes[pop.ids])[world.team.rank]
    if not len(mine):
        return
    places = torch.as_tensor(mine, device=world.device)

    def placed(batch: Batch, features: Tensor, logits: Tensor, where: Tensor) -> None:
        fn(batch, features, logits, places[where])

    snr = None if snr_db is None else snr_db[places]
    part = pop if len(mine) == len(pop.ids) else pop.part(pop.ids[mine])
    visit(world, part, table, placed, stream=stream, snr_db=snr, link=link, meter=meter)


@torch.no_grad()
def predict(world: World, view: View, client: int, images: Tensor, snr_db: float | None) -> Tensor:
    """Classes that a client's model gives to uint8 images `[b, channels, 32, 32]`, through the channel: int64 `[b]`.

    Raises ConfigError for images of another shape or type, or a client that has no model in the view.
    """
    shape = tuple(world.federation.images.shape[1:])
    if images.dtype != torch.uint8 or tuple(images.shape[1:]) != shape:
        raise ConfigError(
            f"images: {images.dtype} {tuple(images.shape)} is not uint8 [b, {', '.join(map(str, shape))}]"
        )
    ids = view.population.ids
    if client not in ids:
        raise ConfigError(f"client: there is no model of client {client}; there are {len(ids)}, {ids[0]} to {ids[-1]}")
    n = len(images)
    guest = replace(
        world.federation,
        images=images.to(world.device),
        labels=torch.zeros(n, dtype=torch.int64, device=world.device),
    )
    table = Ragged(torch.arange(n, device=world.device), np.where(np.arange(world.clients + 1) > client, n, 0))
    one = view.population.rows(np.array([client]))
    answers = [torch.zeros(1, 0, dtype=torch.int64, device=world.device)]  # what no image at all gives

    def note(batch: Batch, features: Tensor, logits: Tensor, where: Tensor) -> None:
        answers.append(
            view.decide(features, logits, torch.as_tensor([np.searchsorted(ids, client)], device=world.device))
        )

    snr = None if snr_db is None else torch.full((1,), snr_db, device=world.device, dtype=world.dtype)
    visit(world, one, table, note, snr_db=snr, stream="predict", federation=guest)
    return torch.cat(answers, 1)[0].cpu()
