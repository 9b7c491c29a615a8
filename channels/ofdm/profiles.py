"""Frequency responses of 3GPP's channel profiles (TR 38.901, version 19.2) and of flat Rayleigh fading, through Sionna.

Importing Sionna takes seconds and reseeds torch's global generator, and its blocks draw from a generator of its own:
`sionna` and `lent` keep all that inside.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, Literal, get_args

import torch
from torch import Tensor

ProfileName = Literal[
    "rayleigh", "tdl-a", "tdl-b", "tdl-c", "tdl-d", "tdl-e", "cdl-a", "cdl-b", "cdl-c", "cdl-d", "cdl-e"
]
PROFILES: tuple[ProfileName, ...] = get_args(ProfileName)
LAST_PATH: Mapping[ProfileName, float] = {
    "rayleigh": 0.0,
    "tdl-a": 9.6586,
    "tdl-b": 4.7834,
    "tdl-c": 8.6523,
    "tdl-d": 12.525,
    "tdl-e": 20.6519,
    "cdl-a": 9.6586,
    "cdl-b": 4.7834,
    "cdl-c": 8.6523,
    "cdl-d": 12.525,
    "cdl-e": 20.6419,
}
"""Delay of each profile's last path, over the r.m.s. delay spread."""


@dataclass(frozen=True)
class Profile:
    """Channel in time and frequency, E|h|^2 = 1, one antenna at each end.

    Attributes:
        name: of `LAST_PATH`; "rayleigh" is one path, constant over a frame.
        delay_spread_s: r.m.s. delay spread.
        carrier_hz: carrier frequency.
        speed: of the client, in m/s.
    """

    name: ProfileName
    delay_spread_s: float = 0.0
    carrier_hz: float = 0.0
    speed: float = 0.0

    @property
    def last_path_s(self) -> float:
        """Delay of the last path, in seconds."""
        return LAST_PATH[self.name] * self.delay_spread_s

    @torch.no_grad()
    def response(
        self, frames: int, times: int, rate: float, width: int, spacing_hz: float, generator: torch.Generator
    ) -> Tensor:
        """Draw h of independent frames, complex64 `[frames, times, width]`, on the generator's device.

        A client's block of subcarriers is taken as centred at the carrier: shifted by f, path l would turn by
        2 pi f tau_l, and its phase is uniform anyway.

        Args:
            frames: number of frames, drawn in one call.
            times: OFDM symbols of a frame.
            rate: OFDM symbols per second.
            width: subcarriers.
            spacing_hz: between them.
            generator: the only source of randomness.
        """
        parts, device = sionna(), str(generator.device)
        with lent(generator):
            paths, delays = _model(self, device)(frames, times, rate)
        frequencies = parts.subcarrier_frequencies(width, spacing_hz, precision="single", device=device)
        h = parts.cir_to_ofdm_channel(frequencies, paths, delays).view(frames, times, width)
        if not self.name.startswith("cdl"):
            return h
        # The line of sight of a CDL has phase 0, as if at distance 0; that of a TDL and of `rician` is uniform.
        turn = 2 * torch.pi * torch.rand(frames, 1, 1, generator=generator, device=generator.device)
        return h * torch.polar(torch.ones_like(turn), turn)


@lru_cache(maxsize=32)
def _model(profile: Profile, device: str) -> Any:
    """Make Sionna's generator of path coefficients and delays."""
    parts, kind, letter = sionna(), profile.name[:3], profile.name[-1].upper()
    own = {"precision": "single", "device": device}
    if profile.name == "rayleigh":
        return parts.RayleighBlockFading(1, 1, 1, 1, **own)
    spread, carrier = profile.delay_spread_s, profile.carrier_hz
    speed = {"min_speed": profile.speed, "max_speed": profile.speed, "spec_version": "19.2"}
    if kind == "tdl":
        return parts.TDL(letter, spread, carrier, **speed, **own)
    antenna = parts.PanelArray(1, 1, "single", "V", "omni", carrier, **own)
    return parts.CDL(letter, spread, carrier, ut_array=antenna, bs_array=antenna, direction="uplink", **speed, **own)


@lru_cache(maxsize=1)
def sionna() -> SimpleNamespace:
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
def lent(generator: torch.Generator) -> Iterator[None]:
    """Lend a generator to Sionna: inside, its blocks draw from it; afterwards Sionna's own is as before.

    States are kept on the host, so an accelerator is not waited for.
    """
    own = sionna().config.torch_rng(str(generator.device))
    before = own.get_state()
    own.set_state(generator.get_state())
    try:
        yield
    finally:
        generator.set_state(own.get_state())
        own.set_state(before)
