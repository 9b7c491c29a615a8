"""Rounds of the engine and of the plain loop, in fresh processes that take turns; all that the engine is used for."""

from __future__ import annotations

import atexit
import json
import logging
import math
import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, closing
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from timeit import default_timer
from typing import Any

import psutil
import torch

from semcom.config import Resolved
from semcom.data.federation import Federation
from semcom.engine.air.links import build_link
from semcom.engine.host import ranks
from semcom.engine.host.memory import keep_freed_memory
from semcom.engine.host.ranks import ALONE, Team
from semcom.engine.world import World
from semcom.methods.base import Method
from semcom.methods.registry import METHODS
from semcom.runs.result.evaluation import evaluate_views
from semcom_papers.experiments.bench.commands import choose_bench_clock, measure_bench_seconds
from semcom_papers.experiments.bench.plain import make_plain_loop
from semcom_papers.experiments.bench.workloads import Variant, Workload, make_synthetic_workload

logger = logging.getLogger(__name__)


class Rounds:
    """Rounds of a resolved configuration, without evaluation: each call, of every process of a team, is the next."""

    def __init__(self, config: Resolved, federation: Federation, team: Team = ALONE) -> None:
        keep_freed_memory()
        device = torch.device(config.device)
        self.team = team
        self.method: Method = METHODS.get(config.method)(config.hyper)
        link, _ = build_link(config)
        self.world = World(config, federation.to(device), device, link, split=self.method.split, team=team)
        self.state = self.method.setup(self.world)

    def __call__(self) -> None:
        """Carry out the next round."""
        self.team.broadcast(torch.zeros(1))  # a round begins when rank 0 begins it
        self.world.session.tally.begin(self.world.round + 1)
        self.state = self.method.round(self.state, self.world)

    def test(self) -> None:
        """Evaluate the models as they are; for a single process."""
        evaluate_views(self.world.session, self.method.views(self.state, self.world))


_next_round: Callable[[], None]  # of what this process was started for


def _prepare_rounds(workload: Workload, variant: Variant) -> None:
    """Set this process up for rounds of a workload, on the threads and in the processes that it may have."""
    global _next_round
    Thread(target=_end_with_the_parent, daemon=True).start()
    torch.set_num_threads(variant.threads)
    if variant.plain:
        _next_round = make_plain_loop(workload, make_synthetic_workload(workload), variant).round
        return
    stack, payload = ExitStack(), json.dumps([vars(workload), vars(variant)]).encode()
    atexit.register(stack.close)
    team = stack.enter_context(
        ranks.start_local_ranks(variant.processes, "semcom_papers.experiments.bench.rounds:follow_rounds", payload)
    )
    _next_round = Rounds(workload.config(variant), make_synthetic_workload(workload), team)


def follow_rounds(team: Team, payload: bytes) -> None:
    """Carry out a round whenever rank 0 begins one, until that ends this process."""
    about = json.loads(payload)
    workload, variant = Workload(**about[0]), Variant(**about[1])
    next_round = Rounds(workload.config(variant), make_synthetic_workload(workload), team)
    while True:
        next_round()


def _end_with_the_parent() -> None:
    """End this process when its parent has ended, also where that was killed."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _measure_rounds(device: torch.device) -> tuple[float, dict[str, float]]:
    """Carry out a round; return its seconds, and the most memory on host and device that was ever taken."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        took = measure_bench_seconds(_next_round, choose_bench_clock(device))
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # between rounds an interrupt is the parent's to answer
    device_bytes = torch.cuda.max_memory_allocated() if device.type == "cuda" else math.nan
    return took, {"resident_bytes": measure_peak_of_rounds(os.getpid()), "device_bytes": device_bytes}


def _measure_test(device: torch.device) -> dict[str, float]:
    """Evaluate the engine's models as they are; return the seconds, and the most memory until then."""
    assert isinstance(_next_round, Rounds)
    return {
        "test_seconds": measure_bench_seconds(_next_round.test, choose_bench_clock(device)),
        "resident_bytes": measure_peak_of_rounds(os.getpid()),
    }


def measure_peak_of_rounds(pid: int) -> float:
    """Add up the peak resident bytes of a process and its descendants; NaN if the system does not report them.

    Linux does (VmHWM, which psutil has not). Pages that several share count several times: an upper bound.
    """
    root = psutil.Process(pid)
    try:
        texts = [Path(f"/proc/{p.pid}/status").read_text() for p in (root, *root.children(recursive=True))]
    except OSError:
        return math.nan
    return sum(int(text.partition("VmHWM:")[2].split()[0]) * 1024 for text in texts)


class Worker:
    """A workload in a fresh process, warmed up by a round; once it has failed (`error`), it sits out."""

    def __init__(self, workload: Workload, variant: Variant) -> None:
        self.workload, self.variant = workload, variant
        self.title = f"{workload.title}, {variant.name}, K = {workload.clients}"
        self.error: str | None = None
        self.seconds: list[float] = []
        self.facts = dict.fromkeys(("resident_bytes", "device_bytes", "test_seconds"), math.nan)  # NaN: not known
        self._pool = ProcessPoolExecutor(1, get_context("spawn"))
        self.facts["setup_seconds"] = measure_bench_seconds(
            lambda: self._ask(_prepare_rounds, workload, variant), default_timer
        )
        self.measure()
        self.seconds.clear()

    def measure(self) -> None:
        """Add the seconds of a round."""
        answer = self._ask(_measure_rounds, torch.device(self.variant.device))
        if answer is not None:
            self.seconds.append(answer[0])
            self.facts |= answer[1]
            logger.info("%s: %.3g s", self.title, answer[0])

    def test(self) -> None:
        """Add the seconds of a test, where the workload has one."""
        if self.workload.tests:
            self.facts |= self._ask(_measure_test, torch.device(self.variant.device)) or {}

    def row(self) -> dict[str, Any]:
        """Report the job, its rounds' seconds and samples per second (empty if it failed), and the facts."""
        took = [] if self.error else list(self.seconds)
        who = {**vars(self.workload), **vars(self.variant), "variant": self.variant.name, "name": self.title}
        rates = [self.workload.visited / s for s in took]
        return {**who, "seconds": took, "rates": rates, **self.facts, "error": self.error}

    def close(self) -> None:
        """End the process and its children."""
        self._pool.shutdown()

    def _ask(self, what: Callable[..., Any], *values: object) -> Any:
        """Ask the process; None once it has failed, and then its memory is free for the others."""
        if self.error is not None:
            return None
        try:
            return self._pool.submit(what, *values).result()
        except Exception as error:  # whatever it is, it is reported, and the other processes go on
            self.error = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
            logger.warning("%s failed: %s", self.title, self.error)
            self.close()
            return None


def measure_rounds_in_turns(
    jobs: Sequence[tuple[Workload, Variant]], repeats: int, between: Callable[[], object] = lambda: None
) -> list[dict[str, Any]]:
    """Measure jobs, each in a process of its own, in turns; a row per job.

    The processes take turns, in one order and then the other; `between` is called after each turn.
    """
    with ExitStack() as stack:
        workers = [stack.enter_context(closing(Worker(*job))) for job in jobs]
        for turn in range(repeats):
            for worker in workers if turn % 2 == 0 else workers[::-1]:
                worker.measure()
            between()
        for worker in workers:
            worker.test()
        return [worker.row() for worker in workers]
