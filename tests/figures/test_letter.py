"""The figures of FedCL's lead and of common encoders.

The numbers of the first are leads, its lines the letter's, its rings significant effects; those of the second are gains
in one setting each.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

import semcom
from semcom.config import ConfigError, PartitionConfig, run_hash
from semcom.plots import style
from semcom.plots.panels import draw_panels
from semcom.studies.analysis.sheet import Sheet
from semcom_papers.experiments.letter.lead import BASE
from semcom_papers.experiments.letter.regime import COMPARED, SETTINGS, name_in_regime
from semcom_papers.figures.letter import (
    LETTER_ENCODER,
    LETTER_FULL,
    LETTER_LEAD,
    LETTER_LEAD_LARGE,
    average_best_lambdas,
    compute_gains_in_settings,
    draw_stated_leads,
    draw_stated_leads_in_colours,
    label_gain_over_local,
    select_large_leads,
    tabulate_leads,
)
from tests.experiments.test_letter_lead import frame
from tests.studies.folders import config, line, scored, write


def study(values: dict[str, list[float]]) -> Any:
    return SimpleNamespace(runs=frame(values))


def at_lines(axes: Any) -> list[float]:
    """Return where dotted and dashed lines stand."""
    return [line.get_xdata()[0] for line in axes.lines if line.get_linestyle() in (":", "--")]


def test_leads_lines_and_rings() -> None:
    """With free power FedCL leads by 5, 6 and 7 points instead of 2, 2 and 2: an effect of 3, 4 and 5."""
    cells = tabulate_leads(
        study(
            {
                f"fedcl | {BASE}": [0.60, 0.62, 0.64],
                f"fedproto | {BASE}": [0.58, 0.60, 0.62],
                f"fedavg | {BASE}": [0.40, 0.42, 0.44],
                "fedcl | power: free": [0.55, 0.56, 0.57],
                "fedproto | power: free": [0.50, 0.50, 0.50],
                "fedcl | centroids: none": [0.58, 0.62, 0.63],
            }
        ),
        LETTER_LEAD.plot,
    )
    assert list(dict.fromkeys(cells["rival"])) == ["Lead over FedProto", "Lead over FedAvg"]
    found = cells.set_index(["rival", "level"])
    free = found.loc["Lead over FedProto", "power: free"]
    assert (free["mean"], free["effect"], free["told"]) == (pytest.approx(0.06), pytest.approx(0.04), True)
    assert found.loc["Lead over FedAvg", "base"]["mean"] == pytest.approx(0.2)
    assert not found.loc["Lead over FedProto", "centroids: none"]["told"]
    assert found.loc["Lead over FedAvg", "power: free"][["mean", "n"]].isna().tolist() == [True, False], "not run"
    page = Sheet(cells, ("level",), ("rival",), "lead").markdown().splitlines()
    assert page[0] == "Lead in points, mean over 3 seeds; ±: 95 % intervals over seeds (Student's t)."
    assert page[2] == "|  | Lead over FedProto | Lead over FedAvg |"
    assert "| power: free | 6.0 ± 2.5 |  |" in page, "FedAvg was not run"
    with style.ieee():
        figure = draw_panels(cells, LETTER_LEAD.plot)
        draw_stated_leads(figure, cells)
    ours, theirs = figure.axes
    assert at_lines(ours) == pytest.approx([0.1275, 0.2509])
    assert at_lines(theirs) == pytest.approx([0.3855, 0.6624])
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["differs from the base", "the letter, 20 clients", "the letter, 9 dB"]
    ring = ours.lines[-1]
    assert ring.get_xdata() == pytest.approx([0.06])
    names = {text.get_text(): place for text, place in zip(ours.get_yticklabels(), ours.get_yticks(), strict=True)}
    assert ring.get_ydata() == [names["power: free"]] and names["base"] == max(names.values()), "the base on top"


def test_the_first_page_has_the_levels_that_change_a_lead_most() -> None:
    """Free power takes 10, 11 and 12 points of the lead over FedAvg, own decoders 6 of both, no centroids 2."""
    found = study(
        {
            f"fedcl | {BASE}": [0.60, 0.62, 0.64],
            f"fedproto | {BASE}": [0.58, 0.60, 0.62],
            f"fedavg | {BASE}": [0.40, 0.42, 0.44],
            "fedcl | power: free": [0.55, 0.56, 0.57],
            "fedproto | power: free": [0.53, 0.54, 0.55],
            "fedavg | power: free": [0.45, 0.47, 0.49],
            "fedcl | centroids: none": [0.58, 0.60, 0.621],
            "fedcl | decoder: not averaged": [0.54, 0.56, 0.581],
        }
    )
    cells = select_large_leads(found, LETTER_LEAD_LARGE.plot)
    assert list(zip(cells["rival"], cells["level"], strict=True)) == [
        (f"Lead over {rival}", level)
        for rival in ("FedProto", "FedAvg")
        for level in (BASE, "power: free", "decoder: not averaged")
    ]
    assert cells["mean"].tolist() == pytest.approx([0.02, 0.02, -0.0397, 0.2, 0.09, 0.1403], abs=1e-4)
    with style.ieee():
        figure = draw_panels(cells, LETTER_LEAD_LARGE.plot)
        draw_stated_leads_in_colours(figure, cells)
    (axes,) = figure.axes
    stated_at = {(round(line.get_xdata()[0], 6), line.get_linestyle()): line.get_color() for line in axes.lines}
    blue, red = style.COLORS[:2]
    for value, dashes, colour in ((0.1275, ":", blue), (0.2509, "--", blue), (0.3855, ":", red), (0.6624, "--", red)):
        assert stated_at[value, dashes] == colour
    assert axes.get_xlabel() == "Lead of FedCL (points)" and figure.get_size_inches()[0] == style.WIDTH


def test_a_study_has_the_readings_too(tmp_path: Path) -> None:
    """Answers among own classes and best rounds are of a run's headline view, which its study has to name."""
    variants = {}
    for method, accuracy, own in (("fedcl", 0.6, 0.7), ("fedproto", 0.5, 0.65)):
        of = config(method)
        write(tmp_path / run_hash(of), of, [line(4, {"personal": scored([accuracy], among_own=own)})])
        variants[run_hash(of)] = f"{method} | {BASE}"
    (tmp_path / "sweep.json").write_text(
        json.dumps({"experiment": "x", "scale": "y", "command": "z", "variants": variants})
    )
    means = tabulate_leads(semcom.study(tmp_path), LETTER_LEAD.plot).set_index("level")["mean"]
    assert means[BASE] == pytest.approx(0.1) and means["number: best round"] == pytest.approx(0.1)
    assert means["answer: among own classes"] == pytest.approx(0.05)
    assert means["answer: FedCL's among own classes"] == pytest.approx(0.2)


def test_without_a_pair_there_is_nothing_to_draw() -> None:
    with pytest.raises(
        ConfigError, match=r"^results: FedCL and another arm have not both finished a run of any level$"
    ):
        tabulate_leads(study({f"fedcl | {BASE}": [0.6]}), LETTER_LEAD.plot)


def test_gains_are_over_local_in_the_same_setting(tmp_path: Path) -> None:
    """The n-th setting has n points more for all; FedPer gains 3 points there with 5 images, and loses 1 with 100."""
    gains = {("fedper", 5): 0.03, ("fedper", 100): -0.01}
    variants = {}
    for n, setting in enumerate(SETTINGS):
        for method in COMPARED:
            for q in (5, 100):
                for seed in range(2):
                    division = PartitionConfig(options={"ways": 3, "shots": q})
                    of = config(method.method, seed, snr=float(n), partition=division)
                    accuracy = (
                        0.5 + n / 100 + gains.get((method.name, q), 0.0) + seed * 0.001 * (method.name != "local")
                    )
                    write(tmp_path / run_hash(of), of, [line(4, {"personal": scored([accuracy])})])
                    variants[run_hash(of)] = name_in_regime(method.name, setting)
    about = {"experiment": "letter-encoder", "scale": "small", "command": "z", "variants": variants}
    (tmp_path / "sweep.json").write_text(json.dumps(about))
    cells = compute_gains_in_settings(semcom.study(tmp_path), LETTER_ENCODER.plot)
    assert list(dict.fromkeys(cells["place"])) == ["5 images of a class", "100 images of a class"]
    found = cells.set_index(["variant", "place", "setting"])["mean"]
    for setting in SETTINGS:
        assert found["fedper", "5 images of a class", setting] == pytest.approx(0.0305)
        assert found["fedper", "100 images of a class", setting] == pytest.approx(-0.0095)
        assert found[COMPARED[-1].name, "5 images of a class", setting] == pytest.approx(0.0005)
    with style.ieee():
        figure = draw_panels(cells, LETTER_ENCODER.plot)
        label_gain_over_local(figure, cells)
    few, many = figure.axes
    assert [text.get_text() for text in few.get_yticklabels()][::-1] == list(SETTINGS), "the map's on top"
    assert few.get_xlabel() == many.get_xlabel() == "Gain over Local (points)"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "FedPer",
        COMPARED[-1].name.replace("fedcl", "FedCL"),
    ]


def test_at_the_letters_size_an_arm_has_the_lambda_that_was_chosen_for_it() -> None:
    """FedCL's at 9 dB is another one than its default, which stays at -9 dB; FedProto's is not."""
    rows = [("fedcl", -9.0, 0.5), ("fedcl", 9.0, 0.6), ("fedproto", 9.0, 0.7)]
    rows.append(("fedcl with lambda chosen at 9 dB", 9.0, 0.65))
    cells = pd.DataFrame(rows, columns=["variant", "channel.snr_db", "mean"])
    asked: list[str] = []

    def mean(fields: list[str], metric: str) -> pd.DataFrame:
        asked.append(metric)
        return cells

    found = average_best_lambdas(SimpleNamespace(mean=mean), LETTER_FULL.plot)  # type: ignore[arg-type]
    assert asked == ["accuracy", "among_own"] and found["setting"].nunique() == 2
    shown = found[found["setting"] == "Among ten classes"].set_index(["variant", "channel.snr_db"])["mean"]
    assert shown.to_dict() == {("fedcl", -9.0): 0.5, ("fedproto", 9.0): 0.7, ("fedcl", 9.0): 0.65}
