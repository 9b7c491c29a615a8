"""Names in docstrings, between backticks or called in an example: each that looks like one of ours is there."""

from __future__ import annotations

import ast
import builtins
import functools
import pydoc
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from semcom.config import RunConfig
from tests.modules import FOLDERS, ROOT, name_module

NAME = r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)"
QUOTED = re.compile(rf"(?<!`)`{NAME}(?:\([^`]*\))?`(?!`)|^ {{4}}{NAME}\(", re.MULTILINE)
"""What is asked: names, dotted or bare, called or not; neither flags nor shapes nor formulas, which are no names."""
FILE = re.compile(r".*\.(csv|ext|json|jsonl|md|npz|parquet|pdf|png|pt|py|txt|zip)")
LIBRARIES = (
    "torch", "torch.nn", "torch.nn.functional", "torch.optim.lr_scheduler", "torch.Tensor",
    "pandas", "pandas.DataFrame", "numpy", "scipy.stats",
)  # fmt: skip
"""Modules and classes of others whose names stand without them; an alias of one is its last word."""
ALIASES = {"F": "torch.nn.functional", "nn": "torch.nn", "np": "numpy", "loss": "torch.Tensor"}
FOREIGN = (
    *("aggregation", "clip", "conj", "torchrun"),
    *("ClassLabel", "datasets.load_dataset", "RandomCrop", "RandomHorizontalFlip", "ClientApp", "fraction_train"),
)
"""Names in the code of papers' authors, a function in a formula, a program; and those of libraries that need not be
there, or take long to import."""
DEFINITIONS = ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef


@dataclass
class Known:
    """What the packages define.

    Attributes:
        modules: dotted name -> the names at its top level, imported ones among them.
        classes: name -> the members of all classes that are called so, and the names of their bases.
        endings: the end of a dotted name of a module -> these modules.
        inside: names of members of classes.
        parameters: of functions.
        top: names at the top level of any module.
        texts: short texts in the code and their words: names of columns, of options, of entries of registries.
    """

    modules: dict[str, set[str]] = field(default_factory=dict)
    classes: dict[str, tuple[set[str], set[str]]] = field(default_factory=dict)
    endings: dict[str, list[str]] = field(default_factory=dict)
    inside: set[str] = field(default_factory=set)
    parameters: set[str] = field(default_factory=set)
    top: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)

    def members(self, name: str) -> set[str]:
        """List the members of a class and of its bases."""
        seen, todo, found = {name}, [name], set[str]()
        while todo:
            own, bases = self.classes.get(todo.pop(), (set(), set()))
            found, todo, seen = found | own, [*todo, *(bases - seen)], seen | bases
        return found

    def has(self, name: str) -> bool:
        """Tell whether a dotted name, of which the modules may lack their packages, leads to a definition."""
        parts = name.split(".")
        for i in range(len(parts), 0, -1):
            start, after = ".".join(parts[:i]), parts[i:]
            for module in self.endings.get(start, ()):
                if not after or after[0] in self.modules[module]:
                    return len(after) < 2 or after[1] in self.members(after[0])
        return parts[0] in self.classes and (len(parts) == 1 or parts[1] in self.members(parts[0]))


def list_bound(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.arg(arg=name):
            yield name
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in aliases)
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            yield name


def list_own(body: ast.AST) -> set[str]:
    """List the names of a module or a class: of what is inside its functions only the attributes."""
    found, todo = set[str](), list(ast.iter_child_nodes(body))
    while todo:
        node = todo.pop()
        found |= {*list_bound(node)}
        if not isinstance(node, DEFINITIONS):
            todo += ast.iter_child_nodes(node)
        elif isinstance(body, ast.ClassDef):
            found |= {
                name for inner in ast.walk(node) if isinstance(inner, ast.Attribute) for name in list_bound(inner)
            }
    return found


@functools.cache
def read_trees() -> dict[str, ast.Module]:
    files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    return {name_module(path): ast.parse(path.read_text(encoding="utf-8")) for path in files}


@functools.cache
def read_known() -> Known:
    found = Known()
    for module, tree in read_trees().items():
        found.modules[module] = list_own(tree)
        found.top |= found.modules[module]
        for node in ast.walk(tree):
            match node:
                case ast.ClassDef(name=name):
                    own, bases = found.classes.setdefault(name, (set(), set()))
                    own |= list_own(node)
                    bases |= {ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases}
                    found.inside |= own
                case ast.arg(arg=name):
                    found.parameters.add(name)
                case ast.Constant(value=str(text)) if " " not in text:
                    found.texts |= {text, *re.split(r"[^\w-]+", text)}
    for module in list(found.modules):
        parent, _, name = module.rpartition(".")
        found.modules.get(parent, set()).add(name)
        for i in range(module.count(".") + 1):
            found.endings.setdefault(module.split(".", i)[-1], []).append(module)
    return found


def list_quoted(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """List the names in docstrings, those below fields among them, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for found in QUOTED.finditer(node.value.value):
                yield node.lineno, found.group(1) or found.group(2)


def is_of_library(name: str) -> bool:
    first, _, rest = name.partition(".")
    wholes = [*(f"{library}.{name}" for library in LIBRARIES), f"{ALIASES.get(first, first)}.{rest}".rstrip(".")]
    return any(pydoc.locate(whole) is not None for whole in wholes)


def list_stale(tree: ast.Module) -> list[str]:
    """List the names in a module's docstrings that are neither defined in it or elsewhere, nor of a library."""
    known, nodes = read_known(), list(ast.walk(tree))
    bound = {name for node in nodes for name in list_bound(node)}
    modules = {name for node in nodes if isinstance(node, ast.ImportFrom) for name in list_bound(node)} & {
        *known.endings
    }
    values = {*RunConfig.__dataclass_fields__, *bound} - modules

    def is_there(name: str) -> bool:
        first, _, last = name.partition(".")[0], *name.rpartition(".")[1:]
        if known.has(name) or name in known.texts or hasattr(builtins, name) or FILE.fullmatch(name) or name in FOREIGN:
            return True
        if first != name:  # an attribute: of a section of the configuration, of a value of this module or of a class
            of_class = last in known.members(first.capitalize())
            own = first not in (*FOLDERS, "semcom_papers", *modules) and (
                of_class or first in values and last in known.inside
            )
            return own or is_of_library(name)
        made = any(name[:i] in known.texts and name[i:] in known.texts for i in range(1, len(name)) if name[i] == "_")
        return made or name in bound | known.inside | known.parameters | known.top or is_of_library(name)

    return [f"{line}: {name}" for line, name in list_quoted(tree) if not is_there(name)]


def test_names_in_docstrings_are_there() -> None:
    stale = {module: found for module, tree in read_trees().items() if (found := list_stale(tree))}
    assert not stale


def test_names_that_are_gone_are_found() -> None:
    """By any path: a module that is imported, a part of its name, a class, a base of it, or a bare name."""
    text = '''
"""See {}.

    {}(1)
"""

from semcom.studies.analysis import curves


class Own(Study):
    """A study: `Own.mean`, `{}`."""

    window: int
    """Of `curves.smooth_curves`, in rounds, up to `train.rounds`: `{}`."""
'''
    there = "curves.smooth_curves semcom.run Own.window Study.mean analysis.study.Study.mean torch.stack"
    gone = "curves.smooth semcom.walk Own.door Study.means analysis.study.Student torch.stacks smoothed"
    for name in there.split():
        assert list_stale(ast.parse(text.format(f"`{name}`", name, name, f"{name}(2)"))) == [], name
    for name in gone.split():
        found = list_stale(ast.parse(text.format(f"`{name}`", name, name, f"{name}(2)")))
        assert [line.split(": ")[1] for line in found] == 4 * [name], name
    others = ("--out", "run.csv", "x + y", "[K, d]", "E|h|^2", "psnr_at", "channel.snr_db")
    assert list_stale(ast.parse('"""' + " ".join(f"`{other}`" for other in others) + '"""')) == []
