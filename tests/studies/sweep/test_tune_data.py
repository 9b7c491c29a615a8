"""The images of a search and of its study, over all partitions: what a search saw is never tested on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from semcom import DataConfig, PartitionConfig, RunConfig
from semcom.cli.main import main
from semcom.data.dataset import Dataset
from semcom.data.load import load_dataset
from semcom.data.partitions import partition_dataset
from semcom.data.registry import PARTITIONS
from semcom.data.sources import digits
from semcom.data.split import Partition, Split, split_samples_off
from semcom.data.split_file import write_split
from semcom.runs.request.resolve import resolve
from semcom.studies.sweep.sweep import sweep
from tests.refusals import refuses
from tests.studies.sweep.test_tune import pretend

SHARED = {"clients": 4, "train.rounds": 1, "data.name": "data.npz"}
SETTINGS: dict[str, tuple[dict[str, Any], ...]] = {
    "shots": ({"partition.shots": 9, "partition.test_classes": "all"},),
    "file": ({"partition.path": "split.npz"},),
    "place": tuple(
        {"partition.scene": "munich-20", "partition.beta": 1.0, "partition.test": t} for t in ("own", "merged")
    ),
}
"""Partition -> settings of its studies; of the others either value of `test`."""
STUDIES = [
    (kind, settings)
    for kind in PARTITIONS.names()
    for settings in SETTINGS.get(kind, ({"partition.test": "own"}, {"partition.test": "merged"}))
]


@pytest.fixture(autouse=True)
def data(monkeypatch: pytest.MonkeyPatch, here: Path) -> None:
    """An archive of digits with owners, a file that divides it, and resolving as it is."""
    monkeypatch.setattr("semcom.resolve", resolve)
    known, cut = digits(), digits().train_size
    owners = np.random.default_rng(0).integers(0, 6, len(known.labels))
    arrays = {"x": known.images[:, 0], "y": known.labels, "owners": owners}
    parts = (("train", slice(cut)), ("test", slice(cut, None)))
    np.savez("data.npz", **{f"{name}_{part}": array[of] for name, array in arrays.items() for part, of in parts})
    whole = load_dataset(DataConfig("data.npz"))
    write_split("split.npz", partition_dataset(whole, PartitionConfig("dirichlet"), SHARED["clients"], 3), whole)


def tune(kind: str, settings: dict[str, Any], seeds: tuple[int, ...] = (0, 1)) -> tuple[set[int], set[int]]:
    """The images that a search trains or validates on, and those that its study tests on: of the runs that begin."""
    seen, tested = set[int](), set[int]()

    def begin(config: RunConfig) -> None:
        split = partition_dataset(load_dataset(config.data), config.partition, config.sharers, config.seed)
        searches = config.partition.validation > 0
        for lists in (split.train, split.validation) if searches else (split.test,):
            (seen if searches else tested).update(np.concatenate(lists).tolist())
        pretend(config)

    asked: dict[str, Any] = {"methods": "fedavg", "seeds": seeds, "tune": {"train.lr": (0.1, 0.2)}, "out": "tuned"}
    sweep(**asked, set={**SHARED, "partition.kind": kind, **settings}, train=begin)
    return seen, tested


@pytest.mark.parametrize(("kind", "settings"), STUDIES)
def test_what_a_search_saw_is_never_tested_on(kind: str, settings: dict[str, Any]) -> None:
    """Tests that are taken of all images, anew for each seed, are images that the search trains and validates on."""
    if settings.get("partition.test") == "merged":
        with refuses("tune", f"{kind!r} draws tests for each seed", "partition.test=own"):
            tune(kind, settings)
        assert not Path("tuned").exists(), "nothing has run"
        return
    seen, tested = tune(kind, settings)
    assert len(seen) > 100 and len(tested) > 40 and not seen & tested


def test_the_same_division_has_the_same_tests() -> None:
    """With the seed of the search alone a study has its division, of which the search takes training images."""
    seen, tested = tune("dirichlet", {}, seeds=(1000,))
    assert len(seen) > 1000 and len(tested) > 300 and not seen & tested


@pytest.fixture
def careless(own_names: None) -> str:
    """A partition of a user's own that takes its tests of all images."""

    @PARTITIONS.register("careless")
    class Careless(Partition):
        def divide(self, dataset: Dataset, clients: int, rng: np.random.Generator) -> Split:
            every = tuple(np.array_split(rng.permutation(len(dataset.labels)), clients))
            return Split(*split_samples_off(every, dataset.labels, 0.5, rng))

    return "careless"


def test_a_partition_of_ones_own_is_looked_at_too(careless: str) -> None:
    with refuses("tune", "'careless'"):
        tune(careless, {})


def test_a_dry_run_says_so_too(capsys: pytest.CaptureFixture[str]) -> None:
    words = "sweep --methods fedavg --tune train.lr=0.1,0.2 --seeds 0 --set partition.kind=iid --set clients=4"
    assert main([*words.split(), "--out", "tuned", "--dry-run"]) == 2
    assert "error: tune: the search would train or validate on 342 of the 448 test images" in capsys.readouterr().err


def test_a_search_without_validation_images_is_refused_before_it_runs() -> None:
    """One image of one class for each client: none can be set aside."""
    with refuses("partition.validation", "0.2", "one training image"):
        tune("shots", {"partition.shots": 1, "partition.ways": 1})
    assert not Path("tuned/search").exists()
