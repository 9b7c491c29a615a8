"""The report: its numbers are those of the study, nothing in it is loaded or executed, and it works in a browser."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import semcom
from semcom.cli import main as cli
from semcom.config import ConfigError, run_hash
from semcom.plots.report import data, report, tables
from semcom.studies.analysis.study import Study
from semcom.studies.results.archive import pack
from tests.studies.folders import TRAFFIC, begin, config, keep, line, scored, simple, write

HOSTILE = """</script><script>document.title = "taken"</script><!--<script>"'><img src=x onerror="alert(1)">&amp;"""
SNR = "channel.snr_db"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A method and one with a hostile name, at two SNRs with three seeds; a failed run, one at work, one to come."""
    found, names = tmp_path_factory.mktemp("home") / "s", dict[str, str]()
    for snr in (0.0, 9.0):
        for seed in range(3):
            for method, name, base in (("fedavg", "plain", 0.3), ("fedcl", HOSTILE, 0.5)):
                of = config(method, seed, snr, rounds=12)
                names[run_hash(of)] = name
                first = base + snr / 100 + seed / (50 if name == "plain" else 48)
                views = [
                    {"personal": scored([first + r / 100, first]), "global": scored([0.2, 0.3])} for r in range(12)
                ]
                write(found / run_hash(of), of, [line(r + 1, view) for r, view in enumerate(views)])
                keep(
                    found / run_hash(of),
                    of,
                    np.array([[[3, 1], [0, 4]]] * 2),
                    np.ones((2, 2), int),
                    np.ones((2, 2), int),
                )
    failed, active, coming = (config("fedavg", seed, 9.0, rounds=12) for seed in (3, 4, 5))
    begin(found / run_hash(failed), failed, [])
    (found / run_hash(failed) / "error.txt").write_text(f"RunError: {found}/x {HOSTILE}\n")
    begin(found / run_hash(active), active, [line(1, {"personal": scored([0.25, 0.5])})])
    names |= {run_hash(each): "plain" for each in (failed, active, coming)}
    record = {"experiment": "study", "scale": "own", "command": f"semcom sweep --out {found}", "variants": names}
    (found / "sweep.json").write_text(json.dumps(record))
    return found


class Page(HTMLParser):
    """What a browser sees of a page: its tags, its tables, its texts in JSON."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.text = path, path.read_text(encoding="utf-8")
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.rows: dict[str, list[list[str]]] = {}
        self.json: list[Any] = []
        self._table, self._into = "", ""
        self.feed(self.text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append((tag, given))
        if tag == "table":
            self._table = str(given["data-table"])
            self.rows[self._table] = []
        elif tag == "tr":
            self.rows[self._table].append([])
        elif tag in ("th", "td"):
            self.rows[self._table][-1].append("")
            self._into = "cell"
        elif tag == "script" and given.get("type") == "application/json":
            self._into = "json"

    def handle_endtag(self, tag: str) -> None:
        if tag in ("th", "td", "script"):
            self._into = ""

    def handle_data(self, text: str) -> None:
        if self._into == "cell":
            self.rows[self._table][-1][-1] += text
        elif self._into == "json":
            self.json.append(json.loads(text))


@pytest.fixture(scope="module")
def page(folder: Path) -> Page:
    return Page(report([folder], out=folder.parent / "page.html"))


# Its numbers ---------------------------------------------------------------------------------------------------------


def test_the_numbers_of_the_curves_are_those_of_the_study(folder: Path, page: Page) -> None:
    study, (found,) = semcom.study(folder), page.json
    assert found["variants"] == study.variants and found["views"] == ["personal", "global"]
    (axis,) = found["axes"]
    assert (axis["name"], axis["label"], axis["values"], axis["numeric"]) == (SNR, "SNR in dB", [0, 9], True)
    for row, mean in zip(found["means"], study.mean().to_dict("records"), strict=True):
        assert (study.variants[row["variant"]], axis["values"][row["at"][0]]) == (mean["variant"], mean[SNR])
        names = ("mean", "low", "high", "n")
        assert [row[name] for name in names] == pytest.approx([mean[name] for name in names], rel=1e-5)
    runs = study.runs[study.runs["status"] != "pending"].set_index("hash")
    assert set(found["runs"]) == set(runs.index)
    for key, run in found["runs"].items():
        accuracy = runs["accuracy"][key]
        assert run["accuracy"] == (None if np.isnan(accuracy) else pytest.approx(accuracy)), "null, as JSON has no NaN"
        assert run["words"] == f"seed {runs['seed'][key]:g}, SNR {runs[SNR][key]:g} dB"
    curves = {key: view["personal"] for key, view in found["curves"]["accuracy"].items()}
    for key, rows in study.rounds[study.rounds["view"] == "personal"].groupby("hash"):
        assert curves[key][0] == rows["round"].tolist() and curves[key][1] == pytest.approx(rows["accuracy"], rel=1e-5)
    assert len(curves) == 13, "the run at work has its curve so far"
    for key, rows in study.clients[study.clients["view"] == "personal"].groupby("hash"):
        assert found["clients"]["accuracy"][key]["personal"] == [
            [0, 1],
            pytest.approx(list(rows["accuracy"]), rel=1e-5),
        ]
    assert len(found["confusion"]["of"]) == found["confusion"]["kept"] == 12
    assert next(iter(found["confusion"]["of"].values())) == {"personal": [[6, 2], [0, 8]]}
    costs, pareto = found["costs"]["uses"], study.pareto("uses").to_dict("records")
    assert [(r["cost"], r["efficient"]) for r in costs] == [(r["cost"], r["efficient"]) for r in pareto]
    assert costs[0]["cost"] == 3 * TRAFFIC["uses"] * 2 * 12, "both directions, clients and rounds"


def test_the_tables_show_the_study(folder: Path, page: Page) -> None:
    study = semcom.study(folder)
    head, *means = page.rows["means"]
    assert head == ["method", "SNR in dB", "accuracy in %", "from", "to", "seeds", "interval"]
    expected = [
        [
            row["variant"],
            f"{row[SNR]:g}",
            *(f"{100 * row[n]:.1f}" for n in ("mean", "low", "high")),
            "3",
            row["interval"],
        ]
        for row in study.mean().to_dict("records")
    ]
    assert means == expected and means[0][-1] == "95 % t interval over 3 seeds"
    (failed,) = page.rows["failed"][1:]
    assert failed[:3] == ["plain", "9", "3"] and failed[3] == f"RunError: s/x {HOSTILE}", "no path of the user's"
    head, *runs = page.rows["runs"]
    assert len(runs) == 15 and [row[3] for row in runs].count("done") == 12 and head[-1] == "command"
    (key,) = study.where({"method": "fedcl", "seed": 1, SNR: 0}).runs["hash"]
    (row,) = (row for row in runs if key in row)
    words = shlex.split(row[-1])
    assert words == ["semcom", "train", "--config", f"s/{key}/config.json", "--out", f"repeated/{key}"]
    texts = page.text[page.text.rindex("</style>") :]
    assert "home" not in re.sub(r"<script>.*?</script>", "", texts, flags=re.DOTALL), "no path of the user's"


def test_marks_are_those_that_rank_supports(folder: Path, page: Page) -> None:
    marks = semcom.study(folder).rank()["mark"].tolist()
    cells = [given["class"] for tag, given in page.tags if tag == "td" and "class" in given]
    assert marks.count("best") == 2 == sum("best" in each.split() for each in cells), "at both SNRs"
    assert "second" not in " ".join(map(str, cells))


def test_one_seed_has_neither_interval_nor_rank(tmp_path: Path) -> None:
    for method, accuracy in (("fedcl", 0.9), ("fedavg", 0.1)):
        simple(tmp_path / "s", config(method), [accuracy, accuracy])
    page = Page(report([tmp_path / "s"]))
    assert page.rows["means"][1:] == [
        ["fedavg", "10.0", "", "", "1", "none: one seed"],
        ["fedcl", "90.0", "", "", "1", "none: one seed"],
    ]
    assert "none: each point has one seed" in page.text and "No rank is marked" in page.text
    assert page.json[0]["means"][0]["low"] is None and "confusion" in page.json[0]


def test_the_test_snr_is_an_axis(tmp_path: Path) -> None:
    """Means and runs at each; curves, clients and classes belong to the first one, whose runs come first."""
    of = config()
    key = run_hash(of := replace(of, channel=replace(of.channel, test_snr_db="9,-15")))
    views = {"personal": scored([0.25, 0.75], at={"9": 0.5, "-15": 0.125})}
    write(tmp_path / "s" / key, of, [line(1, views)])
    page = Page(report([tmp_path / "s"]))
    (data,) = page.json
    assert [(axis["name"], axis["values"]) for axis in data["axes"]] == [("test_snr_db", [-15, 9])]
    assert [(row["at"], row["mean"]) for row in data["means"]] == [([0], 0.125), ([1], 0.5)]
    assert [(k, run["at"], run["accuracy"]) for k, run in data["runs"].items()] == [
        (key, [1], 0.5),
        (f"{key} at -15 dB", [0], 0.125),
    ]
    assert set(data["curves"]["accuracy"]) == set(data["clients"]["accuracy"]) == set(data["classes"]) == {key}
    assert [row[1] for row in page.rows["runs"][1:]] == ["9"] and [row[1] for row in page.rows["means"][1:]] == [
        "-15",
        "9",
    ]


def test_a_view_a_part_and_several_studies(folder: Path, tmp_path: Path) -> None:
    found = Page(report([folder], view="global", at={SNR: "9"}, out=tmp_path / "part.html"))
    assert {row["mean"] for row in found.json[0]["means"]} == {0.25} and len(found.json[0]["axes"][0]["values"]) == 1
    simple(tmp_path / "other", config("fedproto"), [0.5, 0.75])
    both = Page(report([folder, tmp_path / "other"], out=tmp_path / "both.html"))
    assert [each["variants"] for each in both.json] == [semcom.study(folder).variants, ["fedproto"]]
    to = [given["href"] for tag, given in both.tags if tag == "a"]
    assert to == [f"#{given['id']}" for tag, given in both.tags if tag == "main"] and len(to) == 2
    assert not [tag for tag, _ in found.tags if tag == "a"], "of one study there are no contents"
    with pytest.raises(ConfigError, match="^view: .* has no view 'persnal'; it has personal, global$"):
        report([folder], view="persnal")
    with pytest.raises(ConfigError, match="^FOLDER: none is given, or one twice"):
        report([folder, folder / ".." / "s"])


def test_what_is_too_much_is_thinned_out_or_left_out_with_a_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, most in (("MOST_POINTS", 200), ("MOST_CLIENTS", 30), ("MOST_CELLS", 20)):
        monkeypatch.setattr(data, name, most)
    monkeypatch.setattr(tables, "MOST_COMPARISONS", 1)
    page = Page(report([folder], out=folder.parent / "less.html"))
    (found,) = page.json
    study: Study = semcom.study(folder)
    assert found["curves"]["every"] == -(-(len(study.rounds) + 145) // 200) == 3
    assert found["clients"]["every"] == 2 and found["confusion"]["kept"] == 12 and len(found["confusion"]["of"]) == 5
    lengths = {key: views["personal"][0] for key, views in found["curves"]["accuracy"].items()}
    assert sorted(map(len, lengths.values())) == [1] + [4] * 12 and {rounds[-1] for rounds in lengths.values()} == {
        1,
        12,
    }
    assert "A report makes 1 comparisons at most, and 1 x 2 are possible" in page.text


# What a page must not do ---------------------------------------------------------------------------------------------


def test_nothing_is_loaded_and_nothing_escapes(page: Page) -> None:
    for tag, given in page.tags:
        assert not {"src", "href", "srcset", "action"} & given.keys(), (tag, given)
        assert not any(name.startswith("on") for name in given), (tag, given)
    tags = [tag for tag, _ in page.tags]
    assert tags.count("script") == 3 and "img" not in tags and "link" not in tags and "iframe" not in tags
    (policy,) = (g["content"] for t, g in page.tags if t == "meta" and g.get("http-equiv") == "Content-Security-Policy")
    assert str(policy).startswith("default-src 'none'; ") and "http" not in str(policy)


def test_the_command_writes_a_page_and_refuses_what_is_wrong(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    assert cli.main(["report", "s", "--at", "seed=0,1"]) == 0
    assert capsys.readouterr().out == "report: s/report.html\n" and len(Page(Path("s/report.html")).rows["runs"]) == 9
    for words, error in (
        ("report", "FOLDER: none is given"),
        ("report nowhere", "study: nowhere is no folder"),
        ("report s --view personnel", "view: "),
        ("report s --at snr", "at: 'snr' is not field=value"),
    ):
        assert cli.main(words.split()) == 2
        assert capsys.readouterr().err.startswith(f"semcom: error: {error}")


# In a browser --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium without a window and without a network."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("needs chromium and chromedriver")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "window-size=1200,900"):
        options.add_argument(f"--{flag}")
    options.add_argument("--proxy-server=127.0.0.1:9")  # where nobody answers
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    opened = webdriver.Chrome(options=options, service=Service(driver))
    try:
        yield opened
    finally:
        opened.quit()


PLOT = "document.querySelector('[data-figure=%s] .plot')"


def test_the_page_works_in_chromium(browser: Any, page: Page, folder: Path) -> None:
    from selenium.webdriver import ActionChains

    browser.get(page.path.as_uri())
    ask, plot = browser.execute_script, PLOT
    traces = f"return {plot}.data.map(t => [t.meta, t.visible])"
    assert browser.title == "s", "the hostile name is no script"
    drawn = "return [...document.querySelectorAll('.plot')].filter(p => p.querySelector('svg')).length"
    assert ask(drawn) == 6

    # Methods are switched on and off in all figures at once, by their buttons and by legends.
    ask("document.querySelectorAll('.method')[1].click()")
    for name in ("accuracy", "curves", "clients"):
        assert {tuple(each) for each in ask(traces % name)} == {(0, True), (1, "legendonly")}
    assert ask(f"return {plot % 'classes'}.data[0].y.length") == 1
    legend = browser.find_elements("css selector", "[data-figure=curves] .legendtoggle")
    legend[1].click()
    wait_for(lambda: {tuple(each) for each in ask(traces % "accuracy")} == {(0, True), (1, True)})

    # The point is chosen for all figures that show one.
    lengths = f"return {plot % 'curves'}.data.map(t => t.y[t.y.length - 1])"
    before = ask(lengths)
    ask("const s = document.querySelector('.bar select'); s.value = '1'; s.dispatchEvent(new Event('change'))")
    assert before != ask(lengths) and len(before) == 8

    # Nothing is sent anywhere.
    buttons = ask("return [...document.querySelectorAll('.modebar-btn')].map(b => b.dataset.title)")
    assert "Download plot as a PNG" in buttons and not re.search("cloud|studio|share|link", " ".join(buttons), re.I)

    # A click on a column sorts by its numbers, a second one the other way round.
    column = "return [...document.querySelectorAll('table[data-table=runs] tbody tr')].map(r => r.cells[4].textContent)"
    click = "document.querySelectorAll('table[data-table=runs] th button')[4].click()"
    expected = sorted(f"{100 * value:.1f}" for value in semcom.study(folder).runs["accuracy"].dropna())
    ask(click)
    assert ask(column) == [*expected, "", "", ""]
    ask(click)
    assert ask(column) == [*expected[::-1], "", "", ""], "what is not known stays last"

    # The filter leaves the rows with all of its words.
    ask("const f = document.querySelector('.filter'); f.value = 'plain failed'; f.dispatchEvent(new Event('input'))")
    assert ask("return document.querySelector('.count').textContent") == "1 of 15"

    # A click on a point shows the command that repeats its run.
    run = ask(f"return {plot % 'accuracy'}.data[0].customdata[1]")
    point = browser.find_elements("css selector", "[data-figure=accuracy] .trace:first-child .point")[1]
    ask("arguments[0].scrollIntoView({block: 'center'})", point)
    ActionChains(browser).move_to_element(point).pause(0.1).click().perform()
    shown = browser.find_element("css selector", ".panel")
    assert shown.is_displayed() and run[0] in shown.text
    (row,) = (r for r in page.rows["runs"] if run[0] in r)
    assert shown.find_element("css selector", "pre").text == row[-1]

    assert [entry["message"] for entry in browser.get_log("browser")] == []


def test_references_test_snrs_and_texts(browser: Any, tmp_path: Path) -> None:
    """`reference` has one run, at 10 dB, beside those of `plain`, each tested at two SNRs; there are two seeds."""
    names = {}
    for name, method, snr in (("plain", "fedcl", 0.0), ("plain", "fedcl", 10.0), ("<b>ref</b>", "fedavg", 10.0)):
        for seed in (0, 1):
            of = config(method, seed, snr, rounds=1)
            of = replace(of, channel=replace(of.channel, test_snr_db="5,-5"))
            names[run_hash(of)] = name
            views = {"personal": scored([0.5, 0.7], at={"-5": 0.25 + snr / 100, "5": 0.75})}
            write(tmp_path / "s" / run_hash(of), of, [line(1, views)])
    (tmp_path / "s" / "sweep.json").write_text(json.dumps({"variants": names}))
    browser.get(report([tmp_path / "s"]).as_uri())
    ask = browser.execute_script
    shown = f"return {PLOT % 'accuracy'}.data.filter(t => t.mode != 'markers').map(t => [t.name, t.x, t.y])"
    order = semcom.study(tmp_path / "s").variants
    found = {name: (x, y) for name, x, y in ask(shown)}
    assert found["plain"] == ([0, 10], [75, 75]) and found["&lt;b&gt;ref&lt;/b&gt;"] == ([10], [75])
    assert sorted(order) == ["<b>ref</b>", "plain"]
    assert "<b>ref</b> at SNR 10 dB" in browser.find_element("css selector", "[data-figure=curves] .note").text
    legends = browser.find_elements("css selector", "[data-figure=curves] .legendtext")
    assert sorted(each.text for each in legends) == sorted(order), "shown as it is, at whatever SNR is chosen"
    ask("const s = document.querySelector('[data-figure=accuracy] select'); s.value = 'axis1';"
        "s.dispatchEvent(new Event('change'))")  # fmt: skip
    found = {name: (x, y) for name, x, y in ask(shown)}
    assert found["plain"] == ([-5, 5], [25, 75]) and found["&lt;b&gt;ref&lt;/b&gt;"] == ([-5, 5], [35, 75])
    assert "No run kept its confusion" in browser.find_element("css selector", "[data-figure=confusion]").text
    assert [entry["message"] for entry in browser.get_log("browser")] == []


def wait_for(holds: Any, seconds: float = 5.0) -> None:
    """Wait until something holds, at most for some seconds; Plotly waits for a second click on a legend."""
    waited = threading.Event()
    for _ in range(int(seconds / 0.05)):
        if holds():
            return
        waited.wait(0.05)
    raise AssertionError("it has not come to hold")


def test_a_study_without_a_finished_run_and_an_archive(tmp_path: Path) -> None:
    active = config("fedcl")
    begin(tmp_path / "begun" / run_hash(active), active, [line(1, {"personal": scored([0.25, 0.5])})])
    text = report([tmp_path / "begun"]).read_text("utf-8")
    assert "1 (1 unfinished)" in text
    simple(tmp_path / "done", config("fedproto"), [0.5, 0.75])
    path = report([pack(tmp_path / "done")])
    assert path == tmp_path / "done.html" and "1 (1 done)" in path.read_text("utf-8")
    assert "Finished" not in path.read_text("utf-8")[:20000], "an archive keeps no dates"
