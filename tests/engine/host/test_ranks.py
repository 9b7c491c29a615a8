"""Ranks: how work is shared, that several processes compute what one does, and what happens when one dies.

A process takes seconds to start, so each team does many things.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from semcom.config import RunError
from semcom.engine.host import ranks
from semcom.engine.host.ranks import ALONE, Team
from tests.engine import team as cases
from tests.processes import Forked, finish, gone

ROOT = Path(__file__).parents[3]


COSTS = st.lists(st.integers(0, 50), max_size=30)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(COSTS, st.integers(1, 6))
def test_shares_are_a_balanced_partition(costs: list[int], size: int) -> None:
    parts = Team(0, size).share(np.array(costs))
    assert len(parts) == size and sorted(np.concatenate(parts).tolist()) == list(range(len(costs)))
    assert all(part.dtype == np.int64 and part.tolist() == sorted(part.tolist()) for part in parts)
    loads = [sum(costs[i] for i in part) for part in parts]
    assert max(loads) - min(loads) <= max(costs, default=0)
    again = Team(size - 1, size).share(np.array(costs))  # every rank finds the same
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))


def test_equal_clients_are_dealt_out() -> None:
    assert [part.tolist() for part in Team(0, 2).share(np.full(5, 3))] == [[0, 2, 4], [1, 3]]
    assert [part.tolist() for part in Team(0, 3).share(np.array([1, 9]))] == [[1], [0], []]
    assert [part.tolist() for part in ALONE.share(np.array([2.5, 1.0]))] == [[0, 1]]


def test_alone_there_is_nobody_to_talk_to() -> None:
    found = cases.words(ALONE)
    assert found["exchange"] == [{"rank": 0}] and found["tell"] == b"from 0"
    assert found["sum"].tolist() == [0, 1, 2] and found["broadcast"].tolist() == [7, 7]
    with ranks.start_ranks(1, "nowhere:nothing", lambda: b"") as team:
        assert team is ALONE


def wrong(found: dict[str, cases.Found], folder: Path) -> dict[str, list[str]]:
    """Per case, where a team differs from one process."""
    size = int(found.pop("size")["size"])
    alone = cases.cases(size, str(folder))
    differing = {name: list(cases.differences(got, alone[name](ALONE))) for name, got in found.items()}
    return {name: names for name, names in differing.items() if names}


def folders(folder: Path) -> None:
    for a in ("host", "disk"):
        for b in ("host", "disk"):
            for size in (1, 2):
                (folder / f"{a}-{b}-{size}").mkdir()


@pytest.mark.usefixtures("forked_ranks")
def test_two_processes_compute_what_one_does_and_a_killed_one_is_named(tmp_path: Path) -> None:
    """Bit by bit: States, counters, confusion counts, for every arm; also from a checkpoint, of memory or a file."""
    folders(tmp_path)
    threads = torch.get_num_threads()
    payload = json.dumps({"folder": str(tmp_path), "fault": "killed"}).encode()
    found: dict[str, cases.Found] = {"size": {"size": 2}}
    with (
        pytest.raises(RunError, match=r"^process 1 of this run ended: Killed \(signal 9\)$"),
        ranks.start_local_ranks(2, "tests.engine.team:work", payload) as team,
    ):
        assert (team.rank, team.size, team.local_rank) == (0, 2, 0)
        spoken, shares = cases.words(team), cases.divided(team)["clients"]
        for name, case in cases.cases(2, str(tmp_path)).items():
            found[name] = case(team)
        exchange = team.exchange
        pids: list[int] = []

        def heard(self: Team, mine: object) -> list:
            values = exchange(mine)
            pids.extend(v for v in values if isinstance(v, int))
            return values

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Team, "exchange", heard)
            begun = time.monotonic()
            cases.killed(team)
    assert time.monotonic() - begun < 30 and len(pids) == 2 and pids[0] == os.getpid() and gone(pids[1])
    assert not torch.distributed.is_initialized() and torch.get_num_threads() == threads
    assert spoken["exchange"] == [{"rank": 0}, {"rank": 1}] and spoken["tell"] == b"from 0"
    assert spoken["gather"].tolist() == [[1.0, 1.0]] and spoken["sum"].tolist() == [1, 3, 5]
    assert spoken["sum leaves its input"] and spoken["broadcast"].tolist() == [7, 7]
    assert found["diverged"] == {"said": "non-finite loss or weights at client 0, 3", "all": True}
    assert [share["train"] for share in shares] == [[0, 2, 4], [1, 3]]  # 14 and 11 samples of 25
    assert sorted(k for share in shares for k in share["test"]) == [0, 1, 2, 3, 4]
    for name in [name for name in found if name.endswith("in a network")]:
        assert all(sum(line[what] for line in found[name]["times"]) for what in ("late", "lost", "unreached")), name
    assert [got["as straight"] for name, got in found.items() if name.startswith("resumed")] == [True] * 4
    assert wrong(found, tmp_path) == {}


@pytest.mark.usefixtures("forked_ranks")
def test_more_processes_than_clients_and_the_first_to_fail_is_named(tmp_path: Path) -> None:
    """Ranks without work have the same State; of two that end, the blame is on the one whose fault it is."""
    payload = json.dumps({"folder": str(tmp_path), "fault": "raises"}).encode()
    found: dict[str, cases.Found] = {"size": {"size": 3}}
    pids: list[int] = []
    with (
        pytest.raises(RunError, match=r"^process 2 of this run ended: ValueError: this is what went wrong$"),
        ranks.start_local_ranks(3, "tests.engine.team:work", payload) as team,
    ):
        assert cases.words(team)["gather"].tolist() == [[1.0, 1.0], [2.0, 2.0], [2.0, 2.0]]
        shares = cases.divided(team)["clients"]
        for name, case in cases.cases(3, str(tmp_path)).items():
            found[name] = case(team)
        pids = team.exchange(os.getpid())
        assert all(gone(pid, patience=20) for pid in pids[1:])  # this one was busy, and the other has noticed first
        time.sleep(0.5)  # a process is reported when its last thread has ended
        team.sum(torch.zeros(3))
    for work in ("train", "test"):
        assert sorted(k for share in shares for k in share[work]) == [0, 1, 2, 3, 4]
    assert len(set(pids)) == 3 and all(gone(pid) for pid in pids[1:])
    assert wrong(found, tmp_path) == {}


@pytest.mark.usefixtures("forked_ranks")
def test_a_target_that_is_not_there_is_told_at_once() -> None:
    begun = time.monotonic()
    with (
        pytest.raises(RunError, match=r"^process 1 of this run ended: ModuleNotFoundError: No module named 'nowhere'$"),
        ranks.start_local_ranks(2, "nowhere:nothing", b""),
    ):
        raise AssertionError("there is no team")
    assert time.monotonic() - begun < 60 and not torch.distributed.is_initialized()


def start_and_wait() -> None:
    with ranks.start_local_ranks(2, "tests.engine.team:wait", b"") as team:
        print(*team.exchange(os.getpid()), flush=True)
        time.sleep(99)


def test_processes_end_with_the_one_that_started_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed, it can tell nobody; what it started notices the broken connection."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # wherever pytest was called
    with Forked(start_and_wait) as process:
        first, other = (int(pid) for pid in process.stdout.readline().split())
        assert first == process.pid and not gone(other)
    assert gone(other, patience=20)


def launch(folder: str) -> None:
    """What torchrun does, in processes that it forks."""
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(1, 1, 2, run_id="test", rdzv_backend="c10d", rdzv_endpoint="localhost:0", start_method="fork")
    elastic_launch(config, cases.under_torchrun)(folder)


def test_torchrun(tmp_path: Path) -> None:
    """The same as one process, on the ranks that torchrun started; it does not start more."""
    finish(launch, str(tmp_path))
    alone = cases.arm(ALONE, "fedcl")
    for rank in (0, 1):
        found = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        assert found.pop("refused") == "processes: 2 in each process of torchrun; leave it out, torchrun starts them"
        assert [tuple(r) for r in found.pop("ranks")] == [(0, 0), (1, 1)]
        assert not list(cases.differences(found, alone))
