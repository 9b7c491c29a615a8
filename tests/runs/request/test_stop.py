"""Signals, lost processes and errors end a run with its last whole round kept; what is damaged is noticed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from semcom.cli import main as cli
from semcom.config import RunConfig, RunError, run_hash
from semcom.engine.host.orphan import STOPPING
from semcom.files import CHECKPOINT, ERROR, METRICS, PREVIOUS, SUMMARY
from semcom.methods.fedavg import FedAvg
from semcom.runs.folder import recovery
from semcom.runs.folder.checkpoint import load_checkpoint
from semcom.runs.folder.summary import read_summary, write_summary
from semcom.runs.request.stop import (
    STATUS,
    Stopped,
    TimeUp,
    act_before_stop,
    defer_stop_signals,
    raise_on_stop_signals,
    stop_after_minutes,
)
from semcom.runs.rounds.runner import run
from tests import worlds
from tests.processes import Forked, gone
from tests.runs.rounds.test_run import interrupt, timeless

ROUNDS = 6
TRAIN: dict[str, Any] = {"rounds": ROUNDS, "participation": 0.75, "checkpoint_every": 2}


def request(out: Path | None, **fields: Any) -> RunConfig:
    """Six rounds with fading and draws of clients, and checkpoints after every second one."""
    options: dict[str, Any] = {"channel": {"kind": "rayleigh", "snr_db": "0:18"}, "train": TRAIN}
    return worlds.request("fedcl", out=None if out is None else str(out), **{**options, **fields})


def kept(out: Path, name: str = CHECKPOINT) -> int:
    return int(load_checkpoint(out / name)["progress"]["round"])


# Signals -------------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def heard() -> Iterator[None]:
    """Signals that a shell lets a command in the background ignore (`nohup`, `&`): here they are heard."""
    usual = {signal.SIGINT: signal.default_int_handler, **dict.fromkeys(STOPPING, signal.SIG_DFL)}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_time_on_the_processor_is_up_once() -> None:
    """The system says so every second from then on, also while the state is being written."""
    with pytest.raises(Stopped) as stop, raise_on_stop_signals():
        try:
            os.kill(os.getpid(), signal.SIGXCPU)
            time.sleep(5)
        finally:
            for _ in range(3):
                os.kill(os.getpid(), signal.SIGXCPU)
    assert stop.value.signal == "SIGXCPU" and signal.getsignal(signal.SIGXCPU) == signal.SIG_DFL


def test_a_handler_of_the_users_is_left_alone() -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    try:
        with raise_on_stop_signals():
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == [signal.SIGTERM]


def test_another_thread_changes_nothing() -> None:
    handlers: list[Any] = []

    def look() -> None:
        with raise_on_stop_signals(), defer_stop_signals():
            handlers.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert handlers == [signal.getsignal(signal.SIGTERM)]


def test_a_signal_waits_for_what_must_be_whole() -> None:
    done: list[str] = []
    with pytest.raises(Stopped) as stop, raise_on_stop_signals():
        with defer_stop_signals():
            with defer_stop_signals():
                os.kill(os.getpid(), signal.SIGTERM)
                done.append("inner")
            os.kill(os.getpid(), signal.SIGHUP)
            done.append("outer")
        done.append("after")
    assert done == ["inner", "outer"] and stop.value.signal == "SIGTERM", "the first one counts"
    with defer_stop_signals():
        done.append("nothing is left over")


def test_a_second_ctrl_c_does_not_wait() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt), raise_on_stop_signals(), defer_stop_signals():
        os.kill(os.getpid(), signal.SIGINT)
        done.append("one")
        os.kill(os.getpid(), signal.SIGINT)
        done.append("two")
    assert done == ["one"]


def test_what_comes_first_comes_once() -> None:
    calls: list[str] = []
    with pytest.raises(Stopped), raise_on_stop_signals(), act_before_stop(lambda: calls.append("first")):
        os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(Stopped), raise_on_stop_signals():
        os.kill(os.getpid(), signal.SIGTERM)
    assert calls == ["first"]


def test_a_time_limit() -> None:
    with raise_on_stop_signals():
        begun = time.monotonic()
        with pytest.raises(TimeUp, match=r"^stopped after 0.001 minutes$"), stop_after_minutes(0.001):
            while time.monotonic() - begun < 10:
                time.sleep(0.01)
        assert time.monotonic() - begun < 5
        with stop_after_minutes(0.001), stop_after_minutes(None):
            pass
        time.sleep(0.2)  # the timer of what was in time is gone
        with pytest.raises(Stopped), stop_after_minutes(1.0):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)


ENDS = [(2, 130, "interrupted"), *((n, 75, f"stopped by {signal.Signals(n).name}") for n in STOPPING)]


@pytest.mark.parametrize(("number", "status", "word"), ENDS)
def test_the_command_says_what_is_kept(
    number: int, status: int, word: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def told(line: dict[str, Any]) -> None:
        if line["round"] == 3:
            os.kill(os.getpid(), number)

    monkeypatch.setattr("semcom.runs.rounds.progress.RoundProgress.__call__", lambda self, line: told(line))
    words = "train fedavg --clients 2 --partition.shots 4 --train.rounds 5 --channel.kind ideal --device cpu --out out"
    before = signal.getsignal(number)
    assert cli.main(words.split()) == status
    assert signal.getsignal(number) == before, "the handler is the process's own again"
    path = here / "out" / CHECKPOINT
    assert capsys.readouterr().err == f"semcom: {word}; last good state: round 3, in {path}\n"
    assert kept(here / "out") == 3


@pytest.mark.parametrize(
    ("words", "status", "number"),
    [("--version", 0, signal.SIGTERM), ("list nonsense", 2, signal.SIGHUP), ("list nonsense", 2, signal.SIGINT)],
)
def test_a_signal_after_the_work_changes_no_status(number: int, words: str, status: int) -> None:
    """While the interpreter exits, for which libraries may take a while."""
    send = f"import atexit, os, sys; atexit.register(os.kill, os.getpid(), {int(number)})"
    program = f"{send}; from semcom.cli.main import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", program, *words.split()], capture_output=True, text=True)
    assert done.returncode == status and "Traceback" not in done.stderr, done.stderr


def test_a_signal_while_a_request_is_read_is_no_wrong_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for the command line nor for a plug-in, which may both call sys.exit."""
    plugin = tmp_path / "slow.py"
    plugin.write_text("import os, signal, time\nos.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(5)\n")
    assert cli.main(["list", "methods", "--plugin", str(plugin)]) == STATUS

    def stopped(*_: Any, **__: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)

    monkeypatch.setattr("tyro.cli", stopped)
    assert cli.main(["train", "fedavg"]) == STATUS


def test_a_checkpoint_that_is_being_written_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the middle of it waits."""
    config, save = request(tmp_path), recovery.checkpoint.save_checkpoint

    def interrupted(path: Path, content: dict[str, Any]) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        save(path, content)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt) as stop:
        patch.setattr(recovery.checkpoint, "save_checkpoint", interrupted)
        run(config)
    assert kept(tmp_path) == 2 and stop.value.__notes__ == [f"last good state: round 2, in {tmp_path / CHECKPOINT}"]


# Errors of a method, and of others -----------------------------------------------------------------------------------


def broken(error: BaseException) -> Callable[..., Any]:
    whole = FedAvg.round

    def round_(self: Any, state: Any, world: Any) -> Any:
        if world.round == 4:
            raise error
        return whole(self, state, world)

    return round_


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, Any]:
    return timeless(run(worlds.request("fedavg", channel={"kind": "ideal"}, train=TRAIN)).summary)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ZeroDivisionError("division\nby zero"), "ZeroDivisionError: division by zero (test_stop.py, line "),
        (SystemExit(0), "SystemExit: 0 (test_stop.py, line "),
        (MemoryError("Unable to allocate 7.45 GiB for an array"), "there is not enough memory: 7.45 GiB more were wan"),
        (OSError(28, "No space left on device"), "training: No space left on device"),
    ],
    ids=["bug", "exit", "memory", "disk"],
)
def test_an_error_of_a_method_keeps_what_was_trained(
    error: BaseException, told: str, undisturbed: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = worlds.request("fedavg", out=str(tmp_path), channel={"kind": "ideal"}, train=TRAIN)
    with monkeypatch.context() as patch, pytest.raises(RunError) as stop:
        patch.setattr(FedAvg, "round", broken(error))
        run(config)
    assert str(stop.value).startswith(f"round 4: {told}")
    assert str(stop.value).endswith(f"last good state: round 3, in {tmp_path / CHECKPOINT}")
    foreseen = isinstance(error, MemoryError | OSError)
    if isinstance(error, OSError):
        assert not (tmp_path / ERROR).exists(), "there is no room for it"
    else:
        text = (tmp_path / ERROR).read_text()
        assert text.startswith(f"round 4: {told}") and ("in round_" in text) != foreseen, "of a bug with its traceback"
    assert timeless(run(config).summary) == undisturbed and not (tmp_path / ERROR).exists()


# Checkpoints ---------------------------------------------------------------------------------------------------------


def test_checkpoints_by_time(tmp_path: Path) -> None:
    """Whatever the number of rounds between them."""
    train = {**TRAIN, "checkpoint_every": 100}
    interrupt(request(tmp_path / "often", train={**train, "checkpoint_minutes": 1e-9}), 4)
    assert (kept(tmp_path / "often"), kept(tmp_path / "often", PREVIOUS)) == (4, 3)
    interrupt(request(tmp_path / "seldom", train=train), 4)
    assert kept(tmp_path / "seldom") == 4 and not (tmp_path / "seldom" / PREVIOUS).exists()


def test_how_often_is_not_what_a_run_is() -> None:
    assert run_hash(request(None)) == run_hash(request(None, train={**TRAIN, "checkpoint_every": 7}))
    assert run_hash(request(None)) == run_hash(request(None, train={**TRAIN, "checkpoint_minutes": 7.0}))


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("store", ["host", "disk"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(
    store: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = run(request(tmp_path / "whole", store=store))
    config, path = request(tmp_path / "out", store=store), tmp_path / "out" / CHECKPOINT
    for stop in (5, 6):  # rounds 4 and 5 are kept; then, from the damage on, 4 and, at the end, 6
        interrupt(config, stop)
        assert (kept(tmp_path / "out"), kept(tmp_path / "out", PREVIOUS)) == (stop, 4)
        damage(path)
        caplog.clear()
    again = run(config)
    (line,) = [message for message in caplog.messages if "damaged" in message]
    assert line.startswith(f"{path}: ") and line.endswith(
        "it is now checkpoint.damaged.pt, and the run goes on from round 4"
    )
    assert timeless(again.summary) == timeless(whole.summary)
    assert [timeless(row) for row in again.metrics] == [timeless(row) for row in whole.metrics]
    assert (kept(tmp_path / "out"), kept(tmp_path / "out", PREVIOUS)) == (6, 4)


@pytest.mark.parametrize("store", ["host", "disk"])
def test_the_one_before_holds_after_a_resume_too(store: str, tmp_path: Path) -> None:
    """Rows of clients in a file are not overwritten while one of two checkpoints says where they lie."""
    whole = run(request(tmp_path / "whole", store=store))
    config = request(tmp_path / "out", store=store)
    interrupt(config, 3)
    with pytest.raises(RunError), pytest.MonkeyPatch.context() as patch:  # rows of new rounds, and no new checkpoint
        patch.setattr(recovery.checkpoint, "save_checkpoint", lambda path, content: os.write(-1, b""))
        run(config)
    damage(tmp_path / "out" / CHECKPOINT)
    assert kept(tmp_path / "out", PREVIOUS) == 2
    assert timeless(run(config).summary) == timeless(whole.summary)


def test_a_run_that_goes_on_began_when_its_first_process_did(tmp_path: Path) -> None:
    class Clock:
        @staticmethod
        def now(zone: Any) -> datetime:
            return datetime(2001, 2, 3, 4, 5, 6, 700, tzinfo=zone)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recovery, "datetime", Clock)
        interrupt(request(tmp_path), 3)
    assert run(request(tmp_path)).summary["begun"] == "2001-02-03T04:05:06+00:00"
    assert run(request(tmp_path / "other")).summary["begun"] > "2026"


def test_two_damaged_checkpoints_are_refused(tmp_path: Path) -> None:
    config = request(tmp_path)
    interrupt(config, 5)
    for name in (CHECKPOINT, PREVIOUS):
        damage(tmp_path / name)
    with pytest.raises(
        RunError, match=rf"^{re.escape(str(tmp_path / PREVIOUS))}: not a .*; move it away to start again$"
    ):
        run(config)


def test_a_finished_run_whose_checkpoint_is_damaged_is_trained_from_the_one_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = request(tmp_path)
    before = run(config)
    damage(tmp_path / CHECKPOINT)
    again = run(config)
    assert timeless(again.summary) == timeless(before.summary) and kept(tmp_path) == ROUNDS
    assert "rounds 5 to 6 are trained again" in caplog.messages
    damage(tmp_path / CHECKPOINT)
    interrupt(config, 5)  # as it is trained again
    assert timeless(run(config).summary) == timeless(before.summary)


# Summaries -----------------------------------------------------------------------------------------------------------


def forged(path: Path) -> None:
    """A better accuracy, and nothing else."""
    path.write_text(path.read_text().replace('"accuracy": 0.', '"accuracy": 0.9', 1))


def of_another(path: Path) -> None:
    """A whole summary of another run."""
    write_summary(path.parent, {**json.loads(path.read_text()), "hash": "0" * 12})


def without_number(path: Path) -> None:
    """A whole summary whose accuracy is none."""
    write_summary(path.parent, {**json.loads(path.read_text()), "accuracy": float("nan")})


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (lambda path: path.write_text(""), "Expecting value"),
    "half": (lambda path: path.write_bytes(path.read_bytes()[:100]), "Unterminated|Expecting|delimiter"),
    "no object": (lambda path: path.write_text("[1]"), "it holds no JSON object"),
    "nothing in it": (lambda path: path.write_text("{}"), "its digest is not that of its content"),
    "forged": (forged, "its digest is not that of its content"),
    "another run": (of_another, "it is of run 000000000000, not of "),
    "no number": (without_number, "its accuracy is None"),
    "nested": (lambda path: path.write_text("[" * 100_000), "recursion|nested"),
    "no text": (lambda path: path.write_bytes(b"\xff\xfe\xff"), "decode"),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    run(request(folder))
    return folder


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_summary_is_not_believed_unseen(
    kind: str, finished: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    config = request(tmp_path)
    before, hash_ = read_summary(tmp_path), run_hash(config)
    spoil, reason = DAMAGE[kind]
    spoil(tmp_path / SUMMARY)
    with pytest.raises(RunError, match=f"summary.json is damaged .*({reason})"):
        read_summary(tmp_path, hash_)
    seen: list[int] = []
    again = run(config, on_round=lambda row: seen.append(row["round"]))
    assert seen == [] and timeless(again.summary) == timeless(before)
    assert any("it is now summary.damaged.json, and the run is finished again" in text for text in caplog.messages)
    assert read_summary(tmp_path, hash_) == again.summary
    caplog.clear()
    assert run(config).summary == again.summary and "already finished" in caplog.text


# Processes that die --------------------------------------------------------------------------------------------------

START = "from semcom.engine.host.orphan import exit_with_parent; import os, sys; exit_with_parent(int(sys.argv[1]))"


def test_a_child_of_a_dead_parent_ends_at_once() -> None:
    done = subprocess.run([sys.executable, "-c", START, str(os.getpid())], capture_output=True)
    assert done.returncode == 0
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    assert subprocess.run([sys.executable, "-c", START, dead.stdout.strip()]).returncode == 1


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks at /proc")
def test_a_child_ends_with_its_parent_however_early() -> None:
    """It sleeps as if it were importing torch."""
    child = START + "; print(os.getpid(), flush=True); import time; time.sleep(60)"
    parent = (
        "import os, subprocess, sys; "
        f"subprocess.Popen([sys.executable, '-c', {child!r}, str(os.getpid())]); import time; time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True)
    pid = int(process.stdout.readline())
    process.kill()
    process.wait()
    assert gone(pid, 10.0)


LINE = "train fedavg --clients 4 --partition.shots 2 --train.rounds 5 --processes 2 --device cpu --out"
ALONE = LINE.replace("--processes 2", "--processes 1").split()
"""The same run without a second process: its results are the same."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The summary of a run that nobody stops: what two processes do is compared elsewhere."""
    folder = tmp_path_factory.mktemp("whole")
    assert cli.main([*ALONE, str(folder)]) == 0
    return timeless(read_summary(folder))


@pytest.mark.slow
@pytest.mark.parametrize("hit", ["SIGTERM", "SIGUSR1", "worker", "worker's SIGXCPU"])
def test_a_signal_to_a_run_on_two_processes(hit: str, tmp_path: Path, whole: dict[str, Any]) -> None:
    """It ends, its worker with it; what was trained is kept if it could be; it ends as if nothing had happened."""
    with Forked(cli.main, [*LINE.split(), str(tmp_path)]) as process:
        for text in process.stderr:
            if "round 2/" in text:
                break
        worker = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])
        name = hit.removeprefix("worker's ")
        number = signal.SIGKILL if hit == "worker" else signal.Signals[name]
        os.kill(worker if hit.startswith("worker") else process.pid, number)
        rest = process.stderr.read().splitlines()
        assert process.wait(30) == (1 if hit == "worker" else STATUS) and gone(worker, 10.0)
    lines = (tmp_path / METRICS).read_bytes().splitlines()
    assert kept(tmp_path) == len(lines) >= 2
    lost = f"error: round {len(lines) + 1}: process 1 of this run ended: Killed (signal 9)"
    told = lost if hit == "worker" else f"stopped by {name}"
    assert rest[-1] == f"semcom: {told}; last good state: round {len(lines)}, in {tmp_path / CHECKPOINT}"
    assert cli.main([*ALONE, str(tmp_path)]) == 0, "one process takes up what two have begun"
    assert timeless(read_summary(tmp_path)) == whole
