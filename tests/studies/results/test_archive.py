"""A study in one file: what comes back from it is what the folder holds, and nothing tells where it was made."""

from __future__ import annotations

import dataclasses
import errno
import gc
import io
import json
import lzma
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest

import semcom
from semcom.cli import main as cli
from semcom.config import DataConfig, RunError, run_hash, to_dict
from semcom.files import ARRAYS, CONFIG, METRICS, SWEEP, format_json, open_file, read_file
from semcom.packed import Packed
from semcom.plots.report.names import Names
from semcom.runs.folder.stored import read_stored_config
from semcom.runs.result.places import Places
from semcom.studies.results import archive, table
from semcom.studies.results.archive import pack_archive, read_stored_table
from semcom.studies.results.run import read_stored_runs
from semcom.studies.results.table import read_table
from tests.archives import open_runs
from tests.refusals import refuses
from tests.studies.folders import begin, config, keep, line, scored, simple, write

TABLES = ("runs", "results", "rounds", "clients", "classes", "traffic")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A study of two finished runs, one of them with matrices, one running, and a sweep.json."""
    found = tmp_path / "mine"
    for seed in (0, 1):
        of = config("fedcl", seed)
        place = simple(found, of, [0.2, 0.4 + seed / 10])
        placed = dataclasses.replace(of, out=str(place), data=DataConfig(root=str(tmp_path / "secret")))
        (place / CONFIG).write_text(json.dumps(to_dict(placed)))
        (place / "checkpoint.pt").write_bytes(b"weights")
    keep(place, of, np.ones((2, 3, 3), int), np.ones((2, 3), int), np.ones((2, 3), int))
    begun = config("local", 0)
    begin(found / run_hash(begun), begun, [line(1, {"personal": scored([0.1, 0.3])})])
    variants = {path.name: path.name[:3] for path in found.iterdir()}
    sweep = {"experiment": "", "scale": "", "command": "semcom sweep", "variants": variants}
    (found / SWEEP).write_text(json.dumps({**sweep, "set": {"data.root": str(tmp_path), "clients": 2}}))
    return found


def test_a_sweep_that_has_not_ended_has_no_table(folder: Path) -> None:
    for path in (folder, pack_archive(folder)):
        with refuses("results", "a sweep leaves its table when it ends"):
            read_stored_table(path)


def test_an_archive_is_the_study_of_its_folder(folder: Path) -> None:
    path = pack_archive(folder, arrays=True)
    assert path == folder.with_suffix(".zip")
    there, back = semcom.study(folder), semcom.study(path)
    assert back.axes == there.axes and back.variants == there.variants
    for name in TABLES:
        columns = [column for column in getattr(there, name) if column != "folder"]
        pd.testing.assert_frame_equal(getattr(back, name)[columns], getattr(there, name)[columns])
    part = semcom.study(path).where({"seed": 1})
    assert part.rounds["round"].tolist() == [4]  # read from the unpacked folder, which the part keeps


def test_it_tells_no_place_and_holds_no_weights(folder: Path, tmp_path: Path) -> None:
    path = pack_archive(folder)
    names, texts = set(), []
    for packed in (zipfile.ZipFile(path), open_runs(path)):
        names |= {Path(name).name for name in packed.namelist()} - {archive.RUNS}
        texts += [packed.read(name).decode() for name in packed.namelist() if name.endswith("json")]
    assert names == {"sweep.json", "config.json", "summary.json", "metrics.jsonl"}
    assert texts and not any(str(tmp_path) in text for text in texts)
    assert json.loads(next(text for text in texts if "variants" in text))["set"] == {"clients": 2}


SECRET = "/home/somebody's things/secret"


def test_no_file_of_it_tells_where_its_author_keeps_what(tmp_path: Path) -> None:
    """Plug-ins, data and options by whatever path, in configurations, tables, commands and messages; hashes stay."""
    folder = tmp_path / "mine"
    plugin, data, other = f"{SECRET}/mine.py", f"{SECRET}/images", "/srv/other/mine.py"
    keys = []
    for seed in (0, 1):
        of = dataclasses.replace(
            config("fedcl", seed),
            plugins=(plugin, other),
            data=DataConfig(name=data, root=SECRET),
            contents={plugin: "a" * 64, data: "b" * 64, other: "c" * 64},
        )
        place = write(
            folder / run_hash(of), of, [line(1, {"personal": scored([0.1, 0.3])})], warnings=[f"{data}/1.png is grey"]
        )
        (place / "error.txt").write_text(f"ConfigError: {data}: /home/somebody/secret/a.npz: no file\n")
        keys.append(run_hash(of))
    words = f"semcom sweep --plugin '{plugin}' --set data.name='{data}' --out {folder}"
    record = {"experiment": "study", "scale": "own", "command": words, "plugins": [plugin, other]}
    record |= {"set": {"data.name": data}, "axes": {"variant": ["fedcl"]}, "variants": dict.fromkeys(keys, "fedcl")}
    (folder / SWEEP).write_text(json.dumps(record))
    origin = {"experiment": "study", "scale": "own", "command": words, "variant": "fedcl"}
    rows = [table.make_table_row(read_stored_config(folder / key, "x"), origin, None, words) for key in keys]
    table.write_table(table.make_table(rows), folder / "results.parquet")
    (folder / "results.md").write_text(f"| dataset {data} |\n")
    path = pack_archive(folder)
    for packed in (zipfile.ZipFile(path), open_runs(path)):
        packed.extractall(tmp_path / "out")
        for name in packed.namelist():
            content = packed.read(name)
            assert not [word for word in (b"secret", b"somebody", b"/srv", b"/tmp") if word in content], name
    assert {run.hash for run in read_stored_runs(tmp_path / "out")[0]} == {*keys}
    assert not [word for word in ("secret", "srv") if word in read_table(tmp_path / "out").to_csv()]
    assert read_stored_config(tmp_path / "out" / keys[0], "x").plugins == ("elsewhere/mine.py", "elsewhere/2/mine.py")
    assert semcom.study(path).results["accuracy"].tolist() == semcom.study(folder).results["accuracy"].tolist()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("old-results/mine.npz of results/mine", "old-results/mine.npz of mine"),
        ("--data=results/mine/x.npz", "--data=mine/x.npz"),
        ("/a/results/mine", "/a/results/mine"),
    ],
)
def test_a_report_shortens_paths_by_whole_folders(text: str, wanted: str) -> None:
    assert Names(Path("results/mine")).text(text) == wanted


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": float("inf"), "b": [1.5, -float("inf")]}, '{"a": 1e999, "b": [1.5, -1e999]}'),
        ({"a": float("nan"), "b": "Infinity"}, '{"a": null, "b": "Infinity"}'),
        ({"a": (1, None, "NaN")}, '{"a": [1, null, "NaN"]}'),
    ],
)
def test_json_is_what_strict_readers_take(value: dict[str, object], text: str) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(name)

    assert format_json(value) == text
    back = json.loads(text, parse_constant=refuse)
    assert back["a"] == (list(v) if isinstance(v := value["a"], tuple) else v) or back["a"] is None


def test_the_same_results_give_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    first = pack_archive(folder).read_bytes()
    moved = folder.rename(tmp_path / "elsewhere")
    for path in moved.rglob("*"):
        path.touch()
    assert pack_archive(moved, tmp_path / "other.zip").read_bytes() == first


def test_kept_arrays_go_in_on_request(folder: Path, tmp_path: Path) -> None:
    with refuses("confusion"):
        _ = semcom.study(pack_archive(folder)).confusion
    assert cli.main(["pack", str(folder), "--arrays", "--out", str(tmp_path / "whole.zip")]) == 0
    assert semcom.study(tmp_path / "whole.zip").confusion["count"].sum() == 18
    with zipfile.ZipFile(tmp_path / "whole.zip") as packed:
        assert sum(name.endswith(ARRAYS) for name in packed.namelist()) == 1


def test_what_cannot_be_packed_or_read(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with refuses("out", "mine.tar"):
        pack_archive(folder, tmp_path / "mine.tar")
    (tmp_path / "empty").mkdir()
    with refuses("study", "empty"):
        pack_archive(tmp_path / "empty")
    (tmp_path / "text.zip").write_text("no archive")
    with refuses("study", "text.zip"):
        semcom.study(tmp_path / "text.zip")
    monkeypatch.setattr(archive, "LARGEST", 100)
    with refuses("study", 100):
        semcom.study(pack_archive(folder))


def temporary(place: Path) -> list[str]:
    """What lies in the folder of temporary files."""
    return [path.name for path in place.iterdir()]


BOMBS: dict[str, Callable[[zipfile.ZipFile], object]] = {
    "zeros": lambda made: made.writestr("a/metrics.jsonl", bytes(2 << 20)),
    "many of them": lambda made: [made.writestr(f"{i}/arrays.npz", bytes(1 << 16)) for i in range(40)],
    "too many": lambda made: [made.writestr(f"{i}/config.json", b"") for i in range(50)],
    "zeros within": lambda made: made.writestr(archive.RUNS, bytes(2 << 20)),
    "many within": lambda made: made.writestr(archive.RUNS, of_empty_files(50)),
}


def of_empty_files(n: int) -> bytes:
    """An archive of n configurations."""
    with zipfile.ZipFile(inner := io.BytesIO(), "w") as made:
        for i in range(n):
            made.writestr(f"{i}/config.json", b"")
    return inner.getvalue()


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
@pytest.mark.parametrize("kind", BOMBS)
def test_what_would_fill_the_disk_is_not_unpacked(
    kind: str, method: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "MOST", 49)
    monkeypatch.setattr(archive, "PLAIN", 1 << 20)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    with zipfile.ZipFile(tmp_path / "it.zip", "w", method) as made:
        BOMBS[kind](made)
    with refuses("study", "it.zip"):
        semcom.study(tmp_path / "it.zip")
    assert temporary(tmp_path / "temporary") == []


def test_runs_are_compressed_together(folder: Path, tmp_path: Path) -> None:
    """By LZMA, to less than half of what each file takes by itself; archives of that kind are read as before."""
    first = next(path for path in folder.iterdir() if (path / "summary.json").exists())
    for i in range(20):
        shutil.copytree(first, folder / f"copy{i}")
    files = [path for path in folder.rglob("*") if path.name in archive.KINDS]
    with zipfile.ZipFile(tmp_path / "each.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as made:
        made.write(folder / SWEEP, SWEEP)
        for path in files:
            made.write(path, path.relative_to(folder))
    path = pack_archive(folder)
    with zipfile.ZipFile(path) as packed:
        assert packed.getinfo(archive.RUNS).compress_type == zipfile.ZIP_LZMA
    assert path.stat().st_size < (tmp_path / "each.zip").stat().st_size / 2
    tables = [semcom.study(place).rounds for place in (folder, path, tmp_path / "each.zip")]
    assert tables[0].equals(tables[1]) and tables[0].equals(tables[2])


def test_no_more_than_a_few_bytes_of_lzma_are_unpacked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry that says that it is small, of 1 MiB: 4 KiB of it are read, as the rest is beyond what it says."""
    path, taken = tmp_path / "it.zip", []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as made:
        made.writestr("a/metrics.jsonl", np.random.default_rng(0).integers(97, 99, 1 << 20, dtype=np.uint8).tobytes())
    size = (1 << 20).to_bytes(4, "little")
    path.write_bytes(path.read_bytes().replace(size, (100).to_bytes(4, "little")))
    real = lzma.LZMADecompressor

    class Counted:
        """A decompressor that notes what it is given."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self.made = real(*args, **kwargs)

        def decompress(self, data: bytes) -> bytes:
            taken.append(len(data))
            return self.made.decompress(data)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.made, name)

    monkeypatch.setattr(zipfile.lzma, "LZMADecompressor", Counted)  # type: ignore[attr-defined]
    with pytest.raises(OSError, match="damaged"):
        archive.read_archive(path).read("a/metrics.jsonl")
    assert taken and sum(taken) <= 4096


def test_folders_and_other_files_of_an_archive_stay_there(folder: Path, tmp_path: Path) -> None:
    """40,000 empty folders, names that lead elsewhere, or that no terminal shows, beside a study."""
    path = pack_archive(folder)
    with zipfile.ZipFile(path, "a") as made:
        for i in range(40_000):
            made.writestr(f"folder{i}/", "")
        for name in ("../config.json", "/etc/config.json", "a/b/c/config.json", "a\x1b[2J/config.json", "a/code.py"):
            made.writestr(name, "{}")
        made.writestr("a/../../summary.json", "{}")
    runs = len(semcom.study(folder).stored)
    assert len(archive.read_archive(path).folders) == runs + 1  # and that of all
    assert len(semcom.study(path).stored) == runs


def test_nothing_stays_in_the_temporary_folder(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read is read where it lies; nor does anything stay of what is stopped half way, or has no room."""
    path, place = pack_archive(folder), tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    study = semcom.study(path)
    assert len(study.rounds) == 3 and temporary(place) == []
    held = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    del study
    gc.collect()
    assert not held or len(os.listdir("/proc/self/fd")) < held, "the archive is closed with the study"
    monkeypatch.setattr(archive, "PLAIN", 100)  # so that the runs lie in a temporary file
    monkeypatch.setattr(archive, "RATIO", 10**6)
    for error, raised in ((KeyboardInterrupt(), KeyboardInterrupt), (OSError(errno.ENOSPC, "full"), RunError)):
        with monkeypatch.context() as patch, pytest.raises(raised):
            patch.setattr(shutil, "copyfileobj", mock.Mock(side_effect=error))
            semcom.study(path)
        assert temporary(place) == []
    monkeypatch.setattr(shutil, "disk_usage", lambda _: mock.Mock(free=100))
    with pytest.raises(RunError, match="TMPDIR"):
        semcom.study(path)


def test_one_run_is_read_without_the_others(folder: Path) -> None:
    path = pack_archive(folder)
    key = semcom.study(folder).stored[0].hash
    assert archive.read_archive(path, key).folders == {".", key}
    assert [run.hash for run in semcom.study(path / key).stored] == [key]


def test_a_place_in_an_archive_answers_as_the_same_place_in_its_folder(folder: Path) -> None:
    path = pack_archive(folder)
    whole = Packed(archive.read_archive(path))
    run = next(each.name for each in folder.iterdir() if (each / "summary.json").exists())
    for inside in (run, f"{run}/{CONFIG}", f"{run}/{METRICS}", SWEEP, "none", f"{run}/none"):
        packed, there = whole, folder
        for part in inside.split("/"):
            packed, there = packed / part, there / part
        assert (packed.is_file(), packed.is_dir(), packed.exists()) == (there.is_file(), there.is_dir(), there.exists())
        assert (packed.name, packed.parent.name) == (there.name, there.parent.name.replace("mine", "mine.zip"))
        assert (
            str(packed) == f"{path}/{inside}" and packed.parents[-1] == Path("/") and packed.parents[0] == packed.parent
        )
    names = [{str(each.parent.name) for each in place.glob(f"*/{METRICS}")} for place in (whole, folder)]
    assert names[0] == names[1] and len(names[0]) == 3 and [*(whole / run).glob("none")] == []
    lines = folder / run / METRICS
    assert (whole / run / METRICS).read_text() == lines.read_text() and read_file(lines) == lines.read_bytes()
    with open_file(whole / run / METRICS) as file:
        assert list(file) == lines.read_bytes().splitlines(keepends=True)
    with pytest.raises(FileNotFoundError):
        (whole / "none").read_bytes()


PRIVATE = "my results, [final] (1)"
HIDDEN = f"elsewhere/{PRIVATE}"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (f"semcom sweep --out '/home/me/{PRIVATE}' --seeds 0..4", f"semcom sweep --out '{HIDDEN}' --seeds 0..4"),
        ("semcom sweep --plugin '../../my code/x.py' --out a/b", "semcom sweep --plugin elsewhere/x.py --out a/b"),
        ("semcom sweep --plugin=~ann/x.py --out 'a b/c'", "semcom sweep --plugin=elsewhere/x.py --out 'a b/c'"),
        ("semcom train --vary 'a.b=/a b/1.pt,../2.pt'", "semcom train --vary a.b=elsewhere/1.pt,elsewhere/2.pt"),
        ("semcom sweep --set data.name=s3://lab/own/x.npz", "semcom sweep --set data.name=elsewhere/x.npz"),
        ("semcom sweep --set 'data.root=//nas/ann b/images'", "semcom sweep --set data.root=elsewhere/images"),
        ("semcom sweep --out '~/x y/z'", "semcom sweep --out elsewhere/z"),
        ("semcom sweep --set channel.snr_db=-6..18:3 --reuse x/y.zip", None),
    ],
)
def test_a_command_tells_no_folder(text: str, wanted: str | None) -> None:
    assert Places([]).values({"command": text}) == {"command": wanted or text}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("'/srv/my data/x.npz' cannot be read", "'elsewhere/x.npz' cannot be read"),
        ('File "C:\\Users\\Ann B\\x.py", line 1', 'File "elsewhere/x.py", line 1'),
        (f"no file in /home/me/{PRIVATE}/abc/x.json.", "no file in elsewhere/x.json."),
        ("see file:///home/ann/x.txt and D:/ann/y.txt", "see elsewhere/x.txt and elsewhere/y.txt"),
        ("../../k/l.py and a/../../b/c.py", "elsewhere/l.py and elsewhere/c.py"),
        (r"\\server\ann\x.py", "elsewhere/x.py"),
        ("no //nas/share/x.npz here, nor //nas/share", "no elsewhere/x.npz here, nor elsewhere/share"),
        ("C://Users/ann/x.py", "elsewhere/x.py"),
        ("s3://lab/own/x.npz; gs://lab/y, and s3://lab", "elsewhere/x.npz; elsewhere/y, and elsewhere/"),
        ("ssh://ann@host:22/home/ann/x.py", "elsewhere/x.py"),
        ("https://ann:key@example.org/own/x.npz", "elsewhere/x.npz"),
        ("https://lab.example.org/x.npz?key=abc&until=9 is", "elsewhere/x.npz is"),
        ("sqlite:////home/ann/runs.db and sqlite:///own/runs.db", "elsewhere/runs.db and elsewhere/runs.db"),
        ("~/x y/z.npz and ~ann/x.py", "elsewhere/z.npz and elsewhere/x.py"),
        ("file path: /home/ann/my own data/x.pt", "file path: elsewhere/x.pt"),
        ("/home/ann/my data/run 1/x.npz is damaged", "elsewhere/x.npz is damaged"),
        ("D:\\Ann B\\x y\\z.npz has no arrays", "elsewhere/z.npz has no arrays"),
        ("/srv/a/b.npz and/or c/d, or /srv/e is not f/g", "elsewhere/b.npz and/or c/d, or elsewhere/e is not f/g"),
        ("https://example.org/a/b, 1/12 and/or 3 / 4, fedavg ± 1", None),
        ("see https://example.org/@ann/x and https://example.org", None),
        ("a // b, env://, 3//4, s/x/y, w/o, and: //, 12 dB / 2 uses/s", None),
    ],
)
def test_a_sentence_tells_no_folder(text: str, wanted: str | None) -> None:
    places = Places([{"out": f"/home/me/{PRIVATE}/abc"}])
    assert places.words([text]) == [wanted or text]


def test_a_damaged_entry_is_told(folder: Path) -> None:
    path = pack_archive(folder)
    content = bytearray(path.read_bytes())
    content[60] ^= 0xFF  # within the first entry's compressed bytes
    path.write_bytes(bytes(content))
    with refuses("study"):
        semcom.study(path)


def test_a_dot_in_a_name_and_an_own_training(folder: Path, tmp_path: Path) -> None:
    moved = folder.rename(tmp_path / "study-0.1")
    run = next(path for path in moved.iterdir() if (path / "summary.json").exists())
    (run / "training").mkdir()
    (run / "training" / "metrics.jsonl").write_text('{"round": 1}\n')
    (run / "error.txt").write_text(f"RuntimeError: lost\n\nTraceback: {tmp_path}/mine.py\n")
    path = pack_archive(moved)
    assert path.name == "study-0.1.zip"
    with open_runs(path) as packed:
        assert packed.read(f"{run.name}/error.txt") == b"RuntimeError: lost\n"
        assert f"{run.name}/training/metrics.jsonl" in packed.namelist()
