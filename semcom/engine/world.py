"""The world of a run: its data, its channel, its clock and its randomness. Methods act through it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from channels import Link, Meter, make_link
from channels.meter import ratio_db
from semcom.config import ConfigError, RunConfig, filled, parse_snr, participants, rate_factor
from semcom.data.federation import Federation
from semcom.engine.air import Air, Direction
from semcom.engine.host.clock import Clock
from semcom.engine.host.ranks import ALONE, Team
from semcom.engine.links import build_link
from semcom.engine.random import keyed
from semcom.engine.store.initial import Initial
from semcom.engine.store.population import Population, Prefix, in_part
from semcom.engine.train.chunk import automatic
from semcom.engine.train.descent import Optimizer, Project
from semcom.engine.train.fit import Fit, Gradient, Log, Objective
from semcom.engine.train.forward import Batch, Signal
from semcom.engine.train.phase import Phase, Take
from semcom.engine.train.plan import Cut, Plan, batch_sizes, pad, plan
from semcom.engine.train.precision import autocast_of, dtype_of, rounding
from semcom.models.dropout import Dropout


class World:
    """What a method sees of a run.

    Args:
        config: resolved configuration.
        federation: images and who owns which.
        device: where everything lies.
        split: whether the method trains through the link (its features and gradients are traffic).
        clock: where seconds are added up (None: one that nobody reads).

    Attributes:
        round: the current round, 1 to T (0 during set-up).
        air: exchange and its accounting.
        link: the run's channel, which every inference passes.
        training_link: what local training sees.
        meters: received SNR by "train_up", "train_down" and "test", since they were settled.
        measured: their sums of signal and noise power until then, over all ranks.
        log: per-client means that `fit` reported in this round, name -> `[n]`.
        visited: training samples visited so far.
        team: the processes that share this run's clients.
        chunk: clients trained at once; None: not chosen yet (by `population`).
        clock: seconds by section.
        counting: whether training counts as the run's (see `aside`).
    """

    def __init__(
        self,
        config: RunConfig,
        federation: Federation,
        device: torch.device,
        *,
        split: bool,
        clock: Clock | None = None,
        team: Team = ALONE,
    ) -> None:
        self.config, self.federation, self.device, self.split = config, federation, device, split
        self.clock, self.team = clock or Clock(), team
        self.dtype, self.autocast = dtype_of(config.precision), autocast_of(config.precision)
        self.chunk = None if config.chunk == "auto" else config.chunk
        self.link = build_link(config, log=team.rank == 0)
        self.training_link = self.link if split or config.train.through_link else make_link("ideal")
        self.meters = {name: Meter() for name in ("train_up", "train_down", "test")}
        self.measured = dict.fromkeys(self.meters, (0.0, 0.0))
        self.air = Air(config.air, self.link, self._air_rows, self.snr_db)
        self.round, self.visited, self.counting = 0, 0, True
        self.initial = Initial(config, federation, device)
        self.log: Log = {}

    # -- clients -------------------------------------------------------------------------------------------------

    @property
    def clients(self) -> int:
        """K."""
        return self.config.clients

    def begin(self, round_: int) -> None:
        """Starts a round: the clock of every keyed draw."""
        self.round, self.log = round_, {}
        self.air.begin(participants(self.config))

    def sample(self) -> np.ndarray:
        """Ids of the clients that take part in this round, ascending."""
        n = participants(self.config)
        if n == self.clients:
            return np.arange(n)
        order = torch.randperm(self.clients, generator=keyed("cpu", self.config.seed, "participation", self.round))
        return np.sort(order[:n].numpy())

    def tested(self) -> np.ndarray:
        """Ids of the clients that are evaluated, ascending: all, or one keyed draw, the same in every round."""
        return evaluated(self.config)

    def weights(self, ids: np.ndarray) -> Tensor:
        """p_k = D_k over the sum of D over `ids`, `[n]`."""
        sizes = self.tensor(self.federation.train.sizes[ids]).to(self.dtype)
        return sizes / sizes.sum()

    def owned(self, ids: np.ndarray) -> Tensor:
        """Which classes each client has training samples of, bool `[n, C]`."""
        return self.tensor(self.federation.owned[ids])

    # -- tensors -------------------------------------------------------------------------------------------------

    def zeros(self, *shape: int) -> Tensor:
        """On the run's device, in its precision."""
        return torch.zeros(*shape, dtype=self.dtype, device=self.device)

    def tensor(self, values: Tensor | ArrayLike) -> Tensor:
        """On the run's device; real numbers in its precision, whole ones and truth values as they are."""
        made = values if isinstance(values, Tensor) else torch.as_tensor(np.asarray(values))
        return made.to(self.device, self.dtype if made.is_floating_point() else made.dtype)

    # -- models --------------------------------------------------------------------------------------------------

    def population(self, shared: Prefix = ()) -> Population:
        """The initial models of all clients, a cohort per architecture; parts under `shared` are common to all."""
        cohorts = tuple(self.initial.cohort(name, ids, shared, self.team) for name, ids in self._encoders())
        if self.chunk is None:
            self.chunk = self._choose_chunk([c.network for c in cohorts])
        return Population(cohorts)

    def constant(self, names: Sequence[str], value: float) -> Population:
        """Numbers of each client beside its model: like the tensors `names`, all `value` at first."""
        return Population(tuple(self.initial.constant(e, ids, names, value, self.team) for e, ids in self._encoders()))

    def _encoders(self) -> list[tuple[str, np.ndarray]]:
        """Each encoder that has clients, and their ids."""
        names = self.config.model.encoder.split(",")
        owners = [np.arange(i, self.clients, len(names)) for i in range(len(names))]
        return [(name, ids) for name, ids in zip(names, owners, strict=True) if len(ids)]

    def chunk_of(self, n: int) -> int:
        """Clients to take at a time, of n: as few chunks as need be, of nearly equal size."""
        chunks = -(-n // (self.chunk or n))
        return -(-n // chunks)

    def _choose_chunk(self, networks: Sequence[nn.Module]) -> int:
        """The chunk for all of the networks; the same on every rank."""
        image, batch = self.federation.images.shape[1:], filled(self.config.train.batch_size)
        mine = min(automatic(network, image, batch, self.device, self.dtype.itemsize) for network in networks)
        return max(1, min(self.team.exchange(mine)) // self.team.size)  # at worst they share what is free

    def server(self, factory: Callable[[], nn.Module], name: str) -> Population:
        """A population of one for a network that the base station owns; its weights are keyed by `name`."""
        return self.initial.server(factory, name)

    # -- training ------------------------------------------------------------------------------------------------

    def fit(
        self,
        pop: Population,
        objective: Objective | None = None,
        *,
        gradient: Gradient | None = None,
        train: Prefix = ("encoder.", "head."),
        rows: Mapping[str, Tensor] | None = None,
        anchors: Mapping[str, Population] | None = None,
        frozen: Mapping[str, Population] | None = None,
        shared: Mapping[str, Tensor] | None = None,
        carry: Mapping[str, Tensor] | None = None,
        each: Mapping[str, Tensor] | None = None,
        takes: Sequence[Take] = (),
        uniforms: int = 0,
        fraction: float = 1.0,
        epochs: int | tuple[int, ...] | None = None,
        steps: int | None = None,
        batch: int | None = None,
        optimizer: Optimizer | None = None,
        project: Project | None = None,
        stream: str = "train",
        phase: str = "",
        log: str | None = None,
    ) -> tuple[Population, Log, dict[str, Tensor]]:
        """Trains the clients of a population on their own data, or a network of the base station for some steps.

        Args:
            pop: n models; they are not changed. Parts in training become one row per client.
            objective: `(model, batch, context) -> loss [k]` or `(loss [k], {name: [k]})`.
            gradient: in its place, `(model, batch, context) -> ({leaf: [k, ...]}, {"loss": [k], ...})`: what the
                optimiser descends, for methods with an inner loop.
            train: prefixes of what is trained; the rest is frozen, its BatchNorm in evaluation mode.
            rows: per-client context, `[n, ...]` in the order of `pop.ids`.
            anchors: other models of the clients, for their weights, in `context.models`.
            frozen: the same for models that are called on batches: each has its own draws of the link.
            shared: context for all.
            carry: per-client accumulators, `[n, ...]`; a changed copy is returned.
            each: `[S, ...]`, a row per step: for a network of the base station, which trains without clients' data.
            takes: further mini-batches of each step.
            uniforms: p: numbers in [0, 1) per visited sample, in `batch.uniforms` `[k, b, p]`.
            fraction: part of each client's samples that is visited, drawn by round and stream.
            epochs: local epochs, one value or one per client of the federation (None: `train.local_epochs`).
            steps: number of steps instead of epochs (None: `train.local_steps`, unless epochs are given).
            batch: mini-batch size (None: `train.batch_size`).
            optimizer: None: the run's, new.
            project: what is done to each leaf after every step.
            stream: names the batch order; phases of a round on the same stream visit the same batches.
            phase: names a phase's draws of the link ("": the main one).
            log: what stands before the names of logged values (None: the phase, or a stream that is not "train").

        Returns:
            the trained population, the means of loss and logged values over the last epoch (`[n]` each), the carried.

        Raises:
            Diverged: a loss is not finite.
            RuntimeError: the objective does not use a leaf that is to be trained.
        """
        config = self.config.train
        fit = Fit(
            world=self,
            objective=objective,
            gradient=gradient,
            train=(train,) if isinstance(train, str) else tuple(train),
            rows=rows or {},
            anchors=anchors or {},
            frozen=frozen or {},
            shared=shared or {},
            carry=carry or {},
            each=each or {},
            phase=Phase(
                stream=stream,
                name=phase,
                epochs=epochs if epochs is not None else config.local_epochs or 1,  # unless there are local steps
                steps=steps if steps is not None or epochs is not None else config.local_steps,
                batch=batch or filled(config.batch_size),
                fraction=fraction,
                takes=takes,
                uniforms=uniforms,
            ),
            optimizer=optimizer or self.optimizer(),
            project=project,
        )
        with rounding(self.config.precision):
            trained, means, carried = fit(pop)
        if self.counting:
            before = log if log is not None else phase or ("" if stream == "train" else stream)
            self.log |= {f"{before}/{name}" if before else name: t for name, t in means.items()}
        return trained, means, carried

    def optimizer(
        self,
        *,
        name: Literal["adam", "sgd"] | None = None,
        lr: float | tuple[float, ...] | None = None,
        momentum: float | None = None,
        weight_decay: float | None = None,
    ) -> Optimizer:
        """The run's optimiser in this round, with what is given in place of its own settings.

        The run's schedule scales a rate that is given too. Momentum is SGD's, and stays away from Adam.
        """
        t = self.config.train
        kind = name or filled(t.optimizer)
        factor, rate = rate_factor(t, self.round), filled(t.lr) if lr is None else lr
        scaled = tuple(r * factor for r in rate) if isinstance(rate, tuple) else rate * factor
        momentum = (filled(t.momentum) if kind == "sgd" else 0.0) if momentum is None else momentum
        return Optimizer(kind, scaled, momentum, filled(t.weight_decay) if weight_decay is None else weight_decay)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Within it training is not the run's: no traffic, samples, losses or received SNR are counted."""
        before, self.counting = self.counting, False
        try:
            yield
        finally:
            self.counting = before

    def plan(self, client: int, phase: Phase, take: str = "") -> Plan:
        """A client's batch order in this round, or that of a take."""
        owned = self.federation.train[client]
        stream = "/".join(part for part in (phase.stream, take) if part)
        key = (self.config.seed, stream, "order", self.round, client)
        return plan(owned, phase.sizes(client, len(owned)), phase.samples(len(owned)), key)

    def batch(
        self,
        order: Tensor,
        cut: Cut,
        federation: Federation | None = None,
        signals: Mapping[str, Signal] | None = None,
        uniforms: Tensor | None = None,
    ) -> Batch:
        """The mini-batches of one step, from the world's images unless another federation is given.

        Args:
            order: indices of the images that the clients visit, `[k, N]`.
            cut: the step.
            federation: whose images these are.
            signals: what models meet on the way.
            uniforms: numbers of the step's samples, `[k, b, p]`.
        """
        source = federation or self.federation
        index = cut(order)
        y = source.labels[index]
        y = y if cut.mask is None else y.masked_fill(~cut.mask, 0)
        images = source.gather(index, self.dtype)
        return Batch(images, y, cut.mask, cut.last, len(source.classes), signals or {}, uniforms)

    def signals(
        self,
        ids: np.ndarray,
        sizes: Sequence[Sequence[int]],
        stream: str,
        network: nn.Module | None = None,
        train: Prefix = (),
    ) -> Callable[[Cut], Signal]:
        """What a chunk's samples meet on the way through a model in training, step by step.

        Args:
            ids: the chunk's clients, `[k]`.
            sizes: each client's mini-batches.
            stream: names the draws.
            network: the architecture of a model in training, None for a frozen one: that has no gradients to send
                down, no dropout, and no part in the received SNR.
            train: the parts in training mode.
        """
        link = self.training_link
        up = self.rows(link, ids, sizes, stream, "uplink")
        down = self.rows(link, ids, sizes, stream, "downlink") if self.split and network is not None else None
        keep = {} if network is None else self._kept(ids, sizes, stream, network, train)
        up_snr, down_snr = self.snr_db("up", ids), self.snr_db("down", ids)
        metered = network is not None and self.counting
        meter, down_meter = (self.meters[way] if metered else None for way in ("train_up", "train_down"))

        def signal(cut: Cut) -> Signal:
            n = cut.n
            back = None if down is None else {name: cut(t) for name, t in down.items()}
            drawn = {name: cut(t) for name, t in up.items()}
            kept = {name: cut(t) for name, t in keep.items()}
            return Signal(drawn, up_snr[:n], back, down_snr[:n], meter, down_meter, kept)

        return signal

    def uniforms(self, ids: np.ndarray, samples: Sequence[int], numbers: int, *stream: str) -> Tensor:
        """Keyed numbers in [0, 1) for each visited sample of a chunk: `[k, N, numbers]`, zeros in padding."""
        generators = [keyed(self.device, self.config.seed, *stream, "uniforms", self.round, int(k)) for k in ids]
        return pad(
            [
                torch.rand(n, numbers, generator=g, device=self.device, dtype=self.dtype)
                for n, g in zip(samples, generators, strict=True)
            ]
        )

    def _kept(
        self, ids: np.ndarray, sizes: Sequence[Sequence[int]], stream: str, network: nn.Module, train: Prefix
    ) -> dict[str, Tensor]:
        """What each dropout layer in training keeps of each visited sample, bool `[k, N, ...]`, by its buffer."""
        kept = {}
        for name, layer in network.named_modules():
            if isinstance(layer, Dropout) and layer.p > 0 and in_part(name.partition(".")[0] + ".", train):
                if layer.units is None:  # noted when the network was tried out
                    raise ConfigError(f"model: the dropout {name} is never reached; leave it out")
                drawn = self.uniforms(ids, [sum(s) for s in sizes], math.prod(layer.units), stream, name)
                kept[f"{name}.keep"] = (drawn >= layer.p).unflatten(-1, layer.units)
        return kept

    def rows(
        self, link: Link, ids: np.ndarray, sizes: Sequence[Sequence[int]], stream: str, kind: str
    ) -> dict[str, Tensor]:
        """Realisations of a link for a chunk, one row per visited sample, `[k, N, ...]`.

        `sizes` are each client's mini-batches, in order: a fade of coherence "batch" lasts for one.
        """
        seed, d = self.config.seed, self.config.model.features
        drawn = [
            link.of(int(k)).draw(batches, d, keyed(self.device, seed, stream, kind, self.round, int(k)), self.dtype)
            for k, batches in zip(ids, sizes, strict=True)
        ]
        return {name: pad([rows[name] for rows in drawn]) for name in drawn[0]}

    # -- the air -------------------------------------------------------------------------------------------------

    def snr_db(self, direction: Direction, ids: np.ndarray) -> Tensor:
        """SNR in dB of each client in this round, `[n]`; a range is drawn per client and round."""
        channel = self.config.channel
        text = channel.snr_db
        if channel.downlink_snr_db is None:
            direction = "up"  # the same SNR both ways, also where it is drawn
        elif direction == "down":
            text = channel.downlink_snr_db
        form, values = parse_snr(text, "channel.snr-db")
        if form == "range":
            draws = [self._uniform("snr", direction, self.round, int(k)) for k in ids]
            picked = [values[0] + (values[1] - values[0]) * u for u in draws]
        else:
            picked = [values[0] if len(values) == 1 else values[int(k)] for k in ids]
        return self.tensor(picked)

    def count_features(self, ids: np.ndarray, sizes: Sequence[Sequence[int]]) -> None:
        """Counts the clients' mini-batches, `sizes` of each, and with a split method their traffic."""
        if not self.counting:
            return
        self.visited += sum(map(sum, sizes))
        if self.split:
            self.air.features(ids, sizes, self.config.model.features, len(self.federation.classes))

    def count_uplink(self, ids: np.ndarray) -> None:
        """Counts an extra pass of the clients' training features over the uplink."""
        batch = filled(self.config.train.batch_size)
        sizes = [batch_sizes(int(n), batch) for n in self.federation.train.sizes[ids]]
        self.air.features(ids, sizes, self.config.model.features, len(self.federation.classes), back=False)

    def settle(self) -> None:
        """Adds what all ranks measured on the air since the last time; waits for the device, so once a round."""
        sums = [m.take(self.device) for m in self.meters.values()]
        for name, (signal, noise) in zip(self.meters, self.team.sum(torch.stack(sums)).tolist(), strict=True):
            before = self.measured[name]
            self.measured[name] = (before[0] + signal, before[1] + noise)

    def snr_received_db(self) -> dict[str, float]:
        """Received SNR in dB so far, by meter; nan where nothing was sent."""
        return {name: ratio_db(*sums) for name, sums in self.measured.items()}

    def counters(self) -> dict[str, Any]:
        """What has been counted and measured so far, as plain numbers."""
        self.settle()
        meters = {name: list(sums) for name, sums in self.measured.items()}
        chosen = {"chunk": self.chunk or 0, "chosen_for_cuda": int(self.device.type == "cuda")}
        return {"visited": self.visited, **chosen, "air": self.air.counters(), "meters": meters}

    def resume(self, counters: Mapping[str, Any]) -> None:
        """Goes on from `counters`."""
        self.visited = counters["visited"]
        self.air.resume(counters["air"])
        self.measured = {name: (signal, noise) for name, (signal, noise) in counters["meters"].items()}
        if self.config.chunk == "auto" and counters["chosen_for_cuda"] == (self.device.type == "cuda"):
            self.chunk = counters["chunk"]  # with another one, sums would be rounded differently

    def _uniform(self, *key: object) -> float:
        """A keyed number in [0, 1), drawn on the host."""
        return float(torch.rand((), generator=keyed("cpu", self.config.seed, *key), dtype=torch.float64))

    def _air_rows(self, kind: str, name: str, client: int, numbers: int) -> dict[str, Tensor]:
        """Realisation of the channel for one tensor of one client."""
        generator = keyed(self.device, self.config.seed, "air", kind, self.round, client, name)
        return self.link.of(client).draw([1], numbers, generator, self.dtype)


def evaluated(config: RunConfig) -> np.ndarray:
    """Ids of the clients that a run evaluates, ascending."""
    n = config.train.eval_clients
    if n is None:
        return np.arange(config.clients)
    order = torch.randperm(config.clients, generator=keyed("cpu", config.seed, "evaluation"))
    return np.sort(order[:n].numpy())
