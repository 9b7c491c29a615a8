"""Runs taken over from other studies; training is a stand-in."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.archive import pack
from experiments.demo import DEMO
from experiments.estimate import dry_run
from experiments.outcome import TRAINING
from experiments.plan import planned
from experiments.registry import EXPERIMENTS
from experiments.request import asked
from experiments.results import read_table
from experiments.sweep import sweep
from semcom.config import ConfigError, RunConfig
from semcom.files import ARRAYS, CHECKPOINT, CONFIG, METRICS, write_atomically
from semcom.runs.folder import LOCK

Run = Callable[[RunConfig], None]


def marks(folder: Path) -> list[str]:
    """What the runs that were carried out there have left."""
    return [path.read_text() for path in folder.glob("*/ran.txt")]


@pytest.fixture(params=["folder", "archive"])
def three(tmp_path: Path, fake_run: Run, request: pytest.FixtureRequest) -> Path:
    """A study of `demo` with the seeds 0 to 2, as a folder and as an archive: 3 methods x 3 SNRs x 3 seeds."""
    out = tmp_path / "three"
    sweep("demo", out=out, train=fake_run, seeds=range(3))
    for run in out.glob("*/summary.json"):
        run.with_name(METRICS).write_text('{"round": 1}\n')
    return out if request.param == "folder" else pack(out)


def test_what_another_study_has_finished_is_not_run_again(three: Path, tmp_path: Path, fake_run: Run) -> None:
    more = sweep("demo", out=tmp_path / "more", train=fake_run, seeds=(2, 3), reuse=[three])
    anew = sweep("demo", out=tmp_path / "anew", train=fake_run, seeds=(2, 3))
    assert more and anew
    assert len(read_table(more.parent)) == 2 * len(marks(more.parent)) == len(marks(anew.parent)) == 18
    pairs = [read_table(place.parent).set_index("hash")["accuracy"] for place in (more, anew)]
    assert pairs[0].equals(pairs[1])
    taken = [run for run in more.parent.glob("*/") if not (run / "ran.txt").exists()]
    assert len(taken) == 9 and all((run / METRICS).read_text() == '{"round": 1}\n' for run in taken)


def test_what_is_taken_over_is_finished_for_good(three: Path, tmp_path: Path, fake_run: Run) -> None:
    """Without the other study; and a run that is finished here is not taken from there."""
    out = tmp_path / "more"
    sweep("demo", out=out, train=fake_run, seeds=(2,), reuse=[three])
    assert not marks(out)
    sweep("demo", out=out, train=fake_run, seeds=(2,))
    sweep("demo", out=out, train=fake_run, seeds=(2, 3))
    assert marks(out) == ["x"] * 9
    sweep("demo", out=out, train=fake_run, seeds=range(4), reuse=[three])
    assert marks(out) == ["x"] * 9


def test_a_shard_takes_over_its_own_part(three: Path, tmp_path: Path, fake_run: Run) -> None:
    out = tmp_path / "part"
    assert sweep("demo", out=out, train=fake_run, seeds=(0,), shard="1/3", reuse=[three]) is None
    assert len(list(out.glob("*/summary.json"))) == 3 and not marks(out)


def test_a_dry_run_counts_what_would_be_taken_over(three: Path, tmp_path: Path) -> None:
    plan = planned("demo", request=asked(None, (1,), None, None), out=tmp_path / "more")
    assert "9 runs, 9 of them finished" in dry_run(plan, reuse=[three])
    assert not plan.folder.exists()


def test_a_study_of_other_runs_is_refused(three: Path, tmp_path: Path, fake_run: Run) -> None:
    with pytest.raises(ConfigError, match="reuse: .*three.* holds no finished run of this sweep"):
        sweep("demo", out=tmp_path / "other", train=fake_run, seeds=(3,), reuse=[three])
    with pytest.raises(ConfigError, match="is no folder"):
        sweep("demo", out=tmp_path / "other", train=fake_run, seeds=(3,), reuse=[tmp_path / "nowhere"])
    assert not (tmp_path / "other").exists()


def test_failed_runs_are_not_taken_over(tmp_path: Path, fake_run: Run) -> None:
    def failing(config: RunConfig) -> None:
        if config.method == "fedavg":
            raise ValueError("on purpose")
        fake_run(config)

    with pytest.raises(Exception, match="runs failed"):
        sweep("demo", out=tmp_path / "a", train=failing)
    sweep("demo", out=tmp_path / "b", train=fake_run, reuse=[tmp_path / "a"])
    assert set(read_table(tmp_path / "b")["status"]) == {"done"}
    assert {len(marks(tmp_path / "b"))} == {(read_table(tmp_path / "a")["status"] == "failed").sum()}


@pytest.mark.usefixtures("own_names")
def test_what_an_experiment_adds_is_not_in_the_runs_of_others(three: Path, tmp_path: Path, fake_run: Run) -> None:
    for name, train in (("mine", fake_run), ("ours", fake_run), ("theirs", lambda config: fake_run(config))):
        EXPERIMENTS.register(name)(dataclasses.replace(DEMO, name=name, train=train, figures=()))
    sweep("mine", out=tmp_path / "mine", seeds=(0,))
    for run in (tmp_path / "mine").glob("*/summary.json"):
        for name in (CONFIG, ARRAYS, CHECKPOINT, LOCK):
            write_atomically(run.parent / TRAINING / name, name)
    with pytest.raises(ConfigError, match="holds no finished run of this sweep"):
        sweep("mine", out=tmp_path / "new", seeds=(0,), reuse=[three])
    with pytest.raises(ConfigError, match="holds no finished run of this sweep"):
        sweep("theirs", out=tmp_path / "new", seeds=(0,), reuse=[tmp_path / "mine"])
    with pytest.raises(ConfigError, match="holds no finished run of this sweep"):
        sweep("demo", out=tmp_path / "new", train=fake_run, seeds=(0,), reuse=[tmp_path / "mine"])
    sweep("ours", out=tmp_path / "ours", seeds=(0,), reuse=[tmp_path / "mine"])
    assert marks(tmp_path / "mine") and not marks(tmp_path / "ours")
    found = Counter(path.name for path in (tmp_path / "ours").glob(f"*/{TRAINING}/*"))
    assert found == {name: len(marks(tmp_path / "mine")) for name in (CONFIG, ARRAYS)}


def test_kept_arrays_come_along_or_the_run_stays(tmp_path: Path, fake_run: Run) -> None:
    sweep("demo", out=tmp_path / "a", train=fake_run, set={"keep": ("confusion",)})
    for at, run in enumerate(sorted((tmp_path / "a").glob("*/summary.json"))):
        if at:  # the first one has kept nothing
            run.with_name(ARRAYS).write_bytes(b"arrays")
    sweep("demo", out=tmp_path / "b", train=fake_run, set={"keep": ("confusion",)}, reuse=[tmp_path / "a"])
    assert marks(tmp_path / "b") == ["x"]
    found = [path.read_bytes() for path in (tmp_path / "b").glob(f"*/{ARRAYS}")]
    assert found == [b"arrays"] * (len(read_table(tmp_path / "b")) - 1)
