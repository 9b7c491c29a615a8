"""The experiments by name. A new one is a file beside this and a line here."""

from __future__ import annotations

from channels.registry import Registry
from experiments.base import Experiment
from semcom.registry import find

EXPERIMENTS: Registry[Experiment] = Registry(
    "experiment",
    {
        "arms-small": "experiments.arms_small:ARMS_SMALL",
        "demo": "experiments.demo:DEMO",
        "finish-search": "experiments.finish_search:FINISH_SEARCH",
        "letter-fig2b": "experiments.letter_fig2b:LETTER_FIG2B",
        "wireless-baselines": "experiments.wireless_baselines:WIRELESS_BASELINES",
    },
    base="experiments.base:Experiment",
    made=True,
)
"""Experiments by name."""


def experiment(name: str) -> Experiment:
    """Return the experiment called `name`.

    Raises:
        ConfigError: there is none; the known ones are listed.
    """
    return find(EXPERIMENTS, name)
