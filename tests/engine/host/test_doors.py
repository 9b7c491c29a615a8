"""Who can reach a run: what it listens on, by the kernel's word, and what strangers get who try to join it."""

from __future__ import annotations

import io
import json
import os
import pickle
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from semcom.engine.host import ranks
from semcom.runs.rounds.runner import run
from semcom.studies.sweep.sweep import sweep
from tests import worlds
from tests.processes import Forked, finish, list_doors, watch_doors
from tests.refusals import refuses

LOOPBACK = "127.0.0.1"
SET = {
    "data.name": "test-bars",
    "model.encoder": "test-patches",
    "partition.ways": 2,
    "partition.shots": 5,
    "train.rounds": 2,
    "clients": 2,
}


def list_addresses() -> set[str]:
    kinds = socket.AF_INET, socket.AF_INET6
    own = {each.address for of in psutil.net_if_addrs().values() for each in of if each.family in kinds}
    return {*own, "127.0.0.2"}


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have gloo's variable name an interface that others reach, if there is one."""
    found = [
        name
        for name, of in psutil.net_if_addrs().items()
        if any(each.family == socket.AF_INET and each.address != LOOPBACK for each in of)
    ]
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", next(iter(found), "lo"))


@pytest.mark.usefixtures("forked_ranks", "outside")
def test_a_run_of_several_processes_listens_on_loopback_alone() -> None:
    before = os.environ["GLOO_SOCKET_IFNAME"]
    with watch_doors() as opened:
        run(worlds.request(processes=2, plugins=("tests.worlds",), train={"rounds": 2}))
    assert {address for _, address, _ in opened} == {LOOPBACK}
    assert os.environ["GLOO_SOCKET_IFNAME"] == before


@pytest.mark.slow
@pytest.mark.usefixtures("outside")
@pytest.mark.parametrize(("processes", "addresses"), [(1, set()), (2, {LOOPBACK})])
def test_workers_of_a_sweep_listen_on_what_their_runs_do(tmp_path: Path, processes: int, addresses: set[str]) -> None:
    request = {**SET, "processes": processes}
    with watch_doors() as opened:
        sweep(methods="local", seeds=(0, 1), jobs=2, plugins=("tests.worlds",), set=request, out=tmp_path)
    assert len(list(tmp_path.glob("*/summary.json"))) == 2
    assert {address for _, address, _ in opened} == addresses


def test_a_run_of_one_process_listens_on_nothing() -> None:
    with watch_doors() as opened:
        run(worlds.request(train={"rounds": 2}))
    assert not opened


@pytest.mark.slow
@pytest.mark.usefixtures("outside")
def test_a_notebook_listens_on_loopback_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both its kernel and the processes of a run in one of its cells."""
    manager = pytest.importorskip("jupyter_client.manager", reason="Jupyter is not installed: pip install '.[docs]'")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    kernel, client = manager.start_new_kernel()
    cell = """
from tests import worlds
from semcom.runs.rounds.runner import run
len(run(worlds.request(processes=2, plugins=("tests.worlds",), train={"rounds": 2})).metrics)
"""
    told: list[Any] = []
    try:
        with watch_doors(kernel.provisioner.pid) as opened:
            before = list_doors(psutil.Process(kernel.provisioner.pid))
            answer = client.execute_interactive(cell, timeout=120, output_hook=told.append)
        assert answer["content"]["status"] == "ok", told
    finally:
        client.stop_channels()
        kernel.shutdown_kernel(now=True)
    assert before and opened and {address for _, address, _ in before | opened} == {LOOPBACK}


def test_a_machine_without_loopback_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "net_if_addrs", dict)
    with refuses("processes", "loopback"):
        ranks._find_loopback()


def knock(ports: list[int]) -> None:
    """What somebody does who looks for a way in: tell which addresses of this machine answer at these ports."""
    answered = []
    for address in list_addresses():
        for port in ports:
            with suppress(OSError):
                socket.create_connection((address, port), timeout=2).close()
                answered.append(address)
    print(json.dumps(answered))


@pytest.mark.usefixtures("forked_ranks", "outside")
def test_nobody_answers_at_the_machines_other_addresses() -> None:
    with ranks.start_local_ranks(2, "tests.engine.team:wait", b"") as team:
        pids = team.exchange(os.getpid())
        ports = [port for _, _, port in list_doors(*map(psutil.Process, pids))]
        assert ports
        assert set(json.loads(finish(knock, ports))) <= {LOOPBACK}


def open_as_nobody(path: str) -> None:
    """What another user of this machine gets."""
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    with pytest.raises(PermissionError):
        Path(path).read_bytes()
    print("refused")


def test_the_file_where_ranks_meet_is_this_users_alone() -> None:
    with ranks._make_private_file() as path:
        ranks._open_store(path).set("payload", "theirs")
        assert ranks._open_store(path).get("payload") == b"theirs"
        if os.geteuid() == 0:  # others cannot become somebody else
            assert finish(open_as_nobody, path) == "refused\n"
    assert not Path(path).exists()


def join(path: str, rank: int, patience_s: float) -> None:
    """Meet as a rank of two, and tell how it went."""
    ranks.PROOF_PATIENCE = timedelta(seconds=patience_s)
    try:
        print(ranks._connect_process(ranks._open_store(path), rank, 2).rank, flush=True)
    except ranks.WorkerLost as error:
        print(error, flush=True)


@contextmanager
def take_a_place(pid: int, answer: Callable[[bytes], bytes]) -> Iterator[list[bytes]]:
    """Connect to the door of a rank under each number that it may expect; yield what it says, and answer it."""
    while not (doors := list_doors(psutil.Process(pid))):
        time.sleep(0.01)
    heard: list[bytes] = []
    calls = [socket.create_connection(door[1:]) for door in doors for _ in range(8)]
    over = threading.Event()

    def talk() -> None:
        while not over.wait(0.01):
            for call in calls:
                with suppress(OSError):
                    if said := call.recv(4096, socket.MSG_DONTWAIT):
                        heard.append(said)
                        call.sendall(answer(said))

    talker = threading.Thread(target=talk)
    for number, call in enumerate(calls):
        call.sendall(struct.pack("<q", number % 8))
    talker.start()
    try:
        yield heard
    finally:
        over.set()
        talker.join()
        for call in calls:
            call.close()


@pytest.mark.parametrize("answer", [lambda said: said, lambda said: b""], ids=["what it hears", "nothing"])
def test_one_who_takes_the_place_of_a_rank_is_found_out(answer: Callable[[bytes], bytes]) -> None:
    """gloo believes it, and half of the time waits for a call, not for an address: so a place can be taken."""
    for _ in range(30):
        with ranks._make_private_file() as path:
            ranks._open_store(path).set("proofs", os.urandom(4 * ranks.PROOF_BYTES))
            with (
                Forked(join, path, 0, 5.0) as first,
                take_a_place(first.pid, answer) as heard,
                Forked(join, path, 1, 5.0) as second,
            ):
                outcome = first.stdout.readline().strip(), second.stdout.readline().strip()
        if heard:
            break
        assert outcome == ("0", "1")
    assert heard and outcome[0] == "a process of this run ended, or another program has taken its place"


class Calls:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_what_passes_between_ranks_runs_nothing(tmp_path: Path) -> None:
    hostile = ranks._pack_message(Calls(tmp_path / "ran"))
    with pytest.raises(pickle.UnpicklingError):
        ranks._unpack_message(hostile)
    assert not (tmp_path / "ran").exists()
    torch.load(io.BytesIO(hostile.numpy()), weights_only=False)
    assert (tmp_path / "ran").exists()


def test_what_passes_between_ranks_arrives_as_it_was() -> None:
    value = {
        "line": [{"round": 1, "loss": 0.1 + 0.2, "name": "ä", "none": None}, (True, -3, 2**70, float("inf"))],
        1: b"\x00\xff",
        "tensors": {"bf16": torch.tensor([1.5, -0.0]).bfloat16(), "none": torch.zeros(0, 3, dtype=torch.int64)},
    }
    found = ranks._unpack_message(ranks._pack_message(value))
    for name, t in value.pop("tensors").items():
        got = found["tensors"][name]
        assert torch.equal(got, t) and (got.dtype, got.shape) == (t.dtype, t.shape)
    del found["tensors"]
    assert found == value and isinstance(found["line"][1], tuple)
