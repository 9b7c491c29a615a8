"""Clients in a cell: places and losses against what the tables and the geometry say."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from semcom.channels.cell import Exponent, PathLoss, UMi, drop_clients_in_cell, noise_dbm
from tests.samples import has_mean

K = 100_000
UMI = UMi(UMi.Options())


def exponent(**options: Any) -> PathLoss:
    return Exponent(Exponent.Options(**options))


def test_clients_are_uniform_in_the_disc() -> None:
    """r^2 is uniform from 10^2 to R^2; the places have no direction."""
    distance, angle = drop_clients_in_cell(K, np.random.default_rng(0), 200.0)
    square, x, y = distance**2, distance * np.cos(angle), distance * np.sin(angle)
    assert has_mean(square, (200**2 + 10**2) / 2) and square.min() >= 99.99 and square.max() <= 40_000.01
    assert has_mean(x, 0.0) and has_mean(y, 0.0) and has_mean(x * y, 0.0)


def test_the_path_loss_is_the_tables() -> None:
    """At 3.5 GHz and 100 m, by hand: d3D = 100.36, 32.4 + 42.03 + 10.88 = 85.3 dB; without a line of sight 104.7."""
    seen, hidden = UMI.measure_db(np.full(2, 100.0), np.array([True, False]))
    log = math.log10(math.hypot(100, 8.5))
    assert seen == pytest.approx(32.4 + 21 * log + 10.881, abs=1e-3)
    assert hidden == pytest.approx(35.3 * log + 22.4 + 11.589, abs=1e-3)
    assert seen == pytest.approx(85.3, abs=0.05) and hidden == pytest.approx(104.7, abs=0.1)


def test_the_path_loss_bends_without_a_step() -> None:
    """The two branches of the line of sight meet at 4 h'_BS h'_UT f / c = 210 m."""
    bend, sight = 4 * 9 * 0.5 * 3.5e9 / 299_792_458, np.ones(2, dtype=bool)
    left, right = UMI.measure_db(np.array([bend - 1e-6, bend + 1e-6]), sight)
    assert right == pytest.approx(left, abs=1e-5)
    ten, hundred = exponent(exponent=3.2).measure_db(np.array([10.0, 100.0]), sight)
    assert hundred - ten == pytest.approx(32.0)


@pytest.mark.parametrize("distance", [15.0, 50.0, 150.0])
def test_a_line_of_sight_is_as_probable_as_the_table_says(distance: float) -> None:
    p = 1.0 if distance <= 18 else 18 / distance + math.exp(-distance / 36) * (1 - 18 / distance)
    assert UMI.find_sight(np.array([distance]))[0] == pytest.approx(p)
    los, _, _ = UMI.draw(np.full(K, distance), np.random.default_rng(1))
    assert abs(los.mean() - p) <= 5 * (p * (1 - p) / K) ** 0.5


def test_shadowing_has_the_deviation_of_the_table() -> None:
    at = np.full(K, 60.0)
    los, _, shadowing = UMI.draw(at, np.random.default_rng(2))
    assert has_mean(shadowing, 0.0)
    assert has_mean(shadowing[los] ** 2, 4.0**2) and has_mean(shadowing[~los] ** 2, 7.82**2)
    los, _, shadowing = exponent(shadowing_db=3.0).draw(at, np.random.default_rng(2))
    assert has_mean(shadowing**2, 9.0) and not los.any()


def test_noise_is_that_of_the_band() -> None:
    """Over 1 MHz -174 + 60 + 5 = -109 dBm; a tenth of the band has 10 dB less."""
    assert noise_dbm(1e6, 5.0) == pytest.approx(-109) and noise_dbm(1e5, 5.0) == pytest.approx(-119)
