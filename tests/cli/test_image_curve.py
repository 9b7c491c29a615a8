"""`semcom image-curve`: the digital chain of a dataset's images as a CSV file."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import torch

from semcom.channels import make_link
from semcom.channels.coding.choice import SampleImages
from semcom.channels.coding.curve import CurvePoint, measure_image_curve
from semcom.cli.main import main
from semcom.config import DataConfig
from semcom.data.load import load_dataset

WORDS = ["image-curve", "--data.size", "16", "--uses", "64,128", "--snr-db", "4,20", "--images", "5", "--seed", "3"]


def test_a_row_for_each_number_of_uses_and_snr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the chain itself says of the first test images, chosen for by images of the training part alone."""
    assert main([*WORDS, "--csv", str(tmp_path / "curve.csv")]) == 0 and main(WORDS) == 0
    text = (tmp_path / "curve.csv").read_text()
    assert capsys.readouterr().out == f"table: {tmp_path / 'curve.csv'}\n{text}"
    rows = list(csv.DictReader(text.splitlines()))
    assert tuple(rows[0]) == CurvePoint._fields
    dataset = load_dataset(DataConfig(size=16))
    images = torch.from_numpy(dataset.images)
    train = images[: dataset.train_size][:: dataset.train_size // 128][:128]
    test = images[dataset.train_size :][:5]
    expected = measure_image_curve(test, SampleImages(train), (64, 128), (4.0, 20.0), make_link("awgn"), 3)
    for row, point in zip(rows, expected, strict=True):
        for name, value in point._asdict().items():
            assert row[name] == value or float(row[name]) == pytest.approx(value, rel=1e-4)


def test_arrays_of_numbers_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    numbers, labels = np.zeros((4, 3), np.float32), np.array([0, 1, 0, 1])
    np.savez(tmp_path / "rows.npz", x_train=numbers, y_train=labels, x_test=numbers, y_test=labels)
    assert main(["image-curve", "--data.name", str(tmp_path / "rows.npz")]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("semcom: error: data.name: ")
