"""The link `cir`: OFDM over impulse responses of a file, as ray tracers write them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor

from semcom.channels.law import Listed
from semcom.channels.link import SAMPLES, Realisation
from semcom.channels.ofdm.link import OFDM
from semcom.channels.ofdm.options import GridOptions, warn_of_cyclic_prefix
from semcom.channels.ofdm.profiles import Profile, move_draws_to_device


class CIR(OFDM):
    """OFDM over impulse responses from a file. Each client's have a mean power of 1, and each lasts for a frame."""

    @dataclass(frozen=True)
    class Options(GridOptions):
        """Options of the file, of the grid, and of the receiver's knowledge."""

        path: Path | None = None
        """Path of the .npz with `a` [client, time, path], complex, and `tau` [client, path], s; it has to be given."""

        def check(self) -> None:
            """Check as the parent does, and that a file is named."""
            super().check()
            if self.path is None:
                raise ValueError("path: none is given; name an .npz with the arrays a and tau")

    options: Options
    profile: Recorded

    def make_profile(self) -> Recorded:
        """Read the file. Raises ValueError for one that holds no impulse responses."""
        profile = Recorded(*_read_responses(str(self.options.path)))
        warn_of_cyclic_prefix("path: the file", "its clients", profile.last_path_s, self.options)
        return profile

    def in_band(self, clients: int, active: int, batch: int, d: int) -> CIR:
        """Share the band of this link, as `OFDM` does. Raises ValueError for clients not in the file."""
        if clients > len(self.profile.paths):
            raise ValueError(f"path: {len(self.profile.paths)} clients are in the file, {clients} in the run")
        link = cast(CIR, super().in_band(clients, active, batch, d))
        responses = [cast(CIR, link.of(k))._list_responses() for k in range(clients)]
        powers_db = [10 * math.log10(h.abs().square().mean()) for h in responses]
        if max(map(abs, powers_db)) > 0.5:
            warnings.warn(
                f"path: over its subcarriers and times, a client's |h|^2 is from {min(powers_db):+.1f} to "
                f"{max(powers_db):+.1f} dB on average, which is not evened out: its mean SNR differs by as much",
                stacklevel=4,
            )
        return link

    def law(self) -> Listed:
        """List |h|^2 of a client over its times and subcarriers, as a law."""
        return Listed.of(self._list_responses().abs().square().numpy())

    def draw_blocks(
        self, uses: float, blocks: int | None, generator: torch.Generator, powers: Tensor | None = None
    ) -> tuple[Realisation, float]:
        """Draw a time for each block, which has all subcarriers of the client. For statistics, list all times."""
        h = self._list_responses()
        return {"fading": h if blocks is None else h[torch.randint(len(h), (blocks,), generator=generator)]}, 1.0

    def draw_symbols(self, generator: torch.Generator) -> Realisation:
        """Draw slots of all subcarriers, since some subcarriers do not represent the others."""
        symbols = self._frame(self._client or 0, 1)[0] * len(self._grid.data)
        return self.draw([1] * max(64, 2 * SAMPLES // symbols), 2 * symbols, generator, torch.float64)

    def _list_responses(self) -> Tensor:
        client = self._client or 0
        return self.profile.list_responses(client, self._frame(client, 1)[0], self._grid.spacing_hz)


class Recorded(Profile):
    """Impulse responses `paths` `[client, time, path]` at `delays` `[client, path]`; a frame has one of its client's.

    The response of a frame is drawn uniformly. A client's mean power, over its times, is 1.
    """

    def __init__(self, paths: Tensor, delays: Tensor) -> None:
        power, heard = paths.abs().square().sum(2).mean(1), paths.abs().sum(1) > 0
        self.paths, self.delays = paths / power.sqrt()[:, None, None], delays
        last, first = delays.where(heard, -torch.inf), delays.where(heard, torch.inf)
        self.last_path_s = float((last.amax(1) - first.amin(1)).max())

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
        """Draw h as `Profile` does: at frequency f the sum of a_l exp(-2 pi j f tau_l), constant over a frame."""
        rows = []
        for client, n, generator in zip(clients, frames, generators, strict=True):
            at = torch.randint(self.paths.shape[1], (n,), generator=generator, device=generator.device)
            rows.append(self.list_responses(client, width, spacing_hz, at.cpu()))
        h = torch.cat(rows).to(torch.complex64)
        return move_draws_to_device(h, device or generators[0].device)[:, None].expand(-1, times, -1)

    def list_responses(self, client: int, width: int, spacing_hz: float, at: Tensor | slice = slice(None)) -> Tensor:
        """List h of a client at some of its times (by default all), complex128 `[time, width]`."""
        frequencies = spacing_hz * (torch.arange(width, dtype=torch.float64) - width // 2)
        phase = -2 * torch.pi * self.delays[client][:, None] * frequencies
        return self.paths[client, at] @ torch.polar(torch.ones_like(phase), phase)


def _read_responses(path: str) -> tuple[Tensor, Tensor]:
    """Read paths, complex128, and delays, float64, from a file. Raises ValueError for other content."""
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
    return torch.from_numpy(a.astype(np.complex128)), torch.from_numpy(tau.astype(np.float64))
