"""Runs that are killed and started again: `main` leaves a folder for each.

Everything is imported and tried out once and each attempt is a fork of this process, which has one thread: an attempt
costs what its rounds cost. Beside its folder a run leaves its weights. What was done is printed, a line of JSON a run.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import stat
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from semcom.config import RunConfig
from semcom.engine.store import rows
from semcom.runs.folder.checkpoint import load_checkpoint
from semcom.runs.folder.folder import CHECKPOINT, METRICS, SUMMARY
from semcom.runs.request.stop import STATUS, Stopped, raise_on_stop_signals
from semcom.runs.rounds.runner import run
from tests import worlds

Event = Callable[[str], None]


def request(folder: Path, store: str) -> RunConfig:
    """Five short rounds with fading, draws of clients, tests in each, and checkpoints after rounds 2, 4 and 5.

    Of FedCL with its clients' rows in a `store`, or, as `shapes`, of a method whose State changes its shape.
    """
    train = {"rounds": 5, "participation": 2 / 3, "checkpoint_every": 2}
    options = {"channel": {"kind": "rayleigh", "snr_db": "0:18"}, "partition": {"shots": 3, "shots_spread": 1}}
    if store == "shapes":
        return worlds.request("test-warm-up", out=str(folder), clients=3, train=train, store="host", **options)
    return worlds.request("fedcl", out=str(folder), clients=3, train=train, store=store, **options)


def attempt(config: RunConfig, prepare: Callable[[], object] = lambda: None) -> bool:
    """A run in a process of its own; whether it ended by itself and was not killed."""
    pid = os.fork()
    if pid == 0:
        try:
            prepare()
            result = run(config)
            views = result.views.values()
            torch.save([t.clone() for view in views for t in view.population.tensors()], f"{config.out}.pt")
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    status = os.waitpid(pid, 0)[1]
    if not os.WIFSIGNALED(status) and os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit(f"{config.out} failed")
    return not os.WIFSIGNALED(status)


class Traced:
    def __init__(self, file: Any, name: str, event: Event) -> None:
        self.file, self.name, self.event = file, name, event

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def __enter__(self) -> Traced:
        return self

    def __exit__(self, *error: object) -> None:
        self.file.close()

    def write(self, data: Any) -> int:
        half = len(data) // 2
        self.event(f"before a write to {self.name}")
        written = self.file.write(data[:half])
        self.file.flush()
        self.event(f"in a write to {self.name}")
        return written + self.file.write(data[half:])


def trace(event: Event, put: Callable[[Any, str, Any], None] = setattr) -> None:
    """From now on `event` is told what this process does to files that it opened for writing; `put` is the patcher."""
    names: dict[int, str] = {}

    def called(path: Any) -> str:
        """A file's name, with or without its temporary one."""
        return re.sub(r"\.\d+\.part$", "", Path(path).name.removeprefix("."))

    def synced(descriptor: int) -> str:
        """The name of an open file; a folder's number was a file's before."""
        return "a folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else names.get(descriptor, "rows")

    def open_(path: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        file = opened(path, mode, *arguments, **options)
        names[file.fileno()] = called(path)
        return Traced(file, called(path), event) if mode in ("wb", "ab") else file

    def write_at(file: Any, data: Any, place: int) -> int:
        names[file.fileno()] = "rows"  # the number may have been another file's before
        event("before a write to rows")
        half = written(file, data[: len(data) // 2], place)
        event("in a write to rows")
        return half + written(file, data[half:], place + half)

    def around(function: Callable[..., Any], name: Callable[..., str]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            event(f"before {function.__name__} of {name(*arguments)}")
            result = function(*arguments)
            event(f"after {function.__name__} of {name(*arguments)}")
            return result

        return call

    opened, written = Path.open, rows.write_at
    put(Path, "open", open_)
    put(rows, "write_at", write_at)
    put(os, "fsync", around(os.fsync, synced))
    put(os, "replace", around(os.replace, lambda source, target: called(target)))


def note(path: Path) -> None:
    file = path.open("a", buffering=1)
    trace(lambda name: print(name, file=file))


def die(at: int) -> None:
    """Makes this process kill itself at its event number `at`."""
    left = at

    def event(name: str) -> None:
        nonlocal left
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

    trace(event)


def points(events: list[str], number: int, rng: random.Random) -> list[int]:
    """Numbers of events: each name in turn, those of the files that a run is taken up from first."""
    by_name: dict[str, list[int]] = {}
    for i, name in enumerate(events):
        by_name.setdefault(name, []).append(i)
    for numbers in by_name.values():
        rng.shuffle(numbers)
    order = sorted(by_name, key=lambda name: not name.endswith((CHECKPOINT, METRICS, SUMMARY, "rows")))
    chosen: list[int] = []
    while len(chosen) < number:
        chosen += [by_name[name].pop() for name in order if by_name[name]]
    return chosen[:number]


def report(config: RunConfig, deaths: int, events: list[str]) -> None:
    print(json.dumps({"run": Path(str(config.out)).name, "deaths": deaths, "events": events}), flush=True)


def last(seconds: float) -> None:
    """Lets this process have so much of a processor's time; then the system ends it at once, as by SIGKILL."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, seconds)


def whole(folder: Path, store: str) -> tuple[list[str], float]:
    """Runs that nobody kills; returns the names of their events, in order, and a run's processor seconds."""
    run(request(folder / "first", store))
    assert len(os.listdir("/proc/self/task")) == 1, "a fork would lose the other threads"
    attempt(request(folder / "traced", store), partial(note, folder / "events"))
    events = (folder / "events").read_text().splitlines()
    begun = os.times()
    attempt(request(folder / "whole", store))
    ended = os.times()
    report(request(folder / "whole", store), 0, events)
    return events, ended.children_user + ended.children_system - begun.children_user - begun.children_system


def die_at_events(folder: Path, store: str, number: int, events: list[str], rng: random.Random) -> None:
    """Runs that die at chosen events, and once more, wherever that is, when they are taken up."""
    for i, at in enumerate(points(events, number, rng)):
        config = request(folder / f"event-{i}", store)
        deaths = [not attempt(config, partial(die, n)) for n in (at, rng.randrange(len(events)))]
        attempt(config)
        report(config, sum(deaths), [events[at]])


def die_at_times(folder: Path, store: str, number: int, seconds: float, rng: random.Random) -> None:
    """Runs that are ended at random times, up to four times each, until there were `number` deaths."""
    total = 0
    for i in range(number):
        config, deaths = request(folder / f"time-{i}", store), 0
        while deaths < min(4, number - total) and not attempt(config, partial(last, rng.uniform(0, seconds))):
            deaths += 1
        attempt(config)
        report(config, deaths, [])
        total += deaths
        if total == number:
            break


def stop(config: RunConfig, seconds: float, number: int) -> bool:
    """A run that gets a signal after so many seconds; whether it was ended by it, with its last whole round kept."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            with raise_on_stop_signals():  # as the command has it from its beginning
                os.write(writer, b"!")
                run(config)
            os._exit(0)
        except (Stopped, KeyboardInterrupt) as stopped:
            os._exit(STATUS if isinstance(stopped, Stopped) else 130)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.read(reader, 1)
    os.close(reader), os.close(writer)
    time.sleep(seconds)
    os.kill(pid, number)
    status = os.waitpid(pid, 0)[1]
    code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    expected = {signal.SIGTERM: STATUS, signal.SIGHUP: STATUS, signal.SIGINT: 130}[signal.Signals(number)]
    if code not in (0, expected):
        raise SystemExit(f"{config.out} ended with {code} by signal {number}")
    metrics = Path(str(config.out)) / METRICS
    lines = len(metrics.read_bytes().splitlines()) if metrics.exists() else 0
    kept = load_checkpoint(metrics.with_name(CHECKPOINT))["progress"]["round"] if lines else 0
    if kept != lines:
        raise SystemExit(f"{config.out} kept round {kept} of {lines}")
    return code == expected


def stop_at_times(folder: Path, store: str, number: int, seconds: float, rng: random.Random) -> None:
    """Runs that get signals at random times, up to three times each, until `number` signals have ended one."""
    total = i = 0
    while total < number:
        config, deaths = request(folder / f"stop-{i}", store), 0
        for _ in range(3):
            sent = rng.choice([signal.SIGTERM, signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
            if total + deaths < number and stop(config, rng.uniform(0.02, seconds), sent):
                deaths += 1
        attempt(config)
        report(config, deaths, [])
        total, i = total + deaths, i + 1


def main(folder: Path, store: str, number: int) -> None:
    """All of these: `number` runs that die at events, a third as many deaths at times, and as many ends by signals."""
    rng = random.Random(f"kill {store}")
    events, seconds = whole(folder, store)
    die_at_events(folder, store, number, events, rng)
    die_at_times(folder, store, number // 3, 0.7 * seconds, rng)
    stop_at_times(folder, store, number // 3, 1.2 * seconds, rng)
