"""Sweeps and runs that get SIGTERM at random moments.

    python -m tests.studies.sweep.stops FOLDER NUMBER [KIND ...]

KIND: train, two (processes) or sweep. Each is started anew until it ends by itself; then its results have to be those
of one that nobody stopped. Prints a line of JSON per kind; any other end than the documented one is an error.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from semcom.files import SUMMARY, TABLE
from semcom.runs.folder import read_summary
from semcom.runs.stop import STATUS

PLUGIN = """
from semcom.studies.experiment import Experiment, Grid
from semcom.studies.registry import EXPERIMENTS
from semcom import PartitionConfig, RunConfig, TrainConfig

split = PartitionConfig(options={"shots": 4})
base = RunConfig(clients=3, device="cpu", train=TrainConfig(rounds=12), partition=split)
scales = {"smoke": Grid(base, {"channel.snr_db": (0.0, 9.0)})}
EXPERIMENTS.register("short")(Experiment("short", "Short runs", "none", ("fedavg", "local"), scales))
"""
RUN = "train fedcl --clients 3 --partition.shots 4 --train.rounds 30 --channel.kind rayleigh --device cpu"
KINDS = {"train": RUN, "two": f"{RUN} --processes 2", "sweep": "sweep short --jobs 2 --plugin short.py"}
OTHERS = ("seconds", "samples_per_second", "commit")


def command(kind: str, out: Path) -> list[str]:
    """The words that start it."""
    return [sys.executable, "-m", "semcom", *KINDS[kind].split(), "--log-level", "warning", "--out", str(out)]


def results(out: Path) -> dict[str, Any]:
    """All summaries below a folder, without clocks and the commit."""
    found = {}
    for path in sorted(out.rglob(SUMMARY)):
        summary = read_summary(path.parent) or {}
        found[path.parent.name if path.parent != out else ""] = {k: v for k, v in summary.items() if k not in OTHERS}
    return found


def start(kind: str, out: Path) -> subprocess.Popen[str]:
    """Starts it in a session of its own."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command(kind, out),
        cwd=out.parent,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def stop(kind: str, out: Path, seconds: float) -> bool:
    """Sends SIGTERM after so many seconds; whether that ended it. All its processes are gone 10 s later."""
    process = start(kind, out)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        process.send_signal(signal.SIGTERM)
        begun = time.monotonic()
        status = process.wait(10)
        left = psutil.wait_procs(family, timeout=max(0.0, 10 - (time.monotonic() - begun)))[1]
        if left:
            raise SystemExit(f"{out}: {left} are left") from None
    else:
        status = process.returncode
    assert process.stderr is not None
    said = process.stderr.read()
    done = (out / SUMMARY).exists() or (out / TABLE).exists()
    outside = status == -signal.SIGTERM and (done or not said)  # before Python reached the command, or after its end
    if status not in (0, STATUS) and not outside:
        raise SystemExit(f"{out} ended with {status}: {said}")
    return status != 0


def main(folder: Path, number: int, kinds: list[str]) -> None:
    """Each kind: `number` ends by SIGTERM."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "short.py").write_text(PLUGIN)
    for kind in kinds:
        rng, begun = random.Random(f"stop {kind}"), time.monotonic()
        if start(kind, folder / f"{kind}-whole").wait():
            raise SystemExit(f"{kind} failed")
        seconds, expected = time.monotonic() - begun, results(folder / f"{kind}-whole")
        total = i = 0
        while total < number:
            out, ended = folder / f"{kind}-{i}", 0
            while total + ended < number and stop(kind, out, rng.uniform(0.1, seconds)):
                ended += 1
            if start(kind, out).wait():
                raise SystemExit(f"{out} cannot be finished")
            if results(out) != expected or not expected:
                raise SystemExit(f"{out} differs")
            total, i = total + ended, i + 1
        print(json.dumps({"kind": kind, "ends": total, "finished": i, "seconds": round(seconds, 1)}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] or list(KINDS))
