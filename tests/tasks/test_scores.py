"""Metrics beside the accuracy: against a second computation, and in all that shows numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, matthews_corrcoef, roc_auc_score, top_k_accuracy_score
from torchmetrics.functional.classification import multiclass_calibration_error

import semcom
from semcom.cli import main as cli
from semcom.config import from_dict, list_earlier_hashes, run_hash, to_dict
from semcom.files import CONFIG
from semcom.runs.folder.stored import read_stored_config
from semcom.runs.rounds.runner import run
from semcom.tasks.classification import Classification
from semcom.tasks.metric import ACCURACY, Metric
from semcom.tasks.registry import METRICS, TASKS
from semcom.tasks.scores import ScoreMetric
from tests import worlds
from tests.refusals import refuses


def bin_errors(scores: np.ndarray, labels: np.ndarray) -> float:
    """Compute the expected calibration error in 15 bins of equal width, bin by bin."""
    shares = np.exp(scores - scores.max(1, keepdims=True))
    confidence = (shares / shares.sum(1, keepdims=True)).max(1)
    right, total = scores.argmax(1) == labels, 0.0
    for low in np.arange(15) / 15:
        inside = (confidence > low) & (confidence <= low + 1 / 15)
        if inside.any():
            total += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    return total


def one_against_others(scores: np.ndarray, labels: np.ndarray) -> float:
    there = [c for c in range(scores.shape[1]) if 0 < (labels == c).sum() < len(labels)]
    return float(np.mean([roc_auc_score(labels == c, scores[:, c]) for c in there]))


AGAIN = {
    "top2": lambda s, y: top_k_accuracy_score(y, s, k=2, labels=range(s.shape[1])),
    "top3": lambda s, y: top_k_accuracy_score(y, s, k=3, labels=range(s.shape[1])),
    "top5": lambda s, y: top_k_accuracy_score(y, s, k=5, labels=range(s.shape[1])) if s.shape[1] > 5 else 1.0,
    "ece": bin_errors,
    "f1": lambda s, y: f1_score(y, s.argmax(1), average="macro"),
    "auc": one_against_others,
    "mcc": lambda s, y: matthews_corrcoef(y, s.argmax(1)),
}
"""Metric -> its second computation, from scores and labels."""


class Mcc(ScoreMetric):
    """A metric that is not a mean over samples: the numerator, by counts."""

    metric = Metric("mcc", "correlation of Matthews", digits=2)

    def compute(self, scores: torch.Tensor, labels: torch.Tensor) -> float:
        counts = torch.zeros(2 * (scores.shape[1],)).index_put_((labels, scores.argmax(1)), torch.tensor(1.0), True)
        true, told, n = counts.sum(1), counts.sum(0), len(labels)
        spread = ((n * n - true.square().sum()) * (n * n - told.square().sum())).sqrt()
        return float((counts.trace() * n - true @ told) / spread) if spread else 0.0


METRICS.register("mcc")(Mcc)


@TASKS.register("test-top2")
class Top2(Classification):
    """Classification with a second metric, of each sample."""

    metrics = (ACCURACY, Metric("top2", "among the best two", share=True, digits=1))

    def measure(self, outputs: torch.Tensor, target: torch.Tensor) -> dict[str, torch.Tensor]:
        above = (outputs > outputs.gather(-1, target[..., None])).sum(-1)
        return {**super().measure(outputs, target), "top2": (above < 2).to(outputs.dtype)}


@TASKS.register("test-lower")
class Errors(Classification):
    """Classification that is judged by its errors first."""

    metrics = (Metric("wrong", "errors", higher=False, share=True, digits=1), ACCURACY)

    def measure(self, outputs: torch.Tensor, target: torch.Tensor) -> dict[str, torch.Tensor]:
        (right,) = super().measure(outputs, target).values()
        return {"accuracy": right, "wrong": 1 - right}


@pytest.mark.parametrize("name", AGAIN)
def test_metrics_are_those_of_a_second_computation(name: str) -> None:
    """With classes that are never tested, and some that are neither tested nor answered."""
    rng = np.random.default_rng(1)
    for classes, tested, sharp in ((4, 4, 1.0), (9, 5, 3.0), (12, 3, 8.0)):
        labels = rng.integers(0, tested, 40)
        scores = sharp * rng.normal(size=(40, classes)).astype(np.float32)
        scores[:20, :tested] += 5 * np.eye(tested, dtype=np.float32)[labels[:20]]
        found = METRICS.get(name)().compute(torch.tensor(scores), torch.tensor(labels))
        assert float(found) == pytest.approx(AGAIN[name](scores, labels), abs=1e-6)


def test_a_bin_has_its_upper_edge_and_a_client_without_scores_no_error() -> None:
    """By hand: confidences of 1 and 0.95 are in one bin, |9 - (5 + 4.75)| / 10. Torchmetrics' has the lower edge."""
    measure = METRICS.get("ece")().compute
    scores, labels = torch.tensor([[40.0, 0.0], [np.log(19), 0.0]]).repeat_interleave(5, 0), torch.tensor([1] + 9 * [0])
    assert float(measure(scores, labels)) == pytest.approx(0.075, abs=1e-7)
    assert torch.isnan(measure(torch.full((4, 3), -torch.inf), torch.tensor([0, 1, 2, 0])))
    scores = torch.randn(500, 6, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(500) % 6
    expected = multiclass_calibration_error(scores.softmax(-1), labels, num_classes=6, n_bins=15)
    assert float(measure(scores, labels)) == pytest.approx(float(expected), abs=1e-6)
    assert [len(list_earlier_hashes(worlds.request(train={"metrics": (name,)}))) for name in ("ece", "f1")] == [1, 0]


def test_of_equal_scores_the_first_counts() -> None:
    """As in an answer, which the accuracy judges."""
    labels = torch.arange(5)
    assert [float(METRICS.get(f"top{k}")().compute(torch.zeros(5, 5), labels)) for k in (2, 3, 5)] == [0.4, 0.6, 1.0]


def recompute(result: Any, name: str, view: str) -> list[float]:
    """Compute a metric of each client from its model's outputs over a noiseless channel."""
    data = result.federation
    each = [(data.labels[data.test[k]].numpy(), data.images[data.test[k]]) for k in range(4)]
    answers = [result.decode(k, images, view).clamp(min=-1e6).numpy() for k, (_, images) in enumerate(each)]
    return [AGAIN[name](scores, labels) for scores, (labels, _) in zip(answers, each, strict=True)]


@pytest.mark.parametrize(
    ("task", "names"), [("test-top2", ()), ("classification", tuple(AGAIN)), ("test-lower", ("f1",))]
)
def test_each_metric_is_a_number_of_a_run(task: str, names: tuple[str, ...]) -> None:
    ideal: dict[str, Any] = {"channel": {"kind": "ideal"}, "partition": {"shots_spread": 2}}
    plain = run(worlds.request("fedproto", train={"rounds": 2}, **ideal))
    asked = run(worlds.request("fedproto", task=task, train={"rounds": 2, "metrics": names}, **ideal))
    measured = [metric["name"] for metric in asked.summary["task"]["metrics"]]
    assert set(measured) == {*names, *(metric.name for metric in TASKS.get(task).metrics)}
    assert "task" not in plain.summary
    for name, view in asked.summary["views"].items():
        last, before = asked.metrics[-1]["views"][name], plain.summary["views"][name]
        for metric in set(measured) - {"accuracy", "wrong"}:
            assert last[metric] == pytest.approx(np.mean(recompute(asked, metric, name)), abs=1e-6)
            each = [line["views"][name][metric] for line in asked.metrics]
            assert view[metric] == pytest.approx(np.mean(each))
        assert view["accuracy"] == pytest.approx(before["accuracy"]) and view["among_own"] == before["among_own"]
        if task == "test-lower":
            assert view["wrong_worst10"] == pytest.approx(1 - before["worst10"])
            assert view["wrong_best"] == pytest.approx(1 - before["best"]) and "worst10" not in view
        else:
            assert {**before, **view} == {**view, **before}, "nothing else changes"
        assert last["classes"] == plain.metrics[-1]["views"][name]["classes"]


@pytest.mark.parametrize(("task", "names"), [("test-top2", ()), ("classification", ("ece", "mcc"))])
def test_tables_figures_comparisons_and_reports_have_each(
    task: str, names: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for method in ("local", "fedper"):
        for seed in (0, 1):
            options: dict[str, Any] = {"task": task, "seed": seed, "out": str(tmp_path / f"{method}{seed}")}
            request = worlds.request(
                method, train={"rounds": 1, "metrics": names}, channel={"test_snr_db": "9,-3"}, **options
            )
            result = run(request)
    study = semcom.study(tmp_path)
    assert cli.main(["report", str(tmp_path)]) == 0
    page = (tmp_path / "report.html").read_text()
    for name in names or ("top2",):
        metric = study.labels.metric(name)
        assert metric.heading in repr(result) or name in result.summary["views"]["personal"]
        means = study.mean(metric=name).set_index(["variant", "test_snr_db"])["mean"]
        first = metric.format(means["local", 9])
        table = semcom.table(study, "accuracy", name, at={"test_snr_db": 9})
        assert list(table.columns[-2:]) == ["Accuracy (%)", semcom.studies.names.metric_label(metric)]
        assert dict(table.set_index("Method").iloc[:, -1])["Local"] == first
        assert metric.label in page and f">{first}<" in page
        capsys.readouterr()
        assert cli.main(["compare", str(tmp_path), "fedper", "local", "--metric", name]) == 0
        assert f"{metric.format(means['fedper', -3])} against {metric.format(means['local', -3])}".replace(
            "%", ""
        ) in capsys.readouterr().out.replace(" %", "")
        assert cli.main(["plot", str(tmp_path), "--x", "test_snr_db", "--y", name, "--out", str(tmp_path / name)]) == 0
        (drawn,) = (tmp_path / name).glob("*.csv")
        assert f"{means['fedper', 9]:.6f}"[:6] in drawn.read_text()


def test_stored_runs_that_asked_by_a_flag_of_its_own_are_read(tmp_path: Path) -> None:
    """`train.auc` was a field. Its runs keep their hashes, and so do runs without areas."""
    hashes = {True: "7dca6f5f8e71", False: "a28c9919c28b"}
    for asked, key in hashes.items():
        names = ("auc", "auc_micro") if asked else ()
        config = semcom.resolve(semcom.RunConfig("fedper", train=semcom.TrainConfig(rounds=2, metrics=names)))
        values = to_dict(config)
        del values["train"]["metrics"]
        values["train"]["auc"] = asked
        (tmp_path / CONFIG).write_text(json.dumps(values))
        stored = read_stored_config(tmp_path, "study")
        assert stored.train.metrics == names and run_hash(stored) == run_hash(config) == key
        assert from_dict(to_dict(config)) == stored
    other = semcom.resolve(semcom.RunConfig("fedper", train=semcom.TrainConfig(rounds=2, metrics=("auc",))))
    assert run_hash(other) not in hashes.values()


def test_what_cannot_be_measured_is_refused() -> None:
    def asked(*names: str, task: str = "classification") -> None:
        semcom.resolve(worlds.request("fedavg", task=task, train={"rounds": 1, "metrics": names}))

    with refuses("train.metrics", "asks for no classes"):
        asked("f1", task="reconstruction")
    with refuses("train.metrics", "no such", "top2"):
        asked("no such")
    with refuses("train.metrics", "'f1' is measured already"):
        asked("f1", "ece", "f1")
    with refuses("train.metrics", "'top2' is measured already"):
        asked("top2", task="test-top2")
