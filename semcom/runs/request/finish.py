"""The fields of the last stage that every method can have: filled, and refused if they have no effect."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from semcom.channels.registry import describe_unknown_name
from semcom.config import FINISH, ROUND, ConfigError, FinishConfig, NoEffect, Resolved, RunConfig
from semcom.config.options import spell_option
from semcom.methods.parts.kinds import KINDS, holds_classifier, is_head
from semcom.models.registry import HEADS

if TYPE_CHECKING:
    from semcom.methods.base import Method


def check_finish(config: RunConfig, method: Method) -> None:
    """Raise ConfigError for an unknown kind, for a round that cannot be, and for settings of what trains nothing."""
    finish = config.finish
    known = [*HEADS.names(), *KINDS]
    if finish.kind is not None and finish.kind not in known:
        raise ConfigError(f"finish.kind: {describe_unknown_name(finish.kind, known)}")
    if finish.kind == ROUND:
        _check_round(config)
    if is_head(finish.kind) and finish.epochs == 0:
        raise NoEffect(f"finish.epochs: 0 leaves the {finish.kind} heads of finish.kind untrained; give at least 1")
    usual = default_finish(method, finish.kind)
    for name in FINISH:
        value = getattr(finish, name)
        if value not in (None, usual[name]) and name not in list_finish_fields(config, method):
            raise NoEffect(
                f"finish.{spell_option(name)}: {value!r} has no effect, as {_explain_unused(config)}; leave it out"
            )


def _check_round(config: RunConfig) -> None:
    """Raise ConfigError where a round more cannot have all tested clients, or has others than the round before it."""
    air, train = config.air, config.train
    asked = {
        "air.privacy": air.privacy != "none",
        "air.repeat": getattr(air.options, "repeat", True) is False,
        "air.coverage": getattr(air.options, "coverage", "repetition") != "repetition",
        "network.kind": config.network.kind != "list",  # SNRs and airtimes are those of a round's part of the band
        "channel.users": (getattr(config.channel.options, "users", 1) or 1) > 1,
        "train.deadline_s": train.deadline_s is not None,
        "train.patience": train.patience is not None,
    }
    if found := next((name for name, is_set in asked.items() if is_set), None):
        raise ConfigError(f"finish.kind: a round more of all clients does not go with {spell_option(found)}")


def _explain_unused(config: RunConfig) -> str:
    """Explain why a field of `finish` has no effect on a run."""
    if config.finish.kind == ROUND:
        return "a round more trains by the run's optimiser, and the method has no last stage of its own"
    if config.finish.epochs == 0:
        return "finish.epochs is 0"
    if holds_classifier(config.finish.kind):
        return f"{config.finish.kind} is not trained in epochs"
    if config.new_clients:
        return "new clients train for new-steps, and no other client after the rounds"
    return f"{config.method} trains nothing after the rounds without finish.kind"


def default_finish(method: Method, kind: str | None = None) -> dict[str, Any]:
    """Collect the defaults of `finish`: the method's over the common ones, which alone hold for heads of a kind."""
    return {**FINISH, **({} if is_head(kind) else method.finishing or {})}


def fill_finish(config: RunConfig, method: Method) -> FinishConfig:
    """Fill all fields of `finish` that have an effect, and leave the others open.

    So a run without a last stage is the same run whatever the defaults are.
    """
    finish = config.finish
    for name, usual in default_finish(method, finish.kind).items():  # epochs first, on which the others depend
        given = getattr(finish, name)
        used = name in list_finish_fields(replace(config, finish=finish), method)
        finish = replace(finish, **{name: (usual if given is None else given) if used else None})
    return finish


def list_finish_fields(config: RunConfig, method: Method) -> set[str]:
    """List the fields of `finish` that affect training after the rounds of a run."""
    stage = method.finishing is not None or is_head(config.finish.kind)
    joins = config.new_clients > 0 and not holds_classifier(config.finish.kind)
    moves = joins or (stage and config.finish.epochs != 0)
    return ({"epochs"} if stage else set()) | ({"lr", "optimizer"} if moves else set())


def makes_heads(config: Resolved) -> bool:
    """Check whether a run makes fresh heads after its rounds, beside those of its method."""
    return is_head(config.finish.kind) or (not holds_classifier(config.finish.kind) and config.new_clients > 0)
