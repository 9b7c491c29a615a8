"""The figures by name. A new one is a `Drawing` or a `Measured` in a file beside this and a line here."""

from __future__ import annotations

import logging
import math

from channels.registry import Registry
from experiments.base import Experiment
from figures.base import AnyFigure, Drawing, Measured
from semcom.config import ConfigError
from semcom.registry import find

LOG = logging.getLogger(__name__)
FIGURES: Registry[AnyFigure] = Registry(
    "figure",
    {
        "arms-small": "figures.named:ARMS_SMALL",
        "collaboration": "figures.every_method:COLLABORATION",
        "collaboration-ways": "figures.every_method:COLLABORATION_WAYS",
        "convergence-bound": "figures.bounds:CONVERGENCE_BOUND",
        "demo": "figures.named:DEMO",
        "fedcosr-fig4": "figures.named:FEDCOSR_FIG4",
        "fedcosr-fig5": "figures.named:FEDCOSR_FIG5",
        "fedcosr-fig6": "figures.named:FEDCOSR_FIG6",
        "fedcosr-fig7": "figures.named:FEDCOSR_FIG7",
        "fedcosr-fig8": "figures.named:FEDCOSR_FIG8",
        "fedcosr-fig9": "figures.named:FEDCOSR_FIG9",
        "fedcosr-table2": "figures.named:FEDCOSR_TABLE2",
        "fedcrc-fig1": "figures.named:FEDCRC_FIG1",
        "fedcrc-fig3": "figures.named:FEDCRC_FIG3",
        "fedcrc-table3": "figures.named:FEDCRC_TABLE3",
        "fedcrl-curves": "figures.named:FEDCRL_CURVES",
        "fedcrl-table2": "figures.named:FEDCRL_TABLE2",
        "fedcrl-tsne": "figures.named:FEDCRL_TSNE",
        "letter-ablation": "figures.named:LETTER_ABLATION",
        "letter-encoder": "figures.letter:LETTER_ENCODER",
        "letter-encoders": "figures.named:LETTER_ENCODERS",
        "letter-fig2a": "figures.named:LETTER_FIG2A",
        "letter-fig2b": "figures.named:LETTER_FIG2B",
        "letter-fig2b-once": "figures.named:LETTER_FIG2B_ONCE",
        "letter-fig3a": "figures.named:LETTER_FIG3A",
        "letter-fig3b": "figures.named:LETTER_FIG3B",
        "letter-fig4": "figures.named:LETTER_FIG4",
        "letter-lead": "figures.letter:LETTER_LEAD",
        "letter-lead-large": "figures.letter:LETTER_LEAD_LARGE",
        "letter-regime": "figures.letter:LETTER_REGIME",
        "letter-regime-uses": "figures.letter:LETTER_REGIME_USES",
        "letter-weight": "figures.letter:LETTER_WEIGHT",
        "repper-fig1": "figures.repper:FIG1",
        "repper-fig3": "figures.named:REPPER_FIG3",
        "repper-fig4": "figures.repper:FIG4",
        "repper-fig5": "figures.repper:FIG5",
        "repper-fig6": "figures.repper:FIG6",
        "repper-gradients": "figures.repper:GRADIENTS",
        "repper-table1": "figures.repper:TABLE1",
        "repper-table2": "figures.named:REPPER_TABLE2",
        "repper-table3": "figures.named:REPPER_TABLE3",
        "repper-table4": "figures.named:REPPER_TABLE4",
        "wireless-baselines": "figures.baselines:WIRELESS_BASELINES",
        "wireless-exchange": "figures.every_method:WIRELESS_EXCHANGE",
        "wireless-heterogeneity": "figures.every_method:WIRELESS_HETEROGENEITY",
        "wireless-snr": "figures.every_method:WIRELESS_SNR",
        "channel-ber": "figures.channel_ber:CHANNEL_BER",
        "channel-snr": "figures.channel_snr:CHANNEL_SNR",
    },
    base="figures.base:AnyFigure",
    made=True,
)
"""Figures by name."""


def drawing(name: str) -> AnyFigure:
    """Return the figure called `name`.

    Raises:
        ConfigError: there is none; the known ones are listed.
    """
    return find(FIGURES, name)


def drawings_of(source: Experiment, scale: str | None = None) -> list[Drawing]:
    """Return the figures that are drawn after a sweep of an experiment at a scale (None: the first).

    Raises:
        ConfigError: there is no such figure, it shows something else, or it has no place for a value of the axis.
    """
    if isinstance(source.figures, str):
        raise ConfigError(f"figures: {source.name} has {source.figures!r}; give a tuple of names")
    return [_drawing_of(source, name, source.scale(scale)) for name in source.figures]


def drawings_for(declared: Experiment | None, chosen: Experiment, scale: str) -> list[Drawing]:
    """Return the figures of an experiment that can show what a sweep has made of it; others are left out with a line.

    Args:
        declared: the experiment as it is registered (None: a study that nobody has declared, without figures).
        chosen: as it is swept.
        scale: of both.

    Raises:
        ConfigError: as `drawings_of`, about the experiment as it is registered.
    """
    drawn = []
    for name in () if declared is None else [drawing.name for drawing in drawings_of(declared, scale)]:
        try:
            drawn.append(_drawing_of(chosen, name, scale))
        except ConfigError as error:
            LOG.warning("one figure is left out (%s)", error)
    return drawn


def _drawing_of(source: Experiment, name: str, scale: str) -> Drawing:
    """Return one figure of an experiment, see `drawings_of`."""
    chosen = drawing(name)
    if isinstance(chosen, Measured) or chosen.experiment != source.name:
        shown = "measures its own numbers" if isinstance(chosen, Measured) else f"shows {chosen.experiment}"
        raise ConfigError(f"figure: {name} of experiment {source.name} {shown}; register one of its own")
    shown = ", ".join(chosen.places) or "no field that varies"
    if source.axis not in chosen.places:
        wanted = f"experiment {source.name} varies {source.axis}"
        raise ConfigError(f"figure: {name} shows {shown}, and {wanted}; take a figure of that field")
    if others := [field for field in source.rows(scale) if field not in chosen.places]:
        wanted = f"experiment {source.name} varies {others[0]} too"
        raise ConfigError(f"figure: {name} shows {shown} alone, and {wanted}; take a figure of both, or none")
    placed = source.values(scale, source.axis) if chosen.plot.kind == "lines" and chosen.plot.x == source.axis else []
    if unplaced := [value for value in placed if not _is_number(value)]:
        raise ConfigError(f"figure: {name} cannot place {source.axis} {unplaced[0]!r}; give finite numbers")
    return chosen


def _is_number(value: object) -> bool:
    """Return whether a value, of any type, is a finite number or the text of one."""
    try:
        return math.isfinite(float(str(value)))
    except ValueError:
        return False
