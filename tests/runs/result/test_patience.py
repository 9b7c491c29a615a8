"""Early stopping on validation images: when a run ends, what it reports, and that it goes on as any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from semcom.cli.printing import format_result_table
from semcom.files import ARRAYS
from semcom.runs.folder.arrays import read_arrays
from semcom.runs.result.accuracy import compute_client_accuracies
from semcom.runs.result.evaluation import find_stall
from semcom.runs.rounds.load import load
from semcom.runs.rounds.runner import run
from semcom.tasks.metric import ACCURACY, MSE
from tests import worlds
from tests.runs.rounds.test_run import interrupt, timeless


def lines(values: list[float | None], key: str = "validation") -> list[dict[str, Any]]:
    """Rounds of which those with a value were evaluated."""
    views = [{} if value is None else {"views": {"first": {key: value}, "other": {key: 1 - value}}} for value in values]
    return [{"round": i + 1, **of} for i, of in enumerate(views)]


@pytest.mark.parametrize(
    ("values", "patience", "best"),
    [
        ([0.1, 0.5, 0.4], 1, 2),
        ([0.1, 0.5, 0.4], 2, None),
        ([0.1, 0.5, 0.4, 0.6], 1, None),  # the newest one is the best
        ([0.1, 0.5, 0.5, 0.5], 2, 2),  # equal is no better
        ([0.1, None, 0.5, None, 0.4, None], 1, 3),  # evaluations count, not rounds
        ([0.1, None, 0.5, None, 0.4, None], 2, None),
        ([0.1, 0.5, 0.4], None, None),
        ([None, None], 1, None),
    ],
)
def test_a_stall(values: list[float | None], patience: int | None, best: int | None) -> None:
    assert find_stall(patience, lines(values), ACCURACY) == best


def test_a_stall_of_what_is_better_when_it_is_less() -> None:
    assert find_stall(1, lines([0.4, 0.1, 0.2], MSE.key("validation")), MSE) == 2
    assert find_stall(1, lines([0.4, 0.2, 0.1], MSE.key("validation")), MSE) is None


def request(patience: int | None = 2, **overrides: Any) -> Any:
    train = {"rounds": 30, "lr": 0.05, "patience": patience}
    return worlds.request("fedavg", partition={"validation": 0.4}, train=train, **overrides)


def test_a_run_ends_after_its_patience_and_says_what_it_reports(tmp_path: Path) -> None:
    """It is the beginning of the run that goes through; interrupted and loaded it is the same."""
    whole = run(request(None))
    stopped = run(request(out=str(tmp_path / "run")))
    validation = [line["views"]["global"]["validation"] for line in whole.metrics]
    end = next(r for r in range(30) if r - int(np.argmax(validation[: r + 1])) == 2) + 1
    assert 3 <= end < 20
    assert [timeless(line) for line in stopped.metrics] == [timeless(line) for line in whole.metrics[:end]]
    assert stopped.summary["rounds"] == end
    assert stopped.summary["stopped"] == {"rounds": 30, "best_on_validation": end - 2}
    view = stopped.summary["views"]["global"]
    last = [line["views"]["global"]["clients"] for line in whole.metrics[end - 3 : end]]
    assert view["clients"] == pytest.approx(np.mean(last, 0), rel=1e-12)
    assert view["last"] == whole.metrics[end - 1]["views"]["global"]["accuracy"]
    text = format_result_table(stopped.summary)
    assert f"after {end} rounds (of 30; the best on validation images: round {end - 2})" in text
    interrupt(request(out=str(tmp_path / "halves")), end - 1)
    again = run(request(out=str(tmp_path / "halves")))
    assert timeless(again.summary) == timeless(stopped.summary)
    for result in (run(request(out=str(tmp_path / "run"))), load(tmp_path / "run")):
        assert timeless(result.summary) == timeless(stopped.summary)
        assert worlds.gap(result.views["global"].population, stopped.views["global"].population) == 0


def test_a_run_that_goes_through_reports_as_any_other() -> None:
    one, other = run(request(29)), run(request(None))
    assert one.summary["rounds"] == 30 and "stopped" not in one.summary
    assert one.summary["views"] == other.summary["views"]


def test_what_is_kept_of_a_last_stage_after_an_early_stop_is_of_its_tests(tmp_path: Path) -> None:
    """Its draws are those of the round after all that the run might have had."""
    asked = request(
        finish={"kind": "linear", "epochs": 2}, channel={"snr_db": 0.0}, keep=("confusion",), out=str(tmp_path)
    )
    result = run(asked)
    assert "stopped" in result.summary
    arrays = read_arrays(tmp_path / ARRAYS, result.summary["hash"])
    told = result.summary["finish"]["views"]["finished"]["clients"]
    assert compute_client_accuracies(arrays["confusion/finished"]).tolist() == told
