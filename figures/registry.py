"""The figures by name. A new one is a `Drawing` or a `Measured` in a file beside this and a line here."""

from __future__ import annotations

from channels.registry import Registry
from experiments.base import Experiment
from figures.base import Drawing, Measured
from semcom.config import ConfigError
from semcom.registry import find

FIGURES: Registry[Drawing | Measured] = Registry(
    "figure",
    {
        "arms-small": "figures.methods:ARMS_SMALL",
        "demo": "figures.accuracy_snr:DEMO",
        "letter-fig2b": "figures.accuracy_snr:LETTER_FIG2B",
        "wireless-baselines": "figures.baselines:WIRELESS_BASELINES",
        "channel-ber": "figures.channel_ber:CHANNEL_BER",
        "channel-snr": "figures.channel_snr:CHANNEL_SNR",
    },
)
"""Figures by name."""


def drawing(name: str) -> Drawing | Measured:
    """Return the figure called `name`.

    Raises:
        ConfigError: there is none; the known ones are listed.
    """
    return find(FIGURES, name)


def drawing_of(source: Experiment) -> Drawing | None:
    """Return the figure that is drawn after a sweep of an experiment, if it has one.

    Raises:
        ConfigError: there is no such figure, or it shows something else.
    """
    if source.figure is None:
        return None
    chosen = drawing(source.figure)
    if isinstance(chosen, Measured) or chosen.experiment != source.name:
        shown = "measures its own numbers" if isinstance(chosen, Measured) else f"shows {chosen.experiment}"
        raise ConfigError(f"figure: {source.figure} of experiment {source.name} {shown}; register one of its own")
    if chosen.axis != source.axis:
        wanted = f"experiment {source.name} varies {source.axis}"
        raise ConfigError(f"figure: {source.figure} shows {chosen.axis}, and {wanted}; take a figure of that field")
    return chosen
