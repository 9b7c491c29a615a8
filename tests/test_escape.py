"""What anybody has written, as each medium shows it."""

from __future__ import annotations

import csv
import io
import json
import logging
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest

import semcom
from semcom.cli import main as cli
from semcom.escape import escape_controls, escape_html, escape_latex, escape_markdown, escape_texts, format_csv
from semcom.files import CONFIG
from semcom.screen import say
from tests.studies.folders import config, line, scored, write

OBEYED = ["\x1b[2J", "\x1b]0;title\x07", "\x9b31m", "\u202egnp", "\u2066", "\u200f", "\0", "\b\b", "\r", "\x7f"]
OBEYED += ["\u2028", "\u061c"]
"""Sequences of terminals, marks that turn the direction of a text, and other signs that are obeyed, or not shown."""


def obeyed(text: str) -> list[str]:
    """Return the signs of a text, line breaks aside, that are no letters, numbers, marks or blanks to be seen."""
    return [sign for sign in text if sign != "\n" and unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Zl", "Zp")]


@pytest.mark.parametrize("sign", OBEYED)
def test_signs_that_a_terminal_obeys_are_spelled_out(sign: str) -> None:
    shown = escape_controls(f"FedÄvg 方法 {sign} ± 1\nnext")
    assert not obeyed(shown) and shown.startswith("FedÄvg 方法 \\") and shown.endswith(" ± 1\nnext")
    assert escape_controls(shown) == shown
    assert escape_texts({sign: [1, (text := f"a{sign}\n"), {"b": text}]}) == {
        escape_controls(sign): [1, (own := escape_controls(text, kept="")), {"b": own}]
    }
    assert not obeyed(own) and "\n" not in own


def test_markdown_latex_and_html_have_no_signs_of_their_own() -> None:
    assert escape_markdown("a|b\n<i>*x*</i> `c` \x1b") == r"a/b &lt;i>\*x\*&lt;/i> \`c\` \\x1b"
    assert escape_latex("50 % & \\x_1 \x9b") == r"50 \% \& \textbackslash{}x\_1 \textbackslash{}x9b"
    assert escape_html("<b>&\u202e") == "&lt;b&gt;&amp;\\u202e"


@pytest.mark.parametrize(
    "cell", ["=1+1", "@SUM(A1)", "+1+cmd|' /C calc'!A0", "-2+3", "\t=1", "\r=1", "\n=1", "＝1", "--", "+"]
)
def test_no_cell_of_a_csv_file_is_a_formula(cell: str) -> None:
    ((head,), (text,)) = csv.reader(io.StringIO(format_csv(pd.DataFrame({cell: [cell]}))))
    assert head == text and text.startswith("'") and text[1] == escape_controls(cell)[0]


@pytest.mark.parametrize("cell", ["x;=1+1", "a; @SUM(A1);b", "1;-2+3"])
def test_no_cell_is_one_where_a_semicolon_ends_cells(cell: str) -> None:
    texts = [
        text for row in csv.reader(io.StringIO(format_csv(pd.DataFrame({"x": [cell]}))), delimiter=";") for text in row
    ]
    assert len(texts) > 2 and not any(text.lstrip().startswith(("=", "@", "-", "+")) for text in texts)


def test_what_is_nested_without_end_is_left_out() -> None:
    deep: object = "\x1b"
    for _ in range(5000):
        deep = [deep]
    found, levels = escape_texts(deep), 0
    while isinstance(found, list):
        (found,), levels = found, levels + 1
    assert (found, levels) == ("...", 100) and escape_texts([["\x1b"]]) == [["\\x1b"]]


@pytest.mark.parametrize("cell", ["-3", "+1e-5", "-6.5,0,6.5", "-inf", "fedcl", "a=b", "1-2", "", "'x", "-.5"])
def test_numbers_and_plain_texts_stay_as_they_are(cell: str) -> None:
    ((head, _), (text, number)) = csv.reader(io.StringIO(format_csv(pd.DataFrame({"x": [cell], "y": [-1.5]}))))
    assert (head, text, number) == ("x", cell, "-1.5")


def test_what_a_command_prints_or_logs_is_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    say("a\x1b[0m\nb")
    say("c\u202e", end="", start="\r")
    assert capsys.readouterr().out == "a\\x1b[0m\nb\n\rc\\u202e"
    with cli._show_log(), cli._log_from("info"):
        logging.getLogger("semcom").warning("of %s", "\x9b5m")
    assert capsys.readouterr().err.endswith("WARNING of \\x9b5m\n")


ILL = "=x\x1b[31m\u202e\0\x9b\r\n<script>alert(1)</script>|`"


@pytest.fixture
def ill(tmp_path: Path) -> Path:
    """A study with such texts wherever one can stand: variants, views, warnings, errors, labels, commands, tables."""
    folder = tmp_path / "ill"
    for seed in (0, 1):
        of = config("fedcl", seed)
        views = {f"view{ILL}": scored([0.1, 0.3])}
        place = write(
            folder / semcom.config.run_hash(of),
            of,
            [line(1, views), line(2), line(3), line(4, views)],
            **{"warnings": [f"warned{ILL}"], "label": f"label{ILL}", "commit": f"commit{ILL}", "device": ILL},
            seconds={"train": 1.0},
            **{"machine": {"vector": ILL, "threads": 2, "processor": ILL}, "begun": ILL, "finished": ILL},
        )
        variants = {place.name: f"variant{ILL}"}
    bad = config("fedcl", 2)
    place = folder / semcom.config.run_hash(bad)
    place.mkdir()
    (place / CONFIG).write_text((folder / next(iter(variants)) / CONFIG).read_text().replace('"seed": 1', '"seed": 2'))
    trace = (
        f'Traceback (most recent call last):\n  File "/x{ILL.partition(chr(10))[0]}.py", line 1, in f\n    a{ILL[:9]}\n'
    )
    (place / "error.txt").write_text(f"Error{ILL}\n\n{trace}")
    record = {"experiment": "study", "scale": f"scale{ILL}", "command": f"semcom sweep{ILL}", "plugins": []}
    record |= {
        "set": {f"set{ILL}": ILL},
        "axes": {"seed": [0, 1]},
        "variants": {p.name: f"v{ILL}" for p in folder.iterdir()},
    }
    (folder / "sweep.json").write_text(json.dumps(record))
    return folder


LOOKS: list[Sequence[str]] = [
    *(("show",), ("results",), ("results", "--what", "runs"), ("results", "--what", "rounds"), ("table",)),
    *(("table", "--format", "csv"), ("table", "--format", "tex"), ("compare", f"v{ILL}", "other")),
]


@pytest.mark.parametrize("words", LOOKS, ids=" ".join)
@pytest.mark.parametrize("packed", [False, True])
def test_no_look_prints_what_a_terminal_obeys(
    ill: Path, words: Sequence[str], packed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    if packed:
        assert cli.main(["pack", str(ill)]) == 0
    command, *more = words
    status = cli.main([command, str(ill.with_suffix(".zip") if packed else ill), *more])
    shown = capsys.readouterr()
    assert (status == 2) == (command == "compare"), shown.err
    assert not obeyed(shown.out + shown.err) and "x1b" in shown.out + shown.err


def test_no_file_that_is_made_of_it_has_any(ill: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    looks = ["report", "--out", str(out / "a.html")], ["plot", "--out", str(out)], ["results", "--csv", str(out)]
    for command, *flags in looks:
        assert cli.main([command, str(ill), *flags]) == 0
    made = {
        path.name: path.read_text(encoding="utf-8") for path in out.rglob("*") if path.suffix not in (".pdf", ".png")
    }
    assert {"a.html", "bars.csv", "bars.md", "runs.csv"} <= made.keys()
    for name, text in made.items():
        if name != "a.html":
            assert not obeyed(text), name
        assert "\x1b" not in text and "\u202e" not in text and "\0" not in text, name
        shown = re.sub(r"```sh\n.*?\n```", "", text, flags=re.DOTALL)  # Markdown takes commands as they are
        assert "<script>alert(1)" not in shown or name.endswith(".csv"), name
        for row in csv.reader(io.StringIO(text)) if name.endswith(".csv") else ():
            assert not [cell for cell in row if cell.startswith(("=", "@", "\t", "\r", "\n"))]
