"""The report has the numbers of the study, loads no other file, and works in a browser."""

from __future__ import annotations

import base64
import importlib.util
import json
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import semcom
from semcom.channels.scene import read_scene
from semcom.cli import main as cli
from semcom.config import ConfigError, DataConfig, run_hash
from semcom.plots.report import figures, report, tables
from semcom.plots.report.subject import Subject
from semcom.studies.results.archive import pack_archive
from tests import worlds
from tests.studies.folders import TRAFFIC, begin, config, keep, line, scored, simple, write

HOSTILE = """</script><script>document.title = "taken"</script><!--<script>"'><img src=x onerror="alert(1)">&amp;"""
SNR = "channel.snr_db"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write runs of two methods (one name is hostile), two SNRs, three seeds, and a failed, active and waiting run."""
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
    """A page parsed like a browser: its tags, tables, and figures with the choices of their menus."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.text = path, path.read_text(encoding="utf-8")
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.rows: dict[str, list[list[str]]] = {}
        self.figures: dict[str, Any] = {}
        self.choices: dict[str, dict[str, Any]] = {}
        self._table, self._figure, self._into, self._cell = "", "", "", False
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
            self._cell = True
        elif tag == "section" and "data-figure" in given:
            self._figure = str(given["data-figure"])
            self.choices[self._figure] = {}
        self._into = str(given["value"]) if tag == "option" else tag

    def handle_endtag(self, tag: str) -> None:
        self._into, self._cell = "", self._cell and tag not in ("th", "td")

    def handle_data(self, text: str) -> None:
        if self._cell:
            self.rows[self._table][-1][-1] += text
        elif self._into == "script" and self._figure and "Plotly.newPlot" in text:
            decoder, place = json.JSONDecoder(object_hook=numbers), text.index("[", text.index("Plotly.newPlot"))
            traces, end = decoder.raw_decode(text, place)
            layout, _ = decoder.raw_decode(text, text.index("{", end))
            self.figures[self._figure] = traces, layout
        elif self._into.startswith("{"):
            self.choices[self._figure][text] = json.loads(self._into)

    def shown(self, figure: str, words: str) -> list[dict[str, Any]]:
        """The traces that a choice shows."""
        return [self.figures[figure][0][i] for i in self.choices[figure][words]["traces"]]


def numbers(found: dict[str, Any]) -> Any:
    """Plotly's arrays of numbers, which it writes in base64."""
    if "bdata" not in found:
        return found
    array = np.frombuffer(base64.b64decode(found["bdata"]), np.dtype(found["dtype"]))
    return array.reshape([int(n) for n in found["shape"].split(",")] if "shape" in found else -1).tolist()


@pytest.fixture(scope="module")
def page(folder: Path) -> Page:
    return Page(report([folder], out=folder.parent / "page.html"))


# Its numbers ---------------------------------------------------------------------------------------------------------


def test_the_numbers_of_the_figures_are_those_of_the_study(folder: Path, page: Page) -> None:
    study = semcom.study(folder)
    means, runs = study.mean(), study.runs[study.runs["status"] == "done"]
    names = [escape(name, quote=False) for name in study.variants]
    assert list(page.choices["accuracy"]) == ["along SNR in dB", "each method, SNR 0 dB", "each method, SNR 9 dB"]
    traces = page.shown("accuracy", "along SNR in dB")
    assert [(trace["name"], trace["mode"]) for trace in traces[:2]] == [(name, "lines+markers") for name in names]
    for name, mean, single in zip(study.variants, traces[:2], traces[2:], strict=True):
        rows, own = means[means["variant"] == name], runs[runs["variant"] == name]
        assert mean["x"] == rows[SNR].tolist() == [0, 9] and mean["y"] == pytest.approx(100 * rows["mean"])
        bars = mean["error_y"]["array"], mean["error_y"]["arrayminus"]
        assert bars[0] == pytest.approx(100 * (rows["high"] - rows["mean"]), rel=1e-5) == bars[1]
        assert dict(zip([key for _, key in single["customdata"]], single["y"], strict=True)) == pytest.approx(
            dict(zip(own["hash"], 100 * own["accuracy"], strict=True))
        )
    each = page.shown("accuracy", "each method, SNR 9 dB")
    assert [trace["x"][0] for trace in each[:2]] == names and page.figures["accuracy"][1]["xaxis"]["type"] == "linear"
    assert [trace["visible"] for trace in page.figures["accuracy"][0]] == [True] * 4 + [False] * 8

    views = ["", ", view personal", ", view global"]
    points = [f"SNR {snr} dB" for snr in (0, 9)]
    assert list(page.choices["curves"]) == [
        *(point + view for point in points for view in views),
        *(f"training loss, {point}" for point in points),
    ]
    assert page.choices["curves"]["SNR 9 dB"] == page.choices["curves"]["SNR 9 dB, view personal"]
    thin, thick, *others = page.shown("curves", "SNR 9 dB")
    rows = study.rounds[(study.rounds["view"] == "personal") & (study.rounds[SNR] == 9)]
    rows = rows[rows["variant"] == "plain"]
    gaps = [np.isnan(value) for value in thin["y"]]
    assert sum(gaps) == 4 and gaps[12] and thin["customdata"][:13] == [0] * 13, "that of the run at work is the last"
    assert [value for value in thin["y"] if value == value] == pytest.approx(100 * rows["accuracy"])
    done = rows[rows["hash"].isin(runs["hash"])].groupby("round")["accuracy"].mean()
    assert thick["x"] == list(range(1, 13)) and thick["y"] == pytest.approx(100 * done), "without the run at work"
    assert page.shown("curves", "training loss, SNR 9 dB")[1]["y"] == pytest.approx([1 / r for r in range(1, 13)])

    box = page.shown("clients", "SNR 0 dB, view personal")[1]
    rows = study.clients.query("variant != 'plain' and view == 'personal'").query(f"`{SNR}` == 0")
    assert box["y"] == pytest.approx(100 * rows["accuracy"]) and box["customdata"][:3] == [[0, 0], [1, 0], [0, 1]]
    (shares,) = page.shown("classes", "SNR 0 dB")
    assert shares["y"] == names and shares["z"][0][0] == 50 and np.isnan(shares["z"][0][1])
    assert len(page.choices["confusion"]) == 12
    (matrix,) = page.shown("confusion", "plain, SNR 0 dB, seed 0, view personal")
    assert matrix["customdata"] == [[6, 2], [0, 8]] and matrix["z"] == [[75, 25], [0, 100]]

    front, *marks = page.shown("costs", "channel uses, SNR 9 dB")
    pareto = study.pareto("uses").query(f"`{SNR}` == 9")
    assert [mark["x"] for mark in marks] == [[cost] for cost in pareto["cost"]] == [[3 * TRAFFIC["uses"] * 2 * 12]] * 2
    assert [mark["marker"]["color"] != figures.CLEAR for mark in marks] == pareto["efficient"].tolist() == [False, True]
    assert front["y"] == marks[1]["y"]


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
    assert marks.count("best") == 2 == sum("best" in str(each).split() for each in cells), "at both SNRs"
    assert "second" not in " ".join(map(str, cells))


def test_one_seed_has_neither_interval_nor_rank(tmp_path: Path) -> None:
    for method, accuracy in (("fedcl", 0.9), ("fedavg", 0.1)):
        simple(tmp_path / "s", config(method), [accuracy, accuracy])
    page = Page(report([tmp_path / "s"]))
    assert page.rows["means"][1:] == [
        ["FedAvg", "10.0", "", "", "1", "none: one seed"],
        ["FedCL", "90.0", "", "", "1", "none: one seed"],
    ]
    assert "none: each point has one seed" in page.text and "None is marked as best: nowhere can" in page.text
    assert page.figures["accuracy"][0][0]["error_y"]["array"] == [0] and page.choices["confusion"] == {}


@pytest.mark.parametrize(("rounds", "step"), [(3, 1), (10, 1), (12, 2), (40, 5), (200, None)])
def test_rounds_have_whole_ticks_and_the_page_a_title(rounds: int, step: int | None, tmp_path: Path) -> None:
    of = config(rounds=rounds)
    scores = {"personal": scored([0.25, 0.75])}
    write(tmp_path / "s" / run_hash(of), of, [line(1, scores), line(rounds, scores)])
    page = Page(report([tmp_path / "s"], title="<i>My</i> study"))
    assert page.figures["curves"][1]["xaxis"].get("dtick") == step
    assert "<title>&lt;i&gt;My&lt;/i&gt; study</title>" in page.text
    assert "<h1>&lt;i&gt;My&lt;/i&gt; study</h1>" in page.text and "<h2>s</h2>" in page.text


def test_without_the_extra_one_line_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    simple(tmp_path / "s", config(), [0.5, 0.75])
    there = importlib.util.find_spec
    monkeypatch.setattr("semcom.packages.find_spec", lambda name: None if name == "plotly" else there(name))
    assert cli.main(["report", str(tmp_path / "s")]) == 2
    assert capsys.readouterr().err == "semcom: error: report: the page needs plotly; pip install 'semcom[report]'\n"
    assert not (tmp_path / "s" / "report.html").exists()


def test_the_test_snr_is_an_axis(tmp_path: Path) -> None:
    """Means and runs have each test SNR. Curves, clients and classes use the first one, which leads in the runs."""
    of = config()
    key = run_hash(of := replace(of, channel=replace(of.channel, test_snr_db="9,-15")))
    views = {"personal": scored([0.25, 0.75], at={"9": 0.5, "-15": 0.125})}
    write(tmp_path / "s" / key, of, [line(1, views)])
    page = Page(report([tmp_path / "s"]))
    mean, single = page.shown("accuracy", "along test SNR in dB")
    assert (mean["x"], mean["y"]) == ([-15, 9], [12.5, 50]) and sorted(single["y"]) == [12.5, 50]
    assert all("9 dB" in words for name in ("curves", "clients", "classes") for words in page.choices[name])
    assert {name for name, (traces, _) in page.figures.items() if traces} >= {"curves", "clients", "classes"}
    assert [row[1] for row in page.rows["runs"][1:]] == ["9"] and [row[1] for row in page.rows["means"][1:]] == [
        "-15",
        "9",
    ]


def test_a_view_a_part_and_several_studies(folder: Path, tmp_path: Path) -> None:
    found = Page(report([folder], view="global", at={SNR: "9"}, out=tmp_path / "part.html"))
    assert [trace["y"][0] for trace in found.figures["accuracy"][0]] == [25] * 4 and not found.choices["accuracy"]
    simple(tmp_path / "other", config("fedproto"), [0.5, 0.75])
    both = Page(report([folder, tmp_path / "other"], out=tmp_path / "both.html"))
    assert both.text.count('"plot-0-accuracy",') == both.text.count('"plot-1-accuracy",') == 1
    to = [given["href"] for tag, given in both.tags if tag == "a"]
    assert to == [f"#{given['id']}" for tag, given in both.tags if tag == "main"] and len(to) == 2
    assert not [tag for tag, _ in found.tags if tag == "a"], "of one study there are no contents"
    with pytest.raises(ConfigError, match="^view: .* has no view 'persnal'; it has personal, global$"):
        report([folder], view="persnal")
    with pytest.raises(ConfigError, match="^FOLDER: none is given, or one twice"):
        report([folder, folder / ".." / "s"])


def test_what_is_too_much_is_thinned_out_or_left_out_with_a_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, most in (("MOST_POINTS", 200), ("MOST_CLIENTS", 30), ("MOST_CELLS", 20)):
        monkeypatch.setattr(figures, name, most)
    monkeypatch.setattr(tables, "MOST_COMPARISONS", 1)
    page = Page(report([folder], out=folder.parent / "less.html"))
    every = -(-(len(semcom.study(folder).rounds) + 145) // 200)
    assert every == 3 and "To save room, one evaluation of 3 is shown" in page.text
    assert "one client of 2 is shown" in page.text and "the matrices of 5 of 12 runs are here" in page.text
    assert page.shown("curves", "SNR 0 dB")[0]["x"][:5] == [3, 6, 9, 12, 12] and len(page.choices["confusion"]) == 5
    assert page.shown("clients", "SNR 0 dB, view personal")[0]["customdata"] == [[0, 0], [0, 1], [0, 2]]
    assert "A report makes 1 comparisons at most, and 1 x 2 are possible" in page.text


# What a page must not do ---------------------------------------------------------------------------------------------


def test_nothing_is_loaded_and_nothing_escapes(page: Page) -> None:
    for tag, given in page.tags:
        assert not {"src", "href", "srcset", "action"} & given.keys(), (tag, given)
        assert not any(name.startswith("on") for name in given), (tag, given)
    tags = [tag for tag, _ in page.tags]
    assert (
        tags.count("script") == 2 + len(page.figures) == 8
        and "img" not in tags
        and "link" not in tags
        and "iframe" not in tags
    )
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


PLOT = "document.querySelector('[data-figure=%s] .plotly-graph-div')"


def test_the_page_works_in_chromium(browser: Any, page: Page, folder: Path) -> None:
    browser.get(page.path.as_uri())
    ask, plot = browser.execute_script, PLOT
    assert browser.title == "s", "the hostile name is no script"
    drawn = "return [...document.querySelectorAll('.plotly-graph-div')].filter(p => p.querySelector('svg')).length"
    assert ask(drawn) == 6
    legend = browser.find_elements("css selector", "[data-figure=curves] .legendtext")
    assert [each.text for each in legend] == semcom.study(folder).variants, "as they are"

    # A menu chooses the point that its figure shows.
    shown = f"return {plot % 'curves'}.data.flatMap((t, i) => t.visible ? [i] : [])"
    assert ask(shown) == page.choices["curves"]["SNR 0 dB"]["traces"]
    ask("const s = document.querySelector('[data-figure=curves] select'); s.selectedIndex = 3;"
        "s.dispatchEvent(new Event('change'))")  # fmt: skip
    assert ask(shown) == page.choices["curves"]["SNR 9 dB"]["traces"]

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
    assert [entry["message"] for entry in browser.get_log("browser")] == []


def test_the_page_and_its_figures_follow_the_colours_of_the_system(browser: Any, page: Page) -> None:
    def see(scheme: str) -> list[str]:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        browser.get(page.path.as_uri())
        parts = [
            ("body", "backgroundColor"),
            ("body", "color"),
            *((f"[data-figure=curves] {text}", "fill") for text in (".xtick text", ".ytitle", ".legendtext")),
            ("[data-figure=confusion] .heatmap-label text", "fill"),
            ("[data-figure=curves] .main-svg", "backgroundColor"),
        ]
        ask = "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]"
        return [browser.execute_script(ask, *part) for part in parts]

    dark, light, clear = "rgb(26, 26, 26)", "rgb(230, 230, 230)", "rgba(0, 0, 0, 0)"
    assert see("light") == ["rgb(255, 255, 255)", *[dark] * 5, clear]
    assert see("dark") == ["rgb(22, 24, 28)", *[light] * 4, dark, clear], "cells of maps are light"


def test_references_test_snrs_and_texts(tmp_path: Path) -> None:
    """`reference` has one run at 10 dB beside those of `plain`, each tested at two SNRs with two seeds."""
    names = {}
    for name, method, snr in (("plain", "fedcl", 0.0), ("plain", "fedcl", 10.0), ("<b>ref</b>", "fedavg", 10.0)):
        for seed in (0, 1):
            of = config(method, seed, snr, rounds=1)
            of = replace(of, channel=replace(of.channel, test_snr_db="5,-5"))
            names[run_hash(of)] = name
            views = {"personal": scored([0.5, 0.7], at={"-5": 0.25 + snr / 100, "5": 0.75})}
            write(tmp_path / "s" / run_hash(of), of, [line(1, views)])
    (tmp_path / "s" / "sweep.json").write_text(json.dumps({"variants": names}))
    page, order = Page(report([tmp_path / "s"])), semcom.study(tmp_path / "s").variants
    assert sorted(order) == ["<b>ref</b>", "plain"]
    texts = {"plain": "plain", "<b>ref</b>": "&lt;b&gt;ref&lt;/b&gt;"}

    def means(words: str) -> dict[str, Any]:
        return {t["name"]: (t["x"], t["y"]) for t in page.shown("accuracy", words) if t["mode"] == "lines+markers"}

    along = means("along SNR in dB, test SNR 5 dB")
    assert along == {"plain": ([0, 10], [75, 75]), texts["<b>ref</b>"]: ([10], [75])}
    assert means("along test SNR in dB, SNR 0 dB") == {
        "plain": ([-5, 5], [25, 75]),
        texts["<b>ref</b>"]: ([-5, 5], [pytest.approx(35), 75]),
    }
    for words in page.choices["curves"]:  # that of the reference is shown at whatever SNR is chosen
        assert {trace["name"] for trace in page.shown("curves", words)} == {*texts.values()}
    assert "No run kept its confusion" in page.text
    assert "at no higher cost among the runs of its own point" in page.text, "where one stands at several"


def test_a_file_is_sorted_by_its_name(tmp_path: Path) -> None:
    for name in ("/home/me/own.npz", "mnist"):
        simple(tmp_path / "s", config(data=DataConfig(name)), [0.5, 0.75])
    page = Page(report([tmp_path / "s"]))
    keys = [given.get("data-sort") for tag, given in page.tags if tag == "td"]
    assert "own.npz" in keys and "/home/me" not in page.text


def test_clients_stand_on_a_map_where_they_have_places(tmp_path: Path) -> None:
    """Of a method at a time, at the places of summary.json, with the buildings of their scene, and its base at 0."""
    scene: dict[str, Any] = {"network": {"kind": "scene", "scene": "munich-20"}, "train": {"rounds": 1}}
    for method in ("local", "fedavg"):
        for seed in (0, 1):
            out = tmp_path / "street" / f"{method}-{seed}"
            semcom.run(worlds.request(method, out=str(out), seed=seed, **scene))
    found = semcom.study(tmp_path / "street")
    (made,) = [figure for figure in figures.figures(Subject(found, tmp_path / "street")) if figure.id == "map"]
    assert [words for words, _, _ in made.choices][:3] == ["FedAvg, all runs", "Local, all runs", "FedAvg, view global"]
    ground, base, dots = (made.traces[i] for i in made.choices[0][1])
    place = found.stored[0].summary["cell"]
    assert (list(dots.x), list(dots.y)) == (place["x_m"], place["y_m"]) and list(base.x) == [0]
    of = found.clients.query("variant == 'fedavg'").groupby("client")["accuracy"].mean()
    np.testing.assert_allclose(dots.marker.color, 100 * of, rtol=1e-6)
    assert [mark == "circle" for mark in dots.marker.symbol] == place["los"]
    streets = read_scene("munich-20")
    x, y = (round((p - b) / streets.cell_m) for p, b in zip([-200, 40], [ground.x0, ground.y0], strict=True))
    assert np.array_equal(ground.z == 1, streets.heights_m > 2) and ground.z[y, x] == 1
    at = (streets.corner_m + streets.cell_m * np.array([x, y]) - streets.base_m[:2]).round()
    assert np.abs(at - [-200, 40]).max() <= streets.cell_m
    text = report(tmp_path / "street").read_text()
    assert 'data-figure="map"' in text


def test_a_study_without_a_finished_run_and_an_archive(tmp_path: Path) -> None:
    active = config("fedcl")
    begin(tmp_path / "begun" / run_hash(active), active, [line(1, {"personal": scored([0.25, 0.5])})])
    text = report([tmp_path / "begun"]).read_text("utf-8")
    assert "1 (1 unfinished)" in text
    simple(tmp_path / "done", config("fedproto"), [0.5, 0.75])
    path = report([pack_archive(tmp_path / "done")])
    assert path == tmp_path / "done.html" and "1 (1 done)" in path.read_text("utf-8")
    assert "Finished" not in path.read_text("utf-8")[:20000], "an archive keeps no dates"
