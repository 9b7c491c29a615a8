"""What a script or a notebook registers is part of a run's identity: by its text, and by what that refers to."""

from __future__ import annotations

import importlib
import linecache
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import semcom
from semcom.config import RunConfig, run_hash
from semcom.runs.request.resolve import resolve
from semcom.runs.rounds.runner import run
from tests import worlds
from tests.fresh import forget_modules
from tests.refusals import refuses

HEADER = """
import torch
from torch import nn
import semcom
from semcom.channels import LINKS
from semcom.channels.fading import AWGN
from semcom.channels.cell import UMi
from semcom import ACCESS, COMPRESSIONS, DATASETS, ENCODERS, HEADS, METHODS, PARTITIONS, RATES
from semcom import PATH_LOSSES, PLACES, SPEEDS
from semcom.data.partitions import IID
from semcom.data.sources import digits
from semcom.engine.air.access import Superposed
from semcom.engine.air.compression import TopK
from semcom.engine.air.places import Cell
from semcom.engine.air.rates import Capacity
from semcom.engine.air.speeds import LogNormal
from semcom.methods.fedavg import FedAvg
COUNT, LEVELS, seen = 3, [1.0, 2.0], []

def helper(x):
    seen.append(x)
    return COUNT * x

class Layer(nn.Module):
    scale = LEVELS[0]
    def forward(self, x):
        return helper(x)
"""
OWN = "class Own({}):\n    def more(self): return helper(1), Layer, LEVELS\n"
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "METHODS": (OWN.format("FedAvg"), {"method": "test-own"}),
    "LINKS": (OWN.format("AWGN"), {"channel": {"kind": "test-own"}}),
    "ENCODERS": (
        "def own(channels, features, size):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(channels * size ** 2, features), Layer(), *LEVELS)\n",
        {"model": {"encoder": "test-own"}},
    ),
    "HEADS": (
        "def own(features, classes):\n    return nn.Sequential(nn.Linear(features, classes), Layer(), *LEVELS)\n",
        {"model": {"head": "test-own"}},
    ),
    "DATASETS": ("def own(root):\n    return helper(digits(root)), Layer, LEVELS\n", {"data": {"name": "test-own"}}),
    "ACCESS": (OWN.format("Superposed"), {"air": {"access": "test-own", "parameters": "analog"}}),
    "COMPRESSIONS": (OWN.format("TopK"), {"air": {"compress": "test-own"}}),
    "RATES": (OWN.format("Capacity"), {"air": {"rate": "test-own"}}),
    "PLACES": (OWN.format("Cell"), {"network": {"kind": "test-own"}}),
    "PATH_LOSSES": (OWN.format("UMi"), {"network": {"kind": "cell", "path_loss": "test-own"}}),
    "SPEEDS": (OWN.format("LogNormal"), {"network": {"speeds": "test-own"}}),
    "PARTITIONS": (OWN.format("IID"), {"partition": {"kind": "test-own"}}),
}
"""Registry -> what is registered in it as test-own, and the fields of a run that uses it."""
METHOD = f"@METHODS.register('test-own')\n{KINDS['METHODS'][0]}"
EDITS = {
    "a number": ("COUNT, LEVELS, seen = 3", "COUNT, LEVELS, seen = 4"),
    "a list": ("[1.0, 2.0]", "[1.0, 3.0]"),
    "a function": ("COUNT * x", "x * COUNT"),
    "a class": ("return helper(x)", "return helper(x) + 1"),
}


def execute(text: str) -> dict[str, Any]:
    """Execute a text as a notebook does a cell, and return its globals."""
    scope: dict[str, Any] = {"__name__": "__main__", "get_ipython": None, "In": ["", text]}
    name = f"<cell {hash(text)}>"
    linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
    exec(compile(text, name, "exec"), scope)
    return scope


def hash_in_cell(text: str, fields: dict[str, Any]) -> str:
    """Execute a text, and return the hash of a run that uses what it registers."""
    execute(text)
    return run_hash(resolve({"method": "fedavg", "device": "cpu", **fields}))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_an_edit_makes_another_run_whatever_it_is_of(kind: str) -> None:
    text, fields = KINDS[kind]
    text = f"@{kind}.register('test-own')\n{text}"
    before = hash_in_cell(HEADER + text, fields)
    assert hash_in_cell("# another line\n" + HEADER + "\n\n" + text, fields) == before
    found = {hash_in_cell((HEADER + text).replace(*edit), fields) for edit in EDITS.values()}
    assert len(found - {before}) == len(EDITS)


@pytest.mark.parametrize("edit", EDITS)
def test_what_modules_say_that_a_cell_uses_counts(edit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked what was imported, not what has been written there since: that is what runs."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "used_by_cells", raising=False)
    (tmp_path / "used_by_cells.py").write_text(HEADER)
    text = METHOD.replace("helper", "used_by_cells.helper").replace("LEVELS", "used_by_cells.LEVELS")
    text = "import used_by_cells\nfrom semcom import METHODS\nfrom used_by_cells import FedAvg, Layer\n" + text
    before = hash_in_cell(text, {"method": "test-own"})
    (tmp_path / "used_by_cells.py").write_text(HEADER.replace(*EDITS[edit]) + "\nMORE = 'so that the size differs'\n")
    assert hash_in_cell(text, {"method": "test-own"}) == before
    importlib.invalidate_caches()
    importlib.reload(sys.modules["used_by_cells"])
    assert hash_in_cell(text, {"method": "test-own"}) != before


MANY = "; ".join(f"self.a{i}" for i in range(300))
"""So many that Python writes the number of a further one in two steps."""


@pytest.mark.parametrize(
    "text",
    [
        "def more(self):\n        import used_in_functions\n        return used_in_functions.f()",
        "def more(self):\n        from used_in_functions import f\n        return f()",
        f"def more(self):\n        {MANY}\n        from used_in_functions import f\n        return f()",
        "more = staticmethod(partial(f, 1))",
        "more = property(lambda self: self.f, None, f)",
    ],
)
def test_imports_within_functions_and_wrapped_functions_count(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "used_in_functions", raising=False)
    found = []
    for content in ("f = lambda: 1", "f = lambda: 2", "f = lambda: 2"):
        (tmp_path / "used_in_functions.py").write_text(content)
        forget_modules(tmp_path)
        imports = "" if "import" in text else "from functools import partial\nfrom used_in_functions import f\n"
        cell = f"{HEADER}{imports}\n@METHODS.register('test-own')\nclass Own(FedAvg):\n    {text}\n"
        found.append(hash_in_cell(cell, {"method": "test-own"}))
    assert found[0] != found[1] == found[2]


def test_what_a_run_fills_is_no_definition() -> None:
    """A list that is empty as a run begins, and a number that a function counts up."""
    text = HEADER + "\ncalls = 0\ndef count():\n    global calls\n    calls += 1\n" + METHOD
    scope = execute(text.replace("helper(1)", "helper(1), count()"))
    before = resolve(RunConfig("test-own", device="cpu"))
    scope["helper"](1), scope["count"]()
    assert scope["seen"] == [1] and scope["calls"] == 1 and resolve(before) == before


def test_a_line_that_leaves_a_try_makes_another_run() -> None:
    """Both have the same bytecode in Python 3.11; what differs is where an exception leads."""
    head = f"{HEADER}\n@METHODS.register('test-own')\nclass Own(FedAvg):\n    def more(self):\n        try:\n"
    fails = "        except ValueError:\n            helper(0)\n"
    texts = [
        f"{head}            helper(1)\n            helper(2)\n{fails}",
        f"{head}            helper(1)\n{fails}        else:\n            helper(2)\n",
    ]
    assert len({hash_in_cell(text, {"method": "test-own"}) for text in texts}) == 2


def test_what_leaves_no_text_is_refused() -> None:
    exec(compile(HEADER + METHOD, "<string>", "exec"), {"__name__": "__main__"})  # as `python -c` does
    with refuses("method", "leaves no text"):
        resolve(RunConfig("test-own", device="cpu"))


def test_closures_count() -> None:
    make = "def make(n):\n    @METHODS.register('test-own')\n    class Own(FedAvg):\n        def more(self): return n\n"
    found = [hash_in_cell(f"{HEADER}{make}make({n})\n", {"method": "test-own"}) for n in (1, 2, 1)]
    assert found[0] == found[2] != found[1]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("__import__('numpy').sin", "__import__('numpy').cos"),
        ("__import__('re').compile('a')", "__import__('re').compile('b')"),
        ("__import__('types').MappingProxyType({1: 2})", "__import__('types').MappingProxyType({1: 3})"),
        ("torch.ones(2) * 1j", "(torch.ones(2) * 1j).conj()"),
    ],
)
def test_objects_of_others_are_told_apart_by_what_they_hold(one: str, other: str) -> None:
    own = "@METHODS.register('test-own')\nclass Own(FedAvg):\n    def more(self): return HELD\n"
    found = [hash_in_cell(f"{HEADER}HELD = {held}\n{own}", {"method": "test-own"}) for held in (one, other, one)]
    assert found[0] == found[2] != found[1]


def test_the_folder_of_an_edited_cell_is_refused_and_a_sweep_trains_again(tmp_path: Path) -> None:
    """The same cell in the same folder gives the stored result."""

    def request_with(part: str) -> RunConfig:
        cell = f"{HEADER}\n@METHODS.register('test-own')\nclass Own(FedAvg):\n    averages = ('{part}.',)\n"
        execute(cell)
        return worlds.request("test-own", out=str(tmp_path / "run"), contents={})

    def swept() -> int:
        few = {"clients": 2, "train.rounds": 1, "device": "cpu"}
        semcom.sweep(methods="test-own", seeds=0, set=few, out=tmp_path / "sweep")
        return len(list((tmp_path / "sweep").glob("*/summary.json")))

    first = run(request_with("encoder"))
    assert swept() == 1
    assert run(request_with("encoder")).summary == first.summary and swept() == 1
    request = request_with("head")
    with refuses("out", "code of method test-own has changed"):
        run(request)
    assert swept() == 2


def test_other_processes_are_known_not_to_have_it(tmp_path: Path) -> None:
    execute(HEADER + METHOD)
    few = {"clients": 2, "train.rounds": 1, "device": "cpu"}
    with refuses("processes", "method test-own", "plug-in"):
        resolve(RunConfig("test-own", processes=2, device="cpu"))
    with refuses("jobs", "method test-own", "plug-in"):
        semcom.sweep(methods="test-own", seeds=(0, 1), set=few, out=tmp_path / "sweep", jobs=2)
    assert not list(tmp_path.rglob("config.json"))


def test_two_processes_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Python's seeds of hashes, from which the order of sets follows, are others in each."""
    text = HEADER + METHOD.replace("LEVELS", "LEVELS, ALL, x in {'a', 'b', 'c'}") + "\nALL = {*'abcdef'}\n"
    show = "from semcom.config import run_hash\nprint(run_hash(semcom.resolve(semcom.RunConfig('test-own'))))\n"
    (tmp_path / "script.py").write_text(text + show)
    runpy.run_path(str(tmp_path / "script.py"), run_name="__main__")
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    there = subprocess.check_output([sys.executable, str(tmp_path / "script.py")], env=environment, text=True)
    assert there == capsys.readouterr().out and len(there) == 13
