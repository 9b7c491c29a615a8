"""Rendered files hold exactly the stored numbers, and the same results give the same bytes."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import matplotlib.colors
import numpy as np
import pandas as pd
import pytest
from matplotlib.image import imread

import semcom
from semcom.channels.registry import registering_source
from semcom.config import AirConfig, ChannelConfig, ConfigError, NetworkConfig, RunConfig, run_hash
from semcom.files import SWEEP
from semcom.plots import Plot, render, style
from semcom.plots import plot as semcom_plot
from semcom.plots.base import Drawing
from semcom.plots.kinds import KINDS, settle_kind
from semcom.plots.registry import FIGURES
from semcom.studies.analysis.setting import SETTING, _drop_unused, describe_setting
from semcom.studies.analysis.study import study
from semcom.studies.registry import EXPERIMENTS
from semcom.studies.results.archive import pack_archive
from semcom.studies.results.table import list_table_fields, make_table
from tests.plots.studies import drawn
from tests.studies.folders import config, simple

Stored = Callable[..., Path]
SNR = "channel.snr_db"
ASKED = Plot(kind="lines", x=SNR)


def test_files_hold_the_numbers_of_the_study(stored: Stored, tmp_path: Path) -> None:
    paths = render("letter-fig2b", results=stored(seeds=(0, 1)), out=tmp_path / "out")
    assert [p.name for p in paths] == [f"letter-fig2b.{kind}" for kind in ("pdf", "png", "csv", "md")]
    with (tmp_path / "out" / "letter-fig2b.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    means = study(tmp_path / "sweep").mean().to_dict("records")
    assert [line["variant"] for line in lines] == ["fedcl"] * 3 + ["fedproto"] * 3 + ["fedavg"] * 3
    for column in (SNR, "mean", "low", "high"):
        assert [float(line[column]) for line in lines] == [row[column] for row in means]  # to the last bit
    assert {line["n"] for line in lines} == {"2"}
    image = imread(paths[1])
    assert image.shape[1] == 1050 and image[..., :3].std() > 0.05  # 3.5 in at 300 dpi, not empty
    page = paths[3].read_text("utf-8")
    for text in (
        "# letter-fig2b: Accuracy against SNR with 20 clients, trained and tested at each SNR",
        "mean over 2 seeds; bars: 95 % intervals over seeds (Student's t)",
        "| Method | SNR 0 dB | SNR 9 dB | SNR 18 dB |",
        "| FedAvg | 31.0 | 38.0 | 39.3 |",  # (30 + 32) / 2, (37 + 39) / 2, ...; an interval would be ± 12.7
        "* Paper item: FedCL letter, Fig. 2(b)",
        "* Scale: small",
        "* Setting: dataset cifar10, clients 20, partition shots, ways 3, shots 100, "
        "encoder dcgan-narrow, features 64, channel awgn, SNR 0 / 9 / 18 dB, rounds 60,",
        "* Seeds: 0 / 1",
        "* Versions: semcom 0.1.0, torch 2.9.1",
        "* Commit: abc1234",
        "semcom sweep letter-fig2b --scale small\n```",
    ):
        assert text in page


def test_an_archive_is_drawn_like_its_folder(stored: Stored, tmp_path: Path) -> None:
    folder = stored(seeds=(0, 1))
    file = pack_archive(folder, tmp_path / "packed" / "mine.zip")
    for place in (folder, file):
        render("letter-fig2b", results=place, out=tmp_path / place.name)
    for kind in ("csv", "md", "pdf"):
        first, second = (tmp_path / place.name / f"letter-fig2b.{kind}" for place in (folder, file))
        assert first.read_bytes() == second.read_bytes(), kind
    assert {path.parent for path in semcom_plot(file, Plot(x=SNR))} == {tmp_path / "packed"}, "beside the archive"


def test_a_cost_stands_beside_its_method(stored: Stored, tmp_path: Path) -> None:
    """Each method has a cost of its own: as a column of the table it would have no second number."""
    semcom_plot(stored(seeds=(0, 1)), Plot(x="uses", facet=SNR), name="p", out=tmp_path)
    table = [line for line in (tmp_path / "p.md").read_text().splitlines() if line.startswith("|")]
    assert table[0] == "| SNR (dB) | Method | Channel uses | Accuracy |" and len(table) == 2 + 9
    snrs = [row.split("|")[1].strip() for row in table[2:]]
    assert snrs == sorted(snrs, key=snrs.index) and len(dict.fromkeys(snrs)) == 3, "all methods of an SNR together"


def test_the_same_bytes_come_from_other_processes_and_settings(stored: Stored, tmp_path: Path) -> None:
    first = [p.read_bytes() for p in render("letter-fig2b", results=stored(), out=tmp_path / "a")]
    code = "import sys; from semcom.plots import render; render('letter-fig2b', results=sys.argv[1], out=sys.argv[2])"
    words = [sys.executable, "-c", code, str(tmp_path / "sweep"), str(tmp_path / "b")]
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONHASHSEED": "7", "PYTHONPATH": str(root)}  # another process, another hash order
    subprocess.run(words, check=True, env=environment, cwd=tmp_path)
    names = [f"letter-fig2b.{kind}" for kind in ("pdf", "png", "csv", "md")]
    assert first == [(tmp_path / "b" / name).read_bytes() for name in names]
    assert b"CreationDate" not in first[0]
    with mpl.rc_context({"font.size": 20, "lines.linewidth": 9}):
        assert render("letter-fig2b", results=tmp_path / "sweep", out=tmp_path / "c")[1].read_bytes() == first[1]
        assert mpl.rcParams["font.size"] == 20


def test_lines_show_the_numbers_in_percent(stored: Stored) -> None:
    """Seeds 0 and 1 differ by 1/50: with one degree of freedom t is 12.7062, so each arm of a bar is 0.127062."""
    part, plot = settle_kind(study(stored(seeds=(0, 1))), ASKED)
    cells = KINDS.get("lines").numbers(part, plot)
    figure = drawn(cells, plot)
    (axes,), (legend,) = figure.axes, figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["FedCL", "FedProto", "FedAvg"]
    assert axes.yaxis.get_major_formatter()(0.5, 0) == "50"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("SNR (dB)", "Accuracy (%)")
    for container, method in zip(axes.containers, ("fedcl", "fedproto", "fedavg"), strict=True):
        line = cells[cells["variant"] == method]
        points = container[0].get_xydata()
        np.testing.assert_array_equal(points[:, 1], line["mean"])
        np.testing.assert_array_equal(points[:, 0], line[SNR], err_msg="at their abscissa")
        ends = np.array([segment[:, 1] for segment in container[2][0].get_segments()])
        np.testing.assert_allclose(np.diff(ends, axis=1)[:, 0], 2 * 0.127062, rtol=1e-5)
        bottom, top = axes.get_ylim()
        assert bottom < ends.min() and ends.max() < top, "the axis holds all intervals"


def test_one_seed_has_no_error_bars_and_says_so(stored: Stored, tmp_path: Path) -> None:
    part, plot = settle_kind(study(stored()), ASKED)
    figure = drawn(KINDS.get("lines").numbers(part, plot), plot)
    assert not any(container.has_yerr for axes in figure.axes for container in axes.containers)
    render("letter-fig2b", results=tmp_path / "sweep", out=tmp_path)
    page = (tmp_path / "letter-fig2b.md").read_text("utf-8")
    assert "one seed, so there is no interval" in page and "| FedAvg | 30.0 | 37.0 | 38.3 |" in page


def test_a_rate_that_a_method_does_not_use_is_no_setting() -> None:
    frame = pd.DataFrame({"method": ["fedavg", "pfedme", "of-a-plug-in"], "train.lr": [0.005, 0.001, 0.1]})
    assert _drop_unused(frame, "train.lr").tolist() == [0.005, 0.1]  # pFedMe has rates of its own
    assert _drop_unused(frame.assign(rounds=3), "rounds").tolist() == [3, 3, 3]


def test_the_setting_tells_the_link_and_the_air_where_they_are_set() -> None:
    """Defaults of a link, and the SNR of a noiseless link or a cell, are left out because they would mislead."""

    def describe(*configs: RunConfig, shown: tuple[str, ...] = ()) -> str:
        rows = [{"method": c.method, **list_table_fields(semcom.resolve(c))} for c in configs]
        return describe_setting(make_table(rows, first=()), {*SETTING} - {"channel.kind", SNR} | {*shown})

    fading = ChannelConfig("rayleigh", 9.0, options={"equaliser": "zf", "antennas": 1})
    assert describe(RunConfig("fedcl")) == "channel awgn, SNR 10 dB"
    assert describe(RunConfig("fedcl", channel=ChannelConfig("none"))) == "channel none"
    assert describe(RunConfig("fedcl", channel=fading)) == "channel rayleigh, SNR 9 dB, channel.equaliser zf"
    air = AirConfig(parameters="analog"), AirConfig()
    both = [RunConfig("fedavg", air=a, channel=ChannelConfig(test_snr_db="9,0")) for a in air]
    assert describe(*both) == "channel awgn, SNR 10 dB, test SNR 9,0 dB, exchange analog / ideal"
    assert describe(*both, shown=("air.parameters",)) == "channel awgn, SNR 10 dB, test SNR 9,0 dB"
    cell = RunConfig("fedcl", network=NetworkConfig("cell", options={"radius_m": 500.0}))
    assert describe(cell) == "channel awgn, network.kind cell, network.radius_m 500"


def test_failed_method_is_missing_and_said_so(stored: Stored, tmp_path: Path) -> None:
    page = render("letter-fig2b", results=stored(failing="fedavg"), out=tmp_path)[3].read_text("utf-8")
    assert "3 of 9 runs failed and are missing." in page and "FedAvg" not in page
    assert set(pd.read_csv(tmp_path / "letter-fig2b.csv")["variant"]) == {"fedcl", "fedproto"}


def test_defaults_take_the_largest_scale(stored: Stored, here: Path) -> None:
    for scale in ("smoke", "small"):
        stored(scale=scale).rename(here / f"moved-{scale}")
        (here / "results").mkdir(exist_ok=True)
        (here / f"moved-{scale}").rename(here / "results" / f"letter-fig2b-{scale}")
    assert render("letter-fig2b")[0] == Path("results/letter-fig2b-small/letter-fig2b.pdf")
    assert Path("results/letter-fig2b-small/letter-fig2b.png").is_file()


def test_missing_results_name_the_command(here: Path) -> None:
    first = "run first: semcom sweep demo --scale smoke"
    with pytest.raises(ConfigError, match=rf"^results: none in results/demo-\*; give --results, or {first}$"):
        render("demo")
    with pytest.raises(
        ConfigError,
        match=r"^results: nowhere has no sweep.json; run first: semcom sweep demo --scale smoke --out nowhere$",
    ):
        render("demo", results="nowhere")
    assert not list(here.iterdir())


def test_wrong_results_are_refused(stored: Stored, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is of letter-fig2b; demo shows demo$"):
        render("demo", results=stored(), out=tmp_path)
    for path in (tmp_path / "sweep").glob("*/summary.json"):
        path.unlink()
    with pytest.raises(ConfigError, match="^results: no run of letter-fig2b finished; repeat it with: semcom sweep"):
        render("letter-fig2b", results=tmp_path / "sweep", out=tmp_path)


def test_a_file_is_no_folder(stored: Stored, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for out in ("file", "file/sub"):
        with pytest.raises(ConfigError, match="^out: .*file is a file; give a folder$"):
            render("letter-fig2b", results=stored(), out=tmp_path / out)
    assert (tmp_path / "file").read_text() == "mine"


def test_the_command_of_a_plug_in_s_experiment_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EXPERIMENTS, "_added", {})
    monkeypatch.setattr(FIGURES, "_added", {})
    with registering_source("my own.py"):
        EXPERIMENTS.register("mine")(dataclasses.replace(EXPERIMENTS.get("demo"), name="mine"))
        FIGURES.register("mine")(Drawing("mine", "mine", ASKED))
    with pytest.raises(ConfigError, match=r"run first: semcom sweep mine --scale smoke --plugin 'my own.py'$"):
        render("mine")


def test_runs_of_two_settings_are_not_drawn_as_seeds(stored: Stored, tmp_path: Path) -> None:
    """A run among those of the sweep, with a field of its own that the figure does not show."""
    folder, record = stored(), json.loads((stored() / SWEEP).read_text())
    for seed, clients in ((5, 2), (6, 3)):
        of = config("fedcl", seed=seed, snr=9.0, clients=clients)
        simple(folder, of, [0.5] * clients)
        record["variants"][run_hash(of)] = "fedcl"
    (folder / SWEEP).write_text(json.dumps(record))
    with pytest.raises(ConfigError, match=r"^\S+: \S+ and \S+ for \S+ at channel.snr_db 9 would be averaged as seeds;"):
        render("letter-fig2b", results=folder, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_scales_of_other_names_are_found(stored: Stored, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    letter = EXPERIMENTS.get("letter-fig2b")
    own = dataclasses.replace(letter, scales={"mine": letter.scales["small"]})
    monkeypatch.setattr("semcom_papers.experiments.letter.figures.FIG2B", own)
    folder = stored(scale="mine")
    (here / "results").mkdir()
    folder.rename(here / "results" / "letter-fig2b-mine")
    assert render("letter-fig2b")[0] == Path("results/letter-fig2b-mine/letter-fig2b.pdf")


def test_lines_differ_in_greyscale_marker_and_style() -> None:
    styles = style.choose_line_styles(style.DIFFERENT)
    for colors, least in ((style.COLORS, 10), (style.FILLS, 8)):
        red, green, blue = np.array([matplotlib.colors.to_rgb(color) for color in colors]).T ** 2.2
        lightness = 116 * np.cbrt(0.2126 * red + 0.7152 * green + 0.0722 * blue) - 16
        assert np.diff(lightness).min() > least, "rising, of 100"
    assert len({(s["marker"], s.get("markerfacecolor")) for s in styles}) == 24, "marks alone tell 23 methods apart"
    assert len({(s["color"], str(s["linestyle"])) for s in styles}) == 24, "lines alone do, too"
    assert len({(s["facecolor"], s["hatch"]) for s in style.choose_bar_styles(24)}) == 24
    assert style.choose_line_styles(25)[24] == styles[0]
    eight = style.choose_line_styles(8)
    assert len({s["color"] for s in eight}) == len({s["marker"] for s in eight}) == 8
