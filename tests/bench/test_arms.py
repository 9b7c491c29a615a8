"""What arms cost: passes by hand, numbers by hand from fixed times, and the command in small."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from semcom.bench.arms import ArmResult, ArmsReport, as_json, bench, table
from semcom.bench.counting import Passes, counted
from semcom.bench.workloads import Workload
from semcom.cli import main as cli
from semcom.config import ConfigError
from semcom.engine.train.forward import StackedModel
from semcom.methods.registry import METHODS
from tests.worlds import world

SIZES = (10, 5, 5)
"""Samples of the clients: in chunks their last batches are padded; four fifths of each are a whole number."""

COSTS: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("local", "fedavg", "fedavg_ft", "fedprox", "fedprox_ft", "fedamp"), (1, 1)),
    **dict.fromkeys(("fedper", "lg_fedavg", "fedbabu", "fedproto", "fedcl"), (1, 1)),
    "moon": (3, 1),  # the global and the previous model's features
    "ditto": (2, 2),  # two models
    "pfedme": (5, 5),  # inner steps
    "perfedavg": (2, 2),  # inner and outer step
    "fedrep": (11, 1),  # ten epochs of the head
    "repper": (2, 2),  # two views of each image
    "fedala": (1.8, 1),  # W learns from 80 %, of the head's tensors alone
    **dict.fromkeys(("fedgh", "fedcosr", "fedcrl"), (2, 1)),  # prototypes
    "fedcrc": (3, 1),  # two predictors
    "fedpac": (4, 1),  # statistics, an epoch of the head, prototypes
}
"""Arm -> passes forward and backward per sample, with one local epoch and the default hyperparameters."""

OTHERS: list[tuple[str, dict[str, Any], tuple[float, float]]] = [
    ("fedavg", {"train": {"local_epochs": 3}}, (3, 3)),
    ("pfedme", {"hyper": {"inner_steps": 2}}, (2, 2)),
    ("perfedavg", {"hyper": {"variant": "hf"}}, (4, 4)),
    ("fedrep", {"hyper": {"head_epochs": 2}, "train": {"local_epochs": 2}}, (4, 2)),
    ("fedpac", {"hyper": {"head_epochs": 0}}, (3, 1)),
    ("fedproto", {"hyper": {"source": "pass"}}, (2, 1)),
    ("fedala", {"hyper": {"p": 0}}, (1, 1)),
    ("fedala", {"hyper": {"p": 6}}, (1.8, 1.8)),  # W of every tensor: it needs the encoder's gradients
    ("fedcrc", {"train": {"local_epochs": 2}}, (5, 2)),
]
"""The same with other settings."""


def cost(arm: str, rounds: int = 3, **overrides: Any) -> tuple[float, float]:
    """Passes per sample in the last of some rounds."""
    here = world(arm, sizes=SIZES, **overrides)
    method = METHODS.get(arm)(here.config.hyper)
    state = method.setup(here)
    for r in range(1, rounds + 1):
        here.session.tally.begin(r)
        with counted() as passes:
            state = method.round(state, here)
    return passes.forward / sum(SIZES), passes.backward / sum(SIZES)


def test_the_table_names_every_arm() -> None:
    assert COSTS.keys() == {name for name in METHODS.names() if not name.startswith("test-")}


@pytest.mark.parametrize("arm", COSTS)
def test_passes_by_hand(arm: str) -> None:
    assert cost(arm) == COSTS[arm]


@pytest.mark.parametrize(("arm", "overrides", "wanted"), OTHERS)
def test_passes_with_other_settings_by_hand(arm: str, overrides: dict[str, Any], wanted: tuple[float, float]) -> None:
    assert cost(arm, **overrides) == wanted


@pytest.mark.parametrize("arm", ["moon", "fedala", "repper", "fedpac"])
def test_padding_does_not_count(arm: str) -> None:
    """Three clients at once, the smaller ones padded in their last batch."""
    assert cost(arm, chunk=3, train={"batch_size": 4}) == COSTS[arm]


def test_participants_alone_count() -> None:
    """One of three clients, and not the others."""
    forward, backward = cost("fedavg", train={"participation": 0.3})
    assert forward == backward and forward * sum(SIZES) in SIZES


def test_counting_ends_with_its_block() -> None:
    encode = StackedModel.encode
    with pytest.raises(ZeroDivisionError), counted():
        assert StackedModel.encode is not encode
        _ = 1 / 0
    assert StackedModel.encode is encode


BASE = ArmResult("fedavg", Passes(600, 600), Passes(600, 600), ((2.0, 2.0), (3.0, 3.3), (2.0, 1.8)))
MOON = ArmResult("moon", Passes(1800, 600), Passes(600, 600), ((2.0, 4.0), (1.0, 3.0), (2.0, 5.0)))


def test_ratios_by_hand() -> None:
    """(3 + 2 x 1) / 3 of the work in 2.5 of the time, the median of 2, 3 and 2.5: half as much again, a miss."""
    assert MOON.work == pytest.approx(5 / 3) and MOON.times == (2.0, 2.5, 3.0)
    assert MOON.time_over_work == pytest.approx(1.5)
    assert BASE.times == pytest.approx((0.9, 1.0, 1.1)) and BASE.time_over_work == 1


def test_the_table_and_the_file() -> None:
    workload = Workload("arms-small", "fedavg", "cnn-dropout", 128, 2, 300, 16, 2)
    facts = {"cpu": "A processor", "versions": {"torch": "2.15.0"}}
    report = ArmsReport(facts, workload, 3, [BASE, MOON])
    assert table(report) == (
        "A processor, one thread, torch 2.15.0; 3 pairs of rounds\n"
        "cnn-dropout, d = 128, 2 clients x 300 samples, batch 16, ideal link\n"
        "   arm     forward  backward  work/FedAvg  time/FedAvg: min  median   max  time/work\n"
        "   fedavg     1.00      1.00         1.00              0.90    1.00  1.10       1.00\n"
        "   moon       3.00      1.00         1.67              2.00    2.50  3.00       1.50\n"
        "forward, backward: passes through an encoder per sample; work: forward + 2 x backward\n"
        "target, a time/work of 1.3: missed by moon"
    )
    assert table(replace(report, arms=[BASE])).endswith("target, a time/work of 1.3: met")
    moon = json.loads(json.dumps(as_json(report)))["arms"][1]
    assert moon["passes"] == {"forward": 1800, "backward": 600} and moon["times"] == [2.0, 2.5, 3.0]


@pytest.mark.parametrize(
    ("arms", "clients", "repeats"), [("fedavg,fedsgd", None, None), (None, 0, None), ("moon", 2, 0)]
)
def test_what_cannot_be_measured_is_refused(arms: str | None, clients: int | None, repeats: int | None) -> None:
    with pytest.raises(ConfigError, match="^arms: 'fedsgd' is not one of |^clients: 0|^repeats: 0"):
        bench(arms, clients, repeats)


def test_the_command_in_small(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    words = ["bench", "arms", "--quick", "--arms", "fedavg,moon", "--repeats", "1", "--json", str(tmp_path / "a.json")]
    assert cli.main([*words, "--log-level", "error"]) == 0
    assert torch.equal(torch.get_rng_state(), before) and torch.get_num_threads() == threads
    out = capsys.readouterr().out
    assert "2 clients x 32 samples" in out and max(map(len, out.splitlines())) <= 100
    moon = {arm["arm"]: arm for arm in json.loads((tmp_path / "a.json").read_text())["arms"]}["moon"]
    assert moon["passes"] == {"forward": 192, "backward": 64} and len(moon["seconds"]) == 1
    assert cli.main(["list", "benches"]) == 0
    assert "arms      What a round of each arm costs" in capsys.readouterr().out
