"""Scenes: files that are checked, gains against closed forms, routes that stay outdoors; paths against free space."""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from semcom.channels.cell import LIGHT
from semcom.channels.raytrace import Ground, Trace, _draw_routes, load_tracer, trace_scene
from semcom.channels.scene import Scene, list_scenes, locate_scene, read_scene, write_scene
from semcom.files import digest_bytes

SHIPPED = {"munich-20": "86268125ed26fa24"}
"""Digests of the scenes that ship: a scene that changed would be another one under the same name."""


def make_scene(times: int = 3, **changed: Any) -> Scene:
    """Two clients, two antennas, two paths: powers 1e-8 and 3e-8 at both antennas, 4e-8 in all."""
    a = np.full((2, times, 2, 2), 1e-4 + 0j)
    a[..., 1] *= 3**0.5 * 1j
    of = {"tau": np.full((2, times, 2), 1e-7), "doppler_hz": np.zeros((2, times, 2)), "base_m": np.zeros(3)}
    of |= {"times_s": 10.0 * np.arange(times), "places_m": np.ones((2, times, 3)), "sight": np.ones((2, times), bool)}
    of |= {"map_db": np.full((4, 5), -90.0), "heights_m": np.zeros((4, 5)), "corner_m": np.zeros(2)}
    return Scene(**{"a": a, **of, "carrier_hz": 3.5e9, "cell_m": 5.0, "made": {"scene": "test"}, **changed})


def test_shipped_scenes_are_small_and_stay_what_they_are() -> None:
    assert {name: digest_bytes({"": Path(locate_scene(name))})[:16] for name in list_scenes()} == SHIPPED
    assert all(Path(locate_scene(name)).stat().st_size < 300_000 for name in list_scenes())
    munich = read_scene("munich-20")
    assert munich.clients == 20 and munich.made["options"]["walk"] == 1.4
    strides = np.linalg.norm(np.diff(munich.places_m, axis=1), axis=2)
    assert strides.max() <= 1.4 * np.diff(munich.times_s).max() + 1e-3
    assert (np.diff(munich.times_s) == munich.times_s[1]).all() and (munich.gains_db() < -40).all()


def test_a_gain_is_the_power_of_all_paths_averaged_over_antennas() -> None:
    assert make_scene().gains_db() == pytest.approx(10 * np.log10(4e-8))
    a = make_scene().a.copy()
    a[0, :, 1] = 0  # the second antenna hears nothing
    assert make_scene(a=a).gains_db()[0] == pytest.approx(10 * np.log10(2e-8))


def test_who_has_walked_to_the_end_walks_back() -> None:
    scene = make_scene(times=3)  # 0, 10 and 20 s
    found = [scene.find_time(s) for s in (0, 9.9, 10, 19.9, 20, 25, 30, 31, 39, 40, 50, 1000)]
    assert found == [0, 0, 1, 1, 2, 1, 1, 0, 0, 0, 1, 0]
    assert make_scene(times=1).find_time(1e9) == 0


def test_a_scene_that_is_written_is_read_as_it_is(tmp_path: Path) -> None:
    scene = make_scene()
    write_scene(scene, tmp_path / "two.npz")
    again = read_scene(str(tmp_path / "two.npz"))
    for field in dataclasses.fields(Scene):
        one, other = getattr(scene, field.name), getattr(again, field.name)
        assert one == other if field.name == "made" else np.allclose(one, other, rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"a": np.ones((2, 3, 2))}, r"a has the shape \[2, 3, 2\], not \[client, time, antenna, path\]"),
        ({"a": np.full((2, 3, 2, 2), np.nan + 0j)}, "a is not all finite numbers"),
        ({"tau": np.ones((2, 2))}, r"tau has the shape \[2, 2\], not \[2, 3, 2\]"),
        ({"places_m": np.full((2, 3, 3), np.inf)}, "places_m is not all finite numbers"),
        ({"times_s": np.array([0.0, 2.0, 1.0])}, "times_s do not ascend from 0"),
        ({"times_s": np.array([1.0, 2.0, 3.0])}, "times_s do not ascend from 0"),
        ({"heights_m": np.ones((5, 4))}, r"heights_m has the shape \[5, 4\], not \[4, 5\]"),
        ({"cell_m": 0.0}, "carrier_hz and cell_m are not above 0"),
        ({"a": np.zeros((2, 3, 2, 2), complex)}, "client 0 has no path with any power at time 0"),
    ],
)
def test_a_file_that_is_no_scene_is_refused(changed: dict[str, Any], why: str, tmp_path: Path) -> None:
    write_scene(make_scene(**changed), tmp_path / "odd.npz")
    with pytest.raises(ValueError, match=rf"^scene: '.*odd.npz' is no scene \({why}\)$"):
        read_scene(str(tmp_path / "odd.npz"))


def test_a_damaged_file_is_no_scene_or_what_it_was(tmp_path: Path) -> None:
    path = tmp_path / "two.npz"
    write_scene(make_scene(), path)
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    for place in rng.integers(0, len(whole), 60):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << rng.integers(8)
        path.write_bytes(damaged)
        try:
            again = read_scene(str(path))
        except ValueError as error:
            assert str(error).startswith("scene: ")
        else:  # the bit belongs to a time or the like, which the archive does not use
            assert np.array_equal(again.a, make_scene().a.astype(np.complex64))


def test_routes_stay_where_clients_are_heard_outdoors() -> None:
    """A street of 10 m around a block: of 8,100 m2 a tenth is walked on, at 1.4 m/s."""
    gain, height = np.full((40, 40), -80.0), np.zeros((40, 40))
    height[10:30, 10:30] = 20
    gain[:5] = -150
    ground = Ground(gain, height, np.zeros(2), 2.5)
    wanted = Trace(clients=30, walk=1.4, times=20, every_s=5.0, radius_m=200.0)
    routes = _draw_routes(ground, np.zeros(3), wanted, np.random.default_rng(3), 30)
    assert routes.shape == (30, 20, 3) and (routes[..., 2] == 1.5).all()
    at = ground.find_cell(routes[..., 0].ravel(), routes[..., 1].ravel())
    assert (gain[at] == -80).all() and (height[at] == 0).all()
    strides = np.linalg.norm(np.diff(routes, axis=1), axis=2)
    assert strides.max() <= 7 + 1e-9 and np.median(strides) > 6


def can_trace() -> bool:
    if importlib.util.find_spec("sionna") is None or importlib.util.find_spec("mitsuba") is None:
        return False
    try:
        load_tracer()
    except ValueError:
        return False
    return True


@pytest.mark.skipif(not can_trace(), reason="needs the extra rt, and LLVM 16 or a GPU")
def test_paths_over_a_plain_are_those_of_two_rays() -> None:
    """Friis' gain (lambda / 4 pi d)^2, delay d / c, Doppler shift f v cos / c; the echo comes from below the floor."""
    wanted = Trace(
        "floor_wall", clients=6, at="0,0,3", walk=0.05, times=2, every_s=5.0, depth=1, samples=100_000, cell_m=0.2
    )
    scene = trace_scene(wanted)
    assert scene.sight.all()
    distance = np.linalg.norm(scene.places_m - scene.base_m, axis=2)
    for k, t in np.ndindex(distance.shape):
        heard = np.flatnonzero(scene.a[k, t, 0])
        first = heard[scene.tau[k, t, heard].argmin()]
        assert np.abs(scene.a[k, t, 0, first]) == pytest.approx(LIGHT / 3.5e9 / (4 * np.pi * distance[k, t]), rel=1e-3)
        assert scene.tau[k, t, first] == pytest.approx(distance[k, t] / LIGHT, rel=1e-4)
        moved = scene.places_m[k, 1] - scene.places_m[k, 0]
        away = (scene.places_m[k, t] - scene.base_m) / distance[k, t]
        assert scene.doppler_hz[k, t, first] == pytest.approx(-3.5e9 / LIGHT * away @ moved / 5.0, abs=0.05)
        echo = np.linalg.norm(scene.places_m[k, t] - scene.base_m * (1, 1, -1)) / LIGHT
        assert np.abs(scene.tau[k, t, heard] - echo).min() < 1e-11
