"""The keyed draws of a run: participants, the order of images, and the channel's realisations.

A draw is named by the run's seed, its purpose, the round and the client, so that it depends on nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from semcom.channels import Link, Meter, make_link
from semcom.channels.link import NO, find_noise
from semcom.channels.users import Fades, control_power
from semcom.config import ROUND, ConfigError, Resolved, parse_snr
from semcom.data.augment import Unchanged
from semcom.data.federation import Federation
from semcom.data.registry import AUGMENTATIONS
from semcom.engine.air.rates import Direction
from semcom.engine.air.registry import PLACES
from semcom.engine.air.schedulers import SCHEDULERS, Turn
from semcom.engine.air.timeline import Timeline
from semcom.engine.host.keys import keyed
from semcom.engine.store.population import Prefix, in_part
from semcom.engine.train.forward import Batch, Signal
from semcom.engine.train.phase import Phase
from semcom.engine.train.plan import Cut, Plan, pad_clients, plan_batches
from semcom.engine.train.precision import autocast_of, dtype_of
from semcom.models.dropout import Dropout
from semcom.registry import find_entry
from semcom.tasks.registry import make_task


class Draws:
    """The clients' images, the channel and the run's seed, from which training and evaluation draw.

    Args:
        config: of the run.
        federation: images and their owners.
        device: device of all tensors.
        link: the run's channel, which every inference passes.
        split: whether the method trains through the link, features up and gradients down.
        timeline: the time of the rounds (None: not counted).

    Attributes:
        round: the current round, 1 to T (0 during set-up): the clock of every draw.
        whole_link: that of broadcasts.
        quiet_link: the run's link reduced to its power normalisation.
        training_link: the link of local training: the run's, or without `train.through_link` the quiet one.
        task: of the run.
        augmentation: of training images.
        places: of the clients, from which their mean SNRs follow.
        dtype: of weights, features and losses.
        autocast: type to which the factors of products are rounded, or None.
        test_snrs: SNRs of the tests in dB, the headline's first (None: each client's training SNR).
    """

    def __init__(
        self,
        config: Resolved,
        federation: Federation,
        device: torch.device,
        link: Link,
        *,
        split: bool,
        timeline: Timeline | None = None,
    ) -> None:
        self.config, self.federation, self.device, self.link, self.split = config, federation, device, link, split
        self.whole_link = link.broadcast()
        self.quiet_link = make_link("ideal" if link.normalises else "none")
        self.training_link = link if split or config.train.through_link else self.quiet_link
        self.dtype, self.autocast = dtype_of(config.precision), autocast_of(config.precision)
        self.task = make_task(config)
        self.augmentation = AUGMENTATIONS.get(config.data.augment)()
        self.round = 0
        self._turns: dict[int, np.ndarray] = {}
        self._groups: tuple[int, int, dict[int, list[int]]] = (-1, 1, {})
        self.places = PLACES.get(config.network.kind)(config, link)
        self.places.clock = None if timeline is None else timeline.find_start_s
        test = config.channel.test_snr_db
        self.test_snrs: tuple[float | None, ...] = (None,)
        if test is not None:
            self.test_snrs = parse_snr(test, "channel.test-snr-db").values

    def over(self, federation: Federation) -> Draws:
        """Return the same draws for a training on a federation of other inputs, such as features."""
        made = copy(self)
        made.federation, made.split, made.augmentation = federation, False, Unchanged()
        return made

    # -- clients -------------------------------------------------------------------------------------------------

    def sample(self) -> np.ndarray:
        """Choose the ids of this round's participants, ascending; all tested clients in a round after the last one."""
        n, clients = self.config.participants, self.config.clients
        if self.round > self.config.train.rounds and self.config.finish.kind == ROUND:
            return self.tested()
        if n == clients:
            return np.arange(n)
        turn = Turn(self.round, clients, n, self._mean_db, self._seen_db, self._by_chance, self._turns)
        return np.sort(find_entry(SCHEDULERS, self.config.network.scheduling, "network.scheduling")(turn))

    def _by_chance(self, round_: int) -> np.ndarray:
        generator = keyed(self.config.seed, "participation", round_)
        return torch.randperm(self.config.clients, generator=generator).numpy()

    def _mean_db(self) -> np.ndarray:
        """Find the mean uplink SNRs of all clients in dB, with all antennas where what a scheduler sees has them."""
        several = 10 * np.log10(self.link.antennas) if self.link.lasting else 0.0
        return self._snr_at_full_power("up", np.arange(self.config.clients), 1).numpy() + several

    def _seen_db(self, round_: int) -> np.ndarray:
        """Compute the uplink SNRs of all clients in dB as a scheduler sees them, with fading that lasts."""
        everyone = np.arange(self.config.clients)
        snr_db = self._snr_at_full_power("up", everyone, round_).numpy()
        if not self.link.lasting:
            return snr_db
        keys = ((k, keyed(self.config.seed, "fade", "up", k)) for k in everyone.tolist())
        return snr_db + 10 * np.log10([max(self.link.of(k).strength(key, round_), 1e-30) for k, key in keys])

    def tested(self) -> np.ndarray:
        """Choose the ids of the evaluated clients, ascending: all, or one draw, the same in every round."""
        n = self.config.train.eval_clients
        return np.arange(self.config.clients) if n is None else self._some(n, "evaluation")

    def _some(self, n: int, *key: object) -> np.ndarray:
        order = torch.randperm(self.config.clients, generator=keyed(self.config.seed, *key))
        return np.sort(order[:n].numpy())

    # -- batches -------------------------------------------------------------------------------------------------

    def sizes(self, client: int, phase: Phase) -> list[int]:
        """List the sizes of a client's mini-batches in a phase."""
        return phase.sizes(client, int(self.federation.train.sizes[client]), self.config.train)

    def plan(self, client: int, phase: Phase, take: str = "") -> Plan:
        """Draw a client's batch order in this round, or that of a take."""
        offsets = self.federation.train.offsets
        owned = range(int(offsets[client]), int(offsets[client + 1]))
        stream = "/".join(part for part in (phase.stream, take) if part)
        key = (self.config.seed, stream, "order", self.round, client)
        return plan_batches(owned, self.sizes(client, phase), phase.samples(len(owned)), key)

    def batch(
        self,
        order: Tensor,
        cut: Cut,
        signals: Mapping[str, Signal] | None = None,
        uniforms: Tensor | None = None,
        augment: Tensor | None = None,
    ) -> Batch:
        """Gather the mini-batches of one step.

        Args:
            order: indices of the clients' images in visiting order, `[k, N]`.
            cut: the step.
            signals: realisations of the way through each model, by the model's name.
            uniforms: keyed numbers of the step's samples, `[k, b, p]`.
            augment: keyed numbers of the augmentation, which answers that are images undergo too (None: no
                augmentation).
        """
        source = self.federation
        index = cut(order)
        y = source.labels[index]
        y = y if cut.mask is None else y.masked_fill(~cut.mask, 0)
        images = source.gather(index, self.dtype)
        answers = self.answers(source, index)
        if augment is not None:
            images = self.augmentation(images, augment)
            answers = self.augmentation(answers, augment) if answers is not None and self.task.pictures else answers
        return Batch(images, y, cut.mask, cut.last, len(source.classes), signals or {}, uniforms, self.task, answers)

    def answers(self, source: Federation, index: Tensor) -> Tensor | None:
        """Gather the right answers for images of a federation, `[*index.shape, ...]`; None if they are the labels."""
        return None if self.task.classifies else self.task.target(source, index, self.dtype)

    def uniforms(self, ids: np.ndarray, samples: Sequence[int], numbers: int, *stream: str) -> Tensor:
        """Draw numbers in [0, 1) for each visited sample of a chunk, on the host: `[k, N, numbers]`, 0 in padding."""
        generators = [keyed(self.config.seed, *stream, "uniforms", self.round, int(k)) for k in ids]
        return pad_clients(
            [torch.rand(n, numbers, generator=g, dtype=self.dtype) for n, g in zip(samples, generators, strict=True)]
        )

    # -- the channel ---------------------------------------------------------------------------------------------

    def find_seconds(self) -> float:
        """Find the time of the run at which this round begins, s."""
        return self.places.find_seconds(self.round)

    def snr_db(self, direction: Direction, ids: np.ndarray, broadcast: bool = False) -> Tensor:
        """Compute the clients' mean SNRs in dB in this round, under power control, `[n]` on the host.

        In a cell the users of a resource have equal parts of the base station's power. A broadcast has all of it, but
        equal parts go through each antenna, as by a space-time code: weights could suit a single client alone.
        """
        if direction == "down":
            users = self.link.users if self.places.powers_w is not None else 1
            parts = self.link.antennas if broadcast else users
            return self._snr_at_full_power(direction, ids) - 10 * math.log10(parts)
        if self.link.power_control == "none":
            return self._snr_at_full_power(direction, ids)
        return self._control_power([self.find_users_beside(int(k), self.link.users) for k in ids])[0][:, 0]

    def lowering(self, direction: Direction, ids: np.ndarray) -> np.ndarray:
        """Compute each client's fraction of its power under power control, `[n]`."""
        if direction == "down" or self.link.power_control == "none":
            return np.ones(len(ids))
        lower_db = self.snr_db(direction, ids) - self._snr_at_full_power(direction, ids)
        return 10 ** (lower_db.double().nan_to_num(0.0).numpy() / 10)

    def powers_beside(self, direction: Direction, client: int) -> Tensor | None:
        """Compute the mean received powers of the users of a client's resource over its own, `[U]`.

        None if they are alike, as on the downlink, where all come the client's own way.
        """
        if direction == "down" or self.link.users == 1:
            return None
        powers = self._control_power([self.find_users_beside(client, self.link.users)])[1][0]
        return None if bool((powers == 1).all()) else powers

    def _control_power(self, groups: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Compute SNRs and powers of the users of some resources on the uplink; see `control_power`."""
        known = [self._stand_in(user) for group in groups for user in group]
        snr_db = self._snr_at_full_power("up", np.array(known)).view(-1, self.link.users)
        return control_power(snr_db, self.link.power_control)

    def _stand_in(self, user: int) -> int:
        """Return a user that is a client itself; for a stranger, a client by chance, as far away as it is."""
        if user >= 0:
            return user
        generator = keyed(self.config.seed, "stranger", self.round, user)
        return int(torch.randint(self.config.clients, (), generator=generator))

    def _snr_at_full_power(self, direction: Direction, ids: np.ndarray, round_: int | None = None) -> Tensor:
        """Compute the clients' mean SNRs in dB in a round (None: this one), `[n]` on the host."""
        found = self.places.find_snr_db(direction, ids, self.round if round_ is None else round_)
        return torch.as_tensor(found, dtype=torch.float64).to(self.dtype)

    def realisation(
        self, link: Link, ids: np.ndarray, sizes: Sequence[Sequence[int]], stream: str, kind: str, alike: bool = False
    ) -> dict[str, Tensor]:
        """Draw a chunk's realisation of a link, with one entry per visited sample, `[k, N, ...]`.

        It lies on the host, except for tensors that the link has computed on the device.

        Args:
            link: link of the realisation.
            ids: the chunk's clients, `[k]`.
            sizes: each client's mini-batches, in order: a fade of coherence "batch" lasts for one.
            stream, kind: name the draws.
            alike: whether all users of a resource are received at one SNR, as in a test at a given SNR.
        """
        clients, d = [int(k) for k in ids], self.config.model.features
        generators = [keyed(self.config.seed, stream, kind, self.round, k) for k in clients]
        more = self._fades(link, clients, kind, stream, alike=alike)
        now = link.at(self.find_seconds())
        drawn = now.draw_all(clients, sizes, d, generators, self.dtype, self.device, **more)
        if link.feature_noise and kind == "uplink":
            for each, k, own in zip(drawn, clients, sizes, strict=True):
                each |= link.draw_added(
                    sum(own), d, keyed(self.config.seed, stream, "added", self.round, k), self.dtype
                )
        return {name: pad_clients([each[name] for each in drawn]) for name in drawn[0]}

    def on_air(self, kind: str, name: str, client: int, numbers: int, broadcast: bool = False) -> dict[str, Tensor]:
        """Draw a realisation of the run's channel, on the host, for one uncoded tensor of a client."""
        link = self.whole_link if broadcast else self.link
        generator, more = self.key_on_air(kind, name, client), self._fades(link, [client], kind, "air", name)
        now = link.at(self.find_seconds())
        return now.draw_all([client], [[1]], numbers, [generator], self.dtype, **more)[0]

    def key_on_air(self, kind: str, name: str, client: int) -> torch.Generator:
        """Make the generator, on the host, of the channel for one uncoded tensor of a client."""
        return keyed(self.config.seed, "air", kind, self.round, client, name)

    def _fades(
        self, link: Link, clients: Sequence[int], kind: str, *stream: str, alike: bool = False
    ) -> dict[str, Any]:
        """Collect where fading comes from in a link that couples clients or rounds, as arguments of its `draw_all`.

        Lasting fading is the same in everything that goes a client's way, up or down.
        """
        if link.users == 1 and not link.lasting:
            return {}
        direction: Any = kind.removesuffix("link")
        key = ("fade", direction) if link.lasting else (*stream, kind, "fade", self.round)
        fades = []
        for client in clients:
            group = self.find_users_beside(client, link.users)
            keys = [keyed(self.config.seed, *key, j) for j in group]
            powers = None if alike else self.powers_beside(direction, client)
            fades.append(Fades(keys, self.round, group, powers))
        return {"fades": fades}

    def find_users_beside(self, client: int, users: int) -> list[int]:
        """Find the users of a client's resource in this round, itself first.

        Participants are grouped by chance, and so are the other clients, for their tests. Missing users of a group, who
        do not belong to the run, are -1, -2 ...
        """
        if users == 1:
            return [client]
        if self._groups[:2] != (self.round, users):
            here = self.sample()
            rest = np.setdiff1d(np.arange(self.config.clients), here)
            rows = []
            for some in (here, rest):
                order = torch.randperm(len(some), generator=keyed(self.config.seed, "groups", self.round, len(some)))
                strangers = -1 - np.arange(-len(some) % users)
                rows.append(np.concatenate([some[order.numpy()], strangers]).reshape(-1, users))
            table = np.concatenate(rows)
            self._groups = self.round, users, {int(k): row for row in table.tolist() for k in row}
        group = self._groups[2][client]
        return [client, *(k for k in group if k != client)]

    def signals(
        self,
        ids: np.ndarray,
        sizes: Sequence[Sequence[int]],
        stream: str,
        network: nn.Module | None = None,
        train: Prefix = (),
        meters: tuple[Meter | None, Meter | None] = (None, None),
    ) -> Signals:
        """Draw the signals of a chunk's samples on the way through a model.

        Args:
            ids: the chunk's clients, `[k]`.
            sizes: each client's mini-batches.
            stream: names the draws.
            network: the architecture of a model in training; None for a frozen model, which has no gradients to send
                down and no dropout.
            train: the parts in training mode.
            meters: meters of the received SNR of uplink and downlink.
        """
        link = self.training_link
        host: Any = {"up": self.realisation(link, ids, sizes, stream, "uplink"), "up_snr_db": self.snr_db("up", ids)}
        if network is not None:
            host["keep"] = self._kept(ids, sizes, stream, network, train)
            if self.split:
                host["down"] = self.realisation(link, ids, sizes, stream, "downlink")
                host["down_snr_db"] = self.snr_db("down", ids)
        if self.device.type != "cpu":  # where three launches a step cost more than the numbers
            like = torch.empty(0, 0, 0, dtype=self.dtype)
            noise = {way: find_noise(host[f"{way}_snr_db"], like) for way in ("up", "down") if way in host}
            host["noise"] = {way: torch.stack(both, -1) for way, both in noise.items()}
        return Signals(host, *meters)

    def _kept(
        self, ids: np.ndarray, sizes: Sequence[Sequence[int]], stream: str, network: nn.Module, train: Prefix
    ) -> dict[str, Tensor]:
        """Draw the units of each visited sample that dropout keeps in training, bool `[k, N, ...]`, by buffer."""
        kept = {}
        for name, layer in network.named_modules():
            if isinstance(layer, Dropout) and layer.p > 0 and in_part(name.partition(".")[0] + ".", train):
                if layer.units is None and not in_part(name, ("encoder.", "head.")):
                    continue  # in a copy that is never called by its own name
                if layer.units is None:  # noted when the network was tried out
                    raise ConfigError(f"model: the dropout {name} is never reached; leave it out")
                drawn = self.uniforms(ids, [sum(s) for s in sizes], math.prod(layer.units), stream, name)
                kept[f"{name}.keep"] = (drawn >= layer.p).unflatten(-1, layer.units)
        return kept


@dataclass(frozen=True)
class Signals:
    """The signals of a chunk's samples on the way through one model: a `Signal` for each step.

    Attributes:
        drawn: by the fields of `Signal`, `[k, N, ...]` and `[k]`, and on an accelerator the "noise" of each way,
            `[k, 1, 1, 2]`; on the device of the steps once it is sent there.
        meter, down_meter: meters of the received SNR.
    """

    drawn: Any
    meter: Meter | None
    down_meter: Meter | None

    def __call__(self, cut: Cut) -> Signal:
        """Cut out a step's part."""
        parts: Any = {
            name: t[: cut.n] if isinstance(t, Tensor) else {key: cut(each) for key, each in t.items()}
            for name, t in self.drawn.items()
            if name != "noise"
        }
        for way, t in self.drawn.get("noise", {}).items():
            parts[way][NO] = t[: cut.n]
        return Signal(**parts, meter=self.meter, down_meter=self.down_meter)
