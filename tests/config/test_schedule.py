"""The local schedule: what fills its open fields, the rate over the rounds, and what contradicts itself."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from semcom.config import (
    COMMON,
    Resolved,
    RunConfig,
    Schedule,
    TrainConfig,
    fill_from_preset,
    from_dict,
    run_hash,
    to_dict,
)
from semcom.methods.registry import METHODS
from semcom.runs.request.resolve import resolve
from semcom.studies.cost import estimate_run_cost
from tests.commands import read
from tests.refusals import refuses
from tests.worlds import divided, world

FEDCRC = {"optimizer": "sgd", "lr": 0.05, "momentum": 0.9, "lr_milestones": (50, 75), "lr_decay": (0.2, 0.1)}
"""A preset with a schedule: 0.05, 0.01 from round 50 on, 0.001 from round 75 on."""


OPEN = ("local_steps", "local_epochs", "patience", "eval_clients", "deadline_s")
"""Fields whose None says something: the other one of steps and epochs, all rounds, all clients."""


def scheduled(**fields: Any) -> Schedule:
    return fill_from_preset(TrainConfig(**fields), {})


def resolved(**fields: Any) -> Resolved:
    return resolve(RunConfig(method="local", device="cpu", train=TrainConfig(**fields)))


def test_without_a_preset_open_fields_are_the_common_ones() -> None:
    train = scheduled()
    assert {name: getattr(train, name) for name in COMMON} == {**COMMON}
    assert train.local_steps is None and (train.lr_milestones, train.lr_decay) == ((), 0.1)


@pytest.mark.parametrize(
    ("own", "lr", "milestones", "decay"),
    [
        ({}, 0.05, (50, 75), (0.2, 0.1)),
        ({"rounds": 60, "optimizer": "adam"}, 0.05, (50, 75), (0.2, 0.1)),
        ({"lr": 0.05}, 0.05, (), 0.1),  # an own rate, even the same one
        ({"lr_milestones": (3,)}, 0.05, (3,), 0.1),
        ({"lr_milestones": ()}, 0.05, (), 0.1),
        ({"lr_decay": 0.5}, 0.05, (50, 75), 0.5),
        ({"lr": 1.0, "lr_milestones": (2, 4)}, 1.0, (2, 4), 0.1),
        ({"lr": 1.0, "lr_milestones": (2, 4), "lr_decay": (0.5, 0.25)}, 1.0, (2, 4), (0.5, 0.25)),
    ],
)
def test_milestones_come_with_their_rate_and_factors_with_their_milestones(
    own: dict[str, Any], lr: float, milestones: tuple[int, ...], decay: Any
) -> None:
    train = fill_from_preset(TrainConfig(**own), FEDCRC)
    assert (train.lr, train.lr_milestones, train.lr_decay) == (lr, milestones, decay)


@pytest.mark.parametrize(
    ("own", "preset", "epochs", "steps"),
    [
        ({}, {}, 1, None),
        ({}, {"local_epochs": 5}, 5, None),
        ({}, {"local_steps": 20}, None, 20),
        ({"local_epochs": 2}, {"local_steps": 20}, 2, None),
        ({"local_steps": 3}, {"local_epochs": 5}, None, 3),
        ({"local_steps": 3}, {"local_steps": 20}, None, 3),
        ({"local_steps": 3}, {}, None, 3),
    ],
)
def test_a_client_trains_epochs_or_steps(own: dict[str, Any], preset: dict[str, Any], epochs: Any, steps: Any) -> None:
    train = fill_from_preset(TrainConfig(**own), preset)
    assert (train.local_epochs, train.local_steps) == (epochs, steps)


@pytest.mark.parametrize("arm", [name for name in METHODS.names() if METHODS.get(name).preset])
def test_every_preset_can_be_run_as_it_is(arm: str) -> None:
    preset = METHODS.get(arm).preset
    train = resolve(RunConfig(method=arm, device="cpu", train=TrainConfig(preset="paper"))).train
    assert {name: getattr(train, name) for name in preset} == {**preset}


@pytest.mark.parametrize(
    ("round_", "rate"), [(0, 0.05), (1, 0.05), (49, 0.05), (50, 0.01), (74, 0.01), (75, 0.001), (100, 0.001)]
)
def test_the_rate_of_fedcrc(round_: int, rate: float) -> None:
    assert 0.05 * fill_from_preset(TrainConfig(), FEDCRC).rate_factor(round_) == pytest.approx(rate, rel=1e-15)


def test_one_factor_for_all_milestones() -> None:
    train = scheduled(lr_milestones=(2, 3, 5), lr_decay=0.5)
    assert [train.rate_factor(r) for r in range(1, 7)] == [1.0, 0.5, 0.25, 0.25, 0.125, 0.125]
    assert {scheduled().rate_factor(r) for r in (0, 1, 60, 1000)} == {1.0}, "without milestones"


@pytest.mark.parametrize("rounds", [1, 2, 7, 60])
def test_a_cosine_is_torchs(rounds: int) -> None:
    """`CosineAnnealingLR` with a step per round; around the rounds the rates of the first and the last one."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.3)
    theirs = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=rounds)
    train = scheduled(rounds=rounds, lr=0.3, lr_schedule="cosine")
    for round_ in range(1, rounds + 1):
        assert 0.3 * train.rate_factor(round_) == pytest.approx(theirs.get_last_lr()[0], rel=1e-12)
        optimizer.step()
        theirs.step()
    assert train.rate_factor(0) == 1 and train.rate_factor(rounds + 1) == train.rate_factor(rounds) > 0
    preset = fill_from_preset(TrainConfig(lr_schedule="cosine"), FEDCRC)
    assert (preset.lr, preset.lr_milestones, preset.lr_decay) == (0.05, (), 0.1)


def test_adamw_has_no_momentum() -> None:
    assert fill_from_preset(TrainConfig(optimizer="adamw"), FEDCRC).momentum == 0


def test_a_schedule_has_no_open_fields() -> None:
    with pytest.raises(TypeError, match="rounds"):
        Schedule(batch_size=1)  # type: ignore[call-arg]
    assert not [name for name, value in vars(scheduled()).items() if value is None and name not in OPEN]


SCHEDULES: list[dict[str, Any]] = [
    {},
    {"local_steps": 7},
    {"lr_milestones": (5,)},
    {"lr": 0.05, "lr_milestones": (50, 75), "lr_decay": (0.2, 0.1)},
]


@pytest.mark.parametrize("fields", SCHEDULES)
def test_a_stored_schedule_is_read_back(fields: dict[str, Any], tmp_path: Path) -> None:
    config = resolved(**fields)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(to_dict(config)))
    again = resolve(read("--config", str(path)))
    assert again == config and run_hash(again) == run_hash(config)
    assert vars(from_dict(json.loads(path.read_text())).train) == vars(config.train)


def test_each_field_of_the_schedule_is_part_of_the_hash() -> None:
    more: list[dict[str, Any]] = [{**SCHEDULES[-1], "lr_decay": 0.1}, {"lr_milestones": (6,)}, {"local_steps": 8}]
    more += [{"lr_schedule": "cosine"}, {"optimizer": "adamw"}]
    hashes = [run_hash(resolved(**fields)) for fields in (*SCHEDULES, *more)]
    assert len(set(hashes)) == len(hashes)
    assert run_hash(resolved(lr_decay=0.1)) == hashes[0]


def test_the_schedule_on_the_command_line() -> None:
    given = ("--train.lr-milestones", "50", "75", "--train.lr-decay", "0.2", "0.1", "--train.local-steps", "4")
    train = read("local", *given).train
    assert train == TrainConfig(lr_milestones=(50, 75), lr_decay=(0.2, 0.1), local_steps=4)
    one = read("local", "--train.lr-milestones", "50", "--train.lr-decay", "0.5").train
    assert (one.lr_milestones, one.lr_decay) == ((50,), 0.5)
    assert read("local", "--train.lr-milestones").train.lr_milestones == ()
    assert read("local", "--train.lr-milestones", "None").train.lr_milestones is None


def test_a_stored_run_of_epochs_becomes_one_of_steps(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(to_dict(resolved())))
    words = ["--config", str(path), "--train.local-steps", "4"]
    with refuses("train.local_steps", 4):
        resolve(read(*words))
    words += ["--train.local-epochs", "None"]
    again = resolve(read(*words))
    assert again.train == resolved(local_steps=4).train


def test_steps_say_how_long_a_run_takes() -> None:
    train = TrainConfig(rounds=5, local_steps=3, batch_size=4, participation=0.5)
    config = resolve(RunConfig(device="cpu", clients=2, partition=divided(ways=2, shots=10), train=train))
    assert estimate_run_cost(config) == 5 * (3 * 4) * 2 * 0.5
    epochs = dataclasses.replace(config.train, local_steps=None, local_epochs=2)
    assert estimate_run_cost(dataclasses.replace(config, train=epochs)) == 5 * (2 * 20) * 2 * 0.5


def test_the_optimiser_follows_the_milestones() -> None:
    w = world("fedavg", train={"lr": (0.05, 0.1, 0.2), "lr_milestones": (3, 4), "lr_decay": (0.5, 0.25)})
    for round_, factor in ((1, 1.0), (2, 1.0), (3, 0.5), (4, 0.125), (5, 0.125)):
        w.session.tally.begin(round_)
        assert w.optimizer().lr == pytest.approx((0.05 * factor, 0.1 * factor, 0.2 * factor), rel=1e-15)
