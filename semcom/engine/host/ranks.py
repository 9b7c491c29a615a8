"""Processes that share the clients of one run: the work of a round is divided, the State is the same everywhere.

Every rank carries out the same method on the same State; in a `fit` each trains its part of the clients, and the
results are exchanged. So a method needs to know nothing of ranks, and the base station's work is done by all. The
processes are those of `torchrun`, or are started here, on this machine, with one thread each.

They exchange data, never code: a run's configuration as JSON, tensors, and plain containers. Processes that are started
here meet in a file that only this user can open, talk over the loopback interface, and prove their identity to each
other by words from that file. Any other connection is refused.
"""

from __future__ import annotations

import importlib
import io
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from signal import SIGABRT, strsignal
from traceback import format_exception_only
from typing import IO, Any

import numpy as np
import psutil
import torch
import torch.distributed as dist
from torch import Tensor

from semcom.config import ConfigError, RunError

PATIENCE = timedelta(days=1)
"""The time that a rank waits for another, which may train for hours; a dead one closes its connection at once."""

BACKEND = "gloo"
"""The way of exchange, by the hosts' memories, also between accelerators: once a phase, and it notices a dead rank."""

PROOF_BYTES, PROOF_PATIENCE = 32, timedelta(minutes=5)
"""The length of the word by which a process shows another that it is of this run, and the time in which it does."""

START = (
    "import sys; from semcom.engine.host.orphan import exit_with_parent, leave_signals_to_parent; "
    "exit_with_parent(int(sys.argv[1])); "
    "leave_signals_to_parent(); from semcom.engine.host.ranks import work_as_rank; work_as_rank()"
)
"""The program of a process that is started here; importing torch takes seconds, in which the parent may die."""

FIRST = "first to fail"
"""The key under which a worker that failed before any other leaves the line about it."""

Work = Callable[["Team", bytes], None]
"""The function of a process that is started here: `(team, payload)`."""


class WorkerLost(RunError):
    """The end of a process of this run, before its time."""


@dataclass(frozen=True)
class Team:
    """The ranks of a run, seen from one of them.

    Attributes:
        rank: this process, 0 to size - 1; rank 0 reads and writes files.
        size: number of processes.
        local_rank: this process among those of its machine.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    def share(self, costs: np.ndarray) -> list[np.ndarray]:
        """Share out work items of the given costs `[n]`: the dearest first, to the rank that has least.

        Returns:
            positions of the items of each rank, ascending.
        """
        load, parts = np.zeros(self.size), [[] for _ in range(self.size)]  # type: tuple[np.ndarray, list[list[int]]]
        for i in np.argsort(-np.asarray(costs), kind="stable"):
            rank = int(load.argmin())
            parts[rank].append(int(i))
            load[rank] += costs[i]
        return [np.sort(np.array(part, dtype=np.int64)) for part in parts]

    def exchange(self, mine: Any) -> list[Any]:
        """Exchange small values (containers, tensors on the host), and list those of all ranks in their order."""
        if self.size == 1:
            return [mine]
        content = _pack_message(mine)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        dist.all_gather(sizes, torch.tensor([len(content)]))
        return [_unpack_message(t) for t in self.gather(content, [int(size) for size in sizes])]

    def gather(self, mine: Tensor, counts: Sequence[int]) -> list[Tensor]:
        """Gather the records `[counts[rank], R]` of every rank, in the order of ranks, on the device of `mine`."""
        if self.size == 1:
            return [mine]
        sent = mine.cpu()
        padded = sent.new_zeros(max(counts), *sent.shape[1:])
        padded[: len(sent)] = sent
        everyone = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(everyone, padded)
        return [rows[:n].to(mine.device) for rows, n in zip(everyone, counts, strict=True)]

    def sum(self, values: Tensor) -> Tensor:
        """Sum a tensor over ranks."""
        if self.size == 1:
            return values
        total = values.to("cpu", copy=True)
        dist.all_reduce(total)
        return total.to(values.device)

    def broadcast(self, values: Tensor) -> None:
        """Overwrite `values` (on the host) with those of rank 0."""
        if self.size > 1:
            dist.broadcast(values, 0)

    def broadcast_object(self, value: Any) -> Any:
        """Broadcast a value from rank 0 (containers, tensors on the host)."""
        if self.size == 1:
            return value
        content = _pack_message(value if self.rank == 0 else None)
        size = torch.tensor([len(content)])
        dist.broadcast(size, 0)
        content = content if self.rank == 0 else content.new_empty(int(size))
        dist.broadcast(content, 0)
        return value if self.rank == 0 else _unpack_message(content)


def _pack_message(value: Any) -> Tensor:
    """Convert a value to bytes, `[n]`."""
    file = io.BytesIO()
    torch.save(value, file)
    return torch.frombuffer(file.getbuffer(), dtype=torch.uint8)


def _unpack_message(content: Tensor) -> Any:
    """Read a value from bytes, which may hold tensors and containers, but no code."""
    return torch.load(io.BytesIO(content.numpy().data), weights_only=True)


ALONE = Team()


@contextmanager
def start_ranks(processes: int, target: str, payload: Callable[[], bytes]) -> Iterator[Team]:
    """Join the ranks of torchrun if it started this process, else start `processes` on this machine.

    Args:
        processes: number of processes, this one included.
        target: "module:function" that the others carry out.
        payload: makes the bytes that they get.

    Raises:
        ConfigError: torchrun has started processes, and more are asked for.
        WorkerLost: a process that was started here ended early.
    """
    if dist.is_available() and dist.is_torchelastic_launched():
        if processes > 1:
            raise ConfigError(f"processes: {processes} in each process of torchrun; leave it out, torchrun starts them")
        with _join_torchrun() as ranks:
            yield ranks
    elif processes == 1:
        with run_single_rank() as ranks:
            yield ranks
    else:
        with start_local_ranks(processes, target, payload()) as ranks:
            yield ranks


def launched_rank() -> int:
    """Read this process's rank among those of torchrun, 0 without it."""
    return int(os.environ.get("RANK", 0)) if dist.is_available() and dist.is_torchelastic_launched() else 0


def count_launched_ranks() -> int:
    """Read the number of processes that torchrun has started on all machines, 1 without it."""
    return int(os.environ.get("WORLD_SIZE", 1)) if dist.is_available() and dist.is_torchelastic_launched() else 1


@contextmanager
def run_single_rank() -> Iterator[Team]:
    """Run this process by itself, with one thread too: of two, one mostly waits for the other."""
    threads = _take_one_thread()
    try:
        yield ALONE
    finally:
        torch.set_num_threads(threads)


@contextmanager
def _join_torchrun() -> Iterator[Team]:
    threads = _take_one_thread()
    dist.init_process_group(BACKEND, timeout=PATIENCE)
    try:
        yield Team(dist.get_rank(), dist.get_world_size(), int(os.environ["LOCAL_RANK"]))
    finally:
        dist.destroy_process_group()
        torch.set_num_threads(threads)


@contextmanager
def start_local_ranks(processes: int, target: str, payload: bytes) -> Iterator[Team]:
    """Start processes on this machine that carry out `target`; this one is rank 0. They end with it.

    Raises:
        ConfigError: this torch has no `torch.distributed`.
        WorkerLost: a process ended early.
    """
    if processes == 1:
        yield ALONE
        return
    if not dist.is_available():
        raise ConfigError("processes: this torch is built without torch.distributed; leave it at 1")
    with _make_private_file() as path:
        store = _open_store(path)
        store.set("payload", payload)  # type: ignore[arg-type]
        store.set("proofs", secrets.token_bytes(processes**2 * PROOF_BYTES))  # type: ignore[arg-type]
        threads = _take_one_thread()
        workers: list[_Worker] = []
        try:
            workers.extend(_Worker(path, rank, processes, target) for rank in range(1, processes))
            with _explain_broken_connection(store, workers):
                _wait_until_ready(store, workers)
                yield _connect_process(store, 0, processes)
        finally:
            for worker in workers:
                worker.end()
            if dist.is_initialized():
                dist.destroy_process_group()
            torch.set_num_threads(threads)


@contextmanager
def _make_private_file() -> Iterator[str]:
    """Yield the path of a new file that only this user's processes can open.

    On Linux it is in memory, and ends with this process. Elsewhere a killed process leaves it behind.
    """
    if sys.platform.startswith("linux"):
        with os.fdopen(os.memfd_create("ranks")) as nameless:
            yield f"/proc/{os.getpid()}/fd/{nameless.fileno()}"
    else:
        with tempfile.NamedTemporaryFile(prefix="semcom-") as named:
            yield named.name


def _open_store(path: str) -> dist.Store:
    store = dist.FileStore(path, -1)
    store.set_timeout(PATIENCE)
    return store


class _Worker:
    """A process with one rank, as rank 0 sees it."""

    def __init__(self, path: str, rank: int, size: int, target: str) -> None:
        self.rank = rank
        self.complaint: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `end`
        words = [sys.executable, "-c", START, *map(str, (os.getpid(), path, rank, size)), target]
        # In a session of its own: an interrupt from the keyboard is rank 0's to answer, which keeps the last state.
        self.process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self.complaint,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )

    def last_words(self) -> str:
        """Describe in a line why the process ended."""
        status = self.process.returncode
        if status is not None and status < 0:
            return f"{strsignal(-status)} (signal {-status})"
        self.complaint.seek(0)
        lines = self.complaint.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit status {status}"

    def end(self) -> None:
        """End the process, if it has not ended by itself."""
        self.process.kill()
        self.process.wait()
        self.complaint.close()


def _wait_until_ready(store: dist.Store, workers: Sequence[_Worker]) -> None:
    """Wait until all workers are ready to join. Raises RuntimeError when one has ended."""
    while not store.check([f"ready {worker.rank}" for worker in workers]):
        if any(worker.process.poll() is not None for worker in workers):
            raise RuntimeError("a process ended while it started")
        time.sleep(0.01)


@contextmanager
def _explain_broken_connection(store: dist.Store, workers: Sequence[_Worker]) -> Iterator[None]:
    """Replace the error of a connection that a dead worker broke by the worker's last words."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, RunError):
            raise
        patience = time.monotonic() + 2.0  # its connection closes a little before it has ended
        while (words := _find_last_words(store, workers)) is None and time.monotonic() < patience:
            time.sleep(0.01)
        if words is None:
            raise
        raise WorkerLost(words) from error


def _find_last_words(store: dist.Store, workers: Sequence[_Worker]) -> str | None:
    """Find the line about the worker that failed first, with which the others lost their connections, if any failed."""
    ended = [worker for worker in workers if worker.process.poll()]
    # One that was killed could not tell; one that aborts may do so because of a broken connection.
    killed = [worker for worker in ended if worker.process.returncode < 0 and worker.process.returncode != -SIGABRT]
    if not killed and store.check([FIRST]):
        return store.get(FIRST).decode()
    return next((_describe_dead_worker(worker.rank, worker.last_words()) for worker in killed + ended), None)


def _describe_dead_worker(rank: int, words: str) -> str:
    return f"process {rank} of this run ended: {words}"


def _connect_process(store: dist.Store, rank: int, size: int) -> Team:
    """Connect this process with the other ranks of this machine.

    Meanwhile gloo listens on the loopback interface, and believes anyone who comes first and gives the number of a
    rank. So each rank sends every other rank a word that is secret between the two, and that no other user can read.

    Raises:
        WorkerLost: some rank has not given its word.
    """
    with _bind_gloo_to_loopback():
        dist.init_process_group(BACKEND, store=store, rank=rank, world_size=size, timeout=PATIENCE)
    proofs = torch.frombuffer(bytearray(store.get("proofs")), dtype=torch.uint8).view(size, size, PROOF_BYTES)
    heard, others = torch.zeros_like(proofs[rank]), [other for other in range(size) if other != rank]
    heard[rank] = proofs[rank, rank]
    words = [dist.P2POp(dist.isend, proofs[rank, other], other) for other in others]
    words += [dist.P2POp(dist.irecv, heard[other], other) for other in others]
    with suppress(RuntimeError):  # one is gone, or silent for too long: what was heard tells
        for each in dist.batch_isend_irecv(words):
            each.wait(PROOF_PATIENCE)
    if not torch.equal(heard, proofs[:, rank]):
        raise WorkerLost("a process of this run ended, or another program has taken its place")
    return Team(rank, size, rank)


@contextmanager
def _bind_gloo_to_loopback() -> Iterator[None]:
    """Let gloo listen where no other machine reaches it, whatever interface is set: it would take the host's name."""
    name = "GLOO_SOCKET_IFNAME"
    before = os.environ.get(name)
    os.environ[name] = _find_loopback()
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before


def _find_loopback() -> str:
    for name, addresses in psutil.net_if_addrs().items():
        if any(address.address == "127.0.0.1" for address in addresses):
            return name
    raise ConfigError("processes: this machine has no loopback interface, by which they would talk; leave it at 1")


def _take_one_thread() -> int:
    """Limit torch to one thread, as there is a process for each core; return the former number."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    return threads


def work_as_rank() -> None:
    """Do the work of a process of `start_local_ranks`; its words: parent, path, rank, number of processes, target."""
    path, rank, size = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    module, _, function = sys.argv[5].partition(":")
    carry_out: Work = getattr(importlib.import_module(module), function)
    _take_one_thread()
    store = _open_store(path)
    payload = store.get("payload")
    store.set(f"ready {rank}", "")
    try:
        carry_out(_connect_process(store, rank, size), payload)
    except BaseException as error:
        with suppress(RuntimeError):  # rank 0 has gone
            if store.add("failures", 1) == 1:
                store.set(FIRST, _describe_dead_worker(rank, format_exception_only(error)[-1].partition("\n")[0]))
        raise
