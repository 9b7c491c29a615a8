"""What a run writes at its end: summary.json."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

from semcom.config import RunError, run_hash
from semcom.engine.air.losses import CHOSEN, MEANT, NEARLY
from semcom.engine.world import World
from semcom.methods.registry import METHODS
from semcom.runs.folder.machine import describe_machine
from semcom.runs.folder.versions import read_versions
from semcom.runs.result.accuracy import compute_constant_accuracies, compute_headlines
from semcom.runs.result.artifacts import count_artifact_classes
from semcom.tasks.metric import ACCURACY, describe_metrics

LOG = logging.getLogger(__name__)
TOTALS = {"round_s": "time_s", "late": "late", "lost": "lost", "unreached": "unreached"}
"""Number of a round -> what its sum over the rounds is called."""


def summarize_run(
    world: World,
    metrics: Sequence[Mapping[str, Any]],
    finish: Mapping[str, Any] | None,
    joined: Mapping[str, Any] | None,
    stopped: int | None = None,
) -> dict[str, Any]:
    """Summarize a run, by the names that docs/metrics.md explains, except its begin and its commit.

    Args:
        world: of the run, after its last round.
        metrics: the lines of its rounds.
        finish: the line of its last stage, if it has one; its views count only as evaluated there.
        joined: the evaluation of its new clients, if it has any.
        stopped: of a run that stopped early the best round on validation images, from which on evaluations count.

    Raises:
        RunError: there is no evaluation, or a tested number is not finite.
    """
    config, session, task = world.config, world.session, world.session.draws.task
    last = compute_headlines([finish] if finish else [], task.metrics[0])
    judged = task.judged
    views = last | compute_headlines(metrics, task.metrics[0], stopped or 0) | last  # the last stage's first
    if not views:
        raise RunError(f"{config.method}: nothing was evaluated; it has views neither in rounds nor at the end")
    first, metric = next(iter(views.values())), task.metrics[0]
    if not math.isfinite(first[metric.name]):
        raise RunError(f"{config.method}: it has diverged: its {metric.label} is not finite")
    tally, seconds = session.tally, session.clock.seconds
    errors = tally.error_rates()
    lines = [*metrics, *([finish] if finish else [])]
    warnings = [f"round {line['round']}: {t}" for line in lines for t in line.get("warnings", {}).values()]
    for doubt in _list_doubts(world, metrics[-1]["round"]):
        warnings.append(doubt)
        LOG.warning(doubt)
    return {
        "method": config.method,
        **({"label": label} if (label := METHODS.get(config.method).label) else {}),
        **({} if judged == (ACCURACY,) else {"task": {"name": config.task, "metrics": describe_metrics(judged)}}),
        **{name: first[name] for name in (metric.name, metric.key("std"))},
        "views": views,
        **({"constant": _measure_constant_answers(world)} if task.classifies else {}),
        **({"finish": finish} if finish else {}),
        **({"new_clients": joined} if joined else {}),
        "warnings": warnings,
        "rounds": metrics[-1]["round"],
        **({} if stopped is None else {"stopped": {"rounds": config.train.rounds, "best_on_validation": stopped}}),
        "clients": config.clients,
        "evaluated": None if config.train.eval_clients is None else world.tested().tolist(),
        "bandwidth_ratio": config.model.features / 2 / session.draws.federation.numbers,
        "samples": tally.visited,
        "samples_per_second": tally.visited / max(seconds.get("train", 0.0), 1e-9),
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        "traffic": world.air.per_client_round(),
        **{total: sum(line[name] for line in metrics) for name, total in TOTALS.items() if name in metrics[-1]},
        "snr_received_db": tally.snr_received_db(),
        **world.air.privacy.list_epsilons(),
        **({"error_rates": errors} if errors else {}),
        **({"cell": places} if (places := _describe_places(world)) else {}),
        "seed": config.seed,
        "hash": run_hash(config),
        "device": session.draws.device.type,
        "machine": describe_machine(session.draws.device),
        "versions": read_versions(),
    }


def _list_doubts(world: World, rounds: int) -> list[str]:
    """List reasons to doubt the result of a whole run: signals that were never heard, or hardly ever."""
    config, tally, found = world.config, world.session.tally, list[str]()
    if silent := tally.list_silent_meters():
        why = "features are zero, or so large that their squares overflow"
        found.append(f"nothing but noise was received ({', '.join(silent)}): {why}")
    if broken := tally.list_broken_meters(NEARLY):
        each = ", ".join(f"{name} {100 * part:.4g}%" for name, part in broken.items())
        found.append(f"nearly every block had wrong bits ({each}): the SNR is too low for so many bits")
    losses = world.air.arrivals.losses
    if lost := losses.describe(config):
        found.append(lost)
    chosen = losses.of(CHOSEN)
    if chosen and rounds * config.participants >= config.clients > len(chosen):
        left, scheduling = config.clients - len(chosen), config.network.scheduling
        found.append(f"network.scheduling {scheduling}: {left} of {config.clients} clients never once took part")
    return found


def _measure_constant_answers(world: World) -> dict[str, float]:
    """Compute the accuracies of constant answers among the tested clients."""
    federation, tested = world.session.draws.federation, world.tested()
    tables = (count_artifact_classes(federation, table, tested) for table in (federation.train, federation.test))
    return compute_constant_accuracies(*tables)


def _describe_places(world: World) -> dict[str, list[Any]]:
    """Describe the clients' places and mean SNRs in the last round, their airtimes up, and the part that arrived.

    Numbers are rounded to the third decimal.
    """
    draws, air = world.session.draws, world.air
    if not (found := draws.places.describe(draws.round)) or air.sent_s is None:
        return {}
    found["airtime_s"] = air.sent_s
    made = {name: (each if each.dtype == bool else each.round(3)).tolist() for name, each in found.items()}
    lost, meant = air.arrivals.losses.find_lost(), air.arrivals.losses.of(MEANT)
    if not meant:
        return made
    arrived = [round(1 - lost[k] / meant[k], 3) if k in meant else None for k in range(world.config.clients)]
    return {**made, "arrived": arrived}
