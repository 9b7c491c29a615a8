"""A whole run on two processes: the same numbers as on one, also when it is interrupted and taken up again."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from semcom.config import run_hash
from semcom.runs.folder.folder import CHECKPOINT
from semcom.runs.request.resolve import find_device, resolve
from semcom.runs.result.evaluation import evaluate_views
from semcom.runs.rounds.runner import run
from tests import worlds
from tests.runs.rounds.test_run import interrupt, timeless


def request(out: Path | None, processes: int, **options: Any) -> Any:
    train = {"rounds": 4, "participation": 0.75, **({} if out is None else {"checkpoint_every": 2})}
    return worlds.request(
        "fedcl",
        out=out and str(out),
        processes=processes,
        plugins=("tests.worlds",),
        chunk=1,
        channel={"kind": "rayleigh"},
        train=train,
        **options,
    )


@pytest.mark.usefixtures("forked_ranks")
def test_a_run_on_two_processes_is_that_on_one(tmp_path: Path) -> None:
    alone = run(request(None, 1))
    config = request(tmp_path, 2, store="disk")
    interrupt(config, 3)
    assert (tmp_path / CHECKPOINT).exists()
    result = run(config)
    for name, view in alone.views.items():
        ours = result.views[name].population
        assert all(torch.equal(a, b) for a, b in zip(view.population.tensors(), ours.tensors(), strict=True))
    for row, other in zip(alone.metrics, result.metrics, strict=True):
        assert timeless(row) == timeless(other)
    clocks = {"begun", "seconds", "samples_per_second", "digest", "metrics_digest"}
    unequal = {name for name in alone.summary if result.summary[name] != alone.summary[name]} - clocks
    assert unequal <= {"snr_received_db"}, "docs/running.md says that nothing else differs"
    for way, snr in alone.summary["snr_received_db"].items():
        assert result.summary["snr_received_db"][way] == pytest.approx(snr, rel=1e-9, nan_ok=True)
    # The result works on by itself after the other process has ended.
    again = evaluate_views(result.world.session, result.views)["personal"]["clients"]
    assert again == result.metrics[-1]["views"]["personal"]["clients"]
    assert run(config).summary == result.summary


@pytest.mark.usefixtures("forked_ranks")
def test_stacks_of_clients_on_two_processes_agree_up_to_rounding() -> None:
    """Each process stacks its own clients, so sums are rounded in another order."""
    alone, both = (run(dataclasses.replace(request(None, n), chunk=3)) for n in (1, 2))
    models = [result.views["personal"].population.tensors() for result in (alone, both)]
    for a, b in zip(*models, strict=True):
        assert (a - b).abs().max() < 1e-8  # FedCL in float64: Adam divides rounding by gradients near zero


@pytest.mark.parametrize(
    ("cores", "cards", "device", "clients", "processes"),
    [(4, 0, "auto", 6, 4), (4, 0, "cpu", 3, 3), (1, 0, "auto", 6, 1), (4, 2, "auto", 6, 2), (4, 2, "cuda:1", 6, 1)],
)
def test_auto_is_a_process_for_each_core_or_card(
    cores: int, cards: int, device: str, clients: int, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("joblib.cpu_count", lambda only_physical_cores: cores)
    monkeypatch.setattr("torch.cuda.device_count", lambda: cards)
    monkeypatch.setattr("torch.cuda.is_available", lambda: cards > 0)
    wanted = worlds.request("fedavg", clients=clients, device=device, processes="auto", plugins=("tests.worlds",))
    assert resolve(wanted).processes == processes
    assert run_hash(resolve(wanted)) == run_hash(resolve(dataclasses.replace(wanted, processes=1)))


def test_each_process_of_a_machine_takes_a_card_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert [find_device("auto", rank).index for rank in range(4)] == [0, 1, 0, 1]


def test_auto_leaves_torchrun_its_own_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("semcom.runs.request.resolve.count_launched_ranks", lambda: 2)
    assert resolve(worlds.request("fedavg", device="cpu", processes="auto")).processes == 1
