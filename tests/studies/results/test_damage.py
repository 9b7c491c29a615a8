"""What is read is checked: each damaged file of a run or a study is noticed by whoever reads it."""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import semcom
from semcom.cli import main as cli
from semcom.config import ConfigError, RunConfig, RunError, run_hash
from semcom.files import ARRAYS, CONFIG, METRICS, SUMMARY, SWEEP, TRAINING
from semcom.runs.folder.arrays import read_arrays, write_arrays
from semcom.runs.folder.lines import DamagedRun
from semcom.runs.folder.schema import SUMMARY as SHAPE
from semcom.runs.folder.schema import find_misfit
from semcom.runs.folder.stored import write_stored_config
from semcom.runs.folder.summary import format_summary, read_summary, seal_summary, write_summary
from semcom.studies.results.archive import pack_archive
from semcom.studies.results.run import Stored, read_stored_runs
from tests.studies.folders import config, line, scored, write

SEEDS = (0, 1, 2)
TABLES = ("runs", "results", "rounds", "clients", "classes", "traffic")
Change = Callable[[bytes], bytes]


def one(folder: Path, of: RunConfig) -> Path:
    """Write a run that was tested in each of its rounds."""
    accuracies = [(0.2 + 0.1 * of.seed + 0.05 * round_, 0.4 + 0.05 * round_) for round_ in (1, 2, 3)]
    lines = [line(at, {"personal": scored(values)}) for at, values in enumerate(accuracies, 1)]
    return write(folder / run_hash(of), of, lines)


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A sweep of two methods with three seeds each."""
    runs = [config(method, seed, rounds=3) for method in ("fedcl", "local") for seed in SEEDS]
    for of in runs:
        one(tmp_path / "s", of)
    names = {run_hash(of): of.method for of in runs}
    record = {"experiment": "study", "scale": "own", "command": "semcom sweep", "variants": names}
    (tmp_path / "s" / SWEEP).write_text(json.dumps(seal_summary(record)))
    return tmp_path / "s"


def flips(content: bytes, every: int = 1) -> Iterator[tuple[int, bytes]]:
    """Yield a file with one bit flipped, in each of its bytes or in each so-manieth one, with the byte's place."""
    for at in range(0, len(content), every):
        yield at, content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :]


def stored(study: Path, key: str) -> Stored:
    """One run of a study."""
    return next(run for run in read_stored_runs(study)[0] if run.hash == key)


def first(study: Path) -> Path:
    """The folder of the first run that a study lists."""
    return study / next(iter(json.loads((study / SWEEP).read_text())["variants"]))


def make_old(run: Path) -> None:
    """Take away the digest of its metrics: a summary as older versions have written it."""
    found = json.loads((run / SUMMARY).read_text())
    del found["metrics_digest"]
    (run / SUMMARY).write_text(format_summary(found))


# -- metrics.jsonl ---------------------------------------------------------------------------------------------------


def test_no_bit_of_the_metrics_of_a_finished_run_goes_unnoticed(study: Path) -> None:
    run = first(study)
    for at, flipped in flips((run / METRICS).read_bytes()):
        (run / METRICS).write_bytes(flipped)
        with pytest.raises(DamagedRun, match=f"move {run} away"):
            read_summary(run)
        if at % 50 == 0:
            found = stored(study, run.name)
            assert found.status == "failed" and found.damaged and found.lines() == [], at
            assert str(run / METRICS) in str(found.error)


def change_lines(change: Callable[[list[bytes]], list[bytes]]) -> Change:
    """A change of a file's lines."""
    return lambda content: b"".join(change(content.splitlines(keepends=True)))


CHANGES: dict[str, Change] = {
    "a line is gone": change_lines(lambda rows: rows[:1] + rows[2:]),
    "the last line is gone": change_lines(lambda rows: rows[:-1]),
    "a line is there twice": change_lines(lambda rows: [rows[0], *rows]),
    "a line is added": change_lines(lambda rows: [*rows, b'{"round": 4, "loss": 0.1}\n']),
    "lines are exchanged": change_lines(lambda rows: [rows[1], rows[0], *rows[2:]]),
    "the last line is cut off": lambda content: content[:-9],
    "half of a line follows": lambda content: content + b'{"round": 4, "lo',
    "an accuracy is edited": lambda content: content.replace(b'"accuracy": 0.', b'"accuracy": 0.9', 1),
    "a last accuracy is edited": change_lines(lambda rows: [*rows[:-1], rows[-1].replace(b"0.", b"0.9")]),
    "it is empty": lambda content: b"",
    "a number became a text": change_lines(lambda rows: [rows[0].replace(b'"loss": 1.0', b'"loss": "1"'), *rows[1:]]),
}


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_changed_lines_are_noticed_by_whoever_reads_them(name: str, old: bool, study: Path, tmp_path: Path) -> None:
    """With the digest in the summary, and, of a run of an older version, with what else the summary says of them."""
    run = first(study)
    if old:
        make_old(run)
    content = (run / METRICS).read_bytes()
    assert stored(study, run.name).status == "done" and len(stored(study, run.name).lines()) == 3
    (run / METRICS).write_bytes(CHANGES[name](content))
    assert (run / METRICS).read_bytes() != content
    with pytest.raises(RunError, match=f"{METRICS} is damaged"):
        read_summary(run)
        found = stored(study, run.name)  # what only their numbers tell shows when they are parsed
        assert old and found.lines()
    if not old:
        packed = semcom.study(pack_archive(study, tmp_path / "p.zip"))
        for found in (semcom.study(study), packed):
            counts = found.runs.set_index("hash")["status"]
            assert counts[run.name] == "failed" and (counts == "done").sum() == 5
            assert run.name not in set(found.rounds["hash"]) and found.mean()["n"].tolist() == [2, 3]
            compared = found.compare("fedcl", "local")
            assert len(compared.seeds) == 2


@pytest.mark.parametrize("old", [False, True])
def test_metrics_of_another_run_or_none_are_noticed(old: bool, study: Path) -> None:
    run, other = sorted(path.parent for path in study.glob(f"*/{METRICS}"))[:2]
    for place in (run, other) if old else ():
        make_old(place)
        (place / "checkpoint.pt").touch()  # semcom has trained it here, so there were lines
    shutil.copy(run / METRICS, study / "kept")
    shutil.copy(other / METRICS, run / METRICS)
    shutil.copy(study / "kept", other / METRICS)
    for place in (run, other):
        with pytest.raises(RunError, match=f"{re.escape(str(place / METRICS))} is damaged"):
            read_summary(place)
            stored(study, place.name).lines()
    (run / METRICS).unlink()
    assert stored(study, run.name).damaged and "it is missing" in str(stored(study, run.name).error)


def test_metrics_that_no_old_summary_tells_from_others_are_those_of_no_view(study: Path) -> None:
    """What cannot be checked is small: a loss between the first and the last round of an older version."""
    run = first(study)
    make_old(run)
    content = (run / METRICS).read_bytes()
    assert b'"loss": 0.5' in content
    (run / METRICS).write_bytes(content.replace(b'"loss": 0.5', b'"loss": 0.6'))
    assert stored(study, run.name).lines()[1]["loss"] == 0.6


def test_lines_of_an_unfinished_run_that_are_not_in_order_are_not_drawn(tmp_path: Path) -> None:
    run = one(tmp_path, config("fedcl", 0, rounds=3))
    (run / SUMMARY).unlink()
    content = (run / METRICS).read_bytes()
    (run / METRICS).write_bytes(content[:-20])  # as a process that was killed leaves them
    assert len(stored(tmp_path, run.name).lines()) == 2
    for change in ("a line is gone", "a line is there twice", "lines are exchanged"):
        (run / METRICS).write_bytes(CHANGES[change](content))
        assert stored(tmp_path, run.name).damaged, change


def test_the_training_inside_a_run_is_checked_too(study: Path) -> None:
    """An experiment that adds to summaries has its lines there."""
    run = first(study)
    (run / TRAINING).mkdir()
    for name in (CONFIG, METRICS):
        shutil.copy(run / name, run / TRAINING / name)
    (run / METRICS).unlink()
    write_summary(run, json.loads((run / SUMMARY).read_text()))
    assert stored(study, run.name).status == "done" and len(stored(study, run.name).lines()) == 3
    lines = (run / TRAINING / METRICS).read_bytes()
    (run / TRAINING / METRICS).write_bytes(CHANGES["an accuracy is edited"](lines))
    assert stored(study, run.name).damaged


# -- summary.json ----------------------------------------------------------------------------------------------------


def test_no_bit_of_a_summary_changes_a_result(study: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = first(study)
    content, whole = (run / SUMMARY).read_bytes(), read_summary(run)
    for at, flipped in flips(content):
        (run / SUMMARY).write_bytes(flipped)
        try:
            assert read_summary(run) == whole and json_or_none(flipped) == json.loads(content), at
        except RunError as error:
            assert str(run / SUMMARY) in str(error) and (at % 50 or stored(study, run.name).damaged)
    (run / SUMMARY).write_bytes(content[:-9])
    with caplog.at_level(logging.WARNING):
        means = semcom.study(study).mean()
    assert means["n"].tolist() == [2, 3]
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2 and str(run / SUMMARY) in said[0] and "without 1 of 6 runs: 1 failed" in said[1]


def json_or_none(content: bytes) -> Any:
    """What a text says, if it is JSON."""
    try:
        return json.loads(content)
    except ValueError:
        return None


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where the parts of plain values are; of a list that of the first entry."""
    yield at
    inside = value.items() if isinstance(value, dict) else list(enumerate(value))[:1] if isinstance(value, list) else ()
    for name, held in inside:
        yield from places(held, (*at, name))


def put(value: Any, at: tuple[Any, ...], new: Any) -> Any:
    """Plain values with another one in a place; without it, where that is `...`."""
    if not at:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    if new is ... and len(at) == 1:
        del copy[at[0]]
    else:
        copy[at[0]] = put(copy[at[0]], at[1:], new)
    return copy


OTHERS = (None, [], {}, "x", [1, "x"], {"a": [1]}, True, -1, 0.5, 10**400, ...)
EXTRA = {
    "device": "cpu",
    "constant": {"own": 0.5, "common": 0.25},
    "finish": {"round": 4, "loss": 0.1, "views": {"tuned": {"accuracy": 0.5, "clients": [0.4, 0.6]}}},
    "warnings": ["round 1: something"],
    "stopped": {"rounds": 9, "best_on_validation": 2},
    "evaluated": [0, 1],
    "seconds": {"train": 1.5},
    "error_rates": {"train_up": {"bits": 0.1, "blocks": 0.2}},
    "machine": {"processor": "one", "threads": 1, "vector": "none"},
    "versions": {"semcom": "1"},
    "commit": None,
}


def test_a_summary_of_another_shape_is_refused_or_read_by_all(study: Path, tmp_path: Path) -> None:
    """Whatever stands in it under a right digest: each table is made, or a line names the file."""
    run = first(study)
    whole = {**(read_summary(run) or {}), **EXTRA}
    refused = tried = 0
    for at in places(whole):
        for new in OTHERS:
            try:
                (run / SUMMARY).write_text(format_summary(put(whole, at, new)))
                changed = put(whole, at, new)
            except (AttributeError, TypeError):  # no table at all
                continue
            (found,), _ = read_stored_runs(run)
            if found.damaged:
                refused += 1
                name = METRICS if at == ("metrics_digest",) and new == "x" else SUMMARY
                assert str(run / name) in str(found.error) and "\n" not in str(found.error), (at, new)
                continue
            assert find_misfit(SHAPE, changed) is None
            tried += 1
            if tried % 4:
                continue
            several = semcom.study(study)
            for table in TABLES:
                assert isinstance(getattr(several, table), pd.DataFrame), (at, new)
            for answer in (several.mean, lambda s=several: s.compare_all(), lambda s=several: s.pareto("rounds")):
                try:
                    answer()
                except ConfigError as error:
                    assert "\n" not in str(error), (at, new)
    assert refused > 300


@pytest.mark.parametrize("text", ["", "[]", "null", "3", '"x"', "[[1, 2], {}]", '{"digest": null}', "\x00" * 9])
def test_a_file_that_is_no_summary_is_a_failed_run(text: str, study: Path) -> None:
    run = first(study)
    (run / SUMMARY).write_text(text)
    assert stored(study, run.name).damaged and str(run / SUMMARY) in str(stored(study, run.name).error)


# -- the other files -------------------------------------------------------------------------------------------------


def test_no_bit_of_a_configuration_makes_another_run_of_it(study: Path) -> None:
    run = first(study)
    content, before = (run / CONFIG).read_bytes(), stored(study, run.name)
    harmless = {"out", "device", "chunk", "processes", "store", "keep", "data.root", "plugins", "profile"}
    for at, flipped in flips(content, 23):
        (run / CONFIG).write_bytes(flipped)
        runs = read_stored_runs(study)[0]
        assert len(runs) == 6, at
        found = next(each for each in runs if each.hash == run.name)
        if not found.damaged:
            changed = {name for name in before.fields if found.fields.get(name) != before.fields[name]}
            assert changed <= harmless or all(name.startswith("train.checkpoint") for name in changed), (at, changed)
        else:
            assert str(run / CONFIG) in str(found.error) or str(run / SUMMARY) in str(found.error)


def test_no_bit_of_kept_arrays_changes_one(tmp_path: Path) -> None:
    kept = {"clients": np.arange(3), "confusion/personal": np.arange(12).reshape(3, 2, 2), "received/x": np.ones(2)}
    write_arrays(tmp_path / ARRAYS, kept, "a" * 12)
    write_arrays(tmp_path / "other", kept, "b" * 12)
    content, noticed = (tmp_path / ARRAYS).read_bytes(), 0
    for at, flipped in flips(content):
        (tmp_path / ARRAYS).write_bytes(flipped)
        try:
            found = read_arrays(tmp_path / ARRAYS, "a" * 12)
        except RunError as error:
            noticed += 1
            assert ARRAYS in str(error)
            continue
        assert found.keys() == kept.keys() and all((found[name] == kept[name]).all() for name in kept), at
    assert noticed > len(content) / 2
    shutil.copy(tmp_path / "other", tmp_path / ARRAYS)
    with pytest.raises(RunError, match="is of run b"):
        read_arrays(tmp_path / ARRAYS, "a" * 12)


def test_no_bit_of_sweep_json_changes_a_study(study: Path) -> None:
    content, (runs, record) = (study / SWEEP).read_bytes(), read_stored_runs(study)
    assert record["unlisted"] == []
    for at, flipped in flips(content):
        (study / SWEEP).write_bytes(flipped)
        try:
            found, says = read_stored_runs(study)
        except ConfigError as error:
            assert str(study / SWEEP) in str(error)
            continue
        assert [(run.hash, run.variant) for run in found] == [(run.hash, run.variant) for run in runs], at
        assert says["variants"] == record["variants"], at


# -- which runs a study has ------------------------------------------------------------------------------------------


def test_a_run_that_is_written_below_a_study_does_not_join_it(study: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = semcom.study(study).mean()
    one(study, config("fedcl", 7, rounds=3))
    stray = one(study, config("fedavg", 0, rounds=3)).rename(study / "mine")
    with caplog.at_level(logging.WARNING):
        after = semcom.study(study)
    pd.testing.assert_frame_equal(after.mean(), before)
    assert len(after.runs) == 6 and set(after.record["unlisted"]) == {run_hash(config("fedcl", 7, rounds=3)), "mine"}
    assert [stray.name in record.getMessage() for record in caplog.records] == [True]
    assert len(semcom.study(pack_archive(study)).runs) == 6 and semcom.study(stray).runs["status"].tolist() == ["done"]


def test_a_folder_that_lists_no_runs_has_all_that_lie_in_it(study: Path) -> None:
    (study / SWEEP).unlink()
    one(study, config("fedcl", 7, rounds=3))
    assert len(semcom.study(study).runs) == 7


def test_the_command_line_says_a_line_and_goes_on(study: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = first(study)
    (run / METRICS).write_bytes(CHANGES["an accuracy is edited"]((run / METRICS).read_bytes()))
    for words in (["table"], ["compare", "fedcl", "local"], ["results"]):
        assert cli.main([words[0], str(study), *words[1:]]) == 0
        told = [record.getMessage() for record in caplog.records]
        caplog.clear()
        assert sum(str(run / METRICS) in text for text in told) == 1, told
        assert sum("means are without 1 of 6 runs" in text for text in told) == 1, told


def test_a_folder_has_the_configuration_of_its_name(study: Path) -> None:
    """Two runs' files exchanged, as by a hand: each says that it is another's."""
    run, other = sorted(path.parent for path in study.glob(f"*/{CONFIG}"))[:2]
    write_stored_config(run, config("fedcl", 9, rounds=3))
    shutil.copy(run / SUMMARY, other / SUMMARY)
    assert stored(study, run.name).damaged and f"it is of run {run_hash(config('fedcl', 9, rounds=3))}" in str(
        stored(study, run.name).error
    )
    assert stored(study, other.name).damaged and f"it is of run {run.name}" in str(stored(study, other.name).error)
