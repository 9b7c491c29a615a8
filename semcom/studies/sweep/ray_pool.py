"""Independent runs as tasks of Ray, on the machines of a cluster that share the folder of the results."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import platform
import signal
import socket
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from semcom.config import ConfigError, RunConfig, RunError, run_hash, to_dict
from semcom.files import SWEEP
from semcom.runs.folder.lock import BusyError
from semcom.runs.folder.versions import read_commit, read_versions
from semcom.runs.request.plugins import digest_plugin, load_plugins
from semcom.runs.request.stop import STATUS, Stopped, defer_stop_signals
from semcom.studies.experiment import Train
from semcom.studies.results.outcome import locate_run_folder
from semcom.studies.sweep.attempt import attempt_run, format_attempt_error
from semcom.studies.sweep.progress import SweepProgress

LOG = logging.getLogger(__name__)
TRIES, NODES = 2, 10
"""Number of times that a run is tried again after its worker died, and after a whole node did."""
LOCK_S = 120.0
"""Seconds that a network file system may need to take a lock from a machine that is gone; NFS 4: twice its lease."""
SEEN_S = 90.0
"""Seconds that it may need to show here what another machine has written; NFS remembers folders for 60."""
PATIENCE_S = 8.0
"""Seconds that workers have to keep their state when a signal ends the sweep; schedulers often give 30."""
KNOCK_S = 10.0
"""Seconds in which the cluster has to answer."""
TICK_S = 1.0
"""Seconds between looks for what other machines have written."""
LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Variable that keeps Ray on the loopback address if it is 0 when Ray is first imported. Otherwise Ray's servers, which
run what they are sent, listen on all interfaces: Ray 2.60 replaces a 127.0.0.1 that it is given by another address."""
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Variables of all workers: a run has one thread, as with loky."""


def carry_out_in_ray(
    progress: SweepProgress, train: Train, jobs: int | None, limit_minutes: float | None, gpus: float | None
) -> dict[str, str]:
    """Carry out the unfinished runs; return hash -> why a run has no outcome.

    A run whose worker or node is lost is tried again, where there is room, and goes on from its checkpoint.

    Args:
        progress: of the sweep.
        train: function that carries out one run.
        jobs: largest number of runs at a time (None: as many as the CPUs and GPUs of the cluster allow).
        limit_minutes: time after which a run is stopped.
        gpus: GPUs that are kept for each run, or a part of one (None: a run sees no GPU).

    Raises:
        ConfigError: there is no such cluster, no machine of it has what a run needs, or runs name another device.
        RunError: the cluster has ended.
    """
    if not progress.waiting():
        return {}
    _check_devices(progress, gpus)
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")  # or Ray would tell of lost workers among our results
    before, alone = "ray" in sys.modules and os.environ.get(LOOPBACK) != "0", _is_alone()
    # Ray reads the variable when it is imported, so it is set before.
    if alone and not before:
        os.environ[LOOPBACK] = "0"
    import ray

    if alone and before and not ray.is_initialized():
        raise ConfigError(f"backend: Ray was imported without {LOOPBACK}=0, and would listen to the network; {START}")
    with _connect(alone):
        _check_room(progress, gpus)
        hidden = {} if gpus else {"CUDA_VISIBLE_DEVICES": ""}
        environment = {"env_vars": ENVIRONMENT | hidden}
        # `_Tasks` repeats lost runs behind the others, and counts them; Ray would repeat them at once, unseen.
        needs = {"num_gpus": gpus or 0, "max_retries": 0, "runtime_env": environment}
        run = ray.remote(_carry_out)

        version, place = _read_version(), os.getcwd()
        _check_nodes(progress, version, place, environment)

        def submit(config: RunConfig) -> Any:
            task = run.options(num_cpus=config.processes, name=f"semcom {run_hash(config)}", **needs)
            return task.remote(to_dict(config), train, limit_minutes, place, version.partition(" ")[0])

        room = max(1, _count_places(gpus))
        progress.jobs = min(jobs or room, room)
        tasks = _Tasks(progress, submit, jobs)
        try:
            tasks.carry_out()
        except ray.exceptions.RayError as error:
            raise RunError(f"backend: the Ray cluster has ended ({format_attempt_error(error)}); {AGAIN}") from None
        except BaseException:
            tasks.stop()
            raise
        return tasks.why


def _count_places(gpus: float | None) -> int:
    """Count the runs of one process that the cluster has room for just now."""
    import ray

    there = ray.cluster_resources()
    return int(min([there.get("CPU", 0.0), *([there.get("GPU", 0.0) / gpus] if gpus else [])]))


START = "start it yourself (ray start --head), or take loky"
AGAIN = "the same command goes on where it stopped"


class _Tasks:
    """The tasks of a sweep.

    Args:
        progress: whose runs are carried out.
        submit: gives a run to Ray, and returns its task.
        jobs: largest number of tasks at a time (None: any).
    """

    def __init__(self, progress: SweepProgress, submit: Callable[[RunConfig], Any], jobs: int | None) -> None:
        self.progress, self.submit, self.jobs = progress, submit, jobs
        self.why: dict[str, str] = {}
        self._queue = deque(progress.waiting())
        self._active: dict[Any, RunConfig] = {}
        self._ended: dict[str, tuple[float, str]] = {}  # hash -> until when its result is looked for, and its node
        self._lost: Counter[tuple[str, bool]] = Counter()

    def carry_out(self) -> None:
        """Keep tasks running until each run has ended, and report it as soon as it does."""
        import ray

        while self._queue or self._active or self._ended:
            with defer_stop_signals():  # Ray would turn the exception of a signal into another one
                while self._queue and (self.jobs is None or len(self._active) < self.jobs):
                    config = self._queue.popleft()
                    self._active[self.submit(config)] = config
                if self._active:
                    for task in ray.wait(list(self._active), num_returns=1, timeout=TICK_S)[0]:
                        self._end(task)
                else:
                    time.sleep(TICK_S)
                self._look()

    def stop(self) -> None:
        """Let the runs keep their state and end; a worker that takes too long is killed."""
        import ray

        tasks = list(self._active)
        for task in tasks:
            ray.cancel(task)
        for late in ray.wait(tasks, num_returns=len(tasks), timeout=PATIENCE_S)[1] if tasks else ():
            ray.cancel(late, force=True)

    def _end(self, task: Any) -> None:
        """Take note of a task that has ended, and queue its run again where it was lost."""
        import ray

        config = self._active.pop(task)
        key = run_hash(config)
        try:
            node, reason = ray.get(task)
        except ray.exceptions.RayTaskError as error:  # not the run's own, which lies in its folder
            self.why[key] = f"no task of Ray could carry it out: {format_attempt_error(error.cause or error)}"
        except ray.exceptions.LocalRayletDiedError:  # and with it what gives tasks to others
            raise
        except ray.exceptions.RayError as error:
            self._again(config, error)
        else:
            if reason:
                self.why[key] = reason
            else:
                self._ended[key] = time.monotonic() + SEEN_S, node

    def _again(self, config: RunConfig, error: Exception) -> None:
        """Queue a run whose worker or node was lost behind the others, as a run beside it may have caused the loss."""
        import ray

        self.progress.look()  # it may have ended before it was lost
        if config not in self.progress.waiting():
            return
        key, node = run_hash(config), isinstance(error, ray.exceptions.NodeDiedError)
        self._lost[key, node] += 1
        if self._lost[key, node] > (NODES if node else TRIES):
            self.progress.fail(config, f"the process ended without a result: {format_attempt_error(error)}")
        else:
            LOG.warning("the %s of run %s is lost; it is tried again", "machine" if node else "process", key)
            self._queue.append(config)

    def _look(self) -> None:
        """Report the ended runs; a run without a visible outcome after `SEEN_S` has left it elsewhere."""
        self.progress.look()
        waiting = {run_hash(config): config for config in self.progress.waiting()}
        for key, (until, node) in list(self._ended.items()):
            if key not in waiting:
                del self._ended[key]
            elif time.monotonic() > until:
                del self._ended[key]
                self.why[key] = f"{node} has ended it, but {locate_run_folder(waiting[key])} shows nothing of it here"


def _read_version() -> str:
    """Read the version of semcom, with the commit of a clone."""
    return f"{read_versions().get('semcom')} {read_commit() or ''}".strip()


def _find_lacks(version: str, plugins: Sequence[str], contents: Mapping[str, str], place: str) -> tuple[str, str]:
    """Find what keeps this machine from a sweep; return the machine's name and the reason, empty without one.

    Args:
        version: of semcom where the sweep was started, with or without its commit.
        plugins: of the sweep's runs.
        contents: their digests.
        place: as of `_carry_out`.
    """
    node = platform.node() or "a machine"
    own = _read_version()
    if version not in (own, own.partition(" ")[0]):
        return node, f"it has semcom {own}, and the sweep's machine {version}; install the same"
    with contextlib.suppress(OSError):
        os.chdir(place)
    for plugin in plugins:
        try:
            load_plugins([plugin])
        except ConfigError as error:
            return node, str(error)
        if digest_plugin(plugin) != contents.get(plugin, digest_plugin(plugin)):
            return node, f"plugin: {plugin!r} is another one there"
    return node, ""


def _carry_out(
    content: Mapping[str, Any], train: Train, limit_minutes: float | None, place: str, version: str
) -> tuple[str, str]:
    """Carry out one run in a worker of Ray; return its machine's name, and why the run has no outcome.

    Args:
        content: as of `attempt_run`.
        train: as of `attempt_run`.
        limit_minutes: as of `attempt_run`.
        place: folder in which the sweep was started: where it is here too, relative paths are taken from it.
        version: of semcom there, for a machine that has joined since; its clone may have been edited since.
    """
    node, why = _find_lacks(version, content["plugins"], content["contents"], place)
    if why:
        return node, f"{node}: {why}"
    until = time.monotonic() + LOCK_S
    folder = Path(str(content["out"])).parent
    if not (folder / SWEEP).exists():
        return node, f"{folder} is not the folder of the sweep on {node}; give one that all machines share"
    while True:
        try:
            with _restore_signals():
                attempt_run(content, train, limit_minutes)
            return node, ""
        except BusyError as error:  # perhaps one of a lost machine, whose lock is not free yet
            if time.monotonic() > until:
                return node, str(error)
            time.sleep(TICK_S)
        except OSError as error:
            return node, f"{folder} takes no more files on {node} ({error.strerror})"
        except Stopped:
            os._exit(STATUS)  # its state is kept; the sweep tries it again


@contextlib.contextmanager
def _restore_signals() -> Iterator[None]:
    """Give signals back their usual handlers, so that a run keeps its state; Ray's would end the worker.

    Its cancelling a task is a Ctrl-C of Python's, which does nothing where the shell has Ctrl-C ignored.
    """
    usual: dict[int, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, signal.SIG_DFL if old is None else old)


@contextlib.contextmanager
def _connect(alone: bool) -> Iterator[None]:
    """Connect to a cluster: that of RAY_ADDRESS, or the one that this machine is in, or `alone` to a new one.

    A connection that is there already is used, and stays.

    Raises:
        ConfigError: the cluster does not answer.
    """
    import ray

    if ray.is_initialized():
        yield
        return
    main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    try:
        _try_address(os.environ.get("RAY_ADDRESS", ""))
        address = "local" if alone else os.environ.get("RAY_ADDRESS") or "auto"
        ray.init(address, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        where = os.environ.get("RAY_ADDRESS") or "the last one that was started on this machine"
        raise ConfigError(
            f"backend: the Ray cluster does not answer ({where}: {format_attempt_error(error)})"
        ) from None
    finally:
        if main:  # Ray takes SIGTERM for itself
            signal.signal(signal.SIGTERM, before)
    try:
        if alone and not ipaddress.ip_address(ray.util.get_node_ip_address()).is_loopback:
            raise ConfigError(f"backend: Ray {ray.__version__} cannot be kept off the network; {START}")
        yield
    finally:
        ray.shutdown()


def _is_alone() -> bool:
    """Check whether a sweep has to start Ray itself: no address is given, and no node runs on this machine."""
    address = os.environ.get("RAY_ADDRESS", "")
    names = (each.info["name"] for each in psutil.process_iter(["name"]))  # None of one that has just ended
    return address == "local" or not (address or "raylet" in names)


def _try_address(address: str) -> None:
    """Raise OSError if no server answers at HOST:PORT; Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCK_S).close()


def _check_devices(progress: SweepProgress, gpus: float | None) -> None:
    """Raise ConfigError for a device that Ray does not give to a run."""
    for device in {config.device for config in progress.waiting()} - {"auto"}:
        if gpus and device != "cuda":
            raise ConfigError(f"device: {device!r} with --gpus-per-run, for which Ray chooses the GPU; leave it out")
        if not gpus and device != "cpu":
            raise ConfigError(f"device: {device!r} on a cluster needs a share of it for each run: --gpus-per-run 0.5")


def _check_room(progress: SweepProgress, gpus: float | None) -> None:
    """Raise ConfigError if no machine has the resources of a run; Ray would wait forever."""
    import ray

    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    total = {name: sum(node.get(name, 0) for node in nodes) for name in ("CPU", "GPU")}
    LOG.info("Ray: machines %d, CPUs %g, GPUs %g", len(nodes), total["CPU"], total["GPU"])
    for cpus in {config.processes for config in progress.waiting()}:
        fit = [node for node in nodes if node.get("CPU", 0) >= cpus]
        if not fit:
            raise ConfigError(f"processes: no machine of the Ray cluster has {cpus} CPUs for a run")
        if not any(node.get("GPU", 0) >= (gpus or 0) for node in fit):
            raise ConfigError(f"gpus-per-run: no machine of the Ray cluster has {gpus:g} GPUs beside {cpus} CPUs")


def _check_nodes(progress: SweepProgress, version: str, place: str, environment: Mapping[str, Any]) -> None:
    """Raise ConfigError for a machine with another semcom, or without a plug-in; runs are then spared from it."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    contents = {path: digest for config in progress.waiting() for path, digest in config.contents.items()}
    plugins = list(dict.fromkeys(plugin for config in progress.waiting() for plugin in config.plugins))
    look = ray.remote(_find_lacks)
    tasks = {}
    for node in ray.nodes():
        if node["Alive"]:
            there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            task = look.options(num_cpus=0, max_retries=0, scheduling_strategy=there, runtime_env=environment)
            tasks[task.remote(version, plugins, contents, place)] = node["NodeManagerHostname"]
    for task, name in tasks.items():
        try:
            why = ray.get(task)[1]
        except ray.exceptions.RayTaskError as error:  # an older semcom, or none
            why = f"it has no semcom of this version ({format_attempt_error(error.cause or error)}); install the same"
        except ray.exceptions.RayError:  # it has just been lost
            continue
        if why:
            raise ConfigError(f"backend: the machine {name} of the Ray cluster cannot take part: {why}")
