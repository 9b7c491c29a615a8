"""A study that is killed again and again.

First it is carried out undisturbed, in `whole`. Then each attempt is a forked process, so that nothing is imported
anew, and gets SIGKILL at a random moment, until enough of them were killed. One in five has two workers, which are
processes of their own. The next one begins when all processes of the last one are gone, in a new folder (0, 1 ...) if
the last one came to its end before. Prints a line of JSON: the number of kills, of those before which something had
been written, and of folders.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import psutil

from semcom.studies.sweep.sweep import sweep

STUDY = {
    "methods": ("fedavg",),
    "seeds": (0,),
    "vary": {"channel.snr_db": (0.0, 9.0), "partition.ways": (2, 3)},
    "set": {
        "clients": 2,
        "keep": ("checkpoint",),
        "partition.shots": 4,
        "partition.test_per_class": 4,
        "model.encoder": "dcgan-narrow",
        "train.rounds": 8,
        "train.checkpoint_every": 2,
        "device": "cpu",
    },
}
"""Two axes: four runs."""
WORKERS_S = 3.0
"""Seconds in which workers start."""


def attempt(folder: Path, jobs: int) -> int:
    """Start the study in a process of its own session; return its id."""
    child = os.fork()
    if child:
        return child
    os.setsid()
    try:
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
            sweep(**STUDY, jobs=jobs, out=folder)
    except BaseException:
        os._exit(1)
    os._exit(0)


def kill(child: int, seconds: float) -> bool:
    """Kill a process after so many seconds, and wait for all that it started; return whether it still ran."""
    time.sleep(seconds)
    family = psutil.Process(child).children(recursive=True)
    running = psutil.Process(child).status() != psutil.STATUS_ZOMBIE
    os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    left = psutil.wait_procs(family, timeout=60)[1]  # workers that import torch notice it after that
    assert not left, left
    assert running or not os.waitstatus_to_exitcode(status), "the sweep failed"
    return running


def finish(folder: Path) -> None:
    """Carry the study out to its end."""
    assert os.waitpid(attempt(folder, 1), 0)[1] == 0, "the sweep failed"


def begun(folder: Path) -> set[tuple[str, int]]:
    """Return the files of all runs, with their times."""
    return {(str(path), path.stat().st_mtime_ns) for path in folder.glob("*/*/*")}


def main(folder: Path, number: int) -> None:
    """Kill studies so often, and carry each of them out to its end."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        sweep(**STUDY, jobs=1, out=folder / "whole")  # here, so that forked processes find everything imported
    start = time.monotonic()
    finish(folder / "0")
    seconds, rng, killed, worked, studies = time.monotonic() - start, random.Random("kills"), 0, 0, 1
    while killed < number:
        before, jobs = begun(folder), 2 if killed % 5 == 4 else 1
        if kill(attempt(folder / f"{studies}", jobs), seconds * rng.uniform(0.1, 0.6) + (jobs - 1) * WORKERS_S):
            killed, worked = killed + 1, worked + (begun(folder) != before)
        else:
            studies += 1
    finish(folder / f"{studies}")
    print(json.dumps({"killed": killed, "worked": worked, "studies": studies + 1}))
