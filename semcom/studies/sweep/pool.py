"""Independent runs in parallel processes: joblib with loky on one machine, tasks of Ray on a cluster."""

from __future__ import annotations

import logging
import multiprocessing
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psutil
from joblib import Parallel, delayed, parallel_config

from semcom.channels.options import POSITIVE
from semcom.config import ConfigError, Resolved, RunConfig, run_hash, to_dict
from semcom.config.checks import require_in_config
from semcom.engine.host.orphan import exit_with_parent
from semcom.packages import check_extra_package
from semcom.runs.folder.lock import BusyError
from semcom.runs.request.stop import STATUS, Stopped, act_before_stop
from semcom.runs.rounds.tracking import parse_trackers
from semcom.studies.experiment import Train
from semcom.studies.results.outcome import locate_run_folder
from semcom.studies.sweep import attempt, ray_pool
from semcom.studies.sweep.progress import SweepProgress

LOG = logging.getLogger(__name__)
RATES = logging.getLogger("semcom.engine.air.rates")
"""What its runs say of their rates is the same in most of a study, and said once in it."""
BACKENDS = ("loky", "ray")
"""loky: processes of this machine; ray: a cluster, whose machines must all see the results' folder."""
TRIES = 2
"""Number of times that a run is repeated alone after its process died."""
MANAGER = "ExecutorManagerThread"
"""The name of the thread in which loky gives out tasks."""


def check_workers(
    jobs: int | None,
    backend: str,
    gpus_per_run: float | None = None,
    limit_minutes: float | None = None,
    track: Sequence[str] | str = (),
) -> None:
    """Check how runs are carried out: their number at a time, the backend, what each takes of it, limit and trackers.

    Raises:
        ConfigError: one that cannot be had.
    """
    if jobs is not None and (not isinstance(jobs, int) or jobs < 1):
        raise ConfigError(f"jobs: {jobs!r} is not a whole number of at least 1")
    if backend not in BACKENDS:
        raise ConfigError(f"backend: {backend!r} is unknown: known are {', '.join(BACKENDS)}")
    if backend == "ray":
        check_extra_package("backend: 'ray'", "ray", "ray")
    require_in_config("gpus-per-run", gpus_per_run, POSITIVE)
    require_in_config("limit-minutes", limit_minutes, POSITIVE)
    parse_trackers(track)
    if gpus_per_run is not None and backend != "ray":
        raise ConfigError(f"gpus-per-run: {gpus_per_run:g} is for the backend ray; leave it out, or give --backend ray")
    if gpus_per_run is not None and gpus_per_run > 1 and gpus_per_run != int(gpus_per_run):
        raise ConfigError(f"gpus-per-run: {gpus_per_run:g} is neither a part of a GPU nor whole ones; give 0.5, 1 or 2")


def carry_out_in_pool(
    runs: Mapping[str, Resolved],
    *,
    jobs: int | None,
    backend: str,
    train: Train,
    limit_minutes: float | None = None,
    gpus_per_run: float | None = None,
    labels: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Carry out the unfinished runs, in the given order; return hash -> one-line error of the failed runs.

    A run whose process dies is tried again, a few times. Where the disk is full, no further run starts.

    Args:
        runs: hash -> resolved configuration, with the run's folder as its `out`.
        jobs: runs at a time (None: 1 with loky, all that fit with ray); with loky, one runs in this process.
        backend: one of `BACKENDS`.
        train: function that carries out one run.
        limit_minutes: time after which a run is stopped, with its state kept (None: none).
        gpus_per_run: GPUs that ray keeps for each run, or a part of one (None: none).
        labels: hash -> label of the run, see `SweepProgress`.
    """
    with SweepProgress(runs, labels, jobs or 1) as progress, _hear_once(passes=True):
        if backend == "ray":
            why = ray_pool.carry_out_in_ray(progress, train, jobs, limit_minutes, gpus_per_run)
        else:
            why = _carry_out_in_loky(progress, train, jobs or 1, limit_minutes)
        if full := _describe_full_disk(progress.waiting()):
            progress.leave(full)
        for config in progress.waiting():
            unknown = f"{locate_run_folder(config)} has no result: another process has it, or it could not be written"
            progress.fail(config, why.get(run_hash(config), unknown))
        return progress.errors


def _describe_full_disk(configs: Sequence[RunConfig]) -> str:
    """Describe a full disk in a line; empty where each run has room."""
    for config in configs:
        try:
            attempt.probe_disk(locate_run_folder(config).parent)
        except OSError as error:
            return f"{locate_run_folder(config).parent} takes no more files ({error.strerror})"
    return ""


def _carry_out_in_loky(progress: SweepProgress, train: Train, jobs: int, limit_minutes: float | None) -> dict[str, str]:
    """Carry out the unfinished runs in processes of this machine; return hash -> why a run has no outcome.

    A run that is killed takes joblib's pool with it. The runs that had begun are then repeated, each in a pool of its
    own, which isolates the faulty run, and the others go on in parallel.
    """

    def pool(configs: Sequence[RunConfig]) -> str:
        calls = [delayed(_carry_out)(os.getpid(), to_dict(config), train, limit_minutes) for config in configs]
        return _run_calls(calls, jobs, progress)

    with act_before_stop(_end_workers):
        broken, left = pool(progress.waiting()), TRIES
        while broken and left:
            begun = [config for config in progress.waiting() if locate_run_folder(config).is_dir()]
            for config in begun:
                progress.fail(config, _repeat_alone(config, pool) or broken)
            if not begun:  # a pool may break before any run begins: a worker may die while it is idle
                left -= 1
            broken = pool(progress.waiting())
    return {run_hash(config): broken for config in progress.waiting()} if broken else {}


def _repeat_alone(config: RunConfig, pool: Callable[[Sequence[RunConfig]], str]) -> str:
    """Repeat a run whose process died, a few times: others may have caused it. Return the last pool's error, if any."""
    broken = ""
    for _ in range(TRIES):
        broken = pool([config])
        if not broken:
            break
    return broken


def _run_calls(calls: Sequence[Any], jobs: int, progress: SweepProgress) -> str:
    """Carry out the calls, `jobs` at a time; return the error that broke the pool, empty without one."""
    broken = ""
    if not _can_share():
        if jobs > 1:
            LOG.warning("jobs: this machine lets processes share nothing (see /dev/shm); runs go one at a time")
        for function, arguments, keywords in calls:
            function(*arguments, **keywords)
            progress.look()
        return broken
    try:
        with parallel_config(backend="loky", inner_max_num_threads=1), warnings.catch_warnings():
            # loky ends a worker whose memory has grown, and starts another: nothing that anybody has to know
            warnings.filterwarnings("ignore", "A worker stopped while some jobs were given to the executor")
            # joblib would put several short runs into one task, and a lost worker would take them all with it.
            parallel = _Parallel(n_jobs=jobs, batch_size=1, pre_dispatch="all")
            parallel.progress = progress
            for said in parallel(calls):
                for text in said:
                    RATES.warning(*text)
    except Exception as error:
        broken = f"the process ended without a result: {attempt.format_attempt_error(error)}"
    progress.look()
    return broken


def _can_share() -> bool:
    """Check that the system can share memory, as joblib's processes need it; without a writable /dev/shm it cannot."""
    try:
        multiprocessing.get_context("spawn").Semaphore()
    except (OSError, ImportError):
        return False
    return True


def _end_workers() -> None:
    """Let the runs of all workers keep their state and end; a worker that takes too long is killed.

    Other processes go on: a notebook may have started some.
    """
    _silence_manager()
    workers = list(_find_workers())
    for worker in workers:
        with suppress(psutil.Error):
            worker.terminate()
    for late in psutil.wait_procs(workers, timeout=ray_pool.PATIENCE_S)[1]:
        with suppress(psutil.Error):
            late.kill()


def _silence_manager() -> None:
    """Leave out the traceback of loky's thread, which may look for a task that has just been taken back."""
    usual = threading.excepthook

    def hook(told: threading.ExceptHookArgs) -> None:
        if told.thread is None or told.thread.name != MANAGER:
            usual(told)

    threading.excepthook = hook


def _find_workers() -> Iterator[psutil.Process]:
    """Find loky's processes that carry out runs, and those which these have started."""
    for child in psutil.Process().children():
        with suppress(psutil.Error):  # it has ended
            if any("loky.backend.popen" in word for word in child.cmdline()):
                yield from (child, *child.children(recursive=True))


class _Parallel(Parallel):
    """joblib's Parallel that updates `progress` whenever a run ends."""

    progress: SweepProgress

    def print_progress(self) -> None:
        """Look at the folders of the runs; joblib calls this after every task."""
        self.progress.look()


def _carry_out(
    parent: int, content: Mapping[str, Any], train: Train, limit_minutes: float | None
) -> list[tuple[Any, ...]]:
    """Carry out one run in a worker, which ends with the process of the sweep; without workers, in that process.

    Returns what a worker's run said of its rates, for that process to say: texts with their arguments.
    """
    if parent != os.getpid():
        exit_with_parent(parent, look=True)  # joblib may have started it from a thread of its own
        logging.getLogger("semcom.data").setLevel(logging.ERROR)  # the sweep has said it
    try:
        with _hear_once(passes=parent == os.getpid()) as said, suppress(BusyError, OSError):  # the sweep says so
            attempt.attempt_run(content, train, limit_minutes)
    except (KeyboardInterrupt, Stopped):
        if parent != os.getpid():
            os._exit(STATUS)  # without a next run; its state is kept
        raise
    return [(record.msg, *(record.args or ())) for record in said.values()]


@contextmanager
def _hear_once(passes: bool) -> Iterator[dict[str, logging.LogRecord]]:
    """Keep the first line of each text that runs say of their rates; only these pass, or none."""
    said: dict[str, logging.LogRecord] = {}

    def is_first(record: logging.LogRecord) -> bool:
        return said.setdefault(str(record.msg), record) is record and passes

    RATES.addFilter(is_first)
    try:
        yield said
    finally:
        RATES.removeFilter(is_first)
