"""One run, from its configuration to its result."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from semcom.config import ConfigError, Resolved, RunConfig, RunError, from_dict, to_dict
from semcom.config.errors import show_value
from semcom.engine.host.clock import Clock
from semcom.engine.host.memory import keep_freed_memory
from semcom.engine.host.ranks import Team, count_launched_ranks, launched_rank, start_ranks
from semcom.engine.train.precision import reset_torch
from semcom.runs.folder.folder import Folder
from semcom.runs.request.images import read_run_images
from semcom.runs.request.inputs import add_read_inputs
from semcom.runs.request.limits import check_model_limits, limit_memory
from semcom.runs.request.resolve import find_device, resolve_setup
from semcom.runs.request.setup import Setup
from semcom.runs.request.sources import watch_reads
from semcom.runs.request.stop import Stopped, raise_on_stop_signals
from semcom.runs.result import artifacts
from semcom.runs.result.evaluation import check_patience
from semcom.runs.result.result import Result
from semcom.runs.rounds.failure import NEEDS_CONTEXT, describe_failure
from semcom.runs.rounds.loop import Loop, Observer, OnRound
from semcom.runs.rounds.progress import RoundProgress
from semcom.runs.rounds.tracking import Tracking
from semcom.tasks.registry import list_metrics

LOG = logging.getLogger(__name__)


@reset_torch()
def run(
    config: RunConfig,
    *,
    on_round: OnRound | None = None,
    observe: Observer | None = None,
    profile: bool = False,
    progress: bool = False,
    again: bool = False,
    track: Sequence[str] | str = (),
) -> Result:
    """Train a method and evaluate it.

    Args:
        config: open fields are filled. With `out`, results are written there; a finished run is not repeated (its
            result is returned), an interrupted one goes on from its checkpoint.
        on_round: called with each line of metrics.jsonl.
        observe: measures something after each round, see `Observer`; in one process alone.
        profile: whether `summary["seconds"]` also tells the parts of training; this costs some speed.
        progress: whether rounds are shown on stderr: a bar on a terminal, a line in a notebook, log lines (INFO)
            elsewhere.
        again: whether the run that lies in `out`, finished or not, this one or another, is replaced.
        track: trackers that get all rounds, NAME or NAME=PLACE each: tensorboard=FOLDER, wandb=PROJECT,
            mlflow=EXPERIMENT, or one of `semcom.TRACKERS`.

    Raises:
        ConfigError: the request is wrong (nothing has been written then), or `on_round` or `observe` cannot be called.
        RunError: the work failed: it diverged, the disk is full, the method raised something, a process was lost. The
            last good state is kept.
        KeyboardInterrupt, Stopped: Ctrl-C, or SIGTERM or the like, ended it. The last good state is kept.

    Example:
        >>> import semcom
        >>> small = semcom.RunConfig("fedavg", clients=2, train=semcom.TrainConfig(rounds=2))
        >>> result = semcom.run(small)
        >>> [line["round"] for line in result.metrics], list(result.views)
        ([1, 2], ['global'])
    """
    return carry_out_run(resolve_setup(config), on_round, observe, profile, progress, again, track)


@reset_torch()
def carry_out_run(
    setup: Setup,
    on_round: OnRound | None = None,
    observe: Observer | None = None,
    profile: bool = False,
    progress: bool = False,
    again: bool = False,
    track: Sequence[str] | str = (),
) -> Result:
    """Carry out the result of `resolve_setup`; see `run`."""
    _check_run_callables(setup.config, on_round, observe)
    bar = RoundProgress(setup.config.train.rounds, list_metrics(setup.config.task)[0]) if progress else None
    tracking = Tracking(track if launched_rank() == 0 else (), setup.config)
    told: list[Any] = [each for each in (bar, on_round, tracking if track else None) if each is not None]

    def tell(line: dict[str, Any]) -> None:
        for each in told:
            each(line)

    with bar or nullcontext(), tracking:
        result = _train(setup, tell if told else None, observe, profile, again)
        tracking.complete(result)
    return result


def _train(setup: Setup, on_round: OnRound | None, observe: Observer | None, profile: bool, again: bool) -> Result:
    config = setup.config
    folder = Folder(Path(config.out), config, again) if config.out is not None and launched_rank() == 0 else None
    if folder is not None:
        folder.check()
    device = find_device(config.device)
    clock = Clock(profile, device)
    loop: Loop | None = None
    try:
        with raise_on_stop_signals(), watch_reads() as reads:
            with clock("setup"), limit_memory():
                keep_freed_memory()
                images = read_run_images(config)
                check_model_limits(config, images.members, device)
                artifacts.check_artifacts(config, images.members)
                check_patience(config, images.members)
            others = start_ranks(
                config.processes, "semcom.runs.rounds.runner:run_as_rank", lambda: json.dumps(to_dict(config)).encode()
            )
            with folder.open() if folder is not None else nullcontext(), others as ranks, limit_memory():
                for caution in setup.cautions if ranks.rank == 0 else ():
                    LOG.warning(caution)
                loop = Loop(setup, images, folder, on_round if ranks.rank == 0 else None, clock, ranks, observe)
                if folder is not None:
                    folder.config = add_read_inputs(config, {**setup.reads, **reads})
                return loop.run()
    except ConfigError:
        raise
    except (KeyboardInterrupt, Stopped) as stop:
        if loop is not None:
            stop.add_note(f"last good state: {loop.kept()}")
        raise
    except (Exception, SystemExit) as error:  # SystemExit: own code that calls sys.exit
        if loop is None and isinstance(error, SystemExit):
            raise RunError(f"set-up: {describe_failure(error)}") from error
        if loop is None or (isinstance(error, RunError) and not isinstance(error, NEEDS_CONTEXT)):
            raise
        raise RunError(f"{loop.where()}: {describe_failure(error)}; last good state: {loop.kept()}") from error


def _check_run_callables(config: Resolved, on_round: object, observe: object) -> None:
    """Raise ConfigError for an argument that cannot be called, and for an observer of several processes."""
    if on_round is not None and not callable(on_round):
        raise ConfigError(
            f"on_round: {show_value(on_round)} cannot be called; give a function of a line of metrics.jsonl"
        )
    if observe is not None and not callable(observe):
        raise ConfigError(
            f"observe: {show_value(observe)} cannot be called; give a function of two States and the world"
        )
    if observe is not None and max(config.processes, count_launched_ranks()) > 1:
        raise ConfigError("processes: a run of several cannot be observed; give 1")


@reset_torch()
def run_as_rank(ranks: Team, payload: bytes) -> None:
    """Do another process's share of a run: all but the folder. `payload` is the configuration as JSON."""
    logging.getLogger("semcom.data").setLevel(logging.ERROR)  # the process that started this one has said it
    setup = resolve_setup(from_dict(json.loads(payload)))
    keep_freed_memory()
    Loop(setup, read_run_images(setup.config), None, None, Clock(), ranks).run()
