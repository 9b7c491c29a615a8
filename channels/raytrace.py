"""Scenes by a ray tracer: Sionna RT finds the paths between a base station and clients who stand or walk in a city.

It needs the extra `rt`, and LLVM 16 or newer where there is no NVIDIA GPU. A channel is the same in both directions, so
the base station is the transmitter here. Paths are reflected, refracted, and bent around edges.
"""

from __future__ import annotations

import ctypes.util
import importlib.metadata
import os
import re
import subprocess
import sys
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from semcom.channels.options import COUNT, MEASURE, Rule, require
from semcom.channels.scene import Scene

INSTALL = (
    "ray tracing needs Sionna RT (pip install 'semcom[rt]') and, without an NVIDIA GPU, LLVM 16 or newer (on Debian "
    "apt-get install libllvm19), which DRJIT_LIBLLVM_PATH names if it is not found"
)
LLVMS = range(16, 30)
"""Versions of LLVM for which Dr.Jit compiles."""
TRY = """
import mitsuba
mitsuba.set_variant("cuda_ad_mono_polarized", "llvm_ad_mono_polarized")
import sionna.rt as rt
scene = rt.load_scene(rt.scene.floor_wall)
scene.tx_array = scene.rx_array = rt.PlanarArray(num_rows=1, num_cols=1, pattern="iso", polarization="V")
scene.add(rt.Transmitter("a", position=[0, 0, 1]))
scene.add(rt.Receiver("b", position=[1, 0, 1]))
rt.PathSolver()(scene, max_depth=1, samples_per_src=100)
"""
"""The smallest scene: whether it can be traced shows what is installed."""
BASES = {
    "munich": (8.5, 21.0, 27.0),
    "etoile": (-160.0, 70.0, 15.0),
    "florence": (0.0, 0.0, 35.0),
    "simple_street_canyon": (-33.0, 11.0, 32.0),
}
"""Places of the base station in the scenes that Sionna RT ships: on or beside a roof. m."""
GROUND_M = 1.5
"""Height of the clients over the ground, which is taken as flat."""
TURNS = 24
"""Directions that somebody who cannot walk on tries, in order of their angle."""
AGAIN = 8
"""Clients that are drawn at most for each that is wanted: some are heard on the map and have no path."""


@dataclass(frozen=True)
class Trace:
    """What is traced."""

    scene: str = "munich"
    """Scene that Sionna RT ships, or the path of one in Mitsuba's format."""
    clients: int = 20
    """K: clients on the ground, outdoors, where the base station is heard."""
    seed: int = 0
    """Seed of places, routes and rays."""
    at: str | None = None
    """Place x,y,z of the base station, m (None: that of the scene; of a scene of your own, above its middle)."""
    radius_m: float = 250.0
    """Largest distance of a client from the base station on the ground, in the beginning."""
    min_gain_db: float = -120.0
    """Least path gain on the map where a client may stand or walk."""
    walk: float = 0.0
    """Speed at which clients walk, m/s; they stay outdoors, and turn where they have to."""
    times: int = 1
    """T: times at which paths are traced."""
    every_s: float = 10.0
    """Seconds from one time to the next."""
    carrier_ghz: float = 3.5
    """Carrier frequency."""
    antennas: int = 1
    """N: antennas of the base station, in a row, half a wavelength apart; each, like the clients', vertical and
    omnidirectional."""
    depth: int = 5
    """Largest number of reflections and refractions of a path."""
    samples: int = 1_000_000
    """Rays from the base station."""
    cell_m: float = 5.0
    """Side of a cell of the radio map."""
    weakest_db: float = 40.0
    """Paths of a client that are so far below its strongest one, at each time, are left out."""

    def check(self) -> None:
        """Check the ranges. Raises ValueError for a value outside of its range."""
        for name in ("clients", "times", "antennas", "depth", "samples"):
            require(name, getattr(self, name), COUNT)
        for name in ("radius_m", "every_s", "carrier_ghz", "cell_m"):
            require(name, getattr(self, name), MEASURE)
        require("weakest_db", self.weakest_db, Rule(lambda v: 0 < v <= 300, "a number of dB above 0 and up to 300"))
        require("walk", self.walk, Rule(lambda v: 0 <= v <= 100, "a number from 0 to 100 m/s"))
        require("min_gain_db", self.min_gain_db, Rule(lambda v: -300 < v < 0, "a number of dB below 0"))
        self.place()
        if self.times > 1 and not self.walk:
            raise ValueError(f"times: {self.times} has no effect, as nobody walks; give walk, or leave times out")
        if self.walk and self.times == 1:
            raise ValueError(f"walk: {self.walk:g} has no effect with a single time; give times")

    def place(self) -> tuple[float, ...] | None:
        """Parse `at`. Raises ValueError for other than three numbers."""
        if self.at is None:
            return None
        try:
            x, y, z = map(float, self.at.split(","))
        except ValueError:
            raise ValueError(f"at: {self.at!r} is not x,y,z, three numbers of metres") from None
        return x, y, z


def load_tracer() -> Any:
    """Import Sionna RT with a backend that runs here.

    Raises:
        ValueError: it is not there, or has no backend; the text says what to install.
    """
    if (newest := _find_newest_llvm()) is not None:
        os.environ.setdefault("DRJIT_LIBLLVM_PATH", newest)
    # In a process of its own: an LLVM that is too old ends the process in which it compiles.
    tried = subprocess.run([sys.executable, "-c", TRY], capture_output=True, text=True, check=False)
    if tried.returncode:
        why = ([*filter(None, tried.stderr.splitlines())] or ["no word"])[-1].strip()
        raise ValueError(f"{INSTALL} ({why[:160]})")
    import mitsuba

    mitsuba.set_variant("cuda_ad_mono_polarized", "llvm_ad_mono_polarized")
    import sionna.rt

    return sionna.rt


def _find_newest_llvm() -> str | None:
    """Find an LLVM library that is new enough; None without one, as on a computer with an NVIDIA GPU alone."""
    found = (ctypes.util.find_library(f"LLVM-{version}") for version in reversed(LLVMS))
    return next(filter(None, found), None)


def trace_scene(wanted: Trace) -> Scene:
    """Trace a scene: a radio map first, then places and routes on it, then the paths at each time.

    Raises:
        ValueError: an option is wrong, there is no such scene or no ray tracer, or too few places are heard.
    """
    wanted.check()
    rt = load_tracer()
    scene = _load(rt, wanted)
    base = np.array(_find_base(scene, wanted))
    scene.frequency = 1e9 * wanted.carrier_ghz
    scene.tx_array = rt.PlanarArray(
        num_rows=1, num_cols=wanted.antennas, vertical_spacing=0.5, horizontal_spacing=0.5, pattern="iso",
        polarization="V",
    )  # fmt: skip
    scene.rx_array = rt.PlanarArray(num_rows=1, num_cols=1, pattern="iso", polarization="V")
    scene.add(rt.Transmitter("base", position=base.tolist()))
    ground = _map_ground(rt, scene, base, wanted)
    rng = np.random.default_rng(wanted.seed)
    heard: list[dict[str, np.ndarray]] = []
    for _ in range(AGAIN):
        routes = _draw_routes(ground, base, wanted, rng, wanted.clients)
        heard += [paths for paths in _trace_paths(rt, scene, routes, wanted) if paths["heard"].all()]
        if len(heard) >= wanted.clients:
            break
    if len(heard) < wanted.clients:
        raise ValueError(
            f"clients: of {AGAIN * wanted.clients} places within {wanted.radius_m:g} m only {len(heard)} have paths at "
            "all times; give fewer clients, a larger radius-m or another place at"
        )
    return _gather(heard[: wanted.clients], ground, base, wanted)


def _load(rt: Any, wanted: Trace) -> Any:
    try:
        return rt.load_scene(getattr(rt.scene, wanted.scene, wanted.scene))
    except Exception as error:  # Mitsuba's, of several kinds
        why = " ".join(str(error).split())[:200]
        raise ValueError(
            f"scene: {wanted.scene!r} is none of {', '.join(BASES)}, and no file of Mitsuba's ({why})"
        ) from None


def _find_base(scene: Any, wanted: Trace) -> tuple[float, ...]:
    if (at := wanted.place()) is not None:
        return at
    if wanted.scene in BASES:
        return BASES[wanted.scene]
    box = scene.mi_scene.bbox()
    return float(box.center().x), float(box.center().y), float(box.max.z) + 5


@dataclass(frozen=True)
class Ground:
    """The map of a scene: path gains `[y, x]` and heights, on cells of a side; `corner` is the middle of the first."""

    gain_db: np.ndarray
    height_m: np.ndarray
    corner: np.ndarray
    cell_m: float

    def find_cell(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Find the cells of places, their rows and columns; of places off the map those at its edge."""
        rows, columns = ((np.stack([y, x]) - self.corner[::-1, None]) / self.cell_m).round().astype(int)
        return rows.clip(0, self.gain_db.shape[0] - 1), columns.clip(0, self.gain_db.shape[1] - 1)


def _map_ground(rt: Any, scene: Any, base: np.ndarray, wanted: Trace) -> Ground:
    """Trace the radio map at the height of clients, and measure what stands on the ground."""
    import mitsuba

    cell = (wanted.cell_m, wanted.cell_m)
    how = {"max_depth": wanted.depth, "diffraction": True, "seed": wanted.seed}
    traced = rt.RadioMapSolver()(scene, samples_per_tx=wanted.samples, cell_size=cell, **how)
    centres = np.asarray(traced.cell_centers)
    gain = np.asarray(traced.path_gain.numpy())[0]
    gain_db = np.where(gain > 0, 10 * np.log10(np.maximum(gain, 1e-30)), np.nan)
    x, y = centres[..., 0].ravel(), centres[..., 1].ravel()
    high = float(scene.mi_scene.bbox().max.z) + 10
    down = mitsuba.Ray3f(mitsuba.Point3f(x, y, np.full(x.size, high)), mitsuba.Vector3f(0, 0, -1))
    hit = scene.mi_scene.ray_intersect(down)
    height = np.where(np.asarray(hit.is_valid()), np.asarray(hit.p.z), 0.0).reshape(gain.shape)
    near = np.hypot(centres[..., 0] - base[0], centres[..., 1] - base[1]) <= wanted.radius_m + 50
    rows, columns = np.flatnonzero(near.any(1)), np.flatnonzero(near.any(0))
    part = slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)
    return Ground(gain_db[part], height[part], centres[part][0, 0, :2].astype(float), wanted.cell_m)


def _draw_routes(ground: Ground, base: np.ndarray, wanted: Trace, rng: np.random.Generator, count: int) -> np.ndarray:
    """Draw routes of clients on the ground, outdoors, where they are heard, `[count, T, 3]`.

    Everybody walks straight on, and turns by the smallest angle with which the next second stays on such ground.
    """
    free = (ground.gain_db >= wanted.min_gain_db) & (ground.height_m < GROUND_M)
    rows, columns = free.nonzero()
    x, y = ground.corner[0] + columns * ground.cell_m, ground.corner[1] + rows * ground.cell_m
    near = np.hypot(x - base[0], y - base[1]) <= wanted.radius_m
    if not near.any():
        raise ValueError(f"min-gain-db: no place within {wanted.radius_m:g} m is heard with {wanted.min_gain_db:g} dB")
    chosen = rng.choice(np.flatnonzero(near), count)
    shift = rng.uniform(-0.4, 0.4, (2, count)) * ground.cell_m  # within the cell
    place = np.stack([x[chosen], y[chosen]]) + shift
    heading = rng.uniform(0, 2 * np.pi, count)
    found, steps = [place], round(wanted.every_s)
    angles = np.array(sorted(np.linspace(-np.pi, np.pi, TURNS, endpoint=False), key=abs))
    for _ in range(1, wanted.times):
        for _ in range(max(1, steps)):
            stride = wanted.walk * wanted.every_s / max(1, steps)
            tried = heading + angles[:, None]
            there = place[:, None] + stride * np.stack([np.cos(tried), np.sin(tried)])
            at = ground.find_cell(there[0].ravel(), there[1].ravel())
            open_ = free[at].reshape(tried.shape)
            first, stuck = open_.argmax(0), ~open_.any(0)
            heading = tried[first, np.arange(count)]
            place = np.where(stuck, place, there[:, first, np.arange(count)])
        found.append(place)
    route = np.stack(found, 1).transpose(2, 1, 0)
    return np.concatenate([route, np.full((*route.shape[:2], 1), GROUND_M)], 2)


def _trace_paths(rt: Any, scene: Any, routes: np.ndarray, wanted: Trace) -> list[dict[str, np.ndarray]]:
    """Trace the paths of clients at all times: amplitudes `[T, N, P]`, delays, Doppler shifts, sight, by client."""
    velocity = np.zeros_like(routes)
    if len(routes[0]) > 1:
        steps = np.diff(routes, axis=1) / wanted.every_s
        velocity = np.concatenate([steps, steps[:, -1:]], 1)
    times = []
    for t in range(wanted.times):
        for k in range(len(routes)):
            scene.remove(f"client{k}")
            scene.add(rt.Receiver(f"client{k}", position=routes[k, t].tolist(), velocity=velocity[k, t].tolist()))
        paths = rt.PathSolver()(
            scene, max_depth=wanted.depth, diffraction=True, samples_per_src=wanted.samples, seed=wanted.seed + 1
        )
        a, tau = paths.cir(out_type="numpy", num_time_steps=1, normalize_delays=False)
        kinds = np.asarray(paths.interactions)[:, :, 0]  # [depth, client, path]; 0 is no interaction
        valid = np.asarray(paths.valid)[:, 0]
        times.append(
            (a[:, 0, 0, :, :, 0], tau[:, 0], np.asarray(paths.doppler)[:, 0], valid, (kinds == 0).all(0) & valid)
        )
    for k in range(len(routes)):
        scene.remove(f"client{k}")
    by_client = [[tuple(part[k] for part in time) for time in times] for k in range(len(routes))]
    return [_take_client(route, own, wanted.weakest_db) for route, own in zip(routes, by_client, strict=True)]


def _take_client(route: np.ndarray, times: list[tuple[np.ndarray, ...]], weakest_db: float) -> dict[str, np.ndarray]:
    """Take the paths of one client, the strongest first, as many at each time; those that lack are 0."""
    taken = []
    for amplitudes, _, _, valid, _ in times:
        power = np.where(valid, (np.abs(amplitudes) ** 2).sum(0), 0.0)
        order = np.argsort(-power, kind="stable")
        taken.append(order[power[order] > power.max(initial=0.0) * 10 ** (-weakest_db / 10)])
    most, antennas = max(1, *map(len, taken)), len(times[0][0])
    a = np.zeros((len(times), antennas, most), np.complex64)
    tau, doppler = np.zeros((2, len(times), most))
    for t, (order, (amplitudes, delays, shifts, _, _)) in enumerate(zip(taken, times, strict=True)):
        a[t, :, : len(order)], tau[t, : len(order)] = amplitudes[:, order], delays[order]
        doppler[t, : len(order)] = shifts[order]
    sight = np.array([direct.any() for *_, direct in times])
    heard = (np.abs(a) ** 2).sum((1, 2)) > 0
    return {"a": a, "tau": tau, "doppler_hz": doppler, "sight": sight, "places_m": route, "heard": heard}


def _gather(heard: list[dict[str, np.ndarray]], ground: Ground, base: np.ndarray, wanted: Trace) -> Scene:
    most = max(of["a"].shape[-1] for of in heard)

    def stack(name: str) -> np.ndarray:
        arrays = [of[name] for of in heard]
        if name in ("a", "tau", "doppler_hz"):
            arrays = [np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, most - x.shape[-1])]) for x in arrays]
        return np.stack(arrays)

    versions = {name: importlib.metadata.version(name) for name in ("sionna-rt", "mitsuba", "drjit")}
    own = {name: value for name, value in asdict(wanted).items() if name != "scene"}
    return Scene(
        **{name: stack(name) for name in ("a", "tau", "doppler_hz", "sight", "places_m")},
        times_s=wanted.every_s * np.arange(wanted.times),
        base_m=base,
        carrier_hz=1e9 * wanted.carrier_ghz,
        map_db=ground.gain_db,
        heights_m=ground.height_m,
        corner_m=ground.corner,
        cell_m=ground.cell_m,
        made={"scene": re.sub(r".*/", "", wanted.scene), "versions": versions, "options": own},
    )
