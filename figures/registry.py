"""The figures by name. A new one is a `Drawing` or a `Measured` in a file beside this and a line here."""

from __future__ import annotations

from channels.registry import Registry
from figures.base import Drawing, Measured
from semcom.registry import find

FIGURES: Registry[Drawing | Measured] = Registry(
    "figure",
    {
        "arms-small": "figures.arms:ARMS_SMALL",
        "demo": "figures.accuracy_snr:DEMO",
        "letter-fig2b": "figures.accuracy_snr:LETTER_FIG2B",
        "wireless-baselines": "figures.baselines:WIRELESS_BASELINES",
        "channel-ber": "figures.channel_ber:CHANNEL_BER",
        "channel-snr": "figures.channel_snr:CHANNEL_SNR",
    },
)
"""Name -> figure."""


def drawing(name: str) -> Drawing | Measured:
    """The figure called `name`; ConfigError lists the known ones."""
    return find(FIGURES, name)
