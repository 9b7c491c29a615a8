"""Settings without effect: each is refused, unless it is the default.

A default is never refused, since every stored configuration has it. Two kinds of neutral values pass too, since sweeps
go over them: a weight or a count of zero, which switches a part of a method off (other settings of that part are
refused), and a schedule that goes beyond the run's last round (the run warns of it: `train.rounds` may have cut it
short), or is met anyway (each of the last ten rounds is evaluated). Nor are places and bounds refused, which affect
where and how a run is carried out (`data.root`, `device`, `chunk`, `store`): they are set once for a machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from semcom.config import COMMON, NoEffect, Resolved, TrainConfig
from semcom.config.options import read_option_default, spell_option
from semcom.engine.air.part import NO_CHANNEL, NO_NOISE, NOTHING_SENT, Part
from semcom.registry import find_entry
from semcom.runs.request.finish import makes_heads
from semcom.runs.request.section_options import OWNERS, read_option_owner
from semcom.runs.request.setup import Setup
from semcom.tasks.registry import TASKS


def _sends_in_training(run: Setup) -> bool:
    """Check whether anything is sent in training."""
    return run.method.split or run.method.exchanges


def _hears_noise(run: Setup) -> bool:
    """Check whether noise, or a rate that follows the SNR, changes anything that comes down."""
    gradients = run.method.split and run.link.downlink == "noisy"
    models = run.method.exchanges and (not run.error_free or run.config.air.rate != "fixed")
    return run.link.noisy and (gradients or models)


SNRS = ("channel.snr_db", "channel.test_snr_db", "channel.downlink_snr_db")
RULES: Sequence[tuple[Callable[[Setup], bool], str, Sequence[str]]] = (
    (
        lambda r: not r.link.radio,
        NO_CHANNEL,
        (*SNRS, "air.parameters", "air.bandwidth_hz", "air.symbol_energy", "train.through_link"),
    ),
    (lambda r: not r.link.noisy, NO_NOISE, ("model.snr_input", *SNRS, "train.through_link")),
    (lambda r: not _sends_in_training(r), NOTHING_SENT, ("train.deadline_s", "air.symbol_energy")),
    (lambda r: not _hears_noise(r), "nothing comes down through the channel", ("channel.downlink_snr_db",)),
    (lambda r: not r.method.split, "{method} sends no gradients", ("channel.downlink",)),
    # With zero forcing of a known gain the product with conj(a) is one with 1.
    (
        lambda r: r.link.equaliser == "zf" and not r.link.estimates,
        "zf leaves no gain to know of",
        ("channel.feedback",),
    ),
    (
        lambda r: not (r.method.split or r.config.train.through_link),
        "no training passes the channel without train.through-link",
        ("channel.feedback",),
    ),
    (lambda r: not r.method.exchanges, "{method} exchanges no parameters", ("air.parameters",)),
    (lambda r: not r.error_free, "no number is sent error-free", ("air.bits_per_float",)),
    (
        lambda r: r.config.participants == r.config.clients,
        "all clients take part in each round",
        ("network.scheduling",),
    ),
    (lambda r: not r.config.partition.scarce, "no client is partition.scarce", ("partition.scarce_fraction",)),
    (lambda r: r.method.split, "{method} always trains through the link", ("train.through_link",)),
    (lambda r: ("encoder", 0.0) in r.config.train.part_factors, "the encoder is frozen", ("train.adversary",)),
    (lambda r: r.config.train.eval_clients == r.config.clients, "these are all clients", ("train.eval_clients",)),
    (
        lambda r: not find_entry(TASKS, r.config.task, "task").classifies,
        "the task asks for no classes",
        ("train.metrics",),
    ),
    (lambda r: not r.method.preset, "{method} has no setting of its paper's", ("train.preset",)),
)
"""Conditions under which fields have no effect, the reason, and the fields. Parts of the air and the network have such
of their own: `Part.list_unused`."""


def check_unused_settings(run: Setup, common: TrainConfig, band_hz: float) -> None:
    """Raise NoEffect for the first setting of a resolved run without effect.

    Args:
        run: the run; its band may be open.
        common: the schedule with the fields that the method does not use left to the preset.
        band_hz: the default of an open band.
    """
    found = [(name, why) for holds, why, names in RULES if holds(run) for name in names]
    for section in ("air", "network"):
        for field, registry in OWNERS[section].items():
            owner = registry.get(read_option_owner(run.config, field))
            for name, why in owner.list_unused(run) if issubclass(owner, Part) else ():
                found.append((name if "." in name else f"{section}.{name}" if name else field, why))
    for name, why in found:
        _refuse_without_effect(name, run.config, why, *([band_hz] if name == "air.bandwidth_hz" else []))
    for name, _, value in (entry.partition("=") for entry in run.method.unused):
        if name == "model.init" and makes_heads(run.config):
            continue  # it is how these begin
        section, _, field = name.rpartition(".")
        if not value or getattr(getattr(run.config, section), field) == value:
            default = [getattr(common, field)] if section == "train" and field in COMMON else []
            _refuse_without_effect(name, run.config, "{method} does not use it", *default)


def _refuse_without_effect(name: str, config: Resolved, why: str, *neutral: Any) -> None:
    """Raise NoEffect unless a field has its default or a neutral value, or its section has no such field."""
    section, _, field = name.rpartition(".")
    part = getattr(config, section)
    if not hasattr(part, field):
        part = part.options
    if not hasattr(part, field):
        return
    value = getattr(part, field)
    if value not in (read_option_default(part, field), *neutral):
        because = why.format(method=config.method, kind=config.channel.kind)
        raise NoEffect(f"{section}.{spell_option(field)}: {value!r} has no effect, as {because}; leave it out")
