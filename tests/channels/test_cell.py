"""Clients in a cell: places, losses and SNRs against the tables and the geometry."""

from __future__ import annotations

import math

import numpy as np
import pytest

from channels.cell import exponent_path_loss_db, los_probability, place_clients, umi_path_loss_db

K = 100_000


def near(samples: np.ndarray, expected: float) -> bool:
    """Whether independent samples have this mean, within 5 standard errors."""
    return bool(abs(samples.mean() - expected) < 5 * samples.std() / len(samples) ** 0.5)


def test_clients_are_uniform_in_the_disc() -> None:
    """r^2 is uniform from 10^2 to R^2, and the places have no preferred direction."""
    cell = place_clients(K, np.random.default_rng(0), radius_m=200.0)
    square = cell.distance_m**2
    assert near(square, (200**2 + 10**2) / 2) and square.min() >= 99.99 and square.max() <= 40_000.01
    assert near(cell.x_m, 0.0) and near(cell.y_m, 0.0) and near(cell.x_m * cell.y_m, 0.0)


def test_the_path_loss_is_the_tables() -> None:
    """At 3.5 GHz and 100 m by hand: d3D = 100.36, 32.4 + 42.03 + 10.88 = 85.3 dB, or 104.7 without a line of sight."""
    at = np.array([100.0])
    log = math.log10(math.hypot(100, 8.5))
    assert umi_path_loss_db(at, 3.5, True)[0] == pytest.approx(32.4 + 21 * log + 10.881, abs=1e-3)
    assert umi_path_loss_db(at, 3.5, False)[0] == pytest.approx(35.3 * log + 22.4 + 11.589, abs=1e-3)
    assert umi_path_loss_db(at, 3.5, True)[0] == pytest.approx(85.3, abs=0.05)
    assert umi_path_loss_db(at, 3.5, False)[0] == pytest.approx(104.7, abs=0.1)


def test_the_path_loss_bends_without_a_step() -> None:
    """The two branches of the line of sight meet at 4 h'_BS h'_UT f / c = 210 m."""
    bend = 4 * 9 * 0.5 * 3.5e9 / 299_792_458
    left, right = umi_path_loss_db(np.array([bend - 1e-6, bend + 1e-6]), 3.5, True)
    assert right == pytest.approx(left, abs=1e-5)
    ten, hundred = exponent_path_loss_db(np.array([10.0, 100.0]), 3.5, 3.2)
    assert hundred - ten == pytest.approx(32.0)


@pytest.mark.parametrize("distance", [15.0, 50.0, 150.0])
def test_a_line_of_sight_is_as_probable_as_the_table_says(distance: float) -> None:
    p = 1.0 if distance <= 18 else 18 / distance + math.exp(-distance / 36) * (1 - 18 / distance)
    assert los_probability(np.array([distance]))[0] == pytest.approx(p)
    cell = place_clients(K, np.random.default_rng(1), radius_m=200.0)
    around = np.abs(cell.distance_m - distance) < 2
    assert abs(cell.los[around].mean() - p) < 5 * 0.5 / around.sum() ** 0.5 + 0.02


def test_shadowing_has_the_deviation_of_the_table() -> None:
    cell = place_clients(K, np.random.default_rng(2), radius_m=200.0)
    assert near(cell.shadowing_db, 0.0)
    assert near(cell.shadowing_db[cell.los] ** 2, 4.0**2) and near(cell.shadowing_db[~cell.los] ** 2, 7.82**2)
    plain = place_clients(K, np.random.default_rng(2), path_loss="exponent", shadowing_db=3.0)
    assert near(plain.shadowing_db**2, 9.0) and not plain.los.any()


def test_the_snr_is_power_less_losses_and_noise() -> None:
    """23 dBm over 1 MHz has noise of -174 + 60 + 5 = -109 dBm. A tenth of the band gives 10 dB more."""
    cell = place_clients(5, np.random.default_rng(3))
    snr = cell.snr_db(23.0, 1e6, 5.0)
    np.testing.assert_allclose(snr, 23 + 109 - cell.path_loss_db - cell.shadowing_db)
    np.testing.assert_allclose(cell.snr_db(23.0, 1e5, 5.0), snr + 10)


@pytest.mark.parametrize(("name", "value"), [("radius_m", 10.0), ("exponent", 0.0), ("path_loss", "uma")])
def test_what_makes_no_cell_is_refused(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{name}: "):
        place_clients(3, np.random.default_rng(0), **{name: value})  # type: ignore[arg-type]
