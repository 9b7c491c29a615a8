"""What `arrays.npz` keeps: against the numbers of the run, against plain loops, and within bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from semcom.config import RunConfig, run_hash
from semcom.files import ARRAYS, SUMMARY
from semcom.runs.folder.arrays import read_arrays
from semcom.runs.result import artifacts
from semcom.runs.result.accuracy import compute_client_accuracies
from semcom.runs.result.artifacts import Samples, count_artifact_classes, share_sample_quota
from semcom.runs.result.result import Result
from semcom.runs.rounds import loop
from semcom.runs.rounds.runner import run
from tests import worlds
from tests.commands import read
from tests.refusals import refuses
from tests.runs.rounds import test_finish  # noqa: F401 - registers test-tuned
from tests.runs.rounds.test_run import interrupt, snapshot

ALL = ("confusion", "features", "curves-per-client")
NOISY = {"kind": "rayleigh", "snr_db": "0:18", "test_snr_db": "3,9"}


def kept_by(result: Result) -> dict[str, np.ndarray]:
    return read_arrays(result.out / ARRAYS, result.summary["hash"])


def request(folder: Path, method: str = "fedproto", **options: Any) -> RunConfig:
    usual = {"out": str(folder), "keep": ALL, "channel": NOISY, "train": {"rounds": 3}}
    return worlds.request(method, **{**usual, **options})


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(t, other[name]) for name, t in one.items())


def test_arrays_hold_what_the_last_tests_and_all_curves_were(tmp_path: Path) -> None:
    result = run(request(tmp_path))
    arrays, data = kept_by(result), result.federation
    assert arrays["clients"].tolist() == [0, 1, 2, 3] and arrays["confusion/personal"].shape == (4, 4, 4)
    for name, view in result.metrics[-1]["views"].items():
        assert compute_client_accuracies(arrays[f"confusion/{name}"]).tolist() == view["clients"]
        assert arrays[f"rounds/{name}"].tolist() == [1, 2, 3]
        expected = [line["views"][name]["clients"] for line in result.metrics]
        assert arrays[f"curves/{name}"].tolist() == expected
    for k in range(4):
        for kind, table in (("train", data.train), ("test", data.test)):
            expected = np.bincount(data.labels[table[k]].numpy(), minlength=4)
            assert arrays[f"counts/{kind}"][k].tolist() == expected.tolist()
    assert np.array_equal(arrays["counts/test"], arrays["confusion/prototype"].sum(2))
    assert {name: t.tolist() for name, t in result.confusion.items()} == {
        name: arrays[f"confusion/{name}"].tolist() for name in ("personal", "prototype")
    }


def test_features_are_those_that_the_heads_decided_on(tmp_path: Path) -> None:
    """Raw ones are the encoder's, received ones give the answers that the confusion counts."""
    result = run(request(tmp_path, "fedproto"))
    arrays, data = kept_by(result), result.federation
    images, owners = arrays["samples/image"], arrays["samples/client"]
    expected = [(k, int(i)) for k in range(4) for i in data.test[k]]
    assert list(zip(owners.tolist(), images.tolist(), strict=True)) == expected
    assert arrays["samples/label"].tolist() == data.labels[images].tolist()
    counts = np.zeros((4, 4, 4), dtype=int)
    for n, (k, image) in enumerate(expected):
        raw = result.encode(data.images[[image]], k)[0]
        np.testing.assert_allclose(arrays["raw/personal"][n], raw.numpy(), rtol=0, atol=1e-12)
        model = worlds.client(result.views["personal"].population, k)
        head = {name: t.numpy() for name, t in model.items() if name.startswith("head.")}
        logits = arrays["received/personal"][n] @ head["head.0.weight"].T + head["head.0.bias"]
        counts[k, int(data.labels[image]), logits.argmax()] += 1
    assert np.array_equal(counts, arrays["confusion/personal"])
    features = result.features("prototype")
    assert np.array_equal(features.received, arrays["received/personal"]) and features.received.shape[1] == 4
    assert not np.allclose(features.received, features.raw)


@pytest.mark.usefixtures("forked_ranks")
def test_an_interrupted_run_and_two_processes_keep_the_same(tmp_path: Path) -> None:
    options: dict[str, Any] = {"plugins": ("tests.worlds", "tests.runs.rounds.test_finish"), "chunk": 1}
    whole = run(request(tmp_path / "whole", "test-tuned", **options))
    halves = request(tmp_path / "halves", "test-tuned", **options)
    interrupt(halves, 2)
    assert not (tmp_path / "halves" / ARRAYS).exists()
    two = run(request(tmp_path / "two", "test-tuned", processes=2, **options))
    assert same(kept_by(run(halves)), kept_by(whole)) and same(kept_by(two), kept_by(whole))
    arrays, last = kept_by(whole), whole.summary["finish"]["views"] | {"again": whole.metrics[-1]["views"]["again"]}
    for name in ("personal", "again"):
        assert compute_client_accuracies(arrays[f"confusion/{name}"]).tolist() == last[name]["clients"]
    assert arrays["rounds/personal"].tolist() == [4] and arrays["rounds/global"].tolist() == [1, 2, 3, 4]
    assert arrays["rounds/again"].tolist() == [1, 2, 3]


def test_a_process_that_hears_nobody_adds_zeros() -> None:
    """It has to take part in the sum all the same."""
    w = worlds.world("fedavg")
    arrays = Samples.of(w, np.array([1, 2])).arrays(["global", "personal"])
    n = len(arrays["samples/label"])
    names = [f"{kind}/{view}" for view in ("global", "personal") for kind in ("received", "raw")]
    assert n and all(arrays[name].shape == (n, w.features) and not arrays[name].any() for name in names)


def test_a_finished_run_keeps_what_is_asked_for_later(tmp_path: Path, caplog: Any) -> None:
    """The same as if it had been asked for at once; what is there is not made again, unless it is damaged."""
    at_once = kept_by(run(request(tmp_path / "all")))
    first = run(request(tmp_path / "later", keep=("confusion",)))
    assert not any(name.startswith(("received", "curves")) for name in kept_by(first))
    before = snapshot(tmp_path / "later")
    assert run(request(tmp_path / "later", keep=())).out and snapshot(tmp_path / "later") == before
    assert caplog.messages[-1].endswith("), nothing was trained")
    again = run(request(tmp_path / "later"))
    assert caplog.messages[-1].endswith("nothing was trained; features, curves-per-client added to arrays.npz")
    assert same(kept_by(again), at_once) and again.summary == first.summary and again.metrics == first.metrics
    before = snapshot(tmp_path / "later")
    run(request(tmp_path / "later"))
    assert caplog.messages[-1].endswith("), nothing was trained") and snapshot(tmp_path / "later") == before
    path = tmp_path / "later" / ARRAYS
    path.write_bytes(before[ARRAYS][: len(before[ARRAYS]) // 2])
    assert same(kept_by(run(request(tmp_path / "later"))), at_once)
    assert "arrays.npz is damaged" in caplog.text and (tmp_path / "later" / "arrays.damaged.npz").exists()


def test_what_is_kept_changes_no_number_and_is_no_part_of_a_run(tmp_path: Path) -> None:
    plain, keeping = run(request(tmp_path / "plain", keep=())), run(request(tmp_path / "kept"))
    assert plain.summary["hash"] == keeping.summary["hash"] and not (tmp_path / "plain" / ARRAYS).exists()
    assert [row["views"] for row in plain.metrics] == [row["views"] for row in keeping.metrics]
    for name in ("views", "snr_received_db", "traffic", "samples"):
        assert plain.summary[name] == keeping.summary[name]


def test_tested_clients_alone_are_kept(tmp_path: Path) -> None:
    result = run(request(tmp_path, clients=5, train={"eval_clients": 3, "rounds": 2}))
    arrays, tested = kept_by(result), result.summary["evaluated"]
    assert arrays["clients"].tolist() == tested == sorted(set(arrays["samples/client"].tolist()))
    for name, view in result.metrics[-1]["views"].items():
        assert compute_client_accuracies(arrays[f"confusion/{name}"]).tolist() == view["clients"]
    counts = count_artifact_classes(result.federation, result.federation.test, np.array(tested))
    assert arrays["counts/test"].tolist() == counts.tolist()


def test_few_images_are_drawn_evenly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = kept_by(run(request(tmp_path / "all")))
    monkeypatch.setattr(artifacts, "MOST", 22)
    some, again = (kept_by(run(request(tmp_path / name))) for name in ("some", "again"))
    sizes = np.bincount(some["samples/client"], minlength=4)
    assert sizes.sum() == 22 and sizes.max() - sizes.min() == 1 and same(some, again)
    at = {pair: i for i, pair in enumerate(zip(everything["samples/client"], everything["samples/image"], strict=True))}
    rows = [at[pair] for pair in zip(some["samples/client"], some["samples/image"], strict=True)]
    assert rows == sorted(rows) and np.array_equal(some["received/personal"], everything["received/personal"][rows])


def test_no_client_gives_more_pictures_than_its_part() -> None:
    """Of tests of 1 and 100 images, 1 and as many as a client may give."""
    w = worlds.world(sizes=(2, 2), tests=(1, 100))
    drawn = artifacts._draw_tests(w, np.arange(2), artifacts.PICTURES, artifacts.EACH)
    assert np.bincount(drawn >= 1).tolist() == [1, artifacts.EACH]


@pytest.mark.parametrize(
    ("sizes", "total", "expected"),
    [((5, 1, 9), 99, (5, 1, 9)), ((5, 1, 9), 7, (3, 1, 3)), ((4, 4), 0, (0, 0)), ((0, 3), 2, (0, 2))],
)
def test_even_quotas(sizes: tuple[int, ...], total: int, expected: tuple[int, ...]) -> None:
    assert share_sample_quota(np.array(sizes), total, 0).tolist() == list(expected)


def test_what_cannot_be_divided_evenly_is_drawn() -> None:
    drawn = np.array([share_sample_quota(np.full(10, 3), 4, seed) for seed in range(300)])
    assert set(drawn.sum(1)) == {4} and set(drawn.flatten()) == {0, 1}
    assert np.ptp(drawn.sum(0)) < 60  # 120 times each on average, standard deviation 8.5


def test_the_command_line_takes_a_list_with_commas_or_spaces() -> None:
    given = ("fedavg", "--keep")
    assert read(*given, "confusion,features,curves-per-client").keep == ALL == read(*given, *ALL).keep
    assert read(*given, "features", "--seed", "3").keep == ("features",)
    with refuses("keep", "all", "confusion, features, curves-per-client"):
        read(*given, "all")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"out": None}, "without out"),
        ({"limit": 8 * 4 * 16 - 1}, "'confusion' of 4 clients"),
        ({"limit": 8 * 4 * 3 - 1, "keep": ("curves-per-client",)}, "'curves-per-client' of 4 clients"),
    ],
)
def test_what_cannot_be_kept_is_refused_before_any_work(
    options: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if limit := options.pop("limit", None):
        monkeypatch.setattr(artifacts, "LARGEST", limit)
    with refuses("keep", words):
        run(request(tmp_path / "out", **options))
    assert not (tmp_path / "out").exists()


def test_a_crash_before_the_summary_leaves_a_run_that_finishes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = request(tmp_path)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(loop.Folder, "finish", lambda *arguments: (_ for _ in ()).throw(KeyboardInterrupt()))
        run(config)
    assert (tmp_path / ARRAYS).exists() and not (tmp_path / SUMMARY).exists()
    before = read_arrays(tmp_path / ARRAYS, run_hash(config))
    assert same(kept_by(run(config)), before)
