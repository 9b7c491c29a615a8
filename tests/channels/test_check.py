"""The checks of `semcom channel-check`: all of them pass, their standard errors are right, and faults do not get by."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from semcom.channels import PROFILES, Link, make_link
from semcom.channels.check import (
    CHECKS,
    Finding,
    Lab,
    digital,
    errors,
    fading,
    format_findings,
    noise,
    ofdm,
    outage,
    run_checks,
    users,
)
from semcom.channels.check.finding import (
    find_difference,
    find_largest_error,
    find_mean,
    find_probability,
    find_second_moment,
)
from semcom.channels.coding.digital import Digital
from semcom.channels.equalise import Estimate
from semcom.channels.fading import AWGN, Ideal, Rayleigh
from semcom.channels.ofdm.link import OFDM

LAB = Lab(torch.device("cpu"))
SIZES = [*((module, "UNITS") for module in (noise, fading, errors, outage, users)), (users, "CLIENTS")]
SIZES += [(fading, "ROUNDS"), (ofdm, "MOVING"), (digital, "SYMBOLS"), (digital, "BLOCKS"), (outage, "BLOCKS")]
"""Where the checks say how much they draw."""


@pytest.mark.parametrize("name", CHECKS)
def test_every_quantity_agrees_with_its_closed_form(name, monkeypatch):
    """With a tenth of the command's draws."""
    for module, size in SIZES:
        monkeypatch.setattr(module, size, getattr(module, size) // 10)
    monkeypatch.setattr(ofdm, "FRAMES", {"rayleigh": 2000, "tdl": 200, "cdl": 50})
    before = torch.get_rng_state()
    found = list(CHECKS[name](LAB))
    assert found and len({f.quantity for f in found}) == len(found)
    assert all(f.agrees for f in found), format_findings([f for f in found if not f.agrees])
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", ["noise", "bit-errors"])
def test_the_seed_alone_decides_what_is_measured(name, monkeypatch):
    for module in (noise, errors):
        monkeypatch.setattr(module, "UNITS", 2000)
    first = list(CHECKS[name](LAB))
    torch.rand(1)
    assert list(CHECKS[name](LAB)) == first
    other = list(CHECKS[name](replace(LAB, seed=1)))
    assert sum(a.measured == b.measured for a, b in zip(first, other, strict=True)) < 3  # few errors may tie


def test_standard_errors_are_those_of_the_measured_quantities(monkeypatch):
    """Over seeds, deviations have mean 0 and variance 1, so a five is a five."""
    for module in (noise, fading, errors):
        monkeypatch.setattr(module, "UNITS", 5000)
    names, seeds = ("noise", "fading", "received-snr", "equalisers"), 40
    runs = [[f for name in names for f in CHECKS[name](replace(LAB, seed=seed))] for seed in range(seeds)]
    quantities = [f.quantity for f in runs[0] if f.units]
    deviations = torch.tensor([[f.deviation for f in run if f.units] for run in runs])
    five = 5 / math.sqrt(seeds)  # standard errors of a mean; those of a standard deviation are smaller by sqrt(2)
    for i, quantity in enumerate(quantities):
        assert abs(deviations[:, i].mean()) < five, quantity
        assert abs(deviations[:, i].std() - 1) < five / math.sqrt(2), quantity


def faulty(change: dict[str, type[Link]]):
    """Makes links, some kinds of another class."""

    def make(kind: str, **options) -> Link:
        return change[kind](change[kind].Options(**options)) if kind in change else make_link(kind, **options)

    return make


def drawing(base: type[Link], change) -> type[Link]:
    """Make a link with changed realisations: `change` replaces some of their tensors."""

    class Drawing(base):  # type: ignore[misc, valid-type]
        def draw(self, sizes, d, generator, dtype=torch.float32):
            drawn = super().draw(sizes, d, generator, dtype)
            return drawn | change(drawn)

    return Drawing


def choosing(base: type[Link], change) -> type[Link]:
    """A link with other options than it was given: those that `change` of them replaces."""

    class Choosing(base):  # type: ignore[misc, valid-type]
        def __init__(self, options):
            super().__init__(replace(options, **change(options)))

    return Choosing


def louder(db: float) -> dict[str, type[Link]]:
    """Make links with stronger noise than declared."""
    kinds = {"awgn": AWGN, "rayleigh": Rayleigh}
    return {k: drawing(base, lambda drawn: {"noise": drawn["noise"] * 10 ** (db / 20)}) for k, base in kinds.items()}


def faded(power: float, base: type[Link] = Rayleigh) -> type[Link]:
    """A link with another E|h|^2."""
    return drawing(base, lambda drawn: {"fading": drawn["fading"] * math.sqrt(power)})


def on_real_axis(name: str, base: type[Link]) -> type[Link]:
    """Make a link with all power of its noise or gain on the real part: h is Gaussian then, not Rayleigh."""
    return drawing(base, lambda drawn: {name: (math.sqrt(2) * drawn[name].real).to(drawn[name].dtype)})


def changed(**factors: float) -> dict[str, type[Link]]:
    """OFDM with options that are multiplied."""
    return {"ofdm": choosing(OFDM, lambda o: {name: getattr(o.settled(), name) * f for name, f in factors.items()})}


def repeat_every_second(drawn):
    """The same h for two samples in a row, whatever the coherence."""
    h = drawn["fading"].clone()
    h[1::2] = h[: len(h) - 1 : 2]
    return {"fading": h}


class GainPerAxis(Rayleigh):
    """ "Rayleigh" with independent Gaussian gains on I and Q, each equalised on its own."""

    def transmit(self, symbols, up, snr_db, *, meter=None):
        h = math.sqrt(2) * torch.view_as_real(up["fading"])
        y = h * torch.view_as_real(symbols)
        no = 10 ** (-snr_db.view(-1, 1, 1, 1) / 10)
        y = y + torch.view_as_real(up["noise"]) * no.sqrt()
        equalised = {"none": y, "zf": y / h, "mmse": h * y / (h.square() + no)}[self.equaliser]
        return torch.view_as_complex(equalised.contiguous())


class Leaking(OFDM):
    """A hundredth of each user's signal arrives at the next user."""

    def __call__(self, features, up, snr_db, **named):
        return super().__call__(features + 0.01 * features.roll(1, 0), up, snr_db, **named)


class QuietPilots(OFDM):
    """Pilots with less noise than the data: estimates as if of two pilots."""

    def estimate(self, drawn, deviation):
        return super().estimate(drawn, deviation / math.sqrt(2))


class TrustingOFDM(OFDM):
    """Takes its estimates for h."""

    def estimate(self, drawn, deviation):
        gain = super().estimate(drawn, deviation).gain
        return Estimate(gain, gain, torch.zeros(()))


class Unscaled(Ideal):
    """Sends features at the power that they happen to have."""

    def __call__(self, features, up, snr_db, **_):
        return features


FOLLOWING = drawing(Rayleigh, lambda drawn: {"noise": drawn["noise"] * drawn["fading"].abs()})
"""Noise relative to the received power instead of the sent power, so no client is ever in a fade."""
SCALING = choosing(AWGN, lambda options: {"power": "normalised"})
BIASED = choosing(OFDM, lambda options: {"equaliser": "mmse" if options.equaliser == "zf" else options.equaliser})
LONELY = choosing(Rayleigh, lambda options: {"antennas": 1})
FINER = choosing(Digital, lambda options: {"bits": 2.0, "modulation": 256})

FAULTS: dict[str, tuple[dict[str, type[Link]], set[str]]] = {
    "noise 0.2 dB too strong": (louder(0.2), {"noise", "received-snr", "equalisers", "bit-errors"}),
    "noise 3 dB too weak": (louder(-3), {"noise", "received-snr", "equalisers", "constellations"}),
    "E|h|^2 = 0.5": ({"rayleigh": faded(0.5)}, {"fading", "received-snr", "equalisers"}),
    "E|h|^2 = 2": ({"rayleigh": faded(2)}, {"fading", "received-snr", "equalisers"}),
    "independent gains on I and Q": ({"rayleigh": GainPerAxis}, {"fading", "received-snr", "equalisers", "bit-errors"}),
    "a real gain": ({"rayleigh": on_real_axis("fading", Rayleigh)}, {"fading", "received-snr"}),
    "noise on the real part": ({"awgn": on_real_axis("noise", AWGN)}, {"noise", "bit-errors"}),
    "noise follows the fade": ({"rayleigh": FOLLOWING}, {"equalisers", "bit-errors"}),
    "two samples share h": ({"rayleigh": drawing(Rayleigh, repeat_every_second)}, {"coherence"}),
    "no power normalisation": ({"ideal": Unscaled}, {"power"}),
    "power normalisation where there should be none": ({"awgn": SCALING}, {"noise"}),
    "power normalisation without a channel": ({"none": Ideal}, {"power"}),
    "users that leak": ({"ofdm": Leaking}, {"ofdm-leaks"}),
    "a biased equaliser": ({"ofdm": BIASED}, {"ofdm-transparency"}),
    "OFDM with strong fades": ({"ofdm": faded(10**0.1, OFDM)}, {"ofdm-profiles"}),
    "estimates that are too good": ({"ofdm": QuietPilots}, {"ofdm-estimates"}),
    "estimates that are trusted": ({"ofdm": TrustingOFDM}, {"ofdm-estimates"}),
    "a speed 10 % too high": (changed(speed_mps=1.1), {"ofdm-doppler"}),
    "delays 20 % too long": (changed(delay_spread_ns=1.2), {"ofdm-delay"}),
    "antennas that are not there": ({"rayleigh": LONELY}, {"antennas"}),
    "a finer quantiser": ({"digital": FINER}, {"digital"}),
}
"""Fault -> the links that have it, the checks that must see it."""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_beyond_five_standard_errors(fault, monkeypatch):
    monkeypatch.setattr(errors, "UNITS", 100_000)
    monkeypatch.setattr(ofdm, "MOVING", 2500)
    monkeypatch.setattr(PROFILES, "names", lambda: ["rayleigh", "tdl-a"])
    change, catching = FAULTS[fault]
    lab = replace(LAB, make=faulty(change))
    for name in catching:
        assert any(not f.agrees for f in CHECKS[name](lab)), f"{name} does not see it"


def test_findings_by_hand():
    """1, 2, 3, 4: mean 2.5, standard deviation with n - 1 sqrt(5/3)."""
    samples = torch.tensor([1.0, 2.0, 3.0, 4.0])
    found = find_mean("x", samples, 2.0)
    assert (found.measured, found.units) == (2.5, 4)
    assert found.error == pytest.approx(math.sqrt(5 / 3) / 2)
    assert found.deviation == pytest.approx(0.5 / (math.sqrt(5 / 3) / 2))
    share = find_probability("p", samples > 3, 0.5)
    assert (share.measured, share.error, share.deviation) == (0.25, 0.25, -1.0)
    assert find_second_moment("r", samples, 1.2).measured == pytest.approx(30 / 4 / 2.5**2)
    both = find_difference("d", found, share)
    assert (both.theory, both.measured, both.error) == (0.0, 2.25, math.hypot(found.error, 0.25))
    assert find_largest_error("e", torch.tensor([3e-7, -4e-7j]), 1e-7).deviation == pytest.approx(4)


def test_what_is_exact_or_no_number():
    assert Finding("", 1.0, 1.0, 0.0, None).agrees and not Finding("", 1.0, 1.0 + 1e-12, 0.0, None).agrees
    assert not Finding("", 1.0, math.nan, 0.1, 10).agrees and not Finding("", 1.0, math.inf, 0.1, 10).agrees
    assert Finding("", 1.0, 1.5, 0.1, 10).agrees and not Finding("", 1.0, 1.51, 0.1, 10).agrees


def test_table_shows_where_an_error_comes_from_and_what_is_wrong():
    long = "P(received SNR < 10 dB) of a quantity with a name so long that a table might want to cut it short"
    found = [Finding(long, 0.5, 0.25, 0.125, 1000), Finding("bcd", 0.0, 1e-6, 1e-7, None)]
    width = len(long)
    assert format_findings(found).splitlines() == [
        f"{'quantity':{width}} theory measured standard error     units deviation",
        f"{long}    0.5     0.25           0.12     1,000     -2.00",
        f"{'bcd':{width}}      0    1e-06          1e-07  rounding    +10.00  <- wrong",
    ]
    assert next(run_checks(LAB, {"one": lambda lab: iter(found)})) is found[0]


def test_a_table_of_many_findings_leaves_none_out():
    found = [Finding(f"quantity {i}", i, i, 0.0, 1) for i in range(200)]
    assert len(format_findings(found).splitlines()) == 1 + len(found)
