"""The link `digital`: quantiser, 5G LDPC, QAM, the channel, soft demapping, decoder, and back to numbers.

A sample is a codeword of its own in as many channel uses as the analog links take, d/2. So bits per number = code rate
x log2(constellation) / 2, and two of the three choose the third.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from semcom.channels.coding.ldpc import HIGHEST_RATE, LOWEST_RATE
from semcom.channels.coding.modem import Modem, make_modem, split_into_codewords
from semcom.channels.coding.qam import SIZES, count_symbol_bits
from semcom.channels.coding.quantise import Quantiser, make_quantiser
from semcom.channels.fading import AWGN, Coherence, DownlinkOptions, Rayleigh, Rician
from semcom.channels.link import Link, Realisation
from semcom.channels.meter import Meter
from semcom.channels.options import POSITIVE, NoEffect, Rule, one_of, require
from semcom.channels.power import PAIR, check_even, to_features, to_pairs
from semcom.channels.split import Hop

Fading = Literal["awgn", "rayleigh", "rician"]
CARRIERS: dict[str, type[Link]] = {"awgn": AWGN, "rayleigh": Rayleigh, "rician": Rician}
CODE_RATES = Rule(lambda v: LOWEST_RATE <= v <= HIGHEST_RATE, "a number from 1/5 to 948/1024")


class Digital(Link):
    """Features as coded bits over AWGN or block fading that the receiver knows, by default in 16-QAM at rate 1/2.

    Decoded bits are dequantised even if a parity check fails: a few wrong bits do less harm than a missing block. The
    gradient passes straight through quantiser and channel. Numbers without bits are not sent, and get no gradient.
    """

    @dataclass(frozen=True)
    class Options(DownlinkOptions):
        """Options of the code, and of the channel that coded symbols cross; two of the first three give the third."""

        bits: float | None = None
        """Bits per number, code_rate x log2(modulation) / 2 (None: what the other two give, or 1); a fraction gives
        some numbers one bit more than others."""
        modulation: int | None = None
        """Constellation size, 4, 16, 64 or 256 (None: what the other two give, or 16)."""
        code_rate: float | None = None
        """Information bits per coded bit, 1/5 to 948/1024 (None: what the other two give, or 1/2)."""
        fading: Fading = "awgn"
        """Channel that the symbols cross."""
        coherence: Coherence | None = None
        """Time that one h of "rayleigh" or "rician" lasts, as there (None: sample)."""
        k_factor_db: float | None = None
        """K of "rician" in dB (None: 9)."""

        def check(self) -> None:
            """Check the values, and that they belong together."""
            super().check()
            self.settled()

        def settled(self) -> Digital.Options:
            """Fill in the open options. Options that the fading does not take stay None."""
            bits, modulation, code_rate = settle_rates(self.bits, self.modulation, self.code_rate)
            taken = make_carrier(self.fading, self.coherence, self.k_factor_db).options
            own: dict[str, Any] = {name: getattr(taken, name, None) for name in ("coherence", "k_factor_db")}
            return replace(self, bits=bits, modulation=modulation, code_rate=code_rate, **own)

    options: Options

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.options = options.settled()
        self.bits, self.modulation, self.code_rate = settle_rates(options.bits, options.modulation, options.code_rate)
        self._carrier = make_carrier(options.fading, options.coherence, options.k_factor_db)

    @property
    def carrier(self) -> Link:
        """Link whose channel the symbols cross, coded or uncoded."""
        return self._carrier

    def in_band(self, clients: int, active: int, batch: int, d: int) -> Link:
        """Return this link. Raises ValueError if samples of `d` features make no codeword."""
        split_into_codewords(self.payload(d), d // 2, self.modulation)
        return self

    def payload(self, d: int) -> int:
        """Count the information bits of a sample of `d` features: even, since both numbers of a pair get the same."""
        check_even(d)
        most = math.floor(HIGHEST_RATE * d / 2 * math.log2(self.modulation))
        return 2 * min(max(1, round(self.bits * d / 2)), most // 2)

    def draw(
        self, sizes: Sequence[int], d: int, generator: torch.Generator, dtype: torch.dtype = torch.float32
    ) -> dict[str, Tensor]:
        """Draw the realisation of the fading's link: noise and gains of d/2 symbols per sample."""
        return self.carrier.draw(sizes, d, generator, dtype)

    def draw_all(
        self,
        clients: Sequence[int],
        sizes: Sequence[Sequence[int]],
        d: int,
        generators: Sequence[torch.Generator],
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
    ) -> list[dict[str, Tensor]]:
        """Draw as `Link` does, and make the coder of the device, for which a step would wait."""
        if device is not None:
            self._coder(d, device)
        return super().draw_all(clients, sizes, d, generators, dtype, device)

    def gain(self, drawn: Realisation) -> Tensor | None:
        """Return h per symbol, or None over AWGN."""
        return self.carrier.gain(drawn)

    def transmit(self, symbols: Tensor, up: Realisation, snr_db: Tensor, *, meter: Meter | None = None) -> Tensor:
        """Send uncoded symbols, past quantiser and code, through the link of the fading, with MMSE if it fades."""
        return self.carrier.transmit(symbols, up, snr_db, meter=meter)

    def _hop(self, drawn: Realisation, snr_db: Tensor, like: Tensor, meter: Meter | None) -> Hop:
        """Realise a crossing with the coder of features like `like` `[k, b, d]`."""
        plain = super()._hop(drawn, snr_db, like, meter)
        levels, coder = self._coder(like.shape[-1], like.device)
        return CodedHop(
            gain=plain.gain,
            weight=None,
            effective=levels.sent,
            noise=drawn["noise"],
            deviation=plain.deviation,
            meter=meter,
            quantiser=levels,
            modem=coder,
        )

    def _coder(self, d: int, device: torch.device) -> tuple[Quantiser, Modem]:
        """Make quantiser and modem of samples of `d` features, once per device."""
        bits = self.payload(d)
        return make_quantiser(d // 2, bits, device), make_modem(bits, d // 2, self.modulation, device)


@dataclass(frozen=True, kw_only=True)
class CodedHop(Hop):
    """Realised crossing of the channel by coded bits. `effective` is 0 for pairs that are not sent."""

    noise: Tensor
    quantiser: Quantiser
    modem: Modem

    def send(self, symbols: Tensor, unit: Tensor | float, mask: Tensor | None) -> Tensor:
        """Send pairs `[k, b, s]`, and return them as received. Padding arrives as zeros."""
        scale = unit / PAIR
        # A gradient of zero has the scale 0, by which numbers cannot be divided.
        least = scale.clamp_min(torch.finfo(scale.dtype).tiny) if isinstance(scale, Tensor) else scale
        numbers = (to_features(symbols) / least).flatten(0, 1)
        told = self.quantiser.bits(numbers)
        sent = self.modem.symbols(told).view_as(symbols)
        heard = sent if self.gain is None else self.gain * sent
        noise = self.deviation * self.noise
        if self.meter is not None:
            self.meter.add(heard, noise, 1.0, mask)
        each = (*symbols.shape[:2], -1)
        gain = None if self.gain is None else self.gain.expand(*each).flatten(0, 1)
        no = self.deviation.square().expand(*each).flatten(0, 1)
        bits, _ = self.modem.receive((heard + noise).flatten(0, 1), gain, no)
        if self.meter is not None:
            self.meter.count((bits != told).unflatten(0, symbols.shape[:2]), mask)
        arrived = self.quantiser.values(bits, numbers.dtype).unflatten(0, symbols.shape[:2])
        return to_pairs((arrived if mask is None else torch.where(mask.unsqueeze(-1), arrived, 0.0)) * scale)


def settle_rates(bits: float | None, modulation: int | None, code_rate: float | None) -> tuple[float, int, float]:
    """Derive bits per number, constellation size and code rate from the given values.

    Bits without the other two get the smallest constellation that carries them at rate 1/2 or less. Otherwise a missing
    constellation is 16-QAM, and a missing rate 1/2.

    Raises:
        ValueError: for an impossible value, or three that contradict each other.
    """
    require("code_rate", code_rate, CODE_RATES)
    require("bits", bits, POSITIVE)
    if modulation is None:
        modulation = 16 if bits is None else _choose_modulation(bits, code_rate)
    m = count_symbol_bits(modulation)
    if bits is None:
        code_rate = 1 / 2 if code_rate is None else code_rate
        return code_rate * m / 2, modulation, code_rate
    needed = 2 * bits / m
    if code_rate is not None and not math.isclose(needed, code_rate, rel_tol=1e-3):
        raise ValueError(
            f"bits: {bits:g} is not code_rate x log2(modulation) / 2 = {code_rate * m / 2:g}; give two of the three"
        )
    if not LOWEST_RATE <= needed <= HIGHEST_RATE:
        raise ValueError(
            f"bits: {bits:g} per value need code rate {needed:.3g} with modulation {modulation}; 1/5 to 948/1024 exist"
        )
    return bits, modulation, needed


def _choose_modulation(bits: float, code_rate: float | None) -> int:
    """Find the constellation for `bits` per number. Raises ValueError if no constellation has the given code rate."""
    known = [count_symbol_bits(size) for size in SIZES]
    if code_rate is None:
        return 2 ** next((m for m in known if 2 * bits / m <= 1 / 2), known[-1])
    m = 2 * bits / code_rate
    near = min(known, key=lambda one: abs(one - m))
    if not math.isclose(near, m, rel_tol=1e-3):
        raise ValueError(
            f"bits: {bits:g} per value at code_rate {code_rate:g} need {m:g} bits per symbol; 2, 4, 6, 8 exist"
        )
    return 2**near


def make_carrier(fading: str, coherence: str | None, k_factor_db: float | None) -> Link:
    """Build the link of a fading. Raises ValueError for an unknown fading, or an option without effect on it."""
    one_of("fading", fading, get_args(Fading))
    link = CARRIERS[fading]
    given: dict[str, Any] = {"coherence": coherence, "k_factor_db": k_factor_db}
    given = {name: value for name, value in given.items() if value is not None}
    for name, value in given.items():
        if not hasattr(link.Options, name):
            raise NoEffect(f"{name}: {value!r} has no effect with fading {fading}")
    return link(link.Options(**given))
