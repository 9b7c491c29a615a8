"""Passes over data without training, in evaluation mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from channels import Link, Meter
from semcom.data.federation import Federation, Ragged
from semcom.engine.draws import Draws
from semcom.engine.session import Session
from semcom.engine.store.population import Cohort, Population
from semcom.engine.train.forward import Batch, Signal, StackedModel, channels_last
from semcom.engine.train.plan import Plan, Schedule, batch_sizes
from semcom.engine.train.precision import rounding

EVAL_BATCH = 250
"""The number of images per client and forward pass: enough for full speed, and few enough for a processor's cache."""

Visitor = Callable[[Batch, Tensor, Tensor, Tensor], None]
"""The function `(batch, received features [k, b, d], logits [k, b, C], positions in the population [k])` of a pass."""


@torch.no_grad()
def visit(
    session: Session,
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
    """Show every sample of every client in `pop` to `fn`, through the uplink and in evaluation mode.

    Args:
        session: the run.
        pop: K models.
        table: which samples.
        fn: the visitor.
        stream: names the realisation of the channel.
        snr_db: `[K]` in the order of `pop.ids`, or None: the training SNR of this round.
        link: the link that the features pass (None: the run's).
        meter: meter of the received SNR (None: it is not measured).
        federation: images that `table` indexes (None: the run's).
    """
    draws = session.draws
    source = Source(draws, table, stream, link or draws.link, meter, federation)
    with rounding(draws.config.precision):
        for cohort in pop.cohorts:
            k = session.chunk_of(len(cohort.ids))
            for i in range(0, len(cohort.ids), k):
                some = cohort.select(cohort.ids[i : i + k])
                order = np.argsort(-table.sizes[some.ids], kind="stable")
                where = torch.as_tensor(np.searchsorted(pop.ids, some.ids[order]), device=draws.device)
                snr = draws.snr_db("up", some.ids[order]) if snr_db is None else snr_db[where]
                for batch, features, logits in source.forward(some, order, snr):
                    fn(batch, features, logits, where[: len(features)])


@dataclass(frozen=True)
class Source:
    """The samples of each client that a pass shows; `visit` explains the fields."""

    draws: Draws
    table: Ragged
    stream: str
    link: Link
    meter: Meter | None
    federation: Federation | None

    def forward(self, some: Cohort, order: np.ndarray, snr_db: Tensor) -> Iterator[tuple[Batch, Tensor, Tensor]]:
        """Yield batches, received features and logits of a chunk's clients in `order`, which is most samples first."""
        draws, ids = self.draws, some.ids[order]
        at = torch.as_tensor(order, device=draws.device)
        mine = {n: channels_last(t if n in some.shared else t[at]) for n, t in some.tensors.items()}
        schedule = Schedule([_in_order(self.table[int(client)]) for client in ids])
        sizes = [batch_sizes(len(p.order), draws.config.train.batch_size) for p in schedule.plans]
        drawn = draws.realisation(self.link, ids, sizes, self.stream, "uplink")
        for step in range(schedule.steps):
            cut = schedule.cut(step)
            signal = Signal({n: cut(t) for n, t in drawn.items()}, snr_db[: cut.n], meter=self.meter)
            batch = draws.batch(schedule.order, cut, self.federation, {"": signal})
            tensors = {n: t if n in some.shared else t[: cut.n] for n, t in mine.items()}
            model = StackedModel(some.network, {}, tensors, (), self.link, draws.autocast)
            yield batch, *model(batch)


def _in_order(table: Tensor) -> Plan:
    """Return a plan of a client's samples in their own order, in large batches."""
    return Plan(table, batch_sizes(len(table), EVAL_BATCH), 0)


def share_out(
    session: Session,
    pop: Population,
    table: Ragged,
    fn: Visitor,
    *,
    stream: str,
    snr_db: Tensor | None = None,
    link: Link | None = None,
    meter: Meter | None = None,
) -> None:
    """Visit as `visit` does, but each rank its part of the clients with its own `fn`.

    The positions that `fn` gets are those in all of `pop`.
    """
    mine = session.team.share(table.sizes[pop.ids])[session.team.rank]
    if not len(mine):
        return
    places = torch.as_tensor(mine, device=session.draws.device)

    def placed(batch: Batch, features: Tensor, logits: Tensor, where: Tensor) -> None:
        fn(batch, features, logits, places[where])

    snr = None if snr_db is None else snr_db[places]
    part = pop if len(mine) == len(pop.ids) else pop.narrow(pop.ids[mine])
    visit(session, part, table, placed, stream=stream, snr_db=snr, link=link, meter=meter)
