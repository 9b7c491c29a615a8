"""Passes over data without training, in evaluation mode.

No encoder sees an image twice: models that have it in common, and several SNRs, share its features, and an encoder that
all clients share runs over distinct images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

import numpy as np
import torch
from torch import Tensor

from semcom.channels import Link, Meter
from semcom.data.federation import Federation, Ragged
from semcom.engine.host.ranks import Team
from semcom.engine.host.sending import send_to_device
from semcom.engine.store.population import AnyCohort, Cohort, Order, Population, in_part, merge_alike
from semcom.engine.train.draws import Draws
from semcom.engine.train.forward import Batch, Signal, StackedModel, lay_channels_last
from semcom.engine.train.known import ENCODER, Known, find_encoder_twins, find_known_features, list_known_entries
from semcom.engine.train.plan import Cut, Plan, Schedule, plan_batch_sizes
from semcom.engine.train.precision import set_precision
from semcom.engine.train.session import Session

EVAL_BATCH = 125
"""The number of images per client and forward pass: within 5 % of full speed on a processor, where activations of more
than 32 MiB cost twice the time, since the C library gives them back to the system (125 x 64 x 32 x 32 are less)."""
ACCELERATED = 8
"""Times as many distinct images go through an encoder at once on an accelerator, which has no other client beside."""
LINKED = 1000
"""The number of images, of several clients, that pass the link and the heads at once where no encoder has to work."""

Visitor = Callable[[Batch, Tensor, Tensor, Tensor], None]
"""The function `(batch, received features [k, b, d], logits [k, b, C], positions in the population [k])` of a pass."""


@dataclass(frozen=True)
class Outputs:
    """A batch of each of k clients after its way through the models of one population, at one SNR.

    Attributes:
        name: of the population.
        test: position of the SNR among those of the pass.
        batch: labels and padding, without images (`x` is `[k, b, 0]`) if their features were known.
        raw: features before the link, `[k, b, d]`.
        features: features as received, `[k, b, d]`.
        logits: `[k, b, C]`.
        where: positions of the clients in the population, `[k]`.
        at: positions of the samples in all lists of the pass, back to back, `[k, b]`.
        federation: source of the samples.
        index: indices of its images, `[k, b]`.
        answers: views' answers so far, by the `id` of the view.
    """

    name: str
    test: int
    batch: Batch
    raw: Tensor
    features: Tensor
    logits: Tensor
    where: Tensor
    at: Tensor
    federation: Federation
    index: Tensor
    answers: dict[int, Tensor] = field(default_factory=dict)


def visit_clients(
    session: Session,
    pop: Population,
    table: Ragged,
    fn: Visitor,
    *,
    stream: str,
    snr_db: float | None = None,
    link: Link | None = None,
    meter: Meter | None = None,
) -> None:
    """Run inference on all samples of the clients in `pop`, as `infer_on_visit` with one population and one SNR."""

    def shown(heard: Outputs) -> None:
        fn(heard.batch, heard.features, heard.logits, heard.where)

    meters = None if meter is None else (meter,)
    infer_on_visit(session, {"": pop}, table, shown, stream=stream, snrs_db=(snr_db,), link=link, meters=meters)


@torch.no_grad()
def infer_on_visit(
    session: Session,
    pops: Mapping[str, Population],
    table: Ragged,
    fn: Callable[[Outputs], None],
    *,
    stream: str,
    snrs_db: Sequence[float | None] = (None,),
    link: Link | None = None,
    meters: Sequence[Meter | None] | None = None,
    federation: Federation | None = None,
) -> None:
    """Run inference on every sample of every client, and pass each batch to `fn`.

    Samples go through the models of each population, and through the uplink at each SNR.

    Each rank shows its part of the clients to its own `fn`. The realisation of the channel is the same for all
    populations and SNRs.

    Args:
        session: the run.
        pops: populations by name.
        table: lists of samples, one per client of the run.
        fn: the visitor.
        stream: names the realisation of the channel.
        snrs_db: SNR of all clients, in each test (None: each client's training SNR of this round).
        link: the link for the features (None: the run's).
        meters: of the received SNR in each test (None: not measured); shared features count once.
        federation: images that `table` indexes (None: the run's).
    """
    draws = session.draws
    source = Source(draws, table, stream, link or draws.link, meters, federation or draws.federation)
    mine = {name: _share_clients(session.team, pop, table) for name, pop in pops.items()}
    with set_precision(draws.config.precision):
        for cohorts in _list_groups(mine):
            shared = source.known(cohorts)
            everyone = next(iter(cohorts.values())).ids
            k = session.chunk_of(len(everyone))
            if shared.keys() == cohorts.keys():  # only the link and the heads are left to do
                k = max(k, LINKED // max(1, int(table.sizes[everyone].mean())))
            for i in range(0, len(everyone), k):
                ids = everyone[i : i + k]
                ids = ids[np.argsort(-table.sizes[ids], kind="stable")]
                models = Models({name: cohort.select(ids) for name, cohort in cohorts.items()}, shared)
                where = send_to_device({name: np.searchsorted(pops[name].ids, ids) for name in cohorts}, draws.device)
                for heard in source.heard(models, ids, where, snrs_db):
                    fn(heard)


class Models:
    """The models of a chunk of clients in several populations.

    Args:
        cohorts: the chunk's clients in each population.
        shared: features by encoders that are known already.

    Attributes:
        source: each population's first population with an equal encoder, which works for it.
    """

    def __init__(self, cohorts: Mapping[str, Cohort], shared: Mapping[str, Known]) -> None:
        self.cohorts, self.shared = cohorts, shared
        own = find_encoder_twins({name: cohort for name, cohort in cohorts.items() if name not in shared})
        self.source = {name: own.get(name, name) for name in cohorts}
        for name, features in shared.items():
            self.source[name] = next(other for other, of in shared.items() if of is features)

    @property
    def encoding(self) -> list[str]:
        """The populations whose encoders have to see the images."""
        return [name for name in dict.fromkeys(self.source.values()) if name not in self.shared]

    def stacks(self, ids: np.ndarray) -> dict[str, dict[str, Tensor]]:
        """Stack the tensors in use, with the clients in the order `ids`, by population."""
        encoding, found = self.encoding, dict[str, dict[str, Tensor]]()
        for name, cohort in self.cohorts.items():
            order = Order(np.searchsorted(cohort.ids, ids), cohort.device)
            needed = {n: t for n, t in cohort.tensors.items() if name in encoding or not in_part(n, ENCODER)}
            found[name] = {n: lay_channels_last(t if n in cohort.shared else order(t)) for n, t in needed.items()}
        return found


@dataclass(frozen=True)
class Source:
    """The samples of a pass and their signals; `infer_on_visit` explains the fields."""

    draws: Draws
    table: Ragged
    stream: str
    link: Link
    meters: Sequence[Meter | None] | None
    federation: Federation

    def heard(
        self, models: Models, ids: np.ndarray, where: Mapping[str, Tensor], snrs_db: Sequence[float | None]
    ) -> Iterator[Outputs]:
        """Yield the outputs of each batch of a chunk's clients `ids`, most samples first, who are at `where`."""
        draws, stacks = self.draws, models.stacks(ids)
        schedule = Schedule([self._in_order(int(client)) for client in ids])
        sizes = [plan_batch_sizes(len(p.order), draws.config.train.batch_size) for p in schedule.plans]
        drawn = draws.realisation(self.link, ids, sizes, self.stream, "uplink", alike=None not in snrs_db)
        snr_db = torch.stack([self._snr(snr, ids) for snr in snrs_db])
        there = send_to_device({"schedule": schedule.host, "drawn": drawn, "snr_db": snr_db}, draws.device)
        schedule.place(there["schedule"])
        drawn, snrs, sources = there["drawn"], there["snr_db"].unbind(0), dict.fromkeys(models.source.values())
        for step in range(schedule.steps):
            cut = schedule.cut(step)
            at = cut(schedule.order)
            index = self.table.flat[at]
            batch = self._batch(index, cut, bool(models.encoding))
            active = {name: self._model(models.cohorts[name], tensors, cut.n) for name, tensors in stacks.items()}
            realised = {name: cut(t) for name, t in drawn.items()}
            for test, snr in enumerate(snrs):
                meter = None if self.meters is None else self.meters[test]
                met = replace(batch, signals={"": Signal(realised, snr[: cut.n], meter=meter)})
                if test == 0 or draws.config.model.snr_input:  # otherwise encoders see nothing of the test's SNR
                    raw = {name: active[name].encode(met) for name in models.encoding}
                    raw |= {name: features(self.table.flat[at]) for name, features in models.shared.items()}
                received = {name: active[name].receive(raw[name], met) for name in sources}
                for name, source in models.source.items():
                    logits = active[name].decode(received[source], met)
                    passed = raw[source], received[source], logits
                    yield Outputs(name, test, met, *passed, where[name][: cut.n], at, self.federation, index)

    def known(self, cohorts: Mapping[str, AnyCohort]) -> dict[str, Known]:
        """Compute the features of distinct images by the encoders that all clients of a cohort share."""
        ids, draws = next(iter(cohorts.values())).ids, self.draws
        if draws.config.model.snr_input:
            return {}
        bytes_each = draws.config.model.features * draws.dtype.itemsize
        total = len(self.federation.images)
        return find_known_features(
            cohorts, lambda: list_known_entries(self.table, ids), self._encoded, total, bytes_each
        )

    def _encoded(self, first: Cohort, images: Tensor) -> Tensor:
        """Encode images by the encoder of one client: `[n] -> [n, d]`."""
        model = self._model(first, {n: lay_channels_last(t) for n, t in first.tensors.items()}, 1)
        rows = torch.empty(len(images), self.draws.config.model.features, dtype=self.draws.dtype, device=images.device)
        last = torch.ones(1, dtype=torch.bool, device=images.device)
        size = EVAL_BATCH * (1 if images.device.type == "cpu" else ACCELERATED)
        for i in range(0, len(images), size):
            some = images[None, i : i + size]
            x, y = self.federation.gather(some, self.draws.dtype), self.federation.labels[some]
            rows[i : i + size] = model.encode(Batch(x, y, None, last, len(self.federation.classes)))[0]
        return rows

    def _model(self, cohort: Cohort, tensors: Mapping[str, Tensor], n: int) -> StackedModel:
        active = {name: t if name in cohort.shared else t[:n] for name, t in tensors.items()}
        return StackedModel(cohort.network, {}, active, (), self.link, self.draws.autocast)

    def _snr(self, snr_db: float | None, ids: np.ndarray) -> Tensor:
        """Look up the SNR of each client in a test, `[k]` on the host."""
        if snr_db is None:
            return self.draws.snr_db("up", ids)
        return torch.full((len(ids),), snr_db, dtype=self.draws.dtype)

    def _batch(self, index: Tensor, cut: Cut, images: bool) -> Batch:
        """Gather some samples, with or without their images."""
        source = self.federation
        y = source.labels[index]
        y = y if cut.mask is None else y.masked_fill(~cut.mask, 0)
        dtype = self.draws.dtype
        x = source.gather(index, dtype) if images else torch.empty(*index.shape, 0, dtype=dtype, device=index.device)
        draws, classes = self.draws, len(source.classes)
        return Batch(x, y, cut.mask, cut.last, classes, task=draws.task, answers=draws.answers(source, index))

    def _in_order(self, client: int) -> Plan:
        """Plan a client's samples in their own order, in large batches; they are positions in the lists."""
        start, stop = (int(offset) for offset in self.table.offsets[client : client + 2])
        return Plan(torch.arange(start, stop), plan_batch_sizes(stop - start, EVAL_BATCH), 0)


def _share_clients(team: Team, pop: Population, table: Ragged) -> Population:
    if team.size == 1:
        return pop
    return pop.narrow(pop.ids[team.share(table.sizes[pop.ids])[team.rank]])


def _list_groups(pops: Mapping[str, Population]) -> Iterator[Mapping[str, AnyCohort]]:
    """Yield cohorts of the same encoder architecture and clients, by population; their heads may differ.

    Clients who have one model in each population, as those that have not trained yet, are a group of their own, in
    which no image is encoded twice.
    """
    groups: dict[tuple[int, bytes], dict[str, AnyCohort]] = {}
    for name, pop in pops.items():
        for cohort in pop.cohorts:
            if len(cohort.ids):
                encoder = cohort.network.get_submodule("encoder")
                groups.setdefault((id(encoder), cohort.ids.tobytes()), {})[name] = cohort
    for cohorts in groups.values():
        everyone = next(iter(cohorts.values())).ids
        alike = reduce(np.intersect1d, (cohort.list_alike() for cohort in cohorts.values()))
        others = np.setdiff1d(everyone, alike, assume_unique=True)
        if len(alike):
            yield {name: merge_alike(cohort, alike) for name, cohort in cohorts.items()}
        if len(others):
            yield {name: cohort.narrow(others) for name, cohort in cohorts.items()}
