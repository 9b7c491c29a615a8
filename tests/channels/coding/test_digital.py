"""The digital link: quantiser, code and QAM end to end, the gradient, and the promises to callers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import integrate, optimize, stats
from torch import Tensor
from torch.nn.functional import pad
from torch.utils._python_dispatch import TorchDispatchMode

from semcom.channels import Meter, make_link
from semcom.channels.coding.digital import settle_rates
from semcom.channels.coding.modem import make_modem
from semcom.channels.coding.quantise import STEPS, Quantiser
from semcom.channels.power import normalise_power
from tests.channels.draws import at_client, randn
from tests.samples import has_mean

CPU = torch.device("cpu")
NOISELESS = torch.full((2,), math.inf, dtype=torch.float64)


def through(quantiser: Quantiser, values: Tensor) -> Tensor:
    return quantiser.values(quantiser.bits(values), values.dtype)


# -- the quantiser ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", STEPS)
def test_the_steps_have_the_least_error_for_gaussian_numbers(bits):
    """Max's table has rounded digits, so the steps are minimised again with the error by quadrature over each cell."""
    half = 2 ** (bits - 1)

    def error(step: float) -> float:
        edges = [i * step for i in range(half)] + [math.inf]
        cells = zip(edges, edges[1:], [(i + 0.5) * step for i in range(half)], strict=False)
        return 2 * sum(integrate.quad(lambda x, c=c: (x - c) ** 2 * stats.norm.pdf(x), a, b)[0] for a, b, c in cells)

    best = optimize.minimize_scalar(error, bounds=(0.1, 3), method="bounded", options={"xatol": 1e-6})
    assert STEPS[bits] == pytest.approx(best.x, abs=2e-4 if bits > 1 else 6e-4)
    values = randn(200_000, 2, seed=1)
    assert has_mean((through(Quantiser(1, 2 * bits, CPU), values) - values).square(), error(STEPS[bits]))


@pytest.mark.parametrize("bits", STEPS)
def test_the_error_is_uniform_away_from_clipping(bits):
    """Uniform numbers inside the range: the error has variance step^2 / 12 and is at most half a step."""
    step = STEPS[bits]
    generator = torch.Generator().manual_seed(2)
    values = (torch.rand(100_000, 2, dtype=torch.float64, generator=generator) - 0.5) * step * 2**bits
    error = through(Quantiser(1, 2 * bits, CPU), values) - values
    assert error.abs().max() <= step / 2 + 1e-12
    assert has_mean(error.flatten(), 0.0)
    assert has_mean(error.square().flatten(), step**2 / 12)


@pytest.mark.parametrize("bits", STEPS)
def test_what_lies_beyond_the_range_is_clipped(bits):
    outermost = STEPS[bits] * (2**bits - 1) / 2
    values = torch.tensor([[1e9, -1e9], [100.0, -100.0]])
    expected = torch.tensor([[outermost, -outermost]] * 2)
    torch.testing.assert_close(through(Quantiser(1, 2 * bits, CPU), values), expected)


def test_a_fraction_of_a_bit_goes_to_the_first_pairs():
    """Of three pairs, 10 bits give two pairs 2 each and the last one 1 each. 2 bits give only the first pair 1 each."""
    values = torch.tensor([[0.3, -0.3, 3.0, -3.0, 0.3, -3.0]])
    more, some = Quantiser(3, 10, CPU), Quantiser(3, 2, CPU)
    assert more.bits(values).tolist() == [[1, 0, 0, 1, 1, 1, 0, 0, 1, 0]] and more.sent is None
    fine, coarse = 0.9957 / 2, 1.596 / 2
    torch.testing.assert_close(
        through(more, values), torch.tensor([[fine, -fine, 3 * fine, -3 * fine, coarse, -coarse]])
    )
    torch.testing.assert_close(through(some, values), torch.tensor([[coarse, -coarse, 0, 0, 0, 0]]))
    assert some.sent is not None and some.sent.tolist() == [1, 0, 0]


# -- bits, constellation, code rate ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "settled"),
    [
        ((None, None, None), (1.0, 16, 1 / 2)),
        ((None, 256, 3 / 4), (3.0, 256, 3 / 4)),
        ((None, 4, None), (0.5, 4, 1 / 2)),
        ((None, None, 3 / 4), (1.5, 16, 3 / 4)),
        ((2.0, 64, None), (2.0, 64, 2 / 3)),
        ((1.5, None, 3 / 4), (1.5, 16, 3 / 4)),
        ((0.5, None, None), (0.5, 4, 1 / 2)),
        ((2.0, None, None), (2.0, 256, 1 / 2)),
        ((3.0, None, None), (3.0, 256, 3 / 4)),
        ((1.0, 16, 1 / 2), (1.0, 16, 1 / 2)),
    ],
)
def test_two_of_the_three_choose_the_third(given, settled):
    bits, modulation, code_rate = settle_rates(*given)
    assert (bits, modulation) == settled[:2] and code_rate == pytest.approx(settled[2])
    assert bits == pytest.approx(code_rate * math.log2(modulation) / 2)


def test_what_a_step_needs_is_made_with_the_draws():
    """The draws come early so that no step waits for them. This holds for features, not for tensors sent uncoded."""
    link, host = make_link("digital").in_band(20, 20, 50, 46), torch.device("cpu")
    make_modem.cache_clear()
    link.draw([3], 100_000, torch.Generator())
    assert make_modem.cache_info().currsize == 0
    (one,) = link.draw_all([0], [[3]], 46, [torch.Generator()], device=host)
    drawn = {name: t[None] for name, t in one.items()}
    assert make_modem.cache_info().currsize == 1
    link(randn(1, 3, 46, seed=1), drawn, torch.tensor([9.0]))
    assert make_modem.cache_info().currsize == 1


# -- the link --------------------------------------------------------------------------------------------------------

SETTINGS = [
    {},
    {"modulation": 256, "code_rate": 0.9},
    {"bits": 1.3, "modulation": 16},
    {"bits": 0.4, "modulation": 4},
    {"fading": "rayleigh"},
    {"fading": "rician", "coherence": "symbol", "k_factor_db": 3.0},
]


@pytest.mark.parametrize("options", SETTINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_at_a_high_snr_it_is_the_quantiser_alone(options, dtype, stack):
    link, d = make_link("digital", **options), 64
    x = randn(2, 50, d, seed=3).to(dtype)
    expected = through(Quantiser(d // 2, link.payload(d), CPU), normalise_power(x).flatten(0, 1)).view_as(x)
    for snr_db in (60.0, math.inf):
        received = link(x, stack(link, [50], d, (1, 2), dtype), torch.tensor([snr_db, snr_db]))
        assert received.dtype == dtype and torch.equal(received, expected)


@pytest.mark.parametrize("options", SETTINGS)
def test_it_takes_as_many_uses_as_the_analog_link(options):
    """Rate x log2(M) bits per use, d/2 uses, so `bits` per value, within a pair of values."""
    link, d = make_link("digital", **options), 64
    cost = link.cost(np.array([50.0 * d]), np.array([0]))
    assert cost.uses.tolist() == cost.energy.tolist() == [50 * d / 2]
    assert link.draw([3, 2], d, torch.Generator().manual_seed(1))["noise"].shape == (5, d // 2)
    assert abs(link.payload(d) - link.bits * d) <= 1
    assert link.payload(d) / (d / 2 * math.log2(link.modulation)) == pytest.approx(link.code_rate, abs=2 / d)


@pytest.mark.parametrize("options", SETTINGS)
def test_the_gradient_passes_straight_through(options, stack):
    """With an ideal downlink it passes exactly, with or without noise. Numbers that are not sent get no gradient."""
    link = make_link("digital", downlink="ideal", **options)
    up, gradient = stack(link, [5], 64, (1, 2)), randn(2, 5, 64, seed=4)
    sent = Quantiser(32, link.payload(64), CPU).sent
    kept = torch.ones(64) if sent is None else sent.real.repeat_interleave(2)
    assert torch.equal(at_client(link, gradient, up, snr_db=NOISELESS), gradient * kept)
    assert 0 < kept.sum() <= min(64, link.payload(64))


def test_the_gradient_comes_down_through_the_same_chain(stack):
    """Without noise it is quantised in units of its r.m.s. At a low SNR it is not."""
    link = make_link("digital", bits=2, modulation=64)
    up, down = stack(link, [5], 64, (1, 2)), stack(link, [5], 64, (3, 4))
    gradient = 1e-4 * randn(2, 5, 64, seed=5)
    rms = gradient.square().mean((1, 2), keepdim=True).sqrt()
    expected = rms * through(Quantiser(32, 128, CPU), (gradient / rms).flatten(0, 1)).view_as(gradient)
    torch.testing.assert_close(at_client(link, gradient, up, down, snr_db=NOISELESS), expected, rtol=1e-9, atol=0)
    x = randn(2, 5, 64, seed=6).requires_grad_()
    low = torch.tensor([0.0, 0.0])
    received = link(x, up, torch.full((2,), math.inf), down=down, down_snr_db=low)
    (hurt,) = torch.autograd.grad(received, x, gradient, retain_graph=True)
    (fine,) = torch.autograd.grad(link(x, up, torch.full((2,), math.inf), down=down), x, gradient)
    assert not torch.allclose(hurt, fine, rtol=0.1)
    silent = torch.zeros_like(gradient)
    assert torch.equal(at_client(link, silent, up, down, snr_db=NOISELESS), silent)


def test_padding_arrives_as_zeros_and_changes_nothing(stack):
    link, b = make_link("digital", fading="rayleigh"), 6
    up, down = stack(link, [b], 32, (1, 2)), stack(link, [b], 32, (3, 4))
    longer = [{name: pad(tensor, (0, 0, 0, 2), value=1.0) for name, tensor in hop.items()} for hop in (up, down)]
    mask = torch.tensor([True] * b + [False] * 2).expand(2, b + 2)
    x, gradient = randn(2, b + 2, 32, seed=9), randn(2, b + 2, 32, seed=10)
    gradient[:, b:] = 1e6
    snr_db, meters = torch.tensor([6.0, 9.0]), (Meter(), Meter())
    padded = link(x, longer[0], snr_db, mask=mask, meter=meters[0])
    alone = link(x[:, :b], up, snr_db, meter=meters[1])
    assert torch.equal(padded[:, :b], alone) and not padded[:, b:].any()
    assert meters[0].snr_db() == pytest.approx(meters[1].snr_db())
    assert meters[0].errors is not None and torch.equal(meters[0].errors, meters[1].errors)
    seen = at_client(link, gradient, *longer, mask=mask, snr_db=NOISELESS)
    own = at_client(link, gradient[:, :b], up, down, snr_db=NOISELESS)
    torch.testing.assert_close(seen[:, :b], own, rtol=1e-12, atol=1e-15)
    assert not seen[:, b:].any()


class Launches(TorchDispatchMode):
    """Records the operations that an accelerator would be given: views and allocations are not among them."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        views = any(one.alias_info is not None and not one.alias_info.is_write for one in func._schema.returns)
        if not views and "empty" not in func.name():
            self.names.append(func.name())
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("fading", ["awgn", "rayleigh"])
@pytest.mark.parametrize("padded", [False, True])
def test_an_accelerator_is_given_the_same_work_whatever_is_sent(fading, padded, stack, monkeypatch):
    """The same operations at every SNR, no shape that depends on values, and no more operations than these."""
    link = make_link("digital", fading=fading)
    up, x = stack(link, [20], 64, (1, 2), torch.float32), randn(2, 20, 64, seed=15).float()
    mask = torch.tensor([[True] * 20, [True] * 5 + [False] * 15]) if padded else None
    link(x, up, torch.tensor([9.0, 9.0]))  # makes the tensors of the code
    monkeypatch.setattr(link._coder(64, CPU)[1]._code, "_stops", False)
    seen = []
    for snr_db in (-10.0, 3.0, 30.0):
        with Launches() as launches:
            link(x, up, torch.tensor([snr_db, 5.0]), mask=mask, meter=Meter(), check=False)
        seen.append(launches.names)
    assert seen[0] == seen[1] == seen[2] and len(seen[0]) <= 1050
    waiting = "nonzero", "_local_scalar_dense", "masked_select", "equal", "unique", "lift_fresh", "_index_put_impl_"
    assert not [name for name in seen[0] if name.split("::")[1].split(".")[0] in waiting]


@pytest.mark.parametrize("fading", ["awgn", "rayleigh"])
def test_nothing_to_send_is_no_error(fading, stack):
    """An empty batch or pure padding is no error, and the meter does not count padding."""
    link, snr_db = make_link("digital", fading=fading), torch.tensor([9.0])
    none = link(randn(1, 0, 32, seed=1), stack(link, [], 32), snr_db)
    assert none.shape == (1, 0, 32)
    mask = torch.zeros(1, 2, dtype=torch.bool)
    meter = Meter()
    padding = link(randn(1, 2, 32, seed=1), stack(link, [2], 32), snr_db, mask=mask, meter=meter)
    assert not padding.any() and meter.signal == meter.noise == 0


@pytest.mark.parametrize("features", ["gaussian", "constant"])
def test_the_meter_measures_the_snr_that_was_asked_for(features, stack):
    """As with the analog links. Features with equal bits are measured correctly too, because bits are scrambled."""
    link, b, d = make_link("digital", modulation=64, code_rate=0.5), 1000, 64
    x = randn(1, b, d, seed=11) if features == "gaussian" else torch.ones(1, b, d, dtype=torch.float64)
    meter = Meter()
    link(x, stack(link, [b], d), torch.tensor([7.0]), meter=meter)
    symbols = b * d / 2 if features == "gaussian" else d / 2  # constant ones are the same d/2 symbols every time
    spread = math.sqrt(0.4 / symbols) + 1 / math.sqrt(b * d / 2)
    assert abs(10 ** ((meter.snr_db() - 7.0) / 10) - 1) < 5 * spread


def test_the_meter_counts_wrong_bits_and_lost_blocks(stack):
    """With one sign bit per number, in both directions and over two calls. A sample is a block."""
    link, b, d = make_link("digital"), 50, 64
    up, down = stack(link, [b], d, (1, 2), torch.float32), stack(link, [b], d, (3, 4), torch.float32)
    meters, snr_db = (Meter(), Meter()), torch.tensor([4.0, 6.0])
    wrong = []
    for seed in (1, 2):
        x = randn(2, b, d, seed=seed).float().requires_grad_()
        y = link(x, up, snr_db, down=down, meter=meters[0], down_meter=meters[1])
        y.backward(torch.ones_like(y))
        wrong.append((y > 0) != (x > 0))
    bad, bits, lost, blocks = meters[0].take(CPU)[2:].tolist()
    assert (bits, blocks) == (4 * b * d, 4 * b) and 0 < lost < blocks
    assert (bad, lost) == (sum(w.sum() for w in wrong), sum(w.any(-1).sum() for w in wrong))
    assert meters[1].take(CPU)[[3, 5]].tolist() == [4 * b * d, 4 * b] and meters[0].take(CPU)[2:].tolist() == 4 * [0]


def test_what_is_sent_uncoded_crosses_the_channel_of_the_fading(stack):
    """Over-the-air exchange of parameters: `transmit` is that of the analog link, realisation for realisation."""
    symbols = torch.randn(2, 3, 4, dtype=torch.complex128, generator=torch.Generator().manual_seed(13))
    for fading in ("awgn", "rayleigh", "rician"):
        digital, analog = make_link("digital", fading=fading), make_link(fading)
        up, snr_db = stack(digital, [3], 8, (1, 2)), torch.tensor([5.0, 9.0])
        same = stack(analog, [3], 8, (1, 2))
        assert all(torch.equal(up[name], same[name]) for name in same) and up.keys() == same.keys()
        assert torch.equal(digital.transmit(symbols, up, snr_db), analog.transmit(symbols, up, snr_db))


def test_features_that_are_not_finite_are_one_line(stack):
    link = make_link("digital")
    x = randn(1, 2, 32, seed=14)
    x[0, 0, 0] = math.nan
    with pytest.raises(ValueError, match=r"^features: 1 of 64 values are not finite$"):
        link(x, stack(link, [2], 32), torch.tensor([9.0]))
