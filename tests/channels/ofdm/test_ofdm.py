"""The link `ofdm`: grid, receiver knowledge, split gradient, metering and refusals."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from scipy.special import j0
from torch import Tensor

from semcom.channels import make_link, theory
from semcom.channels.ofdm.grid import Grid, make_frame
from semcom.channels.ofdm.link import OFDM, _measure_interpolation
from semcom.channels.ofdm.profiles import TDL_A, import_sionna, lend_generators_to_sionna
from semcom.channels.power import normalise_power
from semcom.channels.statistics import Sender, Statistics
from tests.channels.draws import randn
from tests.samples import has_mean

D = 8
STILL = {"speed_mps": 0.0}


def ofdm(**options) -> OFDM:
    link = make_link("ofdm", **options)
    assert isinstance(link, OFDM)
    return link


def draw(link: OFDM, sizes: list[int], d: int = D, seed: int = 0) -> dict[str, Tensor]:
    return link.draw(sizes, d, torch.Generator().manual_seed(seed), torch.float64)


# -- the grid --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pilots", "data"), [((2, 11), 12), ((), 14), ((0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13), 1)]
)
def test_data_fill_one_symbol_after_the_other_and_a_step_has_a_frame(pilots, data):
    """The channel is static, so only elements of the same subcarrier and step are equal."""
    link = ofdm(pilots=pilots, subcarriers=5, delay_spread_ns=300.0, **STILL)
    h = draw(link, [7, 3])["fading"]
    for step in (h[:7], h[7:]):
        elements = step.flatten()
        subcarrier = torch.arange(len(elements)) % 5
        assert torch.equal(elements, elements[subcarrier])
        assert len(elements[:5].abs().unique()) == min(5, len(elements))
    assert not torch.isclose(h[0], h[7]).any()


def test_a_frame_goes_on_over_its_slots():
    """6 symbols on one subcarrier with 4 data symbols a slot: the last two lie a slot later, at symbols 14 and 15."""
    link = ofdm(pilots=tuple(range(4, 14)), subcarriers=1, speed_mps=500.0)
    many = torch.cat([draw(link, [1], 12, seed)["fading"] for seed in range(250)])
    x = 2 * math.pi * 500 * 3.5e9 / 299_792_458 * (1 + 1 / 14) / 15e3
    for n, symbols in enumerate((0, 1, 2, 3, 14, 15)):
        product = many[:, n] * many[:, 0].conj()
        assert abs(product.mean() - j0(x * symbols)) < 5 * (product.abs().square().mean() / 250).sqrt()


def test_the_band_is_sized_by_a_mini_batch_or_given():
    """50 x 64 / 2 = 1,600 symbols over 12 data symbols of a slot are 134 subcarriers."""
    link = ofdm()
    assert (link.options.subcarriers, link.bandwidth_hz, link.shares) == (None, None, None)
    run = link.in_band(clients=25, active=20, batch=50, d=64)
    assert run.options.subcarriers == 20 * 134 and run.bandwidth_hz == 20 * 134 * 15e3
    assert link.options.subcarriers is None  # the other one is a copy
    assert ofdm(pilots=()).in_band(20, 20, 50, 64).options.subcarriers == 20 * 115
    given = ofdm(subcarriers=1000, spacing_khz=30.0).in_band(20, 20, 50, 64)
    assert (given.options.subcarriers, given.bandwidth_hz) == (1000, 3e7)


def test_clients_have_blocks_of_their_shares():
    """Of 10 subcarriers 0.5, 0.34 and 0.16 are 5, 3 and 2: the period of a still channel along the symbols."""
    link = ofdm(subcarriers=10, shares=(0.5, 0.34, 0.16), delay_spread_ns=300.0, **STILL).in_band(3, 2, 10, D)
    for client, width in enumerate((5, 3, 2)):
        h = draw(link.of(client), [10])["fading"].flatten()
        assert torch.equal(h[width:], h[:-width]) and len(h[:width].abs().unique()) == width
    with pytest.raises(ValueError, match=r"shares: clients differ in them; draw from link.of\(client\)"):
        draw(link, [10])
    with pytest.raises(ValueError, match="shares: the band is not known; give subcarriers, or call link.in_band"):
        draw(ofdm(shares=(0.5, 0.5)).of(0), [10])


def test_no_batch_at_all_is_no_row():
    drawn = draw(ofdm(csi="ls"), [])
    shapes = dict.fromkeys(("noise", "fading", "known", "error"), (0, 4)) | {"moments": (0, 4, 3)}
    assert {name: t.shape for name, t in drawn.items()} == shapes


# -- what arrives ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", ["rayleigh", "tdl-a", "tdl-e", "cdl-c"])
@pytest.mark.parametrize("equaliser", ["zf", "mmse"])
def test_without_noise_features_arrive_as_they_were_sent(profile, equaliser):
    link = ofdm(profile=profile, equaliser=equaliser)
    x = randn(1, 5, D)
    up = {name: tensor[None] for name, tensor in draw(link, [5]).items()}
    torch.testing.assert_close(link(x, up, torch.tensor([math.inf])), normalise_power(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("equaliser", ["zf", "mmse"])
def test_without_noise_the_pilots_of_a_still_channel_tell_all(equaliser):
    """The estimate is then h itself, at every subcarrier, as every one has pilots."""
    link = ofdm(csi="ls", equaliser=equaliser, delay_spread_ns=300.0, **STILL)
    x = randn(1, 5, D)
    up = {name: tensor[None] for name, tensor in draw(link, [5]).items()}
    torch.testing.assert_close(link(x, up, torch.tensor([math.inf])), normalise_power(x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("csi", ["perfect", "ls"])
@pytest.mark.parametrize("equaliser", ["zf", "mmse"])
def test_gradient_is_exact_for_an_ideal_downlink(csi, equaliser):
    """Effective gain w h with the true h: against finite differences, for a fixed realisation."""
    link = ofdm(csi=csi, equaliser=equaliser, downlink="ideal")
    up = {name: tensor[None] for name, tensor in draw(link, [2, 1]).items()}
    assert torch.autograd.gradcheck(lambda x: link(x, up, torch.tensor([5.0])), randn(1, 3, D).requires_grad_())


@pytest.mark.parametrize("name", ["zf", "mmse"])
def test_an_estimate_is_used_where_the_gain_is_not_known(name):
    """By hand: h = 2, estimate g = 0.5j + 0.5 (1j), no = 0.25: w = -j / 1, then w (2 x).

    MMSE: E|g|^2 = 0.5^2 + 0.25 + 0.25 x 2 = 1 and r = 0.5, so E[h | g] = 0.5j, v = 0.75 and w = -0.5j / (0.25 + 0.75 +
    0.25).
    """
    link = ofdm(csi="ls", equaliser=name)
    one = torch.ones(1, 1, 1, dtype=torch.complex128)
    drawn = {"fading": 2 * one, "known": 0.5j * one, "error": 1j * one, "noise": 0 * one}
    drawn["moments"] = torch.tensor([0.5, 0.25, 2.0], dtype=torch.float64).expand(1, 1, 1, 3)
    got = link.transmit(one, drawn, torch.tensor([-10 * math.log10(0.25)]))
    assert got.item() == pytest.approx(-2j if name == "zf" else -1j / 1.25)
    assert link._hop(drawn, torch.tensor([6.0206]), one, None).effective.item() == pytest.approx(got.item(), rel=1e-6)


# -- channel knowledge -----------------------------------------------------------------------------------------------


def error(link: OFDM, snr_db: float, frames: int, d: int = 2) -> Tensor:
    """|estimate - h|^2 of the data elements of independent frames, `[frames, d/2]`."""
    drawn = draw(link, [1] * frames, d, seed=3)
    estimate = link.estimate(drawn, torch.tensor(10 ** (-snr_db / 20), dtype=torch.float64))
    assert estimate is not None
    return (estimate.gain - drawn["fading"]).abs().square()


def weight(t: int) -> float:
    """Weight of pilot 11 in an estimate at symbol t. Pilot 2 has the rest."""
    return (t - 2) / 9


def test_between_the_pilots_noise_is_averaged_and_beyond_them_amplified():
    """no ((1 - w)^2 + w^2): 1.54 no at symbol 0, 0.51 no at 6."""
    link = ofdm(csi="ls", subcarriers=1, **STILL)
    errors = error(link, 10.0, 1000, 24)
    for column, t in enumerate(link._grid.data):
        assert has_mean(errors[:, column], 0.1 * ((1 - weight(t)) ** 2 + weight(t) ** 2))


def test_what_moves_between_the_pilots_leaves_a_floor():
    """Without noise: the mean square of h(t) - (1 - w) h(2) - w h(11), correlations J0, as Jakes' spectrum has them."""
    link = ofdm(csi="ls", subcarriers=1, speed_mps=100.0)
    errors = error(link, math.inf, 1000, 24)
    x = 2 * math.pi * 100 * 3.5e9 / 299_792_458 * (1 + 1 / 14) / 15e3
    for column, t in enumerate(link._grid.data):
        w = weight(t)
        both = 1 + (1 - w) ** 2 + w**2 + 2 * w * (1 - w) * j0(9 * x)
        assert has_mean(errors[:, column], both - 2 * (1 - w) * j0((t - 2) * x) - 2 * w * j0((11 - t) * x))


def squared(link: OFDM, snr_db: float, frames: int, d: int) -> Tensor:
    """|x - y|^2 of the symbol 1 and its received y, on the data elements of independent frames, `[frames, d/2]`."""
    up = {name: tensor[None] for name, tensor in draw(link, [1] * frames, d, seed=4).items()}
    sent = torch.ones(1, frames, d // 2, dtype=torch.complex128)
    return (link.transmit(sent, up, torch.tensor([snr_db], dtype=torch.float64))[0] - sent[0]).abs().square()


@pytest.mark.parametrize("snr_db", [-10.0, 40.0])
def test_mmse_knows_what_moves_between_the_pilots(snr_db):
    """At 60 m/s by Jakes' correlations: r = (1 - w) J0(t - 2) + w J0(t - 11), E|g|^2 = both pilots' power and noise.

    Every element has an error below 1, the error of an element that is not sent.
    """
    link = ofdm(csi="ls", subcarriers=1, speed_mps=60.0)
    errors, no = squared(link, snr_db, 1000, 24), 10 ** (-snr_db / 10)
    x = 2 * math.pi * 60 * 3.5e9 / 299_792_458 * (1 + 1 / 14) / 15e3
    for column, t in enumerate(link._grid.data):
        w = weight(t)
        r = (1 - w) * j0((t - 2) * x) + w * j0((11 - t) * x)
        power = (1 + no) * ((1 - w) ** 2 + w**2) + 2 * w * (1 - w) * j0(9 * x)
        expected = theory.mean_square_error("mmse", no, known=r**2 / power)
        assert expected < 1
        assert has_mean(errors[:, column], expected)


RATES = [
    ({"speed_mps": 60.0}, 20.0, 16, 1),
    ({"speed_mps": 30.0}, 15.0, 16, 4),
    ({"speed_mps": 3.0}, 0.0, 2, 1),
    *(
        ({"profile": "rayleigh"}, snr_db, width, slots)
        for snr_db, width, slots in ((10.0, 16, 1), (0.0, 1, 1), (0.0, 4, 12))
    ),
]


@pytest.mark.parametrize(("options", "snr_db", "width", "slots"), RATES)
def test_rates_are_those_that_a_receiver_with_these_estimates_has(options, snr_db, width, slots):
    """A tenth of the simulated blocks carries less than the limit, and what all carry on average is the same.

    By the generalised mutual information, with the best of many scales of the metric.
    """
    uses = 12 * width * slots
    link, sender = ofdm(csi="ls", subcarriers=width, **options), Sender(10 ** (snr_db / 10), uses=uses)
    up, no = draw(link, [1] * 600, 2 * uses, seed=5), torch.full((1, 1), 1 / sender.snr, dtype=torch.float64)
    estimate, statistics = link.estimate(up, no.sqrt()), Statistics(link)
    t, m, h = 1 / (estimate.variance + no), estimate.mean, up["fading"]
    known, heard, apart = (t * p for p in (m.abs().square(), h.abs().square() + no, (h - m).abs().square() + no))
    each = [(s * known).log1p() + s * heard / (1 + s * known) - s * apart for s in 2 ** np.arange(-12, 3, 0.125)]
    carried = torch.stack([one.mean(1) for one in each]).amax(0).clamp_min(0) / math.log(2)
    lost = float((carried < statistics.find_limit(sender, 0.1)).double().mean())
    assert lost == pytest.approx(0.1, abs=5 * (0.09 / 600) ** 0.5)
    known = Statistics(ofdm(subcarriers=width, **options)).find_limit(sender, 0.1)
    assert float((carried < known).double().mean()) > 0.15
    mean = statistics.measure(link.draw_blocks(sender.uses, 4000, torch.Generator().manual_seed(0))[0], sender).mean()
    assert float(mean) == pytest.approx(float(carried.mean()), abs=5 * float(carried.std()) / 600**0.5)


@pytest.mark.parametrize("options", [{"profile": "rayleigh"}, {"speed_mps": 0.0}])
def test_without_noise_pilots_of_a_still_channel_leave_the_rate_without_a_limit(options):
    limit = Statistics(ofdm(csi="ls", subcarriers=8, **options)).find_limit(Sender(math.inf, 2.0, uses=300.0), 0.1)
    assert 50 < limit < math.inf


def test_the_slots_of_a_frame_know_their_estimates_alike():
    """But the first and the last, where the line through two pilots goes on: a frame of 5 slots against one of 4."""
    grid = Grid((2, 11), 14e3, 0.0)
    profile = TDL_A(100e-9, 3.5e9, 60.0)
    four, five = (
        _measure_interpolation(profile, 0, grid, slots, torch.device("cpu")).view(slots, 12, 3) for slots in (4, 5)
    )
    assert torch.equal(four[1], four[2]) and not torch.equal(four[0], four[1])
    assert torch.equal(five, torch.cat([four, four[1:2]])[[0, 1, 2, 4, 3]])
    part = make_frame(grid, 5, torch.device("cpu")).part.view(5, 12)
    assert torch.equal(five[..., 2], part**2 + (1 - part) ** 2)


def test_interpolation_goes_from_slot_to_slot():
    """By hand, pilots 2 and 11 of two slots: symbol 13 lies between 11 and 16, symbol 27 beyond 25."""
    at = make_frame(Grid((2, 11), 15e3, 0.0), 2, torch.device("cpu"))
    assert at.pilots.tolist() == [2, 11, 16, 25]
    weights = at.between(torch.eye(4, dtype=torch.complex128)[None])[0].real
    known = dict(zip(at.data.tolist(), weights.tolist(), strict=True))
    assert known[6] == pytest.approx([5 / 9, 4 / 9, 0, 0])
    assert known[13] == pytest.approx([0, 3 / 5, 2 / 5, 0])
    assert known[27] == pytest.approx([0, 0, -2 / 9, 11 / 9])
    one = make_frame(Grid((5,), 15e3, 0.0), 1, torch.device("cpu"))
    assert one.between(torch.full((1, 1, 1), 3j)).tolist() == [[[3j]] * 13]


# -- accounts --------------------------------------------------------------------------------------------------------


def test_pilots_prefix_and_whole_slots_are_paid_for():
    """Two clients, 10 subcarriers each: 120 data elements a slot. A slot takes 1 ms: 14 x 15/14 x 10 = 150 uses."""
    link = ofdm(subcarriers=20).in_band(2, 2, 10, 24)
    cost = link.cost(np.array([240.0, 242.0, 2.0, 0.0]), np.array([0, 1, 0, 1]))
    assert cost.uses == pytest.approx([150, 300, 150, 0])
    assert cost.energy == pytest.approx(np.array([120 + 20, 121 + 40, 1 + 20, 0]) * 15 / 14)
    milliseconds = 1e3 * cost.uses / (link.bandwidth_hz / 2)
    assert milliseconds == pytest.approx([1, 2, 1, 0])


def test_a_share_of_the_band_takes_its_inverse_of_the_time():
    """The same 240 symbols on all of 24 subcarriers, on a half and on a sixth: 1, 2 and 5 slots of 12 x width."""
    numbers = np.array([480.0])
    alone = ofdm(subcarriers=24).in_band(1, 1, 10, 48).cost(numbers, np.array([0]))
    shared = ofdm(subcarriers=24, shares=(0.5, 1 / 6, 1 / 3)).in_band(3, 3, 10, 48)
    slots = np.array([1, 2, 5])
    uses = [alone.uses[0], *shared.cost(np.repeat(numbers, 2), np.array([0, 1])).uses]
    assert uses == pytest.approx(slots * 15 * np.array([24, 12, 4]))
    seconds = np.array(uses) / (24 * 15e3 * np.array([1, 1 / 2, 1 / 6]))
    assert seconds == pytest.approx(slots * 1e-3)


def test_equal_parts_are_those_of_the_clients_that_take_part():
    """20 subcarriers for three clients leave two unused, which still count as part of the time."""
    link = ofdm(subcarriers=20).in_band(5, 3, 10, 24)
    cost = link.cost(np.array([144.0]), np.array([4]))  # 72 symbols: 6 subcarriers x 12
    assert cost.uses == pytest.approx([15 * 20 / 3]) and cost.energy == pytest.approx([(72 + 12) * 15 / 14])


# -- bad input -------------------------------------------------------------------------------------------------------


def test_paths_beyond_the_prefix_are_warned_of_with_numbers():
    """TDL-A's last path: 9.66 delay spreads. The prefix of 15 kHz: 4.76 us, of 120 kHz an eighth of that."""
    said = "600 puts the last path of tdl-a at 5.8 us, beyond the cyclic prefix of 4.76 us"
    with pytest.warns(UserWarning, match=said) as warned:
        make_link("ofdm", delay_spread_ns=600.0)
    assert warned[0].filename == __file__  # of the caller
    with pytest.warns(UserWarning, match="100 puts the last path of tdl-a at 0.966 us, beyond .* of 0.595 us"):
        ofdm(spacing_khz=120.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ofdm(delay_spread_ns=450.0), ofdm(profile="rayleigh", cyclic_prefix=0.0)


@pytest.mark.parametrize(("profile", "shares"), [("rayleigh", None), ("tdl-d", (0.2, 0.2, 0.6)), ("cdl-a", None)])
def test_several_clients_are_drawn_at_once_as_each_alone(profile: str, shares: tuple[float, ...] | None) -> None:
    """Clients with other numbers of mini-batches, frames of other sizes among them, and one without samples."""
    link = make_link("ofdm", profile=profile, csi="ls", shares=shares, subcarriers=12).in_band(3, 3, 9, 8)
    sizes, clients = [[9, 9, 2], [9], [30, 1], []], [0, 2, 1, 2]

    def generators() -> list[torch.Generator]:
        return [torch.Generator().manual_seed(k) for k in range(len(clients))]

    together = link.draw_all(clients, sizes, 8, generators())
    for got, client, own, generator in zip(together, clients, sizes, generators(), strict=True):
        alone = link.of(client).draw(own, 8, generator)
        assert got.keys() == alone.keys() == {"noise", "fading", "known", "error", "moments"}
        assert all(torch.equal(got[name], alone[name]) and len(got[name]) == sum(own) for name in alone)


def test_draws_that_cannot_be_told_apart_are_refused() -> None:
    generators = [torch.Generator(), torch.Generator()]
    own = import_sionna().config.torch_rng("cpu")
    with lend_generators_to_sionna(generators, [2, 1]):
        assert torch.rand((3, 2), generator=own).shape == (3, 2)
        with pytest.raises(RuntimeError, match="3 frames"):
            torch.rand((2, 3), generator=own)
