"""Figures that measure their own numbers: what they measure, draw and write, at small sizes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from semcom.channels import theory
from semcom.config import ConfigError
from semcom.plots import render, style
from semcom.plots.base import Measured
from semcom_papers.figures import channel_ber, channel_snr

FIGURES = {"channel-ber": channel_ber.CHANNEL_BER, "channel-snr": channel_snr.CHANNEL_SNR}
Numbers = dict[str, pd.DataFrame]


@pytest.fixture(scope="module", autouse=True)
def measured() -> Iterator[Numbers]:
    with pytest.MonkeyPatch.context() as patch:
        for module, few in ((channel_ber, {"BLOCK": 20_000, "WRONG": 100}), (channel_snr, {"BLOCKS": 20_000})):
            for constant, value in {**few, "LEAST": 2e-3}.items():
                patch.setattr(module, constant, value)
        yield {name: figure.numbers() for name, figure in FIGURES.items()}


@pytest.mark.parametrize("name", FIGURES)
def test_files_hold_what_was_measured(name: str, measured: Numbers, tmp_path: Path) -> None:
    paths = render(name, out=tmp_path)
    assert [p.name for p in paths] == [f"{name}.{kind}" for kind in ("pdf", "png", "csv", "md")]
    image = imread(tmp_path / f"{name}.png")
    assert image.shape[1] == 1050 and image[..., :3].std() > 0.05  # 3.5 in at 300 dpi, not empty
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / f"{name}.csv"), measured[name], check_exact=True)
    page = (tmp_path / f"{name}.md").read_text("utf-8")
    assert page.startswith(f"# {name}: {FIGURES[name].title}\n\n![") and page.endswith(f"semcom figure {name}\n```\n")
    assert f"({name}.png)" in page and "* Versions: python 3" in page and "sionna-no-rt" in page
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert len(rows) == 2 + len(measured[name].dropna())


@pytest.mark.parametrize("name", FIGURES)
def test_intervals_are_centred_on_the_measurement_and_hold_theory(name: str, measured: Numbers) -> None:
    """49 or 50 intervals of 95%: fewer than 80% of them would miss by chance in one of 10,000."""
    found = measured[name].dropna()
    np.testing.assert_allclose(found["measured"], (found["low"] + found["high"]) / 2, rtol=1e-12)
    holds = (found["low"] <= found["theory"]) & (found["theory"] <= found["high"])
    assert holds.mean() > 0.8 and f"{holds.sum()} of {len(found)} hold" in FIGURES[name].caption(found)


def test_bit_error_rates_by_hand(measured: Numbers) -> None:
    """QPSK at 4 dB: BER p = Q(sqrt(10^0.4)), a binomial share of 2 n bits."""
    cells = measured["channel-ber"].set_index(["modulation", "link", "snr_db"])
    point = cells.loc[("QPSK", "awgn", 4.0)]
    p = float(theory.gaussian_tail(10**0.2))
    assert point["theory"] == pytest.approx(p, rel=1e-12)
    bits = 2 * point["symbols"]
    assert point["high"] - point["low"] == pytest.approx(2 * 1.96 * (p * (1 - p) / bits) ** 0.5, rel=0.05)
    there = cells["measured"].dropna().index
    assert there.get_level_values("snr_db").isin(np.arange(0, 31, 2)).all()
    assert (cells["theory"][there] >= 2e-3).all()


def test_received_snr_by_hand(measured: Numbers) -> None:
    """At 10 dB a block is below 0 dB where |h|^2 < 0.1, and below 10 dB where |h|^2 < 1."""
    cells = measured["channel-snr"].set_index(["link", "level_db"])["theory"]
    assert cells[("Rayleigh", 0.0)] == pytest.approx(1 - np.exp(-0.1))
    assert cells[("Rician, K = 9 dB", 10.0)] == pytest.approx(float(theory.power_cdf(1.0, 10**0.9)))


@pytest.mark.parametrize(("name", "x"), [("channel-ber", "snr_db"), ("channel-snr", "level_db")])
def test_lines_are_theory_and_points_are_measured(name: str, x: str, measured: Numbers) -> None:
    cells = measured[name]
    curves = cells.groupby(["modulation", "link"] if name == "channel-ber" else ["link"], sort=False)
    with style.ieee():
        axes = Figure().add_subplot()
        FIGURES[name].draw(axes, cells)
        legend = [text.get_text().replace("$", "") for text in axes.get_legend().get_texts()]
    lines = [line for line in axes.lines if line.get_linestyle() != "None" and len(line.get_xdata())]
    assert len(lines) == len(axes.containers) == len(legend) == len(curves)
    for line, container, (curve, own) in zip(lines, axes.containers, curves, strict=True):
        np.testing.assert_array_equal(line.get_xydata(), own[[x, "theory"]])
        found = own.dropna()
        np.testing.assert_array_equal(container[0].get_xydata(), found[[x, "measured"]])
        ends = np.array([segment[:, 1] for segment in container[2][0].get_segments()])
        np.testing.assert_allclose(ends, found[["low", "high"]], rtol=1e-12)
        assert curve[0] in legend[lines.index(line)]


def test_results_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="^results: channel-ber measures its own numbers; leave 'here' out$"):
        render("channel-ber", results="here", out=tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_default_folder(here: Path) -> None:
    assert render("channel-snr")[1] == Path("channel-snr.png")
    assert all(isinstance(figure, Measured) for figure in FIGURES.values())
