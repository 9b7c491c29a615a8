"""One run, from its configuration to its result."""

from __future__ import annotations

import json
import logging
from contextlib import nullcontext
from pathlib import Path

from semcom.config import ConfigError, Resolved, RunConfig, RunError, from_dict, to_dict
from semcom.config.errors import shown
from semcom.engine.host.clock import Clock
from semcom.engine.host.memory import keep_freed_memory
from semcom.engine.host.ranks import Team, launched_rank, launched_size, team
from semcom.runs import artifacts
from semcom.runs.failure import NEEDS_CONTEXT, describe_error
from semcom.runs.folder import Folder
from semcom.runs.images import read_images
from semcom.runs.limits import check_models, within_memory
from semcom.runs.loop import Loop, Observer, OnRound
from semcom.runs.resolve import find_device, prepare
from semcom.runs.result import Result
from semcom.runs.setup import Setup
from semcom.runs.stop import Stopped, stoppable

LOG = logging.getLogger(__name__)


def run(
    config: RunConfig, *, on_round: OnRound | None = None, observe: Observer | None = None, profile: bool = False
) -> Result:
    """Train a method and evaluate it.

    Args:
        config: open fields are filled. With `out`, results are written there; a finished run is not repeated (its
            result is returned), an interrupted one goes on from its checkpoint.
        on_round: called with each line of metrics.jsonl.
        observe: measures something after each round, see `Observer`; in one process alone.
        profile: whether `summary["seconds"]` also tells the parts of training; this costs some speed.

    Raises:
        ConfigError: the request is wrong (nothing has been written then), or `on_round` or `observe` cannot be called.
        RunError: the work failed: it diverged, the disk is full, the method raised something, a process was lost. The
            last good state is kept.
        KeyboardInterrupt, Stopped: Ctrl-C, or SIGTERM or SIGHUP, ended it. The last good state is kept.

    Example:
        >>> import semcom
        >>> small = semcom.RunConfig("fedavg", clients=2, train=semcom.TrainConfig(rounds=2))
        >>> result = semcom.run(small)
        >>> [line["round"] for line in result.metrics], list(result.views)
        ([1, 2], ['global'])
    """
    return carry_out(prepare(config), on_round=on_round, observe=observe, profile=profile)


def carry_out(
    setup: Setup, *, on_round: OnRound | None = None, observe: Observer | None = None, profile: bool = False
) -> Result:
    """Train and evaluate what `prepare` has made of a configuration; see `run`."""
    config = setup.config
    _check_called(config, on_round, observe)
    folder = Folder(Path(config.out), config) if config.out is not None and launched_rank() == 0 else None
    if folder is not None:
        folder.check()
    device = find_device(config.device)
    clock = Clock(profile, device)
    loop: Loop | None = None
    try:
        with stoppable():
            with clock("setup"), within_memory():
                keep_freed_memory()
                images = read_images(config)
                check_models(config, images.members, device)
                artifacts.check(config, images.members)
            others = team(config.processes, "semcom.runs.runner:work", lambda: json.dumps(to_dict(config)).encode())
            with folder.open() if folder is not None else nullcontext(), others as ranks, within_memory():
                for caution in setup.cautions if ranks.rank == 0 else ():
                    LOG.warning(caution)
                loop = Loop(setup, images, folder, on_round if ranks.rank == 0 else None, clock, ranks, observe)
                return loop.run()
    except ConfigError:
        raise
    except (KeyboardInterrupt, Stopped) as stop:
        if loop is not None:
            stop.add_note(f"last good state: {loop.kept()}")
        raise
    except (Exception, SystemExit) as error:  # SystemExit: a method that calls sys.exit
        if loop is None or (isinstance(error, RunError) and not isinstance(error, NEEDS_CONTEXT)):
            raise
        raise RunError(f"{loop.where()}: {describe_error(error)}; last good state: {loop.kept()}") from error


def _check_called(config: Resolved, on_round: object, observe: object) -> None:
    """Raise ConfigError for what cannot be called, and for an observer of several processes."""
    if on_round is not None and not callable(on_round):
        raise ConfigError(f"on_round: {shown(on_round)} cannot be called; give a function of a line of metrics.jsonl")
    if observe is not None and not callable(observe):
        raise ConfigError(f"observe: {shown(observe)} cannot be called; give a function of two States and the world")
    if observe is not None and max(config.processes, launched_size()) > 1:
        raise ConfigError("processes: a run of several cannot be observed; give 1")


def work(ranks: Team, payload: bytes) -> None:
    """Do another process's share of a run: all but the folder. `payload` is the configuration as JSON."""
    logging.getLogger("semcom.data").setLevel(logging.ERROR)  # the process that started this one has said it
    setup = prepare(from_dict(json.loads(payload)))
    keep_freed_memory()
    Runner(config, read_images(config), None, None, Clock(), ranks).run()


class Runner:
    """The loop over rounds, and what comes after the last one.

    Attributes:
        newcomers: images of the clients that join at the end, if there are any.
        state: the method's, after the last whole round.
        progress: clock and counters at that time.
        stored: round of the newest checkpoint in the folder.
        rows: of each of the two checkpoints there, the newest first, the rows that lie in a file: they are only kept
            while something refers to them, and the checkpoint says where they lie.
        stage: what is going on after the last round ("": a round is).
        last: views of the last stage, once it has been carried out.
        observe: measures something after each round, if it is asked for.
    """

    observe: Observer | None = None

    def __init__(
        self,
        config: Resolved,
        images: Images,
        folder: Folder | None,
        on_round: OnRound | None,
        clock: Clock,
        ranks: Team,
    ) -> None:
        self.config, self.folder, self.on_round, self.clock, self.ranks = config, folder, on_round, clock, ranks
        self.method: Method = METHODS.get(config.method)(config.hyper)
        self.rounds = config.train.rounds
        with clock("setup"):
            device = find_device(config.device, ranks.local_rank if ranks.size > 1 else None)
            members = images.members.to(device)
            self.newcomers: Federation | None = images.beside(members)
            self.world = World(config, members, device, split=self.method.split, clock=clock, team=ranks)
            self.tally = self.world.session.tally
            self.state = self.method.setup(self.world)
        self.metrics: list[dict[str, Any]] = []
        self.progress = self._progress(0)
        self.stored: int | None = None
        self.rows: list[list[Slot]] = []
        self.kept_at = time.monotonic()
        self.stage = ""
        self.last: Mapping[str, View] | None = None

    def run(self) -> Result:
        """Carry out all rounds that are not done yet, the last stage, new clients, then the summary.

        Whatever ends it before its time, the last good state is kept.
        """
        try:
            with within_memory():
                summary = self._run()
        except ConfigError:
            raise
        except BaseException as error:
            with suppress(Exception):  # the first thing that went wrong is what has to be told
                self._keep()
            foreseen = isinstance(error, RunError | Diverged | KeyboardInterrupt | Stopped)
            if self.folder is not None and not foreseen:
                self.folder.write_error(f"{_told(error)}\n\n{traceback.format_exc()}")
            raise
        self.tally.team = ALONE  # the others have ended, or go their own way
        return self.result(summary, self.folder.path if self.folder else None)

    def result(self, summary: dict[str, Any], out: Path | None) -> Result:
        """Return what the run gives back."""
        return Result(self.config, summary, self.metrics, out, self.world, self.stages)

    def _run(self) -> dict[str, Any]:
        """Do the work of `run`, where files may fail to be written; return the summary."""
        with self.clock("setup"):
            summary = self._resume()
        if summary is not None:
            added = self._keep_arrays(summary.get("finish"), self.folder.arrays() if self.folder else {})
            if self.folder:
                day, place = self.folder.finished_on(), self.folder.path
                more = f"; {', '.join(added)} added to {ARRAYS}" if added else ""
                LOG.warning("finished before: result of %s (%s), nothing was trained%s", place, day, more)
            return summary
        for round_ in range(self.progress["round"] + 1, self.rounds + 1):
            self._round(round_)
        finish = self._finish()
        joined = self._join()
        self._keep_arrays(finish, {})
        summary = self._summary(finish, joined)
        if self.folder:
            with defer_signals():
                self.folder.finish(summary)
        return summary

    def _round(self, round_: int) -> None:
        """Train, evaluate where it is due, report, and keep the state."""
        begun = time.perf_counter()
        with self.clock("train"), writing("training"):  # rows may lie in a file
            self.tally.begin(round_)
            self._check_schedule(round_)
            state = self.method.round(self.state, self.world)
            line: dict[str, Any] = {"round": round_, **self.tally.losses(), **self._warnings(round_)}
        if self.observe:
            with self.clock("observe"), self.tally.uncounted():
                line["observed"] = dict(self.observe(self.state, state, self.world))
        if is_due(self.config, round_):
            with self.clock("evaluate"), self.tally.uncounted():
                views = self.method.views(state, self.world)
                line |= {"views": evaluate(self.world.session, views)} if views else {}
        line["seconds"] = round(time.perf_counter() - begun, 4)
        with defer_signals():  # together: what a checkpoint stores
            self._write(line)
            self.state, self.progress = state, self._progress(round_)
        if self.on_round:
            with self.clock("log"):
                self.on_round(line)
        if self._keeps(round_):
            self._keep()

    def _check_schedule(self, round_: int) -> None:
        """Warn, in the first round, of milestones that the run does not reach; a run may be cut short."""
        late = [milestone for milestone in self.config.train.lr_milestones if milestone > self.rounds]
        if late and round_ == 1:
            reached = f"{', '.join(map(str, late))} is beyond round {self.rounds}, the last one"
            self.world.warn("lr-milestones", f"train.lr-milestones: {reached}")

    def _warnings(self, round_: int) -> dict[str, Any]:
        """Return, and log, what the method warned of in this round and in none before; nothing where there is none."""
        told = {name for line in self.metrics for name in line.get("warnings", {})} if self.tally.warnings else set()
        new = {name: text for name, text in self.tally.warnings.items() if name not in told}
        if self.ranks.rank == 0:
            for text in new.values():
                LOG.warning("round %d: %s", round_, text)
        return {"warnings": new} if new else {}

    def _keeps(self, round_: int) -> bool:
        """Return whether a checkpoint is due after a round: by its number, by the time, or as the last one."""
        train, minutes = self.config.train, (time.monotonic() - self.kept_at) / 60
        return round_ % train.checkpoint_every == 0 or round_ == self.rounds or minutes >= train.checkpoint_minutes

    def _write(self, line: dict[str, Any]) -> None:
        """Add a line before its state is kept: one too many is cut off on resume, one too few would be missed."""
        with self.clock("log"):
            if self.folder:
                self.folder.append(line)
            self.metrics.append(line)

    def _finish(self) -> dict[str, Any] | None:
        """Carry out the last stage, if there is one, and evaluate it. It draws as a round T + 1 would."""
        if not self._finishes():
            return None
        self.stage = "finish"
        with self.clock("finish"), writing("training"), self.tally.uncounted():
            self.last = self._last_views()
            line: dict[str, Any] = {"round": self.rounds + 1, **self.tally.losses(), **self._warnings(self.rounds + 1)}
            if self.last:
                with self.clock("evaluate"):
                    line["views"] = evaluate(self.world.session, self.last)
        self.stage = ""
        return line if self.last else None

    def _finishes(self) -> bool:
        """Return whether there is a last stage: the method's own, or one that was asked for."""
        return self._has_own_finish() or self.config.finish.kind is not None

    def _has_own_finish(self) -> bool:
        """Return whether the method has a last stage."""
        return type(self.method).finish is not Method.finish

    def _last_views(self) -> Mapping[str, View]:
        """Return the views of the last stage, that of `finish.kind` first; none, if the method does without it."""
        asked = self.config.finish.kind is not None
        usual = self.method.views(self.state, self.world) if asked else {}  # of round T
        self.tally.begin(self.rounds + 1)
        last = self.method.finish(self.state, self.world) or {}
        return {**finished(self.world, last or usual), **last} if asked else last

    def stages(self) -> dict[int, Mapping[str, View]]:
        """Return the views of the last stage, then those of the rounds that are not among them, by their rounds."""
        if self.last is None and self._finishes():
            with self.tally.uncounted():
                self.last = self._last_views()
        last = self.last or {}
        with self.tally.uncounted():
            usual = self.method.views(self.state, self.world)
        rest = {name: view for name, view in usual.items() if name not in last}
        return {**({self.rounds + 1: last} if last else {}), **({self.rounds: rest} if rest else {})}

    def _views(self) -> dict[str, View]:
        """Return the views of all stages, those of the last one first."""
        return {name: view for views in self.stages().values() for name, view in views.items()}

    def _join(self) -> dict[str, Any] | None:
        """Return the evaluation of new clients, if there are any."""
        if self.newcomers is None:
            return None
        self.stage = "new clients"
        with self.clock("newcomers"):
            views = {name: view for name, view in self._views().items() if name != FINISHED}
            found = evaluate_new_clients(self.world, self.newcomers, views)
        self.stage = ""
        return found

    def _keep_arrays(self, finish: dict[str, Any] | None, there: Arrays) -> list[str]:
        """Keep the arrays that are asked for and not `there`, by tests of the last state, and return their kinds."""
        wanted = self.ranks.broadcast_object(lacking(there, self.config.keep))
        if not wanted:
            return []
        self.stage = "arrays"
        with self.clock("keep"):
            lines = [*self.metrics, *([finish] if finish else [])]
            found = artifacts.collect(self.world, self.stages(), lines, wanted)
            if self.folder:
                self.folder.keep({**there, **found})
        self.stage = ""
        return wanted

    def where(self) -> str:
        """Return the stage or round that an error names."""
        return self.stage or f"round {self.world.round}"

    def _summary(self, finish: dict[str, Any] | None, joined: dict[str, Any] | None) -> dict[str, Any]:
        """Return what the run reports; a view of the last stage counts as evaluated after it alone."""
        views = headlines([finish] if finish else [])
        views |= {name: view for name, view in headlines(self.metrics).items() if name not in views}
        if not views:
            raise RunError(
                f"{self.config.method}: nothing was evaluated; it has views neither in rounds nor at the end"
            )
        first = next(iter(views.values()))
        some = self.config.train.eval_clients is not None
        tally, meters = self.tally, self.tally.snr_received_db()
        lines, errors = [*self.metrics, *([finish] if finish else [])], tally.error_rates()
        return {
            "method": self.config.method,
            "accuracy": first["accuracy"],
            "accuracy_std": first["accuracy_std"],
            "views": views,
            **({"finish": finish} if finish else {}),
            **({"new_clients": joined} if joined else {}),
            "warnings": [f"round {line['round']}: {t}" for line in lines for t in line.get("warnings", {}).values()],
            "rounds": self.rounds,
            "clients": self.config.clients,
            "evaluated": self.world.tested().tolist() if some else None,
            "samples": tally.visited,
            "samples_per_second": tally.visited / max(self.clock.seconds.get("train", 0.0), 1e-9),
            "seconds": {name: round(value, 3) for name, value in self.clock.seconds.items()},
            "traffic": self.world.air.per_client_round(),
            "snr_received_db": {name: value if math.isfinite(value) else None for name, value in meters.items()},
            **({"error_rates": errors} if errors else {}),
            "seed": self.config.seed,
            "hash": run_hash(self.config),
            "device": self.world.session.draws.device.type,
            "machine": machine(self.world.session.draws.device),
            "versions": versions(),
            "commit": commit(),
        }

    # -- the folder ----------------------------------------------------------------------------------------------

    def _progress(self, round_: int) -> dict[str, Any]:
        """Return clock and counters as plain numbers, for a checkpoint."""
        return {"round": round_, "seconds": dict(self.clock.seconds), **self.world.session.counters()}

    def _keep(self) -> None:
        """Write the last good state, if there is a folder that has not got it."""
        round_ = self.progress["round"]
        if self.folder is None or self.stored == round_ or not round_:
            return
        with defer_signals(), self.clock("checkpoint"):
            with self.folder.store() as path:
                state = checkpoint.state_dict(self.state)
                checkpoint.save(path, {"hash": run_hash(self.config), "progress": self.progress, "state": state})
            self.stored, self.kept_at = round_, time.monotonic()
            self.rows = [checkpoint.in_file(self.state), *self.rows[:1]]

    def kept(self) -> str:
        """Return words on the state that can be taken up again, and its place."""
        if self.folder is None:
            return f"round {self.progress['round']}, not stored (no out folder)"
        paths = [self.folder.path / name for name in (CHECKPOINT, PREVIOUS)]
        path = next((path for path in paths if path.exists()), None)  # it may have been renamed, and no new one written
        return "none" if self.stored is None else f"round {self.stored}, in {path}"

    def _resume(self) -> dict[str, Any] | None:
        """Take up a checkpoint, if the folder has one; return the summary of a run that is finished.

        Nothing in the folder changes unless everything in it fits this run.
        """
        content = self.ranks.broadcast_object(self._checkpoint() if self.folder else None)
        if content is not None:
            self.restore(content, self.folder.path if self.folder else None)
        else:
            self._check_views()
        summary, self.metrics = self.ranks.broadcast_object(self._begin(self.folder) if self.folder else (None, []))
        return summary

    def _check_views(self) -> None:
        """Raise ConfigError, before any work, for a method of a user's of which nothing would be evaluated."""
        if METHODS.ships(self.config.method) or self._has_own_finish():
            return
        with self.tally.uncounted():
            views = self.method.views(self.state, self.world)
        if not (isinstance(views, Mapping) and views and all(isinstance(view, View) for view in views.values())):
            wanted = "without a `finish`, it has to give at least one View by name"
            raise ConfigError(f"method: `views` of {self.config.method} gives {views!r:.80}; {wanted}")

    def _begin(self, folder: Folder) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
        """Return the summary of a finished run, and the metrics so far; from here on the folder is written to."""
        summary = folder.summary()
        if summary is None:
            folder.begin(self.progress["round"])
        elif self.stored is None:
            path = folder.path / CHECKPOINT
            raise RunError(f"{path} is missing though the run is finished; give another folder to train it again")
        elif self.stored != self.rounds:
            LOG.warning("rounds %d to %d are trained again", self.stored + 1, self.rounds)
            folder.begin(self.stored)
            summary = None
        return summary, folder.metrics(self.progress["round"])

    def _checkpoint(self) -> dict[str, Any] | None:
        """Return the newest checkpoint of the folder that is whole, if it has one.

        A damaged one is put aside, with a warning, where the one before it is whole.

        Raises:
            RunError: none is whole, or it is of another run.
        """
        assert self.folder is not None
        newest, before = (self.folder.path / name for name in (CHECKPOINT, PREVIOUS))
        if not newest.exists():
            return self.read(before) if before.exists() else None
        try:
            return self.read(newest)
        except checkpoint.Damaged as error:
            if not before.exists():
                raise
            content = self.read(before)
            place, round_ = set_aside(newest).name, content["progress"]["round"]
            LOG.warning("%s; it is now %s, and the run goes on from round %d", error, place, round_)
            return content

    def read(self, path: Path) -> dict[str, Any]:
        """Return the content of a checkpoint. Raises RunError where it is damaged or not of this run."""
        content = checkpoint.load(path)
        if content.get("hash") != run_hash(self.config):
            raise RunError(f"{path}: belongs to another run; move it away to start again")
        progress: Any = content.get("progress")
        if (
            not checkpoint.alike({**self.progress, "seconds": {}}, progress)
            or not 0 <= progress["round"] <= self.rounds
        ):
            raise RunError(f"{path}: its counters do not fit this run; move it away to start again")
        return content

    def restore(self, content: dict[str, Any], folder: Path | None) -> None:
        """Take over state and counters of a checkpoint, whose rows may lie in files of `folder`.

        Raises RunError where the state is none of this run.
        """
        progress = content["progress"]
        try:
            self.state = checkpoint.restore(self.state, content["state"], folder, self.ranks)
        except (RunError, AttributeError, LookupError, TypeError, ValueError) as error:
            reason = error if isinstance(error, RunError) else "its state is no state"
            place = CHECKPOINT if folder is None else folder / CHECKPOINT
            remedy = "give another folder, or move this one away, to start again"
            raise RunError(f"{place}: {reason}; {remedy}") from error
        self.world.session.resume(progress)
        self.world.session.draws.round = progress["round"]
        self.clock.add(progress["seconds"])
        self.progress = progress
        if self.folder is not None and folder is not None:
            self.stored, self.rows = progress["round"], [checkpoint.in_file(self.state)]
            if any(self.rows) and (folder / CHECKPOINT).exists():  # or the one before is what was taken up
                self.rows.append(checkpoint.claim(self.state, folder / PREVIOUS))
