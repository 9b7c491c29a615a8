"""Independent runs in parallel processes: joblib with loky on one machine, with Ray on a cluster."""

from __future__ import annotations

import importlib.util
import traceback
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any

from joblib import Parallel, delayed, parallel_config

from experiments.base import Train
from experiments.progress import SweepProgress, is_finished, run_folder
from semcom.config import ConfigError, RunConfig, RunError, from_dict, to_dict
from semcom.files import ERROR, write_atomically
from semcom.runs.folder import BusyError

BACKENDS = ("loky", "ray")
"""joblib backends: processes of this machine; a Ray cluster, whose machines must all see the results' folder."""


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


def carry_out(runs: Mapping[str, RunConfig], *, jobs: int, backend: str, train: Train) -> dict[str, str]:
    """Carry out what is not finished, in the given order; return hash -> one-line error of the runs that failed.

    A run that is killed takes joblib's pool with it. The runs that had begun are then repeated each in a pool of its
    own, which shows the one to blame, and the others go on in parallel.

    Args:
        runs: hash -> resolved configuration, with the run's folder as its `out`.
        jobs: runs at a time; with 1 they run in this process.
        backend: one of `BACKENDS`.
        train: function that carries out one run.
    """
    with SweepProgress(runs) as progress:

        def pool(configs: Sequence[RunConfig]) -> str:
            return _pool(configs, jobs, backend, train, progress)

        broken = pool(progress.waiting())
        while broken:
            begun = [config for config in progress.waiting() if run_folder(config).is_dir()]
            for config in begun:
                progress.fail(config, pool([config]) or broken)
            if not begun:
                break
            broken = pool(progress.waiting())
        for config in progress.waiting():
            unknown = f"{run_folder(config)} has no result: another process has it, or it could not be written"
            progress.fail(config, broken or unknown)
        return progress.errors


def _pool(configs: Sequence[RunConfig], jobs: int, backend: str, train: Train, progress: SweepProgress) -> str:
    """Carry out the runs, `jobs` at a time; return what broke the pool, or nothing."""
    broken = ""
    try:
        with _backend(backend):
            parallel = _Parallel(n_jobs=jobs, batch_size=1, pre_dispatch="all")
            parallel.progress = progress
            parallel(delayed(_attempt)(to_dict(config), train) for config in configs)
    except Exception as error:
        broken = f"the process ended without a result: {_one_line(error)}"
    progress.look()
    return broken


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


def _attempt(content: Mapping[str, Any], train: Train) -> None:
    """Carry out one run in a worker; a failure is left in the run's folder and does not stop the others.

    The configuration comes as plain values: classes of a plug-in's options are not known here before it is loaded.
    """
    config = from_dict(content)
    folder = run_folder(config)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        train(config)
        if not is_finished(config):
            raise RunError("the run ended without a summary")
    except BusyError:  # another sweep has this run, and its folder is not ours to write to
        return
    except Exception as error:
        text = f"{_one_line(error)}\n\n{traceback.format_exc()}"
        with suppress(OSError):  # a full disk: the sweep then says so
            write_atomically(folder / ERROR, text)


def _one_line(error: Exception) -> str:
    """Return the first line of an exception's text, after its type."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
