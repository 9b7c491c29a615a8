"""The link `ofdm`: the clients share one band of orthogonal subcarriers, each with a fading channel of its own.

Every mini-batch is one frame: whole slots of 14 OFDM symbols on the client's block of subcarriers. Data fill one OFDM
symbol after the other. On each resource element `y = h x + n`: the cyclic prefix is taken to be longer than the
channel, and a symbol to be short against its changes, so that nothing interferes.

The receiver knows h (`csi` "perfect"), or estimates it by least squares from the pilots ("ls"). A pilot p of power 1 is
heard as `h p + sqrt(no) n`, so the estimate there is `h + sqrt(no) e` with E|e|^2 = 1, whatever p is; in between it is
interpolated linearly in time. As that is linear, the shares of h and of e are drawn for every symbol before the SNR is
known: the estimate is g = `known + sqrt(no) error`. The receiver knows how good it is, by the second `moments` of h and
`known`, which are measured once on `HEARD` frames: with r = Re E[h known*] the best multiple of g has the mean c g,
c = r / E|g|^2, and the variance 1 - r^2 / E|g|^2.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from semcom.channels import PROFILES, make_link
from semcom.channels.equalise import Estimate, combine_antennas
from semcom.channels.law import Law
from semcom.channels.link import SAMPLES, Cost, Link, Realisation, complex_normal
from semcom.channels.ofdm.grid import SLOT, Band, Grid, make_frame
from semcom.channels.ofdm.options import GridOptions, list_values, warn_of_cyclic_prefix
from semcom.channels.ofdm.profiles import RAYLEIGH, Profile, move_draws_to_device
from semcom.channels.options import NOT_NEGATIVE, POSITIVE, NoEffect, require
from semcom.channels.power import check_even
from semcom.channels.users import Combined, Fades, separate_users


class OFDM(Combined):
    """Link with `y = h x + n` on each resource element of a grid, E|h|^2 = 1 over time and frequency."""

    @dataclass(frozen=True)
    class Options(GridOptions):
        """Options of the grid, of the fading on it, and of the base station and its knowledge."""

        profile: str = "tdl-a"
        """Fading: "rayleigh" (flat, one h per frame), "tdl-a" to "tdl-e", "cdl-a" to "cdl-e" (3GPP TR 38.901), or one
        that is registered in `PROFILES`."""
        delay_spread_ns: float | None = None
        """R.m.s. delay spread of TDL and CDL profiles, ns (None: 100)."""
        carrier_ghz: float | None = None
        """Carrier frequency of TDL and CDL profiles, GHz (None: 3.5)."""
        speed_mps: float | None = None
        """Speed of the clients with TDL and CDL profiles, m/s (None: 3)."""

        def check(self) -> None:
            """Check as the parent does, and the fading."""
            super().check()
            for name in () if PROFILES.get(self.profile).disperses else MOBILITY:
                if getattr(self, name) is not None:
                    value = getattr(self, name)
                    raise NoEffect(f"{name}: {value!r} is not for profile {self.profile}, which is flat and constant")
            require("delay_spread_ns", self.delay_spread_ns, NOT_NEGATIVE)
            require("carrier_ghz", self.carrier_ghz, POSITIVE)
            require("speed_mps", self.speed_mps, NOT_NEGATIVE)

        def settled(self) -> OFDM.Options:
            """Fill in the open options of `MOBILITY`, which flat fading does not take."""
            defaults = MOBILITY if PROFILES.get(self.profile).disperses else {}
            return replace(self, **{name: v for name, v in defaults.items() if getattr(self, name) is None})

    options: GridOptions

    def __init__(self, options: GridOptions) -> None:
        super().__init__(options)
        self.options = options = options.settled()
        self.shares = None if options.shares is None else list_values(options.shares)
        self._pilots = tuple(sorted(list_values(options.pilots)))
        self._grid = Grid(self._pilots, 1e3 * options.spacing_khz, options.cyclic_prefix)
        self._apart_hz = self._grid.spacing_hz
        self.overhead = self._grid.overhead
        self.profile = self.make_profile()
        self.estimates = options.csi == "ls"
        self.block_fading = type(self.profile) is RAYLEIGH
        self._band = None if options.subcarriers is None else Band(options.subcarriers, 1, self.shares)
        self._client: int | None = None

    def make_profile(self) -> Profile:
        """Build the fading of the options, and warn of paths beyond the cyclic prefix. A subclass may build another."""
        options = self.options
        assert isinstance(options, OFDM.Options)
        kind: Any = PROFILES.get(options.profile)
        values = [getattr(options, name) for name in MOBILITY]
        if None in values:
            return kind()
        spread_ns, carrier_ghz, speed = values
        profile = kind(1e-9 * spread_ns, 1e9 * carrier_ghz, speed)
        warn_of_cyclic_prefix(f"delay_spread_ns: {spread_ns:g}", options.profile, profile.last_path_s, options)
        return profile

    def in_band(self, clients: int, active: int, batch: int, d: int) -> OFDM:
        """Size and share the band of this link, as `Link.in_band` does.

        Raises ValueError for shares that are not one per client, or too few subcarriers.
        """
        if self.shares is not None and len(self.shares) != clients:
            raise ValueError(f"shares: {len(self.shares)} values for {clients} clients; give one per client")
        groups = -(-active // self.users)
        check_even(d)
        blocks = groups if self.shares is None else clients
        total = self.options.subcarriers or blocks * self._grid.width(batch * d // 2)
        link = copy.copy(self)
        link._band, link.options = Band(total, groups, self.shares), replace(self.options, subcarriers=total)
        link.bandwidth_hz = total * self._grid.spacing_hz
        return link

    def of(self, client: int) -> OFDM:
        """Return this link as seen by a client: with its fading, and its number of subcarriers."""
        link = copy.copy(self)
        link._client = client
        return link

    def broadcast(self) -> Combined:
        """Return this link for broadcasts: over the whole band, to a single user."""
        whole = cast(OFDM, super().broadcast())
        whole.shares = None
        if self._band is not None:
            whole._band = Band(self._band.subcarriers, 1, None)
        return whole

    def like(self, client: int) -> int:
        """Find a client with the same statistics on as many subcarriers. With `shares` each client has its own."""
        return self.profile.like(client) if self.shares is None and type(self).of is OFDM.of else client

    def law(self) -> Law | None:
        """Find the law of |h|^2 of a single user on a resource element, if all paths are Rayleigh fading."""
        scattered = type(self) is OFDM and self.users == 1 and getattr(self.profile, "scattered", False)
        return make_link("rayleigh", antennas=self.antennas).law() if scattered else None

    def draw_blocks(
        self, uses: float, blocks: int | None, generator: torch.Generator, powers: Tensor | None = None
    ) -> tuple[Realisation, float]:
        """Draw h, or the result of separating several users, on resource elements spread evenly over each block.

        A block fills one OFDM symbol of the client's subcarriers after the other. If it lasts so long that elements
        half a turn of the Doppler frequency apart do not reach its end, they are spread over its beginning.
        """
        grid, antennas, users = self._grid, self.antennas, self.users
        width = min(self._frame(self._client or 0, 1)[0], math.ceil(uses))
        times = grid.count_times(uses, width)
        doppler, few = self.profile.doppler_hz, ALONG if users > 1 else ACROSS
        across = 1 if self.block_fading else min(width, few)
        most = ALONG if doppler else 8 * ALONG  # of an unknown fading nothing follows for what is not drawn
        along = 1 if self.block_fading or doppler == 0 else min(math.ceil(times), most)
        step = times / along
        if doppler:
            step = min(step, max(1.0, grid.symbol_rate / (2 * doppler)))
        each = ALONG if self.estimates and self.block_fading else along  # one h is heard with other noise at each pilot
        count = blocks or max(1024, SAMPLES // (4 * each * users * antennas))  # a profile's draws take long
        size = along, grid.symbol_rate / step, across, self._apart_hz * width / across
        piece, whole = max(1, PIECE // along), count * users * antennas  # frames at once, which bound memory, and all
        frames = [piece] * (whole // piece) + [whole % piece]
        h = [self.profile.response([self._client or 0], [n], *size, [generator]) for n in frames if n]
        gains = torch.cat(h).view(count, users, antennas, along * across)
        share = min(1.0, step * along / times) if doppler else 1.0
        if users > 1:
            return separate_users(gains.permute(0, 3, 2, 1), self.combining, powers), share
        drawn = {"fading": combine_antennas(gains[:, 0], 1)}
        if not self.estimates:
            return drawn, share
        alike = [self.profile.response([self._client or 0], [n], *size, [generator]) for n in frames if n]
        here, other = (t.view(count, along, across) for t in (drawn["fading"], torch.cat(alike)))
        if self.block_fading:
            here = here.expand(-1, ALONG, min(width, ACROSS))
        return self._add_estimates(here, other, times, generator), share

    def _add_estimates(self, h: Tensor, other: Tensor, times: float, generator: torch.Generator) -> dict[str, Tensor]:
        """Add to h on some elements of blocks what the receiver knows of it, as `draw` does on all of whole slots.

        Args:
            h: on symbols all over each block and on some of its subcarriers, `[blocks, symbols, subcarriers]`.
            other: an independent fade: errors of interpolation are as alike as h.
            times: OFDM symbols of a block.
            generator: of the pilots' noise.
        """
        blocks, along, across = h.shape
        slots = max(1, round(times / SLOT))
        some, edge = min(slots, along), int(slots > along)  # of long blocks no slot is at the end
        frame, n = make_frame(self._grid, some + 2 * edge, h.device), len(self._grid.data)
        start = torch.rand(blocks, 1, generator=generator, dtype=torch.float64)
        at = edge * n + ((torch.arange(along) + start) * (some * n / along)).long().clamp_max(some * n - 1)
        known = _measure_interpolation(self.profile, self._client or 0, self._grid, some + 2 * edge, h.device)
        moments = known[at].repeat_interleave(across, 1)
        noise = complex_normal((blocks, len(frame.pilots), across), generator, h.real.dtype)
        before, after = (noise.take_along_dim(of[at][..., None], 1) for of in (frame.before, frame.after))
        error = before + frame.part[at].to(h.real.dtype) * (after - before)
        r, floor, _ = moments.unbind(-1)
        heard = r * h.flatten(1) + floor.sqrt() * other.expand_as(h).flatten(1)
        shares = {"known": heard, "error": error.flatten(1)}
        return {"fading": h.flatten(1), **shares, "moments": moments}

    def draw_symbols(self, generator: torch.Generator) -> Realisation:
        """Draw as `Link` does, whole slots of subcarriers that are spread over the client's."""
        thin, width = copy.copy(self), self._frame(self._client or 0, 1)[0]
        few = min(width, ALONG)
        thin._band, thin._apart_hz = Band(few, 1, None), self._apart_hz * width / few
        return thin.draw([1] * (SAMPLES // 64), 2 * few * len(self._grid.data), generator, torch.float64)

    def cost(self, numbers: np.ndarray, clients: np.ndarray) -> Cost:
        """Compute the cost in whole slots of the client's part of the band, pilots and cyclic prefix included."""
        symbols, prefix = np.ceil(numbers / 2), 1 + self.options.cyclic_prefix
        band = self._find_band(int(symbols.max(initial=0)))
        widths = band.widths(clients)
        slots = self._grid.slots(symbols, widths)
        energy = symbols + slots * len(self._pilots) * widths
        return Cost(slots * SLOT * prefix * band.parts(clients) * band.subcarriers, energy * prefix)

    def _find_band(self, most: int) -> Band:
        """Find the band, or as much as `most` symbols need in one slot. Raises ValueError for shares without a band."""
        if self._band is None and self.shares is not None:
            raise ValueError("shares: the band is not known; give subcarriers, or call link.in_band")
        return self._band or Band(self._grid.width(most), 1, None)

    def draw(
        self,
        sizes: Sequence[int],
        d: int,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
        fades: Fades | None = None,
    ) -> dict[str, Tensor]:
        """Draw as `Link` does, and "fading" `[sum(sizes), d/2, ...]`; with `csi` "ls" "known", "error" and "moments".

        Several users have the entries of `semcom.channels.users.separate_users` on each resource element, from the
        gains of all of them. `fades` gives their generators and powers. Without it `generator` draws all gains. Without
        `in_band` and without a number of subcarriers, the band is sized for the largest mini-batch.
        """
        if self.shares is not None and self._client is None:
            raise ValueError("shares: clients differ in them; draw from link.of(client)")
        more = None if fades is None else [fades]
        return self.draw_all([self._client or 0], [sizes], d, [generator], dtype, fades=more)[0]

    def draw_all(
        self,
        clients: Sequence[int],
        sizes: Sequence[Sequence[int]],
        d: int,
        generators: Sequence[torch.Generator],
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
        fades: Sequence[Fades] | None = None,
    ) -> list[dict[str, Tensor]]:
        """Draw as `draw` does, for several clients. Those with frames of one size are drawn at once.

        A subclass with its own `of` may give each client another link, which then draws for it alone, and for the
        users beside it.
        """
        if type(self).of is not OFDM.of and self._client is None:
            alone = []
            for i, client in enumerate(clients):
                link, beside = copy.copy(self.of(client)), None if fades is None else [fades[i]]
                link._client = client  # which an `of` may not say
                alone += link.draw_all([client], [sizes[i]], d, [generators[i]], dtype, device, beside)
            return alone
        fades = self.find_fades(clients, generators, fades)
        drawn = [Link.draw(self, own, d, g, dtype) for own, g in zip(sizes, generators, strict=True)]
        alike: dict[tuple[int, int], list[int]] = {}
        for i, (client, own) in enumerate(zip(clients, sizes, strict=True)):
            alike.setdefault(self._frame(client, max(own, default=0) * d // 2), []).append(i)
        for (width, slots), rows in alike.items():
            some, theirs = [sizes[i] for i in rows], [generators[i] for i in rows]
            beside = None if fades is None else [fades[i] for i in rows]
            made = self._elements([clients[i] for i in rows], some, d // 2, width, slots, theirs, beside, dtype, device)
            for i, elements in zip(rows, made, strict=True):
                drawn[i] |= elements
        return drawn

    def find_fades(
        self, clients: Sequence[int], generators: Sequence[torch.Generator], fades: Sequence[Fades] | None
    ) -> Sequence[Fades] | None:
        """Find where the fading of these clients comes from; a subclass may complete what is given."""
        return fades

    def _frame(self, client: int, most: int) -> tuple[int, int]:
        """Count the subcarriers of a client, and the slots that `most` symbols take on them."""
        width = int(self._find_band(most).widths(np.array([client]))[0])
        return width, max(1, int(self._grid.slots(np.array(most), width)))

    def _elements(
        self,
        clients: Sequence[int],
        sizes: Sequence[Sequence[int]],
        s: int,
        width: int,
        slots: int,
        generators: Sequence[torch.Generator],
        fades: Sequence[Fades] | None,
        dtype: torch.dtype,
        device: torch.device | None,
    ) -> list[dict[str, Tensor]]:
        """Draw the resource elements of the samples of clients whose frames have one size."""
        grid, frames, antennas, users = self._grid, [max(1, len(own)) for own in sizes], self.antennas, self.users
        many, keys = [users * antennas * n for n in frames], generators
        powers = None if fades is None else _stack_powers(fades, frames, users)
        if shared := fades is not None and bool(fades[0].generators):
            clients, keys = _key_frames(clients, fades, frames)
            many = [antennas] * len(keys)
        at, times = make_frame(grid, slots, device or keys[0].device), SLOT * slots
        data = at.data
        if users > 1 and not shared:  # nobody else meets these frames: means over thousands draw what is filled
            most = max((b * s for own in sizes for b in own), default=1)
            width = min(width, most)
            data = data[: -(-most // width)]
            times = int(data[-1]) + 1
        size = times, grid.symbol_rate, width, self._apart_hz
        each = self.profile.response(clients, many, *size, keys, device).to(dtype.to_complex())
        if users > 1:
            gains = each.index_select(1, data).unflatten(0, (-1, users, antennas)).permute(0, 3, 4, 2, 1)
            elements = separate_users(gains, self.combining, powers)
        else:
            h = combine_antennas(each.unflatten(0, (-1, antennas)), 1)
            elements = {"fading": h.index_select(1, at.data)}
        if self.options.csi == "ls":
            pilots = h.index_select(1, at.pilots)
            elements["known"] = at.between(pilots)
            errors = [complex_normal((n, *pilots.shape[1:]), g, dtype) for n, g in zip(frames, generators, strict=True)]
            elements["error"] = at.between(move_draws_to_device(torch.cat(errors), h.device))
        split = {name: grids.split(frames) for name, grids in elements.items()}
        if self.options.csi == "ls":
            like = [self.profile.like(client) for client in clients]
            known = [_measure_interpolation(self.profile, k, grid, slots, h.device).to(dtype) for k in like]
            split["moments"] = tuple(
                moments.unsqueeze(1).expand(n, -1, width, -1) for moments, n in zip(known, frames, strict=True)
            )
        return [{name: _split_grids(grids[i], own, s) for name, grids in split.items()} for i, own in enumerate(sizes)]

    def response(
        self,
        client: int,
        frames: int,
        generator: torch.Generator,
        width: int | None = None,
        spacing_hz: float | None = None,
    ) -> Tensor:
        """Draw h of one antenna in some slots of a client, complex `[frames, 14, width]`.

        `width` subcarriers, `spacing_hz` apart (None: those of the client's part of the band).
        """
        width = width or self._frame(client, 1)[0]
        own = ([client], [frames], SLOT, self._grid.symbol_rate, width, spacing_hz or self._grid.spacing_hz)
        return self.profile.response(*own, [generator])

    def estimate(self, drawn: Realisation, deviation: Tensor) -> Estimate | None:
        """Interpolate between the noisy pilots, and compute how good the estimate is; None with perfect knowledge."""
        if self.options.csi == "perfect":
            return None
        (product, floor, weights), gain = drawn["moments"].unbind(-1), drawn["known"] + deviation * drawn["error"]
        wrong = floor + deviation.square() * weights
        power = product.square() + wrong
        return Estimate(gain, product / power * gain, wrong / power)


MOBILITY: dict[str, Any] = {"delay_spread_ns": 100.0, "carrier_ghz": 3.5, "speed_mps": 3.0}
"""Options that only moving, dispersive profiles take, with their defaults."""


ACROSS, ALONG = 32, 8
"""Subcarriers and OFDM symbols of a block that are drawn, at most."""
PIECE = 2**13
"""OFDM symbols that are drawn at once, which bounds memory."""
HEARD = 500
"""Frames by which the receiver knows how its estimates are off: enough, as MMSE hardly depends on it."""


@lru_cache(maxsize=1024)
def _measure_interpolation(profile: Profile, client: int, grid: Grid, slots: int, device: torch.device) -> Tensor:
    """Measure how good the interpolation at a frame's data symbols is, for E|h|^2 = 1, float64 `[T, 3]`.

    For a client these are r = Re E[h known*], E|known|^2 - r^2, and E|error|^2. All slots but the first and the last
    are alike.
    """
    few, clock = min(slots, 3), torch.Generator().manual_seed(0)
    size = SLOT * few, grid.symbol_rate, 1, grid.spacing_hz
    h = profile.response([client], [HEARD], *size, [clock]).to(torch.complex128)
    at = make_frame(grid, few, h.device)
    true, known = h.index_select(1, at.data), at.between(h.index_select(1, at.pilots))
    power, heard, product = (t.real.mean(0) for t in (true * true.conj(), known * known.conj(), true * known.conj()))
    r, weights = product / power, at.part.square() + (1 - at.part).square()
    measured = torch.cat([r, (heard / power - r.square()).clamp_min(0), weights], 1).view(few, -1, 3)
    return measured[[0, *[1] * (slots - 2), -1][:slots]].flatten(0, 1).to(device)


def _key_frames(
    clients: Sequence[int], fades: Sequence[Fades], frames: Sequence[int]
) -> tuple[list[int], list[torch.Generator]]:
    """Find the client behind each user's gains in each frame of each client, and the generator that draws them.

    Each frame has its own seed, so its gains do not depend on the number of frames.
    """
    users, keys = [], []
    for client, fade, n in zip(clients, fades, frames, strict=True):
        users += n * list(fade.clients or [client] * len(fade.generators))
        for generator in n * list(fade.generators):
            seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
            keys.append(torch.Generator(generator.device).manual_seed(seed))
    return users, keys


def _stack_powers(fades: Sequence[Fades], frames: Sequence[int], users: int) -> Tensor:
    """Stack the users' mean powers in each frame of each client, `[sum(frames), 1, 1, U]`."""
    alike = torch.ones(users, dtype=torch.float64)
    each = torch.stack([alike if fade.powers is None else fade.powers for fade in fades])
    return each.repeat_interleave(torch.tensor(frames), 0)[:, None, None]


def _split_grids(grids: Tensor, sizes: Sequence[int], s: int) -> Tensor:
    """Split data elements of frames `[S, symbols, width, ...]` by sample, `[sum(sizes), s, ...]`, in order."""
    flat = grids.flatten(1, 2)
    each = [flat[i, : b * s].unflatten(0, (b, s)) for i, b in enumerate(sizes)]
    return torch.cat(each or [flat.new_zeros(0, s, *flat.shape[2:])])
