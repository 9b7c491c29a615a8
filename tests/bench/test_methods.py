"""What methods cost: passes by hand, numbers by hand from fixed times, and the command in small."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from semcom.bench.methods import BenchMethods, compared, text
from semcom.bench.rounds import counted
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
"""Method -> passes forward and backward per sample, with one local epoch and the default hyperparameters."""

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


def cost(name: str, rounds: int = 3, **overrides: Any) -> tuple[float, float]:
    """Passes per sample in the last of some rounds."""
    here = world(name, sizes=SIZES, **overrides)
    method = METHODS.get(name)(here.config.hyper)
    state = method.setup(here)
    for r in range(1, rounds + 1):
        here.session.tally.begin(r)
        with counted() as passes:
            state = method.round(state, here)
    return passes["forward"] / sum(SIZES), passes["backward"] / sum(SIZES)


def test_the_table_names_every_method() -> None:
    assert COSTS.keys() == {name for name in METHODS.names() if not name.startswith("test-")}


@pytest.mark.parametrize("method", COSTS)
def test_passes_by_hand(method: str) -> None:
    assert cost(method) == COSTS[method]


@pytest.mark.parametrize(("method", "overrides", "wanted"), OTHERS)
def test_passes_with_other_settings_by_hand(
    method: str, overrides: dict[str, Any], wanted: tuple[float, float]
) -> None:
    assert cost(method, **overrides) == wanted


@pytest.mark.parametrize("method", ["moon", "fedala", "repper", "fedpac"])
def test_padding_does_not_count(method: str) -> None:
    """Three clients at once, the smaller ones padded in their last batch."""
    assert cost(method, chunk=3, train={"batch_size": 4}) == COSTS[method]


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


PASSES = {"forward": 600, "backward": 600}
ROWS = pd.DataFrame(
    [
        {"method": "fedavg", **PASSES, "seconds": [2.0, 3.3, 1.8], "base_seconds": [2.0, 3.0, 2.0]},
        {
            "method": "moon",
            "forward": 1800,
            "backward": 600,
            "seconds": [4.0, 3.0, 5.0],
            "base_seconds": [2.0, 1.0, 2.0],
        },
    ]
)


def test_ratios_by_hand() -> None:
    """(3 + 2 x 1) / 3 of the work in 2.5 of the time, the median of 2, 3 and 2.5: half as much again."""
    fedavg, moon = compared(ROWS, PASSES).to_dict("records")
    assert moon["work"] == pytest.approx(5 / 3) and moon["times"] == [2.0, 3.0, 2.5]
    assert moon["time_over_work"] == pytest.approx(1.5)
    assert fedavg["work"] == 1 and fedavg["time_over_work"] == pytest.approx(1.0)


def test_the_table() -> None:
    workload = Workload("methods", "fedavg", "cnn-dropout", 128, 2, 300, 16, 2)
    settings = {"machine": {"title": "A processor, torch 2.15.0"}, "repeats": 3}
    rows = compared(ROWS, PASSES)
    assert text(rows, workload, settings) == (
        "A processor, torch 2.15.0; one thread; pairs of rounds: 3\n"
        "cnn-dropout, d = 128, 2 clients x 300 samples, batch 16, ideal link\n"
        "   method  forward  backward  work/FedAvg  time/FedAvg: min  median   max  time/work\n"
        "   fedavg     1.00      1.00         1.00              0.90    1.00  1.10       1.00\n"
        "   moon       3.00      1.00         1.67              2.00    2.50  3.00       1.50\n"
        "forward, backward: passes through an encoder per sample; work: forward + 2 x backward\n"
        "target, a time/work of 1.3: missed by moon"
    )
    assert text(rows.iloc[:1], workload, settings).endswith("target, a time/work of 1.3: met")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"methods": "fedavg,fedsgd"}, "^methods: 'fedsgd' is not one of "),
        ({"clients": 0}, "^clients: 0"),
        ({"methods": "moon", "repeats": 0}, "^repeats: 0"),
    ],
)
def test_what_cannot_be_measured_is_refused(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BenchMethods(**flags).measure()


def test_the_command_in_small(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    words = [
        "bench",
        "methods",
        "--quick",
        "--methods",
        "fedavg,moon",
        "--repeats",
        "1",
        "--json",
        str(tmp_path / "m.json"),
    ]
    assert cli.main([*words, "--log-level", "error"]) == 0
    assert torch.equal(torch.get_rng_state(), before) and torch.get_num_threads() == threads
    out = capsys.readouterr().out
    assert "2 clients x 32 samples" in out
    stored = json.loads((tmp_path / "m.json").read_text())
    moon = {row["method"]: row for row in stored["rows"]}["moon"]
    assert stored["benchmark"] == "methods" and stored["workload"]["clients"] == 2
    assert (moon["forward"], moon["backward"], len(moon["seconds"])) == (192, 64, 1)
    assert cli.main(["list", "benches"]) == 0
    assert "methods   Cost of a round of each method" in capsys.readouterr().out
