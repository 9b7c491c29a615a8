"""The world of a run, through which a method acts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from semcom.channels import Link
from semcom.config import ConfigError, Resolved
from semcom.data.federation import Federation
from semcom.engine.air.air import Air
from semcom.engine.air.compression import is_compressed
from semcom.engine.air.losses import CHOSEN
from semcom.engine.air.timeline import Timeline
from semcom.engine.host.clock import Clock
from semcom.engine.host.ranks import ALONE, Team
from semcom.engine.host.sending import send_to_device
from semcom.engine.store.population import Population, Prefix, in_part, list_trained_parameters
from semcom.engine.train.arena import Arenas
from semcom.engine.train.chunk import choose_chunk
from semcom.engine.train.context import Fitted, Given, Objective
from semcom.engine.train.descent import Optimizer, Project
from semcom.engine.train.draws import Draws
from semcom.engine.train.fit import Fit
from semcom.engine.train.frozen import encode_frozen
from semcom.engine.train.independence import check_independent_link
from semcom.engine.train.initial import Extend, Initial
from semcom.engine.train.phase import Phase
from semcom.engine.train.precision import set_precision
from semcom.engine.train.session import Session
from semcom.engine.train.tally import Tally
from semcom.models.frozen import find_frozen

BOTH = ("encoder.", "head.")


class World:
    """A run as its method sees it.

    Args:
        config: of the run.
        federation: images and who owns which.
        device: where everything lies.
        link: the run's channel.
        split: whether the method trains through the link (its features and gradients are traffic).
        clock: where seconds are added up (None: one that nobody reads).
        team: the processes that share the run's clients.

    Attributes:
        config: of the run.
        air: exchange between clients and base station.
        session: draws and counters, for training, evaluation and the runner; a method needs none of it.
    """

    def __init__(
        self,
        config: Resolved,
        federation: Federation,
        device: torch.device,
        link: Link,
        *,
        split: bool,
        clock: Clock | None = None,
        team: Team = ALONE,
    ) -> None:
        self.config = config
        timeline = Timeline.of(config, split)
        draws = Draws(config, federation, device, link, split=split, timeline=timeline)
        check_independent_link(draws.link, config, device, draws.dtype)
        self.air = Air(
            config.air,
            draws.link,
            draws.on_air,
            draws.key_on_air,
            draws.snr_db,
            participants=config.participants,
            report=self.report,
            logs=team.rank == 0,
            powers_w=draws.places.powers_w,
            sent_s=None if draws.places.powers_w is None else np.zeros(config.clients),
            lowering=draws.lowering,
            powers_beside=draws.powers_beside,
            clock=draws.find_seconds,
            clients=config.clients,
            sampled=config.network.scheduling == "random",
            timeline=timeline,
        )
        chunk = None if config.chunk == "auto" else config.chunk
        self.session = Session(draws, Tally(draws, self.air, team), clock or Clock(), chunk)
        self._initial = Initial(config, federation, device, draws.task.shape(federation))

    # -- the run and its clients ---------------------------------------------------------------------------------

    @property
    def round(self) -> int:
        """The current round, 1 to T; T + 1 in a last stage, 0 during set-up."""
        return self.session.draws.round

    @property
    def clients(self) -> int:
        """The number of clients, K."""
        return self.config.clients

    @property
    def classes(self) -> int:
        """The number of classes, C."""
        return len(self.session.draws.federation.classes)

    @property
    def pictured(self) -> bool:
        """True if the data are images, `[channels, size, size]`, not other arrays of numbers."""
        return self.session.draws.federation.pictured

    @property
    def features(self) -> int:
        """The number of real features per image, d."""
        return self.config.model.features

    def sample(self) -> np.ndarray:
        """Choose the ids of the clients that take part in this round, ascending, `[n]`.

        Without `air.repeat` clients that do not decode the broadcast take no part, nor do those without `air.coverage`;
        a round without participants is left out.
        """
        ids = self.session.draws.sample()
        if self.config.network.scheduling != "random":
            self.air.arrivals.losses.add(CHOSEN, ids.tolist())
        return self.air.arrivals.reach(ids, self._initial.numbers)

    def tested(self) -> np.ndarray:
        """Choose the ids of the clients that are evaluated, ascending; the same in every round."""
        return self.session.draws.tested()

    def sizes(self, ids: np.ndarray) -> np.ndarray:
        """Look up D_k, the number of training samples of each client, `[n]` on the host."""
        return self.session.draws.federation.train.sizes[ids]

    def weights(self, ids: np.ndarray) -> Tensor:
        """Compute p_k = D_k over the sum of D over `ids`, `[n]`."""
        sizes = torch.as_tensor(self.sizes(ids), dtype=self.session.draws.dtype)
        return self.tensor(sizes / sizes.sum())

    def fraction(self, ids: np.ndarray) -> float:
        """Compute the fraction of all clients' training samples that belongs to `ids`."""
        sizes = self.session.draws.federation.train.sizes
        return float(sizes[ids].sum() / sizes.sum())

    def arrived(self, ids: np.ndarray, name: str = "") -> np.ndarray:
        """Find the clients whose last upload `name` arrived, bool `[n]` on the host.

        The others were late (`train.deadline_s`), or their uploads were lost (`air.repeat`). A base station that does
        not average by `air.average` works with the clients that arrived. The result is fixed for the round.
        """
        return self.air.arrivals.find(ids, name)

    def owned(self, ids: np.ndarray) -> np.ndarray:
        """Look up the classes of each client's training samples, bool `[n, C]` on the host."""
        return self.session.draws.federation.owned[ids]

    def count_classes(self, ids: np.ndarray) -> Tensor:
        """Count each client's training samples of every class, `[n, C]`."""
        federation, n = self.session.draws.federation, len(ids)
        owner = self.tensor(np.repeat(np.arange(n), self.sizes(ids)))
        cell = owner * self.classes + federation.labels[torch.cat([federation.train[int(k)] for k in ids])]
        ones = torch.ones_like(cell, dtype=self.session.draws.dtype)
        return self.zeros(n * self.classes).scatter_add_(0, cell, ones).view(n, self.classes)

    def report(self, name: str, values: Tensor) -> None:
        """Log a value for each client of this round, or for each class; `metrics.jsonl` holds its mean."""
        self.session.tally.log[name] = values

    def warn(self, name: str, text: str) -> None:
        """Warn of a doubt about the results of this round, once in a run for each `name`.

        The first `text` of a name is logged, and is in `metrics.jsonl` and `summary.json`.
        """
        self.session.tally.warnings[name] = text

    # -- tensors -------------------------------------------------------------------------------------------------

    def zeros(self, *shape: int) -> Tensor:
        """Make zeros on the run's device, in its precision."""
        draws = self.session.draws
        return torch.zeros(*shape, dtype=draws.dtype, device=draws.device)

    def tensor(self, values: Tensor | ArrayLike) -> Tensor:
        """Send values to the run's device; real numbers in its precision, whole numbers and truth values in theirs."""
        draws = self.session.draws
        made = values if isinstance(values, Tensor) else torch.as_tensor(np.asarray(values))
        made = made.to(draws.dtype) if made.is_floating_point() else made
        return send_to_device(made, draws.device) if made.is_cpu else made

    # -- models --------------------------------------------------------------------------------------------------

    def population(self, shared: Prefix = (), extend: Extend | None = None) -> Population:
        """Make the initial models of all clients, with a cohort per architecture.

        Args:
            shared: prefixes and names of the tensors in common: `"encoder."`, `"head.0."`, `outside(BatchNorm)`.
            extend: a function of a new `SplitModel` with its initial weights, which gives it further parameters and
                buffers (`model.own = deepcopy(model.head)`), or puts a layer around a part (`model.head = ...`).

        Raises:
            ValueError: a prefix names no tensor of a model, or the run has models that are extended otherwise.
        """
        team = self.session.team
        cohorts = tuple(self._initial.cohort(name, ids, shared, team, extend) for name, ids in self._encoders())
        if self.session.chunk is None:
            self.session.chunk = self._choose_chunk([c.network for c in cohorts])
        return Population(cohorts)

    @property
    def extended(self) -> bool:
        """True if the head of `model.weights` is one that the method has extended, which no plain model begins with."""
        return self._initial.extended

    def outside(self, kind: type[nn.Module]) -> tuple[str, ...]:
        """List the parameters and buffers that are in no layer of a kind, such as BatchNorm: a part."""
        return self._initial.outside(self.config.model.encoder.split(",")[0], kind)

    def constant(self, names: Sequence[str], value: float) -> Population:
        """Make numbers that clients keep beside their models: shaped like the tensors `names`, all `value`."""
        team = self.session.team
        return Population(tuple(self._initial.constant(e, ids, names, value, team) for e, ids in self._encoders()))

    def remember(self, part: Prefix) -> None:
        """Begin to remember the remainder of compressed updates of a part; call `population` first."""
        network = next(iter(self._initial.networks.values()))
        tensors = {name: t for name, t in network.state_dict().items() if name not in find_frozen(network)}
        names = [name for name, t in tensors.items() if in_part(name, part) and is_compressed(name, t)]
        self.air.compression.residual = self.constant(names, 0.0)

    def server(self, factory: Callable[[], nn.Module], name: str) -> Population:
        """Make a population of one: a network that the base station owns, its weights keyed by `name`."""
        return self._initial.server(factory, name)

    def heads(self, name: str, ids: np.ndarray) -> Population:
        """Make fresh heads called `name` of some clients, as models whose encoder passes on its input.

        The run's head has the weights that it has in `population`. The models train `on_features`.

        Raises:
            ConfigError: the engine cannot run the head.
        """
        return self._initial.heads(name, ids)

    def on_features(self, pop: Population) -> World:
        """Return the run with features in the place of images, by each client's encoder in `pop`.

        They are the features before the link, of training images, in evaluation mode. `fit` trains heads on them, at
        their own cost only, over the training link. The clients' draws are those of a training of the whole models.
        """
        made = copy(self)
        draws = self.session.draws.over(encode_frozen(self.session, pop))
        made.session = replace(self.session, draws=draws, arenas=Arenas())
        return made

    def aside(self) -> World:
        """Return the run as of this round, for work that each process does for itself, whenever it comes to it."""
        made = copy(self)
        draws, tally = copy(self.session.draws), self.session.tally.alone()
        made.session = replace(self.session, draws=draws, tally=tally, arenas=Arenas())
        return made

    def hold(self, parts: Iterable[Population]) -> Population:
        """Return models of clients, which come some at a time, as one population at rest, where `store` says."""
        return self._initial.hold(parts, self.session.team)

    def _encoders(self) -> list[tuple[str, np.ndarray]]:
        """List the encoders that have clients, with the ids of these."""
        names = self.config.model.encoder.split(",")
        owners = [np.arange(i, self.clients, len(names)) for i in range(len(names))]
        return [(name, ids) for name, ids in zip(names, owners, strict=True) if len(ids)]

    def _choose_chunk(self, networks: Sequence[nn.Module]) -> int:
        """Choose a chunk that suits all networks; the same on every rank."""
        draws, team = self.session.draws, self.session.team
        image, batch = draws.federation.images.shape[1:], self.config.train.batch_size
        mine = min(choose_chunk(network, image, batch, draws.device, draws.dtype.itemsize) for network in networks)
        devices = torch.cuda.device_count() if draws.device.type == "cuda" else 1
        return max(1, min(team.exchange(mine)) // -(-team.size // devices))  # at worst they share what is free

    # -- training ------------------------------------------------------------------------------------------------

    def fit(
        self,
        pop: Population,
        objective: Objective,
        *,
        train: Prefix = BOTH,
        given: Given | None = None,
        phase: Phase | None = None,
        optimizer: Optimizer | None = None,
        project: Project | None = None,
        optimizer_state: Population | None = None,
    ) -> Fitted:
        """Train the clients of a population on their own data, or a network of the base station for some steps.

        Args:
            pop: n models; they are not changed. Parts in training become each client's own.
            objective: `(model, batch, context) -> loss [k]` or `(loss [k], {name: [k]})`; or a `Gradient`.
            train: prefixes of what is trained; the rest is frozen, its BatchNorm in evaluation mode.
            given: what the objective gets besides the model and the batch (None: nothing).
            phase: how long, on which batches and with which draws (None: the run's schedule, the main phase).
            optimizer: the optimiser (None: the run's), new in each fit unless its state is given.
            project: `(name, leaf [k, ...]) -> leaf`, applied to each leaf after every step.
            optimizer_state: of a network of the base station, what its optimiser remembers: `optimizer.state(pop)` at
                first, later the `optimizer_state` of the fit before.

        Returns:
            the trained models, the means of loss and logged values over the last epoch, and the accumulators.

        Raises:
            ConfigError: all that is to be trained is frozen.
            Diverged: a loss or a weight is not finite.
            RuntimeError: the objective does not use a leaf that is to be trained.
            ValueError: an optimiser's state is given for clients, or is that of another optimiser.
        """
        phase, optimizer = phase or Phase(), optimizer or self.optimizer()
        prefixes = (train,) if isinstance(train, str) else tuple(train)
        self.refuse_frozen(pop, prefixes)
        fit = Fit(self.session, objective, prefixes, given or Given(), phase, optimizer, project, optimizer_state)
        with set_precision(self.config.precision):
            fitted = fit(pop)
        self.session.tally.log |= {phase.logged(name): t for name, t in fitted.log.items()}
        return fitted

    def refuse_frozen(self, pop: Population, train: Prefix) -> None:
        """Raise ConfigError if all weights of a model in some parts are frozen, where a method is to train these."""
        if any(find_frozen(c.network) and not list_trained_parameters(c.network, train) for c in pop.cohorts):
            parts = (train,) if isinstance(train, str) else train
            what = " and ".join(p.rstrip(".") for p in parts if p) or "the network"
            raise ConfigError(
                f"train.lr-parts: {self.config.method} trains {what}, of which nothing has a rate above 0"
            )

    def optimizer(
        self,
        *,
        name: Literal["adam", "adamw", "sgd"] | None = None,
        lr: float | tuple[float, ...] | None = None,
        momentum: float | None = None,
        weight_decay: float | None = None,
    ) -> Optimizer:
        """Make the run's optimiser in this round, with the given settings in place of its own.

        The run's schedule scales a given rate, too. The run's momentum is for SGD; Adam does not take it.
        """
        own = self.config.train
        kind, rate = name or own.optimizer, own.lr if lr is None else lr
        usual = Optimizer(kind, rate, own.momentum if kind == "sgd" else 0.0, own.weight_decay, own.part_factors)
        if momentum is not None:
            usual = replace(usual, momentum=momentum)
        if weight_decay is not None:
            usual = replace(usual, weight_decay=weight_decay)
        return usual.scaled(own.rate_factor(self.round))
