"""README.md and the pages of docs/ and experiments/: every example runs as it is shown, and every link leads somewhere.

A python block begins with `# name.py` and is saved under that name; a bash block is run, unless the comment before it
says that it is not. The examples of one section share a folder.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import semcom
from tests.pages import PAGES, ROOT, SKIP, SMALLER, carry_out, make_smaller, read_page, sections

pytestmark = pytest.mark.usefixtures("own_names", "thin")
README, EXTENDING, RUNNING = "README.md", "docs/extending.md", "docs/running.md"
MOVING, FLOWER = "docs/moving.md", "Keep your Flower app"
DATA, TASKS_PAGE, DEEPJSCC = "docs/data.md", "docs/tasks.md", "experiments/deepjscc.md"
TESTED = {
    README: ("First run", "A study", "Your own method"),
    RUNNING: (
        "From the shell",
        "From Python",
        "A comparison in one script",
        "What you can choose",
        "Several cores, GPUs and machines",
    ),
    MOVING: ("From Flower", FLOWER),
    TASKS_PAGE: ("Images that come back", "Your own task"),
    DEEPJSCC: ("Images that come back: `deepjscc-federated`",),
    EXTENDING: (
        "A method",
        "A channel",
        "An encoder",
        "A dataset",
        "An augmentation",
        "A partition",
        "A way of access to the air",
        "A compression, a rate",
        "Places of clients, a path loss",
        "A scheduler",
        "A metric",
        "An experiment and its figure",
        "A kind of figure",
    ),
}
"""Sections with a test below, of the pages of which every example is run."""
LONG = r"torch|torch\._dynamo|sympy|sklearn|torchvision|sionna|scipy|pandas"
IMPORTED = re.compile(rf"^import time:.*\| +({LONG})$", re.MULTILINE)
"""A line about an import that takes long; a usual run does without all of them but torch."""


def shell(block: str, folder: Path) -> str:
    """What a bash block prints; it has to succeed, and to begin soon."""
    scripts = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = os.environ | {"PATH": scripts, "OMP_NUM_THREADS": "1", "PYTHONPROFILEIMPORTTIME": "1"}
    done = subprocess.run(["bash", "-ec", block], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, f"{block}\n{done.stderr}"
    assert IMPORTED.findall(done.stderr) == ["torch"]
    return done.stdout


def inside(block: str, folder: Path) -> str:
    """The same in this process."""
    with contextlib.chdir(folder):
        return carry_out(block)


def follow(page: str, heading: str, folder: Path, run: Callable[[str, Path], str] = inside) -> list[str]:
    """Does what a section shows; returns what each of its bash blocks prints."""
    printed = []
    for block in sections(page)[heading]:
        if block.language == "python":
            block.write(folder)
        elif block.language == "bash" and block.comment != SKIP:
            printed.append(run(make_smaller(block.text, page), folder))
    return printed


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text(encoding="utf-8"))


def finished(folder: Path, method: str, clients: int, rounds: int) -> dict[str, Any]:
    """The summary of a run, after a look at what every one has."""
    summary = read(folder, "summary.json")
    assert (summary["method"], summary["clients"], summary["rounds"]) == (method, clients, rounds)
    assert 0 < summary["accuracy"] <= 1
    assert len(rows(folder)) == rounds
    return summary


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("page", TESTED)
def test_every_block_is_run_or_says_that_it_is_not(page: str) -> None:
    for heading, blocks in sections(page).items():
        for block in blocks:
            if block.language == "python":
                assert block.file, block.text
            elif block.language == "bash" and block.comment == SKIP:
                continue
            else:
                assert block.language in ("bash", "text", "bibtex"), f"{block.language}: it would not be run"
            elsewhere = ("text", "bibtex", "bash")  # shell blocks: tests/test_commands.py
            assert heading in TESTED[page] or block.language in elsewhere, f"no test runs {heading!r}"


@pytest.mark.parametrize("page", SMALLER)
def test_the_page_has_the_sizes_that_the_tests_make_smaller(page: str) -> None:
    assert all(words in read_page(page) for words in SMALLER[page])


def test_the_bibliography_entry_is_that_of_the_citation_file() -> None:
    (entry,) = (block.text for block in sections(README)["Citing"] if block.language == "bibtex")
    fields = dict(re.findall(r"^  (\w+) = \{+(.*?)\}+,?$", entry, re.MULTILINE))
    cited = dict(re.findall(r'^ *-? ?([\w-]+): "?(.*?)"?$', read_page("CITATION.cff"), re.MULTILINE))
    project = tomllib.loads(read_page("pyproject.toml"))["project"]
    assert fields.pop("author") == cited["name"]
    assert fields.pop("year") == cited["date-released"][:4]
    assert fields.pop("url") == cited["repository-code"] == project["urls"]["Repository"]
    assert fields == {name: cited[name] for name in ("title", "version", "license")}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", text):
        path = (ROOT / page).parent / target if target else ROOT / page
        assert path.exists(), f"{page}: {target}"
        headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE) if anchor else []
        known = [re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings]
        assert not anchor or anchor in known, f"{page}: {target}#{anchor}"


def test_the_findings_are_those_of_the_pages_of_results() -> None:
    part = " ".join(read_page(README).partition("\n## Results\n")[2].partition("\n## ")[0].split())
    pages = sorted({"experiments/README.md", *re.findall(r"\]\((experiments/[\w/-]+\.md)", part)})
    page = " ".join(" ".join(map(read_page, pages)).split())
    intervals = re.findall(r"\((-?[\d.]+ to -?[\d.]+)\)", part)
    assert len(intervals) == 27 and all(interval in page for interval in intervals)
    assert all(f"{number} points" in page for number in re.findall(r"\[(-?[\d.]+) points\]", part))


def test_first_run(tmp_path: Path) -> None:
    (trained,) = follow(README, "First run", tmp_path, shell)
    summary = finished(tmp_path / "runs" / "first", "fedcl", clients=5, rounds=2)
    assert f"fedcl: accuracy {100 * summary['accuracy']:.1f} % after 2 rounds" in trained
    assert summary["snr_received_db"]["train_up"] == pytest.approx(10, abs=0.1)
    shown = next(block.text for block in sections(README)["First run"] if block.language == "text")
    traffic = shown[shown.index("per participating") :]
    assert traffic in trained, "the README shows other traffic than the command prints"
    accuracy = float(inside("python first.py", tmp_path).split()[-1])
    assert 0.1 < accuracy <= 1, "not better than a guess"


def test_a_study_in_four_commands(tmp_path: Path) -> None:
    (block,) = (block for block in sections(README)["A study"] if block.language == "bash")
    text = make_smaller(block.text, README)
    assert len(text.splitlines()) == 4 and max(map(len, block.text.splitlines())) < 70, "four short commands"
    printed = inside(text, tmp_path)
    assert "fedcl" in printed and "fedproto" in printed and "paired t over 2 seeds" in printed
    assert {path.name for path in (tmp_path / "drawn").iterdir()} >= {"lines.png", "lines.csv", "report.html"}


def test_running(tmp_path: Path) -> None:
    follow(RUNNING, "From the shell", tmp_path)
    summary = finished(tmp_path / "runs" / "fedproto", "fedproto", clients=3, rounds=3)
    (predicted,) = follow(RUNNING, "From Python", tmp_path)
    accuracy, client = (float(line.split()[-1]) for line in predicted.splitlines())
    assert accuracy == summary["accuracy"] > 0.1 and 0.1 < client <= 1, "the shell and Python are the same run"
    (printed,) = follow(RUNNING, "What you can choose", tmp_path)
    assert "--channel." in printed and "letter-fig2b" in printed


def test_moving(tmp_path: Path) -> None:
    (printed,) = follow(MOVING, "From Flower", tmp_path)
    assert 0.05 < float(printed) < 1


@pytest.mark.slow
def test_an_app_of_flower(tmp_path: Path) -> None:
    pytest.importorskip("flwr.simulation.ray_transport.ray_actor", reason="pip install 'flwr[simulation]'")
    follow(MOVING, FLOWER, tmp_path)
    env = os.environ | {"FLWR_TELEMETRY_ENABLED": "0", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "app.py"], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    uses = re.search(r"^accuracy (0\.\d+), (channel uses .*)$", done.stdout, re.MULTILINE)
    assert uses and float(uses[1]) == pytest.approx(0.889, abs=0.03) and uses[2] in read_page(MOVING)


@pytest.mark.slow
def test_a_comparison_in_one_script(tmp_path: Path) -> None:
    """With fewer seeds and rounds; the last script does without semcom, and its model answers as the run's does."""

    def run(block: str, folder: Path) -> str:
        printed = ""
        for line in block.splitlines():
            blocked = "import sys; sys.modules['semcom'] = None\n" if "use.py" in line else ""
            path = folder / line.split()[1]
            text = path.read_text().replace("range(5)", "range(2)").replace('rounds": 5', 'rounds": 1')
            path.write_text(blocked + text)
            done = subprocess.run([sys.executable, path.name], cwd=folder, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            printed += done.stdout
        return printed

    (script,) = (b.text for b in sections(RUNNING)["A comparison in one script"] if b.text.startswith("# compare.py"))
    assert len(script.splitlines()) <= 30
    (printed,) = follow(RUNNING, "A comparison in one script", tmp_path, run)
    frame = pd.read_parquet(tmp_path / "compared" / "results.parquet")
    assert len(frame) == 6 * 2 and set(frame["status"]) == {"done"}
    tuned = (tmp_path / "compared" / "tuned.md").read_text().splitlines()
    assert len(tuned) == 2 + 6 * 3 and sum("chosen" in line for line in tuned) == 6
    assert re.search(r"Method +Accuracy \(%\) +Accuracy over all test images \(%\) +AUC\n0 +Local", printed)
    best = frame.loc[frame["accuracy"].idxmax()]
    assert 0.1 < float(printed.split()[-1]) <= 1 and best["accuracy"] > 0.3


def test_method(tmp_path: Path) -> None:
    follow(README, "Your own method", tmp_path)
    follow(EXTENDING, "A method", tmp_path)
    shared = finished(tmp_path / "runs" / "shared", "shared-encoder", clients=2, rounds=2)
    prox = finished(tmp_path / "runs" / "prox", "prox", clients=2, rounds=2)
    head = 64 * 10 + 10
    assert prox["traffic"]["up"]["floats"] - shared["traffic"]["up"]["floats"] == head
    for row in rows(tmp_path / "runs" / "prox"):
        assert row["pull"] > 0 and row["loss"] == pytest.approx(row["task"] + 1 / 2 * row["pull"], rel=1e-5)


def test_channel(tmp_path: Path) -> None:
    follow(EXTENDING, "A channel", tmp_path)
    summary = finished(tmp_path / "runs" / "sight", "fedcl", clients=2, rounds=2)
    assert read(tmp_path / "runs" / "sight", "config.json")["channel"]["kind"] == "sight"
    # 180 sent images: |h|^2 has variance (1 + 2 * 2) / (1 + 2)^2 = 0.56, so its mean is 1 +- 0.056, which is 0.24 dB.
    for way in ("train_up", "train_down"):
        assert summary["snr_received_db"][way] == pytest.approx(10, abs=1)


RUNS = {
    (EXTENDING, "An encoder"): ("mixed", "fedcl", 2, "model.encoder", "small-cnn,dcgan", 2 * 2 * 45),
    (EXTENDING, "A partition"): ("blocks", "fedavg", 4, "partition.options", {"tests": 30}, 2 * (1797 - 4 * 30)),
    (EXTENDING, "An augmentation"): ("dim", "fedavg", 4, "data.augment", "dim", 2 * 4 * 45),
    (EXTENDING, "A way of access to the air"): ("signs", "fedavg", 4, "air.access", "sign-majority", 2 * 4 * 45),
    (EXTENDING, "A compression, a rate"): ("smaller", "fedavg", 4, "air.compress", "bfloat16", 2 * 4 * 45),
    (EXTENDING, "Places of clients, a path loss"): ("ring", "fedavg", 4, "network.path_loss", "two-slopes", 2 * 4 * 45),
    (EXTENDING, "A scheduler"): ("rested", "fedavg", 4, "network.scheduling", "rested-best", 2 * 2 * 45),
    (DATA, "Clients with little data"): ("scarce", "fedavg", 4, "partition.scarce", [3], 2 * (3 * 45 + 4)),
}
"""Page and section -> its run of two rounds: folder, method, clients, a field with its value, and images visited, of
which a client has 3 classes of 15, and a scarce one a tenth of them."""


@pytest.mark.parametrize(("page", "heading"), RUNS)
def test_a_run_has_what_its_section_is_about(page: str, heading: str, tmp_path: Path) -> None:
    name, method, clients, field, value, visited = RUNS[page, heading]
    follow(page, heading, tmp_path)
    assert finished(tmp_path / "runs" / name, method, clients, rounds=2)["samples"] == visited
    config = read(tmp_path / "runs" / name, "config.json")
    assert functools.reduce(dict.__getitem__, field.split("."), config) == value


def test_new_clients(tmp_path: Path) -> None:
    follow("docs/metrics.md", "New clients", tmp_path)
    summary = finished(tmp_path / "runs" / "new", "fedavg", clients=4, rounds=2)
    assert [len(summary["new_clients"][view]["clients"]) for view in ("global", "head")] == [2, 2]


def test_splits(tmp_path: Path) -> None:
    (table,) = follow(DATA, "Splits that are written, and those of others", tmp_path)
    assert table.startswith("client train test ") and "--partition.path split.npz" in table
    finished(tmp_path / "runs" / "same", "fedavg", clients=4, rounds=2)


def test_classifiers_at_the_end(tmp_path: Path) -> None:
    inside(sections("docs/methods.md")["The last stage"][0].text, tmp_path)  # the other block takes hours
    summary = finished(tmp_path / "runs" / "own", "fedavg", clients=4, rounds=2)
    assert list(summary["views"]) == ["finished", "global"]
    assert summary["accuracy"] > summary["views"]["global"]["accuracy"]


def test_more_than_one_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # other processes have no thin networks
    follow(RUNNING, "Several cores, GPUs and machines", tmp_path)
    summary = finished(tmp_path / "runs" / "two", "fedcl", clients=4, rounds=3)
    assert "train/forward" in summary["seconds"]


def test_images_that_come_back(tmp_path: Path) -> None:
    (trained, _) = follow(TASKS_PAGE, "Images that come back", tmp_path)[0].partition("figure:")[::2]
    summary = read(tmp_path / "runs" / "images", "summary.json")
    assert f"fedper: PSNR {summary['psnr']:.2f} dB at 10 dB after 2 rounds" in trained
    assert "bandwidth ratio k/n: 0.0625" in trained
    assert (tmp_path / "runs" / "images" / "images.png").stat().st_size > 1000
    (table,) = follow(DEEPJSCC, "Images that come back: `deepjscc-federated`", tmp_path)
    assert "PSNR in dB" in table


def test_own_task(tmp_path: Path) -> None:
    """The error of numbers from 0 to 9 is smaller than that of an answer of 0, which is 4.5 on average."""
    (printed,) = follow(TASKS_PAGE, "Your own task", tmp_path)
    error = float(re.search(r"^fedavg: absolute error ([\d.]+) after 2 rounds \(", printed, re.MULTILINE)[1])  # type: ignore[index]
    assert 0 < error < 9


def test_dataset(tmp_path: Path) -> None:
    follow(EXTENDING, "A dataset", tmp_path)
    with np.load(tmp_path / "mine.npz") as arrays:
        assert arrays["x_train"].shape == (1400, 32, 32) and arrays["x_train"].max() == 255
    mine = finished(tmp_path / "runs" / "mine", "local", clients=2, rounds=2)
    assert mine["samples"] == 2 * 2 * 3 * 15  # rounds, clients, ways, shots
    finished(tmp_path / "runs" / "parity", "local", clients=2, rounds=2)
    assert len(rows(tmp_path / "runs" / "parity")[-1]["views"]["personal"]["classes"]) == 2


def test_experiment(tmp_path: Path) -> None:
    (printed,) = follow(EXTENDING, "An experiment and its figure", tmp_path)
    folder = tmp_path / "results" / "mine-smoke"
    table = pd.read_parquet(folder / "results.parquet")
    assert list(table["variant"]) == [v for v in ("fedproto", "FedProto weak", "local") for _ in (0, 10)]
    assert list(table["method"]) == ["fedproto"] * 4 + ["local"] * 2
    assert set(table["status"]) == {"done"} and table["accuracy"].between(0.1, 1).all()
    assert "SNR 10 dB" in printed and (folder / "results.md").is_file()
    assert (folder / "mine.png").stat().st_size > 1000


def test_metric(tmp_path: Path) -> None:
    """Kappa is (right - by chance) / (1 - by chance), where chance answers with the same classes as often."""
    table = follow(EXTENDING, "A metric", tmp_path)[0].splitlines()
    view = finished(tmp_path / "runs" / "kappa", "fedavg", clients=2, rounds=2)["views"]["global"]
    assert len(sections(EXTENDING)["A metric"][0].text.splitlines()) < 20
    result = semcom.load(tmp_path / "runs" / "kappa")
    last, kappas = result.metrics[-1]["views"]["global"], []
    for counts in result.confusion["global"]:
        n, chance = counts.sum(), counts.sum(0) @ counts.sum(1) / counts.sum() ** 2
        kappas.append((np.trace(counts) / n - chance) / (1 - chance))
    assert last["kappa"] == pytest.approx(np.mean(kappas), abs=1e-6) and 0 < view["f1"] < 1
    assert [row.split(" | ")[1].rstrip(" |") for row in table if row.startswith("| FedAvg")] == [f"{view['kappa']:.2f}"]


def test_kind_of_figure(tmp_path: Path) -> None:
    """A row for each run in the CSV file, a row for each method in the table."""
    follow(EXTENDING, "A kind of figure", tmp_path)
    runs = pd.read_parquet(tmp_path / "results" / "two" / "results.parquet")
    drawn = pd.read_csv(tmp_path / "drawn" / "strip.csv")
    assert drawn["accuracy"].tolist() == pytest.approx(runs["accuracy"].tolist(), abs=1e-12)
    means = runs.groupby("variant", sort=False)["accuracy"].mean()
    assert drawn["mean"].tolist() == pytest.approx(runs["variant"].map(means).tolist())
    page = (tmp_path / "drawn" / "strip.md").read_text().splitlines()
    assert [row.split(" | ")[0] for row in page if row.startswith("| ")][2:] == ["| Local", "| FedAvg"]
