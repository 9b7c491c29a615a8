"""The experiments by name. A new one is a file beside this and a line here."""

from __future__ import annotations

from channels.registry import Registry
from experiments.base import Experiment
from semcom.config import ConfigError

EXPERIMENTS: Registry[Experiment] = Registry(
    "experiment",
    {
        "demo": "experiments.demo:DEMO",
        "letter-fig2b": "experiments.letter_fig2b:LETTER_FIG2B",
    },
)
"""Name -> Experiment."""


def experiment(name: str) -> Experiment:
    """The experiment called `name`; ConfigError lists the known ones."""
    try:
        return EXPERIMENTS.get(name)
    except ValueError as error:
        raise ConfigError(str(error)) from None
