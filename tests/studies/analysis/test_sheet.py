"""Tables for papers: values, marks, digits, and text that Markdown and LaTeX can read."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pandas as pd
import pytest

import semcom
from semcom.config import run_hash
from semcom.studies.analysis.sheet import Sheet, make_sheet
from semcom.studies.analysis.study import Study
from tests.refusals import refuses
from tests.studies import folders
from tests.studies.folders import config, scored, simple, write

SNR = "channel.snr_db"


def cells(**fields: object) -> pd.DataFrame:
    """Three methods at one place: the first is best, the second second, and the third has one seed."""
    rows = {
        "variant": ["fedcl", "my_method & 50 %", "local"],
        "mean": [0.7, 0.65, 0.6],
        "low": [0.688, 0.64, None],
        "high": [0.712, 0.66, None],
        "n": [3, 3, 1],
        "mark": ["best", "second", ""],
    }
    return pd.DataFrame({**rows, **fields}).astype({"low": float, "high": float})


def test_markdown_has_means_half_widths_and_marks() -> None:
    text = Sheet(cells(), ("variant",), (), "accuracy").markdown()
    head, _, *lines = text.splitlines()
    assert head.startswith(
        "Accuracy in %, mean over 1 to 3 seeds; ±: 95 % intervals over seeds (Student's t), which what"
    )
    assert head.endswith(
        "Bold: best; underlined: second, where the difference to the next one, paired over seeds, can be told (zero is "
        "outside its 95 % interval, and p < 0.05, corrected by Holm for all such differences)."
    )
    assert lines == [
        "| Method | Accuracy |",
        "| --- | ---: |",
        "| FedCL | **70.0** ± 1.2 |",
        "| my_method & 50 % | <ins>65.0</ins> ± 1.0 |",
        "| Local | 60.0 |",
    ]
    assert "Bold" not in Sheet(cells(mark=""), ("variant",), (), "accuracy").markdown(), "nothing is said of no marks"


def test_two_seeds_have_no_interval_worth_printing() -> None:
    """Of 0.4 and 0.5 it would be 45.0 +- 63.5; nor has one of two seeds among others."""
    ends = {"low": [0.0], "high": [1.0], "std": [0.07]}
    pair = pd.DataFrame({"variant": ["fedavg"], "mean": [0.45], **ends, "n": [2]})
    text = Sheet(pair, ("variant",), (), "accuracy").markdown()
    assert "mean over 2 seeds, too few for an interval that is worth printing." in text and "| FedAvg | 45.0 |" in text
    assert "| FedAvg | 45.0 |" in Sheet(pair, ("variant",), (), "accuracy", spread="std").markdown()
    mixed = Sheet(cells(n=[3, 2, 1]), ("variant",), (), "accuracy").markdown()
    assert "which what has fewer than three seeds lacks" in mixed and "| <ins>65.0</ins> |" in mixed


def test_no_interval_of_a_percentage_passes_its_bounds(tmp_path: Path) -> None:
    """Of 98, 100 and 99 % it would be 99 +- 2.48, of 0, 1 and 5 % 2 +- 6.57; the deviations are 1.0 and 2.6 points."""
    for seed, (high, low) in enumerate(((0.98, 0.0), (1.0, 0.01), (0.99, 0.05))):
        simple(tmp_path, config("fedcl", seed), [high])
        simple(tmp_path, config("local", seed), [low])
    found = semcom.study(tmp_path)
    means = found.mean().set_index("variant")
    assert means.loc["fedcl", ["low", "high"]].tolist() == pytest.approx([0.9652, 1.0], abs=1e-4)
    assert means.loc["local", ["low", "high"]].tolist() == pytest.approx([0.0, 0.0857], abs=1e-4)
    assert found.rank()["high"].max() == 1 and found.pareto("rounds")["low"].min() == 0
    gained = found.compare("fedcl", "local")
    assert gained.high > 1, "a difference keeps its interval"
    sheet = make_sheet(found)
    text = sheet.markdown()
    assert "±: 95 % intervals over seeds (Student's t), in brackets where cut at 0 or 100 %." in text
    assert "| FedCL | **99.0** (96.5 to 100.0) |" in text and "| Local | 2.0 (0.0 to 8.6) |" in text
    assert r"FedCL & $\mathbf{99.0}$ (96.5 to 100.0) \\" in sheet.latex()
    deviations = make_sheet(found, spread="std")
    assert "**99.0** ± 1.0 |" in deviations.markdown() and "| 2.0 ± 2.6 |" in deviations.markdown()
    assert "brackets" not in deviations.markdown() and "std" in deviations.csv().splitlines()[0]


def test_the_standard_deviation_stands_in_the_place_of_the_interval(study: Study) -> None:
    """Of 50, 52 and 49 % it is 1.528 points, with S - 1; the interval's half is 3.8."""
    text = make_sheet(study.where({SNR: 0}), columns=[], spread="std").markdown()
    assert "| FedAvg | 50.3 ± 1.5 |" in text and "±: standard deviation over seeds" in text


def test_a_caption_says_of_which_rounds_and_in_which_setting_its_numbers_are(tmp_path: Path) -> None:
    """Runs of four rounds, of which FedBABU's view is of its last stage; defaults are named like all else."""
    for seed in range(3):
        simple(tmp_path, config("fedavg", seed), [0.5])
        of, tuned = config("fedbabu", seed), folders.line(5, {"personal": scored([0.6])})
        write(tmp_path / run_hash(of), of, [folders.line(4, {"global": scored([0.4])})], finish=tuned)
    found = semcom.study(tmp_path)
    text = make_sheet(found).latex()
    assert "The number of a run is the mean of its last 4 rounds or the one after its last stage (FedBABU)." in text
    assert "ways 3, encoder dcgan, features 64, channel awgn, SNR 10 dB, rounds 4" in text, "defaults, too"
    last = make_sheet(found, metric="last").markdown()
    assert last.startswith("Accuracy in the last round in %, ") and "The number of a run" not in last
    of_view = make_sheet(found, view={"fedbabu": "global"}).markdown()
    assert (
        "The number of a run is the mean of its last 4 rounds. Setting" in of_view and "| FedBABU | 40.0 |" in of_view
    )
    with refuses("view", "ditto", "fedavg, fedbabu"):
        make_sheet(found, view={"ditto": "global"})


def test_digits_show_the_interval() -> None:
    narrow = Sheet(cells(low=[0.6999, 0.64, None], high=[0.7001, 0.66, None]), ("variant",), (), "accuracy").markdown()
    assert "**70.00** ± 0.01" in narrow and "| Local | 60.00 |" in narrow
    plain = Sheet(cells(), ("variant",), (), "jain").markdown()
    assert "| FedCL | **0.700** ± 0.012 |" in plain and plain.startswith("Jain's index, mean over"), "no percentages"


def test_latex_is_balanced_and_escaped() -> None:
    text = Sheet(cells(), ("variant",), (), "accuracy").latex()
    for line in (
        r"FedCL & $\mathbf{70.0} \pm 1.2$ \\",
        r"my\_method \& 50 \% & $\underline{65.0} \pm 1.0$ \\",
        r"Local & $60.0$ \\",
    ):
        assert line in text
    assert text.startswith(
        "% \\usepackage{booktabs}\n\\begin{table}[t]\n\\centering\n\\caption{Accuracy in \\%, mean over "
    )
    assert (
        "(Student's t), which what has fewer than three seeds lacks.}\n\\label{tab:accuracy}\n\\begin{tabular}" in text
    )
    assert "\\footnotesize\nBold: best; underlined: second" in text, "what else there is to say stands below"
    named = Sheet(cells(mark=""), ("variant",), (), "accuracy").latex("my table_1")
    assert "\\label{tab:my-table-1}" in named and named.endswith("\\end{tabular}\n\\end{table}\n")
    assert [text.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")] == [1, 1, 1]
    assert re.findall(r"\\begin{(\w+)}", text) == re.findall(r"\\end{(\w+)}", text)[::-1] == ["table", "tabular"]
    body = text.partition("\n")[2]
    assert body.count("{") == body.count("}") and len(re.findall(r"(?<!\\)\$", body)) % 2 == 0 and "±" not in body
    assert not re.search(r"(?<!\\)[%#_]", body), "signs that LaTeX takes for something else"
    rows = [line for line in body.splitlines() if line.endswith(r"\\")]
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {1}


@pytest.fixture
def study(tmp_path: Path) -> Study:
    for snr, lead in ((0.0, 0.3), (9.0, 0.0)):
        for seed, accuracy in enumerate((0.5, 0.52, 0.49)):
            simple(tmp_path, config("fedavg", seed, snr), [accuracy, accuracy])
            simple(tmp_path, config("fedcl", seed, snr), [accuracy + lead + seed / 1000, accuracy + lead])
    return semcom.study(tmp_path)


def test_cells_are_the_marked_means_of_the_study(study: Study) -> None:
    found = make_sheet(study)
    pd.testing.assert_frame_equal(found.cells, study.marked())
    back = pd.read_csv(io.StringIO(found.csv()), keep_default_na=False)
    assert back["mean"].tolist() == pytest.approx(study.mean()["mean"].tolist(), rel=1e-15) and back[
        "mark"
    ].tolist() == ["", "", "best", ""]
    head, _, *lines = found.markdown().splitlines()[2:]
    assert head == "| Method | SNR 0 dB | SNR 9 dB |" and lines[1].startswith("| FedCL | **80.4** ± 3.8 | 50.4 ± ")
    turned = make_sheet(study, rows=[SNR], columns=["method"], metric="worst10")
    assert turned.markdown().splitlines()[2] == "| SNR (dB) | FedAvg | FedCL |"
    assert turned.cells["mean"].tolist() == study.mean([SNR, "method"], metric="worst10")["mean"].tolist()
    both = make_sheet(study, rows=["method", SNR], columns=["partition.ways"])
    assert both.markdown().splitlines()[2] == "| Method | SNR (dB) | ways 3 |", "a field that does not vary is one, too"


def test_a_study_shows_its_means_in_a_notebook(study: Study) -> None:
    text = study._repr_html_()
    assert text.startswith("<p>Study of 12 runs (12 done) of fedavg, fedcl; varied: channel.snr_db</p><table")
    assert f"<td>{study.mean()['mean'][0]:.6f}</td>" in text


@pytest.mark.parametrize(
    ("name", "markdown", "latex"),
    [
        ("[a] $x_{", "\\[a\\] $x\\_{", "{[}a{]} \\$x\\_\\{"),
        ("<b>|*c*", "&lt;b>/\\*c\\*", "\\textless{}b\\textgreater{}\\textbar{}*c*"),
        ("one\ntwo", "one\\\\ntwo", "one\\textbackslash{}ntwo"),
    ],
)
def test_names_are_taken_literally(name: str, markdown: str, latex: str, tmp_path: Path) -> None:
    """In tables, figures and the page."""
    runs = [config("fedcl", seed) for seed in (0, 1)]
    for of in runs:
        simple(tmp_path / "m", of, [0.2, 0.4])
    record = {"experiment": "e", "scale": "s", "command": "c", "variants": {run_hash(of): name for of in runs}}
    (tmp_path / "m" / "sweep.json").write_text(json.dumps(record))
    found = make_sheet(semcom.study(tmp_path / "m"))
    assert f"| {markdown} |" in found.markdown() and f"\n{latex} &" in found.latex()
    assert len(semcom.plot(tmp_path / "m", semcom.Plot(kind="bars", x="method"))) == 4
    page = semcom.report([tmp_path / "m"], out=tmp_path / "page.html")
    assert "<b>|" not in page.read_text(encoding="utf-8")
