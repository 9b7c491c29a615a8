"""Several users on each resource element of the grid: their SINRs, one matrix for a group, its part of the band."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from semcom.channels import make_link, theory
from semcom.channels.users import Fades
from tests.channels.draws import keys

NO = 0.1


@pytest.mark.parametrize("combining", ["mrc", "zf", "mmse"])
def test_the_sinr_on_an_element_has_its_distribution(combining):
    """Flat fading, one h a frame, so frames are the units: within five standard errors at quantiles."""
    link, n = make_link("ofdm", profile="rayleigh", antennas=4, users=3, combining=combining), 10_000
    drawn, no = link.draw([1] * n, 2, *keys(1), torch.float64), torch.full((1, 1), NO, dtype=torch.float64)
    others = link.interference(drawn, no)
    sinr = (link.gain_at(drawn, no).abs().square() / (no + (0 if others is None else others))).flatten()
    for x in np.quantile(sinr.numpy(), [0.05, 0.5, 0.9]):
        p = theory.combined_cdf(combining, x, NO, 4, [1.0, 1.0])
        assert abs(float((sinr < x).double().mean()) - p) < 5 * math.sqrt(p * (1 - p) / n)


@pytest.mark.parametrize("profile", ["rayleigh", "tdl-a"])
def test_users_of_a_group_meet_the_same_matrix(profile):
    """In frame after frame, and element by element, however many frames and samples each of them has."""
    link = make_link("ofdm", profile=profile, antennas=2, users=2, combining="mrc", subcarriers=2)
    first, other = (
        link.draw(own, 56, *keys(9), torch.float64, Fades(keys(*seeds), 1))
        for own, seeds in (([1, 2, 1], (1, 2)), ([1, 1], (2, 1)))
    )
    crossed = [up["others"] * up["fading"].abs().square() for up in (first, other)]  # |h_1^H h_2|^2
    torch.testing.assert_close(crossed[0][:2], crossed[1])
    assert not torch.isclose(crossed[0][0], crossed[0][3]).any(), "each frame has a matrix of its own"


def test_means_over_frames_draw_no_more_of_them_than_is_filled(monkeypatch):
    """16,384 whole frames of a usual band, of two users at two antennas, took 12 GB for a rate."""
    link, sizes = make_link("ofdm", profile="tdl-a", antennas=2, users=2, subcarriers=600), []
    response = type(link.profile).response

    def note(self, clients, frames, times, rate, width, *more):
        sizes.append((times, width))
        return response(self, clients, frames, times, rate, width, *more)

    monkeypatch.setattr(type(link.profile), "response", note)
    assert link.draw([1] * 5, 2, *keys(1))["strengths"].shape == (5, 1, 2)
    assert link.draw([3], 2 * 600, *keys(1))["strengths"].shape == (3, 600, 2)
    assert sizes == [(1, 1), (4, 600)], "three symbols of data, and one of pilots between them"


def test_a_group_has_the_band_of_all_its_users():
    """Six clients, two and two on a block: each block is twice as wide as one of six, and takes half as long."""
    alone, shared = (make_link("ofdm", antennas=2, users=u, subcarriers=12).in_band(6, 6, 10, 8) for u in (1, 2))
    assert [link._band.widths(np.arange(6)).tolist() for link in (alone, shared)] == [[2] * 6, [4] * 6]
    numbers = np.full(6, 2.0 * 12 * 4 * 7)  # the data of 14 or 7 slots
    for link, slots, part in ((alone, 14, 6), (shared, 7, 3)):
        assert link.cost(numbers, np.arange(6)).uses == pytest.approx(slots * 14 * 15 / 14 * 12 / part)
    assert make_link("ofdm", users=2, antennas=2).in_band(6, 6, 10, 8).options.subcarriers == 3 * 4
