"""The image chain behind a trained run, and the experiment that compares it with features."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

import semcom
from semcom import run
from semcom.channels.coding.choice import SampleImages
from semcom.config import ChannelConfig, ModelConfig, RunConfig, TrainConfig
from semcom.methods.parts.received import sample_training_images
from semcom.plots import render
from semcom.plots.panels import draw_panels
from semcom.plots.style import ieee
from semcom.runs.result.result import Result
from semcom.studies.results.table import read_table
from semcom.studies.sweep import sweep
from semcom_papers.experiments import wireless_baselines
from semcom_papers.experiments.measures.image_curve import Point, measure_chains
from semcom_papers.figures import baselines
from tests.worlds import divided

CLEAN = RunConfig(
    partition=divided(kind="shots", ways=2, shots=10, shots_spread=4, test_per_class=6),
    model=ModelConfig(encoder="dcgan-narrow"),
    channel=ChannelConfig(kind="ideal"),
    clients=3,
    train=TrainConfig(rounds=3, batch_size=8),
    device="cpu",
)


@pytest.fixture(scope="module")
def result() -> Result:
    return run(CLEAN)


def sampled(result: Result, headers: str) -> SampleImages:
    return SampleImages(sample_training_images(result.federation), "webp", headers)


def test_with_uses_in_plenty_the_accuracy_is_that_of_clean_images(result: Result) -> None:
    """WebP at its best quality changes an answer here or there."""
    point = Point("webp", "sent", 30.0, 4096).measure(result, sampled(result, "sent"))
    assert point["lost"] == 0 and point["payload"] > 100 and point["headers"] == 27
    assert point["accuracy"] == pytest.approx(result.metrics[-1]["views"]["personal"]["accuracy"], abs=0.09)


def test_a_lost_image_is_taken_for_the_most_frequent_class(result: Result) -> None:
    """32 uses hold no image, and at -10 dB there is no scheme: by hand from the labels."""
    federation, shares = result.world.session.draws.federation, []
    for client in range(3):
        counts = federation.labels[federation.train[client]].bincount()
        shares.append((federation.labels[federation.test[client]] == counts.argmax()).double().mean().item())
    for snr_db in (12.0, -10.0):
        point = Point("webp", "free", snr_db, 32).measure(result, sampled(result, "free"))
        assert point == {"accuracy": pytest.approx(sum(shares) / 3), "lost": 1.0, "payload": 0.0, "headers": 0.0}


def test_a_curve_is_keyed_by_the_run(result: Result) -> None:
    """Codec, headers, SNR and uses; the same run gives the same numbers, and more uses lose no more images."""
    curves = measure_chains(result, (9.0,), (64, 256, 1024))
    assert list(curves) == ["webp-sent", "webp-free", "jpeg-sent", "jpeg-free"]
    for chain in curves.values():
        lost = [point["lost"] for point in chain["9"].values()]
        assert list(chain["9"]) == ["64", "256", "1024"] and lost == sorted(lost, reverse=True)
    assert measure_chains(result, (9.0,), (256,))["webp-free"]["9"]["256"] == curves["webp-free"]["9"]["256"]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smoke scale, smaller still."""
    chosen = wireless_baselines.WIRELESS_BASELINES
    grid = dataclasses.replace(
        chosen.scales["smoke"],
        base=dataclasses.replace(CLEAN, channel=dataclasses.replace(chosen.scales["smoke"].base.channel)),
    )
    tiny = dataclasses.replace(chosen, scales={"smoke": grid})
    monkeypatch.setattr(wireless_baselines, "WIRELESS_BASELINES", tiny)
    monkeypatch.setattr(wireless_baselines, "SNRS", (9.0,))
    monkeypatch.setattr(wireless_baselines, "USES", (64, 2048))


def test_the_sweep_stores_curves_and_the_figure_shows_them(small: None, tmp_path: Path) -> None:
    path = sweep.sweep("wireless-baselines", scale="smoke", out=tmp_path)
    frame = read_table(path)
    assert list(frame["channel.kind"]) == ["ideal", "awgn", "digital"] and (frame["status"] == "done").all()
    assert frame["images.webp-free.9.2048.accuracy"].notna().tolist() == [True, False, False]
    summary = json.loads((tmp_path / frame["hash"][0] / "summary.json").read_text())
    chosen = baselines.WIRELESS_BASELINES
    cells = baselines.average_baselines(semcom.study(tmp_path), chosen.plot)
    assert list(cells["scheme"]) == [
        *baselines.FEATURES.values(),
        *[n for n in baselines.CHAINS.values() for _ in "12"],
    ]
    assert cells["uses"].tolist() == [32] * 3 + [64, 2048] * 4
    assert cells["mean"][0] == summary["accuracy"]
    assert cells["mean"][6] == summary["images"]["webp-free"]["9"]["2048"]["accuracy"]
    text = baselines.describe_baselines(cells, chosen.plot)
    assert "32 uses" in text and "9 dB" in text
    with ieee():
        figure = draw_panels(cells, chosen.plot)
    assert len(figure.legends[0].get_texts()) == 7 and {axes.get_xscale() for axes in figure.axes} == {"log"}
    assert render("wireless-baselines", results=tmp_path, out=tmp_path)[1].stat().st_size > 1000
