"""The world of a run: its data, its channel, its clock and its randomness. Methods act through it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.dropout import _DropoutNd

from channels import Link, Meter, make_link
from channels.meter import ratio_db
from semcom.config import ConfigError, RunConfig, filled, parse_snr, participants
from semcom.data.federation import Federation
from semcom.engine.air import Air, Direction
from semcom.engine.chunk import automatic
from semcom.engine.clock import Clock
from semcom.engine.fit import Fit, Log, Objective, Optimizer
from semcom.engine.forward import Batch, Signal
from semcom.engine.memory import SHARE, free_memory
from semcom.engine.plan import Cut, Plan, Schedule, batch_sizes, pad, plan
from semcom.engine.population import Cohort, Population, Prefix, Resting, in_part
from semcom.engine.precision import autocast_of, dtype_of, rounding
from semcom.engine.random import build, global_draws, keyed
from semcom.engine.ranks import ALONE, Team
from semcom.engine.rows import Disk, Layout, Memory, Rows, Shelf
from semcom.links import build_link
from semcom.models.own import own_layers
from semcom.models.split import SplitModel
from semcom.registry import ENCODERS, HEADS

M = TypeVar("M", bound=nn.Module)


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
        self.clock, self.team, self.shelves = clock or Clock(), team, 0
        self.dtype, self.autocast = dtype_of(config.precision), autocast_of(config.precision)
        self.chunk = None if config.chunk == "auto" else config.chunk
        self.link = build_link(config, log=team.rank == 0)
        self.training_link = self.link if split or config.train.through_link else make_link("ideal")
        self.meters = {name: Meter() for name in ("train_up", "train_down", "test")}
        self.measured = dict.fromkeys(self.meters, (0.0, 0.0))
        self.air = Air(config.air, self.link, self._air_rows, self.snr_db)
        self.round, self.visited = 0, 0
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

    def weights(self, ids: np.ndarray) -> Tensor:
        """p_k = D_k over the sum of D over `ids`, `[n]`."""
        sizes = torch.as_tensor(self.federation.train.sizes[ids], dtype=self.dtype, device=self.device)
        return sizes / sizes.sum()

    def owned(self, ids: np.ndarray) -> Tensor:
        """Which classes each client has training samples of, bool `[n, C]`."""
        return torch.as_tensor(self.federation.owned[ids], device=self.device)

    # -- models --------------------------------------------------------------------------------------------------

    def population(self, shared: Prefix = ()) -> Population:
        """The initial models of all clients, a cohort per architecture; parts under `shared` are common to all."""
        names = self.config.model.encoder.split(",")
        cohorts = []
        for i, name in enumerate(names):
            ids = np.arange(i, self.clients, len(names))
            if len(ids):
                cohorts.append(self._cohort(name, ids, shared))
        if self.chunk is None:
            self.chunk = self._choose_chunk([c.network for c in cohorts])
        return Population(tuple(cohorts))

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
        tensors = _tensors(build(factory, self.config.seed, "init", name), self.dtype)
        rows = {n: t.unsqueeze(0).to(self.device) for n, t in tensors.items()}
        return Population((Cohort(_template(factory), rows, np.array([0])),))

    def _cohort(self, encoder: str, ids: np.ndarray, shared: Prefix) -> Resting:
        """Initial models of the clients `ids`, which have the same encoder."""
        model, channels, classes = self.config.model, self.federation.images.shape[1], len(self.federation.classes)
        factories: dict[str, Callable[[], nn.Module]] = {
            "encoder.": lambda: own_layers(ENCODERS.get(encoder)(channels, model.features)),
            "head.": lambda: own_layers(HEADS.get(model.head)(model.features, classes)),
        }
        names = {"encoder.": encoder, "head.": model.head}
        network = _template(lambda: SplitModel(factories["encoder."](), factories["head."]()))

        def start(part: str, client: int) -> dict[str, Tensor]:
            """A part's initial tensors: one build for all where the start is common, or the part is."""
            own = model.init == "client" and not in_part(part, shared)
            key = (part, names[part], *((client,) if own else ()))
            tensors = _tensors(build(factories[part], self.config.seed, "init", *key), self.dtype)
            return {part + name: t.to(self.device) for name, t in tensors.items()}

        def record(client: int) -> Tensor:
            row = {n: t[None] for part in own_parts for n, t in start(part, client).items()}
            return layout.pack(row, 1)[0]

        first = {part: start(part, int(ids[0])) for part in factories}
        tried = {name: t for row in first.values() for name, t in row.items()}
        _check_network(network, tried, self.federation.images.shape[1:], model.features, classes)
        own_parts = [part for part in factories if not in_part(part, shared)]
        layout = Layout.of({n: t for part in own_parts for n, t in first[part].items()})
        common = {n: t[None] for part in factories if part not in own_parts for n, t in first[part].items()}
        once = record(int(ids[0])) if own_parts else torch.empty(0, dtype=torch.uint8, device=self.device)
        initial = record if own_parts and model.init == "client" else lambda client: once
        return Resting(network, Rows(layout, self._shelf(layout.size), initial), common, ids, self.device)

    def _shelf(self, size: int) -> Shelf:
        """Where a cohort's records of `size` bytes lie: where those that can be alive at once fit first."""
        store = self.config.store
        self.shelves += 1  # in memory too: a cohort's file has the same name wherever the others lie
        if store == "auto":
            turns = filled(self.config.train.rounds) * participants(self.config)
            # A checkpoint's version and the newest one, in each process: at worst all of them are on one machine.
            alive = 2 * size * min(self.clients, turns) * self.team.size
            places = {"device": self.device, "host": torch.device("cpu")}
            room = {name: free_memory(place) / SHARE for name, place in places.items()}
            store = next((name for name, bytes_ in room.items() if alive <= bytes_), "disk")
        if store == "disk":
            folder = None if self.config.out is None else Path(self.config.out)
            path = folder / f"rows-{self.shelves}.bin" if folder is not None and self.team.rank == 0 else None
            return Disk(size, path, folder)
        return Memory(self.device if store == "device" else torch.device("cpu"))

    # -- training ------------------------------------------------------------------------------------------------

    def fit(
        self,
        pop: Population,
        objective: Objective,
        *,
        train: Sequence[str] = ("encoder.", "head."),
        rows: Mapping[str, Tensor] | None = None,
        shared: Mapping[str, Tensor] | None = None,
        carry: Mapping[str, Tensor] | None = None,
        epochs: int | tuple[int, ...] | None = None,
        steps: int | None = None,
        batch: int | None = None,
        optimizer: Optimizer | None = None,
        stream: str = "train",
    ) -> tuple[Population, Log, dict[str, Tensor]]:
        """Trains the clients of a population on their own data (a network without input: for `steps` steps).

        Args:
            pop: n models; they are not changed. Parts in training become one row per client.
            objective: `(model, batch, context) -> loss [k]` or `(loss [k], {name: [k]})`.
            train: prefixes of what is trained; the rest is frozen, its BatchNorm in evaluation mode.
            rows: per-client context, `[n, ...]` in the order of `pop.ids`.
            shared: context for all.
            carry: per-client accumulators, `[n, ...]`; a changed copy is returned.
            epochs: local epochs, one value or one per client of the federation (None: `train.local_epochs`).
            steps: number of steps instead of epochs.
            batch: mini-batch size (None: `train.batch_size`).
            optimizer: None: the run's, new.
            stream: names the draws; phases of a round with the same stream start the same batch order again.

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
            train=tuple(train),
            rows=rows or {},
            shared=shared or {},
            carry=carry or {},
            epochs=epochs if epochs is not None else filled(config.local_epochs),
            steps=steps,
            batch=batch or filled(config.batch_size),
            optimizer=optimizer or self.optimizer(),
            stream=stream,
        )
        with rounding(self.config.precision):
            trained, log, carried = fit(pop)
        self.log |= {name if stream == "train" else f"{stream}/{name}": t for name, t in log.items()}
        return trained, log, carried

    def optimizer(self) -> Optimizer:
        """The run's optimiser."""
        t = self.config.train
        return Optimizer(filled(t.optimizer), filled(t.lr), filled(t.momentum), filled(t.weight_decay))

    def plan(self, client: int, batch: int, epochs: int, steps: int | None, stream: str) -> Plan:
        """A client's batch order in this round."""
        key = (self.config.seed, stream, "order", self.round, client)
        return plan(self.federation.train[client], batch, epochs, steps, key)

    def batch(self, schedule: Schedule, cut: Cut, federation: Federation | None = None) -> Batch:
        """The mini-batches of one step, from the world's images unless another federation is given."""
        source = federation or self.federation
        index = cut(schedule.order)
        y = source.labels[index]
        y = y if cut.mask is None else y.masked_fill(~cut.mask, 0)
        return Batch(source.gather(index, self.dtype), y, cut.mask, cut.last, len(source.classes))

    def signals(self, ids: np.ndarray, schedule: Schedule, stream: str) -> Callable[[Cut], Signal]:
        """What the chunk meets on the air in training, step by step."""
        link, sizes = self.training_link, [p.sizes for p in schedule.plans]
        up = self.rows(link, ids, sizes, stream, "uplink")
        down = self.rows(link, ids, sizes, stream, "downlink") if self.split else None
        up_snr, down_snr = self.snr_db("up", ids), self.snr_db("down", ids)

        def signal(cut: Cut) -> Signal:
            n, meters = cut.n, (self.meters["train_up"], self.meters["train_down"])
            back = None if down is None else {name: cut(t) for name, t in down.items()}
            return Signal({name: cut(t) for name, t in up.items()}, up_snr[:n], back, down_snr[:n], *meters)

        return signal

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
        return torch.tensor(picked, dtype=self.dtype, device=self.device)

    def count_features(self, ids: np.ndarray, sizes: Sequence[Sequence[int]]) -> None:
        """Counts the clients' mini-batches, `sizes` of each, and with a split method their traffic."""
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


def _template(factory: Callable[[], M]) -> M:
    """The architecture alone: on the meta device, so that a forgotten tensor is an error and not a stale weight."""
    with torch.device("meta"), global_draws("template"):
        return factory()


def _tensors(module: nn.Module, dtype: torch.dtype) -> dict[str, Tensor]:
    """Parameters and buffers of a fresh module in the run's arithmetic."""
    return {n: t.detach().to(dtype) if t.is_floating_point() else t for n, t in module.state_dict().items()}


def _check_network(
    network: SplitModel, tensors: Mapping[str, Tensor], image: torch.Size, features: int, classes: int
) -> None:
    """Raises ConfigError for a network that the engine cannot run; it is tried out on two images.

    On real ones: BatchNorm on the meta device would import torch's compiler, which takes seconds.
    """
    for layer in network.modules():
        if isinstance(layer, _DropoutNd):
            # Its draws would come from torch's global generator: neither reproducible nor the same in chunks.
            raise ConfigError(f"model: the engine does not key the draws of {type(layer).__name__}; take nn.Dropout")
    kept = network.state_dict()
    for name, _ in network.named_buffers():
        if name not in kept:
            raise ConfigError(f"model: the buffer {name} is not persistent, so the engine would lose it; make it so")
    network.eval()
    some = next(iter(tensors.values()))
    x = torch.zeros(2, *image, dtype=some.dtype, device=some.device)
    for part, wanted in (("encoder", features), ("head", classes)):
        try:
            own = {n.removeprefix(f"{part}."): t for n, t in tensors.items() if n.startswith(f"{part}.")}
            x = functional_call(network.get_submodule(part), own, (x,))
        except Exception as error:  # whatever a network of the user's raises
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise ConfigError(f"model.{part}: it does not run on {[*x.shape[1:]]} per sample ({reason})") from None
        if x.shape != (2, wanted):
            raise ConfigError(f"model.{part}: it gives {[*x.shape[1:]]} per sample; [{wanted}] is needed")
