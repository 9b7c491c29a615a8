"""Settings that would do nothing: each is refused, unless it is the default.

A default is never refused, since it stands in every stored configuration. Two kinds of neutral values pass too, since
sweeps go over them: a weight or a count of zero, which switches a part of a method off (what else is set for that part
is refused), and a schedule that goes beyond the run's last round (the run warns of it: `train.rounds` may have cut it
short), or is met anyway (each of the last ten rounds is evaluated). Nor are places and bounds refused, which say where
and how a run is carried out (`data.root`, `device`, `chunk`, `store`): they are set once for a machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from semcom.config import COMMON, NetworkConfig, NoEffect, Resolved, TrainConfig, parse_snr
from semcom.config.options import spelled, usual
from semcom.registry import find
from semcom.runs.request.finish import makes_heads
from semcom.runs.request.section_options import NAMING, OWNERS, read_owner
from semcom.runs.request.setup import Setup
from semcom.tasks.registry import TASKS


def _sends(run: Setup) -> bool:
    """Return whether anything is sent in training."""
    return run.method.split or run.method.exchanges


def _hears_noise(run: Setup) -> bool:
    """Return whether anything comes down that is changed by noise, or comes at a rate that follows the SNR."""
    gradients = run.method.split and run.link.downlink == "noisy"
    models = run.method.exchanges and (not run.error_free or run.config.air.rate != "fixed")
    return run.link.noisy and (gradients or models)


def _has_one_snr(run: Setup) -> bool:
    """Return whether all clients have the same mean SNR on the uplink, in all rounds."""
    snr = parse_snr(run.config.channel.snr_db, "channel.snr-db")
    return run.config.network.kind != "cell" and len(set(snr.values)) == 1


@dataclass(frozen=True)
class NoEffectRule:
    """A field, the condition under which it has no effect, and the reason."""

    field: str
    when: Callable[[Setup], bool]
    why: str


NO_CHANNEL = "there is no channel with channel.kind {kind}"
OF_A_CHANNEL = (
    *("channel.snr_db", "channel.test_snr_db", "channel.downlink_snr_db"),
    *("air.parameters", "air.access", "air.rate", "air.bandwidth_hz", "air.symbol_energy"),
)
"""Fields that say how a channel is, or how its uses are counted."""
NO_NOISE = "{kind} has no noise"
NOTHING_SENT = "{method} sends nothing"
RULES = (
    NoEffectRule("partition.scarce_fraction", lambda r: not r.config.partition.scarce, "no client is partition.scarce"),
    *(NoEffectRule(field, lambda r: not r.link.radio, NO_CHANNEL) for field in OF_A_CHANNEL),
    NoEffectRule("model.snr_input", lambda r: not r.link.noisy, NO_NOISE),
    NoEffectRule("channel.snr_db", lambda r: not r.link.noisy, NO_NOISE),
    NoEffectRule("channel.test_snr_db", lambda r: not r.link.noisy, NO_NOISE),
    NoEffectRule("channel.downlink_snr_db", lambda r: not r.link.noisy, NO_NOISE),
    NoEffectRule("channel.downlink_snr_db", lambda r: not _hears_noise(r), "nothing comes down through the channel"),
    NoEffectRule("channel.downlink", lambda r: not r.method.split, "{method} sends no gradients"),
    NoEffectRule(  # the product with conj(a) is then one with 1
        "channel.feedback", lambda r: r.link.equaliser == "zf" and not r.link.estimates, "zf leaves no gain to know of"
    ),
    NoEffectRule(
        "channel.feedback",
        lambda r: not (r.method.split or r.config.train.through_link),
        "no training passes the channel without train.through-link",
    ),
    NoEffectRule("channel.power_control", _has_one_snr, "all clients have the same SNR"),
    NoEffectRule("air.parameters", lambda r: not r.method.exchanges, "{method} exchanges no parameters"),
    NoEffectRule("air.bits_per_float", lambda r: not r.error_free, "no number is sent error-free"),
    NoEffectRule("air.rate", lambda r: not (r.error_free or r.method.split), "nothing is sent error-free"),
    NoEffectRule("air.compress", lambda r: not r.error_free, "no number is sent error-free"),
    NoEffectRule("network.flops_spread", lambda r: r.config.network.flops is None, "network.flops is not given"),
    NoEffectRule("train.deadline_s", lambda r: r.config.network.flops is None, "network.flops is not given"),
    NoEffectRule("train.deadline_s", lambda r: not _sends(r), NOTHING_SENT),
    NoEffectRule("air.rate", lambda r: not r.link.noisy, NO_NOISE),
    NoEffectRule("air.access", lambda r: not r.method.averages, "{method} averages no models"),
    NoEffectRule("air.access", lambda r: r.config.air.parameters == "ideal", "air.parameters is not analog"),
    NoEffectRule(  # in a cell the noise of the tests is that of the band
        "air.bandwidth_hz", lambda r: not _sends(r) and r.config.network.kind != "cell", NOTHING_SENT
    ),
    NoEffectRule("air.symbol_energy", lambda r: not _sends(r), NOTHING_SENT),
    *(
        NoEffectRule(field, lambda r: r.config.network.kind == "cell", "powers and path losses in the cell say it")
        for field in ("channel.snr_db", "channel.downlink_snr_db", "air.symbol_energy")
    ),
    *(
        NoEffectRule(f"network.{field.name}", lambda r: r.config.network.kind == "list", "network.kind is not cell")
        for field in fields(NetworkConfig)
        if field.name not in ("kind", "scheduling", "flops", "flops_spread")
    ),
    NoEffectRule(
        "network.exponent", lambda r: r.config.network.path_loss != "exponent", "network.path_loss is not exponent"
    ),
    NoEffectRule("network.kind", lambda r: not r.link.noisy, NO_NOISE),
    NoEffectRule("network.kind", lambda r: not r.link.radio, NO_CHANNEL),
    NoEffectRule(
        "network.scheduling", lambda r: r.config.participants == r.config.clients, "all clients take part in each round"
    ),
    NoEffectRule("train.through_link", lambda r: r.method.split, "{method} always trains through the link"),
    NoEffectRule("train.through_link", lambda r: not r.link.radio, NO_CHANNEL),
    NoEffectRule("train.through_link", lambda r: not r.link.noisy, NO_NOISE),
    NoEffectRule(
        "train.eval_clients", lambda r: r.config.train.eval_clients == r.config.clients, "these are all clients"
    ),
    NoEffectRule(
        "train.metrics", lambda r: not find(TASKS, r.config.task, "task").classifies, "the task asks for no classes"
    ),
    NoEffectRule("train.preset", lambda r: not r.method.preset, "{method} has no setting of its paper's"),
)


def check_unused_settings(run: Setup, common: TrainConfig, band_hz: float) -> None:
    """Raise NoEffect for the first setting of a resolved run that does nothing.

    Args:
        run: the run; its band may be open.
        common: the schedule with the fields that the method does not use left to the preset.
        band_hz: the band where it is open.
    """
    config = run.config
    for rule in RULES:
        if rule.when(run) and not (rule.field == "air.bandwidth_hz" and config.air.bandwidth_hz == band_hz):
            _refuse_unused_setting(rule.field, config, rule.why)
    for field in OWNERS["air"]:
        for name, why in find(NAMING[field], read_owner(config, field)).list_unused(run):
            _refuse_unused_setting(f"air.{name}" if name else field, config, why)
    for name, _, value in (entry.partition("=") for entry in run.method.unused):
        if name == "model.init" and makes_heads(config):
            continue  # it is how these begin
        section, _, field = name.rpartition(".")
        if not value or getattr(getattr(config, section), field) == value:
            default = [getattr(common, field)] if section == "train" and field in COMMON else []
            _refuse_unused_setting(name, config, "{method} does not use it", *default)


def _refuse_unused_setting(name: str, config: Resolved, why: str, *default: Any) -> None:
    """Raise NoEffect unless a field has its default, or its section has no such field."""
    section, _, field = name.rpartition(".")
    part = getattr(config, section)
    if not hasattr(part, field):
        part = part.options
    if not hasattr(part, field):
        return
    value, (neutral,) = getattr(part, field), default or (usual(part, field),)
    if value != neutral:
        because = why.format(method=config.method, kind=config.channel.kind)
        raise NoEffect(f"{section}.{spelled(field)}: {value!r} has no effect, as {because}; leave it out")
