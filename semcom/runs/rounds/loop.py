"""The rounds of a run, and the stages after the last round."""

from __future__ import annotations

import hashlib
import logging
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from semcom.config import ConfigError, RunError
from semcom.data.federation import Federation
from semcom.engine.host.clock import Clock
from semcom.engine.host.ranks import ALONE, Team
from semcom.engine.store.population import Population
from semcom.engine.train.descent import Diverged
from semcom.engine.train.view import View
from semcom.engine.world import World
from semcom.files import ARRAYS, SUMMARY
from semcom.methods.base import remembers_clients
from semcom.runs.folder.arrays import Arrays, list_lacking_arrays
from semcom.runs.folder.folder import Folder, WriteError, name_file_in_error
from semcom.runs.folder.lines import digest_metrics
from semcom.runs.folder.recovery import Checkpoints, begin_or_recover, restore_state
from semcom.runs.folder.versions import read_commit
from semcom.runs.request.images import Images
from semcom.runs.request.limits import limit_memory
from semcom.runs.request.resolve import find_device
from semcom.runs.request.setup import Setup
from semcom.runs.request.sources import list_reads
from semcom.runs.request.stop import Stopped, defer_stop_signals
from semcom.runs.result import artifacts
from semcom.runs.result.evaluation import check_evaluated_views, evaluate_views, find_stall, is_evaluation_due
from semcom.runs.result.result import Result
from semcom.runs.rounds.failure import NEEDS_CONTEXT, describe_failure
from semcom.runs.rounds.finish import FINISHED, finish_run, has_last_stage
from semcom.runs.rounds.new_clients import evaluate_new_clients
from semcom.runs.rounds.summary import summarize_run

OnRound = Callable[[dict[str, Any]], None]
Observer = Callable[[Any, Any, World], Mapping[str, Any]]
"""`(State before a round, State after it, world) -> values`: its result is `observed` in the round's line.

It is called right after the training, in the same round. It may train and draw with the world, without any effect on
counters. The run goes on from the second State, so the observer must not change its arguments.
"""
LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stored:
    """The method's State, and the parts of the clients' updates that compression has left out."""

    method: Any
    residual: Population


class Loop:
    """The loop over rounds, and the stages after the last round.

    Attributes:
        rounds: T, or the number of rounds until training stopped early.
        newcomers: images of the clients that join at the end, if any.
        state: the method's, after the last whole round.
        residual: remainder of compression at that time (None: it leaves nothing out).
        progress: clock and counters at that time.
        checkpoints: those in the folder.
        stage: stage after the last round ("": the run is in its rounds).
        resumed: whether the folder was taken up, or is new.
        last: views of the last stage, once it has been carried out.
    """

    def __init__(
        self,
        setup: Setup,
        images: Images,
        folder: Folder | None,
        on_round: OnRound | None,
        clock: Clock,
        ranks: Team,
        observe: Observer | None = None,
    ) -> None:
        self.observe, self.folder, self.on_round, self.clock, self.ranks = observe, folder, on_round, clock, ranks
        self.config, self.method, self.joined_link = setup.config, setup.method, setup.joined_link
        config, self.rounds = setup.config, setup.config.train.rounds
        with clock("setup"):
            device = find_device(config.device, ranks.local_rank if ranks.size > 1 else None)
            members = images.members.to(device)
            self.newcomers: Federation | None = images.beside(members)
            self.world = World(config, members, device, setup.link, split=self.method.split, clock=clock, team=ranks)
            self.tally = self.world.session.tally
            self.state = self.method.setup(self.world)
            self.world.air.privacy.expect(remembers=remembers_clients(self.state))
            if self.world.air.compression.remembers:
                self.world.remember(self.method.averages)
        self.residual = self.world.air.compression.residual
        self.metrics: list[dict[str, Any]] = []
        self.digest = hashlib.sha256()
        self.progress = self._progress(0)
        self.checkpoints = Checkpoints(folder, config, clock)
        self.stage, self.resumed = "", False
        self.last: Mapping[str, View] | None = None

    def run(self) -> Result:
        """Carry out all rounds that are not done yet, the last stage, new clients, then the summary.

        Whatever ends it before its time, the last good state is kept.
        """
        try:
            with limit_memory():
                summary = self._run()
        except ConfigError:
            raise
        except BaseException as error:
            with suppress(Exception):  # the first thing that went wrong is what has to be told
                self.checkpoints.write(self.stored, self.progress)
            if self.folder is not None and not isinstance(error, KeyboardInterrupt | Stopped | WriteError):
                told = isinstance(error, RunError) and not isinstance(error, NEEDS_CONTEXT)
                line = str(error) if told else f"{self.where()}: {describe_failure(error)}"
                foreseen = isinstance(error, RunError | Diverged)
                if self.resumed or not foreseen:  # what cannot be taken up is left as it is
                    self.folder.write_error(line if foreseen else f"{line}\n\n{traceback.format_exc()}")
            raise
        self.tally.team = ALONE  # the others have ended, or go their own way
        self.world.session.arenas.clear()
        return self.result(summary, self.folder.path if self.folder else None)

    def result(self, summary: dict[str, Any], out: Path | None) -> Result:
        """Build the result of the run."""
        return Result(self.config, summary, self.metrics, out, self.world, self.stages)

    def _run(self) -> dict[str, Any]:
        """Do the work of `run` that may fail to write files, and return the summary."""
        commit = read_commit()  # of the code that trains: a checkout may have moved on when the run ends
        with self.clock("setup"):
            summary = self._resume()
        self.resumed = True
        if summary is not None:
            added = self._keep_arrays(summary.get("finish"), self.folder.arrays() if self.folder else {})
            if self.folder:
                place = self.folder.path
                day = date.fromtimestamp((place / SUMMARY).stat().st_mtime)
                more = f"; {', '.join(added)} added to {ARRAYS}" if added else ""
                more += self.folder.settle_models()
                LOG.warning("already finished: result of %s (%s), nothing was trained%s", place, day, more)
            return summary
        for round_ in range(self.progress["round"] + 1, self.rounds + 1):
            if (best := self._best_round()) is not None:
                self.rounds = round_ - 1
                LOG.info("round %d: no better on validation images since round %d", self.rounds, best)
                self.checkpoints.write(self.stored, self.progress)
                break
            self._round(round_)
        finish = self._finish()
        joined = self._join()
        self._keep_arrays(finish, {})
        stopped = self._best_round() if self.rounds < self.config.train.rounds else None
        summary = summarize_run(self.world, self.metrics, finish, joined, stopped)
        summary |= {"begun": self.checkpoints.begun, "commit": commit}
        if self.folder:
            if reads := list_reads(self.folder.config.contents):
                summary["read"] = reads
            summary |= {"metrics_digest": self.digest.hexdigest()}
            with defer_stop_signals():
                self.folder.finish(summary)
        return summary

    def _best_round(self) -> int | None:
        """Find the round after which the run has not improved, if it is to stop for that."""
        return find_stall(self.config.train.patience, self.metrics, self.world.session.draws.task.metrics[0])

    def _round(self, round_: int) -> None:
        """Train, evaluate where it is due, report, and keep the state."""
        begun = time.perf_counter()
        with self.clock("train"), name_file_in_error("training"):  # rows may lie in a file
            self.tally.begin(round_)
            self._check_schedule(round_)
            reached = self.world.air.arrivals.everybody or len(self.world.sample())
            state = self.method.round(self.state, self.world) if reached else self.state
            line: dict[str, Any] = {"round": round_, **self.tally.losses(), **self._warnings(round_)}
            line |= self.world.air.arrivals.summarize()
            if round_ == self.rounds and (times := self.world.air.arrivals.list_times()):
                line["timeline"] = times
        if self.observe:
            with self.clock("observe"), self.tally.uncounted():
                line["observed"] = dict(self.observe(self.state, state, self.world))
        if is_evaluation_due(self.config, round_):
            with self.clock("evaluate"), self.tally.uncounted():
                views = self.method.views(state, self.world)
                line |= {"views": evaluate_views(self.world.session, views)} if views else {}
        line["seconds"] = round(time.perf_counter() - begun, 4)
        with defer_stop_signals():  # together: what a checkpoint stores
            self._write(line)
            progress = self._progress(round_)
            self.state, self.residual, self.progress = state, self.world.air.compression.residual, progress
        if self.on_round:
            with self.clock("log"):
                self.on_round(line)
        if self.checkpoints.are_due(round_):
            self.checkpoints.write(self.stored, self.progress)

    def _check_schedule(self, round_: int) -> None:
        """Warn, in the first round, of milestones that the run does not reach, as it may have been cut short."""
        late = [milestone for milestone in self.config.train.lr_milestones if milestone > self.rounds]
        if late and round_ == 1:
            reached = f"{', '.join(map(str, late))} is beyond round {self.rounds}, the last one"
            self.world.warn("lr-milestones", f"train.lr-milestones: {reached}")

    def _warnings(self, round_: int) -> dict[str, Any]:
        """Log and return the method's first warnings of each name in this round; {} without any."""
        told = {name for line in self.metrics for name in line.get("warnings", {})} if self.tally.warnings else set()
        new = {name: text for name, text in self.tally.warnings.items() if name not in told}
        if self.ranks.rank == 0:
            for text in new.values():
                LOG.warning("round %d: %s", round_, text)
        return {"warnings": new} if new else {}

    def _write(self, line: dict[str, Any]) -> None:
        """Add a line before its state is stored: on resume a surplus line is cut off, a missing one lost."""
        with self.clock("log"):
            if self.folder:
                self.folder.append(line)
            self.metrics.append(line)
            digest_metrics(self.digest, line)

    def _finish(self) -> dict[str, Any] | None:
        """Carry out and evaluate the last stage, if there is one. It draws as the round after T of the request."""
        if not has_last_stage(self.method, self.config):
            return None
        self.stage = "finish"
        with self.clock("finish"), name_file_in_error("training"), self.tally.uncounted():
            self.last = finish_run(self.method, self.state, self.world)
            line: dict[str, Any] = {"round": self.rounds + 1, **self.tally.losses(), **self._warnings(self.rounds + 1)}
            if self.last:
                with self.clock("evaluate"):
                    line["views"] = evaluate_views(self.world.session, self.last)
        self.stage = ""
        return line if self.last else None

    def stages(self) -> dict[int, Mapping[str, View]]:
        """Return the views of the last stage, then those of the rounds that are not among them, by their rounds.

        Raises RunError if the models of a finished run have gone with its checkpoints.
        """
        if self.progress["round"] != self.rounds:
            raise RunError("the run has kept none of its models; train it in another folder with --keep weights")
        if self.last is None and has_last_stage(self.method, self.config):
            with self.tally.uncounted():
                self.last = finish_run(self.method, self.state, self.world)
        with self.tally.uncounted():
            usual = self.method.views(self.state, self.world)
        last = self.last or {}
        rest = {name: view for name, view in usual.items() if name not in last}
        end = self.config.train.rounds + 1  # whose draws it has, also after an early stop
        return {**({end: last} if last else {}), **({self.rounds: rest} if rest else {})}

    def _join(self) -> dict[str, Any] | None:
        """Evaluate the new clients, if there are any."""
        if self.newcomers is None or self.joined_link is None:
            return None
        self.stage = "new clients"
        with self.clock("newcomers"):
            views = {name: view for of in self.stages().values() for name, view in of.items() if name != FINISHED}
            found = evaluate_new_clients(self.world, self.newcomers, self.joined_link, views)
        self.stage = ""
        return found

    def _keep_arrays(self, finish: dict[str, Any] | None, there: Arrays) -> list[str]:
        """Store the requested arrays that are not `there`, by tests of the last state, and return their kinds."""
        wanted = self.ranks.broadcast_object(list_lacking_arrays(there, self.config.keep))
        if not wanted:
            return []
        self.stage = "arrays"
        with self.clock("keep"):
            lines = [*self.metrics, *([finish] if finish else [])]
            found = artifacts.collect_artifacts(self.world, self.stages(), lines, wanted)
            if self.folder:
                self.folder.keep({**there, **found})
        self.stage = ""
        return wanted

    def where(self) -> str:
        """Name the stage or round for an error."""
        return self.stage or f"round {self.world.round}"

    def kept(self) -> str:
        """Describe the state from which the run can go on, and its place."""
        return self.checkpoints.describe(self.progress["round"])

    @property
    def stored(self) -> Any:
        """Return the content of a checkpoint: the method's State, and the remainder of compression."""
        return self.state if self.residual is None else Stored(self.state, self.residual)

    # -- the folder ----------------------------------------------------------------------------------------------

    def _progress(self, round_: int) -> dict[str, Any]:
        """Return clock and counters as plain numbers, for a checkpoint, and the digest of the lines so far."""
        counters = {"lines": digest_metrics(self.digest), **self.world.session.counters()}
        return {"round": round_, "seconds": dict(self.clock.seconds), **counters}

    def _resume(self) -> dict[str, Any] | None:
        """Take up a checkpoint, if the folder has one; return the summary of a finished run.

        Nothing in the folder changes unless everything in it fits this run.
        """
        content = self.ranks.broadcast_object(self.checkpoints.find(self.progress))
        if content is not None:
            self.restore(content, self.folder.path if self.folder else None)
        else:
            with self.tally.uncounted():
                check_evaluated_views(self.method, self.state, self.world)
        folder, round_ = self.folder, self.checkpoints.stored
        if folder and folder.again:
            folder.clear()
        begun = begin_or_recover(folder, round_, self.rounds, self.progress["lines"]) if folder else (None, [])
        summary, self.metrics = self.ranks.broadcast_object(begun)
        self.rounds = self.rounds if summary is None else summary["rounds"]
        digest_metrics(self.digest, *self.metrics)
        return summary

    def restore(self, content: dict[str, Any], folder: Path | None) -> None:
        """Take over state and counters of a checkpoint, whose rows may lie in files of `folder`.

        Raises RunError if the state is of another run.
        """
        progress = content["progress"]
        found = restore_state(self.stored, content, folder, self.ranks)
        self.state, self.residual = (found.method, found.residual) if isinstance(found, Stored) else (found, None)
        self.world.air.compression.residual = self.residual
        self.world.session.resume(progress)
        self.world.session.draws.round = progress["round"]
        self.clock.add(progress["seconds"])
        self.checkpoints.begun = content.get("begun", self.checkpoints.begun)  # older versions stored none
        self.progress = progress
        self.checkpoints.take_up(self.stored, progress["round"])
