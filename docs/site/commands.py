"""The page of the command line: each command with its flags, as its help has them.

A flag is a heading, so that it can be linked and searched: `cli.md#train--channel.snr-db`. What a choice adds, such as
a method or a channel, follows below the flags of `semcom train`.
"""

from __future__ import annotations

import contextlib
import html
import io
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from semcom.cli.main import COMMANDS, USAGE, main
from semcom.config.options import spell_option
from semcom.runs.request.section_options import NAMING

COLUMNS = {"train": "120"}
"""Command -> width of its help, of others 400: the boxes of this one stand beside each other where there is room."""


@dataclass(frozen=True)
class Flag:
    """A flag: how it is written, and its text."""

    spelled: str
    text: str

    @property
    def name(self) -> str:
        """Its first spelling, without a value."""
        return re.split(r"[ ,]", self.spelled)[0]


@dataclass
class Group:
    """A box of the help."""

    title: str
    text: str = ""
    flags: list[Flag] = field(default_factory=list)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Add the commands to their page."""
    return "\n\n".join([markdown, *list_commands()]) if page.file.src_uri == "cli.md" else markdown


def list_commands() -> Iterator[str]:
    """Yield the parts of the page: headings, descriptions and flags."""
    yield f"## semcom\n\n```text\n{USAGE}```"
    for name in COMMANDS.names():
        usage, paragraphs, groups = read_help([name])
        yield f"## semcom {name}\n\n```text\n{usage}\n```"
        yield from (f"<p>{format_text(text)}</p>" for text in paragraphs)
        for group in groups:
            if group.title != "options":
                yield f'<h3 id="{name}-{group.title.split()[0]}">semcom {name}: {group.title}</h3>'
                yield f"<p>{format_text(group.text)}</p>"
            yield from (format_flag(f"{name}{flag.name}", flag) for flag in group.flags)
        if name == "train":
            yield from list_choices({flag.name for group in groups for flag in group.flags})


def list_choices(common: set[str]) -> Iterator[str]:
    """Yield the flags of `semcom train` that are there with a method, a channel and the like only.

    Of the choices that share a flag the first one gives its anchor, `train--hyper.lam`; another with another text has
    one with its own name, `train--hyper.lam-fedproto`.
    """
    seen = set[str]()
    for owner, registry in NAMING.items():
        choice = "METHOD" if owner == "method" else f"--{spell_option(owner)}"
        found: dict[Flag, list[str]] = {}
        for name in registry.names():
            groups = read_help(["train", name] if owner == "method" else ["train", choice, name])[2]
            for flag in (flag for group in groups for flag in group.flags if flag.name not in common):
                found.setdefault(flag, []).append(name)
        if found:
            yield f'<h3 id="train-{spell_option(owner)}">semcom train: flags that {choice} adds</h3>'
        for flag, names in found.items():
            anchor = f"train{flag.name}-{names[0]}" if flag.name in seen else f"train{flag.name}"
            seen.add(flag.name)
            yield format_flag(anchor, flag, f"With {', '.join(f'`{name}`' for name in names)}: ")


def read_help(words: Sequence[str]) -> tuple[str, list[str], list[Group]]:
    """Read the help of a command: its usage, the paragraphs of its description, and its flags in groups."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")  # where boxes can be drawn
    with mock.patch.dict(os.environ, COLUMNS=COLUMNS.get(words[0], "400")), contextlib.redirect_stdout(out):
        if main([*words, "--help"]) != 0:
            raise RuntimeError(f"semcom {' '.join(words)} --help failed")
    out.seek(0)
    head, *boxes = re.split(r"^╭─ ", out.read(), flags=re.MULTILINE)
    usage, *paragraphs = [" ".join(part.split()) for part in head.strip().split("\n\n")]
    return usage.removeprefix("usage: "), paragraphs, [read_group(box) for box in boxes]


def read_group(box: str) -> Group:
    """Read a box of the help: its title, its description above a rule, and its flags."""
    title, *lines = box.splitlines()
    lines = [line[2:-2].rstrip() for line in lines if line.startswith("│")]
    rule = next((number for number, line in enumerate(lines) if set(line) == {"─"}), -1)
    flags: list[list[str]] = []
    for line in lines[rule + 1 :]:
        if line.startswith("-"):
            flags.append(re.split(r" {2,}", line, maxsplit=1))
        else:
            flags[-1].append(line.strip())
    told = [Flag(spelled, " ".join(text)) for spelled, *text in flags if not spelled.startswith("-h")]
    return Group(title.rstrip("─╮ "), " ".join(lines[: max(rule, 0)]), told)


def format_flag(anchor: str, flag: Flag, before: str = "") -> str:
    """Format a flag as a heading with an anchor, and its text below."""
    link = f'<a class="headerlink" href="#{anchor}" title="Permanent link">&para;</a>'
    spelled = html.escape(flag.spelled, quote=False)
    return f'<h4 id="{anchor}"><code>{spelled}</code>{link}</h4>\n<p>{format_text(before + flag.text)}</p>'


def format_text(text: str) -> str:
    """Escape a text of the help for HTML; what is in backticks, and a flag, is code."""
    code = re.compile(r"`([^`]+)`|(?<![\w-])(--[a-z][\w.-]*\w)")
    return code.sub(lambda found: f"<code>{found[1] or found[2]}</code>", html.escape(text, quote=False))
