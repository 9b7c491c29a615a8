"""The page of figures: each kind and each figure with a name, from their registries, with a picture and its command.

Pictures are those below figures/rendered/. Kinds that have none there are drawn from the study that the page names.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from semcom.cli.main import main
from semcom.plots.base import Drawing
from semcom.plots.kinds import KINDS
from semcom.plots.registry import FIGURES
from semcom.plots.render import spell_command
from semcom.studies.registry import EXPERIMENTS

ROOT = Path(__file__).resolve().parents[2]
STUDY, FOLDER = "results/gallery", "gallery"
RENDERED = {path.stem: path for path in sorted((ROOT / "figures" / "rendered").rglob("*.png"))}
"""Name of a figure -> its picture."""
DRAWN: dict[str, str] = {}
"""Kind -> its picture that was drawn for the site, as the page names it."""


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of figures and what is drawn for the site."""
    for path in RENDERED.values():
        for each in (path, path.with_suffix(".md")):
            uri = f"project/{each.relative_to(ROOT).as_posix()}"
            if files.get_file_from_path(uri) is None:
                files.append(File.generated(config, uri, abs_src_path=str(each)))
    text = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8").replace("\\\n", "")
    commands = [shlex.split(line) for line in re.findall(r"^semcom .*$", text, re.MULTILINE)]
    commands += [shlex.split(spell_kind(kind)) for kind in KINDS.names() if find_example(kind) is None]
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
        Path("experiments").symlink_to(ROOT / "experiments")
        for words in commands:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
                done = main(words[1:]) == 0
            if not done and words[1] != "plot":  # of kinds that need more than such a study the command is shown alone
                raise RuntimeError(f"{shlex.join(words)}: {said.getvalue()}")
        for path in (*Path("drawn").glob("*.png"), Path("report.html")):
            files.append(File.generated(config, f"{FOLDER}/{path.name}", content=path.read_bytes()))
            DRAWN[path.stem] = f"{FOLDER}/{path.name}"
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Add the figures to their page."""
    if page.file.src_uri != "gallery.md":
        return markdown
    report = f"[The whole report]({DRAWN['report']})." if "report" in DRAWN else ""
    return "\n\n".join([markdown, report, *list_kinds(DRAWN), *list_figures()])


def list_kinds(drawn: Mapping[str, str]) -> Iterator[str]:
    """Yield a part of the page for each kind; `drawn` has pictures of kinds without a committed one."""
    yield "## Kinds"
    for kind in KINDS.names():
        example = find_example(kind)
        picture, command = drawn.get(kind), spell_kind(kind)
        if example is not None:
            picture, command = (
                find_picture(example),
                spell_command([find_archive(example), "--out", "drawn"], example.plot),
            )
        elif picture is None:
            found = (FIGURES.get(name) for name in FIGURES.names())
            alike = [each for each in found if isinstance(each, Drawing) and each.plot.kind == kind]
            alike.sort(key=lambda each: each.name not in RENDERED)
            picture, command = (find_picture(alike[0]), spell_figure(alike[0])) if alike else (None, command)
        yield format_entry(kind, f"{KINDS.get(kind).title[0].upper()}{KINDS.get(kind).title[1:]}.", picture, command)


def list_figures() -> Iterator[str]:
    """Yield a part of the page for each figure with a name."""
    yield "## Figures with a name"
    for name in FIGURES.names():
        figure = FIGURES.get(name)
        title = EXPERIMENTS.get(figure.experiment).title if isinstance(figure, Drawing) else figure.title
        page = (
            f" [Numbers and setting](../{RENDERED[name].with_suffix('.md').relative_to(ROOT).as_posix()})."
            if name in RENDERED
            else ""
        )
        yield format_entry(name, f"{title}.{page}", find_picture(figure), spell_figure(figure))


def format_entry(name: str, text: str, picture: str | None, command: str) -> str:
    """Format a figure as Markdown: its name as a heading, what it shows, its picture and its command."""
    shown = f"![{name}]({picture})\n\n" if picture else ""
    return f"### {name}\n\n{text}\n\n{shown}```bash\n{command}\n```"


def find_example(kind: str) -> Drawing | None:
    """Find a figure that is nothing but this kind, drawn from an archive in the repository."""
    figures = [FIGURES.get(name) for name in FIGURES.names() if name in RENDERED]
    drawings = [figure for figure in figures if isinstance(figure, Drawing) and figure.plot.kind == kind]
    plain = [figure for figure in drawings if find_archive(figure) and not (figure.numbers or figure.finish)]
    return min(plain, key=lambda figure: figure.plot.facet is not None, default=None)


def find_archive(figure: Drawing) -> str:
    """Find the archive with the results of a figure; empty where there is none."""
    scale = RENDERED[figure.name].parent.name if figure.name in RENDERED else "small"
    path = f"experiments/results/{figure.experiment}-{scale}.zip"
    return path if (ROOT / path).is_file() else ""


def find_picture(figure: Any) -> str | None:
    """Find the committed picture of a figure, as the page names it."""
    return f"../{RENDERED[figure.name].relative_to(ROOT).as_posix()}" if figure.name in RENDERED else None


def spell_kind(kind: str) -> str:
    """Spell the command that draws a kind from the study of the page."""
    return f"semcom plot {STUDY} --kind {kind} --out drawn"


def spell_figure(figure: Any) -> str:
    """Spell the command that draws a figure with a name: from its archive, or after its sweep."""
    if not isinstance(figure, Drawing):
        return f"semcom figure {figure.name}"
    if archive := find_archive(figure):
        return f"semcom figure {figure.name} --results {archive} --out drawn"
    return f"semcom sweep {figure.experiment}\nsemcom figure {figure.name}"
