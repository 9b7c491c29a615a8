"""Data that are no images: rows of a table, series and token ids, as float32 arrays of any shape."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import semcom
from semcom import DataConfig, ModelConfig, PartitionConfig, RunConfig, TrainConfig
from semcom.cli.main import main
from semcom.data.federation import federate
from semcom.data.load import load_dataset
from semcom.data.readers import read_npz
from semcom.data.split import Split
from semcom.models.registry import ENCODERS
from tests.refusals import refuses

CLASSES, TOKENS = 3, 20


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of 5 numbers around one point for each class, far from 0 to 1."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, CLASSES, 240)
    x = 100 * rng.normal(size=(CLASSES, 5))[y] + rng.normal(size=(240, 5))
    return store(tmp_path_factory.mktemp("table") / "table.npz", x, y)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Draw sequences of 8 whole numbers that mostly begin with the class."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, CLASSES, 240)
    x = np.where(rng.random((240, 8)) < 0.7, y[:, None], rng.integers(0, TOKENS, (240, 8)))
    return store(tmp_path_factory.mktemp("text") / "text.npz", x, y)


def store(path: Path, x: np.ndarray, y: np.ndarray) -> Path:
    np.savez(path, x_train=x[:180], y_train=y[:180], x_test=x[180:], y_test=y[180:])
    return path


def request(data: Path, encoder: str, method: str = "fedavg", **fields: Any) -> RunConfig:
    fields = {"chunk": "auto", "precision": "float64", **fields}
    return RunConfig(
        method,
        data=DataConfig(str(data)),
        model=ModelConfig(encoder=encoder, features=8),
        partition=PartitionConfig(options={"ways": CLASSES, "shots": 12}),
        train=TrainConfig(rounds=3, lr=0.01, optimizer="adam"),
        clients=3,
        device="cpu",
        **fields,
    )


def test_numbers_are_taken_as_they_are(table: Path) -> None:
    with np.load(table) as arrays:
        expected = np.concatenate([arrays["x_train"], arrays["x_test"]]).astype(np.float32)
    found = load_dataset(DataConfig(str(table)))
    np.testing.assert_array_equal(found.images, expected)
    indices = np.arange(180)
    federation = federate(found, Split([indices[:90], indices[90:]], [np.arange(180, 240)] * 2, [indices[:0]] * 2))
    some = torch.tensor([[3, 0], [7, 200]])
    np.testing.assert_array_equal(federation.gather(some, torch.float64).numpy(), expected[some.numpy()])


def test_a_table_is_learnt_by_every_kind_of_exchange(table: Path) -> None:
    for method in ("fedavg", "fedproto", "fedcl"):
        assert semcom.run(request(table, "mlp", method)).summary["accuracy"] > 0.8


class Reader(nn.Module):
    """Token ids through an LSTM."""

    def __init__(self, shape: tuple[int, ...], features: int) -> None:
        super().__init__()
        assert shape == (8,)
        self.embedding, self.lstm = nn.Embedding(TOKENS, 6), nn.LSTM(6, 12, batch_first=True)
        self.last = nn.Linear(12, features)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.lstm(self.embedding(x.long()))[0][:, -1])


@pytest.fixture
def reader(own_names: None) -> str:
    ENCODERS.register("reader")(Reader)
    return "reader"


def test_what_vmap_cannot_stack_goes_one_after_the_other(
    text: Path, reader: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An LSTM gives the same result to the last bit for any chunk, and one line reports the loop."""
    with caplog.at_level(logging.WARNING):
        runs = [semcom.run(request(text, reader, chunk=chunk)) for chunk in (1, 3)]
    losses = [[line["loss"] for line in each.metrics] for each in runs]
    assert losses[0] == losses[1] and losses[0][-1] < losses[0][0]
    said = [record.message for record in caplog.records if "one after the other" in record.message]
    assert len(said) == len(runs) and "lstm" in said[0]


def test_an_error_of_the_network_itself_is_not_taken_for_vmap_s(text: Path, reader: str) -> None:
    class Wrong(Reader):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x[:, :4]) @ torch.ones(7, 7)

    ENCODERS._added["reader"] = Wrong
    with refuses("model.encoder", "does not run on [8] per sample"):
        semcom.run(request(text, reader, chunk=3))


@pytest.mark.parametrize(
    ("fields", "field", "said"),
    [
        ({"encoder": "dcgan"}, "model.encoder", "'dcgan' takes images, and the data are arrays of [5]"),
        ({"encoder": "mlp", "method": "repper"}, "method", "repper learns from crops of images"),
        ({"encoder": "mlp", "task": "reconstruction"}, "task", "the data are arrays of numbers"),
    ],
)
def test_what_takes_images_is_refused(table: Path, fields: dict[str, Any], field: str, said: str) -> None:
    with refuses(field, said):
        semcom.run(request(table, **fields))


def test_a_size_of_what_is_no_image_is_refused(table: Path) -> None:
    whole = request(table, "mlp")
    with refuses("data.size", "64 has no effect"):
        semcom.run(RunConfig(**{**vars(whole), "data": DataConfig(str(table), size=64)}))
    with refuses("data.augment", "'crop-flip' takes images"):
        semcom.run(RunConfig(**{**vars(whole), "data": DataConfig(str(table), augment="crop-flip")}))


@pytest.mark.parametrize(
    ("x", "said"),
    [
        (np.full((6, 4), np.nan), "some of its numbers are not finite"),
        (np.zeros(6), "wanted is [N, ...]"),
        (np.zeros((6, 4), complex), "wanted are numbers"),
        (np.full((6, 4), 2**24 + 1), "whole numbers above 2^24"),
    ],
)
def test_damaged_numbers_are_refused(x: np.ndarray, said: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x_train=x, y_train=np.arange(6) % 2, x_test=x, y_test=np.arange(6) % 2)
    with refuses("data.name", said):
        read_npz(tmp_path / "x.npz")


def test_names_of_classes_may_be_bytes(tmp_path: Path) -> None:
    part = {"x_train": np.zeros((2, 3), np.int64), "y_train": np.arange(2)}
    part |= {"x_test": part["x_train"], "y_test": part["y_train"]}
    np.savez(tmp_path / "x.npz", **part, classes=np.array(["Rübe".encode(), b"cat"]))
    assert read_npz(tmp_path / "x.npz").classes == ("Rübe", "cat")


def test_list_says_what_a_file_holds(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["list", "datasets", str(table)])
    assert "180 training and 60 test arrays of 5" in " ".join(capsys.readouterr().out.split())
