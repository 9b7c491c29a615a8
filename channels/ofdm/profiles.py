"""Frequency responses of 3GPP's channel profiles (TR 38.901, version 19.2) and of flat Rayleigh fading, through Sionna.

Importing Sionna takes seconds and reseeds torch's global generator, and its blocks draw from its own generator.
`import_sionna` and `lend_generators_to_sionna` hide these side effects.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from semcom.channels.cell import LIGHT


class Profile:
    """Fading of one antenna in time and frequency, E|h|^2 = 1. A subclass implements `response`.

    Decorate a subclass with `@PROFILES.register("mine")` to add a value of the option `profile`.
    """

    disperses: ClassVar[bool] = False
    """True if it is made from a delay spread (s), a carrier (Hz) and a speed (m/s); otherwise it takes no arguments."""
    last_path_s: float = 0.0
    """Delay of the last path after the first, which belongs into the cyclic prefix."""
    doppler_hz: float | None = None
    """Largest Doppler frequency, which bounds the coherence time (None: unknown)."""

    def like(self, client: int) -> int:
        """Find a client whose fading has the same statistics, the same for all such clients."""
        return client

    def response(
        self,
        clients: Sequence[int],
        frames: Sequence[int],
        times: int,
        rate: float,
        width: int,
        spacing_hz: float,
        generators: Sequence[torch.Generator],
        device: torch.device | None = None,
    ) -> Tensor:
        """Draw h of independent frames of several clients, complex64 `[sum(frames), times, width]`.

        A client's block of subcarriers is assumed to be centred at the carrier.

        Args:
            clients: clients of these frames.
            frames: number of each client's frames, which are independent and may be computed at once.
            times: OFDM symbols of a frame.
            rate: OFDM symbols per second.
            width: subcarriers.
            spacing_hz: spacing of the subcarriers.
            generators: of each client, the only source of randomness.
            device: device on which h is computed from the draws (None: that of the generators).
        """
        raise NotImplementedError


@dataclass(frozen=True)
class ThreeGPP(Profile):
    """Profile of TR 38.901, or flat Rayleigh fading that is constant over a frame, as Sionna makes them."""

    delay_spread_s: float = 0.0
    carrier_hz: float = 0.0
    speed: float = 0.0

    name: ClassVar[str]
    last_path: ClassVar[float]
    """Delay of the last path over the delay spread."""

    @property
    def last_path_s(self) -> float:  # type: ignore[override]
        """Delay of the last path, in seconds."""
        return self.last_path * self.delay_spread_s

    @property
    def scattered(self) -> bool:
        """True if all paths are Rayleigh fading: of TDL and CDL profiles D and E the first has a line of sight."""
        return self.name[-1] not in "de"

    @property
    def doppler_hz(self) -> float:  # type: ignore[override]
        """Doppler frequency of the speed, in Hz."""
        return self.speed * self.carrier_hz / LIGHT

    def like(self, client: int) -> int:
        """Return 0: the fading of all clients has the same statistics."""
        return 0

    @torch.no_grad()
    def response(
        self,
        clients: Sequence[int],
        frames: Sequence[int],
        times: int,
        rate: float,
        width: int,
        spacing_hz: float,
        generators: Sequence[torch.Generator],
        device: torch.device | None = None,
    ) -> Tensor:
        """Draw h as `Profile` does, with the same statistics for all clients.

        The position of the block does not matter: shifted by f, path l would turn by 2 pi f tau_l, and its phase is
        uniform anyway.
        """
        parts, count, place = import_sionna(), sum(frames), str(device or generators[0].device)
        with lend_generators_to_sionna(generators, frames, place):
            paths, delays = self.model(place)(count, times, rate)
        frequencies = parts.subcarrier_frequencies(width, spacing_hz, precision="single", device=place)
        h: Tensor = parts.cir_to_ofdm_channel(frequencies, paths, delays).view(count, times, width)
        if not self.name.startswith("cdl"):
            return h
        # The line of sight of a CDL has phase 0, as if at distance 0; that of a TDL and of `rician` is uniform.
        rows = zip(frames, generators, strict=True)
        turns = torch.cat([torch.rand(n, 1, 1, generator=g, device=g.device) for n, g in rows])
        turn = 2 * torch.pi * move_draws_to_device(turns, h.device)
        return h * torch.polar(torch.ones_like(turn), turn)

    @lru_cache(maxsize=32)  # noqa: B019 (profiles are few)
    def model(self, device: str) -> Any:
        """Make Sionna's generator of path coefficients and delays."""
        parts, kind, letter = import_sionna(), self.name[:3], self.name[-1].upper()
        own = {"precision": "single", "device": device}
        if self.name == "rayleigh":
            return parts.RayleighBlockFading(1, 1, 1, 1, **own)
        spread, carrier = self.delay_spread_s, self.carrier_hz
        speed = {"min_speed": self.speed, "max_speed": self.speed, "spec_version": "19.2"}
        if kind == "tdl":
            return parts.TDL(letter, spread, carrier, **speed, **own)
        array = parts.PanelArray(1, 1, "single", "V", "omni", carrier, **own)
        return parts.CDL(letter, spread, carrier, ut_array=array, bs_array=array, direction="uplink", **speed, **own)


def _entry(name: str, last_path: float) -> type[ThreeGPP]:
    return type(name, (ThreeGPP,), {"name": name, "last_path": last_path, "disperses": name != "rayleigh"})


RAYLEIGH = _entry("rayleigh", 0.0)
TDL_A, TDL_B, TDL_C = _entry("tdl-a", 9.6586), _entry("tdl-b", 4.7834), _entry("tdl-c", 8.6523)
TDL_D, TDL_E = _entry("tdl-d", 12.525), _entry("tdl-e", 20.6519)
CDL_A, CDL_B, CDL_C = _entry("cdl-a", 9.6586), _entry("cdl-b", 4.7834), _entry("cdl-c", 8.6523)
CDL_D, CDL_E = _entry("cdl-d", 12.525), _entry("cdl-e", 20.6419)


@lru_cache(maxsize=1)
def import_sionna() -> SimpleNamespace:
    """Import the parts of Sionna that are used, without a trace in torch's global generators."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        from sionna.phy import config
        from sionna.phy.channel import RayleighBlockFading, cir_to_ofdm_channel, subcarrier_frequencies
        from sionna.phy.channel.tr38901 import CDL, TDL, PanelArray
    return SimpleNamespace(
        config=config,
        RayleighBlockFading=RayleighBlockFading,
        TDL=TDL,
        CDL=CDL,
        PanelArray=PanelArray,
        cir_to_ofdm_channel=cir_to_ofdm_channel,
        subcarrier_frequencies=subcarrier_frequencies,
    )


@contextlib.contextmanager
def lend_generators_to_sionna(
    generators: Sequence[torch.Generator], rows: Sequence[int] = (1,), device: str | None = None
) -> Iterator[None]:
    """Lend generators to Sionna, so that its blocks draw from them and its own generator stays unchanged.

    Args:
        generators: one, or several, each for its own rows.
        rows: rows of each of several generators, among the rows of every draw.
        device: of Sionna's blocks (None: that of the generators).
    """
    with _Lent(import_sionna().config.torch_rng(device or str(generators[0].device)), generators, rows):
        yield


class _Lent(TorchFunctionMode):
    """Substitute other generators for the draws of one."""

    def __init__(self, own: torch.Generator, generators: Sequence[torch.Generator], rows: Sequence[int]) -> None:
        super().__init__()
        self.own, self.generators, self.rows = own, generators, rows

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if kwargs.get("generator") is not self.own:
            return func(*args, **kwargs)
        shape, *rest = [kwargs.pop("size"), *args] if "size" in kwargs else args
        shapes = [(n, *shape[1:]) for n in self.rows] if len(self.generators) > 1 else [shape]
        if sum(own[0] for own in shapes) != shape[0]:
            raise RuntimeError(f"Sionna draws {list(shape)} for {sum(self.rows)} frames, which cannot be told apart")
        drawn = [
            func(*rest, size=own, **{**kwargs, "generator": g, "device": g.device})
            for own, g in zip(shapes, self.generators, strict=True)
        ]
        return move_draws_to_device(torch.cat(drawn), self.own.device)


def move_draws_to_device(drawn: Tensor, device: torch.device) -> Tensor:
    """Move draws to a device. The host does not wait for an accelerator."""
    return drawn if drawn.device == device else drawn.pin_memory().to(device, non_blocking=True)
