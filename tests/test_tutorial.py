"""docs/tutorial.md: its commands do what it says, in their order and in one folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import semcom
from tests.conftest import make_networks_thin
from tests.pages import SKIP, carry_out, make_smaller, read_blocks, read_page

PAGE = "docs/tutorial.md"
BLOCKS = [block for block in read_blocks(read_page(PAGE)) if block.language == "bash"]
LINES = [line for block in BLOCKS if block.comment != SKIP for line in block.text.splitlines()]


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, str]]]:
    """The folder in which the page was followed, and what each command printed, by its first words."""
    folder, printed = tmp_path_factory.mktemp("tutorial"), dict[str, str]()
    with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch:
        make_networks_thin(patch)
        for line in LINES:
            printed[line] = carry_out(make_smaller(line, PAGE))
        yield folder, printed


def said(printed: dict[str, str], start: str) -> list[str]:
    return [text for line, text in printed.items() if line.startswith(f"semcom {start}")]


def test_the_study_is_compared_and_shown(followed: tuple[Path, dict[str, str]]) -> None:
    folder, printed = followed
    study = semcom.study(folder / "results" / "tutorial")
    assert study.variants == ["fedcl", "fedproto", "fedavg"] and (study.runs["status"] == "done").sum() == 6
    assert set(study.results["test_snr_db"]) == {10.0, -10.0}
    first, second, at = said(printed, "compare")
    assert first.strip() == study.where({"test_snr_db": 10}).compare("fedcl", "fedavg").sentence
    assert second.strip() == study.where({"test_snr_db": 10}).compare("fedcl", "fedproto").sentence
    assert at.strip() == study.where({"test_snr_db": -10}).compare("fedcl", "fedproto").sentence
    assert "6 done" in said(printed, "show results")[0] and "20" not in said(printed, "results")[0].split()[2]
    shown = [line.split()[:2] for line in said(printed, "results")[0].splitlines()[2:]]
    assert shown == [[variant, snr] for variant in study.variants for snr in ("-10", "10")]


def test_figures_tables_report_and_archive_are_there(followed: tuple[Path, dict[str, str]]) -> None:
    folder, _ = followed
    study, drawn = semcom.study(folder / "results" / "tutorial"), folder / "drawn"
    assert {path.name for path in drawn.iterdir()} == {
        *(f"accuracy-snr.{kind}" for kind in ("pdf", "png", "csv", "md")),
        *(f"curves.{kind}" for kind in ("pdf", "png", "csv", "md")),
        *("accuracy.tex", "report.html", "tutorial.zip"),
    }
    assert "mean over 2 seeds; bars: 95 % intervals over seeds" in (drawn / "accuracy-snr.md").read_text("utf-8")
    tex = (drawn / "accuracy.tex").read_text("utf-8")
    for mean in study.where({"test_snr_db": -10}).mean()["mean"]:
        assert f"{100 * mean:.1f}" in tex
    assert semcom.study(drawn / "tutorial.zip").mean().equals(study.mean())
