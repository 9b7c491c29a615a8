"""Promises of a link to its callers: independence of chunks, randomness, metering, errors, extension."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import math
import textwrap
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy import special
from torch._subclasses.fake_tensor import FakeTensorMode

from semcom.channels import LINKS, Link, Meter, link_options, make_link
from semcom.channels.fading import Rayleigh, Rician
from semcom.channels.link import complex_normal
from semcom.channels.meter import ratio_db
from semcom.channels.options import COUNT, require
from tests.samples import has_mean

OPTIONS = {"none": {}, "ideal": {}, "awgn": {}, "awgn, free": {"power": "free"}, "rayleigh": {}, "rician": {}}
OPTIONS |= {"ofdm": {}, "ofdm, ls": {"csi": "ls"}}
DIGITAL = {"digital": {}, "digital, fading": {"fading": "rayleigh"}, "digital, coarse": {"bits": 0.4, "modulation": 4}}
KINDS = list(OPTIONS)
B, D = 5, 8


def of_kind(name: str) -> Link:
    return make_link(name.split(",")[0], **(OPTIONS | DIGITAL)[name])


RADIO = [kind for kind in KINDS if of_kind(kind).radio]
NOISY = [kind for kind in KINDS if of_kind(kind).noisy]


def features(k: int, b: int = B, d: int = D, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(k, b, d, dtype=dtype, generator=torch.Generator().manual_seed(7))


@pytest.mark.parametrize("kind", [*KINDS, *DIGITAL])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_clients_do_not_see_their_chunk(kind, dtype, stack):
    """Forward and backward on [k, b, d] equal separate clients, with an SNR per client.

    To the bit, unless every symbol has its own gain: the rounding of complex products depends on whether they fall into
    a vector of the processor or behind the last one.
    """
    seeds = (1, 2, 3)
    link, d = of_kind(kind), 32 if kind in DIGITAL else D
    up, down = stack(link, [3, 2], d, seeds, dtype), stack(link, [3, 2], d, [s + 10 for s in seeds], dtype)
    snr_db, down_snr_db = torch.tensor([3.0, 8.0, math.inf]), torch.tensor([18.0, math.inf, 4.0])
    x = features(3, d=d, dtype=dtype).requires_grad_()
    weights = torch.linspace(-1, 2, 3 * B * d, dtype=dtype).view(3, B, d)

    def run(clients: slice) -> tuple[torch.Tensor, torch.Tensor]:
        one = {name: tensor[clients] for name, tensor in up.items()}
        two = {name: tensor[clients] for name, tensor in down.items()}
        y = link(x[clients], one, snr_db[clients], down=two, down_snr_db=down_snr_db[clients])
        (gradient,) = torch.autograd.grad((y * weights[clients]).sum(), x)
        assert y.dtype == gradient.dtype == dtype
        return y, gradient[clients]

    together, gradient = run(slice(0, 3))
    tolerance = 32 * torch.finfo(dtype).eps if kind.startswith("ofdm") else 0.0
    for k in range(3):
        alone, own = run(slice(k, k + 1))
        torch.testing.assert_close(alone[0], together[k], rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(own[0], gradient[k], rtol=tolerance, atol=tolerance)


def test_each_client_has_its_own_snr(stack):
    """The noise of client k has variance no_k per pair-of-features dimension (features are sqrt(2) times symbols)."""
    link = make_link("awgn")
    snr_db = torch.tensor([0.0, 10.0, 20.0, math.inf])
    b, d = 200, 50
    x = features(4, b, d)
    up = stack(link, [b], d, (1, 2, 3, 4))
    noise = link(x, up, snr_db) - make_link("ideal")(x, {}, snr_db)
    no = 10 ** (-snr_db / 10)
    n = b * d
    assert (abs(noise.square().mean((1, 2)) - no) <= 5 * no * math.sqrt(2 / n)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_draw_is_a_function_of_the_generator_alone(kind):
    link = of_kind(kind)
    before = torch.get_rng_state()
    one = link.draw([4, 4, 1], D, torch.Generator().manual_seed(3))
    up = {name: tensor[None] for name, tensor in one.items()}
    x = features(1, 9, dtype=torch.float32).requires_grad_()
    link(x, up, torch.tensor([3.0]), down=up).sum().backward()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(99)
    two = link.draw([4, 4, 1], D, torch.Generator().manual_seed(3))
    other = link.draw([4, 4, 1], D, torch.Generator().manual_seed(4))
    torch.set_rng_state(before)
    for name in one:
        fixed = name == "moments"  # those of the link
        assert torch.equal(one[name], two[name]) and torch.equal(one[name], other[name]) == fixed
        assert one[name].shape[0] == 9 and one[name].dtype == (torch.float32 if fixed else torch.complex64)


def test_links_of_one_seed_have_the_same_noise():
    """So two kinds of channel can be compared on common random numbers."""
    awgn = make_link("awgn").draw([4], D, torch.Generator().manual_seed(3))
    for kind in NOISY:
        other = of_kind(kind).draw([4], D, torch.Generator().manual_seed(3))
        assert torch.equal(awgn["noise"], other["noise"])


@pytest.mark.parametrize("kind", ["awgn", "rayleigh"])
def test_meter_measures_the_snr_that_was_asked_for(kind, stack):
    """Relative variance of sum|h x|^2 (Rayleigh, one h per sample) is 1/samples, and that of sum|n|^2 is 1/symbols."""
    b, d, wanted = 4000, 16, 10 ** (0.1 * 7.0)
    link = make_link(kind)
    meter, back = Meter(), Meter()
    snr_db = torch.tensor([7.0], dtype=torch.float64)
    x = features(1, b, d).requires_grad_()
    y = link(x, stack(link, [b], d), snr_db, down=stack(link, [b], d, (1,)), meter=meter, down_meter=back)
    y.backward(1e-5 * torch.ones_like(y))
    spread = 1 / math.sqrt(b * d / 2) + (1 / math.sqrt(b) if kind == "rayleigh" else 0.0)
    for measured in (meter, back):
        assert abs(10 ** (measured.snr_db() / 10) / wanted - 1) < 5 * spread


def test_meter_counts_valid_samples_of_several_calls(stack):
    """By hand: two calls with known gains and noise. Masked samples and clients without any gradient do not count."""
    link = make_link("rayleigh", equaliser="none")
    ones = torch.ones(2, 3, 2).to(torch.complex128)
    up = {"noise": ones * torch.tensor([1.0, 2.0, 50.0])[:, None], "fading": 3j * ones[..., :1]}
    mask = torch.tensor([[True, True, False], [True, False, False]])
    meter, back = Meter(), Meter()
    for scale in (1.0, 5.0):  # features are normalised, so their scale does not matter
        x = (scale * torch.ones(2, 3, 4, dtype=torch.float64)).requires_grad_()
        y = link(x, up, torch.zeros(2), down=up, mask=mask, meter=meter, down_meter=back)
        y.backward(torch.tensor([1e-4, 0.0]).double()[:, None, None].expand(2, 3, 4))
    signal, noise = (
        2 * 3 * 2 * 9.0,
        2 * 2 * (1.0 + 4.0 + 1.0),
    )  # calls x samples x symbols x |h|^2; calls x symbols x |n|^2
    assert meter.signal is not None and meter.noise is not None
    assert float(meter.signal) == pytest.approx(signal) and float(meter.noise) == pytest.approx(noise)
    assert meter.snr_db() == pytest.approx(10 * math.log10(signal / noise))
    assert back.signal is not None and float(back.signal) == pytest.approx(2 * 2 * 2 * 9.0)


def test_meter_without_noise_and_without_signal():
    assert math.isnan(Meter().snr_db())
    meter = Meter()
    make_link("ideal")(features(1), {}, torch.tensor([3.0]), meter=meter)
    assert meter.snr_db() == math.inf


@pytest.mark.parametrize("kind", KINDS)
def test_no_value_is_read_back_from_the_device(kind, stack):
    """Fake tensors have no values: `.item()`, or `if tensor`, raises."""
    link = of_kind(kind)
    up = stack(link, [B], D, (1, 2))
    mode = FakeTensorMode()
    fake = {name: mode.from_tensor(tensor) for name, tensor in up.items()}
    mask = mode.from_tensor(torch.ones(2, B, dtype=torch.bool))
    x = mode.from_tensor(features(2).requires_grad_())
    snr_db = mode.from_tensor(torch.tensor([3.0, 9.0]))
    with mode:
        y = link(x, fake, snr_db, down=fake, mask=mask, meter=Meter(), down_meter=Meter(), check=False)
        (gradient,) = torch.autograd.grad(y.sum(), x)
    assert y.shape == gradient.shape == (2, B, D)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_features_that_are_not_finite_are_refused(value, stack):
    """Not where samples only pad, and not on demand: then they would have to be read from the device at each step."""
    link = make_link("awgn")
    x, up, snr_db = features(2), stack(link, [B], D, (1, 2)), torch.tensor([3.0, 9.0])
    x[1, 4, 2:5] = value
    with pytest.raises(ValueError, match="features: 3 of 80 values are not finite"):
        link(x, up, snr_db)
    mask = torch.tensor([[True] * 5, [True] * 4 + [False]])
    assert link(x, up, snr_db, mask=mask)[mask].isfinite().all()
    assert not link(x, up, snr_db, check=False)[1, 4].isfinite().all()


@pytest.mark.parametrize("kind", RADIO)
def test_odd_dimensions_are_refused(kind):
    link = of_kind(kind)
    with pytest.raises(ValueError, match="dimension 7 is odd"):
        link.draw([3], 7, torch.Generator())
    with pytest.raises(ValueError, match="dimension 7 is odd"):
        link(torch.ones(1, 3, 7), {}, torch.tensor([3.0]))


def test_options_of_a_link_are_the_fields_of_its_options():
    assert link_options("none") == link_options("ideal") == {}
    assert link_options("awgn") == {"feature_noise": 0.0, "downlink": "noisy", "power": "normalised"}
    assert link_options("rayleigh") == {
        "feature_noise": 0.0,
        "equaliser": "mmse",
        "downlink": "noisy",
        "feedback": "gain",
        "coherence": "sample",
        "antennas": 1,
        "users": 1,
        "combining": "mmse",
        "power_control": "none",
        "round_doppler": None,
    }
    link = make_link("rician", k_factor_db=3.0)
    assert isinstance(link, Rician)
    assert (
        link.options
        == Rician.Options(0.0, "mmse", "noisy", "gain", 1, 1, "mmse", "none", "sample", None, 3.0)
        == Rician(link.options).options
    )


def test_wrong_options_make_no_link_however_it_is_made():
    with pytest.raises(ValueError, match="^k_factor_db: nan is not a number from -100 to 100 dB$"):
        Rician(Rician.Options(k_factor_db=math.nan))


@pytest.mark.parametrize(
    ("kind", "given", "filled"),
    [
        ("rician", {}, {"k_factor_db": 9.0}),
        ("ofdm", {}, {"delay_spread_ns": 100.0, "carrier_ghz": 3.5, "speed_mps": 3.0, "subcarriers": 2}),
        ("ofdm", {"speed_mps": 0.0}, {"delay_spread_ns": 100.0, "speed_mps": 0.0}),
        ("ofdm", {"profile": "rayleigh"}, {"delay_spread_ns": None, "carrier_ghz": None, "speed_mps": None}),
        ("ofdm", {"subcarriers": 12}, {"subcarriers": 12}),
        ("digital", {}, {"bits": 1.0, "modulation": 16, "code_rate": 0.5, "coherence": None, "k_factor_db": None}),
        ("digital", {"bits": 3.0}, {"modulation": 256, "code_rate": 0.75}),
        ("digital", {"fading": "rayleigh"}, {"coherence": "sample", "k_factor_db": None}),
        ("digital", {"fading": "rician", "coherence": "batch"}, {"coherence": "batch", "k_factor_db": 9.0}),
    ],
)
def test_open_options_are_filled_in_and_make_the_same_link_again(kind, given, filled):
    """In a band of 2 clients with 1 sample of 24 features: 12 symbols, one subcarrier each."""
    options = make_link(kind, **given).in_band(2, 2, 1, 24).options
    assert {name: getattr(options, name) for name in filled} == filled
    assert make_link(kind, **vars(options)).in_band(2, 2, 1, 24).options == options


@pytest.mark.parametrize("kind", LINKS.names())
def test_every_built_in_option_is_explained(kind):
    """A docstring below each field, of the class or of the parent that declares it."""
    options = LINKS.get(kind).Options
    for field in dataclasses.fields(options):
        owner = next(c for c in options.__mro__ if field.name in vars(c).get("__annotations__", {}))
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
        after = {a: b for a, b in itertools.pairwise(body.body) if isinstance(a, ast.AnnAssign)}
        (text,) = (b for a, b in after.items() if a.target.id == field.name)
        assert isinstance(text, ast.Expr) and len(text.value.value) > 10


def test_a_symbol_costs_one_use_and_its_energy():
    link = make_link("rayleigh").in_band(clients=5, active=3, batch=10, d=64)
    cost = link.cost(np.array([640.0, 3.0, 0.0]), np.array([0, 4, 1]))
    assert cost.uses.tolist() == cost.energy.tolist() == [320, 2, 0]
    assert link.shares is None and link.bandwidth_hz is None and link.of(3) is link


# -- how loud features are ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_features_are_sent_as_a_link_declares(kind, stack):
    """Without noise features arrive unchanged: at mean square 1, or at their own power.

    An estimate of a moving channel is 55 dB off.
    """
    link, x = of_kind(kind), 3 * features(2)
    sent = x / x.square().mean(-1, keepdim=True).sqrt() if link.normalises else x
    received = link(x, stack(link, [B], D, (1, 2)), torch.full((2,), math.inf))
    torch.testing.assert_close(received, sent, rtol=0, atol=0.05 if kind == "ofdm, ls" else 1e-12)


def test_without_a_channel_features_are_what_they_are():
    """The identical tensor at any width. The gradient is exact, and padding has none."""
    link, x = make_link("none"), features(2, d=7).requires_grad_()
    generator = torch.Generator().manual_seed(0)
    before = generator.get_state()
    assert link.draw([B], 7, generator) == {} and torch.equal(generator.get_state(), before)
    meter, back, snr_db = Meter(), Meter(), torch.tensor([0.0, -300.0])
    y = link(x, {}, snr_db, down={}, down_snr_db=snr_db, meter=meter, down_meter=back)
    assert y is x and math.isnan(meter.snr_db()) and math.isnan(back.snr_db())
    mask = torch.tensor([[True] * B, [True] * (B - 1) + [False]])
    weights = torch.linspace(-1, 2, 2 * B * 7, dtype=torch.float64).view(2, B, 7)
    y = link(x, {}, snr_db, mask=mask)
    (gradient,) = torch.autograd.grad((y * weights).sum(), x)
    assert torch.equal(y, x) and torch.equal(gradient, weights * mask[..., None])
    cost = link.cost(np.array([640.0, 3.0]), np.array([0, 1]))
    assert cost.uses.tolist() == cost.energy.tolist() == [0, 0]
    with pytest.raises(ValueError, match="features: 1 of 70 values are not finite"):
        link(torch.where(torch.arange(70).view(2, B, 7) == 3, math.nan, x), {}, snr_db)


def sent_at(power: float, option: str, meter: Meter, stack) -> tuple[torch.Tensor, torch.Tensor]:
    """Send features with an average mean square of `power` per sample over AWGN at 7 dB."""
    b, d = 2000, 16
    link, x = make_link("awgn", power=option), features(1, b, d)
    x = x * (power / x.square().mean()).sqrt()
    return x, link(x, stack(link, [b], d), torch.tensor([7.0]), meter=meter)


@pytest.mark.parametrize("power", [1e-4, 0.05, 1.0, 300.0])
def test_free_features_are_heard_at_the_power_that_they_have(power, stack):
    """The noise is that of unit power, so the received SNR is p 10^(snr/10): signal exactly, noise within 5 errors."""
    meter, usual, no = Meter(), Meter(), 10**-0.7
    x, y = sent_at(power, "free", meter, stack)
    assert float(meter.signal) == pytest.approx(power * x.numel() / 2)  # two features make a symbol
    noise, n = y - x, x.numel()
    assert abs(noise.square().mean() / no - 1) < 5 * math.sqrt(2 / n)
    assert abs(10 ** (meter.snr_db() / 10) * no / power - 1) < 5 * math.sqrt(2 / n)
    x, y = sent_at(power, "normalised", usual, stack)
    torch.testing.assert_close(y - x / x.square().mean(-1, keepdim=True).sqrt(), noise, rtol=0, atol=1e-12)
    assert meter.snr_db() - usual.snr_db() == pytest.approx(10 * math.log10(power))


def test_free_features_of_unit_power_are_normalised_ones(stack):
    """Features of 1 and -1 have mean square 1 exactly, so the same bits arrive, including the noise."""
    x, snr_db = features(2).sign(), torch.tensor([3.0, 9.0])
    link, free = make_link("awgn"), make_link("awgn", power="free")
    up = stack(link, [B], D, (1, 2))
    received = free(x, up, snr_db)
    assert torch.equal(received, link(x, up, snr_db)) and not torch.equal(received, x)


@pytest.mark.parametrize("power", [1e-4, 300.0])
def test_gradients_of_free_features_are_those_of_the_receiver(power, stack):
    """Without a downlink they are unchanged. With one their noise has variance rms^2 no, however loud the features."""
    link, x = make_link("awgn", power="free"), (power**0.5 * features(1, 500, 16)).requires_grad_()
    up, down, snr_db = stack(link, [500], 16, (1,)), stack(link, [500], 16, (2,)), torch.tensor([3.0])
    weights = 1e-3 * features(1, 500, 16).flip(1)
    (exact,) = torch.autograd.grad((link(x, up, snr_db) * weights).sum(), x)
    assert torch.equal(exact, weights)
    meter = Meter()
    (noisy,) = torch.autograd.grad((link(x, up, snr_db, down=down, down_meter=meter) * weights).sum(), x)
    assert float((noisy - weights).square().mean() / weights.square().mean()) == pytest.approx(10**-0.3, rel=0.08)
    assert meter.snr_db() == pytest.approx(3.0, abs=0.35)  # 5 sqrt(2 / 8000) of a noise power is 8 %


@pytest.fixture
def nakagami(own_names):
    """The example of `channels/link.py`: noise, equaliser, gradient and meter come from the base class."""

    @LINKS.register("nakagami")
    class Nakagami(Link):
        """|h|^2 is the mean of m independent exponentials."""

        @dataclass(frozen=True)
        class Options(Link.Options):
            """Those of a link that fades, and m."""

            m: int = 2

            def check(self):
                super().check()
                require("m", self.m, COUNT)

        def draw(self, sizes, d, generator, dtype=torch.float32):
            drawn = super().draw(sizes, d, generator, dtype)
            paths = complex_normal((self.options.m, sum(sizes), 1), generator, dtype)
            return drawn | {"fading": torch.polar(paths.abs().square().mean(0).sqrt(), paths[0].angle())}

        def gain(self, drawn):
            return drawn["fading"]


def test_a_channel_of_ones_own(nakagami):
    link = make_link("nakagami", equaliser="zf")
    drawn = link.draw([B], D, torch.Generator().manual_seed(0), torch.float64)
    up = {name: tensor[None] for name, tensor in drawn.items()}
    x = features(1).requires_grad_()
    received = link(x, up, torch.tensor([math.inf]))
    torch.testing.assert_close(received, make_link("ideal")(x, {}, torch.tensor([0.0])))
    assert torch.autograd.gradcheck(lambda x: link(x, up, torch.tensor([3.0])), x)
    for m in (1, 4):  # |h|^2 has mean 1 and variance 1/m
        h = make_link("nakagami", m=m).draw([20_000], 2, torch.Generator().manual_seed(m))["fading"][:, 0]
        assert has_mean(h.abs().square(), 1.0)
        assert has_mean((h.abs().square() - 1).square(), 1 / m)


def test_a_sender_may_adapt_its_power(stack):
    """Truncated inversion: amplitude 1 / (|h| sqrt(E1(t))) for |h|^2 > t has mean square 1, as E[1/|h|^2] is E1(t).

    The received SNR is then 1 / (E1(t) no) wherever the sender is active, with an effective gain of 0 elsewhere, and
    the energy is that of symbols of unit power.
    """
    least = 0.1
    kept = float(special.exp1(least))

    class Inversion(Rayleigh):
        """Invert the channel so that every symbol arrives at the same level, and stay silent in a fade."""

        def amplitude(self, gain, no):
            power = gain.abs().square()
            return torch.where(power > least, 1 / (power * kept).sqrt(), 0.0)

    link, snr_db = Inversion(Rayleigh.Options(equaliser="mmse")), torch.tensor([10.0], dtype=torch.float64)
    up = stack(link, [20_000], 2)
    assert has_mean(link.amplitude(up["fading"], None).square(), 1.0)
    sent, power = torch.ones(1, 20_000, 1, dtype=torch.complex128), up["fading"].abs().square()
    heard = link.transmit(sent, up | {"noise": 0 * up["noise"]}, snr_db)
    expected = (power > least).double() * ((1 / kept) / (1 / kept + 0.1))
    torch.testing.assert_close(heard.real, expected, rtol=1e-9, atol=1e-9)
    assert heard.imag.abs().max() < 1e-9
    assert has_mean((heard.abs() > 0).double(), math.exp(-least))
    x = features(1, 20_000, 2).requires_grad_()
    (gradient,) = torch.autograd.grad(link(x, up, snr_db), x, torch.ones_like(x))
    assert not gradient[power.expand(1, -1, 2) <= least].any()


@pytest.mark.parametrize("variance", [0.1, 1.0])
@pytest.mark.parametrize("snr_db", [3.0, math.inf])
def test_noise_of_the_clients_adds_to_that_of_the_channel(variance, snr_db):
    """Scaled back by sqrt(1 + v), features arrive with noise of variance v + (1 + v) no, at the power of any others."""
    link, clock = make_link("awgn", feature_noise=variance), torch.Generator().manual_seed(0)
    x = features(1, 500, 512)
    up = link.draw([500], 512, clock, x.dtype) | link.draw_added(500, 512, clock, x.dtype)
    received = link(x, {name: t[None] for name, t in up.items()}, torch.tensor([snr_db]))
    no = 10 ** (-snr_db / 10)
    sent = x / x.square().mean(-1, keepdim=True).sqrt()
    error = math.sqrt(1 + variance) * received - sent
    assert error.square().mean() == pytest.approx(variance + (1 + variance) * no, rel=0.01)
    if snr_db == math.inf:
        assert torch.allclose(received.square().mean(-1), torch.ones(1, 500, dtype=x.dtype))


def test_without_noise_of_their_own_clients_draw_none():
    assert make_link("rayleigh").draw_added(3, D, torch.Generator()) == {}
    with pytest.raises(ValueError, match="^feature_noise: -1.0 is not a number of at least 0$"):
        make_link("digital", feature_noise=-1.0)
    why = "^feature_noise: it is relative to features of mean square 1; choose power normalised$"
    with pytest.raises(ValueError, match=why):
        make_link("awgn", feature_noise=1.0, power="free")
    with pytest.raises(ValueError, match="^up: the noise of the clients is missing, which draw_added draws$"):
        make_link("awgn", feature_noise=1.0)(features(1), {}, torch.zeros(1))


def test_an_option_of_ones_own_is_known_and_checked(nakagami):
    usual = {"feature_noise": 0.0, "equaliser": "mmse", "downlink": "noisy", "feedback": "gain"}
    assert link_options("nakagami") == {**usual, "m": 2}
    assert make_link("nakagami").options.m == 2
    with pytest.raises(ValueError, match="^m: 0.5 is not a whole number of at least 1$"):
        make_link("nakagami", m=0.5)
    takes = "feature_noise, equaliser, downlink, feedback, m"
    with pytest.raises(ValueError, match=f"^mm: 3 is not for nakagami, which takes {takes}$"):
        make_link("nakagami", mm=3)


def test_a_link_without_options_of_its_own_takes_those_of_its_parent():
    class Sight(Rayleigh):
        """Has no options."""

    assert Sight(Sight.Options(coherence="batch")).options == Rayleigh.Options(coherence="batch")


def test_a_built_in_name_is_not_taken():
    with pytest.raises(ValueError, match="ships with semcom"):
        LINKS.register("awgn")


def test_a_received_snr_has_no_smallest_value():
    assert ratio_db(1e-200, 1e200) == pytest.approx(-4000)
    assert ratio_db(1.0, math.inf) == -math.inf and ratio_db(1.0, 0.0) == math.inf and math.isnan(ratio_db(0.0, 1.0))
    assert ratio_db(3.0, 2.0) == 10 * math.log10(1.5)
