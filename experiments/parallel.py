"""Independent runs in parallel processes: joblib with loky on one machine, with Ray on a cluster."""

from __future__ import annotations

import importlib.util
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

from joblib import Parallel, delayed, parallel_config

from experiments.progress import ERROR, Progress, is_finished, run_folder
from semcom.config import ConfigError, RunConfig, RunError
from semcom.files import write_atomically
from semcom.runs.folder import BusyError

BACKENDS = ("loky", "ray")
"""joblib backends: processes of this machine; a Ray cluster, whose machines must all see the results' folder."""

Runner = Callable[[RunConfig], object]
"""Trains one configuration and leaves summary.json in its `out`."""


def train(config: RunConfig) -> None:
    """`semcom.run` on one thread."""
    from semcom.runs.runner import run

    with one_thread():
        run(config)


@contextmanager
def one_thread() -> Iterator[None]:
    """Inside, torch uses one thread: a process per core beats threads for models this small."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def check_workers(jobs: int, backend: str) -> None:
    """Refuses a number of processes or a backend that cannot be had (ConfigError)."""
    if not isinstance(jobs, int) or jobs < 1:
        raise ConfigError(f"jobs: {jobs!r} is not a whole number of at least 1")
    if backend not in BACKENDS:
        raise ConfigError(f"backend: {backend!r} is unknown: known are {', '.join(BACKENDS)}")
    if backend == "ray" and importlib.util.find_spec("ray") is None:
        raise ConfigError("backend: 'ray' is not installed; pip install 'semcom[ray]', or use loky")


def carry_out(runs: Mapping[str, RunConfig], *, jobs: int, backend: str, runner: Runner = train) -> dict[str, str]:
    """Runs what is not finished, in the given order; returns hash -> one-line error of the runs that failed.

    A run that is killed takes joblib's pool with it. The runs that had begun are then repeated each in a pool of its
    own, which shows the one to blame, and the others go on in parallel.

    Args:
        runs: hash -> resolved configuration, with the run's folder as its `out`.
        jobs: runs at a time; with 1 they run in this process.
        backend: one of `BACKENDS`.
        runner: what trains one configuration.
    """
    with Progress(runs) as progress:

        def pool(configs: Sequence[RunConfig]) -> str:
            return _pool(configs, jobs, backend, runner, progress)

        broken = pool(progress.waiting())
        while broken:
            begun = [config for config in progress.waiting() if run_folder(config).is_dir()]
            for config in begun:
                progress.fail(config, pool([config]) or broken)
            broken = pool(progress.waiting()) if begun else ""
        for config in progress.waiting():
            progress.fail(
                config, f"{run_folder(config)} has no result: another process has it, or it could not be written"
            )
        return progress.errors


def _pool(configs: Sequence[RunConfig], jobs: int, backend: str, runner: Runner, progress: Progress) -> str:
    """Runs the configurations, `jobs` at a time; returns what broke the pool, or nothing."""
    broken = ""
    try:
        with _backend(backend):
            parallel = _Parallel(n_jobs=jobs, batch_size=1, pre_dispatch="all")
            parallel.progress = progress
            parallel(delayed(_attempt)(config, runner) for config in configs)
    except Exception as error:
        broken = f"the process ended without a result: {_one_line(error)}"
    progress.look()
    return broken


def _backend(name: str) -> AbstractContextManager[Any]:
    """joblib's settings: one thread in each process (Ray's default too)."""
    if name == "loky":
        return parallel_config(backend="loky", inner_max_num_threads=1)
    from ray.util.joblib import register_ray

    register_ray()
    return parallel_config(backend="ray")


class _Parallel(Parallel):
    """joblib's Parallel, telling `progress` whenever a run ends.

    Ray's backend cannot yield results as they come, so what became of a run is read from its folder.
    """

    progress: Progress

    def print_progress(self) -> None:
        """joblib calls this after every task."""
        self.progress.look()


def _attempt(config: RunConfig, runner: Runner) -> None:
    """One run in a worker; a failure is left in the run's folder and does not stop the others."""
    folder = run_folder(config)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        runner(config)
        if not is_finished(config):
            raise RunError("the run ended without a summary")
    except BusyError:  # another sweep has this run, and its folder is not ours to write to
        return
    except Exception as error:
        text = f"{_one_line(error)}\n\n{traceback.format_exc()}"
        with suppress(OSError):  # a full disk: the sweep then says so
            write_atomically(folder / ERROR, text)


def _one_line(error: Exception) -> str:
    """The first line of an exception's text, after its type."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
