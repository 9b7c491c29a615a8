"""Imports point one way: from the command line down to the channels, without a circle.

Every module of the four packages is seen, and every import of it: at its top, inside a function, and under
`TYPE_CHECKING`, where a circle hides from Python but not from a reader.
"""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

import semcom
from tests.modules import FOLDERS, ROOT, name_module

PAPERS = {path.stem for path in (ROOT / "experiments").iterdir() if path.suffix == ".py" or path.is_dir()}
PAPERS -= {"papers", "measures", "claims", "results", "catalogue", "__pycache__"}
"""Files and folders of `experiments` on papers and questions, and what several of these share."""
ROOMS = {
    "": ({"semcom"}, {"semcom_papers"}),
    "semcom": (
        {"channels"},
        {"escape", "packed"},
        {"config"},
        {"declarations", "files", "packages", "registry", "screen"},
        {"data", "models", "scenes"},
        {"tasks"},
        {"engine"},
        {"methods"},
        {"runs"},
        {"flower", "attacks"},
        {"studies"},
        {"plots"},
        {"cli"},
        {"__init__", "__main__"},
    ),
    "semcom.engine": ({"host"}, {"store"}, {"air"}, {"train"}, {"world"}),
    "semcom.runs": ({"request"}, {"folder"}, {"result"}, {"rounds"}),
    "semcom_papers": ({"experiments"}, {"figures"}),
    "semcom_papers.experiments": ({"papers", "catalogue"}, {"measures"}, {"claims"}, PAPERS),
}
"""The rooms and loose modules of a package, or of a room: each may import itself and those in the lines above."""
READERS = ("semcom.cli", "semcom.studies", "semcom.plots", "semcom_papers.experiments.claims", "semcom_papers.figures")
WORKERS = {"semcom.cli.channel_check", "semcom.cli.image_curve", "semcom.cli.split", "semcom.plots.response"}
"""Rooms that only read, so that none of their modules imports torch, and the modules in them that do more."""


def modules(root: Path) -> dict[str, Path]:
    """Dotted name -> file of every module; a package is called by its own name."""
    return {name_module(path, root): path for folder in FOLDERS for path in sorted((root / folder).rglob("*.py"))}


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield what a module imports, at its top or anywhere else."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the direction"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def edges(known: Mapping[str, Path]) -> dict[str, set[str]]:
    """Module -> the modules that it imports; of `semcom` itself, those of the names that it takes from there."""
    graph: dict[str, set[str]] = {}
    for name, path in known.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        targets = [target for target in imported(tree) if name != "semcom"]
        targets += [f"semcom.{node.attr}" for node in ast.walk(tree) if isinstance(node, ast.Attribute) and is_us(node)]
        targets = [semcom._LAZY.get(target.removeprefix("semcom."), target) for target in targets]
        modules = {target if target in known else target.rpartition(".")[0] for target in targets}
        graph[name] = {module for module in modules if module in known and module not in (name, "semcom")}
    return graph


def is_us(node: ast.Attribute) -> bool:
    """Whether it is an attribute of `semcom`, which imports what needs torch when it is first asked for."""
    return isinstance(node.value, ast.Name) and node.value.id == "semcom"


def is_inside(name: str, house: str) -> bool:
    return not house or f"{name}.".startswith(f"{house}.")


def find_room(name: str, house: str) -> str:
    """The room, or loose module, of a package or of a room of it that a module is in."""
    return name.removeprefix(house).strip(".").split(".")[0] if name != house else "__init__"


def height(name: str, house: str) -> int:
    room = find_room(name, house)
    found = [i for i, rooms in enumerate(ROOMS[house]) if room in rooms]
    assert found or name in ROOMS, f"{name} has no place in the order of rooms"
    return found[0] if found else -1  # a room's own docstring imports nothing


def wrong(graph: Mapping[str, set[str]]) -> Iterator[str]:
    for name, target in sorted((name, target) for name, targets in graph.items() for target in targets):
        for house in ROOMS:
            if not is_inside(name, house) or not is_inside(target, house):
                continue
            rooms = find_room(name, house), find_room(target, house)
            if rooms[0] == rooms[1] or set(rooms) <= PAPERS:  # papers and questions build on each other
                continue
            if height(name, house) <= height(target, house):
                yield f"{name} imports {target}"


GRAPH = edges(modules(ROOT))


def test_every_module_is_seen() -> None:
    files = {path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    assert set(modules(ROOT).values()) == files
    assert {"semcom.files", "semcom.registry", "semcom.channels.link", "semcom.plots.render"} <= GRAPH.keys()


def test_imports_point_one_way() -> None:
    assert list(wrong(GRAPH)) == []


def test_no_imports_go_in_a_circle() -> None:
    graphlib.TopologicalSorter(GRAPH).prepare()  # raises CycleError, which names the circle


def at_top(nodes: Iterable[ast.stmt]) -> Iterator[str]:
    """Yield what a module imports as it is imported itself, from the package that holds it on."""
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (semcom._LAZY.get(name.removeprefix("semcom."), name) for name in imported(node))
        elif isinstance(node, ast.Try | ast.With | ast.If) and "CHECKING" not in ast.dump(getattr(node, "test", node)):
            yield from at_top([*node.body, *getattr(node, "orelse", ())])


def reach(known: Mapping[str, Path], package: str) -> set[str]:
    """List the modules that import a package as they are imported, or whose imports do."""
    named = dict[str, set[str]]()
    for name, path in known.items():
        tops = [name, *at_top(ast.parse(path.read_text(encoding="utf-8")).body)]
        named[name] = {part for each in tops for part in (each, each.rpartition(".")[0], each.partition(".")[0])}
    found = more = {package}
    while more := {name for name, parts in named.items() if parts & more} - found:
        found = found | more
    return found - {package}


def test_what_only_reads_imports_no_torch() -> None:
    """`tests/cli/test_reading.py` carries the commands out, which import some modules as they go."""
    found = {name for name in reach(modules(ROOT), "torch") if name.startswith(READERS)}
    assert found == WORKERS


def test_a_way_to_torch_is_found(tmp_path: Path) -> None:
    texts = {
        "a": "import semcom.b",
        "b": "from semcom.c import f",
        "c": "import torch",
        "d": "def f():\n    import torch",
    }
    for name, text in texts.items():
        planted(tmp_path, {f"semcom/{name}.py": text})
    assert reach(modules(tmp_path), "torch") == {"semcom.a", "semcom.b", "semcom.c"}


def private(known: Mapping[str, Path]) -> Iterator[str]:
    """Yield the imports of test doubles, and of what other packages keep to themselves."""
    for name, path in known.items():
        for target in imported(ast.parse(path.read_text(encoding="utf-8"))):
            parts = target.split(".")
            if "mock" in parts or "unittest" in parts or any(part.startswith("_private") for part in parts):
                yield f"{name} imports {target}"


def test_no_module_patches_another_package() -> None:
    assert list(private(modules(ROOT))) == []


# Planted faults ------------------------------------------------------------------------------------------------------


def planted(root: Path, files: Mapping[str, str]) -> dict[str, set[str]]:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return edges(modules(root))


TYPED = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from semcom.engine.air.{} import thing\n"
CIRCLES = {
    "at the top": ("from semcom.engine.air import b\n", "import semcom.engine.air.a\n"),
    "for a type checker": (TYPED.format("b"), TYPED.format("a")),
    "inside a function": ("from semcom.engine.air.b import f\n", "def f():\n    from semcom.engine.air import a\n"),
}


@pytest.mark.parametrize("circle", CIRCLES)
def test_a_planted_circle_is_found(circle: str, tmp_path: Path) -> None:
    one, other = CIRCLES[circle]
    graph = planted(tmp_path, {"semcom/engine/air/a.py": one, "semcom/engine/air/b.py": other})
    with pytest.raises(graphlib.CycleError, match=r"semcom\.engine\.air\.a"):
        graphlib.TopologicalSorter(graph).prepare()


def test_a_circle_of_loose_modules_is_found(tmp_path: Path) -> None:
    files = {f"figures/{a}.py": f"import semcom_papers.figures.{b}" for a, b in ("xy", "yz", "zx")}
    with pytest.raises(graphlib.CycleError):
        graphlib.TopologicalSorter(planted(tmp_path, files)).prepare()


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("channels/a.py", "import semcom.files", "semcom.channels.a imports semcom.files"),
        ("semcom/data/a.py", "def f():\n    import semcom.runs.a", "semcom.data.a imports semcom.runs.a"),
        ("semcom/files.py", "import semcom.data.b", "semcom.files imports semcom.data.b"),
        ("semcom/data/a.py", "import semcom.models.b", "semcom.data.a imports semcom.models.b"),
        (
            "experiments/claims/a.py",
            "import semcom_papers.experiments.demo",
            "semcom_papers.experiments.claims.a imports semcom_papers.experiments.demo",
        ),
        ("semcom/studies/a.py", "import semcom.plots.b", "semcom.studies.a imports semcom.plots.b"),
        ("experiments/bounds.py", "import semcom_papers.experiments.demo", None),
        (
            "semcom/cli/a.py",
            "def f():\n    import semcom_papers.figures.b",
            "semcom.cli.a imports semcom_papers.figures.b",
        ),
        ("semcom/cli/a.py", "import semcom.data.b", None),
        ("semcom/engine/host/a.py", "import semcom.engine.air.b", "semcom.engine.host.a imports semcom.engine.air.b"),
        ("semcom/engine/store/a.py", "import semcom.engine.air.b", "semcom.engine.store.a imports semcom.engine.air.b"),
        ("semcom/engine/air/a.py", "import semcom.engine.world", "semcom.engine.air.a imports semcom.engine.world"),
        ("semcom/engine/train/a.py", "import semcom.engine.air.b", None),
    ],
)
def test_an_import_of_the_wrong_direction_is_found(name: str, text: str, found: str | None, tmp_path: Path) -> None:
    others = ("files", "runs/a", "data/b", "models/b", "plots/b", "engine/air/b", "engine/world")
    targets = (*(f"semcom/{other}.py" for other in others), "experiments/demo.py", "figures/b.py")
    graph = planted(tmp_path, {**dict.fromkeys(targets, ""), name: text})
    assert list(wrong(graph)) == ([] if found is None else [found])


@pytest.mark.parametrize(
    "text", ["from unittest import mock", "import unittest.mock", "def f():\n    from ray._private import services"]
)
def test_a_patch_of_another_package_is_found(text: str, tmp_path: Path) -> None:
    (tmp_path / "semcom").mkdir()
    (tmp_path / "semcom" / "a.py").write_text(text, encoding="utf-8")
    assert [each.split()[0] for each in private(modules(tmp_path))] == ["semcom.a"]
