"""A process of its own for each variant, so that its threads and its memory are its own.

It talks in lines: the first one on its standard input is the job, which it answers when it is ready; every further line
asks for one measurement; the end of the input is the end. Answers are JSON; a failure is an answer too.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

import torch

from semcom.bench.rounds import Job, Repeated, SharedRounds, prepare
from semcom.engine.host import ranks


def main() -> None:
    """Serves the parent until it closes the line."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # in order, so that the ranks of a team end too
    answers = own_output()
    try:
        with started(Job.from_json(sys.stdin.readline())) as repeated:
            say(answers, {"ready": True, "threads": torch.get_num_threads()})
            for _ in sys.stdin:
                say(answers, {"seconds": repeated.measure(), "device_bytes": device_bytes()})
    except Exception as error:  # whatever it is, the parent reports it and the other variants go on
        say(answers, {"error": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"})


@contextmanager
def started(job: Job) -> Iterator[Repeated]:
    """What the job asks for, on the threads and in the processes that it may have."""
    variant = job.variant
    if variant.threads is not None:
        torch.set_num_threads(variant.threads)
    if job.workload is None or variant.processes == 1:
        yield prepare(job)
        return
    with ranks.local(variant.processes, "semcom.bench.rounds:follow", job.to_json().encode()) as team:
        yield SharedRounds(job.workload, variant, team)


def own_output() -> TextIO:
    """The standard output for answers alone: what anything else prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def say(answers: TextIO, answer: dict[str, Any]) -> None:
    """Sends one answer."""
    print(json.dumps(answer), file=answers, flush=True)


def device_bytes() -> int | None:
    """The most memory of a GPU that tensors ever took; None without one in use."""
    return torch.cuda.max_memory_allocated() if torch.cuda.is_initialized() else None


if __name__ == "__main__":
    main()
