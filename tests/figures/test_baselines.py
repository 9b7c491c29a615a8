"""The figure of semantic features beside images that are sent: values worked out by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from semcom.config import ConfigError
from semcom_papers.figures.baselines import WIRELESS_BASELINES
from semcom_papers.figures.baselines import average_baselines as of_study

KIND, SNR = "channel.kind", "channel.snr_db"


def numbers(runs: pd.DataFrame) -> pd.DataFrame:
    """The plotted numbers of a study with these runs."""
    whole: Any = SimpleNamespace(runs=runs)
    return of_study(whole, WIRELESS_BASELINES.plot)


def frame(**fields: object) -> pd.DataFrame:
    """Two seeds over three links; the run over the digital link with seed 1 failed."""
    rows = [
        {"method": "fedcl", KIND: kind, SNR: 9.0, "model.features": 64, "seed": seed, "status": "done"}
        | {"accuracy": accuracy + seed / 10, "accuracy_std": 0.2}
        for kind, accuracy in (("ideal", 0.7), ("awgn", 0.6), ("digital", 0.5))
        for seed in (0, 1)
    ]
    rows[-1] |= {"status": "failed", "accuracy": None, "accuracy_std": None}
    sent = {"accuracy": 0.25, "lost": 0.5, "payload": 200.0, "headers": 10.0}
    for seed in (0, 1):
        for chain in ("jpeg-sent", "webp-sent"):
            for uses in ("128", "64"):
                rows[seed] |= {f"images.{chain}.9.{uses}.{name}": v * (seed + 1) for name, v in sent.items()}
                rows[seed] |= {f"images.{chain}.18.{uses}.accuracy": 1.0}  # not the SNR of training
    return pd.DataFrame(rows).assign(**fields)


def test_points_are_means_over_seeds() -> None:
    cells = numbers(frame())
    names = "scheme snr_db uses mean low high n interval lost payload headers"
    assert list(cells) == names.split()
    assert list(zip(cells["scheme"], cells["uses"], cells["n"], strict=True)) == [
        ("No channel", 32, 2),
        ("Features, analog", 32, 2),
        ("Features, digital", 32, 1),
        *[(name, uses, 2) for name in ("WebP", "JPEG") for uses in (64, 128)],
    ]
    assert cells["mean"].tolist() == pytest.approx([0.75, 0.65, 0.5, *[0.375] * 4])
    half = 12.7062 * 0.1 / 2**0.5 / 2**0.5  # t with one degree of freedom, deviation of two seeds, root of two
    assert cells["mean"][0] - cells["low"][0] == pytest.approx(half, rel=1e-5) and pd.isna(cells["low"][2])
    assert cells["high"][0] == 1, "cut, as no accuracy is larger"
    assert cells["lost"].tolist()[3:] == [0.75] * 4 and cells["payload"].tolist()[3:] == [300.0] * 4
    assert (cells["snr_db"] == 9.0).all()


def test_links_without_a_name_keep_their_own() -> None:
    frames = frame()
    assert "rayleigh" in set(numbers(frames.assign(**{KIND: frames[KIND].replace("awgn", "rayleigh")}))["scheme"])


@pytest.mark.parametrize("field", ["method", "train.rounds", SNR])
def test_runs_that_differ_are_not_averaged(field: str) -> None:
    scheme = "Features, analog" if field == SNR else "No channel"  # which has no SNR
    with pytest.raises(ConfigError, match=f"^{field}: 1 and 2 for {scheme} at uses 32 would be averaged as seeds"):
        numbers(frame(**{field: [1, 2] * 3}))
