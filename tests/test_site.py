"""docs/site: pages that the build makes have everything they are about, and links lead to places in the site."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import semcom.channels
from semcom.cli.main import COMMANDS, main
from semcom.plots.kinds import KINDS
from semcom.plots.registry import FIGURES

ROOT = Path(__file__).parents[1]


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"site_{name}", ROOT / "docs" / "site" / f"{name}.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def hooks() -> Any:
    return load("hooks")


@pytest.fixture(scope="module")
def notebooks() -> Any:
    return load("notebooks")


@pytest.fixture(scope="module")
def commands() -> str:
    return made(load("commands"), "cli.md")


@pytest.fixture(scope="module")
def gallery() -> Any:
    return load("gallery")


def made(hook: Any, here: str, text: str = "") -> str:
    page = SimpleNamespace(file=SimpleNamespace(src_uri=here), meta={})
    return str(hook.on_page_markdown(text, page=page, config=None, files=None))


def test_the_reference_has_every_public_name() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^::: semcom\.(\w+)$", page, re.M)) == sorted({*semcom.__all__} - {"__version__"})
    assert set(re.findall(r"^::: semcom\.channels\.(\w+)$", page, re.M)) <= set(semcom.channels.__all__)


def test_the_page_of_the_command_line_has_every_command(commands: str) -> None:
    assert re.findall(r"^## semcom ?(.*)$", commands, re.M) == ["", *COMMANDS.names()]
    assert "usage: semcom COMMAND [NAME] [FLAGS]" in commands
    assert "## semcom pack\n\n```text\nsemcom pack FOLDER [-h] [--out STR] [--arrays | --no-arrays]\n```" in commands


@pytest.mark.parametrize(
    ("words", "some"),
    [
        ("train", {"seed", "channel.snr-db", "finish", "train.lr", "track"}),
        ("train fedprox --channel.kind ofdm --partition.kind owner", {"hyper.mu", "channel.csi", "partition.test"}),
        ("train scaffold --air.rate mcs --network.kind cell", {"hyper.eta-g", "air.coverage", "network.radius-m"}),
        ("sweep", {"methods", "vary", "data.root"}),
        *((name, set()) for name in COMMANDS.names() if name not in ("train", "sweep")),
    ],
)
def test_every_flag_of_the_help_has_an_anchor(commands: str, words: str, some: set[str]) -> None:
    command = words.split()[0]
    with contextlib.redirect_stdout(io.StringIO()) as out:  # where no boxes can be drawn
        assert main([*words.split(), "--help"]) == 0
    flags = set(re.findall(r"^  --([a-z][\w.-]*)", out.getvalue(), re.M))
    anchors = re.findall(r'<h4 id="([^"]+)">', commands)
    assert {f"{command}--{flag}" for flag in flags} <= set(anchors) and len(set(anchors)) == len(anchors)
    assert some <= flags and (flags or command == "env")


def test_a_flag_has_its_text_below_it(commands: str) -> None:
    (found,) = re.findall(r'<h4 id="train--train.batch-size"><code>(.*?)</code>.*</h4>\n<p>(.*)</p>', commands)
    assert found == ("--train.batch-size INT", "Size of a mini-batch. (default: 50, or the preset's)")
    assert "joint ones: partition.ways,partition.shots=2:150,3:100 (repeatable)" in commands
    assert re.search(r'id="train--hyper.mu">.*\n<p>With <code>fedprox</code>.*: Weight of the proximal', commands)
    assert re.search(r'id="train--hyper.mu-moon">.*\n<p>With <code>moon</code>: ', commands)


NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.py"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_the_cells_of_its_source_below_what_installs_semcom(notebooks: Any, path: Path) -> None:
    repository = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Repository"]
    nodes = notebooks.make_notebook(path)
    notebooks.nbformat.validate(nodes)
    badge, install, *cells = nodes.cells
    where = repository.removeprefix("https://github.com/")
    address = f"https://colab.research.google.com/github/{where}/blob/gh-pages/dev/notebooks/{path.stem}.ipynb"
    assert badge.source.endswith(f"({address})")
    assert install.source.splitlines()[:2] == ["try:", "    import semcom"]
    assert f"%pip install -q git+{repository}@main" in install.source
    parts = re.split(r"^# %%(.*)\n", path.read_text(encoding="utf-8"), flags=re.M)[1:]
    kinds = ["markdown" if "markdown" in head else "code" for head in parts[::2]]
    assert [cell.cell_type for cell in cells] == kinds
    for cell, source in zip(cells, parts[1::2], strict=True):
        if cell.cell_type == "code":
            assert cell.source == source.strip() and not cell.outputs
        else:  # links lead to pages of the site
            assert not re.search(r"\]\((?!https:)", cell.source)
            words = re.sub(r"^# ?", "", source.strip(), flags=re.M)
            assert re.sub(r"\]\([^)]*\)", "]()", cell.source) == re.sub(r"\]\([^)]*\)", "]()", words)


def test_a_notebook_fetches_the_stored_results_that_it_reads(notebooks: Any) -> None:
    first = notebooks.spell_install(ROOT / "docs" / "notebooks" / "reading_results.py")
    assert first.splitlines()[-1].endswith(
        'experiments/results/letter-fig2b-small.zip", RESULTS / "letter-fig2b-small.zip")'
    )
    assert first.splitlines()[-2] == 'if not (RESULTS / "letter-fig2b-small.zip").exists():'  # also beside semcom
    assert (ROOT / "experiments" / "results" / "letter-fig2b-small.zip").is_file()
    compile(first.replace("%pip", "pass #"), "install", "exec")
    assert "RESULTS" not in notebooks.spell_install(ROOT / "docs" / "notebooks" / "first_study.py")


@pytest.mark.parametrize(
    ("link", "page"),
    [
        ("](own_method_and_channel.py)", "notebooks/own_method_and_channel.html"),
        ("](../channels.md#a-cell)", "channels.html"),
        ("](../../experiments/README.md)", "project/experiments/index.html"),
    ],
)
def test_links_of_a_notebook_lead_to_the_site(notebooks: Any, link: str, page: str) -> None:
    assert notebooks.lead_to_site(notebooks.LINK.search(link)) == f"{notebooks.SITE}dev/{page}"


def test_progress_that_is_overwritten_is_not_printed(notebooks: Any) -> None:
    def stream(name: str, text: str) -> Any:
        return notebooks.nbformat.v4.new_output("stream", name=name, text=text)

    pieces = [stream("stderr", "\r0 finished  "), stream("stderr", "\r[1/1] done  \n"), stream("stdout", "table\n")]
    assert [each.text for each in notebooks.join_streams(pieces)] == ["[1/1] done\n", "table\n"]


def test_the_home_page_installs_from_the_address_of_the_repository(notebooks: Any) -> None:
    text = made(notebooks, "index.md", (ROOT / "docs" / "index.md").read_text(encoding="utf-8"))
    assert f"pip install git+{notebooks.REPOSITORY}@main\n" in text


def test_the_gallery_has_every_kind_and_every_figure_with_its_picture_and_command(gallery: Any) -> None:
    drawn = {kind: f"gallery/{kind}.png" for kind in KINDS.names()}
    page = "\n\n".join([*gallery.list_kinds(drawn), *gallery.list_figures()])
    found = dict(re.findall(r"^### (.*)\n((?:.*\n)+?```bash\n(?:.*\n)*?```)$", page, re.M))
    assert set(found) == {*KINDS.names(), *FIGURES.names()}
    rendered = {path.stem: path.relative_to(ROOT) for path in (ROOT / "figures" / "rendered").rglob("*.png")}
    assert set(rendered) <= set(FIGURES.names())
    for name in FIGURES.names():
        assert (f"![{name}](../{rendered[name]})" in found[name]) if name in rendered else "![" not in found[name]
        assert f"\nsemcom figure {name}" in found[name]
    for kind in KINDS.names():
        committed = re.search(r"!\[.*\]\(\.\./(figures/rendered/.*\.png)\)", found[kind])
        of_study = f"![{kind}](gallery/{kind}.png)\n\n```bash\nsemcom plot results/gallery --kind {kind} --out drawn\n"
        assert (ROOT / committed[1]).is_file() if committed else of_study in found[kind]
    archive = "experiments/results/letter-fig2b-small.zip"
    assert f"\nsemcom plot {archive} --out drawn --kind lines --x channel.snr_db\n" in found["lines"]
    assert f"\nsemcom figure letter-fig2b --results {archive} --out drawn\n" in found["letter-fig2b"]
    archives = set(re.findall(r"experiments/results/[\w.-]+\.zip", page))
    assert len(archives) > 30 and all((ROOT / path).is_file() for path in archives)


@pytest.mark.parametrize(
    ("here", "link", "target"),
    [
        ("tutorial.md", "[a](studies.md#grids)", "[a](studies.md#grids)"),
        ("index.md", "[a](../README.md)", "[a](project/README.md)"),
        ("index.md", "[a](notebooks/first_study.py)", "[a](notebooks/first_study.md)"),
        ("channels.md", "[a](../figures/rendered/channel-ber.md)", "[a](project/figures/rendered/channel-ber.md)"),
        ("project/README.md", "![a](docs/pictures/demo.png)", "![a](../pictures/demo.png)"),
        ("project/README.md", "[a](CONTRIBUTING.md)", "[a](CONTRIBUTING.md)"),
        ("metrics.md", "[a](../experiments/letter/README.md#b)", "[a](project/experiments/letter/README.md#b)"),
        ("project/experiments/letter/README.md", "[a](../protocol.md#b)", "[a](../protocol.md#b)"),
        (
            "project/README.md",
            "[![a](docs/pictures/demo.png)](docs/a.md#b)",
            "[![a](../pictures/demo.png)](docs/a.md#b)",
        ),
        ("project/experiments/results/README.md", "[a](../../docs/metrics.md#b)", "[a](../../../metrics.md#b)"),
        ("tutorial.md", "[a](missing.md)", "[a](missing.md)"),
        ("tutorial.md", "[a](https://example.org/a.md)", "[a](https://example.org/a.md)"),
        ("tutorial.md", "```text\n[a](../README.md)\n```", "```text\n[a](../README.md)\n```"),
    ],
)
def test_links_are_moved(hooks: Any, here: str, link: str, target: str) -> None:
    assert made(hooks, here, link) == target


def test_every_page_is_in_the_navigation() -> None:
    config = (ROOT / "docs" / "site" / "mkdocs.yml").read_text(encoding="utf-8")
    listed = set(re.findall(r"^ +- (?:[^:\n]+: )?([\w/-]+\.md)$", config, re.M))
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert pages <= listed
    beside = (path.relative_to(ROOT).as_posix() for path in (ROOT / "experiments").rglob("*.md"))
    assert {f"project/{page}" for page in beside} <= listed
    assert {f"notebooks/{path.stem}.md" for path in (ROOT / "docs" / "notebooks").glob("*.py")} <= listed
