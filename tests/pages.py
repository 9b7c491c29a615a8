"""Pages of the documentation: their fenced blocks, their tables, and the commands that they show."""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import re
import runpy
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from semcom.cli import main as cli

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"(?:^<!-- ([^\n]*) -->\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SKIP = "not run by the tests"
PAGES = [
    *("README.md", "CONTRIBUTING.md"),
    *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")),
    *(path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "experiments").rglob("*.md"))),
]
SMALLER = {
    "README.md": {
        "--clients 5 --train.rounds 10": "--clients 5 --train.rounds 2",
        "--seeds 0..2": "--seeds 0..1 --set train.rounds=1 --set clients=2 --vary channel.snr_db=0,9",
    },
    "docs/privacy.md": {"--steps 100": "--steps 5"},
    "docs/tasks.md": {
        "rounds=2 --vary": "rounds=1 --set partition.shots=3 --set partition.test_per_class=2 --vary",
        "bandwidth_ratio=1/16,1/8,1/4": "bandwidth_ratio=1/8,1/4",
        "--uses 128,256 --snr-db 0,10,20 --images 20": "--uses 128 --snr-db 0,20 --images 2",
    },
    "docs/tutorial.md": {
        "0..4": "0..1",
        "--jobs 2 ": "",
        "rounds=20": "rounds=2",
        "rounds 20": "rounds 2",
        "10,-15,-10,-5,0,5,15": "10,-10",
    },
    "experiments/bounds.md": {
        "clients=4 --set train.rounds=24": "clients=2 --set train.rounds=2 --set partition.shots=3"
    },
}
"""Page -> its sizes, and what the tests put in their place, to save time."""


@dataclass(frozen=True)
class Block:
    """A fenced block: the comment before it, its language and its text."""

    comment: str
    language: str
    text: str

    @property
    def file(self) -> str:
        """Name of the file that a Python block is, from its first line; empty for other blocks."""
        found = re.match(r"# (\w+\.py)\n", self.text) if self.language == "python" else None
        return found[1] if found else ""

    def write(self, folder: Path) -> Path:
        """Write the file that the block is."""
        assert self.file, self.text
        (folder / self.file).write_text(self.text, encoding="utf-8")
        return folder / self.file


@functools.cache
def read_page(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def read_blocks(text: str) -> list[Block]:
    """List the fenced blocks of a page or a part of one."""
    return [Block(*match.groups(default="")) for match in FENCE.finditer(text)]


def sections(page: str) -> dict[str, list[Block]]:
    """Heading -> the fenced blocks below it, up to the next heading."""
    parts = re.split(r"^(?=##+ )", read_page(page), flags=re.MULTILINE)
    return {part.partition("\n")[0].lstrip("# "): read_blocks(part) for part in parts}


def read_table(text: str, head: str = "") -> list[dict[str, str]]:
    """Read the only table whose first column is `head`, or the first of all: for each row its cells by column."""
    starts = [match.start() for match in re.finditer(rf"^\| {re.escape(head)} \|" if head else r"^\|", text, re.M)]
    assert len(starts) == 1 or not head, f"{len(starts)} tables begin with {head}"
    lines = itertools.takewhile(lambda line: line.startswith("|"), text[starts[0] :].splitlines())
    names, _, *body = ([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines)
    return [dict(zip(names, cells, strict=True)) for cells in body]


def make_smaller(text: str, page: str) -> str:
    """Put smaller sizes in the place of the page's."""
    return functools.reduce(lambda text, fewer: text.replace(*fewer), SMALLER.get(page, {}).items(), text)


def carry_out(text: str, more: Mapping[str, list[str]] | None = None) -> str:
    """Carry out `semcom ...` and `python FILE`, a line each, in this process, which has imported torch already.

    Args:
        text: a shell block.
        more: command of semcom -> words to add.

    Returns:
        What is printed.
    """
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        for line in text.replace("\\\n", " ").splitlines():
            program, *words = shlex.split(line)
            assert program in ("semcom", "python"), line
            if program == "python":
                runpy.run_path(words[0], run_name="__main__")
            else:
                assert cli.main(words + (more or {}).get(words[0], [])) == 0, line
    return printed.getvalue()
