"""Fields of `--set` and `--vary`: their names, types and errors are those of `semcom train`."""

from __future__ import annotations

from typing import Any

import pytest

from semcom.cli import main as cli
from semcom.cli.grids import Typed
from semcom.config import ConfigError, RunConfig

typed = Typed(["fedproto", "fedcl"], RunConfig())


@pytest.mark.parametrize(
    ("field", "word", "value"),
    [
        ("train.rounds", "20", 20),
        ("channel.snr_db", "-6", -6.0),
        ("channel.snr_db", "0:18", "0:18"),
        ("channel.test_snr_db", "None", None),
        ("train.lr", "0.1", 0.1),
        ("train.lr", "0.1 0.2", (0.1, 0.2)),
        ("train.optimizer", "sgd", "sgd"),
        ("partition.scarce", "1 2", (1, 2)),
        ("partition.scarce", "", ()),
        ("partition.ways", "5", 5),  # an option of the partition in use
        ("partition.beta", "0.5", 0.5),  # of another one
        ("channel.csi", "ls", "ls"),
        ("hyper.lam", "1", 1.0),
        ("hyper.centroids", "mean", "mean"),  # the first method does not have it
        ("train.through_link", "False", False),
        ("seed", "3", 3),
        ("finish.kind", "lr", "lr"),
        ("data.name", "my file.npz", "my file.npz"),
        ("keep", "confusion,features", ("confusion", "features")),
    ],
)
def test_words_have_the_types_of_their_fields(field: str, word: str, value: Any) -> None:
    found = typed(field, word)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    ("field", "word", "message"),
    [
        ("train.rounds", "x", "^train.rounds: 'x' is not a whole number$"),
        ("train.optimizer", "sdg", "^train.optimizer: 'sdg' is not one of adam, sgd$"),
        ("train.through_link", "maybe", "^train.through-link: 'maybe' is not True or False$"),
        ("train.round", "5", "^train.round=5: no such field; did you mean train.rounds[?]$"),
        ("trian.rounds", "5", "no such field"),
        ("hyper.mu_", "5", "^hyper.mu-: not for fedproto, which takes lam"),
        ("method", "fedcl", "^method: the methods of a grid are its variants"),
        ("partition", "shots", "^partition: it is a section; name one of its fields, such as partition.kind$"),
    ],
)
def test_words_that_are_wrong(field: str, word: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        typed(field, word)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("demo --methods moon", "methods: demo has no variant 'moon'; its variants are fedcl, fedproto, fedavg"),
        ("demo --seeds 4..0", "seeds: '4..0' has no numbers"),
        ("demo --seeds", "seeds: no value is given"),
        ("demo --set train.rounds=x", "train.rounds: 'x' is not a whole number"),
        ("demo --set train.rounds=2 --set train.rounds=3", "set: train.rounds is given twice; give it once"),
        ("demo --set clients=2 --vary clients=3", "clients: it is asked for twice"),
        ("demo --set hyper.lam=1", "hyper.lam: not for fedavg, which takes no options"),
        ("demo --vary channel.snr_db", "vary: 'channel.snr_db' is not FIELD=VALUE"),
        ("demo --shard 4/3", "shard: '4/3' is no part of a grid"),
        ("--methods fedcl", "out: none is given; a study of your own needs a folder"),
        ("--methods fedlc --out r", "method: 'fedlc' is unknown: did you mean 'fedcl'?"),
        ("--vary seed=0 --out r", "experiment: none is given; known are "),
        ("--methods fedcl --scale small --out r", "scale: 'small' is not for a study of your own"),
        ("nowhere.py", "plugin: 'nowhere.py' cannot be imported"),
    ],
)
def test_wrong_requests_are_one_line(
    line: str, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["sweep", *line.split()]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"semcom: error: {message}") and captured.err.count("\n") == 1
    assert captured.out == "" and not list(tmp_path.iterdir())
