"""The page of the command line: each command with its flags, as the parser of the command has them.

A flag is a heading, so that it can be linked and searched: `cli.md#train--channel.snr-db`. What a choice adds, such as
a method or a channel, follows below the flags of `semcom train`.
"""

from __future__ import annotations

import argparse
import contextlib
import html
import io
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import tyro

from semcom.cli.main import COMMANDS, USAGE, main
from semcom.config.options import spell_option
from semcom.runs.request.section_options import NAMING


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Add the commands to their page."""
    return "\n\n".join([markdown, *list_commands()]) if page.file.src_uri == "cli.md" else markdown


def list_commands() -> Iterator[str]:
    """Yield the parts of the page: headings, descriptions and flags."""
    yield f"## semcom\n\n```text\n{USAGE}```"
    for name in COMMANDS.names():
        description, parser = read_parser([name])
        yield f"## semcom {name}\n\n```text\n{parser.prog.strip()} [FLAGS]\n```"
        yield from (f"<p>{format_text(' '.join(part.split()))}</p>" for part in description.split("\n\n"))
        for group in parser._action_groups:
            flags = [action for action in group._group_actions if action.dest != "help"]
            if flags and group.title != "options":
                yield f'<h3 id="{name}-{group.title.split()[0]}">semcom {name}: {group.title}</h3>'
                yield f"<p>{format_text(group.description or '')}</p>"
            yield from (format_flag(f"{name}{find_flag(action)}", action) for action in flags)
        if name == "train":
            yield from list_choices(parser)


def list_choices(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the flags of `semcom train` that are there with a method, a channel and the like only.

    Of the choices that share a flag the first one gives its anchor, `train--hyper.lam`; another with another text has
    one with its own name, `train--hyper.lam-fedproto`.
    """
    common = {find_flag(action) for action in parser._actions}
    seen = set[str]()
    for field, registry in NAMING.items():
        choice = "METHOD" if field == "method" else f"--{spell_option(field)}"
        found: dict[tuple[Any, ...], tuple[argparse.Action, list[str]]] = {}
        for name in registry.names():
            words = ["train", name] if field == "method" else ["train", choice, name]
            for action in read_parser(words)[1]._actions:
                if find_flag(action) not in common:
                    same = (*action.option_strings, action.metavar, action.help)
                    found.setdefault(same, (action, []))[1].append(name)
        if found:
            yield f'<h3 id="train-{spell_option(field)}">semcom train: flags that {choice} adds</h3>'
        for action, names in found.values():
            flag = f"train{find_flag(action)}"
            anchor = f"{flag}-{names[0]}" if flag in seen else flag
            seen.add(flag)
            yield format_flag(anchor, action, f"With {', '.join(f'`{name}`' for name in names)}: ")


def read_parser(words: Sequence[str]) -> tuple[str, argparse.ArgumentParser]:
    """Return the description and the parser that a command would show with `--help`."""
    found: list[argparse.ArgumentParser] = []

    def keep(form: Any, *, description: str, prog: str, default: Any, registry: Any, config: Any, **_: Any) -> None:
        found.append(tyro.extras.get_parser(form, prog=prog, default=default, registry=registry, config=config))
        sys.stdout.write(description)  # a stream that puts the text in the place of a mark
        raise SystemExit(0)

    with mock.patch("tyro.cli", keep), contextlib.redirect_stdout(io.StringIO()) as out:
        if main([*words, "--help"]) != 0 or not found:
            raise RuntimeError(f"semcom {' '.join(words)} --help shows no flags")
    return out.getvalue().strip(), found[0]


def find_flag(action: argparse.Action) -> str:
    """Return the long spelling of a flag."""
    return next(word for word in action.option_strings if word.startswith("--"))


def format_flag(anchor: str, action: argparse.Action, before: str = "") -> str:
    """Format a flag as a heading with an anchor, and its text below."""
    value = f" {action.metavar}" if action.metavar else ""
    names = ", ".join(f"<code>{html.escape(word + value)}</code>" for word in action.option_strings)
    link = f'<a class="headerlink" href="#{anchor}" title="Permanent link">&para;</a>'
    return f'<h4 id="{anchor}">{names}{link}</h4>\n<p>{format_text(before + (action.help or ""))}</p>'


def format_text(text: str) -> str:
    """Escape a text of the help for HTML; what is in backticks is code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text, quote=False))
