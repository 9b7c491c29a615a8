"""Imports point one way: channels <- semcom <- experiments <- figures, and inside semcom from left to right."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("channels", "semcom", "experiments", "figures")
INSIDE = ({"data", "models"}, {"engine"}, {"methods"}, {"metrics"}, {"bench"})
"""Rooms of semcom, each of which may use itself and those to its left."""
ASSEMBLES = {"semcom.runner", "semcom.evaluation", "semcom.newcomers", "semcom.request"}
"""Modules beside the rooms that put them together; no room may import them."""


def modules() -> list[Path]:
    return [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]


def short(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imported(tree: ast.AST, lazy: bool) -> Iterator[str]:
    """Names that a module imports; with `lazy` also inside functions. What only a type checker sees does not count."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the direction"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from (name for part in node.orelse for name in imported(part, lazy))
        elif lazy or not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from imported(node, lazy)


def column(room: str) -> int:
    """How far right a room of semcom stands; -1 for a module that is in no room."""
    return next((i for i, rooms in enumerate(INSIDE) if room in rooms), -1)


def names(path: Path) -> tuple[list[str], list[str]]:
    """The parts of a module's own name, and what it imports of the four packages."""
    own = list(path.relative_to(ROOT).with_suffix("").parts)
    lazy = own != ["semcom", "cli"]  # the command line alone may import upwards, inside its functions
    found = imported(ast.parse(path.read_text(encoding="utf-8")), lazy)
    return own, [name for name in found if name.split(".")[0] in ROOMS]


@pytest.mark.parametrize("path", modules(), ids=short)
def test_imports_point_one_way(path: Path) -> None:
    own, found = names(path)
    for name in found:
        assert ROOMS.index(name.split(".")[0]) <= ROOMS.index(own[0]), f"{path.name} imports {name}"


@pytest.mark.parametrize(
    "path", sorted((ROOT / "semcom").glob("*/*.py")), ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_rooms_of_semcom_read_left_to_right(path: Path) -> None:
    own, found = names(path)
    here = column(own[1])
    assert here >= 0, f"{own[1]} has no place in the order of rooms"
    for name in found:
        parts = name.split(".")
        if parts[0] != "semcom":
            continue
        assert ".".join(parts[:2]) not in ASSEMBLES, f"{path.name} imports {name}"
        there = column(parts[1])
        assert there < here or parts[1] == own[1], f"{path.name} imports {name}"


def test_a_module_that_breaks_the_rule_is_found() -> None:
    source = (
        "if TYPE_CHECKING:\n    import figures\ndef f():\n    from semcom.methods import fedcl\nimport channels.link\n"
    )
    assert list(imported(ast.parse(source), lazy=True)) == ["semcom.methods.fedcl", "channels.link"]
    assert list(imported(ast.parse(source), lazy=False)) == ["channels.link"]
