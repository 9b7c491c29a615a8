"""The link `cir`: OFDM over impulse responses of a file, as ray tracers write them."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast, get_args

import numpy as np
import torch
from torch import Tensor

from semcom.channels.equalise import combine_antennas
from semcom.channels.law import Listed
from semcom.channels.link import SAMPLES, Realisation, complex_normal
from semcom.channels.ofdm.link import ALONG, OFDM
from semcom.channels.ofdm.options import GridOptions, warn_of_cyclic_prefix
from semcom.channels.ofdm.profiles import Profile, move_draws_to_device
from semcom.channels.options import one_of
from semcom.channels.scene import list_scenes, read_scene
from semcom.channels.users import Fades, separate_users

Times = Literal["drawn", "round"]
FindTime = Callable[[float], int]
"""Function from seconds to the index of a time."""


class CIR(OFDM):
    """OFDM over impulse responses from a file. Each client's have a mean power of 1, and each begins a frame."""

    @dataclass(frozen=True)
    class Options(GridOptions):
        """Options of the file, of the grid, and of the base station and its knowledge."""

        time: Times = "drawn"
        """Time of the file that a frame meets: one by chance ("drawn"), or that of a scene at which the round begins
        ("round"), by network.round_s or the clock."""
        path: Path | None = None
        """Path of a scene (semcom scene), the name of one that ships (munich-20), or an .npz with `a` [client, time,
        path], complex, and `tau` [client, path], s; it has to be given."""

        def check(self) -> None:
            """Check as the parent does, and that a file is named."""
            super().check()
            one_of("time", self.time, get_args(Times))
            if self.path is None:
                raise ValueError("path: none is given; name a scene, or an .npz with the arrays a and tau")

    options: Options
    profile: Recorded
    numbered = True

    def __init__(self, options: CIR.Options) -> None:
        super().__init__(options)
        self.same_again = self.options.time == "round"
        self._clients = len(self.profile.paths)

    def make_profile(self) -> Recorded:
        """Read the file. Raises ValueError for one that holds no impulse responses, or those of fewer antennas."""
        path = str(self.options.path)
        paths, delays, doppler_hz, find_time = _read_responses(path)
        if self.options.time == "round" and find_time is None:
            raise ValueError(f"time: {path!r} has no times of its own; round is for a scene")
        if self.antennas > paths.shape[2]:
            raise ValueError(f"antennas: the file has {paths.shape[2]}, fewer than {self.antennas}; take at most these")
        profile = Recorded(paths[:, :, : self.antennas], delays, doppler_hz, find_time)
        warn_of_cyclic_prefix("path: the file", "its clients", profile.last_path_s, self.options)
        return profile

    def in_band(self, clients: int, active: int, batch: int, d: int) -> CIR:
        """Share the band of this link, as `OFDM` does. Raises ValueError for clients not in the file."""
        if clients > len(self.profile.paths):
            raise ValueError(f"path: {len(self.profile.paths)} clients are in the file, {clients} in the run")
        if active % self.users or (clients - active) % self.users:
            some = f"{active} clients of a round and {clients - active} others"
            raise ValueError(f"users: {some} do not make groups of {self.users}, and nobody else is in the file")
        link = cast(CIR, super().in_band(clients, active, batch, d))
        link._clients = clients
        responses = [cast(CIR, link.of(k))._list_responses() for k in range(clients)]
        powers_db = [10 * math.log10(h.abs().square().mean()) for h in responses]
        if max(map(abs, powers_db)) > 0.5:
            warnings.warn(
                f"path: over its subcarriers and times, a client's |h|^2 is from {min(powers_db):+.1f} to "
                f"{max(powers_db):+.1f} dB on average, which is not evened out: its mean SNR differs by as much",
                stacklevel=4,
            )
        return link

    def find_moment(self, seconds: float) -> int | None:
        """Find the scene's time that belongs to so many seconds, if frames follow the time of the run."""
        if self.options.time == "drawn":
            return None
        assert self.profile.find_time is not None, "checked by `make_profile`"
        return self.profile.find_time(seconds)

    def at(self, seconds: float) -> CIR:
        """Return this link at a time of the run, if its frames follow it."""
        if (moment := self.find_moment(seconds)) is None:
            return self
        link = copy.copy(self)
        link.profile = self.profile.at(moment)
        return link

    def law(self) -> Listed | None:
        """List |h|^2 of a client over its times and subcarriers, as a law, for a single user."""
        if self.users > 1:
            return None
        return Listed.of(self._combine_responses().abs().square().numpy())

    def draw_blocks(
        self, uses: float, blocks: int | None, generator: torch.Generator, powers: Tensor | None = None
    ) -> tuple[Realisation, float]:
        """Draw a time for each block, which has all subcarriers of the client. For statistics, list all times.

        Of several users, the others of a block are clients of the run by chance (before `in_band`: of the file), at
        times of their own; the block is then represented by subcarriers spread over it.
        """
        if self.users > 1:
            n = blocks or max(1024, SAMPLES // (4 * ALONG * self.users * self.antennas))
            return separate_users(self._draw_company(n, generator), self.combining, powers), 1.0
        h = self._combine_responses()
        h = h if blocks is None else h[torch.randint(len(h), (blocks,), generator=generator)]
        if not self.estimates:
            return {"fading": h}, 1.0
        still, other = h[:, None].expand(-1, ALONG, -1), complex_normal(h.shape, generator, h.real.dtype)[:, None]
        return self._add_estimates(still, other, self._grid.count_times(uses, h.shape[1]), generator), 1.0

    def _draw_company(self, blocks: int, generator: torch.Generator) -> Tensor:
        """Draw the gains of a client and others beside it on a few subcarriers, `[blocks, subcarriers, N, U]`."""
        own, everybody = self._client or 0, range(self._clients)
        width = self._frame(own, 1)[0]
        few = torch.arange(min(width, ALONG)) * width // min(width, ALONG)
        h = torch.stack([self.profile.list_responses(k, width, self._grid.spacing_hz)[..., few] for k in everybody])
        order = torch.rand(blocks, len(h) - 1, generator=generator).argsort(1)[:, : self.users - 1]
        clients = torch.cat([torch.full((blocks, 1), own), order + (order >= own)], 1)
        times = torch.randint(h.shape[1], clients.shape, generator=generator)
        return h[clients, times].permute(0, 3, 2, 1)

    def find_fades(
        self, clients: Sequence[int], generators: Sequence[torch.Generator], fades: Sequence[Fades] | None
    ) -> Sequence[Fades] | None:
        """Choose other users of which `fades` does not tell: clients of the run, by chance."""
        if self.users == 1 or (fades and fades[0].generators):
            return fades
        each = zip(fades or [Fades((), 0) for _ in clients], clients, generators, strict=True)
        return [self._choose_users(fade, client, generator) for fade, client, generator in each]

    def _choose_users(self, fade: Fades, client: int, generator: torch.Generator) -> Fades:
        """Choose who is beside a client, and make the generators of all of them."""
        others = torch.randperm(self._clients - 1, generator=generator)[: self.users - 1]
        seeds = torch.randint(2**62, (self.users,), generator=generator).tolist()
        keys = [torch.Generator(generator.device).manual_seed(seed) for seed in seeds]
        return replace(fade, generators=keys, clients=[client, *(others + (others >= client)).tolist()])

    def response(
        self,
        client: int,
        frames: int,
        generator: torch.Generator,
        width: int | None = None,
        spacing_hz: float | None = None,
    ) -> Tensor:
        """Draw h of the first antenna, as `OFDM` does of its only one."""
        return super().response(client, frames * self.antennas, generator, width, spacing_hz)[:: self.antennas]

    def draw_symbols(self, generator: torch.Generator) -> Realisation:
        """Draw slots of all subcarriers, since some subcarriers do not represent the others."""
        symbols = self._frame(self._client or 0, 1)[0] * len(self._grid.data)
        return self.draw([1] * max(64, 2 * SAMPLES // symbols), 2 * symbols, generator, torch.float64)

    def _list_responses(self) -> Tensor:
        client = self._client or 0
        return self.profile.list_responses(client, self._frame(client, 1)[0], self._grid.spacing_hz)

    def _combine_responses(self) -> Tensor:
        return combine_antennas(self._list_responses(), 1)


class Recorded(Profile):
    """Impulse responses from a file, which begin frames; a frame has one of its client's.

    The time of a frame is drawn uniformly. A client's mean power, over its antennas and times, is 1.

    Args:
        paths: amplitudes, complex `[client, time, antenna, path]`.
        delays: s, `[client, time, path]`.
        doppler_hz: shifts of the paths, `[client, time, path]`.
        find_time: of a scene, `Scene.find_time`; its mean power is 1 at each time, as its gains make the SNRs.
    """

    def __init__(self, paths: Tensor, delays: Tensor, doppler_hz: Tensor, find_time: FindTime | None) -> None:
        power = paths.abs().square().sum(3).mean(2)
        power = power.mean(1, keepdim=True) if find_time is None else power
        self.find_time = find_time
        self.paths, self.delays = paths / power.sqrt()[:, :, None, None], delays
        self.shifts = doppler_hz
        self.doppler_hz = float(doppler_hz.abs().max()) if doppler_hz.any() else None
        heard = paths.abs().sum(2) > 0
        last, first = delays.where(heard, -torch.inf), delays.where(heard, torch.inf)
        self.last_path_s = float((last.amax(2) - first.amin(2)).max())
        self._at: dict[int, Recorded] = {}

    def at(self, time: int) -> Recorded:
        """Return the responses of one of the times alone."""
        if time not in self._at:
            one = self._at[time] = copy.copy(self)
            one.paths, one.delays, one.shifts = (t[:, [time]] for t in (self.paths, self.delays, self.shifts))
        return self._at[time]

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
        """Draw h as `Profile` does, frame by frame all antennas, which have one time.

        At frequency f and t seconds into the frame h is the sum of a_l exp(2 pi j (f_l t - f tau_l)).
        """
        rows, antennas = [], self.paths.shape[2]
        for client, n, generator in zip(clients, frames, generators, strict=True):
            count = -(-n // antennas)
            at = torch.randint(self.paths.shape[1], (count,), generator=generator, device=generator.device).cpu()
            if self.doppler_hz is None:
                h = self.list_responses(client, width, spacing_hz, at)[:, :, None].expand(-1, -1, times, -1)
            else:
                h = self._move(client, width, spacing_hz, at, torch.arange(times, dtype=torch.float64) / rate)
            rows.append(h.flatten(0, 1)[:n].to(torch.complex64))
        return move_draws_to_device(torch.cat(rows), device or generators[0].device)

    def list_responses(self, client: int, width: int, spacing_hz: float, at: Tensor | slice = slice(None)) -> Tensor:
        """List h of a client at some of its times (by default all), complex128 `[time, antenna, width]`."""
        return self.paths[client, at] @ self._turn(client, width, spacing_hz, at)

    def _turn(self, client: int, width: int, spacing_hz: float, at: Tensor | slice) -> Tensor:
        """Compute exp(-2 pi j f tau) of the paths at some times, `[time, path, width]`."""
        frequencies = spacing_hz * (torch.arange(width, dtype=torch.float64) - width // 2)
        phase = -2 * torch.pi * self.delays[client, at][..., None] * frequencies
        return torch.polar(torch.ones_like(phase), phase)

    def _move(self, client: int, width: int, spacing_hz: float, at: Tensor, seconds: Tensor) -> Tensor:
        """Compute h in the course of frames that begin at some times, `[time, antenna, seconds, width]`."""
        phase = 2 * torch.pi * self.shifts[client, at][..., None] * seconds
        moved = torch.polar(torch.ones_like(phase), phase)
        return torch.einsum(
            "fap,fps,fpw->fasw", self.paths[client, at], moved, self._turn(client, width, spacing_hz, at)
        )


def _read_responses(path: str) -> tuple[Tensor, Tensor, Tensor, FindTime | None]:
    """Read paths, complex128, delays and Doppler shifts, float64, and of a scene its `find_time`, as for `Recorded`.

    Raises:
        ValueError: the file has other content.
    """
    if _is_scene(path):
        scene = read_scene(path)
        return (
            torch.from_numpy(scene.a.astype(np.complex128)),
            torch.from_numpy(scene.tau.astype(np.float64)),
            torch.from_numpy(scene.doppler_hz.astype(np.float64)),
            scene.find_time,
        )
    try:
        with np.load(path, allow_pickle=False) as file:
            a, tau = file["a"], file["tau"]
    except Exception as error:  # of a damaged file NumPy and zipfile raise a dozen kinds, some without a word
        why = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"path: {path!r} is no .npz with arrays a and tau ({why})") from None
    if a.ndim != 3 or tau.shape != (a.shape[0], a.shape[2]) or not a.size:
        shapes = f"a {list(a.shape)} and tau {list(tau.shape)}"
        raise ValueError(f"path: {shapes} in {path!r} are not [client, time, path] and [client, path]")
    if a.dtype.kind not in "fc" or tau.dtype.kind != "f" or not (np.isfinite(a).all() and np.isfinite(tau).all()):
        raise ValueError(f"path: a and tau in {path!r} are not all finite numbers, tau real")
    silent = np.flatnonzero((np.abs(a) ** 2).sum((1, 2)) == 0)
    if len(silent):
        raise ValueError(f"path: client {silent[0]} in {path!r} has no path with any power")
    delays = torch.from_numpy(tau.astype(np.float64))[:, None].expand(-1, a.shape[1], -1)
    return torch.from_numpy(a.astype(np.complex128))[:, :, None], delays, torch.zeros_like(delays), None


def _is_scene(path: str) -> bool:
    """Check whether it is a scene that ships, or a file with places beside paths and delays."""
    if path in list_scenes():
        return True
    with suppress(Exception), np.load(path, allow_pickle=False) as file:  # its reader says what is wrong with it
        return "places_m" in file.files
    return False
