"""Figures whose lines are drawn by method, and the numbers of the one with two answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

import semcom
from semcom.studies.analysis.study import Study
from semcom.studies.names import SHIPPED
from semcom_papers.experiments.wireless_time import WIRELESS_TIME
from semcom_papers.figures.named import LETTER_FIG3B_OWN, OWN, WAYS, average_answers, choose_exchange_styles

ARCHIVE = Path(__file__).parents[2] / "experiments" / "results" / "letter-fig3b-small.zip"


def test_arms_have_the_colour_of_their_method_and_the_dashes_of_their_exchange() -> None:
    names = [variant.name for variant in WIRELESS_TIME.compared()]
    styles = choose_exchange_styles(names)
    assert len({style["color"] for style in styles.values()}) == 5, "five methods"
    assert len({(style["color"], str(style["linestyle"])) for style in styles.values()}) == len(names) == 10
    assert styles["fedper-8bit"]["linestyle"] == styles["fedavg-8bit"]["linestyle"] == "--"
    assert styles["fedper-8bit"]["color"] == styles["fedper"]["color"] and styles["fedper"]["linestyle"] == "-"
    assert not any("-" in SHIPPED.value("variant", name).replace("LG-", "") for name in names), "no raw names"


@pytest.mark.parametrize("failed", [0, 1])
def test_answers_among_own_classes_are_those_that_the_runs_tell(failed: int) -> None:
    """At m = 10 a client has all classes: there both are one number. A failed run of another m tells nothing."""
    found = semcom.study(ARCHIVE)
    stored = [replace(run, status="failed", summary=None) for run in found.stored[:failed]]
    study = Study([*stored, *found.stored[failed:]], found.axes, found.record)
    cells = average_answers(study, LETTER_FIG3B_OWN.plot).set_index(["variant", WAYS])["mean"]
    told = pd.DataFrame(
        [(run.variant, run.field(WAYS), (run.view() or {}).get("among_own")) for run in study.stored],
        columns=["variant", WAYS, "own"],
    )
    for (variant, ways), own in told.dropna().groupby(["variant", WAYS])["own"].mean().items():
        assert cells[variant + OWN, ways] == pytest.approx(own)
    assert cells["fedcl" + OWN, 10] == cells["fedcl", 10] and len(cells) == 2 * 15
