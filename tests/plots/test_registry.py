"""Which figure an experiment may name."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from semcom.config import ChannelConfig, ConfigError, RunConfig
from semcom.plots.base import Drawing, Plot
from semcom.plots.registry import FIGURES, find_drawings_of
from semcom.studies.experiment import Experiment, Grid
from semcom.studies.registry import EXPERIMENTS


@pytest.fixture(autouse=True)
def mine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A figure of the experiment of the same name."""
    plot = Plot(kind="lines", x="channel.snr_db", hue="variant")
    monkeypatch.setitem(FIGURES._added, "mine", Drawing("mine", "mine", plot))


def source(figure: str | None, axis: str = "channel.snr_db", values: tuple[Any, ...] = (9.0,)) -> Experiment:
    scales = {"smoke": Grid(RunConfig(), {axis: values}), "other": Grid(RunConfig(), {axis: ("0:18",)})}
    return Experiment("mine", "", "none", ("fedcl",), scales, axis=axis, figures=(figure,) if figure else ())


def test_every_experiment_has_a_figure_of_its_axis_or_none_at_every_scale() -> None:
    for name in EXPERIMENTS.names():
        for scale in (entry := EXPERIMENTS.get(name)).scales:
            for found in find_drawings_of(entry, scale):
                assert found.experiment == name and entry.axis in found.places
    assert find_drawings_of(source(None)) == []


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (source("mien"), "figure: 'mien' is unknown: did you mean 'mine'? known are "),
        (source("demo"), "figure: demo of experiment mine shows demo; register one of its own"),
        (source("channel-ber"), "figure: channel-ber of experiment mine measures its own numbers; register one"),
        (
            source("mine", axis="partition.ways"),
            "figure: mine shows channel.snr_db, and experiment mine varies partition.ways; take a figure of that field",
        ),
        (source("mine", values=(9.0, "0:18")), "figure: mine cannot place channel.snr_db '0:18'; give finite numbers"),
        (source("mine", values=(float("inf"),)), "figure: mine cannot place channel.snr_db inf; give finite numbers"),
    ],
)
def test_a_figure_of_something_else_is_refused(entry: Experiment, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        find_drawings_of(entry)
    assert str(error.value).startswith(message)


def test_an_axis_is_checked_before_its_values() -> None:
    for values in (9.0, "0:18", ()):
        with pytest.raises(ConfigError, match="^channel.snr_db: mine varies it over .*; give a tuple of values$"):
            find_drawings_of(source("mine", values=values))  # type: ignore[arg-type]


def test_a_value_that_all_runs_share_needs_a_place_too() -> None:
    base = RunConfig(channel=ChannelConfig(snr_db="0:18"))
    fixed = dataclasses.replace(source("mine"), scales={"smoke": Grid(base, {})})
    with pytest.raises(ConfigError, match="^figure: mine cannot place channel.snr_db '0:18'; give finite numbers$"):
        find_drawings_of(fixed)


def test_the_scale_that_is_swept_decides() -> None:
    assert find_drawings_of(source("mine", values=(9, 12.0, "15"))) == [FIGURES.get("mine")]
    with pytest.raises(ConfigError, match="cannot place channel.snr_db '0:18'"):
        find_drawings_of(source("mine"), "other")
