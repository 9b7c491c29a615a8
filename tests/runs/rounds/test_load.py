"""A finished run that is given back from its folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import semcom
from semcom.config import ConfigError, RunConfig, RunError
from semcom.files import ARRAYS, CHECKPOINT, CONFIG, METRICS, SUMMARY
from semcom.runs.rounds.load import load
from semcom.runs.rounds.runner import run
from tests import worlds
from tests.refusals import refuses
from tests.runs.request.test_stop import damage
from tests.runs.rounds import test_finish
from tests.runs.rounds.test_run import one_line, snapshot, weights

NOISY = {"kind": "rayleigh", "snr_db": "0:18", "test_snr_db": "3,9"}


def request(folder: Path, method: str = "fedproto", **options: Any) -> RunConfig:
    usual = {"out": str(folder), "channel": NOISY, "train": {"rounds": 2}, "plugins": test_finish.OWN}
    return worlds.request(method, **{**usual, **options})


@pytest.mark.parametrize("method", ["fedproto", "fedgh", "test-tuned"])
@pytest.mark.parametrize("store", ["auto", "disk"])
def test_a_loaded_run_is_the_fresh_one(method: str, store: str, tmp_path: Path) -> None:
    """Bit for bit, also from another place, with views of a last stage, and without a byte changed in the folder."""
    fresh = run(request(tmp_path / "there", method, store=store, keep=("confusion",)))
    shutil.copytree(tmp_path / "there", tmp_path / "here")
    before, begun = snapshot(tmp_path / "here"), test_finish.Tuned.begun
    loaded = semcom.load(tmp_path / "here")
    assert test_finish.Tuned.begun == begun, "a last stage waits until it is asked for"
    assert loaded.summary == fresh.summary and loaded.metrics == fresh.metrics
    assert loaded.out == tmp_path / "here" and loaded.config.out == str(tmp_path / "here")
    assert list(loaded.views) == list(fresh.views)
    assert all(torch.equal(a, b) for a, b in zip(weights(loaded), weights(fresh), strict=True))
    images = fresh.federation.images[::3]
    for view in (None, *fresh.views):
        assert torch.equal(loaded.predict(1, images, view), fresh.predict(1, images, view))
        for received in (False, True):
            one, other = (result.encode(images, 2, view, received=received) for result in (loaded, fresh))
            assert torch.equal(one, other) and one.shape == (len(images), 4)
        for one, other in zip(vars(loaded.features(view)).values(), vars(fresh.features(view)).values(), strict=True):
            assert np.array_equal(one, other)
    assert snapshot(tmp_path / "here") == before


def test_what_was_not_kept_is_tested_again(tmp_path: Path) -> None:
    keeping = run(request(tmp_path / "kept", keep=("confusion", "features")))
    plain = run(request(tmp_path / "plain"))
    for result in (plain, load(tmp_path / "plain"), load(tmp_path / "kept")):
        assert result.confusion.keys() == keeping.confusion.keys() == {"personal", "prototype"}
        assert all(np.array_equal(t, keeping.confusion[name]) for name, t in result.confusion.items())
        assert np.array_equal(result.features().received, keeping.features().received)
        snr = result.world.session.tally.snr_received_db()["test"]
        expected = result.summary["snr_received_db"]["test"]
        assert snr == pytest.approx(expected, abs=1e-12), "a test that is repeated does not count"
    assert not (tmp_path / "plain" / ARRAYS).exists()


def test_received_features_are_those_that_a_prediction_decides_on(tmp_path: Path) -> None:
    result = run(request(tmp_path, "local", channel={"kind": "awgn", "snr_db": 0.0}))
    images = result.federation.images[:20]
    raw, received = (result.encode(images, 1, received=received) for received in (False, True))
    model = worlds.client(result.views["personal"].population, 1)
    logits = received @ model["head.0.weight"].T + model["head.0.bias"]
    assert torch.equal(logits.argmax(1), result.predict(1, images))
    sent = raw / raw.square().mean(1, keepdim=True).sqrt()
    assert 0.5 < float((received - sent).square().mean()) < 1.6  # the noise, at 0 dB
    clean = worlds.plain(
        {**model, "head.0.weight": torch.eye(4).double(), "head.0.bias": torch.zeros(4).double()},
        result.federation.gather(torch.arange(20), torch.float64),
    )
    assert (clean - sent).abs().max() < 1e-12


def test_unknown_views_and_clients_are_refused(finished: Path) -> None:
    result = load(finished)
    for asked in (result.features, result.views.__getitem__, result.confusion.__getitem__):
        with refuses("view", "best", "personal, prototype"):
            asked("best")
    assert "best" not in result.confusion and result.confusion.get("best") is None
    with refuses("view", "best"):
        result.encode(result.federation.images[:2], 0, "best")
    with refuses("client", 9):
        result.encode(result.federation.images[:2], 9)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run, which tests copy before they write to it."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    run(request(folder))
    return folder


def change_seed(path: Path) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | {"seed": 7}))


SPOILED: dict[str, tuple[Callable[[Path], object], type, str]] = {
    "no folder": (shutil.rmtree, ConfigError, "run' cannot be read: No such file or directory"),
    CONFIG: (lambda run: (run / CONFIG).unlink(), ConfigError, "config.json' cannot be read: No such file or direc"),
    "study": (
        lambda run: (run / CONFIG).rename(run / "sweep.json"),
        ConfigError,
        "; give the folder of one run of this study",
    ),
    "no json": (lambda run: (run / CONFIG).write_text("{"), ConfigError, "config.json' is no JSON file: "),
    "other": (lambda run: change_seed(run / CONFIG), RunError, "is damaged (it is of run"),
    SUMMARY: (lambda run: (run / SUMMARY).unlink(), RunError, "the run is not finished; run it again, and it goes on"),
    CHECKPOINT: (lambda run: (run / CHECKPOINT).unlink(), RunError, "kept none of its models"),
    "flipped": (lambda run: damage(run / CHECKPOINT), RunError, "not a checkpoint, or a damaged one"),
    METRICS: (lambda run: (run / METRICS).unlink(), RunError, "metrics.jsonl is damaged (it is missing)"),
}


@pytest.mark.parametrize("what", SPOILED)
def test_what_is_no_finished_run_is_refused_in_a_line(what: str, tmp_path: Path, finished: Path) -> None:
    shutil.copytree(finished, tmp_path / "run")
    spoil, kind, message = SPOILED[what]
    spoil(tmp_path / "run")
    with pytest.raises(kind) as error:
        load(tmp_path / "run")
    assert message in one_line(error.value) and str(tmp_path / "run") in str(error.value)
