"""Grids that grow, parts of a grid, and studies that nobody has declared; training is a stand-in."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import semcom
from semcom.cli import main as cli
from semcom.config import ConfigError, RunConfig, RunError
from semcom.studies.results.lock import Shard, lock_folder, parse_shard, parse_sweep_record
from semcom.studies.results.table import read_table
from semcom.studies.sweep.plan import make_plan
from semcom.studies.sweep.request import parse_request
from semcom.studies.sweep.sweep import sweep
from tests.refusals import refuses
from tests.studies.folders import marks

Run = Callable[[RunConfig], None]
SNR = "channel.snr_db"


def record(folder: Path) -> dict[str, Any]:
    return parse_sweep_record(folder / "sweep.json")


# Grids that grow -----------------------------------------------------------------------------------------------------


def test_sweep_json_says_all_that_the_call_says(tmp_path: Path, fake_run: Run) -> None:
    changes = {"methods": ("fedavg", "fedcl"), "seeds": (0, 3), "set": {"train.rounds": 2, "device": "cpu"}}
    sweep("demo", out=tmp_path, train=fake_run, vary={("clients", "partition.ways"): ((5, 2), (4, 3))}, **changes)
    held = record(tmp_path)
    frame = read_table(tmp_path)
    assert held.pop("variants") == dict(zip(frame["hash"], frame["variant"], strict=True))
    assert len(held.pop("training_code")) == 64
    words = (
        "methods=('fedavg', 'fedcl'), set={'train.rounds': 2, 'device': 'cpu'}, vary={('clients', 'partition.ways'): "
    )
    assert held == {
        "experiment": "demo",
        "scale": "smoke",
        "command": f"semcom.sweep('demo', {words}((5, 2), (4, 3)), 'seed': (0, 3)}}, out='{tmp_path}')",
        "own_training": True,
        "plugins": [],
        "set": {"train.rounds": 2},
        "own": {},
        "axes": {
            "variant": ["fedcl", "fedavg"],
            SNR: [0.0, 9.0, 18.0],
            "seed": [0, 3],
            "clients,partition.ways": [[5, 2], [4, 3]],
        },
    }
    assert len(frame) == 2 * 3 * 2 * 2 and set(frame["command"]) == {held["command"]}


def test_each_call_can_be_repeated(tmp_path: Path, fake_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder keeps the words of the calls that its runs came by, from a shell or from Python."""
    monkeypatch.setattr("semcom.run", fake_run)
    out = tmp_path / "my results"
    words = f"semcom sweep --methods fedcl,fedavg --vary channel.snr_db=0,9 --set partition.shots=5 --out '{out}'"
    assert cli.main([*shlex.split(words)[1:], "--seeds", "0,1", "--shard", "1/2"]) == 0
    assert record(out)["command"] == f"{words} --seeds 0,1"
    sweep(methods=("fedcl", "fedavg"), vary={SNR: (0.0, 9.0)}, set={"partition.shots": 5}, seeds=2, out=out)
    first, second = record(out)["command"].splitlines()
    frame = read_table(out)
    assert len(frame) == 2 * 2 * 3 and set(frame["status"]) == {"done"}
    assert cli.main(shlex.split(first)[1:]) == 0 and eval(second, {"semcom": semcom}) == out / "results.parquet"
    assert marks(out) == ["x"] * 12 and read_table(out).equals(frame)
    assert record(out)["command"].splitlines() == [first, second]


def test_more_seeds_and_values_extend_a_grid(tmp_path: Path, fake_run: Run) -> None:
    sweep("demo", out=tmp_path, train=fake_run, seeds=(0, 1))
    sweep("demo", out=tmp_path, train=fake_run, seeds=(2, 3))  # one axis: the union
    assert record(tmp_path)["axes"]["seed"] == [0, 1, 2, 3]
    first, second = record(tmp_path)["command"].splitlines()
    assert "(0, 1)" in first and "(2, 3)" in second
    sweep(
        "demo", out=tmp_path, train=fake_run, seeds=range(5), vary={SNR: (0.0, 3.0, 9.0, 18.0)}
    )  # the one holds the other
    assert marks(tmp_path) == ["x"] * 3 * 5 * 4
    before = read_table(tmp_path)
    assert record(tmp_path)["command"].count("\n") == 0 and "(0, 1, 2, 3, 4)" in record(tmp_path)["command"]
    assert len(before) == 60 and before.groupby(SNR).size().tolist() == [15] * 4
    sweep("demo", out=tmp_path, train=fake_run, methods="fedcl", seeds=0)  # a part: nothing changes
    assert read_table(tmp_path).equals(before) and marks(tmp_path) == ["x"] * 60


@pytest.mark.parametrize(
    "request_",
    [
        {"seeds": (0, 2), "vary": {SNR: (9.0, 3.0)}},  # their runs together are no grid
        {"vary": {"clients": (5, 6)}},
        {"set": {"clients": 5}},
        {"set": {SNR: 9.0}},
        {"vary": {"channel.test_snr_db": (0.0, 9.0)}},
    ],
)
def test_another_grid_is_another_sweep(tmp_path: Path, fake_run: Run, request_: dict[str, Any]) -> None:
    sweep("demo", out=tmp_path, train=fake_run, seeds=(0, 1))
    with refuses("out", "semcom.sweep('demo', vary={'seed': (0, 1)}"):
        sweep("demo", out=tmp_path, train=fake_run, **request_)
    assert marks(tmp_path) == ["x"] * 18


def test_other_test_snrs_are_other_runs(tmp_path: Path, fake_run: Run) -> None:
    sweep("demo", out=tmp_path, train=fake_run, vary={"channel.test_snr_db": (0, 9)})
    assert set(read_table(tmp_path)["channel.test_snr_db"]) == {"0,9"}
    with refuses("out"):
        sweep("demo", out=tmp_path, train=fake_run, vary={"channel.test_snr_db": (0, 9, 18)})


# Shards --------------------------------------------------------------------------------------------------------------


def test_shards_are_parts_of_the_grid(tmp_path: Path) -> None:
    plan = make_plan("demo", request=parse_request(seeds=range(3)), out=tmp_path)
    parts = [list(Shard(i, 4).of(plan.runs)) for i in range(1, 5)]
    assert sorted(key for part in parts for key in part) == sorted(plan.runs)
    assert list(map(len, parts)) == [7, 7, 7, 6] and parts[1][:2] == [list(plan.runs)[1], list(plan.runs)[5]]
    for text in ("0/4", "5/4", "3", "a/b", "1/0", "-1/4"):
        with refuses("shard", repr(text)):
            parse_shard(text)


def test_the_last_shard_writes_the_table(tmp_path: Path, fake_run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep("demo", out=tmp_path, train=fake_run, shard="1/2") is None
    assert capsys.readouterr().out == "shard 1/2: its 5 runs are done; the table comes with the last of 4 others\n"
    assert len(marks(tmp_path)) == 5 and not (tmp_path / "results.parquet").exists()
    path = sweep("demo", out=tmp_path, train=fake_run, shard="2/2")
    assert path == tmp_path / "results.parquet" and set(read_table(path)["status"]) == {"done"}
    assert marks(tmp_path) == ["x"] * 9


def test_a_failure_in_a_shard_is_in_the_table_of_the_last(tmp_path: Path, fake_run: Run) -> None:
    def run(config: RunConfig) -> None:
        if config.method == "fedcl" and config.channel.snr_db == 0.0:
            raise RuntimeError("loss is not finite")
        fake_run(config)

    with pytest.raises(RunError, match="^1 of 5 runs of shard 1/2 failed; the same command tries them again$"):
        sweep("demo", out=tmp_path, train=run, shard="1/2")
    with pytest.raises(RunError, match="^1 of 9 runs failed"):
        sweep("demo", out=tmp_path, train=run, shard="2/2")
    failed = read_table(tmp_path).query("status == 'failed'")
    assert failed["error"].tolist() == ["RuntimeError: loss is not finite"]
    assert sweep("demo", out=tmp_path, train=fake_run, shard="1/2") == tmp_path / "results.parquet"
    assert set(read_table(tmp_path)["status"]) == {"done"} and marks(tmp_path) == ["x"] * 9


def test_a_call_without_shard_does_what_is_left(tmp_path: Path, fake_run: Run) -> None:
    sweep("demo", out=tmp_path, train=fake_run, shard="3/4")
    assert sweep("demo", out=tmp_path, train=fake_run) == tmp_path / "results.parquet"
    assert marks(tmp_path) == ["x"] * 9


def test_shards_share_a_folder_and_two_equal_ones_do_not(tmp_path: Path, fake_run: Run) -> None:
    """While one is running: another part is carried out; the same, all, and parts of another size are refused."""
    said: list[str] = []

    def run(config: RunConfig) -> None:
        if not said:
            for shard in ("1/3", None, "1/2", "2/3"):
                try:
                    sweep("demo", out=tmp_path, train=fake_run, shard=shard)
                    said.append("")
                except ConfigError as error:
                    said.append(str(error))
            with refuses("out", "fewer"):
                sweep("demo", out=tmp_path, train=fake_run, seeds=(0, 1), shard="3/3")
        fake_run(config)

    sweep("demo", out=tmp_path, train=run, shard="1/3")
    same, whole, other, part = said
    for text in (same, whole, other):
        assert "is running in" in text and text.endswith("with its shard 1/3; wait for it, or give another folder")
    assert part == ""
    sweep("demo", out=tmp_path, train=fake_run, shard="3/3")
    assert marks(tmp_path) == ["x"] * 9 and set(read_table(tmp_path)["status"]) == {"done"}
    assert not list(tmp_path.glob(".owner*"))


def test_a_shard_waits_for_a_whole_sweep_in_vain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("semcom.studies.results.lock.PATIENCE_S", 0.1)
    with (
        lock_folder(tmp_path, None, lambda others: None),
        refuses("out", "process"),
        lock_folder(tmp_path, Shard(1, 2), lambda others: None),
    ):
        raise AssertionError("entered")
    with lock_folder(tmp_path, Shard(1, 2), lambda others: None):
        assert (tmp_path / ".owner-1-of-2").exists()


# Studies without a declaration, and in files -------------------------------------------------------------------------


def test_a_study_without_a_declaration(tmp_path: Path, fake_run: Run) -> None:
    changes: dict[str, Any] = {"set": {"partition.shots": 5}, "vary": {"clients": (2, 3), SNR: (0.0, 9.0)}}
    path = sweep(methods=("fedavg", "fedcl"), out=tmp_path, train=fake_run, **changes)
    frame = read_table(path)
    assert frame[["experiment", "scale"]].drop_duplicates().values.tolist() == [["study", "own"]]
    assert frame[["variant", "clients", SNR]].values.tolist()[:5] == [
        *(["fedavg", k, snr] for k in (2, 3) for snr in (0.0, 9.0)),
        ["fedcl", 2, 0.0],
    ]
    assert (tmp_path / "results.md").read_text().splitlines()[2] == "| Method | SNR (dB) | clients 2 | clients 3 |"


STUDY = """
from pathlib import Path
from semcom.studies.experiment import Experiment, Grid, Variant
from semcom.studies.registry import EXPERIMENTS
from semcom import METHODS, PartitionConfig, RunConfig

{more}
base = RunConfig(clients=3, partition=PartitionConfig(options={{"shots": 5}}))
for name in {names}:
    EXPERIMENTS.register(name)(
        Experiment(name, "", "none", ("fedavg", Variant("other", "fedcl", {{"clients": 4}})),
                   {{"smoke": Grid(base, {{"seed": {seeds}}})}})
    )
"""


def test_a_file_declares_a_study(own_names: None, tmp_path: Path, fake_run: Run) -> None:
    file = tmp_path / "mine.py"
    file.write_text(STUDY.format(more="", names="['mine']", seeds="(0, 1)"))
    path = sweep(str(file), out=tmp_path / "r", train=fake_run)
    frame = read_table(path)
    assert frame[["variant", "method", "clients", "seed"]].values.tolist() == [
        ["fedavg", "fedavg", 3, 0],
        ["fedavg", "fedavg", 3, 1],
        ["other", "fedcl", 4, 0],
        ["other", "fedcl", 4, 1],
    ]
    assert set(frame["command"]) == {f"semcom.sweep({str(file)!r}, out={str(tmp_path / 'r')!r})"}
    config = json.loads((tmp_path / "r" / frame["hash"][0] / "summary.json").read_text())
    assert config["hash"] == frame["hash"][0] and set(frame["plugins"]) == {""}  # an edit of the file keeps the runs


def test_what_runs_need_of_a_file_is_part_of_them(own_names: None, tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    method = "from semcom.methods.local import Local\n@METHODS.register('mine')\nclass Mine(Local):\n    'Mine.'\n"
    file.write_text(STUDY.format(more=method, names="['mine']", seeds="(0,)"))
    plan = make_plan(str(file), out=tmp_path / "r")
    assert {config.plugins for config in plan.runs.values()} == {(str(file),)} and plan.record["plugins"] == [str(file)]


@pytest.mark.parametrize(
    ("names", "field", "told"), [("[]", "plugin", "registers nothing"), ("['a', 'b']", "experiment", "a, b")]
)
def test_a_file_declares_one_study(own_names: None, tmp_path: Path, names: str, field: str, told: str) -> None:
    file = tmp_path / "none.py"
    file.write_text(STUDY.format(more="", names=names, seeds="(0,)"))
    with refuses(field, "none.py", told):
        sweep(str(file), out=tmp_path / "r")


def test_the_command_line_hands_the_request_on(
    tmp_path: Path, fake_run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("semcom.run", fake_run)
    out = tmp_path / "mine"
    line = f"""sweep --methods fedcl,fedavg --vary channel.snr-db=0..6:3 --vary partition.ways,partition.shots=2:10,3:5
        --seeds 0..1 --set train.rounds=2 --set clients=3 --out {out} --device cpu"""
    assert cli.main([*line.split(), "--shard", "1/2"]) == 0
    assert capsys.readouterr().out.startswith("shard 1/2: its 12 runs are done")
    assert cli.main(line.split()) == 0
    said = capsys.readouterr().out.splitlines()
    assert (
        said[2].startswith("| Method | Ways | Shots | SNR 0 dB | ") and said[-1] == f"table: {out / 'results.parquet'}"
    )
    frame = read_table(out)
    assert len(frame) == 2 * 3 * 2 * 2 and set(frame["train.rounds"]) == {2}
    assert set(zip(frame["partition.ways"], frame["partition.shots"], strict=True)) == {(2, 10), (3, 5)}
    assert cli.main([*line.split(), "--seeds", "2"]) == 0 and len(read_table(out)) == 36  # the last of a flag counts
