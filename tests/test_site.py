"""docs/site: the reference has every public name, and links lead to the places that their targets have in the site."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import semcom.channels
from semcom.cli.main import COMMANDS

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def hooks() -> Any:
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs" / "site" / "hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def moved(hooks: Any, here: str, text: str) -> str:
    page = SimpleNamespace(file=SimpleNamespace(src_uri=here))
    return str(hooks.on_page_markdown(text, page, None, None))


def test_the_reference_has_every_public_name() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^::: semcom\.(\w+)$", page, re.M)) == sorted({*semcom.__all__} - {"__version__"})
    assert set(re.findall(r"^::: semcom\.channels\.(\w+)$", page, re.M)) <= set(semcom.channels.__all__)


def test_the_page_of_the_command_line_has_every_command(hooks: Any) -> None:
    text = moved(hooks, "cli.md", "")
    assert re.findall(r"^## semcom ?(.*)$", text, re.M) == ["", *COMMANDS.names()]
    assert "usage: semcom train METHOD" in text


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
    assert moved(hooks, here, link) == target


def test_every_page_is_in_the_navigation() -> None:
    config = (ROOT / "docs" / "site" / "mkdocs.yml").read_text(encoding="utf-8")
    listed = set(re.findall(r"^ +- (?:[^:\n]+: )?([\w/-]+\.md)$", config, re.M))
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert pages <= listed
    beside = (path.relative_to(ROOT).as_posix() for path in (ROOT / "experiments").rglob("*.md"))
    assert {f"project/{page}" for page in beside} <= listed
    assert {f"notebooks/{path.stem}.md" for path in (ROOT / "docs" / "notebooks").glob("*.py")} <= listed
