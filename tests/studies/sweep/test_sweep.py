"""Sweeps with stand-ins for training: what runs, what is stored, and what happens to failures."""

from __future__ import annotations

import dataclasses
import errno
import inspect
import logging
import os
import re
import shutil
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest

import semcom
from semcom.cli import main as cli
from semcom.cli.flags import SweepFlags
from semcom.config import ConfigError, PartitionConfig, RunConfig, RunError, TrainConfig, run_hash
from semcom.data.partitions import Shots
from semcom.files import SWEEP, TABLE
from semcom.runs.folder.checkpoint import load_checkpoint
from semcom.runs.folder.summary import read_summary, write_summary
from semcom.runs.request import limits
from semcom.runs.request.stop import STATUS
from semcom.studies.cost import estimate_run_cost
from semcom.studies.experiment import Experiment, Grid
from semcom.studies.registry import EXPERIMENTS, find_experiment
from semcom.studies.results.lock import Shard
from semcom.studies.results.table import read_table
from semcom.studies.sweep import pool as parallel
from semcom.studies.sweep.plan import make_plan
from semcom.studies.sweep.request import parse_request
from semcom.studies.sweep.sweep import preview_sweep, sweep
from tests.processes import Forked
from tests.refusals import refuses
from tests.studies.folders import marks

Run = Callable[[RunConfig], None]


def test_python_takes_what_the_shell_takes() -> None:
    """Of the shell alone is the level of the log; of Python alone a function that trains."""
    flags = {field.name for field in dataclasses.fields(SweepFlags)} | {"name", "plugins"}
    assert flags == inspect.signature(sweep).parameters.keys() - {"train"}


def test_keywords_are_the_fields_that_they_name(tmp_path: Path, fake_run: Run, capsys: Any) -> None:
    given = {"methods": "local", "seeds": 0, "set": {"clients": 2, "partition.shots": 2}}
    own = {"keep": "confusion", "data_root": tmp_path / "images", "device": "cpu"}
    seen = list[RunConfig]()

    def train(config: RunConfig) -> None:
        seen.append(config)
        fake_run(config)

    sweep(**given, **own, out=tmp_path / "a", train=train)
    (config,) = seen
    assert (config.keep, config.device, config.data.root) == (("confusion",), "cpu", str(tmp_path / "images"))
    with refuses("device", "given twice"):
        sweep(methods="local", set={"device": "cpu"}, device="cpu", out=tmp_path / "b")
    capsys.readouterr()
    assert sweep(**given, dry_run=True, out=tmp_path / "c") is None
    assert "1 runs: 0 finished, 0 reusable, 1 pending" in capsys.readouterr().out and not (tmp_path / "c").exists()


def test_a_method_of_a_plug_in_can_be_tuned_from_python(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The plug-in is loaded before the request is read, in a process that has not seen it."""
    (tmp_path / "mine.py").write_text(
        "from semcom import METHODS\nfrom semcom.methods.local import Local\n\n\n"
        "@METHODS.register('own-local')\nclass Mine(Local):\n    pass\n"
    )
    plan = {"methods": ("own-local",), "plugins": [str(tmp_path / "mine.py")], "tune": {"train.lr": (0.01, 0.1)}}
    assert sweep(**plan, set={"clients": 2, "partition.shots": 2}, out=tmp_path / "out", dry_run=True) is None
    assert "train.lr: 0.01,0.1" in capsys.readouterr().out


def test_table_holds_configuration_and_metrics(
    tmp_path: Path, fake_run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    path = sweep("demo", out=tmp_path, train=fake_run)
    assert path == tmp_path / "results.parquet"
    frame = pd.read_parquet(path)
    assert list(zip(frame["method"], frame["channel.snr_db"], strict=True)) == [
        (method, snr) for method in ("fedcl", "fedproto", "fedavg") for snr in (0.0, 9.0, 18.0)
    ]
    first = frame.iloc[0]
    expected = {
        "experiment": "demo", "scale": "smoke", "status": "done", "command": f"semcom.sweep('demo', out='{tmp_path}')",
        "seed": 0, "train.rounds": 20, "train.optimizer": "adam", "partition.shots": 15, "partition.scarce": "",
        "accuracy": 0.7, "accuracy_std": 0.05, "views.personal.worst10": 0.3, "samples_per_second": 1000.0,
        "traffic.up.floats": 64.0, "versions.torch": "2.9", "commit": "abc1234",
    }  # fmt: skip
    assert {name: first[name] for name in expected} == expected
    assert list(first["views.personal.clients"]) == [0.7, 0.7]
    assert pd.isna(first["error"])
    assert not {"out", "data.root"} & set(frame.columns)
    assert frame["hash"].is_unique
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_dir()) == sorted(frame["hash"])
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [
        "Accuracy in %, one seed, so there is no interval. Setting: dataset digits, clients 20, partition shots, "
        "ways 3, shots 15, encoder dcgan-narrow, features 64, channel awgn, rounds 20, local epochs 1, batch size 50, "
        "optimiser adam, rate 0.001.",
        "",
        "| Method | SNR 0 dB | SNR 9 dB | SNR 18 dB |",
        "| --- | ---: | ---: | ---: |",
        "| FedCL | 70.0 | 79.0 | 88.0 |",
        "| FedProto | 60.0 | 69.0 | 78.0 |",
        "| FedAvg | 40.0 | 49.0 | 58.0 |",
    ]
    assert (tmp_path / "results.md").read_text("utf-8") == captured.out
    assert len(captured.err.splitlines()) == 9
    last = frame[(frame["method"] == "fedcl") & (frame["channel.snr_db"] == 18.0)]["hash"].item()
    assert f" s] fedcl, channel.snr_db=18, {last}, accuracy 88.0 %\n" in captured.err


def test_a_preview_counts_runs_and_knows_the_time_of_finished_ones(tmp_path: Path, fake_run: Run) -> None:
    """FedCL takes 100 s a run and FedAvg 20 s; of FedProto nothing is known, hence their mean of 60 s."""

    def run(config: RunConfig) -> None:
        if config.seed or config.method == "fedproto":
            raise RunError("no")
        fake_run(config)
        took = {"fedcl": 100.0, "fedavg": 20.0}[config.method]
        summary = read_summary(Path(str(config.out)))
        write_summary(
            Path(str(config.out)), {**summary, "seconds": {"setup": 5.0, "train": took - 5, "train/fit": 9.0}}
        )

    request = parse_request(set={"channel.snr_db": 9.0}, seeds=(0, 1), vary={"partition.ways": (2, 4)})
    plan = make_plan("demo", request=request, out=tmp_path / "r")
    assert preview_sweep(plan, Shard(1, 12)).splitlines() == [
        "shard 1/12: 1 runs: 0 finished, 0 reusable, 1 pending",
        "methods: fedcl, fedproto, fedavg",
        "seed: 0,1",
        "partition.ways: 2,4",
        "time: not known before a run of this folder has finished",
    ]
    assert not (tmp_path / "r").exists()
    with pytest.raises(RunError):
        sweep("demo", set=request.set, vary={"partition.ways": (2, 4)}, seeds=(0, 1), out=tmp_path / "r", train=run)
    lines = preview_sweep(plan, jobs=2).splitlines()
    assert lines[0] == "12 runs: 4 finished, 0 reusable, 8 pending"
    assert (
        lines[-1] == "time: about 4 min with --jobs 2; finished runs took 60 s on average"
    )  # 2 x 100 + 4 x 60 + 2 x 20


def test_finished_runs_are_not_run_again(tmp_path: Path, fake_run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    def run(config: RunConfig) -> None:
        if config.channel.snr_db != 9.0:
            raise RunError("no")
        fake_run(config)

    with pytest.raises(RunError, match="^6 of 9 runs failed"):
        sweep("demo", out=tmp_path, train=run)
    capsys.readouterr()
    sweep("demo", out=tmp_path, train=fake_run)
    assert marks(tmp_path) == ["x"] * 9
    assert capsys.readouterr().err.startswith("3 of 9 runs were finished already\n[4/9, ")
    assert set(read_table(tmp_path)["status"]) == {"done"}


def test_a_run_of_another_study_is_not_run_again(
    tmp_path: Path, fake_run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its folder, copied, is taken for what it is: its name and its configuration say which run it is."""
    sweep("demo", scale="smoke", out=tmp_path / "one", methods=("fedcl",), train=fake_run)
    shutil.copytree(tmp_path / "one", tmp_path / "two", ignore=shutil.ignore_patterns(SWEEP, TABLE))
    capsys.readouterr()
    sweep("demo", scale="smoke", out=tmp_path / "two", train=fake_run)
    assert capsys.readouterr().err.startswith("3 of 9 runs were finished already\n[4/9, ")
    assert len(read_table(tmp_path / "two")) == 9


@pytest.mark.parametrize("jobs", [1, 2])
def test_failed_run_is_a_row_and_others_finish(
    tmp_path: Path, fake_run: Run, jobs: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(config: RunConfig) -> None:
        if config.method == "fedproto" and config.channel.snr_db == 9.0:
            raise RuntimeError("loss is not finite in round 3\nsecond line")
        fake_run(config)

    with pytest.raises(RunError, match=r"^1 of 9 runs failed: see .*results.parquet; "):
        sweep("demo", out=tmp_path, jobs=jobs, train=run)
    frame = read_table(tmp_path)
    failed = frame[frame["status"] == "failed"]
    assert len(frame) == 9 and len(failed) == 1
    row = failed.iloc[0]
    assert (row["method"], row["channel.snr_db"], row["seed"]) == ("fedproto", 9.0, 0)
    assert row["error"] == "RuntimeError: loss is not finite in round 3"
    assert pd.isna(row["accuracy"])
    captured = capsys.readouterr()
    line = next(line for line in captured.err.splitlines() if "FAILED" in line)
    said = f"FAILED fedproto, channel.snr_db=9, {row['hash']}: RuntimeError: loss is not finite in round 3"
    assert line.endswith(said)
    assert "| FedProto | 60.0 |  | 78.0 |" in captured.out
    assert "Traceback" in (tmp_path / row["hash"] / "error.txt").read_text()

    sweep("demo", out=tmp_path, jobs=jobs, train=fake_run)  # the failed run is tried again, and only that one
    assert set(read_table(tmp_path)["status"]) == {"done"}
    assert set(marks(tmp_path)) == {"x"}
    assert not list(tmp_path.glob("*/error.txt"))


def test_a_run_that_kills_its_process_fails_and_others_finish(tmp_path: Path, fake_run: Run) -> None:
    """One always, one the first two times, as if others had killed it: it is tried again. They are no threads."""

    def run(config: RunConfig) -> None:
        folder = Path(str(config.out))
        (folder / "began.txt").open("a").write(f"{os.getpid()}\n")
        times = len((folder / "began.txt").read_text().splitlines())
        if config.method == "fedavg" and times <= {0.0: 9, 9.0: 2, 18.0: 0}[config.channel.snr_db]:
            os.kill(os.getpid(), signal.SIGKILL)
        fake_run(config)

    with pytest.raises(RunError, match="^1 of 9 runs failed"):
        sweep("demo", out=tmp_path, jobs=2, train=run)
    frame = read_table(tmp_path).set_index(["method", "channel.snr_db"])
    assert frame.index[frame["status"] != "done"].tolist() == [("fedavg", 0.0)]
    assert frame["error"]["fedavg", 0.0].startswith("the process ended without a result: TerminatedWorkerError")
    began = {at: (tmp_path / key / "began.txt").read_text().split() for at, key in frame["hash"].items()}
    assert len(began["fedavg", 9.0]) == 3 and str(os.getpid()) not in sum(began.values(), [])


OWN = """
from pathlib import Path

from semcom.studies.experiment import Experiment, Grid
from semcom.studies.registry import EXPERIMENTS
from semcom import PartitionConfig, RunConfig
from semcom.config import run_hash
from semcom.runs.folder.summary import read_summary, write_summary

ACCURACY = 0.25


def train(config):
    write_summary(Path(config.out), {"accuracy": ACCURACY, "hash": run_hash(config)})


base = RunConfig(partition=PartitionConfig(options={"shots": 5}))
scales = {"smoke": Grid(base, {"seed": (0, 1)})}
EXPERIMENTS.register("NAME")(Experiment("NAME", "", "none", ("fedavg",), scales, train=train))
"""


@pytest.mark.parametrize("named", [True, False])
def test_a_plugins_training_function_reaches_workers(tmp_path: Path, own_names: None, named: bool) -> None:
    """They cannot import it by the name of its module, so they load the plug-in."""
    file = tmp_path / "own.py"
    name = f"own-train-{named}"  # the workers of one test are those of the next
    file.write_text(OWN.replace("NAME", name))
    if named:
        sweep(name, plugins=(str(file),), out=tmp_path / "r", jobs=2)
    else:
        sweep(str(file), out=tmp_path / "r", jobs=2)
    assert list(read_table(tmp_path / "r")["accuracy"]) == [0.25, 0.25]


@pytest.mark.parametrize("jobs", [1, 2])
def test_of_a_rate_is_spoken_once_in_a_study(jobs: int, tmp_path: Path, fake_run: Run, caplog: Any) -> None:
    """By the process of the sweep, whichever said it; what else is said of rates stays."""

    def run(config: RunConfig) -> None:
        rates = logging.getLogger("semcom.engine.air.rates")
        rates.warning("too fast at %g dB", config.seed)
        rates.warning("too slow")
        fake_run(config)

    sweep("demo", seeds=(3, 4, 5), methods="fedcl", out=tmp_path, jobs=jobs, train=run)
    said = [record.getMessage() for record in caplog.records if record.name == "semcom.engine.air.rates"]
    assert sorted(said) in (["too fast at 3 dB", "too slow"], ["too fast at 4 dB", "too slow"])


def test_of_lokys_warnings_that_of_a_new_worker_is_left_out(
    tmp_path: Path, fake_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = parallel._Parallel.__call__

    def call(self: Any, calls: Any) -> Any:
        text = "A worker stopped while some jobs were given to the executor. This can be caused by a memory leak."
        warnings.warn(text, UserWarning, stacklevel=1)
        warnings.warn("A worker is slow", UserWarning, stacklevel=1)
        return ours(self, calls)

    monkeypatch.setattr(parallel._Parallel, "__call__", call)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        sweep("demo", out=tmp_path, train=fake_run)
    assert [str(each.message) for each in said if each.category is UserWarning] == ["A worker is slow"]


def test_interrupt_leaves_finished_runs(tmp_path: Path, fake_run: Run) -> None:
    count = 0

    def run(config: RunConfig) -> None:
        nonlocal count
        count += 1
        if count == 3:
            raise KeyboardInterrupt
        fake_run(config)

    with pytest.raises(KeyboardInterrupt):
        sweep("demo", out=tmp_path, train=run)
    assert len(list(tmp_path.glob("*/summary.json"))) == 2
    sweep("demo", out=tmp_path, train=fake_run)
    assert set(marks(tmp_path)) == {"x"}
    assert len(read_table(tmp_path)) == 9


def test_training_without_summary_and_unreadable_summary_are_failures(tmp_path: Path, fake_run: Run) -> None:
    def run(config: RunConfig) -> None:
        if config.channel.snr_db == 0.0:
            (Path(str(config.out)) / "summary.json").write_text("{")
        elif config.channel.snr_db == 9.0:
            fake_run(config)

    with pytest.raises(RunError, match="^2 of 3 runs failed"):
        sweep("demo", out=tmp_path, train=run, methods="fedcl")
    errors = read_table(tmp_path).set_index("channel.snr_db")["error"]
    assert "summary.json is damaged" in errors[0.0] and errors[18.0] == "RunError: the run ended without a summary"


def test_wrong_configuration_stops_before_any_run(
    tmp_path: Path, fake_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(config: RunConfig) -> RunConfig:
        if config.method == "fedavg":
            raise ConfigError("partition.ways: 11 is more than the 10 classes of digits")
        return config

    monkeypatch.setattr("semcom.resolve", refuse)
    with refuses("partition.ways", 11):
        sweep("demo", out=tmp_path / "r", train=fake_run)
    assert not (tmp_path / "r").exists()


def test_missing_ray_is_one_line(tmp_path: Path, fake_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr("semcom.packages.find_spec", lambda name: None)
    with refuses("backend", "semcom[ray]"):
        sweep("demo", out=tmp_path, backend="ray", train=fake_run)


def test_longest_runs_come_first(tmp_path: Path) -> None:
    runs = make_plan("demo", request=parse_request(set={"train.rounds": 3}), out=tmp_path).runs
    assert [run_hash(c) for c in runs.values()] == list(runs)
    # 20 clients x 3 ways x 15 shots x 3 rounds
    assert {estimate_run_cost(c) for c in runs.values()} == {20 * 3 * 15 * 3}
    split = PartitionConfig(options=Shots.Options(ways=2, shots=10))
    # 2 clients with 1 and 3 epochs over 20 samples, 5 rounds, half of them taking part
    uneven = TrainConfig(rounds=5, local_epochs=(1, 3), participation=0.5)
    assert (
        estimate_run_cost(semcom.resolve(RunConfig(partition=split, clients=2, train=uneven))) == 5 * 2 * 2 * 0.5 * 20
    )


def mixed(name: str = "mixed", **fields: object) -> Experiment:
    """An experiment over the SNR, registered for one test."""
    base = find_experiment("demo").scales["smoke"].base
    grid = Grid(base, {"channel.snr_db": (9.0,), "seed": (0,)})
    plain = {"name": name, "title": "", "paper": "none", "variants": ("fedavg",), "scales": {"smoke": grid}}
    return Experiment(**(plain | fields))  # type: ignore[arg-type]


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Callable[[Experiment], None]:
    """Adds an experiment until the test ends."""
    return lambda entry: monkeypatch.setitem(EXPERIMENTS._added, entry.name, entry)


HELD = "semcom.sweep('demo', "


@pytest.mark.parametrize(
    ("name", "scale", "overrides"),
    [
        ("letter-fig2b", "smoke", {}),
        ("demo", "own", {}),
        ("demo", "smoke", {"train.rounds": 5}),
        ("demo", "smoke", {"channel.snr_db": 9.0}),
    ],
)
def test_a_folder_belongs_to_one_sweep(
    tmp_path: Path, fake_run: Run, monkeypatch: pytest.MonkeyPatch, name: str, scale: str, overrides: dict[str, object]
) -> None:
    demo = find_experiment("demo")
    own = dataclasses.replace(demo, scales={**demo.scales, "own": demo.scales["smoke"]})
    monkeypatch.setattr("semcom_papers.experiments.demo.DEMO", own)
    sweep("demo", out=tmp_path, train=fake_run)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def never(config: RunConfig) -> None:
        raise AssertionError("trained")

    with refuses("out", tmp_path, HELD):
        sweep(name, scale=scale, out=tmp_path, set=overrides, train=never)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    sweep("demo", out=tmp_path, train=never, set={"device": "cpu"})  # the same sweep: nothing is left to do


def test_a_folder_is_taken_before_the_first_run_ends(tmp_path: Path, fake_run: Run) -> None:
    def stop(config: RunConfig) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep("demo", out=tmp_path, train=stop)
    with refuses("out", HELD):
        sweep("letter-fig2b", out=tmp_path, train=fake_run)


def test_a_folder_has_runs_of_one_kind_of_training(tmp_path: Path, fake_run: Run) -> None:
    given = {"methods": "local", "set": {"clients": 2, "partition.shots": 2, "train.rounds": 1}, "out": tmp_path}
    sweep(**given, seeds=0, train=fake_run)
    with refuses("train", tmp_path, "a function of their own"):
        sweep(**given, seeds=(0, 1))


def test_the_order_of_overrides_does_not_matter(tmp_path: Path, fake_run: Run) -> None:
    overrides = {"train.rounds": 2, "channel.snr_db": 9.0}
    sweep("demo", out=tmp_path, train=fake_run, set=overrides)
    sweep("demo", out=tmp_path, train=fake_run, set=dict(reversed(overrides.items())))
    assert set(marks(tmp_path)) == {"x"}


@pytest.mark.parametrize(
    ("name", "text"),
    [("results.parquet", ""), ("sweep.json", "{"), ("sweep.json", "[1]"), ("config.json", "{}"), ("summary.json", "")],
)
def test_a_strange_folder_is_refused(tmp_path: Path, fake_run: Run, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with refuses("out", name):
        sweep("demo", out=tmp_path, train=fake_run)
    assert [path.name for path in tmp_path.iterdir()] == [name] and (tmp_path / name).read_text() == text


def test_a_file_is_no_folder(tmp_path: Path, fake_run: Run) -> None:
    (tmp_path / "r").write_text("mine")
    with refuses("out", tmp_path / "r"):
        sweep("demo", out=tmp_path / "r", train=fake_run)


def test_a_scale_may_have_any_name(here: Path, fake_run: Run, register: Callable[[Experiment], None]) -> None:
    register(mixed(scales={"mine": mixed().scales["smoke"]}))
    path = sweep("mixed", train=fake_run)
    assert path == Path("results/mixed-mine/results.parquet")
    assert read_table(path)["command"].unique().tolist() == ["semcom.sweep('mixed')"]


def test_more_processes_than_runs_are_not_started(
    tmp_path: Path, fake_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[int] = []
    monkeypatch.setattr(
        "semcom.studies.sweep.sweep.carry_out_in_pool", lambda runs, jobs, **_: given.append(jobs) or {}
    )
    sweep("demo", out=tmp_path / "many", jobs=10**8, train=fake_run)
    assert given == [9]
    monkeypatch.setattr(limits, "measure_free_memory", lambda device: 3 * limits.PROCESS - 1)
    with refuses("jobs", 3, "0.6 GiB"):
        sweep("demo", out=tmp_path / "few", jobs=3, train=fake_run)
    assert given == [9] and not (tmp_path / "few").exists()


# What goes wrong while it runs ---------------------------------------------------------------------------------------


def test_two_sweeps_in_one_folder(tmp_path: Path, fake_run: Run) -> None:
    """The second one says whose the folder is, and writes nothing."""
    inside: list[str] = []

    def run(config: RunConfig) -> None:
        if not inside:
            before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
            with pytest.raises(ConfigError) as stop:
                sweep("demo", out=tmp_path, train=fake_run)
            inside.append(str(stop.value))
            assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
        fake_run(config)

    sweep("demo", out=tmp_path, train=run)
    whose = rf"process {os.getpid()} of .+ \(since \d{{4}}-\d\d-\d\d \d\d:\d\d\)"
    assert re.fullmatch(rf"out: {whose} is running in {tmp_path}; wait for it, or give another folder", inside[0])
    assert set(read_table(tmp_path)["status"]) == {"done"} and not (tmp_path / ".owner").exists()


def test_a_full_disk_is_said_once_and_starts_nothing(
    tmp_path: Path, fake_run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[str] = []

    def run(config: RunConfig) -> None:
        started.append(run_hash(config))
        if len(started) == 2:

            def full(folder: Path) -> None:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

            monkeypatch.setattr("semcom.studies.sweep.attempt.probe_disk", full)
            raise RunError("round 3: checkpoint.pt: No space left on device")
        fake_run(config)

    with pytest.raises(RunError, match="^8 of 9 runs failed"):
        sweep("demo", out=tmp_path, train=run)
    assert len(started) == 2
    err = capsys.readouterr().err
    reason = f"{tmp_path} takes no more files (No space left on device)"
    assert err.count(reason) == 1 and f"7 runs were not started: {reason}" in err and err.count("s] FAILED") == 1
    errors = read_table(tmp_path)["error"].dropna()
    assert (errors == f"not started: {reason}").sum() == 7


def test_a_run_that_takes_too_long_is_stopped(tmp_path: Path, fake_run: Run) -> None:
    def run(config: RunConfig) -> None:
        begun = time.monotonic()
        while config.channel.snr_db == 9.0 and time.monotonic() - begun < 20:
            time.sleep(0.01)
        fake_run(config)

    begun = time.monotonic()
    with pytest.raises(RunError, match="^1 of 3 runs failed"):
        sweep("demo", out=tmp_path, train=run, methods="fedcl", limit_minutes=0.01)
    assert time.monotonic() - begun < 10
    errors = read_table(tmp_path).set_index("channel.snr_db")["error"]
    assert errors[9.0] == "TimeUp: stopped after 0.01 minutes"
    with refuses("limit_minutes", 0):
        sweep("demo", out=tmp_path, train=run, limit_minutes=0)


def test_a_pool_that_breaks_before_any_run_is_made_anew(
    tmp_path: Path, fake_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one does whose idle worker was killed since the last sweep; for ever is not tried."""
    pools: list[int] = []
    whole = parallel._run_calls

    def pool(calls: Any, *rest: Any) -> str:
        pools.append(len(calls))
        return "broken" if len(pools) <= broken else whole(calls, *rest)

    monkeypatch.setattr(parallel, "_run_calls", pool)
    broken = 2
    sweep("demo", out=tmp_path / "twice", train=fake_run)
    assert pools == [9, 9, 9] and set(read_table(tmp_path / "twice")["status"]) == {"done"}
    pools.clear()
    broken = 100
    with pytest.raises(RunError, match="^9 of 9 runs failed"):
        sweep("demo", out=tmp_path / "ever", train=fake_run)
    assert pools == [9, 9, 9] and set(read_table(tmp_path / "ever")["error"]) == {"broken"}


def test_a_damaged_summary_is_trained_again(tmp_path: Path, fake_run: Run) -> None:
    """Any kind of damage is noticed: `tests.runs.request.test_stop`."""
    sweep("demo", out=tmp_path, train=fake_run)
    before = read_table(tmp_path)
    next(tmp_path.glob("*/summary.json")).write_text('{"accuracy": 0.999}')
    sweep("demo", out=tmp_path, train=fake_run)
    pd.testing.assert_frame_equal(read_table(tmp_path), before)
    assert sorted(marks(tmp_path)) == ["x"] * 8 + ["xx"]


SHORT = """
from semcom import PartitionConfig, RunConfig, TrainConfig
from semcom.studies.experiment import Experiment, Grid
from semcom.studies.registry import EXPERIMENTS

split = PartitionConfig(options={"shots": 4})
base = RunConfig(clients=3, device="cpu", train=TrainConfig(rounds=12), partition=split)
scales = {"smoke": Grid(base, {"channel.snr_db": (0.0, 9.0)})}
EXPERIMENTS.register("short")(Experiment("short", "Short runs", "none", ("fedavg", "local"), scales))
"""


def list_workers(pid: int) -> list[psutil.Process]:
    """The workers below a process that have begun; beside them it has joblib's tracker, and a `uname` for a moment."""
    found = []
    for each in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "popen_loky" in " ".join(each.cmdline()):
                found.append(each)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2])
def test_workers_have_one_thread_and_end_with_their_sweep(
    number: int, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their runs are kept, and nothing is left that trains on; SIGKILL is in `test_kills`."""
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    Path("short.py").write_text(SHORT)
    with Forked(cli.main, ["sweep", "short.py", "--jobs", "2", "--out", "out"]) as process:
        deadline, workers = time.monotonic() + 60, list[psutil.Process]()
        while (len(workers) < 2 or not list(Path("out").glob("*/metrics.jsonl"))) and time.monotonic() < deadline:
            time.sleep(0.05)
            workers = list_workers(process.pid)
        assert [each.environ()["OMP_NUM_THREADS"] for each in workers] == ["1", "1"]
        family = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        assert process.wait(30) == STATUS
        assert not psutil.wait_procs(family, timeout=10)[1]
    for metrics in (here / "out").glob("*/metrics.jsonl"):
        lines, path = metrics.read_bytes().splitlines(), metrics.with_name("checkpoint.pt")
        assert not lines or load_checkpoint(path)["progress"]["round"] == len(lines)


def test_loky_s_own_thread_says_nothing_when_a_sweep_is_ended(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: told.append(args.thread.name))
    parallel._silence_manager()
    for name in ("ExecutorManagerThread", "mine"):
        thread = threading.Thread(target=lambda: {}["task"], name=name)
        thread.start()
        thread.join()
    assert told == ["mine"]


@pytest.mark.parametrize(("error", "jobs"), [(PermissionError, 1), (ImportError, 2)])
def test_without_shared_memory_runs_go_one_at_a_time(
    error: type[Exception],
    jobs: int,
    tmp_path: Path,
    fake_run: Run,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(self: object, *_: object) -> None:
        raise error

    monkeypatch.setattr("multiprocessing.context.SpawnContext.Semaphore", refuse)
    sweep("demo", out=tmp_path, train=fake_run, jobs=jobs)
    assert set(read_table(tmp_path)["status"]) == {"done"}
    assert ["jobs: " in text for text in caplog.messages if "one at a time" in text] == [True] * (jobs > 1)
