"""A whole run: resume, folders of other runs, randomness, divergence, predictions."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import re
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from semcom.config import DataConfig, ModelConfig, RunConfig, RunError, TrainConfig, run_hash
from semcom.engine.train import view as view_module
from semcom.runs.folder import checkpoint
from semcom.runs.folder.folder import CHECKPOINT, CONFIG, METRICS, SUMMARY, Folder
from semcom.runs.folder.lines import DamagedRun
from semcom.runs.folder.summary import read_summary
from semcom.runs.result.result import Result
from semcom.runs.rounds.runner import run
from tests import worlds
from tests.refusals import refuses

ARMS = ("fedavg", "fedcl", "fedproto", "local")
CLOCK = ("begun", "seconds", "samples_per_second", "hash", "commit", "lines", "metrics_digest", "read")


def timeless(value: dict[str, Any]) -> dict[str, Any]:
    return {name: v for name, v in value.items() if name not in CLOCK}


def stored(config: RunConfig) -> dict[str, Any]:
    return torch.load(Path(config.out) / CHECKPOINT, weights_only=True)


def flat(values: Any) -> list[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        return [values]
    inside = values.values() if isinstance(values, dict) else values if isinstance(values, list) else ()
    return [t for value in inside for t in flat(value)]


def same(one: Any, other: Any) -> bool:
    a, b = flat(one), flat(other)
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def weights(result: Result) -> list[torch.Tensor]:
    return [t for view in result.views.values() for t in view.population.tensors()]


def interrupt(config: RunConfig, after: int) -> None:
    """Carry out a run up to a round, after which somebody presses Ctrl-C."""

    def on_round(row: dict[str, Any]) -> None:
        if row["round"] == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(config, on_round=on_round)


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / METRICS).read_text().splitlines()]


def snapshot(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("method", ["fedproto", "local"])
def test_an_interrupted_run_ends_as_if_it_had_not_been(method: str, tmp_path: Path) -> None:
    options = {"channel": {"kind": "rayleigh", "snr_db": "0:18"}, "train": {"participation": 0.75}}
    whole = run(worlds.request(method, out=str(tmp_path / "whole"), **options))
    config = worlds.request(method, out=str(tmp_path / "halves"), **options)
    interrupt(config, 3)
    assert stored(config)["progress"]["round"] == 3 and not (tmp_path / "halves" / SUMMARY).exists()
    seen: list[int] = []
    again = run(config, on_round=lambda row: seen.append(row["round"]))
    assert seen == [4, 5, 6]
    assert same(stored(whole.config)["state"], stored(config)["state"])
    assert timeless(again.summary) == timeless(whole.summary) and again.summary["hash"] == whole.summary["hash"]
    assert [timeless(row) for row in again.metrics] == [timeless(row) for row in whole.metrics]
    assert [timeless(row) for row in lines(tmp_path / "halves")] == [timeless(row) for row in whole.metrics]
    assert read_summary(tmp_path / "halves") == again.summary
    assert all(torch.equal(a, b) for a, b in zip(weights(whole), weights(again), strict=True))


def test_a_warning_is_given_once_and_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """On the screen, in the line of the round that first gave it, and in the summary.

    It is not given again on resume, nor when the result of a finished run is asked for.
    """
    whole = run(worlds.request("fedcl", hyper={"lam": 1e3}))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    (text,) = whole.metrics[0]["warnings"].values()
    assert caplog.messages == [f"round 1: {text}"] == whole.summary["warnings"]
    assert "dominates the cross-entropy" in text and not any("warnings" in row for row in whole.metrics[1:])
    config = worlds.request("fedcl", hyper={"lam": 1e3}, out=str(tmp_path))
    interrupt(config, 3)
    caplog.clear()
    again = run(config)
    assert caplog.messages == [] and timeless(again.summary) == timeless(whole.summary)
    assert run(config).summary == again.summary
    assert len(caplog.messages) == 1 and caplog.messages[0].startswith("already finished: ")
    caplog.clear()
    assert run(worlds.request("fedcl")).summary["warnings"] == [] == caplog.messages


def test_a_schedule_that_a_run_does_not_reach_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """Once, and not where the last round is the one that is reached."""
    late = "round 1: train.lr-milestones: 4, 6 is beyond round 3, the last one"
    assert run(worlds.request(train={"rounds": 3, "lr_milestones": (2, 4, 6)})).summary["warnings"] == [late]
    assert run(worlds.request(train={"rounds": 3, "lr_milestones": (2, 3)})).summary["warnings"] == []
    never = "round 1: hyper.warmup: 3 rounds leave none with the regulariser"
    assert run(worlds.request("fedcl", hyper={"warmup": 3}, train={"rounds": 3})).summary["warnings"] == [never]
    assert run(worlds.request("fedcl", hyper={"warmup": 2}, train={"rounds": 3})).summary["warnings"] == []
    assert caplog.messages == [late, never]


def one_line(error: BaseException) -> str:
    text = str(error)
    assert text and "\n" not in text
    return text


FOREIGN = [(CONFIG, text) for text in ("no json", "[1, 2]", '{"method": "fedavg", "colour": "red"}')]


@pytest.mark.parametrize(("name", "text"), [*FOREIGN, (METRICS, "precious"), (SUMMARY, ""), (CHECKPOINT, "precious")])
def test_a_folder_with_files_of_another_tool_is_refused(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with refuses("out", name):
        run(worlds.request(out=str(tmp_path)))
    assert snapshot(tmp_path) == {name: text.encode()}


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("exploded"),)


def unusable(good: dict[str, Any]) -> dict[str, Any]:
    """Contents of checkpoints that are whole but are not this run's."""
    progress, state = good["progress"], good["state"]
    counters: dict[str, Any] = {
        "a round after the last one": progress | {"round": 7},
        "no traffic": progress | {"air": {}},
    }
    states: dict[str, Any] = {
        "a list": [1, 2],
        "nothing": {},
        "None": None,
        "a tensor": torch.zeros(3),
        "lists": {name: [v] for name, v in state.items()},
        "numbers": dict.fromkeys(state, 3),
        "a bomb": Bomb(),
    }
    rows = state["model"]["0"]["rows"]
    wrong: dict[str, Any] = {
        "no ids": {"ids": None},
        "fractions for ids": {"ids": rows["ids"].double()},
        "a client twice": {"ids": rows["ids"][[0, 0, 1, 2]]},
        "an unknown client": {"ids": rows["ids"] + 1},
        "a row too few": {"records": rows["records"][1:]},
        "short rows": {"records": [record[:3] for record in rows["records"]]},
        "rows of text": {"records": ["a"] * 4},
        "rows of other numbers": {"records": [record.double() for record in rows["records"]]},
        "rows in no file": {"records": None},
        "rows in another file": {"records": None, "file": CONFIG, "slots": torch.full((4, 2), 10**12)},
        "no layout": {"layout": {}},
    }
    for name, values in wrong.items():
        states[name] = state | {"model": {"0": state["model"]["0"] | {"rows": rows | values}}}
    return {
        "another run": good | {"hash": "0" * 12},
        "no run": {"weights": torch.zeros(2)},
        "a list": [1, 2],
        "nothing but the hash": {"hash": good["hash"]},
        **{f"counters: {name}": good | {"progress": value} for name, value in counters.items()},
        **{f"state: {name}": good | {"state": value} for name, value in states.items()},
    }


def test_a_checkpoint_that_cannot_be_used_is_refused_and_kept(here: Path) -> None:
    """Nothing in the folder changes, although another chunk would be stored, and nothing in the file is executed."""
    folder = here / "out"
    config = worlds.request("local", out=str(folder))
    interrupt(config, 3)
    good, rng = (folder / CHECKPOINT).read_bytes(), random.Random(0)
    wrong: dict[str, bytes] = {"half": good[: len(good) // 2], "empty": b"", "text": b"text", "longer": good + b"."}
    for name, content in unusable(stored(config)).items():
        checkpoint.save_checkpoint(here / "made", content)
        wrong[name] = (here / "made").read_bytes()
    torch.save(Bomb(), here / "made")
    wrong["a bomb"] = (here / "made").read_bytes()
    for at in rng.sample(range(len(good)), 5):
        wrong[f"bit {at}"] = good[:at] + bytes([good[at] ^ 1 << rng.randrange(8)]) + good[at + 1 :]
    for name, data in wrong.items():
        (folder / CHECKPOINT).write_bytes(data)
        before = snapshot(folder)
        with pytest.raises(RunError) as error:
            run(dataclasses.replace(config, chunk=3))
        assert f"{folder / CHECKPOINT}: " in one_line(error.value), name
        assert re.search("move (it|this one) away,? to start again$", str(error.value)), name
        assert snapshot(folder) == before and not Path("exploded").exists(), name
    torch.load(here / "made", weights_only=False)
    assert Path("exploded").exists(), "the bomb was a dud"
    (folder / CHECKPOINT).write_bytes(good)
    assert len(run(config).metrics) == 6


@pytest.mark.parametrize("rounds", [3, 6])
def test_a_checkpoint_of_another_version_is_refused_in_a_line_that_says_so(rounds: int, tmp_path: Path) -> None:
    """FedCRC's State had no `own` once; of a run that goes on, and of a finished one."""
    config = worlds.request("fedcrc", out=str(tmp_path))
    if rounds == 6:
        run(config)
    else:
        interrupt(config, rounds)
    content = stored(config)
    del content["state"]["own"]
    checkpoint.save_checkpoint(tmp_path / CHECKPOINT, content)
    before = snapshot(tmp_path)
    with pytest.raises(RunError) as error:
        run(config)
    assert one_line(error.value) == (
        f"{tmp_path / CHECKPOINT}: it does not fit this run: another version of semcom wrote it, with other tensors; "
        "give another folder, or move this one away, to start again"
    )
    assert snapshot(tmp_path) == before


def test_metrics_that_cannot_be_used_are_refused_and_kept(tmp_path: Path) -> None:
    config = worlds.request(out=str(tmp_path))
    interrupt(config, 3)
    rows = (tmp_path / METRICS).read_bytes().splitlines(keepends=True)
    for content in (
        rows[0] + rows[2],
        rows[0] + b"\xff\n" + rows[2],
        b"",
        rows[1] + rows[0] + rows[2],
        b"".join(rows).replace(b'"loss": ', b'"loss": 1', 1),
        b"".join(rows).replace(b'"loss"', b'"lost"', 1),
        b'{"round": 1}\n[2]\n{"round": "3"}\n',
    ):
        (tmp_path / METRICS).write_bytes(content)
        before = snapshot(tmp_path)
        with pytest.raises(RunError, match="lacks lines of rounds 1 to 3, or has others") as error:
            run(config)
        one_line(error.value)
        assert snapshot(tmp_path) == before
    (tmp_path / METRICS).write_bytes(b"".join(rows))
    assert len(run(config).metrics) == 6


def test_no_bit_of_the_metrics_changes_a_result(tmp_path: Path) -> None:
    """Of a run whose summary is made again: each flip is refused, or leaves all numbers as they were."""
    config = worlds.request(out=str(tmp_path))
    done = run(config)
    whole = (tmp_path / METRICS).read_bytes()
    bits = torch.randperm(8 * len(whole), generator=torch.Generator().manual_seed(0))[:16].tolist()
    refused = 0
    for bit in bits:
        (tmp_path / SUMMARY).unlink(missing_ok=True)
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        (tmp_path / METRICS).write_bytes(flipped)
        try:
            assert run(config).metrics == done.metrics
        except RunError:
            refused += 1
    assert refused > 8


def test_halves_of_files_are_removed_when_a_folder_is_opened(tmp_path: Path) -> None:
    ours = [f".{name}.{pid}.part" for name in (CONFIG, METRICS, SUMMARY, CHECKPOINT) for pid in (1, 99999)]
    others = [".notes.txt.12.part", f".{CHECKPOINT}.mine.part", f"{CHECKPOINT}.12.part", f".{SUMMARY}.1.part.txt"]
    for name in (*ours, *others):
        (tmp_path / name).write_text("half")
    run(worlds.request(out=str(tmp_path)))
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {CONFIG, METRICS, SUMMARY, CHECKPOINT, ".lock", *others}


def test_a_request_that_turns_out_wrong_late_leaves_no_folder(tmp_path: Path) -> None:
    config = worlds.request("local", encoder="test-dropout", out=str(tmp_path / "out"))
    with refuses("model", "Dropout"):
        run(config)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes").write_text("precious")
    with refuses("model", "Dropout"):
        run(config)
    assert (tmp_path / "out" / "notes").read_text() == "precious"


@pytest.mark.parametrize("method", ARMS)
def test_the_seed_decides_everything(method: str) -> None:
    """And nothing else: no global generator is read, or moved."""
    results = []
    for seed, noise in ((0, 1), (0, 2), (1, 3)):
        torch.manual_seed(noise), np.random.seed(noise), random.seed(noise)
        before = torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()
        results.append(run(worlds.request(method, seed=seed, train={"rounds": 2, "participation": 0.5})))
        results[-1].predict(0, np.zeros((2, 1, 32, 32), np.uint8))
        assert before == (torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate())
    first, second, other = (weights(r) for r in results)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert timeless(results[0].summary) == timeless(results[1].summary)
    assert len(first) == len(other) and (first[0] - other[0]).abs().min() > 0


def test_divergence_names_round_and_client_and_keeps_the_last_good_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_module, "_check_answers", lambda *_: None)  # tests would show it a round before
    options: dict[str, Any] = {"channel": {"kind": "ideal"}, "partition": {"shots_spread": 0}}
    lr = (0.01, 0.01, 1e300, 0.01)
    train = {"lr": lr, "optimizer": "sgd", "batch_size": 50}
    config = worlds.request("local", out=str(tmp_path), train=train, **options)
    with pytest.raises(RunError) as error:
        run(config)
    kept = f"last good state: round 1, in {tmp_path / CHECKPOINT}"
    assert one_line(error.value) == f"round 2: non-finite loss or weights at client 2; {kept}"
    assert [row["round"] for row in lines(tmp_path)] == [1]
    good = run(worlds.request("local", out=str(tmp_path / "good"), train=train | {"rounds": 1}, **options))
    assert stored(config)["progress"]["round"] == 1
    assert same(stored(config)["state"], stored(good.config)["state"])
    with pytest.raises(RunError, match=r"client 2; last good state: round 1, not stored"):
        run(worlds.request("local", train=train, **options))


def test_rows_and_summary_agree() -> None:
    result = run(worlds.request("fedproto", train={"rounds": 3}, channel={"test_snr_db": "6,18,inf"}))
    rows = [row["views"]["prototype"] for row in result.metrics]
    view = result.summary["views"]["prototype"]
    assert view["clients"] == pytest.approx(np.mean([row["clients"] for row in rows], axis=0))
    assert view["last"] == pytest.approx(rows[-1]["accuracy"]) and list(view["at"]) == ["6", "18", "inf"]
    assert view["at"]["6"] == pytest.approx(view["accuracy"])  # the headline is tested at the first SNR
    assert result.summary["accuracy"] == result.summary["views"]["personal"]["accuracy"]
    per_epoch = sum(int(n) for n in result.world.session.draws.federation.train.sizes)
    assert result.summary["samples"] == 3 * per_epoch
    assert rows[-1]["accuracy_std"] == pytest.approx(np.std(rows[-1]["clients"]))


@pytest.mark.parametrize("method", ARMS)
def test_predictions_are_those_of_the_model(method: str) -> None:
    result = run(worlds.request(method, channel={"kind": "ideal"}, train={"rounds": 2}))
    federation = result.world.session.draws.federation
    for k in range(4):
        index = federation.test[k]
        tensors = worlds.client(next(iter(result.views.values())).population, k)
        expected = worlds.plain(tensors, federation.gather(index, torch.float64)).argmax(1)
        got = result.predict(k, federation.images[index].numpy())
        assert got.dtype == torch.int64 and torch.equal(got, expected)
        accuracy = (expected == federation.labels[index]).double().mean()
        assert result.metrics[-1]["views"][next(iter(result.views))]["clients"][k] == pytest.approx(float(accuracy))


def test_a_run_without_a_channel() -> None:
    """Its predictions are those of encoder and head; nothing was received, and nothing took time or energy."""
    result = run(worlds.request("fedavg", channel={"kind": "none"}, train={"rounds": 2}))
    federation, (view,) = result.federation, result.views.values()
    index = federation.test[1]
    images = federation.gather(index, torch.float64)
    one, other = (worlds.plain(worlds.client(view.population, 1), images, link) for link in ("none", "ideal"))
    assert torch.equal(result.predict(1, federation.images[index]), one.argmax(1)) and not torch.allclose(one, other)
    assert result.summary["snr_received_db"] == {"train_up": None, "train_down": None, "test": None}
    up = result.summary["traffic"]["up"]
    assert up["floats"] > 0 and up["bits"] == 32 * up["floats"]
    assert up["uses"] == up["airtime_s"] == up["energy_j"] == 0


def test_prediction_by_prototypes() -> None:
    result = run(worlds.request("fedproto", channel={"kind": "ideal"}))
    index = result.world.session.draws.federation.test[1]
    got = result.predict(1, result.world.session.draws.federation.images[index], "prototype")
    assert set(got.tolist()) <= set(np.flatnonzero(result.world.session.draws.federation.owned[1]))
    share = float((got == result.world.session.draws.federation.labels[index]).double().mean())
    assert result.metrics[-1]["views"]["prototype"]["clients"][1] == pytest.approx(share)


def test_wrong_requests_for_predictions_get_one_line() -> None:
    result = run(worlds.request("local", train={"rounds": 1}))
    fine = np.zeros((3, 1, 32, 32), np.uint8)
    for client, images, view, field in (
        (0, fine[0], None, "images"),
        (0, fine[:, :, :31], None, "images"),
        (0, fine.repeat(3, 1), None, "images"),
        (0, fine.astype(np.float32), None, "images"),
        (4, fine, None, "client"),
        (-1, fine, None, "client"),
        (0, fine, "global", "view"),
    ):
        with refuses(field):
            result.predict(client, images, view)
    assert result.predict(3, fine).shape == (3,)
    assert result.predict(3, fine[:0]).shape == (0,)


def test_lines_that_somebody_else_writes_meanwhile_are_noticed_at_the_end(tmp_path: Path) -> None:
    config = worlds.request(out=str(tmp_path), train={"rounds": 1})
    with pytest.raises(DamagedRun):
        run(config, on_round=lambda row: (tmp_path / METRICS).write_text("{}\n"))
    assert not (tmp_path / SUMMARY).exists()


@pytest.mark.parametrize("taken", [False, True])
def test_a_lock_that_is_removed_ends_the_run_at_its_next_write(taken: bool, tmp_path: Path) -> None:
    """By a cleaner of hidden files: two processes would write, and both end well. With a second one, and without."""
    config = worlds.request(out=str(tmp_path))
    second = ExitStack()

    def clean(line: dict[str, Any]) -> None:
        if line["round"] == 2:
            (tmp_path / ".lock").unlink()
            if taken:
                second.enter_context(Folder(tmp_path, config).open())

    with second, pytest.raises(RunError, match=r"\.lock was removed meanwhile") as error:
        run(config, on_round=clean)
    assert "\n" not in one_line(error.value) and len(lines(tmp_path)) == 2
    assert not (tmp_path / SUMMARY).exists() and not (tmp_path / CHECKPOINT).exists()
    assert len(run(config).metrics) == 6


CHANGED: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "a line is removed": lambda rows: rows[:2] + rows[3:],
    "a line is doubled": lambda rows: [*rows, rows[-1]],
    "a line is added": lambda rows: [*rows, b'{"round": 7, "loss": 0.5}\n'],
    "a half line is added": lambda rows: [*rows, b'{"round"'],
    "a line is edited": lambda rows: [*rows[:-1], rows[-1].replace(b"0.", b"0.1", 1)],
}


@pytest.mark.parametrize("drop", [False, True])
def test_a_finished_run_whose_lines_have_changed_is_not_finished_already(drop: bool, tmp_path: Path) -> None:
    config = worlds.request(out=str(tmp_path / "r"), train={"drop_checkpoints": drop})
    whole = run(config)
    rows = (tmp_path / "r" / METRICS).read_bytes().splitlines(keepends=True)
    for name, change in CHANGED.items():
        (tmp_path / "r" / METRICS).write_bytes(b"".join(change(rows)))
        before = snapshot(tmp_path / "r")
        with pytest.raises(RunError, match=f"metrics.jsonl is damaged .*move {tmp_path / 'r'} away"):
            run(config)
        assert snapshot(tmp_path / "r") == before, name
    (tmp_path / "r" / METRICS).unlink()
    with pytest.raises(RunError, match="metrics.jsonl is damaged .it is missing"):
        run(config)
    (tmp_path / "r" / METRICS).write_bytes(b"".join(rows))
    assert run(config).metrics == whole.metrics


def test_a_finished_run_without_its_checkpoint_is_not_trained_again(tmp_path: Path) -> None:
    config = worlds.request(out=str(tmp_path))
    whole = run(config)
    (tmp_path / CHECKPOINT).unlink()
    before = snapshot(tmp_path)
    again = run(config)
    assert again.summary == whole.summary and again.metrics == whole.metrics and snapshot(tmp_path) == before
    with pytest.raises(RunError, match="kept none of its models"):
        _ = again.views


@pytest.mark.skipif("SEMCOM_DATA" not in os.environ, reason="SEMCOM_DATA names no folder with cifar10.npz")
def test_fedcl_learns_real_images() -> None:
    """Three classes a client: after five short rounds better than always the most frequent one (a third)."""
    config = RunConfig(
        data=DataConfig("cifar10", os.environ["SEMCOM_DATA"]),
        partition=worlds.divided(shots=40, test_per_class=40),
        model=ModelConfig(encoder="dcgan-narrow"),
        train=TrainConfig(rounds=5, batch_size=10),
        clients=4,
        device="cpu",
    )
    result = run(config)
    images = 4 * 3 * 40
    assert result.summary["samples"] == 5 * images
    # Five standard errors of a fraction of 480 test images above one third.
    assert result.metrics[-1]["views"]["personal"]["accuracy"] > 1 / 3 + 5 * (2 / 9 / images) ** 0.5
    assert result.metrics[-1]["task"] < 0.8 * result.metrics[0]["task"]


@pytest.mark.parametrize("store", ["device", "disk"])
def test_dropped_checkpoints_leave_the_numbers(store: str, tmp_path: Path) -> None:
    """The process that trained still has the models; another one refuses to give them, and does not train again."""
    train = {"rounds": 3, "checkpoint_every": 1, "participation": 0.5}
    options: dict[str, Any] = {"store": store, "model": {"init": "client"}}
    kept = run(worlds.request("local", train=train, out=str(tmp_path / "kept"), **options))
    config = worlds.request("local", train={**train, "drop_checkpoints": True}, out=str(tmp_path / "gone"), **options)
    first = run(config)
    assert run_hash(config) == run_hash(kept.config) and timeless(first.summary) == timeless(kept.summary)
    assert worlds.gap(first.views["personal"].population, kept.views["personal"].population) == 0
    left = {path.name for path in (tmp_path / "gone").iterdir()}
    there = {path.name for path in (tmp_path / "kept").iterdir()}
    lost = {CHECKPOINT, "checkpoint.previous.pt", *(["rows-1.bin"] if store == "disk" else [])}
    assert there - left == lost and not left - there
    again = run(config)
    assert again.summary == first.summary and len(again.metrics) == 3
    with pytest.raises(RunError, match="of its models"):
        _ = again.views
