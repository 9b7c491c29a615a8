"""Which figure an experiment may name."""

from __future__ import annotations

import pytest

from experiments.base import Experiment
from experiments.registry import EXPERIMENTS
from figures.accuracy_snr import accuracy_snr
from figures.registry import FIGURES, drawing_of
from semcom.config import ConfigError


def source(figure: str | None, name: str = "mine", axis: str = "channel.snr_db") -> Experiment:
    return Experiment(name, "", "none", ("fedcl",), axis=axis, figure=figure)


def test_every_experiment_has_a_figure_of_its_axis_or_none() -> None:
    for name in EXPERIMENTS.names():
        found = drawing_of(EXPERIMENTS.get(name))
        assert found is None or (found.experiment, found.axis) == (name, EXPERIMENTS.get(name).axis)
    assert drawing_of(source(None)) is None


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (source("mien"), "figure 'mien' is unknown: did you mean 'mine'? known are "),
        (source("demo"), "figure: demo of experiment mine shows demo; register one of its own"),
        (source("channel-ber"), "figure: channel-ber of experiment mine measures its own numbers; register one"),
        (
            source("mine", axis="partition.ways"),
            "figure: mine shows channel.snr_db, and experiment mine varies partition.ways; take a figure of that field",
        ),
    ],
)
def test_a_figure_of_something_else_is_refused(
    entry: Experiment, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FIGURES._added, "mine", accuracy_snr("mine"))
    with pytest.raises(ConfigError) as error:
        drawing_of(entry)
    assert str(error.value).startswith(message)
