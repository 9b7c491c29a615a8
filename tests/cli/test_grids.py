"""Fields of `--set` and `--vary`: their names, types and errors are those of `semcom train`."""

from __future__ import annotations

from typing import Any

import pytest

from semcom.cli.flags import SweepFlags
from semcom.cli.grids import Typed, read_grid_request
from semcom.config import RunConfig
from tests.refusals import refuses

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
        ("partition.classes", "None", None),  # left open
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


def test_only_options_are_left_open() -> None:
    with refuses("clients", "'None' is not a whole number"):
        typed("clients", "None")


def test_keep_is_a_field_of_all_runs() -> None:
    request = read_grid_request(SweepFlags(methods="local", keep=("confusion", "features")), [], RunConfig())
    assert request["set"] == {"keep": ("confusion", "features")}
    with refuses("set", "keep is given twice"):
        read_grid_request(SweepFlags(methods="local", keep=("images",), set=("keep=images",)), [], RunConfig())
