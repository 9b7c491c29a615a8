"""Independent runs in parallel processes: joblib with loky on one machine, with Ray on a cluster."""

from __future__ import annotations

import importlib.util
import os
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import psutil
from joblib import Parallel, delayed, parallel_config

from experiments.base import Train
from experiments.progress import SweepProgress, run_folder
from semcom.config import ConfigError, Resolved, RunConfig, RunError, from_dict, run_hash, to_dict
from semcom.engine.host.orphan import end_with
from semcom.files import ERROR, write_atomically
from semcom.runs.folder import BusyError, read_summary
from semcom.runs.stop import STATUS, Stopped, first, stoppable, time_limit

BACKENDS = ("loky", "ray")
"""joblib backends: processes of this machine; a Ray cluster, whose machines must all see the results' folder."""

TRIES = 2
"""Number of times that a run is repeated alone after its process died."""
PATIENCE_S = 8.0
"""Seconds that workers have to keep their state when a signal ends the sweep; schedulers often give 30."""
ROOM = 1 << 20
"""Bytes that have to fit on the disk for a run to start."""


def check_workers(jobs: int, backend: str) -> None:
    """Check the number of processes and the backend.

    Raises:
        ConfigError: one that cannot be had.
    """
    if not isinstance(jobs, int) or jobs < 1:
        raise ConfigError(f"jobs: {jobs!r} is not a whole number of at least 1")
    if backend not in BACKENDS:
        raise ConfigError(f"backend: {backend!r} is unknown: known are {', '.join(BACKENDS)}")
    if backend == "ray" and importlib.util.find_spec("ray") is None:
        raise ConfigError("backend: 'ray' is not installed; pip install 'semcom[ray]', or use loky")


def carry_out(
    runs: Mapping[str, Resolved],
    *,
    jobs: int,
    backend: str,
    train: Train,
    limit_minutes: float | None = None,
    labels: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Carry out what is not finished, in the given order; return hash -> one-line error of the runs that failed.

    A run that is killed takes joblib's pool with it. The runs that had begun are then repeated, each in a pool of its
    own, which shows the one to blame, and the others go on in parallel. Where the disk is full, no further run starts.

    Args:
        runs: hash -> resolved configuration, with the run's folder as its `out`.
        jobs: runs at a time; with 1 they run in this process.
        backend: one of `BACKENDS`.
        train: function that carries out one run.
        limit_minutes: time after which a run is stopped, with its state kept (None: none).
        labels: hash -> what tells a run from the others, see `SweepProgress`.
    """
    with SweepProgress(runs, labels, jobs) as progress, first(_end_workers):

        def pool(configs: Sequence[RunConfig]) -> str:
            calls = [delayed(_attempt)(to_dict(config), train, os.getpid(), limit_minutes) for config in configs]
            return _pool(calls, jobs, backend, progress)

        broken, left = pool(progress.waiting()), TRIES
        while broken and left:
            begun = [config for config in progress.waiting() if run_folder(config).is_dir()]
            for config in begun:
                progress.fail(config, _alone(config, pool) or broken)
            if not begun:  # a pool may break before any run begins: a worker may die while it is idle
                left -= 1
            broken = pool(progress.waiting())
        if full := _full(progress.waiting()):
            progress.leave(full)
        for config in progress.waiting():
            unknown = f"{run_folder(config)} has no result: another process has it, or it could not be written"
            progress.fail(config, broken or unknown)
        return progress.errors


def _alone(config: RunConfig, pool: Callable[[Sequence[RunConfig]], str]) -> str:
    """Repeat a run whose process died, a few times: it may have died of others. Return what broke the last pool."""
    broken = ""
    for _ in range(TRIES):
        broken = pool([config])
        if not broken:
            break
    return broken


def _full(configs: Sequence[RunConfig]) -> str:
    """Return the line about a disk that takes nothing more, if there are runs for which that holds."""
    for config in configs:
        try:
            _probe(run_folder(config).parent)
        except OSError as error:
            return f"{run_folder(config).parent} takes no more files ({error.strerror})"
    return ""


def _probe(folder: Path) -> None:
    """Write as much as a small run needs, and remove it. Raises OSError where the disk is full."""
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(bytes(ROOM))
        file.flush()
        os.fsync(file.fileno())


def _pool(calls: Sequence[Any], jobs: int, backend: str, progress: SweepProgress) -> str:
    """Carry out the calls, `jobs` at a time; return what broke the pool, or nothing."""
    broken = ""
    try:
        with _backend(backend):
            parallel = _Parallel(n_jobs=jobs, batch_size=1, pre_dispatch="all")
            parallel.progress = progress
            parallel(calls)
    except Exception as error:
        broken = f"the process ended without a result: {_one_line(error)}"
    progress.look()
    return broken


def _end_workers() -> None:
    """Let the runs of all workers keep their state and end; a worker that takes too long is killed."""
    workers = [child for child in psutil.Process().children(recursive=True) if not _is_tracker(child)]
    for worker in workers:
        with suppress(psutil.Error):
            worker.terminate()
    for late in psutil.wait_procs(workers, timeout=PATIENCE_S)[1]:
        with suppress(psutil.Error):
            late.kill()


def _is_tracker(process: psutil.Process) -> bool:
    """Return whether a process is loky's, which cleans up after the workers and ends by itself."""
    try:
        return any("resource_tracker" in word for word in process.cmdline())
    except psutil.Error:
        return False


def _backend(name: str) -> AbstractContextManager[Any]:
    """Return joblib's settings: one thread in each process (Ray's default too)."""
    if name == "loky":
        return parallel_config(backend="loky", inner_max_num_threads=1)
    from ray.util.joblib import register_ray

    register_ray()
    return parallel_config(backend="ray")


class _Parallel(Parallel):
    """joblib's Parallel that tells `progress` whenever a run ends.

    Ray's backend cannot yield results as they come, so what became of a run is read from its folder.
    """

    progress: SweepProgress

    def print_progress(self) -> None:
        """Look at the folders of the runs; joblib calls this after every task."""
        self.progress.look()


def _attempt(content: Mapping[str, Any], train: Train, parent: int, limit_minutes: float | None) -> None:
    """Carry out one run in a worker; a failure is left in the run's folder and does not stop the others.

    Args:
        content: the configuration as plain values: a plug-in's classes are not known here before it is loaded.
        train: function that carries it out.
        parent: process of the sweep, with which a worker ends; this one, where there are no workers.
        limit_minutes: as of `carry_out`.
    """
    if parent != os.getpid():
        end_with(parent, look=True)  # joblib may have started it from a thread of its own
    config = from_dict(content)
    folder = run_folder(config)
    try:
        _probe(folder.parent)
    except OSError:
        return  # the sweep says so, once
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with stoppable(), time_limit(limit_minutes):
            train(config)
        if read_summary(folder, run_hash(config)) is None:
            raise RunError("the run ended without a summary")
    except BusyError:  # another sweep has this run, and its folder is not ours to write to
        return
    except (KeyboardInterrupt, Stopped):
        if parent != os.getpid():
            os._exit(STATUS)  # without a next run; its state is kept
        raise
    except Exception as error:
        text = f"{_one_line(error)}\n\n{traceback.format_exc()}"
        with suppress(OSError):  # a full disk: the sweep then says so
            write_atomically(folder / ERROR, text)


def _one_line(error: Exception) -> str:
    """Return the first line of an exception's text, after its type."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
