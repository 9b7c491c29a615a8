"""The cost of a run, worked out before it begins, beside the samples that a run counts."""

from __future__ import annotations

import dataclasses

import pytest

from semcom.config import DataConfig, ModelConfig, RunConfig, TrainConfig
from semcom.data.load import load_dataset
from semcom.data.noisy import Noisy
from semcom.data.registry import DATASETS
from semcom.runs.request.resolve import resolve
from semcom.runs.rounds.runner import run
from semcom.studies.cost import PUBLISHED, count_client_samples, count_cost_in_samples, estimate_run_cost
from semcom.studies.experiment import Experiment, Grid
from tests.worlds import divided

BASE = RunConfig(
    method="local",
    clients=4,
    model=ModelConfig(encoder="test-patches", features=4),
    train=TrainConfig(rounds=2, eval_every=2),
    device="cpu",
)


def with_split(**fields: object) -> RunConfig:
    return dataclasses.replace(BASE, partition=divided(**fields))


COUNTED = {
    "shots": with_split(ways=2, shots=15),
    "iid": with_split(kind="iid", fraction=0.2),
    "own tests": with_split(kind="iid", fraction=0.2, test="own", test_fraction=0.25),
    "dirichlet": with_split(kind="dirichlet", beta=0.5, fraction=0.3),
    "equal clients": with_split(kind="dirichlet-client", beta=0.5, fraction=0.3),
    "classes without an owner": with_split(kind="pathological", classes=2, fraction=0.5),  # 8 of 10 have one
    "scarce": with_split(kind="iid", fraction=0.2, scarce=(1, 3), scarce_fraction=0.5),
    "new clients": dataclasses.replace(with_split(kind="iid", fraction=0.2), new_clients=2, new_steps=1),
    "epochs per client": dataclasses.replace(
        with_split(ways=2, shots=15), train=TrainConfig(rounds=2, local_epochs=(1, 2, 1, 2))
    ),
    "participation": dataclasses.replace(
        with_split(ways=2, shots=15), method="fedavg", train=TrainConfig(rounds=2, participation=0.5)
    ),
    "steps": dataclasses.replace(
        with_split(ways=2, shots=15), train=TrainConfig(rounds=2, local_steps=5, batch_size=20)
    ),  # per round 20 + 10 + 20 + 10 + 20
}


@pytest.mark.usefixtures("thin")
@pytest.mark.parametrize("name", COUNTED)
def test_the_cost_is_what_a_run_counts(name: str) -> None:
    config = resolve(COUNTED[name])
    expected = count_cost_in_samples(config)
    assert expected == estimate_run_cost(config)
    # A part of each class, client and test set is rounded to whole images: 4 clients with 10 classes, 2 rounds.
    assert run(config).summary["samples"] == pytest.approx(expected, rel=0.02)


def test_the_cost_of_a_users_partition_is_not_known() -> None:
    config = resolve(COUNTED["iid"])
    split = dataclasses.replace(config.partition, kind="of-my-own", options=None)
    assert count_client_samples(dataclasses.replace(config, partition=split)) is None


def test_the_cost_of_the_small_scale_by_hand() -> None:
    config = resolve(
        dataclasses.replace(
            with_split(kind="dirichlet", fraction=0.5),
            data=DataConfig("cifar10"),
            train=TrainConfig(rounds=10, local_epochs=2),
        )
    )
    assert count_client_samples(config) == 60_000 * 0.75 * 0.5 / 4
    assert count_cost_in_samples(config) == 10 * 2 * 60_000 * 0.75 * 0.5


def test_data_of_unknown_size() -> None:
    """Only shots say by themselves how much there is; work then compares passes."""
    mine, shots = DataConfig("mine.npz"), divided(ways=2, shots=10)
    schedule = TrainConfig(rounds=3, local_epochs=2)
    config = resolve(dataclasses.replace(with_split(kind="iid"), data=mine, train=schedule))
    assert count_cost_in_samples(config) is None and estimate_run_cost(config) == 3 * 4 * 2
    assert count_cost_in_samples(resolve(dataclasses.replace(BASE, data=mine, partition=shots))) == 2 * 4 * 20
    steps = TrainConfig(rounds=3, local_steps=7, batch_size=10)
    assert (
        count_cost_in_samples(resolve(dataclasses.replace(with_split(kind="iid"), data=mine, train=steps)))
        == 3 * 4 * 7 * 10
    )
    file = resolve(with_split(kind="file", path="split.npz"))
    assert count_cost_in_samples(file) is None


def test_the_sizes_of_known_datasets() -> None:
    found = load_dataset(DataConfig("digits"))
    assert PUBLISHED["digits"] == (found.train_size, len(found.images) - found.train_size, len(found.classes))
    unknown = ("huggingface", "noisy")  # those of the dataset that their options name
    assert list(PUBLISHED) == [name for name in DATASETS.names() if DATASETS.ships(name) and name not in unknown]


def test_noisy_images_are_as_many_as_those_without_noise() -> None:
    of_digits = DataConfig("noisy", options=Noisy.Options("digits"))
    split = with_split(kind="iid")
    noisy, clean = (resolve(dataclasses.replace(split, data=data)) for data in (of_digits, DataConfig("digits")))
    assert count_client_samples(noisy) == count_client_samples(clean) is not None


def test_an_outline_sums_the_runs_of_a_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("semcom.resolve", resolve)  # the real one
    grid = Grid(with_split(ways=2, shots=15), {"channel.snr_db": (0.0, 9.0), "seed": (0, 1, 2)})
    unknown = Grid(dataclasses.replace(with_split(kind="iid"), data=DataConfig("mine.npz")), {"seed": (0,)})
    found = Experiment("x", "", "", ("local", "fedavg"), {"small": unknown, "smoke": grid})
    outline = found.outline()
    assert outline.runs == 12
    assert {axis.name: axis.entries() for axis in outline.axes} == {"channel.snr_db": (0.0, 9.0), "seed": (0, 1, 2)}
    assert outline.samples == 12 * 2 * 4 * 2 * 15  # runs, rounds, clients, ways, shots
    assert found.outline("small").runs == 2 and found.outline("small").samples is None
