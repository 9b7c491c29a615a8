"""The name that a method of one's own has in tables, figures and reports."""

from __future__ import annotations

from pathlib import Path

import pytest

import semcom
from semcom.methods.fedavg import FedAvg
from semcom.methods.registry import METHODS
from semcom.runs.rounds.runner import run
from semcom.studies import names
from tests import worlds


def test_a_label_is_shown_wherever_the_method_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the study is read later, without the code of the method."""

    class Mine(FedAvg):
        """FedAvg under another name."""

        paper, label = "none", "My Averaging*"

    with monkeypatch.context() as registered:
        registered.setattr(METHODS, "_added", {**METHODS._added, "mine": Mine})
        for method in ("mine", "fedavg"):
            run(worlds.request(method, train={"rounds": 1}, out=str(tmp_path / "study" / method)))
    monkeypatch.setattr(names, "METHODS", dict(names.METHODS))
    study = semcom.study(tmp_path / "study")
    assert study.variants == ["fedavg", "mine"], "what it is asked for by stays"
    assert list(semcom.table(study)["Method"]) == ["FedAvg", "My Averaging*"]
    assert names.name_place("method", "mine") == "My Averaging*", "as legends and axes have it"
    page = semcom.report([tmp_path / "study"], out=tmp_path / "page.html").read_text()
    assert page.count("My Averaging*") >= 3 and ">mine<" not in page
    assert "label" not in semcom.load(tmp_path / "study" / "fedavg").summary
