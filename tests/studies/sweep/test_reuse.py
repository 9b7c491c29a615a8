"""Runs taken over from other studies; training is a stand-in."""

from __future__ import annotations

import dataclasses
import json
import shutil
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from semcom.config import READ, RunConfig, RunError, run_hash
from semcom.files import ARRAYS, CHECKPOINT, CONFIG, ERROR, METRICS, SUMMARY, TRAINING, digest_of_file, write_atomically
from semcom.runs.folder.arrays import write_arrays
from semcom.runs.folder.folder import Folder
from semcom.runs.folder.lock import LOCK
from semcom.runs.folder.stored import write_stored_config
from semcom.runs.folder.summary import write_summary
from semcom.studies.registry import EXPERIMENTS
from semcom.studies.results.archive import pack_archive
from semcom.studies.results.lock import parse_sweep_record
from semcom.studies.results.run import read_stored_runs
from semcom.studies.results.table import read_table
from semcom.studies.sweep.plan import make_plan
from semcom.studies.sweep.request import parse_request
from semcom.studies.sweep.reuse import take_reused_run
from semcom.studies.sweep.sweep import preview_sweep, sweep
from semcom_papers.experiments.demo import DEMO
from tests.refusals import refuses
from tests.studies.folders import marks

Run = Callable[[RunConfig], None]


@pytest.fixture(autouse=True)
def run(monkeypatch: pytest.MonkeyPatch, fake_run: Run) -> Run:
    """What trains in place of `semcom.run`: it leaves what a run leaves, and a mark."""

    def trained(config: RunConfig) -> None:
        folder = Path(str(config.out))
        write_stored_config(folder, config)
        (folder / METRICS).write_text('{"round": 1}\n')
        fake_run(config)

    monkeypatch.setattr("semcom.run", trained)
    return trained


@pytest.fixture(params=["folder", "archive"])
def three(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A study of `demo` with the seeds 0 to 2, as a folder and as an archive: 3 methods x 3 SNRs x 3 seeds."""
    out = tmp_path / "three"
    sweep("demo", out=out, seeds=range(3))
    return out if request.param == "folder" else pack_archive(out)


def test_what_another_study_has_finished_is_not_run_again(three: Path, tmp_path: Path) -> None:
    sweep("demo", out=tmp_path / "more", seeds=(2, 3), reuse=[three])
    sweep("demo", out=tmp_path / "anew", seeds=(2, 3))
    tables = [read_table(tmp_path / name).set_index("hash")["accuracy"] for name in ("more", "anew")]
    assert tables[0].equals(tables[1]) and len(tables[0]) == 18
    assert len(marks(tmp_path / "more")) == 9 and len(marks(tmp_path / "anew")) == 18
    taken = [run for run in (tmp_path / "more").glob("*/") if not (run / "ran.txt").exists()]
    for place in taken:
        assert (place / METRICS).read_text() == '{"round": 1}\n'
        assert json.loads((place / CONFIG).read_text())["out"] == str(place)


def test_what_is_taken_over_is_finished_for_good(three: Path, tmp_path: Path) -> None:
    """Without the other study; and a run that is finished here is not taken from there."""
    out = tmp_path / "more"
    sweep("demo", out=out, seeds=(2,), reuse=three)
    assert not marks(out)
    sweep("demo", out=out, seeds=(2,))
    sweep("demo", out=out, seeds=(2, 3))
    assert marks(out) == ["x"] * 9
    sweep("demo", out=out, seeds=range(4), reuse=str(three))
    assert marks(out) == ["x"] * 9
    sweep("demo", out=out, seeds=range(4), reuse=out)
    assert marks(out) == ["x"] * 9


def test_the_first_study_that_has_a_run_gives_it(three: Path, tmp_path: Path) -> None:
    sweep("demo", out=tmp_path / "first", methods="fedcl", seeds=(2,))
    for path in (tmp_path / "first").glob(f"*/{METRICS}"):
        path.write_text('{"round": 7}\n')
    with refuses("reuse", "no finished run"):
        sweep("demo", out=tmp_path / "none", methods="fedcl", seeds=(2,), reuse=[tmp_path / "first"])
    for path in (tmp_path / "first").glob(f"*/{SUMMARY}"):
        write_summary(path.parent, json.loads(path.read_text()))
    sweep("demo", out=tmp_path / "more", seeds=(2,), reuse=[tmp_path / "first", three])
    rounds = Counter(path.read_text() for path in (tmp_path / "more").glob(f"*/{METRICS}"))
    assert rounds == {'{"round": 7}\n': 3, '{"round": 1}\n': 6}


def test_a_shard_takes_over_its_own_part(three: Path, tmp_path: Path) -> None:
    out = tmp_path / "part"
    assert sweep("demo", out=out, seeds=(0,), shard="1/3", reuse=[three]) is None
    assert len(list(out.glob(f"*/{SUMMARY}"))) == 3 and not marks(out)


def test_a_preview_counts_what_would_be_taken_over(three: Path, tmp_path: Path) -> None:
    plan = make_plan("demo", request=parse_request(None, (1,), None, None), out=tmp_path / "more")
    assert preview_sweep(plan, reuse=[three]).startswith("9 runs: 0 finished, 9 reusable, 0 pending\n")
    assert not plan.folder.exists()


def test_a_study_without_the_runs_is_refused(three: Path, tmp_path: Path) -> None:
    with refuses("reuse", three):
        sweep("demo", out=tmp_path / "other", seeds=(3,), reuse=[three])
    for place in (tmp_path / "nowhere", "~nobody-at-all/nowhere"):
        with refuses("reuse", "nowhere"):
            sweep("demo", out=tmp_path / "other", seeds=(3,), reuse=[place])
    assert not (tmp_path / "other").exists()


def test_how_the_runs_of_a_folder_were_trained_has_to_be_known(tmp_path: Path) -> None:
    sweep("demo", out=tmp_path / "a")
    one = next(path.parent for path in (tmp_path / "a").glob(f"*/{SUMMARY}"))
    (tmp_path / "a" / "sweep.json").rename(tmp_path / "sweep.json")
    for study in (one, tmp_path / "a"):
        with refuses("reuse"):
            sweep("demo", out=tmp_path / "b", reuse=study)
    held = parse_sweep_record(tmp_path / "sweep.json")
    (tmp_path / "a" / "sweep.json").write_text(json.dumps({**held, "own_training": True}))  # as it was once declared
    with refuses("reuse", "training function"):
        sweep("demo", out=tmp_path / "b", reuse=tmp_path / "a")
    (tmp_path / "a" / "sweep.json").write_text(json.dumps({**held, "experiment": "gone", "own_training": True}))
    with refuses("reuse", "training function"):
        sweep("demo", out=tmp_path / "b", reuse=tmp_path / "a")


def test_a_sweep_says_that_it_was_given_a_training_function(tmp_path: Path, run: Run) -> None:
    def given(config: RunConfig) -> None:
        run(config)

    sweep("demo", out=tmp_path / "a", train=given)
    assert json.loads((tmp_path / "a" / "sweep.json").read_text())["own_training"] is True
    for train in (None, given):
        with refuses("reuse", "training function"):
            sweep("demo", out=tmp_path / "b", reuse=tmp_path / "a", train=train)


def test_failed_and_damaged_runs_are_not_taken_over(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(config: RunConfig) -> None:
        if config.method == "fedavg":
            raise ValueError("on purpose")
        run(config)

    with monkeypatch.context() as patch, pytest.raises(RunError, match="3 of 9 runs failed"):
        patch.setattr("semcom.run", failing)
        sweep("demo", out=tmp_path / "a")
    damaged = next((tmp_path / "a").glob(f"*/{SUMMARY}"))
    damaged.write_text(damaged.read_text().replace('"accuracy": 0.', '"accuracy": 0.1', 1))
    sweep("demo", out=tmp_path / "b", reuse=[tmp_path / "a"])
    assert set(read_table(tmp_path / "b")["status"]) == {"done"} and marks(tmp_path / "b") == ["x"] * 4


def test_a_damaged_file_of_an_archive_is_found_before_the_sweep(tmp_path: Path) -> None:
    """Its run is trained anew, and the others are taken."""
    sweep("demo", out=tmp_path / "a", methods="fedcl", seeds=range(2))
    for run in (tmp_path / "a").glob("*/"):
        np.savez(run / ARRAYS, x=np.arange(1000))
    archive = pack_archive(tmp_path / "a", arrays=True)
    with zipfile.ZipFile(archive) as packed:
        entry = next(entry for entry in packed.infolist() if entry.filename.endswith(ARRAYS))
    content = bytearray(archive.read_bytes())
    content[entry.header_offset + 200] ^= 1
    archive.write_bytes(content)
    sweep("demo", out=tmp_path / "b", methods="fedcl", seeds=range(2), reuse=archive)
    assert marks(tmp_path / "b") == ["x"] and set(read_table(tmp_path / "b")["status"]) == {"done"}


@pytest.mark.usefixtures("own_names")
def test_what_an_experiment_adds_is_not_in_the_runs_of_others(three: Path, tmp_path: Path, run: Run) -> None:
    for name, train in (("mine", run), ("ours", run), ("theirs", lambda config: run(config))):
        EXPERIMENTS.register(name)(dataclasses.replace(DEMO, name=name, train=train, figures=()))
    sweep("mine", out=tmp_path / "mine", seeds=(0,))
    for place in (path.parent / TRAINING for path in (tmp_path / "mine").glob(f"*/{SUMMARY}")):
        for name in (CONFIG, METRICS, ARRAYS, SUMMARY, CHECKPOINT, LOCK):
            write_atomically(place / name, (place.parent / CONFIG).read_text() if name == CONFIG else name)
        write_summary(place.parent, json.loads((place.parent / SUMMARY).read_text()))
    for name, study in (("mine", three), ("theirs", tmp_path / "mine"), ("demo", tmp_path / "mine")):
        with refuses("reuse", "training function"):
            sweep(name, out=tmp_path / "new", seeds=(0,), reuse=[study])
    with refuses("reuse", "training function"):
        sweep("demo", out=tmp_path / "new", seeds=(0,), reuse=[three], train=lambda config: run(config))
    sweep("ours", out=tmp_path / "ours", seeds=(0,), reuse=[tmp_path / "mine"])
    assert marks(tmp_path / "mine") and not marks(tmp_path / "ours")
    found = Counter(path.name for path in (tmp_path / "ours").glob(f"*/{TRAINING}/*"))
    assert found == dict.fromkeys((CONFIG, METRICS, ARRAYS, SUMMARY), len(marks(tmp_path / "mine")))
    for path in (tmp_path / "ours").glob(f"*/{TRAINING}/{CONFIG}"):
        assert json.loads(path.read_text())["out"] == str(path.parent)


def test_kept_arrays_come_along_or_the_run_stays(tmp_path: Path) -> None:
    sweep("demo", out=tmp_path / "a", set={"keep": ("confusion",)})
    for at, path in enumerate(sorted((tmp_path / "a").glob(f"*/{SUMMARY}"))):
        kept = ({}, {"received/x": np.ones(1)}, {"confusion/x": np.ones(1)})[min(at, 2)]
        if at:  # the first run has kept nothing, the second one something else, the third one's file is damaged
            write_arrays(path.with_name(ARRAYS), kept, json.loads(path.read_text())["hash"])
        if at == 2:
            path.with_name(ARRAYS).write_bytes(b"arrays")
    sweep("demo", out=tmp_path / "b", set={"keep": ("confusion",)}, reuse=[tmp_path / "a"])
    assert marks(tmp_path / "b") == ["x"] * 3
    assert len(list((tmp_path / "b").glob(f"*/{ARRAYS}"))) == len(read_table(tmp_path / "b")) - 3


def test_nothing_of_an_earlier_attempt_stays_beside_a_run_that_is_taken_over(tmp_path: Path) -> None:
    sweep("demo", out=tmp_path / "a")
    stored = read_stored_runs(tmp_path / "a")[0][0]
    config = make_plan("demo", out=tmp_path / "b").runs[stored.hash]
    folder = Path(str(config.out))
    for name in (ERROR, CHECKPOINT, METRICS):
        write_atomically(folder / name, name)
    write_stored_config(folder, config)
    take_reused_run(config, stored)
    assert {path.name for path in folder.iterdir()} - {LOCK} == {CONFIG, METRICS, SUMMARY}
    assert (folder / METRICS).read_text() == '{"round": 1}\n'


def test_a_run_that_is_running_is_left_alone(tmp_path: Path) -> None:
    sweep("demo", out=tmp_path / "a")
    stored = read_stored_runs(tmp_path / "a")[0][0]
    config = make_plan("demo", out=tmp_path / "b").runs[stored.hash]
    assert run_hash(config) == stored.hash
    folder = Path(str(config.out))
    with Folder(folder, config).open():
        take_reused_run(config, stored)
        assert not (folder / SUMMARY).exists()
    take_reused_run(config, stored)
    assert (folder / SUMMARY).exists()


MINE = """
from dataclasses import dataclass
from semcom import METHODS
from semcom.methods.fedavg import FedAvg


@METHODS.register("joins-demo")
class Mine(FedAvg):
    @dataclass(frozen=True)
    class Hyper(FedAvg.Hyper):
        pull: float = 0.5
"""


def test_method_of_a_plugin_joins_an_experiment_beside_the_runs_that_another_study_has(
    three: Path, tmp_path: Path, own_names: None
) -> None:
    with refuses("methods", "demo", "joins-demo"):
        make_plan("demo", "smoke", parse_request("joins-demo"), out=tmp_path / "none")
    plugin, out = tmp_path / "mine.py", tmp_path / "joined"
    plugin.write_text(MINE)
    own = {"train.lr": 0.25, "hyper.pull": 0.75}
    for _ in range(2):  # the second time nothing is left to do
        args = {"methods": "joins-demo", "plugins": [str(plugin)], "seeds": range(3), "set": own, "out": out}
        frame = read_table(sweep("demo", reuse=[three], **args))
    assert list(dict.fromkeys(frame["variant"])) == [*DEMO.variants, "joins-demo"]
    assert len(marks(out)) == 3 * 3 and len(frame) == 4 * 3 * 3
    mine = frame["variant"] == "joins-demo"
    assert set(frame["hash"][~mine]) == set(read_table(tmp_path / "three" / "results.parquet")["hash"])
    assert set(frame["train.lr"][mine]) == {0.25} and 0.25 not in set(frame["train.lr"][~mine])
    alone = make_plan("demo", "smoke", parse_request("joins-demo"), [str(plugin)], tmp_path / "alone")
    assert set(alone.variants.values()) == {"joins-demo"}


def test_a_method_that_joins_is_tuned_by_itself(
    three: Path, tmp_path: Path, own_names: None, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is chosen is its own alone; the others' runs are taken over as they are, and are not searched."""

    def validated(config: RunConfig) -> None:
        """A higher rate is better on validation images."""
        run(config)
        summary = json.loads((Path(str(config.out)) / SUMMARY).read_text())
        summary["views"]["personal"]["validation"] = config.train.lr
        write_summary(Path(str(config.out)), summary)

    monkeypatch.setattr("semcom.run", validated)
    plugin, out = tmp_path / "mine.py", tmp_path / "joined"
    plugin.write_text(MINE)
    asked = {"methods": "joins-demo", "plugins": [str(plugin)], "seeds": range(3), "set": {"hyper.pull": 0.75}}
    frame = read_table(sweep("demo", reuse=[three], tune={"train.lr": (0.25, 0.5, 0.125)}, out=out, **asked))
    mine, search = frame["variant"] == "joins-demo", read_table(out / "search")
    assert set(search["variant"]) == {"joins-demo"} and len(search) == 3 * 3
    assert set(frame["train.lr"][mine]) == {0.5} and set(frame["hyper.pull"][mine]) == {0.75}
    assert set(frame["hash"][~mine]) == set(read_table(tmp_path / "three" / "results.parquet")["hash"])
    alone = read_table(sweep("demo", out=tmp_path / "set", **{**asked, "set": {**asked["set"], "train.lr": 0.5}}))
    assert set(alone["hash"]) == set(frame["hash"][mine])


def test_a_study_that_is_none_is_refused_before_a_search(tmp_path: Path) -> None:
    tune = {"train.lr": (0.25, 0.5)}
    with refuses("reuse", "nowhere"):
        sweep("demo", out=tmp_path / "tuned", seeds=(0,), tune=tune, reuse=[tmp_path / "nowhere"])
    assert not (tmp_path / "tuned").exists()


def test_what_a_run_that_is_taken_over_has_read_may_not_change(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an archive such a run is not taken, and where it says to look nobody looks."""
    table = tmp_path / "table.csv"
    table.write_text("1")

    def reading(config: RunConfig) -> None:
        run(config)
        contents = {READ + str(table): digest_of_file(table)}
        write_stored_config(Path(str(config.out)), dataclasses.replace(config, contents=contents))

    monkeypatch.setattr("semcom.run", reading)
    few: dict[str, Any] = {"methods": "fedcl", "seeds": (0,)}
    sweep("demo", out=tmp_path / "a", **few)
    sweep("demo", out=tmp_path / "b", reuse=tmp_path / "a", **few)
    assert not marks(tmp_path / "b")
    forged = shutil.make_archive(str(tmp_path / "forged"), "zip", tmp_path / "a")  # `semcom pack` would name no folder
    with monkeypatch.context() as patch, refuses("reuse", "no finished run"):
        patch.setattr("semcom.runs.request.inputs._list_files", None)
        sweep("demo", out=tmp_path / "c", reuse=forged, **few)
    table.write_text("2")
    for name in "ab":
        with refuses("out", "table.csv"):
            sweep("demo", out=tmp_path / name, **few)
