"""The notebooks: executed for their pages, and written as .ipynb that opens on a reader's machine or in Colab.

The home page installs from the same address as they do.

A notebook is a Python file in jupytext's percent format. The build adds a first cell, which installs semcom where it is
missing, and the addresses, which follow from [project.urls] of pyproject.toml.
"""

from __future__ import annotations

import copy
import os
import posixpath
import re
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from mkdocs.structure.files import File, Files
from nbclient import NotebookClient
from nbconvert import MarkdownExporter

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = ROOT / "docs" / "notebooks"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REPOSITORY, SITE = PROJECT["urls"]["Repository"], PROJECT["urls"]["Documentation"]
VERSION = os.environ.get("MIKE_DOCS_VERSION", "dev")
"""Folder of this build on the branch gh-pages, which mike names."""
REF = "main" if VERSION == "dev" else f"v{VERSION}"
"""Branch or tag of the sources that the site is built from."""
SOURCE = f"git+{REPOSITORY}@{REF}"
"""What pip installs."""
LINK = re.compile(r"(?<=\]\()(?!\w+:)([^)#\s]+)")
"""The relative target of a link of Markdown."""
PANDAS = re.compile(r'<style scoped>.*?</style>\s*<table border="1" class="dataframe">', re.DOTALL)
"""The head of a table as pandas writes it, which has a look of its own."""


def on_files(files: Files, config: Any) -> Files:
    """Add the page of each notebook, its pictures and its .ipynb."""
    for path in sorted(NOTEBOOKS.glob("*.py")):
        text = nbformat.writes(make_notebook(path))
        files.append(File.generated(config, f"notebooks/{path.stem}.ipynb", content=text))
        for added in execute_notebook(path, config):
            files.append(added)
    return files


def on_config(config: Any) -> Any:
    """Link each page to the repository."""
    config.repo_url, config.repo_name = REPOSITORY, "semcom"
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let the home page, which has no copy of the repository around it, install from its address."""
    return (
        markdown.replace("pip install -e .\n", f"pip install {SOURCE}\n")
        if page.file.src_uri == "index.md"
        else markdown
    )


def make_notebook(path: Path) -> Any:
    """Make the notebook that readers open: the cells of a file below a badge and what installs semcom."""
    nodes = jupytext.read(path)
    for number, cell in enumerate(nodes.cells):
        cell.id = f"{path.stem.replace('_', '-')}-{number}"  # the same in every build
        if cell.cell_type == "markdown":
            cell.source = LINK.sub(lead_to_site, cell.source)
    badge = f"[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]({find_colab(path.stem)})"
    first = [
        nbformat.v4.new_markdown_cell(badge, id="badge"),
        nbformat.v4.new_code_cell(spell_install(path), id="install"),
    ]
    nodes.cells = first + nodes.cells
    return nodes


def spell_install(path: Path) -> str:
    """Spell the first cell: it installs semcom if it is missing, and stored results that a notebook reads."""
    wanted = re.findall(r'RESULTS / "([\w.-]+)"', path.read_text(encoding="utf-8"))
    lines = ["try:", "    import semcom", "except ImportError:", f"    %pip install -q {SOURCE}"]
    if wanted:  # an archive is in a clone, and in no package
        lines += [
            "from urllib.request import urlretrieve",
            "",
            "from semcom_papers.experiments.catalogue import RESULTS",
            "",
            "RESULTS.mkdir(exist_ok=True)",
        ]
    for name in wanted:
        address = f"{REPOSITORY}/raw/{REF}/experiments/results/{name}"
        lines += [f'if not (RESULTS / "{name}").exists():', f'    urlretrieve("{address}", RESULTS / "{name}")']
    return "\n".join(lines)


def find_colab(name: str) -> str:
    """Return the address at which Colab opens a notebook of the site."""
    published = f"{REPOSITORY.removeprefix('https://github.com/')}/blob/gh-pages/{VERSION}/notebooks/{name}.ipynb"
    return f"https://colab.research.google.com/github/{published}"


def lead_to_site(target: re.Match[str]) -> str:
    """Return the address of a page of the site that a notebook links to."""
    path = posixpath.normpath(posixpath.join("docs/notebooks", target[1]))
    uri = path.removeprefix("docs/") if path.startswith("docs/") else f"project/{path}"
    page = (
        uri.removesuffix("README.md") + "index.html"
        if uri.endswith("README.md")
        else re.sub(r"\.(md|py)$", ".html", uri)
    )
    return f"{SITE}{VERSION}/{page}"


def execute_notebook(path: Path, config: Any) -> Iterator[File]:
    """Execute a notebook, and yield its page and the pictures in it."""
    nodes = jupytext.read(path)
    with tempfile.TemporaryDirectory() as scratch:
        NotebookClient(nodes, timeout=300, kernel_name="python3", resources={"metadata": {"path": scratch}}).execute()
    for cell in nodes.cells:
        if cell.cell_type == "code":
            cell.outputs = join_streams(cell.outputs)
    text, resources = MarkdownExporter().from_notebook_node(nodes)
    text = re.sub(r"\n{4,}", "\n\n", PANDAS.sub("<table>", text))  # between outputs
    for name, content in resources["outputs"].items():
        renamed = f"{path.stem}-{name}"
        text = text.replace(f"({name})", f"({renamed})")
        yield File.generated(config, f"notebooks/{renamed}", content=content)
    title, _, rest = text.lstrip().partition("\n")
    colab, here = find_colab(path.stem), f"{path.stem}.ipynb"
    links = f"[Open in Colab]({colab}){{ .md-button }} [Download the notebook]({here}){{ .md-button download }}"
    yield File.generated(config, f"notebooks/{path.stem}.md", content=f"{title}\n\n{links}\n{rest}")


def join_streams(outputs: Sequence[Any]) -> list[Any]:
    """Join what a cell printed piece by piece, without the lines that a carriage return overwrites."""
    joined: list[Any] = []
    for each in outputs:
        if joined and each.output_type == "stream" == joined[-1].output_type and each.name == joined[-1].name:
            joined[-1].text += each.text
        else:
            joined.append(copy.copy(each))
    for each in joined:
        if each.output_type == "stream":
            each.text = re.sub(r"[^\n]*\r(?!\n)|[ \t]+$", "", each.text, flags=re.MULTILINE)
    return joined
