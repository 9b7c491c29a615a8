"""Privacy of what is averaged: clients clip their updates, and noise is added to the mean, or by each client.

Client-level differential privacy (H. B. McMahan, D. Ramage, K. Talwar, L. Zhang, "Learning Differentially Private
Recurrent Language Models", ICLR 2018), of neighbours that differ in all data of one client. An update has a norm of at
most C = `clip`, so the sum of n updates changes by at most 2 C. The mean of all with equal weights gets noise of the
deviation z C / n, z = `noise_multiplier`: a Gaussian mechanism with z / 2 times its sensitivity. Mechanisms with z_t
are together one with 1 / sqrt(sum of (2 / z_t)^2), whose epsilon is exact (B. Balle, Y.-X. Wang, ICML 2018). Where a
round's clients are drawn at random without replacement, and keep nothing for later rounds, the amplification is that
of `dp_accounting` for replaced clients.

Updates that are sent all at once and uncoded meet the channel's noise too, which counts (D. Liu, O. Simeone, "Privacy
for Free: Wireless Federated Learning via Uncoded Transmission with Adaptive Power Control", IEEE JSAC 39(1), 2021):
z_t^2 is then that of the added noise and that of the channel's, whose deviation is known as powers are set for updates
of norm C.
"""

from __future__ import annotations

import importlib.util
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar

import torch
from torch import Tensor

from semcom.channels.options import MEASURE, NOT_NEGATIVE, BaseOptions, Rule, one_of, require
from semcom.config import ConfigError
from semcom.config.options import NOT_ZERO, Needs
from semcom.engine.air.part import Part, Planned
from semcom.engine.air.updates import map_update_starts
from semcom.engine.host.sending import send_to_device
from semcom.engine.store.population import Cohort, Population, Prefix, in_part

UNBOUNDED = ("running_mean", "running_var", "num_batches_tracked")
"""Ends of the names of BatchNorm's statistics, which are no part of an update."""


@dataclass
class Privacy(Part):
    """What is done to averaged models; the base of all, which does nothing.

    Attributes:
        options: of the air.
        key: as of an `Air`.
        clients, participants: K, and those of a round.
        sampled: whether a round's clients are a random choice.
        alone: whether each update arrives by itself.
        spent: z_t of the means that were released so far, and the part of it that was added.
        norm: largest norm of a client's update (None: not bounded).
        remembers: whether what a client sends may follow from what it has kept of earlier rounds.
    """

    options: Any
    key: Callable[[str, str, int], torch.Generator]
    clients: int
    participants: int
    sampled: bool
    alone: bool
    spent: list[tuple[float, float]] = field(default_factory=list)
    norm: float | None = field(default=None, init=False)
    remembers: bool = field(default=True, init=False)

    def expect(self, remembers: bool) -> None:
        """Prepare for a method that lets clients keep something, or not."""
        self.remembers = remembers

    def begin(self) -> None:
        """Begin a round."""

    def refuse(self, what: str) -> None:
        """Raise ConfigError if something goes up that would have to be protected, and is not."""

    def clip(
        self, pop: Population, part: Prefix, since: Population | None, weights: Tensor, name: str
    ) -> tuple[Population, Tensor]:
        """Clip the updates of a part of the clients' models since the result of `Air.down`, and weigh them.

        Args:
            pop, part, since, weights, name: as of `Air.average`.
        """
        return pop, weights

    def find_sent_norm(self, numbers: int, clients: int) -> float | None:
        """Find the root mean square norm of the largest update that a client sends, with what it adds itself.

        Args:
            numbers: of an update.
            clients: of the round.

        Returns:
            the norm; None if it is not bounded.
        """
        return None

    def blur(self, mean: dict[str, Tensor], clients: int, name: str) -> dict[str, Tensor]:
        """Add noise to the mean of so many clients; `name` is that of the upload."""
        return mean

    def hear(self, multiplier: float, reach: float) -> None:
        """Note the deviation of the channel's noise on the next sum over C, and 1 / the factor of its sensitivity."""

    def find_epsilon(self, added: bool = False) -> float | None:
        """Find the epsilon of all releases so far, or that by added noise alone; None if nothing is promised."""
        return None

    def find_epsilon_of_one(self) -> float | None:
        """Find the epsilon toward a base station that receives each update by itself, with its own noise alone."""
        return None

    def counters(self) -> dict[str, Any]:
        """Return what was spent as plain numbers; {} if nothing is promised."""
        return {}

    def resume(self, counters: Mapping[str, Any]) -> None:
        """Continue from the result of `counters`."""

    def list_epsilons(self) -> dict[str, float]:
        """List what is known.

        `epsilon`; where the channel's noise counts `epsilon_added`, that without it; and where each client adds its
        own noise, and sends by itself, `epsilon_base`, toward the base station.
        """
        found = {"epsilon": self.find_epsilon()}
        if any(whole > added for whole, added in self.spent):
            found["epsilon_added"] = self.find_epsilon(added=True)
        found["epsilon_base"] = self.find_epsilon_of_one()
        return {name: value for name, value in found.items() if value is not None}


@dataclass
class Gaussian(Privacy):
    """Clipped updates of equal weight, and Gaussian noise on their mean."""

    @dataclass(frozen=True)
    class Options(BaseOptions):
        """Options of the mechanism."""

        needs: ClassVar[Needs] = {"noise_by": {"noise_multiplier": NOT_ZERO}}

        clip: float = 1.0
        """C: largest norm of a client's update, of all its averaged tensors together; larger ones are scaled to it."""
        noise_multiplier: float = 1.0
        """z: deviation of the noise on the sum of the updates, over C."""
        noise_by: str = "base"
        """Who adds the noise: the `base` station, which is trusted, or each of a round's n `clients` a share of the
        variance of 1 / n, before it sends."""
        delta: float = 1e-5
        """Delta of the guarantee, whose epsilon is told in each round."""

        def check(self) -> None:
            """Check the ranges."""
            require("clip", self.clip, MEASURE)
            require("noise_multiplier", self.noise_multiplier, NOT_NEGATIVE)
            one_of("noise_by", self.noise_by, ("base", "clients"))
            require("delta", self.delta, Rule(lambda v: 0 < v < 1, "a number in (0, 1)"))

    @classmethod
    def list_unused(cls, run: Planned) -> Iterator[tuple[str, str]]:
        """Yield the mechanism where it would protect nothing, or not all."""
        if run.method.split:
            yield "", "{method} sends features and labels, which it does not protect"
        if not run.method.averages:
            yield "", "{method} averages no models"
        elif run.method.tells:
            yield "", "{method} sends means of classes, which it does not protect"
        config, options = run.config, run.config.air.options
        superposed = config.air.access == "superposed"
        if config.air.compress != "none":
            yield "", "compressed updates have no bounded norm"
        if config.air.parameters != "ideal" and not superposed:
            yield "", "updates that cross the channel uncoded, each by itself, are not protected"
        if getattr(options, "csi_error", 0.0):
            yield "", "an inversion by wrong estimates has no bounded norm"
        lossy = not getattr(options, "repeat", True) or getattr(options, "coverage", "repetition") == "none"
        if lossy or config.train.deadline_s is not None:
            yield "", "those that arrive would tell who they are"
        if config.train.patience is not None:
            yield "", "the round in which training ends tells of validation images, which it does not protect"
        if run.fades and superposed and getattr(options, "noise_by", "base") == "clients":
            yield "noise_by", "{kind} fades, and whose noise is on a symbol is left to chance"
        if config.new_clients:
            yield "", "new clients get a mean of personal parts, which it does not protect"

    def __post_init__(self) -> None:
        self.norm, self._heard = self.options.clip, (0.0, 1.0)
        self._by_clients = self.options.noise_by == "clients"
        self._sent: Counter[int] = Counter()
        self._begun = True

    def expect(self, remembers: bool) -> None:
        """Prepare for a method that lets clients keep something, or not."""
        super().expect(remembers)
        if self._amplifies and self.options.noise_multiplier > 0:
            require_accounting()

    @property
    def _amplifies(self) -> bool:
        """True if clients take part by chance, and forget it: what one has kept would tell of it later."""
        return self.sampled and self.participants < self.clients and not self.remembers

    def begin(self) -> None:
        """Begin a round, in which there is one average."""
        self._begun = True

    def refuse(self, what: str) -> None:
        """Raise ConfigError: it would go up unprotected."""
        raise ConfigError(f"air.privacy: {what} beside what is averaged, which it does not protect")

    def clip(
        self, pop: Population, part: Prefix, since: Population | None, weights: Tensor, name: str
    ) -> tuple[Population, Tensor]:
        """Scale each client's update to a norm of at most `clip`, all of one weight, and let it add its noise.

        Raises:
            ConfigError: it has no bounded norm, or it is the second one in a round.
        """
        if not self._begun:
            raise ConfigError("air.privacy: it protects one average in a round, and the method has a second one")
        self._begun = False
        if since is None:
            raise ConfigError("air.privacy: models go up that are no updates, whose norms are not bounded")
        cohorts, share = [], self._find_share(len(weights))
        self._sent.update(pop.ids.tolist() if share else ())
        for c, start in zip(pop.spread(part).stacks(), map_update_starts(since, pop), strict=True):
            received = {name: start(name).received for name in c.tensors if in_part(name, part)}
            _refuse_unbounded(c, received)
            updates = {name: c.tensors[name] - was for name, was in received.items() if was.is_floating_point()}
            norm = torch.stack([u.flatten(1).double().square().sum(1) for u in updates.values()]).sum(0).sqrt()
            scale = (self.options.clip / norm.clamp_min(torch.finfo(norm.dtype).tiny)).clamp_max(1.0)
            clipped = {}
            for tensor, u in updates.items():
                by = scale.to(u.dtype).view(-1, *[1] * (u.ndim - 1))
                # An update that is not finite is none.
                step = torch.where(norm.isfinite().view_as(by), by * u, 0.0)
                kept = (scale >= 1).view_as(by)
                clipped[tensor] = torch.where(kept, c.tensors[tensor], received[tensor] + step)
                if share:
                    drawn = [self._draw(name + tensor, int(k), u[0]) for k in c.ids]
                    clipped[tensor] = clipped[tensor] + share * torch.stack(drawn)
            cohorts.append(replace(c, tensors={**c.tensors, **clipped}))
        return Population(tuple(cohorts)), torch.full_like(weights, 1 / len(weights))

    def blur(self, mean: dict[str, Tensor], clients: int, name: str) -> dict[str, Tensor]:
        """Add noise to each tensor, and count the release."""
        z = self.options.noise_multiplier
        heard, reach = self._heard
        self.spent.append((math.hypot(z, heard) * reach, z * reach))
        self._heard = 0.0, 1.0
        if self._by_clients or not z:
            return mean
        deviation = z * self.options.clip / clients
        return {
            tensor: value + deviation * self._draw(name + tensor, 0, value) if value.is_floating_point() else value
            for tensor, value in mean.items()
        }

    def find_sent_norm(self, numbers: int, clients: int) -> float:
        """Find the root mean square norm of an update of norm C and of what a client adds to it."""
        return math.hypot(self.options.clip, self._find_share(clients) * numbers**0.5)

    def _find_share(self, clients: int) -> float:
        """Find the deviation of the noise that each of so many clients adds."""
        own = self.options
        return own.noise_multiplier * own.clip / clients**0.5 if self._by_clients else 0.0

    def _draw(self, name: str, client: int, like: Tensor) -> Tensor:
        drawn = torch.randn(like.shape, generator=self.key("privacy", name, client), dtype=like.dtype)
        return send_to_device(drawn, like.device)

    def hear(self, multiplier: float, reach: float) -> None:
        """Note the deviation of the channel's noise on the next sum over C, and 1 / the factor of its sensitivity."""
        self._heard = multiplier, reach

    def find_epsilon(self, added: bool = False) -> float | None:
        """Find the epsilon at `delta` of all releases so far, or that by added noise alone; None without noise."""
        each = Counter(of[1 if added else 0] for of in self.spent)
        if not each or 0.0 in each:
            return 0.0 if not each and self.options.noise_multiplier else None
        halves, delta = tuple((z / 2, n) for z, n in sorted(each.items())), self.options.delta
        # How strong the channel's noise is tells who takes part, if their channels differ.
        if self._amplifies and all(whole == alone for whole, alone in self.spent):
            return find_sampled_epsilon(halves, self.participants, self.clients, delta)
        return find_gaussian_epsilon(join_multipliers(halves), 1, delta)

    def find_epsilon_of_one(self) -> float | None:
        """Find the epsilon at `delta` of all updates of the client that has sent the most; it is not amplified."""
        if not self._by_clients or not self.alone:
            return None
        multiplier = self.options.noise_multiplier / 2 / self.participants**0.5
        return find_gaussian_epsilon(multiplier, max(self._sent.values(), default=0), self.options.delta)

    def counters(self) -> dict[str, Any]:
        """Return what was spent as plain numbers."""
        own = {"releases_of": {str(k): n for k, n in self._sent.items()}} if self._by_clients else {}
        return {"releases": [*self.spent], **own}

    def resume(self, counters: Mapping[str, Any]) -> None:
        """Continue from the result of `counters`; an older checkpoint has the number of releases."""
        spent, z = counters["releases"], self.options.noise_multiplier
        self.spent = [(z, z)] * spent if isinstance(spent, int) else [tuple(each) for each in spent]
        self._sent = Counter({int(k): n for k, n in counters.get("releases_of", {}).items()})


def _refuse_unbounded(cohort: Cohort, received: Mapping[str, Tensor]) -> None:
    """Raise ConfigError if a statistic of BatchNorm would go up, or whole numbers that have changed."""
    for name, was in received.items():
        whole = not was.is_floating_point()
        if name.endswith(UNBOUNDED) or (
            whole and not torch.equal(cohort.tensors[name], was.expand_as(cohort.tensors[name]))
        ):
            what = f"{name} goes up, a statistic without a bounded norm"
            raise ConfigError(f"air.privacy: {what}; choose an encoder without BatchNorm, or a method that keeps it")


def require_accounting() -> None:
    """Raise ConfigError without `dp_accounting`."""
    if importlib.util.find_spec("dp_accounting") is None:
        wanted = "of rounds with some of the clients it is computed by dp-accounting"
        raise ConfigError(f"air.privacy: epsilon {wanted}; install 'semcom[dp]'")


def join_multipliers(each: Sequence[tuple[float, int]]) -> float:
    """Find the multiplier of the one Gaussian mechanism that tells as much as several, each so many times, together."""
    return sum(n / z**2 for z, n in each) ** -0.5


@lru_cache(maxsize=256)
def find_gaussian_epsilon(multiplier: float, releases: int, delta: float) -> float:
    """Find the exact epsilon of some releases by a Gaussian mechanism.

    Args:
        multiplier: deviation of its noise over its sensitivity.
        releases: their number.
        delta: of the guarantee.

    Example:
        >>> from semcom.engine.air.privacy import find_gaussian_epsilon
        >>> round(find_gaussian_epsilon(1.0, 1, 1e-5), 3)
        4.377
    """
    from scipy.optimize import brentq  # take a while to import
    from scipy.special import log_ndtr

    if not releases:
        return 0.0
    s = multiplier / math.sqrt(releases)

    def excess(epsilon: float) -> float:
        """Compute the delta at an epsilon less the wanted one."""
        first, second = log_ndtr(0.5 / s - epsilon * s), log_ndtr(-0.5 / s - epsilon * s)
        return math.exp(first) - math.exp(epsilon + second) - delta

    if excess(0.0) <= 0:
        return 0.0
    top = 1.0
    while excess(top) > 0:
        top *= 2
    return float(brentq(excess, 0.0, top, xtol=1e-9))


@lru_cache(maxsize=256)
def find_sampled_epsilon(each: tuple[tuple[float, int], ...], participants: int, clients: int, delta: float) -> float:
    """Bound the epsilon of releases with random clients in each, drawn without replacement, by `dp_accounting`.

    Args:
        each: multipliers, see `find_gaussian_epsilon`, and how many releases had them.
        participants, clients: of a release, and all.
        delta: of the guarantee.
    """
    require_accounting()
    from dp_accounting import NeighboringRelation, dp_event
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
    for multiplier, n in each:
        one = dp_event.SampledWithoutReplacementDpEvent(clients, participants, dp_event.GaussianDpEvent(multiplier))
        accountant.compose(one, n)
    bound = float(accountant.get_epsilon(delta))
    return min(bound, find_gaussian_epsilon(join_multipliers(each), 1, delta))  # a subset tells no more than all
