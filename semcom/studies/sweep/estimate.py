"""What a sweep will take, before it begins: its runs, and their time on this machine.

The time is an estimate. A round or a few of each variant, with a few of its clients, are carried out and timed; their
seconds per training sample and per tested client then stand for all rounds of all its runs. Last stages, new clients,
the start of processes and what a training function of an experiment's own does are not in it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from semcom.config import Resolved
from semcom.studies.analysis.means import UNITS
from semcom.studies.cost import kind, samples, work
from semcom.studies.fields import field_of
from semcom.studies.overrides import duration, plain_text
from semcom.studies.results.outcome import is_finished
from semcom.studies.results.shard import Shard
from semcom.studies.sweep.plan import Plan
from semcom.studies.sweep.reuse import reusable
from semcom.studies.sweep.sweep import check_data

if TYPE_CHECKING:
    from semcom.bench.rounds import Rounds

CLIENTS = 4
"""Clients of the round that is timed."""
ENOUGH_S, ROUNDS = 1.0, 5
"""Seconds after which no further round is timed, and the largest number of rounds; short ones vary."""
SAMPLES = 2000
"""Training samples of it, beyond which it has fewer clients."""
ROWS = 60
"""Rows of the table that are shown; of more, those in the middle are left out."""


@dataclass(frozen=True)
class Pace:
    """How fast this machine carries out runs of a kind."""

    setup_s: float
    """Seconds until the first round."""
    sample_s: float
    """Seconds per training sample; per pass of a client over its data, where their number is not known."""
    client_s: float
    """Seconds of an evaluation per client."""

    def seconds(self, config: Resolved) -> float:
        """Return the estimated time of a whole run."""
        from semcom.runs.evaluation import is_due

        evaluations = sum(is_due(config, round_) for round_ in range(1, config.train.rounds + 1))
        tested = config.clients if config.train.eval_clients is None else config.train.eval_clients
        return self.setup_s + work(config) * self.sample_s + evaluations * tested * self.client_s


def dry_run(plan: Plan, shard: Shard | None = None, jobs: int = 1, reuse: Sequence[Path | str] = ()) -> str:
    """Return the runs of a sweep and what they will take, as text. Nothing is written to the sweep's folder.

    Args:
        plan: the sweep.
        shard: the part of it that is looked at (None: all of it).
        jobs: largest number of runs at a time.
        reuse: folders or archives of other studies, whose finished runs would be taken over.

    Raises:
        ConfigError: its data cannot be had, or a study to reuse is none.
    """
    share = dict(plan.runs) if shard is None else shard.of(plan.runs)
    with reusable(plan, reuse) as found:
        left = {key: config for key, config in share.items() if key not in found and not is_finished(config)}
    check_data(left.values())
    taken = _seconds(plan, left)
    part = f"shard {shard}: " if shard else ""
    lines = [_table(plan, [key for key in plan.variants if key in share], taken), ""]
    lines.append(f"{part}{len(share)} runs, {len(share) - len(left)} of them finished")
    if left:
        total, longest = sum(taken.values()), max(taken.values())
        at_once = min(jobs, len(left))
        wall = max(total / at_once, longest)
        lines.append(
            f"about {duration(wall)} with --jobs {jobs}: {duration(total)} of work, the longest run {duration(longest)}"
        )
        lines.append(_basis(plan, left))
    return "\n".join(lines)


def _basis(plan: Plan, left: Mapping[str, Resolved]) -> str:
    """Return the sentence about what the estimate rests on, and what it leaves out."""
    known = all(samples(config) is not None for config in left.values())
    counted = "counted training samples" if known else "passes over the data, whose size is not known"
    own = ", what the experiment's own training function adds" if plan.experiment.train else ""
    return (
        f"an estimate: {counted} times the pace of rounds with at most {CLIENTS} clients, measured here for each "
        f"method; last stages, new clients and the start of processes{own} come on top, and other work on this machine"
    )


def _seconds(plan: Plan, left: Mapping[str, Resolved]) -> dict[str, float]:
    """Return hash -> estimated seconds; runs of one variant, network, dataset and link have one pace."""
    paces: dict[tuple[object, ...], Pace] = {}
    found = {}
    for key, config in left.items():  # the longest first
        alike = (plan.variants[key], *kind(config))
        if alike not in paces:
            paces[alike] = measured(config)
        found[key] = paces[alike].seconds(config)
    return found


def measured(config: Resolved) -> Pace:
    """Return the pace of runs like this one, from a few of its rounds with a few clients, on one thread.

    A round before these is not timed: it pays for what is done once. Nothing is written.
    """
    from semcom.bench.commands import clock_of, seconds
    from semcom.bench.rounds import Rounds
    from semcom.engine.host.ranks import alone
    from semcom.runs.images import read_images
    from semcom.runs.resolve import find_device

    device = find_device(config.device)
    clock = clock_of(device)
    few = dataclasses.replace(_few(config), device=str(device), processes=1, out=None)
    plays: list[Rounds] = []
    with alone():
        for _ in range(2):  # the first one imports what a process imports once
            setup = seconds(lambda: plays.append(Rounds(few, read_images(few).members)), clock)
            plays[-1]()
        play, took = plays[-1], list[float]()
        tally = play.world.session.tally
        before = tally.visited
        while not took or (sum(took) < ENOUGH_S and len(took) < ROUNDS):
            took.append(seconds(play, clock))
        rounds = dataclasses.replace(few, train=dataclasses.replace(few.train, rounds=len(took)))
        units = work(rounds) if samples(config) is None else tally.visited - before
        test = seconds(lambda: _evaluate(play), clock)
    return Pace(setup, sum(took) / units, test / len(play.world.tested()))


def _evaluate(play: Rounds) -> None:
    """Evaluate the state after the last round, if the method has views then."""
    from semcom.runs.evaluation import evaluate

    with play.world.session.tally.uncounted():
        views = play.method.views(play.state, play.world)
        if views:
            evaluate(play.world.session, views)


def _few(config: Resolved) -> Resolved:
    """Return a run whose rounds and evaluations have at most `CLIENTS` clients, and about `SAMPLES` samples."""
    each = work(config) / (config.train.rounds * config.participants)
    clients = min(config.participants, CLIENTS, max(1, int(SAMPLES / each)))
    train = dataclasses.replace(config.train, participation=clients / config.clients, eval_clients=clients)
    return dataclasses.replace(config, train=train)


def _table(plan: Plan, keys: list[str], taken: Mapping[str, float]) -> str:
    """Return a row per variant and combination of the other fields that vary, with its runs over the seeds."""
    axes = [axis for axis in plan.experiment.axes(plan.scale) if len(axis.values) > 1 and axis.fields != ("seed",)]
    fields = [name for axis in axes for name in axis.fields]
    rows = [
        {"method": plan.variants[key]}
        | {UNITS.get(name, (name, ""))[0]: plain_text(field_of(plan.runs[key], name)) for name in fields}
        | {"runs": 1, "finished": int(key not in taken), "seconds": taken.get(key, 0.0)}
        for key in keys
    ]
    frame = pd.DataFrame(rows)
    places = [name for name in frame if name not in ("runs", "finished", "seconds")]
    cells = frame.groupby(places, sort=False, dropna=False).sum().reset_index()
    cells["time"] = cells.pop("seconds").map(lambda seconds: duration(seconds) if seconds else "-")
    return cells.to_string(index=False, max_rows=ROWS)
