"""The link `ofdm`: the clients share one band of orthogonal subcarriers, each with a fading channel of its own.

Every mini-batch is one frame: whole slots of 14 OFDM symbols on the client's block of subcarriers. Data fill one OFDM
symbol after the other. On each resource element `y = h x + n`: the cyclic prefix is taken to be longer than the
channel, and a symbol to be short against its changes, so that nothing interferes.

The receiver knows h (`csi` "perfect"), or estimates it by least squares from the pilots ("ls"). A pilot p of power 1 is
heard as `h p + sqrt(no) n`, so the estimate there is `h + sqrt(no) e` with E|e|^2 = 1, whatever p is; in between it is
interpolated linearly in time. As that is linear, what becomes of h and of e is drawn for every symbol before the SNR is
known: the estimate is `known + sqrt(no) error`.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from channels.link import Cost, Link, Rows, complex_normal
from channels.ofdm.grid import SLOT, Band, Grid, frame
from channels.ofdm.profiles import LAST_PATH, Profile
from channels.options import not_negative, one_of, positive
from channels.power import check_even

T = TypeVar("T", int, float)

CSI = ("perfect", "ls")


class OFDM(Link):
    """`y = h x + n` on each resource element of a grid, E|h|^2 = 1 over time and frequency.

    Args:
        profile: "rayleigh" (flat, one h per frame), "tdl-a" to "tdl-e" or "cdl-a" to "cdl-e" (3GPP TR 38.901).
        csi: what the receiver knows of h: "perfect", or "ls".
        equaliser, downlink: as `Link`.
        pilots: pilot symbols of a slot, of 0 to 13; they take uses and energy with either `csi`.
        subcarriers: of the whole band; None: as many as each client's mini-batch needs in one slot.
        shares: part of each client, summing to 1; None: those that take part share equally.
        spacing_khz: between subcarriers.
        cyclic_prefix: its length over that of a symbol without it; with 1/14 a slot of 15 kHz lasts 1 ms.
        delay_spread_ns: r.m.s. delay spread; None: 100.
        carrier_ghz: carrier frequency; None: 3.5.
        speed_mps: of the clients; None: 3. Flat Rayleigh fading takes none of these three.

    Raises:
        ValueError: for values that make no grid, and options that would do nothing.
    """

    def __init__(
        self,
        *,
        profile: str = "tdl-a",
        csi: str = "perfect",
        equaliser: str = "mmse",
        downlink: str = "noisy",
        pilots: int | Sequence[int] = (2, 11),
        subcarriers: int | None = None,
        shares: float | Sequence[float] | None = None,
        spacing_khz: float = 15.0,
        cyclic_prefix: float = 1 / 14,
        delay_spread_ns: float | None = None,
        carrier_ghz: float | None = None,
        speed_mps: float | None = None,
    ) -> None:
        super().__init__(equaliser=equaliser, downlink=downlink)
        self.profile, self.csi = one_of("profile", profile, tuple(LAST_PATH)), one_of("csi", csi, CSI)
        if csi == "ls" and equaliser == "none":
            raise ValueError("csi: 'ls' does nothing without an equaliser; choose mmse or zf")
        self.pilots = _check_pilots(_several(pilots), csi)
        self.spacing_khz = positive("spacing_khz", spacing_khz)
        self.cyclic_prefix = not_negative("cyclic_prefix", cyclic_prefix)
        self.delay_spread_ns, self.carrier_ghz, self.speed_mps = delay_spread_ns, carrier_ghz, speed_mps
        self.shares = None if shares is None else _check_shares(_several(shares))
        self.subcarriers = None if subcarriers is None else int(positive("subcarriers", subcarriers))
        self._grid = Grid(self.pilots, 1e3 * spacing_khz, cyclic_prefix)
        self._channel = self._find_channel()
        self._band = None if self.subcarriers is None else Band(self.subcarriers, 1, self.shares)
        self._client: int | None = None

    def _find_channel(self) -> Profile:
        """The profile with its numbers, of which open ones are filled in. Warns of paths beyond the cyclic prefix."""
        given = {n: getattr(self, n) for n in MOBILITY if getattr(self, n) is not None}
        if self.profile == "rayleigh":
            for name, value in given.items():
                raise ValueError(f"{name}: {value!r} is not for profile rayleigh, which is flat and constant")
            return Profile(self.profile)
        values = MOBILITY | given
        self.delay_spread_ns = not_negative("delay_spread_ns", values["delay_spread_ns"])
        self.carrier_ghz = positive("carrier_ghz", values["carrier_ghz"])
        self.speed_mps = not_negative("speed_mps", values["speed_mps"])
        channel = Profile(self.profile, 1e-9 * self.delay_spread_ns, 1e9 * self.carrier_ghz, self.speed_mps)
        prefix_s = self.cyclic_prefix / self._grid.spacing_hz
        if channel.last_path_s > prefix_s:
            warnings.warn(
                f"delay_spread_ns: {self.delay_spread_ns:g} puts the last path of {self.profile} at "
                f"{1e6 * channel.last_path_s:.3g} us, beyond the cyclic prefix of {1e6 * prefix_s:.3g} us; the "
                "interference that this causes is left out",
                stacklevel=4,
            )
        return channel

    def in_band(self, clients: int, active: int, batch: int, d: int) -> OFDM:
        """As `Link.in_band`; raises ValueError where shares are not one per client, or subcarriers do not suffice."""
        if self.shares is not None and len(self.shares) != clients:
            raise ValueError(f"shares: {len(self.shares)} values for {clients} clients; give one per client")
        users = active if self.shares is None else clients
        check_even(d)
        total = self.subcarriers or users * self._grid.width(batch * d // 2)
        link = copy.copy(self)
        link._band, link.subcarriers = Band(total, active, self.shares), total
        link.bandwidth_hz = total * self._grid.spacing_hz
        return link

    def of(self, client: int) -> OFDM:
        """As `Link.of`: a client has its own number of subcarriers where shares are given."""
        if self.shares is None:
            return self
        link = copy.copy(self)
        link._client = client
        return link

    def cost(self, numbers: np.ndarray, clients: np.ndarray) -> Cost:
        """As `Link.cost`: whole slots of the client's part of the band, with pilots and cyclic prefix."""
        symbols, prefix = np.ceil(numbers / 2), 1 + self.cyclic_prefix
        band = self._find_band(int(symbols.max(initial=0)))
        widths = band.widths(clients)
        slots = self._grid.slots(symbols, widths)
        energy = symbols + slots * len(self.pilots) * widths
        return Cost(slots * SLOT * prefix * band.parts(clients) * band.subcarriers, energy * prefix)

    def _find_band(self, most: int) -> Band:
        """The band, or as much of it as `most` symbols need in one slot. Raises ValueError for shares of no band."""
        if self._band is None and self.shares is not None:
            raise ValueError("shares: the band is not known; give subcarriers, or call link.in_band")
        return self._band or Band(self._grid.width(most), 1, None)

    def draw(
        self, sizes: Sequence[int], d: int, generator: torch.Generator, dtype: torch.dtype = torch.float32
    ) -> dict[str, Tensor]:
        """As `Link.draw`, with complex `[sum(sizes), d/2]` "fading" h and, for `csi` "ls", "known" and "error".

        Without `in_band` and without a number of subcarriers, the band is what the largest mini-batch needs.
        """
        rows, s = super().draw(sizes, d, generator, dtype), d // 2
        grid, frames, most = self._grid, max(1, len(sizes)), s * max(sizes, default=0)
        if self.shares is not None and self._client is None:
            raise ValueError("shares: clients differ in them; draw from link.of(client)")
        width = int(self._find_band(most).widths(np.array([self._client or 0]))[0])
        slots = max(1, int(grid.slots(np.array(most), width)))
        h = self._channel.response(frames, SLOT * slots, grid.symbol_rate, width, grid.spacing_hz, generator)
        h = h.to(dtype.to_complex())
        at = frame(grid, slots, h.device)
        drawn = {"fading": h.index_select(1, at.data)}
        if self.csi == "ls":
            pilots = h.index_select(1, at.pilots)
            drawn["known"] = at.between(pilots)
            drawn["error"] = at.between(complex_normal(pilots.shape, generator, dtype))
        return rows | {name: _per_sample(grids, sizes, s) for name, grids in drawn.items()}

    def gain(self, rows: Rows) -> Tensor:
        """h."""
        return rows["fading"]

    def estimate(self, rows: Rows, deviation: Tensor) -> Tensor | None:
        """What was interpolated between the pilots, with the noise on them."""
        return None if self.csi == "perfect" else rows["known"] + deviation * rows["error"]


MOBILITY = {"delay_spread_ns": 100.0, "carrier_ghz": 3.5, "speed_mps": 3.0}
"""Options that only moving, dispersive profiles take, with their defaults."""


def _per_sample(grids: Tensor, sizes: Sequence[int], s: int) -> Tensor:
    """Data elements of the frames `[S, symbols, width]` as rows per sample, `[sum(sizes), s]`, in order."""
    flat = grids.flatten(1)
    return torch.cat([flat[i, : b * s].view(b, s) for i, b in enumerate(sizes)] or [flat.new_zeros(0, s)])


def _several(values: T | Sequence[T]) -> tuple[T, ...]:
    """A value or several as several."""
    return tuple(values) if isinstance(values, Sequence) else (values,)


def _check_pilots(pilots: tuple[int, ...], csi: str) -> tuple[int, ...]:
    """The pilot symbols, ascending. Raises ValueError unless they leave data, and suffice for what is to be known."""
    wrong = [i for i in pilots if not 0 <= i < SLOT]
    if wrong or len(set(pilots)) < len(pilots):
        raise ValueError(f"pilots: {pilots} are not different symbols of a slot, 0 to {SLOT - 1}")
    if len(pilots) == SLOT:
        raise ValueError(f"pilots: all {SLOT} symbols of a slot are pilots, which leaves none for data")
    if csi == "ls" and not pilots:
        raise ValueError("pilots: there are none to estimate the channel from; csi ls needs one")
    return tuple(sorted(pilots))


def _check_shares(shares: tuple[float, ...]) -> tuple[float, ...]:
    """The shares. Raises ValueError unless they are positive and sum to 1."""
    for share in shares:
        positive("shares", share)
    if abs(sum(shares) - 1) > 1e-6:
        raise ValueError(f"shares: {', '.join(f'{share:g}' for share in shares)} sum to {sum(shares):g} and not to 1")
    return shares
