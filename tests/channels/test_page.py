"""docs/channels.md and the channels of docs/plugins: the examples run and give the documented results."""

from __future__ import annotations

import math
import re
import runpy

import numpy as np
import pytest
import torch
from scipy import special

from semcom.channels import link_options, make_link, theory
from tests.pages import ROOT, SKIP, read_blocks, read_page
from tests.samples import has_mean

pytestmark = pytest.mark.usefixtures("own_names")
DOCS, PAGE = ROOT / "docs", read_page("docs/channels.md")
BLOCKS = [block.text for block in read_blocks(PAGE) if block.language == "python" and block.comment != SKIP]


def run(marker: str) -> dict:
    """Run the one example with `marker` and collect its names."""
    (block,) = (block for block in BLOCKS if marker in block)
    names: dict = {"__name__": __name__}
    exec(compile(block, "docs/channels.md", "exec"), names)
    return names


def test_no_example_is_left_out():
    assert len(BLOCKS) == 3


def test_the_measured_snr_of_the_first_example(capsys):
    run("Meter()")
    assert f"{float(capsys.readouterr().out):.1f}" in re.search(r"print\(meter.snr_db\(\)\)  # (.*)", PAGE)[1]


def test_a_channel_of_ones_own_takes_its_option():
    names = run('@LINKS.register("nakagami")')
    assert names["link"].options == names["Nakagami"].Options(equaliser="zf", m=4)
    assert link_options("nakagami")["m"] == 2


def test_water_filling_reaches_its_capacity(capsys):
    """At a mean power of 1, the mean of log2(t / cut) over t above the cut is E1(cut) / ln 2, 3.2 dB from AWGN's."""
    runpy.run_path(str(DOCS / "plugins" / "water_filling.py"), run_name="__main__")
    power, bits, closed = (float(line.split()[-1]) for line in capsys.readouterr().out.splitlines())
    assert power == pytest.approx(1, abs=0.01) and bits == pytest.approx(closed, abs=0.01)
    assert bits > theory.ergodic_capacity(0.0)


def test_repetitions_are_charged_as_often_as_they_happen():
    runpy.run_path(str(DOCS / "plugins" / "chase.py"))
    link, no = make_link("chase"), torch.ones(1, 1, dtype=torch.float64)
    drawn = link.draw([100_000], 2, torch.Generator().manual_seed(0), torch.float64)
    charged = float(link.cost(np.array([2.0]), np.array([0])).uses[0])
    assert float(link.sent(drawn, no).double().mean()) == pytest.approx(charged, abs=5 * 1.2 / 100_000**0.5)
    heard = link.gain_at(drawn, no).abs().square()
    p = special.gammainc(4, 2.0)  # four tries do not suffice
    assert abs(float((heard < 2).double().mean()) - p) < 5 * math.sqrt(p * (1 - p) / 100_000)


def test_a_profile_of_ones_own_fades_as_it_says():
    """Two paths of half the power, 1 us apart: 500 kHz apart h is uncorrelated, 1 MHz apart the same."""
    runpy.run_path(str(DOCS / "plugins" / "two_rays.py"))
    link = make_link("ofdm", profile="two-rays", csi="ls")
    link = make_link("ofdm", **{**vars(link.options), "subcarriers": 67})
    h = link.draw([1] * 4000, 2 * 67, torch.Generator().manual_seed(1))["fading"]
    assert has_mean(h[:, 0].abs().square(), 1.0)
    apart = 1e-6 * 15e3 * torch.tensor([33, 66])
    expected = (1 + torch.polar(torch.ones(2), 2 * torch.pi * apart)) / 2
    for n, value in zip((33, 66), expected, strict=True):
        assert has_mean((h[:, 0] * h[:, n].conj()).real, float(value.real))
        assert has_mean((h[:, 0] * h[:, n].conj()).imag, float(value.imag))


def test_the_scheme_and_the_fate_of_images():
    names = run("ImageChain(")
    scheme = names["scheme"]
    assert f"{scheme.modulation}-QAM at rate {scheme.code_rate:.2f}" in PAGE
    assert not names["received"].lost.any()
