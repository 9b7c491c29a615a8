"""Places of the clients, from which their mean SNRs follow: a list of SNRs, or powers and losses on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from semcom.channels import PATH_LOSSES, Link
from semcom.channels.cell import NEAREST_M, convert_dbm_to_watts, drop_clients_in_cell, noise_dbm
from semcom.channels.options import NOT_NEGATIVE, BaseOptions, Rule, require
from semcom.channels.scene import read_scene
from semcom.config import ConfigError, Resolved, parse_snr
from semcom.engine.air.part import NO_CHANNEL, NO_NOISE, NOTHING_SENT, Part, Planned
from semcom.engine.air.rates import Direction
from semcom.engine.host.keys import keyed


class Places(Part):
    """Source of the clients' mean SNRs; the base of all.

    Attributes:
        config: of the run.
        options: of the network.
        link: the run's channel.
        powers_w: transmit powers, for energies in joule. None: energies are counted by `air.symbol_energy`.
        loses: whether losses follow from `network.path_loss`.
        numbered: whether the place of a client is that of its number in a file, which has none of new clients.
        clock: function from a round to the time of the run at which it begins, s (None: not counted).
    """

    powers_w: Mapping[Direction, float] | None = None
    loses: ClassVar[bool] = False
    numbered: ClassVar[bool] = False
    clock: Callable[[int], float] | None = None

    def __init__(self, config: Resolved, link: Link) -> None:
        self.config, self.link = config, link
        self.options: Any = config.network.options

    @classmethod
    def list_unused(cls, run: Planned) -> Iterator[tuple[str, str]]:
        """Yield the kind if the channel has no SNR, and the path loss if the kind has none."""
        if not run.link.noisy:
            yield "", NO_NOISE
        if not run.link.radio:
            yield "", NO_CHANNEL
        if not cls.loses:
            network = run.config.network
            names = [f.name for f in fields(PATH_LOSSES.get(network.path_loss).Options)]
            yield from ((name, f"network.kind {network.kind} has no path loss") for name in ("path_loss", *names))

    def find_snr_db(self, direction: Direction, ids: np.ndarray, round_: int) -> np.ndarray:
        """Compute the mean SNRs of clients in a round at full power, in dB, `[n]`.

        Args:
            direction: up or down.
            ids: the clients, `[n]`.
            round_: from 1 on; 0 before the first.
        """
        raise NotImplementedError(f"{type(self).__name__} has no `find_snr_db`")

    def find_seconds(self, round_: int) -> float:
        """Find the time of the run at which a round begins, s: by the clock (`network.flops`), or with 1 s a round."""
        return max(round_ - 1.0, 0.0) if self.clock is None else self.clock(round_)

    def describe(self, round_: int) -> dict[str, np.ndarray]:
        """Describe all clients in a round for summary.json: places and mean SNRs, `[K]` each; {} without places."""
        return {}


class Listed(Places):
    """SNRs as `channel.snr_db` lists them; clients have no places."""

    def __init__(self, config: Resolved, link: Link) -> None:
        super().__init__(config, link)
        down = config.channel.downlink_snr_db
        self._up = parse_snr(config.channel.snr_db, "channel.snr-db")
        self._down = None if down is None else parse_snr(down, "channel.downlink-snr-db")

    @classmethod
    def list_unused(cls, run: Planned) -> Iterator[tuple[str, str]]:
        """Yield power control of equal SNRs, and the band if no number is sent over it."""
        yield from super().list_unused(run)
        if len(set(parse_snr(run.config.channel.snr_db, "channel.snr-db").values)) == 1:
            yield "channel.power_control", "all clients have the same SNR"
        if not (run.method.split or run.method.exchanges):
            yield "air.bandwidth_hz", NOTHING_SENT

    def find_snr_db(self, direction: Direction, ids: np.ndarray, round_: int) -> np.ndarray:
        """Read the SNRs off the list, or draw them from a range, per client and round."""
        snr = self._up
        if self._down is None:
            direction = "up"  # the same SNR both ways, also where it is drawn
        elif direction == "down":
            snr = self._down

        def uniform(client: int) -> float:
            generator = keyed(self.config.seed, "snr", direction, round_, client)
            return float(torch.rand((), generator=generator, dtype=torch.float64))

        return np.array([snr.of(client, uniform) for client in map(int, ids)])


class Placed(Places):
    """Clients whose SNRs follow from transmit powers and losses; the base of all such."""

    @dataclass(frozen=True)
    class Options(BaseOptions):
        """Options of the radios."""

        power_dbm: float = 23.0
        """Transmit power of a client, over its part of the band."""
        base_power_dbm: float = 33.0
        """Transmit power of the base station, over the whole band; the users of a resource have equal parts of it."""
        noise_figure_db: float = 7.0
        """Noise figure of the receivers."""

        def check(self) -> None:
            """Check the ranges."""
            power = Rule(lambda v: -100 <= v <= 100, "a number from -100 to 100 dBm")
            require("power_dbm", self.power_dbm, power)
            require("base_power_dbm", self.base_power_dbm, power)
            require("noise_figure_db", self.noise_figure_db, Rule(lambda v: 0 <= v <= 60, "a number from 0 to 60 dB"))

    def __init__(self, config: Resolved, link: Link) -> None:
        super().__init__(config, link)
        self._dbm: Mapping[Direction, float] = {"up": self.options.power_dbm, "down": self.options.base_power_dbm}
        self.powers_w = {way: convert_dbm_to_watts(dbm) for way, dbm in self._dbm.items()}

    @classmethod
    def list_unused(cls, run: Planned) -> Iterator[tuple[str, str]]:
        """Yield the fields that powers and losses replace."""
        yield from super().list_unused(run)
        for name in ("channel.snr_db", "channel.downlink_snr_db", "air.symbol_energy"):
            yield name, "powers and path losses in the cell say it"

    def receive_dbm(self, power_dbm: float, ids: np.ndarray, round_: int) -> np.ndarray:
        """Compute the mean power that arrives from clients, or at them, in a round, `[n]`.

        Args:
            power_dbm: transmit power.
            ids, round_: as of `find_snr_db`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no `receive_dbm`")

    def find_snr_db(self, direction: Direction, ids: np.ndarray, round_: int) -> np.ndarray:
        """Compute the SNRs, up over a client's part of the band and down over all of it."""
        band = self.config.air.bandwidth_hz
        assert band is not None, "semcom.resolve fills it"
        if direction == "up":
            shares = self.link.shares
            band = band * (self.link.users / self.config.participants if shares is None else np.array(shares)[ids])
        received = self.receive_dbm(self._dbm[direction], ids, round_)
        return received - noise_dbm(band, self.options.noise_figure_db)

    def describe(self, round_: int) -> dict[str, np.ndarray]:
        """Describe the SNRs."""
        everyone = np.arange(self.config.clients)
        up, down = (self.find_snr_db(way, everyone, round_) for way in ("up", "down"))
        return {"snr_db": up, "downlink_snr_db": down}


class Cell(Placed):
    """Clients at random places in a disc around the base station, which stay for the run.

    Attributes:
        distance_m: distances on the ground, `[K]`.
        x_m, y_m: places, the base station being at 0, `[K]`.
        los: whether there is a line of sight, bool `[K]`.
        path_loss_db: mean loss at the distance, `[K]`.
        shadowing_db: further loss, of mean 0, `[K]`.
    """

    loses = True

    @dataclass(frozen=True)
    class Options(Placed.Options):
        """Options of the disc."""

        radius_m: float = 250.0
        """Radius of the cell."""

        def check(self) -> None:
            """Check the ranges."""
            super().check()
            radius = Rule(lambda v: NEAREST_M < v <= 1e5, "a number of metres above 10 and up to 100,000")
            require("radius_m", self.radius_m, radius)

    def __init__(self, config: Resolved, link: Link) -> None:
        super().__init__(config, link)
        # One generator for places and losses, in this order: the places stay when the path loss changes.
        rng = np.random.default_rng(int(torch.randint(2**62, (), generator=keyed(config.seed, "cell"))))
        loss = PATH_LOSSES.get(config.network.path_loss)(self.options)
        self.distance_m, angle = self.locate(config.clients, rng)
        self.x_m, self.y_m = self.distance_m * np.cos(angle), self.distance_m * np.sin(angle)
        self.los, self.path_loss_db, self.shadowing_db = loss.draw(self.distance_m, rng)

    def locate(self, clients: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Place the clients: distances to the base station in m and directions in radians, `[K]` each."""
        return drop_clients_in_cell(clients, rng, self.options.radius_m)

    def receive_dbm(self, power_dbm: float, ids: np.ndarray, round_: int) -> np.ndarray:
        """Subtract path loss and shadowing."""
        return power_dbm - self.path_loss_db[ids] - self.shadowing_db[ids]

    def describe(self, round_: int) -> dict[str, np.ndarray]:
        """Describe the places and the SNRs."""
        return {"x_m": self.x_m, "y_m": self.y_m, **super().describe(round_), "los": self.los}


class InScene(Placed):
    """Clients in a scene of a ray tracer, who may walk: each round meets the path gains of its time.

    Attributes:
        scene: the scene.
        gains_db: path gains of the run's clients, `[K, T]`.
    """

    numbered = True

    @dataclass(frozen=True)
    class Options(Placed.Options):
        """Options of the scene."""

        scene: Path | None = None
        """Name of a scene that ships (munich-20), or a file that `semcom scene` has written; it has to be given."""
        round_s: float | None = None
        """Seconds from the beginning of a round to that of the next (None: as long as the round takes with
        network.flops, otherwise 1)."""

        def check(self) -> None:
            """Check the ranges, and that the scene is there."""
            super().check()
            read_scene(self.scene)
            require("round_s", self.round_s, NOT_NEGATIVE)

    @classmethod
    def list_unused(cls, run: Planned) -> Iterator[tuple[str, str]]:
        """Yield the length of a round where nobody walks."""
        yield from super().list_unused(run)
        if len(read_scene(run.config.network.options.scene).times_s) == 1:
            yield "round_s", "the scene has a single time"

    def __init__(self, config: Resolved, link: Link) -> None:
        super().__init__(config, link)
        self.scene = read_scene(self.options.scene)
        if config.clients > self.scene.clients:
            raise ConfigError(f"network.scene: {self.scene.clients} clients are in it, {config.clients} in the run")
        self.gains_db = self.scene.gains_db()[: config.clients]

    def find_seconds(self, round_: int) -> float:
        """Find the time as `Places` does, or by the given length of a round."""
        given = self.options.round_s
        return super().find_seconds(round_) if given is None else max(round_ - 1, 0) * float(given)

    def find_time(self, round_: int) -> int:
        """Find the index of the scene's time in a round."""
        return self.scene.find_time(self.find_seconds(round_))

    def receive_dbm(self, power_dbm: float, ids: np.ndarray, round_: int) -> np.ndarray:
        """Add the path gains."""
        return power_dbm + self.gains_db[ids, self.find_time(round_)]

    def describe(self, round_: int) -> dict[str, np.ndarray]:
        """Describe the places, the base station being at 0, and the SNRs."""
        at = self.find_time(round_)
        x, y, _ = (self.scene.places_m[: self.config.clients, at] - self.scene.base_m).T
        return {"x_m": x, "y_m": y, **super().describe(round_), "los": self.scene.sight[: self.config.clients, at]}
