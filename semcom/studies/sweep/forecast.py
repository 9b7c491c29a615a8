"""How long the rest of a sweep will take: the work that is left, at the pace of what has been done since it began."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Collection, Mapping

from semcom.config import Resolved
from semcom.studies.cost import kind, work
from semcom.studies.sweep.following import Following


class Forecast:
    """Foretells the end of a sweep.

    Runs of one `cost.kind` have one pace: seconds per unit of `cost.work`, from those that have ended and the rounds of
    those at work. Where there are none yet, that of all runs together stands for it.

    Args:
        runs: hash -> resolved configuration, of the runs that were not finished when the sweep began, in their order.
        jobs: runs at a time.
        following: looks at them.
    """

    def __init__(self, runs: Mapping[str, Resolved], jobs: int, following: Following) -> None:
        self.jobs, self._following = jobs, following
        self._kinds = {key: kind(config) for key, config in runs.items()}
        self._work = {key: work(config) for key, config in runs.items()}
        self._to_do = {key: 1 - following.first(key) / config.train.rounds for key, config in runs.items()}

    def seconds_left(self, waiting: Collection[str], failed: Collection[str], now: float) -> float | None:
        """Return the seconds until the last run ends; None where nothing has been done yet.

        Args:
            waiting: hashes of the runs that have not ended.
            failed: hashes of those that failed; they tell nothing of the others.
            now: seconds since the sweep began.
        """
        paces, usual = self._paces(failed), self._usual(waiting, failed, now)
        if usual is None:
            return None
        at_work, to_come = [], []
        for key in (key for key in self._work if key in waiting):
            whole = self._work[key] * paces.get(self._kinds[key], usual)
            run = self._following.seen.get(key)
            if run is None:
                to_come.append(whole * self._to_do[key])
            else:
                at_work.append(max(0.0, whole * (1 - run.round / run.rounds) - (now - run.latest)))
        return _in_turn(at_work, to_come, min(self.jobs, len(self._work)))

    def _paces(self, failed: Collection[str]) -> dict[object, float]:
        """Return kind -> seconds per unit of work, of the kinds of which some has been done."""
        spent, done = defaultdict[object, float](float), defaultdict[object, float](float)
        for run in self._following.seen.values():
            if run.share and run.key not in failed:
                spent[self._kinds[run.key]] += run.latest - run.begun
                done[self._kinds[run.key]] += run.share * self._work[run.key]
        return {name: spent[name] / units for name, units in done.items() if spent[name]}

    def _usual(self, waiting: Collection[str], failed: Collection[str], now: float) -> float | None:
        """Return the seconds per unit of work of all runs together."""
        left, seen = {*waiting, *failed}, self._following.seen
        ended = sum(self._work[key] * self._to_do[key] for key in self._work if key not in left)
        done = ended + sum(seen[key].share * self._work[key] for key in waiting if key in seen)
        return now * min(self.jobs, len(self._work)) / done if done else None


def _in_turn(at_work: list[float], to_come: list[float], jobs: int) -> float:
    """Return when the last run ends, each of which takes the first place that is free."""
    places = sorted([*at_work, *[0.0] * (jobs - len(at_work))])
    for seconds in to_come:
        heapq.heapreplace(places, places[0] + seconds)
    return max(places)
