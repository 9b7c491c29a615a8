"""`semcom split`: what it writes and prints, what a run makes of it, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from semcom.config import DataConfig, PartitionConfig
from semcom.data.load import load_dataset
from semcom.data.partitions import partition_dataset
from tests.commands import read, told


@pytest.fixture(autouse=True)
def wide(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test runs in an empty folder of its own, on a terminal of 120 columns."""
    monkeypatch.setenv("COLUMNS", "120")


SHARES = "--partition.kind dirichlet --partition.beta 0.5 --partition.fraction 0.1 --partition.validation 0.2"
DRAWN = f"--clients 3 --seed 5 {SHARES}"


def test_what_is_written_is_what_training_draws(capsys: pytest.CaptureFixture[str]) -> None:
    lines = told(capsys, f"split {DRAWN} --out mine/split.npz")
    dataset = load_dataset(DataConfig("digits"))
    shares = PartitionConfig(kind="dirichlet", validation=0.2, options={"beta": 0.5, "fraction": 0.1})
    split = partition_dataset(dataset, shares, 3, 5)
    with np.load("mine/split.npz") as file:
        lists = [f"{part}_{k}" for part in ("train", "test", "validation") for k in range(3)]
        assert sorted(file.files) == sorted([*lists, "data_name", "data_images", "data_labels"])
        assert (str(file["data_name"]), str(file["data_images"])) == ("digits", "1797")
        for client in range(3):
            for part, lists in vars(split).items():
                assert file[f"{part}_{client}"].tolist() == lists[client].tolist()
    assert lines[0].split() == ["client", "train", "test", "validation", *"0123456789"]
    for client in range(3):
        sizes = [len(lists[client]) for lists in (split.train, split.test, split.validation)]
        each = np.bincount(dataset.labels[split.train[client]], minlength=10).tolist()
        assert lines[1 + client].split() == [str(number) for number in (client, *sizes, *each)]
    flags = "--data.name digits --clients 3 --seed 5 --partition.kind file --partition.path mine/split.npz"
    assert lines[4:] == [f"written to mine/split.npz: {flags}"]


OWN = """
from dataclasses import dataclass
from semcom import DATASETS
from semcom.data.sources import digits

@DATASETS.register("own-digits")
class Own:
    @dataclass(frozen=True)
    class Options:
        grey: bool = False
        many: tuple[int, ...] = (1,)
        word: str | None = "a"
        usual: int = 3

    def __init__(self, options):
        self.options = options

    def __call__(self, root=None):
        return digits(root)
"""


def test_the_printed_flags_hold_the_data_s_own_options_and_plugins(
    capsys: pytest.CaptureFixture[str], own_names: None
) -> None:
    Path("own.py").write_text(OWN)
    for given in (
        "--data.name noisy --data.of digits --data.snr-db -3.25",
        "--plugin own.py --data.name own-digits --data.grey --data.many 3 4 --data.word none",
    ):
        wanted = f"{given} --clients 2"
        said = told(capsys, f"split {wanted} --out split.npz")[-1].removeprefix("written to split.npz: ")
        Path("split.npz").unlink()
        parsed, again = (read("local", *line.split()) for line in (wanted, said))
        assert parsed.data == again.data != DataConfig() and parsed.plugins == again.plugins
        assert "usual" not in said and again.partition.kind == "file"


def test_a_run_on_the_file_is_the_run_on_what_was_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    """The same losses and accuracies, bit for bit."""
    told(capsys, f"split {DRAWN} --out split.npz")
    run = "train local --train.rounds 1 --model.features 8 --model.encoder dcgan-narrow --device cpu"
    told(capsys, f"{run} {DRAWN} --out drawn")
    told(capsys, f"{run} --clients 3 --seed 5 --partition.kind file --partition.path split.npz --out read")
    drawn, read = (json.loads(Path(out, "metrics.jsonl").read_text()) for out in ("drawn", "read"))
    assert drawn.pop("seconds") > 0 and read.pop("seconds") > 0
    assert drawn == read and 0 < drawn["views"]["personal"]["accuracy"] < 1


def test_of_many_clients_the_first_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    lines = told(capsys, "split --clients 130 --partition.kind iid --out split.npz")
    assert len(lines) == 1 + 100 + 1 + 1 and lines[101] == "and 30 more clients"
    assert sum(int(line.split()[1]) for line in lines[1:101]) == pytest.approx(100 * 1797 * 0.75 / 130, abs=100)


def test_a_table_that_is_too_wide_is_summed_up(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    request = "split --clients 4 --partition.kind dirichlet --partition.beta 0.3 --partition.validation 0.2 --out"
    whole = told(capsys, f"{request} a.npz")
    monkeypatch.setenv("COLUMNS", str(len(whole[0])))
    assert told(capsys, f"{request} b.npz")[:5] == whole[:5], "it just fits"
    monkeypatch.setenv("COLUMNS", str(len(whole[0]) - 1))
    lines = told(capsys, f"{request} c.npz")
    assert lines[0].split() == ["per", "client", "min", "median", "max"]
    clients = np.array(
        [[int(cell) for cell in line.split()[1:]] for line in whole[1:5]]
    )  # train, test, validation, 0-9
    columns = {"train images": clients[:, 0], "test images": clients[:, 1], "validation images": clients[:, 2]}
    columns["classes in training"] = (clients[:, 3:] > 0).sum(1)
    for line, (title, numbers) in zip(lines[1:5], columns.items(), strict=True):
        assert line.startswith(title)
        assert [float(cell) for cell in line[len(title) :].split()] == [min(numbers), np.median(numbers), max(numbers)]
    width = len(whole[0])
    assert lines[5] == f"4 clients; one line for each, with 10 classes, takes {width} columns"
    assert max(map(len, lines[:5])) < 80


def test_a_split_is_refused_where_the_data_are_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pfllib(tmp_path)
    told(capsys, "split --from-pfllib set --data.name set.npz --out split.npz")
    file = "--clients 2 --partition.kind file --partition.path split.npz"
    (line,) = told(capsys, f"train local --data.name digits {file} --train.rounds 1", status=2)
    assert line.startswith(f"semcom: error: partition.path: '{tmp_path / 'split.npz'}' ")
    assert "set.npz (40 images, labels " in line and "digits (1797 images, labels " in line


@pytest.mark.parametrize("columns", [80, 120])
def test_the_help_fits_the_terminal(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = told(capsys, "split --help")
    assert max(map(len, lines)) <= columns and lines[2].startswith("Divide a dataset over clients as `semcom train`")
    text = "\n".join(lines)
    assert "\n\n\n" not in text and "--data.root" in text and "--data.size" not in text


def pfllib(root: Path) -> list[list[int]]:
    """A folder as PFLlib writes it, of 28 x 28 images of an .npz beside it; the training images of each client."""
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (40, 28, 28), dtype=np.uint8), np.arange(40) % 4
    np.savez(root / "set.npz", x_train=images[:30], y_train=labels[:30], x_test=images[30:], y_test=labels[30:])
    order = rng.permutation(40)
    owned: dict[str, Any] = {"train": np.array_split(order[:30], 2), "test": np.array_split(order[30:], 2)}
    for part, lists in owned.items():
        (root / "set" / part).mkdir(parents=True)
        for client, indices in enumerate(lists):
            x = (images[indices, None] / np.float32(255) - np.float32(0.5)) / np.float32(0.5)
            np.savez_compressed(root / "set" / part / f"{client}.npz", data={"x": x, "y": labels[indices]})
    (root / "set" / "config.json").write_text(json.dumps({"num_clients": 2}))
    return [sorted(indices.tolist()) for indices in owned["train"]]


def test_a_division_of_pfllib_is_written_and_trained_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    owned = pfllib(tmp_path)
    lines = told(capsys, "split --from-pfllib set --data.name set.npz --out split.npz")
    assert lines[0].split() == ["client", "train", "test", *"0123"] and [line.split()[:3] for line in lines[1:3]] == [
        ["0", "15", "5"],
        ["1", "15", "5"],
    ]
    with np.load("split.npz") as file:
        assert [file[f"train_{client}"].tolist() for client in range(2)] == owned
    file = "--clients 2 --partition.kind file --partition.path split.npz"
    told(capsys, f"train local --data.name set.npz {file} --train.rounds 1 --model.encoder dcgan-narrow --device cpu")


def test_a_file_that_is_there_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    Path("x.npz").write_bytes(b"precious")
    (line,) = told(capsys, "split --clients 2 --out x.npz", status=2)
    assert line.startswith("semcom: error: out: 'x.npz' ")
    assert Path("x.npz").read_bytes() == b"precious"


def test_a_file_of_pfllib_that_is_larger_than_memory_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pfllib(tmp_path)
    monkeypatch.setattr("semcom.runs.request.limits.measure_free_memory", lambda device: 40_000)
    (line,) = told(capsys, "split --from-pfllib set --out x.npz", status=2)
    assert "from-pfllib: " in line and "set/train/0.npz" in line and "free" in line


def test_a_place_that_cannot_be_written_is_the_work_s_failure(capsys: pytest.CaptureFixture[str]) -> None:
    Path("file").write_text("")
    (line,) = told(capsys, "split --clients 2 --out file/split.npz", status=1)
    assert line.startswith("semcom: error: ") and Path("file").read_text() == ""
