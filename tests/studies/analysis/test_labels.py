"""The names of methods and metrics belong to the runs that give them: studies of two owners do not mix."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import semcom
from semcom.config import run_hash
from semcom.escape import escape_tags
from semcom.methods.fedavg import FedAvg
from semcom.methods.registry import METHODS
from semcom.plots.kinds import KINDS, settle_kind
from semcom.plots.panels import draw_panels
from semcom.runs.rounds.runner import run
from semcom.studies import names
from semcom.studies.analysis.sheet import make_sheet
from semcom.studies.analysis.study import Study
from semcom.tasks.metric import ACCURACY, Metric
from tests import worlds
from tests.commands import told
from tests.refusals import refuses
from tests.studies.folders import config, line, simple, write


@pytest.fixture(autouse=True)
def tables_stay(here: Path) -> Iterator[None]:
    """What is read, tabulated and drawn leaves the tables of names as they are."""
    before = {name: copy.deepcopy(value) for name, value in vars(names).items() if name.isupper()}
    yield
    assert {name: getattr(names, name) for name in before} == before


def labelled(folder: str, seeds: range = range(3), **labels: str) -> None:
    """Write runs of methods with labels, beside runs of FedCL ten points below."""
    for seed in seeds:
        top = 0.6 + seed / 100
        for method, label in labels.items():
            simple(Path(folder), config(method, seed), [top, top], label=label)
        simple(Path(folder), config("fedcl", seed), [top - 0.1, top - 0.1])


def judged(folder: str, task: str, *metrics: Metric) -> None:
    """Write runs of a task of one's own; all metrics of FedCL are 1.01 above those of FedAvg, in the mean."""
    for seed in range(3):
        for method, value in (("fedavg", 2 + seed / 100), ("fedcl", 3 + seed / 50)):
            of = config(method, seed, task=task)
            view = {**{each.name: value for each in metrics}, "clients": [value, value]}
            write(Path(folder) / run_hash(of), of, [line(4, {"personal": view})], metrics)


def list_drawn(folder: str, **fields: Any) -> list[str]:
    """List the texts of a figure: labels of axes, ticks and legends."""
    part, plot = settle_kind(semcom.study(folder), semcom.Plot(**fields))
    figure = draw_panels(KINDS.get(str(plot.kind)).numbers(part, plot), plot)
    axes = figure.axes[0]
    ticks = [text.get_text() for text in (*axes.get_xticklabels(), *axes.get_yticklabels())]
    legends = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    return [axes.get_xlabel(), axes.get_ylabel(), *ticks, *legends]


# -- methods ---------------------------------------------------------------------------------------------------------


def test_two_studies_have_their_own_labels(capsys: pytest.CaptureFixture[str]) -> None:
    """In any order, in Python and in the shell."""
    labelled("a", mine="Alpha")
    labelled("b", mine="Beta")
    labelled("c", mine="Gamma & co", other="Delta")
    for folder, own in {"b": ["Beta"], "c": ["Gamma & co", "Delta"], "a": ["Alpha"]}.items():
        study = semcom.study(folder)
        assert list(semcom.table(folder)["Method"]) == ["FedCL", *own]
        shown = [row.split(" | ")[0].strip("| ") for row in told(capsys, f"table {folder}") if row.startswith("| ")]
        assert shown[2:] == ["FedCL", *own] and f"\n{own[0]}".replace("&", r"\&") in make_sheet(study).latex()
        assert {"FedCL", *own} <= {*list_drawn(folder, kind="dots")} & {*list_drawn(folder, x="seed")}
        told(capsys, f"plot {folder} --kind gain --x channel.snr_db --over mine")
        assert f"minus that of {escape_tags(own[0])} in percentage" in Path(folder, "gain.md").read_text()


def test_a_report_of_two_studies_has_both_labels(capsys: pytest.CaptureFixture[str]) -> None:
    labelled("a", mine="Alpharo")
    labelled("b", mine="Betaro")
    told(capsys, "report a b --out both.html")
    told(capsys, "report b --out alone.html")
    both, alone = Path("both.html").read_text(), Path("alone.html").read_text()
    assert both.count("Alpharo") == both.count("Betaro") == alone.count("Betaro") > 3 and "Alpharo" not in alone


def test_one_name_with_two_labels_in_one_study_has_both() -> None:
    """A part or a variant of one of them has that one's."""
    labelled("s", range(2), mine="Alpha")
    labelled("s", range(2, 3), mine="Beta")
    assert list(semcom.table("s")["Method"]) == ["FedCL", "Alpha / Beta"]
    study = semcom.study("s")
    assert {study.where({"seed": seed}).labels.value("variant", "mine") for seed in (0, 2)} == {"Alpha", "Beta"}
    ours = [run for run in study.tests if run.variant == "mine"]
    first, *_, last = (replace(run, variant=f"mine with tau {run.field('seed')}") for run in ours)
    labels = Study([first, last], ()).labels
    assert labels.value("variant", first.variant) == "Alpha with tau 0"
    assert labels.value("variant", last.variant) == "Beta with tau 2"
    assert (
        labels.value("method", "mine") == "Alpha / Beta" and labels.value("variant", "mine all") == "Alpha / Beta all"
    )


def test_a_label_outlives_the_code_of_its_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine(FedAvg):
        """FedAvg under another name."""

        paper, label = "none", "My Averaging*"

    monkeypatch.undo()
    with monkeypatch.context() as registered:
        registered.setattr(METHODS, "_added", {**METHODS._added, "mine": Mine})
        for method in ("mine", "fedavg"):
            run(worlds.request(method, train={"rounds": 1}, out=str(tmp_path / "study" / method)))
    study = semcom.study(tmp_path / "study")
    assert study.variants == ["fedavg", "mine"], "what it is asked for by stays"
    assert list(semcom.table(study)["Method"]) == ["FedAvg", "My Averaging*"]
    page = semcom.report([tmp_path / "study"], out=tmp_path / "page.html").read_text()
    assert page.count("My Averaging*") >= 3 and ">mine<" not in page
    assert "label" not in semcom.load(tmp_path / "study" / "fedavg").summary


# -- metrics ---------------------------------------------------------------------------------------------------------


def test_two_tasks_may_call_different_numbers_alike(capsys: pytest.CaptureFixture[str]) -> None:
    """The best is the highest where more is better, and else nothing is marked; unit and digits are the task's."""
    judged("up", "up", Metric("score", "reward", unit="pt", digits=1))
    judged("down", "down", Metric("score", "misfit", unit="mm", higher=False, digits=4))
    judged("share", "share", Metric("score", "hits", share=True, digits=0))
    found = {
        "down": ("Misfit (mm)", ["2.0100 ± 0.0248", "3.0200 ± 0.0497"], "1.0100 mm higher in misfit"),
        "up": ("Reward (pt)", ["2.01 ± 0.02", "3.02 ± 0.05"], "1.01 pt higher in reward"),
        "share": ("Hits (%)", ["201 ± 2", "302 ± 5"], "101 percentage points higher in hits"),
    }
    for folder in (*found, *reversed(found)):
        title, shown, claim = found[folder]
        study, table = semcom.study(folder), semcom.table(folder)
        assert list(table.columns) == ["Method", title] and list(table[title]) == shown
        assert title in list_drawn(folder, kind="bars")
        best = "" if folder == "down" else "best"
        assert study.marked().set_index("variant")["mark"]["fedcl"] == best
        assert ("**" in "".join(told(capsys, f"table {folder}"))) == bool(best)
        assert f"fedcl is {claim} than fedavg" in "".join(told(capsys, f"compare {folder} fedcl fedavg"))
        assert str(study.compare("fedcl", "fedavg")) == "".join(told(capsys, f"compare {folder} fedcl fedavg"))
        assert study.labels.metric("score_worst10").shown_unit == title[title.index("(") + 1 : -1]
        assert not study.labels.metric("score_std").higher


@pytest.mark.parametrize("name", ["gain", "lead", "jain", "auc", "accuracy", "validation", "last"])
def test_a_task_may_use_a_name_that_is_taken(name: str) -> None:
    """Also that of the accuracy, whose derived numbers have no name before them."""
    metric = Metric(name, "loudness", unit="dB", higher=False, digits=2)
    judged("own", "own", metric)
    study = semcom.study("own")
    assert list(semcom.table(study).columns) == ["Method", "Loudness (dB)"] and set(study.marked()["mark"]) == {""}
    said = str(study.compare("fedcl", "fedavg"))
    assert said.startswith("fedcl is 1.01 dB higher in loudness than fedavg (3.02 dB against 2.01 dB")
    assert "Loudness (dB)" in list_drawn("own", kind="dots")
    assert semcom.table(study, metric.key("last")).columns[-1] == "Loudness in the last round (dB)"


def test_numbers_of_two_tasks_are_told_apart() -> None:
    """A headline that two tasks mean is of neither, as two headlines are; so is any other number that both have."""
    error = Metric("error", "error")
    judged("s", "up", error)
    judged("s", "down", Metric("error", "error", higher=False))
    with refuses("task", *(run_hash(config("fedcl", 2, task=task)) for task in ("up", "down"))):
        semcom.table("s")
    assert list(semcom.table("s", at={"task": "up"}).columns[-1:]) == ["Error"]
    judged("t", "up", error, Metric("size", "length", unit="m"), Metric("bias", "bias"))
    judged("t", "down", error, Metric("size", "weight", unit="kg"), Metric("bias", "bias"))
    assert list(semcom.table("t", "bias").columns) == ["Method", "Task", "Bias"]
    with refuses("metric", "size"):
        semcom.table("t", "size")
    with refuses("metric", "size"):
        semcom.study("t").compare_all(metric="size")
    with refuses("metric", "size"):
        semcom.plot("t", semcom.Plot(x="task", y="size"))
    assert semcom.table("t", "size", at={"task": "down"}).columns[-1] == "Weight (kg)"


def test_names_and_kinds_of_the_numbers_that_ship() -> None:
    """Where they are derived from the accuracy they follow it; lead and gain are differences of shares."""
    found = names.SHIPPED.metric
    assert found("accuracy") is ACCURACY and found("worst10").label == "accuracy of the worst 10 % of clients"
    assert [found(name).shown_unit for name in ("last", "gain", "jain", "no such")] == ["%", "points", "", ""]
    assert {name: found(name).higher for name in ("last", "accuracy_std", "auc", "no such")} == {
        "last": True, "accuracy_std": False, "auc": True, "no such": False,
    }  # fmt: skip
    assert found("accuracy_std").label == "deviation over clients" and found("no such").label == "no such"
