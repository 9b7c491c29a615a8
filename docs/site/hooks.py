"""What MkDocs does not do by itself: files outside docs/, and what each method's module says.

A link from a page to a file outside docs/ leads to a copy of that file below project/. Beside this file are the hooks
of single pages: commands.py, gallery.py and notebooks.py.
"""

from __future__ import annotations

import inspect
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
DOCS, OUTSIDE = "docs", "project"
LINK = re.compile(r"(?<=\]\()(?!\w+:)([^)#\s]+)(?=#[^)]*\)|\))")
"""The relative target of a link or an image of Markdown, without its anchor."""
PIPE = re.compile(r"`[^`\n]*\\\|[^`\n]*`")
"""Code with escaped pipes, as tables need them on GitHub and not here."""
FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
UNTESTED = "<!-- not run by the tests -->\n"


def on_files(files: Files, config: Any) -> Files:
    """Add every file outside docs/ that a page links to."""
    waiting = [ROOT / DOCS / file.src_uri for file in files.documentation_pages() if file.abs_src_path]
    waiting += [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    known = set[Path]()
    while waiting:
        path = waiting.pop()
        if path in known or not path.is_file():
            continue
        known.add(path)
        uri = site_uri(path.relative_to(ROOT).as_posix())
        if files.get_file_from_path(uri) is None:
            files.append(File.generated(config, uri, abs_src_path=str(path)))
        if path.suffix == ".md":
            text = "".join(FENCED.split(path.read_text(encoding="utf-8"))[::2])
            waiting += [(path.parent / match[1]).resolve() for match in LINK.finditer(text)]
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Point links at their targets' places in the site, and fill the page of the methods."""
    here = page.file.src_uri
    if here == "methods.md":
        markdown += "".join(f"\n### {name}\n\n{text}\n" for name, text in describe_methods())
    if here.startswith(f"{OUTSIDE}/"):  # what explains how to work is found before results, and figures by the gallery
        page.meta["search"] = {"exclude": True} if here.startswith(f"{OUTSIDE}/figures/") else {"boost": 0.5}
    source = here.removeprefix(f"{OUTSIDE}/") if here.startswith(f"{OUTSIDE}/") else f"{DOCS}/{here}"

    def moved(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), match[1]))
        if not (ROOT / path).is_file():  # of the site only, or broken: MkDocs says so
            return match[0]
        return posixpath.relpath(site_uri(path), posixpath.dirname(here) or ".")

    parts = FENCED.split(markdown.replace(UNTESTED, ""))
    return "".join(part if i % 2 else PIPE.sub(_plain, LINK.sub(moved, part)) for i, part in enumerate(parts))


def _plain(code: re.Match[str]) -> str:
    return code[0].replace("\\|", "|")


def site_uri(path: str) -> str:
    """Map a path in the repository to its place in the site."""
    if not path.startswith(f"{DOCS}/"):
        return f"{OUTSIDE}/{path}"
    uri = path.removeprefix(f"{DOCS}/")
    return uri.removesuffix(".py") + ".md" if uri.startswith("notebooks/") and uri.endswith(".py") else uri


def describe_methods() -> Iterator[tuple[str, str]]:
    """Yield each method's name and the docstring of its file."""
    from semcom.methods.registry import METHODS

    for name in METHODS.names():
        yield name, inspect.getdoc(inspect.getmodule(METHODS.get(name))) or ""
