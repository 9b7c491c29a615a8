"""A stored config.json below flags: what they take back, what falls away with a choice that they replace."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

import semcom
from semcom.cli import flags
from semcom.cli import main as cli
from semcom.cli.stored import prepare_over_stored, read_stored
from semcom.config import Resolved, RunConfig, TrainConfig, run_hash, to_dict
from semcom.runs.folder.summary import read_summary
from semcom.runs.request.resolve import resolve
from semcom.studies.results.archive import pack_archive
from semcom_papers.experiments.claims.evidence import COMMITTED
from tests.commands import read
from tests.refusals import refuses


def over(folder: Path, stored: RunConfig, words: str) -> tuple[Resolved, list[str]]:
    """The configuration that `semcom train WORDS --config FILE` carries out, and what has fallen away."""
    path = folder / "config.json"
    path.write_text(json.dumps(to_dict(stored)))
    early = flags.read_early_flags([*words.split(), "--config", str(path)], config=True)
    setup, fallen = prepare_over_stored(
        dataclasses.replace(flags.read_train_flags(early), contents={}), flags.list_fields_in_flags(early.rest)
    )
    return setup.config, fallen


def request(method: str = "fedavg", **fields: Any) -> RunConfig:
    return resolve(RunConfig(method, **fields, device="cpu"))


LINEAR = {"finish": {"kind": "linear", "epochs": 7, "lr": 0.5}}
SNR = {"channel": {"kind": "rayleigh", "snr_db": 3.0, "test_snr_db": "3,9"}}
TDL = {"channel": {"kind": "ofdm", "options": {"profile": "tdl-a", "speed_mps": 9.0}}}
SGD = {"train": {"optimizer": "sgd", "momentum": 0.9}}
FALLS: list[tuple[RunConfig, str, list[str], dict[str, Any]]] = [
    (request(**LINEAR), "--finish none", ["finish.epochs", "finish.lr"], {"finish.kind": None, "finish.lr": None}),
    (request(**LINEAR), "--finish.kind svm", ["finish.epochs", "finish.lr"], {"finish.kind": "svm"}),
    (request(**LINEAR), "--finish mlp", [], {"finish.kind": "mlp", "finish.epochs": 7, "finish.lr": 0.5}),
    (request(**LINEAR), "--finish.lr none", [], {"finish.lr": 0.003}),
    (request(**SNR), "--channel.kind none", ["channel.snr_db", "channel.test_snr_db"], {"channel.snr_db": 10.0}),
    (request(**SNR), "--channel.kind awgn", [], {"channel.snr_db": 3.0, "channel.test_snr_db": "3,9"}),
    (request(**SNR), "--channel.test-snr-db none", [], {"channel.test_snr_db": None}),
    (
        request(**TDL),
        "--channel.profile rayleigh",
        ["channel.delay_spread_ns", "channel.carrier_ghz", "channel.speed_mps"],
        {"channel.options.profile": "rayleigh", "channel.options.speed_mps": None},
    ),
    (request(**SGD), "--train.optimizer adam", ["train.momentum"], {"train.momentum": 0.0}),
    (request(), "--train.local-steps 5", ["train.local_epochs"], {"train.local_steps": 5, "train.local_epochs": None}),
    (
        request(train={"local_steps": 5}),
        "--train.local-epochs 2",
        ["train.local_steps"],
        {"train.local_steps": None, "train.local_epochs": 2},
    ),
    (request("local", train={"through_link": False}), "--channel.kind=none", ["train.through_link"], {}),
    (request(train={"lr": 0.5}), "perfedavg", ["train.lr"], {"train.lr": 1e-3}),
    (request("fedcl", hyper={"lam": 0.5}), "--hyper.centroids none", ["hyper.lam"], {"hyper.lam": 1 / 64}),
    (RunConfig("fedavg", train=TrainConfig(momentum=0.9)), "--seed 4", ["train.momentum"], {"train.momentum": 0.0}),
    (request(new_clients=2, new_steps=5), "--new-clients 0", ["new_steps"], {"new_steps": 100}),
]


@pytest.mark.parametrize(("stored", "words", "fallen", "values"), FALLS, ids=[words for _, words, *_ in FALLS])
def test_what_flags_leave_without_effect_falls_away(
    stored: RunConfig, words: str, fallen: list[str], values: dict[str, Any], tmp_path: Path
) -> None:
    config, found = over(tmp_path, stored, words)
    assert found == fallen
    for name, value in values.items():
        part: Any = config
        for field in name.split("."):
            part = getattr(part, field)
        assert part == value, name


@pytest.mark.parametrize(
    ("stored", "words", "field", "value"),
    [
        (request(**SNR), "--channel.kind none --channel.test-snr-db 3,9", "channel.test_snr_db", "3,9"),
        (request(**LINEAR), "--finish none --finish.lr=0.5", "finish.lr", 0.5),
        (request(), "--train.local-steps 5 --train.local-epochs 2", "train.local_steps", 5),
        (request("local"), "--channel.kind none --train.no-through-link", "train.through_link", False),
    ],
)
def test_what_is_given_is_refused(stored: RunConfig, words: str, field: str, value: object, tmp_path: Path) -> None:
    with refuses(field, value):
        over(tmp_path, stored, words)


def test_a_line_says_what_has_fallen_away(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.json"
    small = {"clients": 2, "train": {"rounds": 1}, "model": {"encoder": "dcgan-narrow", "features": 8}}
    path.write_text(json.dumps(to_dict(request("local", **small, channel={"snr_db": 3.0}))))
    assert cli.main(["train", "--config", str(path), "--channel.kind", "none", "--partition.shots", "4"]) == 0
    wanted = f"WARNING left out of {path}, as it has no effect: channel.snr-db"
    assert [line for line in capsys.readouterr().err.splitlines() if line.endswith(wanted)]


# Places of a configuration -------------------------------------------------------------------------------------------


def test_a_run_is_named_by_its_folder_or_by_its_place_in_an_archive(tmp_path: Path) -> None:
    stored = dataclasses.replace(request(), plugins=("/elsewhere/own.py",), chunk=3, seed=5, out="/elsewhere/r")
    (tmp_path / "s" / "a-run").mkdir(parents=True)
    (tmp_path / "s" / "a-run" / "config.json").write_text(json.dumps(to_dict(stored)))
    assert to_dict(read_stored(str(tmp_path / "s" / "a-run")))["plugins"] == ("/elsewhere/own.py",)
    found = read_stored(f"{pack_archive(tmp_path / 's')}/a-run")
    assert (found.method, found.seed, found.plugins) == ("fedavg", 5, ("own.py",))
    assert (found.device, found.chunk, found.out) == ("auto", "auto", None), "those of this machine"
    with refuses("config", "another"):
        read_stored(f"{tmp_path / 's.zip'}/another")


def test_a_run_goes_on_where_it_lies_now(tmp_path: Path) -> None:
    """A copy in its own folder; a configuration alone, whatever its name, in the place that it names."""
    text = json.dumps(to_dict(dataclasses.replace(request(), out="/elsewhere/r")))
    for name in ("copy", "alone"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(text)
    (tmp_path / "copy" / "other.json").write_text(text)
    (tmp_path / "copy" / "metrics.jsonl").write_text("")
    copy = tmp_path / "copy"
    for place, out in ((copy, copy), (copy / "config.json", copy), (copy / "other.json", "/elsewhere/r")):
        assert read("--config", str(place)).out == str(out)
    assert read("--config", str(tmp_path / "alone")).out == "/elsewhere/r"
    assert read("--config", str(copy), "--out", "new").out == "new"


@pytest.mark.usefixtures("thin")
def test_a_moved_run_is_resumed_in_its_new_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"clients": 2, "model": {"encoder": "dcgan-narrow", "features": 8}, "out": str(tmp_path / "old")}
    config = request("local", **small, train={"rounds": 3, "checkpoint_every": 1})

    def stop(line: dict[str, Any]) -> None:
        if line["round"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        semcom.run(config, on_round=stop)
    (tmp_path / "old").rename(tmp_path / "new")
    begun = (tmp_path / "new" / "metrics.jsonl").read_text()
    assert cli.main(["train", "--config", str(tmp_path / "new")]) == 0
    assert (tmp_path / "new" / "metrics.jsonl").read_text().startswith(begun) and not (tmp_path / "old").exists()
    assert (read_summary(tmp_path / "new") or {})["rounds"] == 3


def test_another_preset_fills_in_what_no_flag_sets(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(to_dict(request("fedavg"))))
    words = ("--train.preset", "paper", "--train.rounds", "3")
    assert resolve(read("--config", str(tmp_path), *words)).train == resolve(read("fedavg", *words)).train
    assert resolve(read("--config", str(tmp_path), "--train.preset", "common")).train == request("fedavg").train


def test_a_stored_run_is_the_same_run_again() -> None:
    place = COMMITTED / "letter-fig2b-small.zip" / "075f814be7b9"
    assert run_hash(resolve(read_stored(str(place)))) == place.name


@pytest.mark.parametrize("word", ["none", "None"])
@pytest.mark.parametrize(
    "flag", ["finish", "train.lr", "train.optimizer", "train.local-epochs", "train.lr-milestones", "out", "data.root"]
)
def test_the_word_none_leaves_an_optional_field_open(flag: str, word: str) -> None:
    config = read("fedavg", f"--{flag}", word)
    section, _, name = ("finish.kind" if flag == "finish" else flag).replace("-", "_").rpartition(".")
    assert getattr(getattr(config, section) if section else config, name) is None


def test_none_is_a_choice_of_its_own_where_a_field_has_it() -> None:
    assert read("fedcl", "--hyper.centroids", "none").hyper.centroids == "none"
