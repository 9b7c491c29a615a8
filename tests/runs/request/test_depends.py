"""What a run rests on: after a change of it the stored result is not given back, and after no change it is.

Each case trains a run by a script or a plug-in, changes one thing, and asks for the same run in the same folder as a
process would that starts then.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import semcom
from semcom.channels import registry
from semcom.cli import main as cli
from semcom.config import ConfigError, RunConfig, run_hash
from semcom.data.registry import DATASETS
from semcom.methods.registry import METHODS
from semcom.models.registry import ENCODERS
from semcom.runs.folder.lock import take_lock
from semcom.runs.folder.summary import read_summary
from semcom.runs.request import plugins
from semcom.studies.registry import EXPERIMENTS
from tests import worlds
from tests.fresh import forget_modules
from tests.refusals import refuses

BASE = """
import argparse, collections, functools, importlib, json, os, pickle, sqlite3, sys
from pathlib import Path
import numpy as np
import torch
from PIL import Image
import semcom
from semcom import DATASETS, ENCODERS, METHODS
from semcom.methods.fedavg import FedAvg
from tests.worlds import bars, patches
import used_helper
from used_package import inner
from used_attributes import anything
from used_star import *
import code as shadow

HERE = Path({folder!r})
COUNT, calls, CACHE, seen = 3, 0, {{}}, []

def configure(rate):
    global RATE
    RATE = rate
configure(1)
LEVELS = [1.0, 2.0]
TABLE = np.loadtxt(HERE / "table.txt")
SETTINGS = json.loads((HERE / "settings.json").read_text())
NUMBER = int(sys.argv[1]) if len(sys.argv) > 1 else 1
args = argparse.Namespace(alpha=NUMBER, out="results")
opened = importlib.import_module("used_" + "dynamic")

class Slotted:
    __slots__ = ("x", "file")
    def __init__(self, x):
        self.x, self.file = x, open(os.devnull)
SLOTTED = Slotted(3)

class Parent(FedAvg):
    order = 1

def decorate(cls):
    cls.marked = 1
    return cls

@functools.lru_cache
def remember(x):
    return x

def helper(x=1):
    global calls
    calls += 1
    seen.append(x)
    CACHE[x] = remember(x)
    return COUNT * x, STAR, RATE, used_helper.size(), inner.SIZE, anything, shadow.SIZE, opened.SIZE, TABLE, SETTINGS

def make(n):
    @METHODS.register("test-own-made")
    class Made(FedAvg):
        def more(self):
            return n

@METHODS.register("test-own")
@decorate
class Own(Parent):
    made = 0
    alpha = args.alpha
    first = SETTINGS["first"]

    def __init__(self, hyper):
        super().__init__(hyper)
        (HERE / "built.txt").read_text()

    def setup(self, world):
        Own.made += 1
        self.got = helper(), SLOTTED.x, LEVELS, functools.partial(helper, 2), lambda: COUNT
        with open(HERE / "teacher.pkl", "rb") as file:
            pickle.load(file)
        torch.load(HERE / "teacher.pt")
        np.load(HERE / "start.npy"), Image.open(HERE / "image.png").load()
        os.close(os.open(HERE / "raw.bin", os.O_RDONLY))
        return super().setup(world)

    def round(self, state, world):
        import used_late
        (HERE / "round.txt").read_text()
        sqlite3.connect(HERE / "base.db").execute("select x from t").fetchall()
        mode = os.environ["TEST_MODE_A"], os.environ.get("TEST_MODE_B", "none"), os.getenv("TEST_MODE_C")
        mode += (os.environ.get("TEST_MODE_" + "F"),)
        return super().round(state, world)

@DATASETS.register("test-own-data")
def own_data(root=None):
    cache = HERE / "cache.npy"
    if not cache.exists():
        np.save(cache, np.loadtxt(HERE / "data.txt"))
    np.load(cache)
    (HERE / "labels.txt").read_text()
    return bars(root)

@ENCODERS.register("test-own-encoder")
def own_encoder(channels, features):
    (HERE / "layers.txt").read_text()
    return patches(channels, features)
"""
RUN = """
if __name__ == "__main__":
    for seed in range(1):
        outcome = semcom.run(request(), again=again)
    print(outcome.summary["accuracy"], LEVELS)
"""
FILES = {
    "used_helper.py": "import used_deep\nSIZE = 1\ndef size():\n    return SIZE, used_deep.SIZE, os_mode()\n"
    "import os\ndef os_mode():\n    return os.environ.get('TEST_MODE_D')\n"
    "TEXT = open(os.path.join(os.path.dirname(__file__), 'helper.txt')).read()\n",
    "used_deep.py": "SIZE = 1\n",
    "used_dynamic.py": "SIZE = 1\n",
    "used_late.py": "SIZE = 1\n",
    "used_package/__init__.py": "",
    "used_package/inner.py": "SIZE = 1\n",
    "used_attributes.py": "def __getattr__(name):\n    if name != 'anything':\n        raise AttributeError(name)\n"
    "    return 1\n",
    "used_star.py": "STAR = 1\n",
    "code.py": "SIZE = 1\n",
    "not_used.py": "SIZE = 1\n",
    "settings.json": '{"first": 1, "others": [1, 2]}',
    **dict.fromkeys(("built.txt", "round.txt", "labels.txt", "layers.txt", "raw.bin", "helper.txt", "other.txt"), "1"),
    "data.txt": "1 2\n",
    "table.txt": "1 2\n",
}
VARIABLES = {f"TEST_MODE_{letter}": "1" for letter in "ABCD"}
FIELDS: dict[str, Any] = {"method": "test-own", "data": {"name": "test-own-data"}, "encoder": "test-own-encoder"}


class Place:
    """A folder with a script or a plug-in, its modules and its files, and the run that it makes."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, plugin: bool) -> None:
        self.folder, self.monkeypatch, self.plugin, self.fields = folder, monkeypatch, plugin, dict(FIELDS)
        self.path = str(folder / "main.py")
        for name, text in FILES.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)
        (folder / "main.py").write_text(BASE.format(folder=str(folder)) + ("" if plugin else RUN))
        (folder / "teacher.pkl").write_bytes(b"\x80\x04K\x01.")
        torch.save({"w": torch.ones(2)}, folder / "teacher.pt")
        np.save(folder / "start.npy", np.ones(2))
        Image.new("L", (2, 2), 1).save(folder / "image.png")
        with sqlite3.connect(folder / "base.db") as base:
            base.execute("create table t (x)")
        for name, value in VARIABLES.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
        monkeypatch.setattr(sys, "argv", ["main.py"])

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace a text in a file, which has another time then, as a file of another day."""
        text = (self.folder / name).read_text()
        assert old in text, "the case is about something that is there"
        (self.folder / name).write_text(text.replace(old, new, 1))

    def carry_out(self, again: bool = False) -> None:
        """Do what a new process does that executes the script, or loads the plug-in."""
        forget_modules(self.folder)
        shadow = sys.modules.pop("code", None)
        self.monkeypatch.setattr(plugins, "_loaded", {})
        self.monkeypatch.setattr(registry, "_depends", {})
        self.monkeypatch.setattr(METHODS.get("fedavg"), "label", METHODS.get("fedavg").label)  # cases set others
        self.monkeypatch.setattr(torch.nn.functional, "celu", torch.nn.functional.celu)
        main, out = self.folder / "main.py", str(self.folder / "out")
        request = worlds.request("fedavg", clients=2, train={"rounds": 1}, out=out)
        own = (str(main),) if self.plugin else ()
        model = {**vars(request.model), "encoder": self.fields["encoder"]}
        wanted = {**vars(request), "contents": {}, "hyper": None, "model": model, "plugins": own}
        wanted |= {"method": self.fields["method"], "data": self.fields["data"]}
        try:
            if self.plugin:
                semcom.run(wanted, again=again)  # type: ignore[arg-type]
            else:
                scope = {"__name__": "__main__", "request": lambda: wanted, "again": again}
                exec(compile(main.read_text(), self.path, "exec"), scope)
        finally:
            for kind in (METHODS, DATASETS, ENCODERS):
                for name in [name for name in kind._added if name.startswith("test-own")]:
                    kind._added.pop(name)
            sys.modules.pop("code", None)
            if shadow is not None:
                sys.modules["code"] = shadow

    def notices(self) -> bool:
        """Ask for the run again; return whether its stored result is refused."""
        try:
            self.carry_out()
        except ConfigError as error:
            assert error.field in ("out", "plugin"), error
            print(error)
            return True
        return False

    def tell_noticed(self, changes: dict[str, Callable[[Place], object]]) -> list[str]:
        """Make each change on its own, and take it back; return the names of those that are noticed."""
        files = {path: path.read_bytes() for path in self.folder.iterdir() if path.is_file()}
        files |= {path: path.read_bytes() for path in self.folder.glob("used_package/*.py")}
        noticed = []
        for name, change in changes.items():
            with self.monkeypatch.context() as undone:
                self.monkeypatch, kept = undone, self.monkeypatch
                change(self)
                noticed += [name] * self.notices()
                self.monkeypatch = kept
            for path, content in files.items():
                path.write_bytes(content)
        return noticed


@pytest.fixture(params=["script", "plugin"])
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Place]:
    yield Place(tmp_path, monkeypatch, request.param == "plugin")
    forget_modules(tmp_path)


def edit(name: str, old: str, new: str) -> Callable[[Place], object]:
    return lambda place: place.edit(name, old, new)


def write(name: str, content: bytes | Callable[[Path], object]) -> Callable[[Place], object]:
    def change(place: Place) -> None:
        path = place.folder / name
        path.write_bytes(content) if isinstance(content, bytes) else content(path)

    return change


def setenv(name: str, value: str | None) -> Callable[[Place], object]:
    return lambda p: p.monkeypatch.delenv(name) if value is None else p.monkeypatch.setenv(name, value)


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    yield Place(tmp_path, monkeypatch, plugin=False)
    forget_modules(tmp_path)


def begin(line: str) -> Callable[[Place], object]:
    """Let a script do something more as it begins its runs."""
    return edit("main.py", '"__main__":\n', f'"__main__":\n    {line}\n')


IN_PROGRAM: dict[str, Callable[[Place], object]] = {
    "an attribute": begin("Own.order = 3"),
    "an attribute by its name": begin("setattr(Own, 'order', 3)"),
    "a list that it appends to": begin("LEVELS.append(3)"),
    "an item": begin("SETTINGS['first'] = 3"),
    "a patch": begin("torch.nn.functional.celu = torch.relu"),
    "a class": begin("class Own2(Own): pass"),
    "another method of the name": begin("METHODS.register('test-own')(type('Own', (Own,), {}))"),
    "a name that a function takes": begin("COUNT = 5"),
    "own modules": begin("import not_used"),
    "a function that sets a global": begin("configure(rate=9)"),
    "a function that changes": edit(
        "main.py",
        'if __name__ == "__main__":\n',
        'def main():\n    LEVELS.clear()\n\nif __name__ == "__main__":\n    main()\n',
    ),
}
CHANGES: dict[str, Callable[[Place], object]] = {
    "a global number": edit("main.py", "calls, CACHE, seen = 3", "calls, CACHE, seen = 4"),
    "a list": edit("main.py", "[1.0, 2.0]", "[1.0, 3.0]"),
    "a function": edit("main.py", "return COUNT * x", "return x * COUNT * 2"),
    "a default": edit("main.py", "def helper(x=1)", "def helper(x=2)"),
    "a base class": edit("main.py", "order = 1", "order = 2"),
    "a decorator": edit("main.py", "cls.marked = 1", "cls.marked = 2"),
    "a cached function": edit("main.py", "    return x\n", "    return x + 1\n"),
    "an object without a state": edit("main.py", "SLOTTED = Slotted(3)", "SLOTTED = Slotted(4)"),
    "the class of an object": edit("main.py", "self.x, self.file = x,", "self.x, self.file = -x,"),
    "a partial": edit("main.py", "functools.partial(helper, 2)", "functools.partial(helper, 3)"),
    "a lambda": edit("main.py", "lambda: COUNT", "lambda: COUNT + 1"),
    "a function of the class": edit("main.py", "Own.made += 1", "Own.made += 2"),
    "a new base class": edit("main.py", "class Own(Parent)", "class Own(FedAvg)"),
    "a line that sets an attribute": edit("main.py", "\n@DATASETS", "\nOwn.order = 3\n\n@DATASETS"),
    "a line that calls setattr": edit("main.py", "\n@DATASETS", "\nsetattr(Own, 'order', 3)\n\n@DATASETS"),
    "a line that appends": edit("main.py", "\n@DATASETS", "\nLEVELS.append(3)\n\n@DATASETS"),
    "an item that is set": edit("main.py", "\n@DATASETS", "\nSETTINGS['first'] = 3\n\n@DATASETS"),
    "a loop that appends": edit("main.py", "\n@DATASETS", "\nfor i in (1,):\n    LEVELS.append(i)\n\n@DATASETS"),
    "a patched torch": edit("main.py", "\n@DATASETS", "\ntorch.nn.functional.celu = torch.relu\n\n@DATASETS"),
    "a patched module": edit("main.py", "\n@DATASETS", "\nused_helper.SIZE = 3\n\n@DATASETS"),
    "a patched semcom": edit("main.py", "\n@DATASETS", "\nFedAvg.label = 'another'\n\n@DATASETS"),
    "a second definition": edit("main.py", "\n@DATASETS", "\nCOUNT = 5\n\n@DATASETS"),
    "a dataset's function": edit("main.py", "return bars(root)", "return bars(root) or 1"),
    "another module's function": edit("used_helper.py", "return SIZE", "return -SIZE"),
    "a module of which all is imported": edit("used_star.py", "1", "2"),
    "a global that a function sets": edit("main.py", "configure(1)", "configure(2)"),
    "a line that a function is called in": edit("main.py", "\n@DATASETS", "\nconfigure(3)\n\n@DATASETS"),
    "a module's number": edit("used_helper.py", "SIZE = 1", "SIZE = 2"),
    "a module of a module": edit("used_deep.py", "1", "2"),
    "a module of a package": edit("used_package/inner.py", "1", "2"),
    "a package's own file": edit("used_package/__init__.py", "", "SIZE = 2\n"),
    "a module's __getattr__": edit("used_attributes.py", "return 1", "return 2"),
    "a module called as one of Python's": edit("code.py", "1", "2"),
    "a module by a name that is worked out": edit("used_dynamic.py", "1", "2"),
    "a module that a round imports": edit("used_late.py", "1", "2"),
    "a file that a line opens": write("table.txt", b"1 3\n"),
    "a file of settings": edit("settings.json", "[1, 2]", "[1, 3]"),
    "a file that a module opens": write("helper.txt", b"2"),
    "a file that a constructor opens": write("built.txt", b"2"),
    "a file that a dataset's function opens": write("labels.txt", b"2"),
    "a file that an encoder's function opens": write("layers.txt", b"2"),
    "a pickle": write("teacher.pkl", b"\x80\x04K\x02."),
    "weights": write("teacher.pt", lambda path: torch.save({"w": torch.zeros(2)}, path)),
    "an array": write("start.npy", lambda path: np.save(path, np.zeros(2))),
    "a picture": write("image.png", lambda path: Image.new("L", (2, 2), 2).save(path)),
    "a file by its descriptor": write("raw.bin", b"2"),
    "environ[...]": setenv("TEST_MODE_A", "2"),
    "environ.get": setenv("TEST_MODE_B", "2"),
    "getenv": setenv("TEST_MODE_C", "2"),
    "a variable that a module reads": setenv("TEST_MODE_D", "2"),
    "a variable that is gone": setenv("TEST_MODE_B", None),
}
UNCHANGED: dict[str, Callable[[Place], object]] = {
    "nothing": lambda place: None,
    "another variable": setenv("TEST_MODE_Z", "2"),
    "a variable of the surroundings": setenv("SLURM_JOB_ID", "2"),
    "a module that is not used": edit("not_used.py", "1", "2"),
    "a file that is not opened": write("other.txt", b"2"),
    "a new module": write("another.py", b"SIZE = 2\n"),
    "a file's time": lambda place: os.utime(place.folder / "teacher.pkl", (1, 1)),
    "a module's time": lambda place: os.utime(place.folder / "used_deep.py", (1, 1)),
    "a cache that the run has written": lambda place: (place.folder / "cache.npy").unlink(),
    "what a cache was made of": lambda place: (place.folder / "data.txt").touch(),
    "compiled modules": lambda place: [path.unlink() for path in place.folder.rglob("*.pyc")],
    "the folder where it is called": lambda place: place.monkeypatch.chdir(place.folder),
    "the order of imports": lambda place: __import__("used_package.inner"),
}
OF_SCRIPTS: dict[str, Callable[[Place], object]] = {
    "a comment": edit("main.py", "def helper", "# another line\ndef helper"),
    "the layout": edit(
        "main.py", "COUNT, calls, CACHE, seen = 3, 0, {}, []", "(COUNT, calls,\n CACHE, seen) = 3, 0, {}, []"
    ),
    "another seed in the loop": edit("main.py", "range(1)", "range(2)"),
    "what is printed": edit("main.py", "print(outcome", "print('done', outcome"),
    "a plot of it": edit("main.py", "        outcome", "        import time, matplotlib\n        outcome"),
}


def test_a_change_is_noticed_and_else_the_stored_result_is_given(place: Place) -> None:
    place.carry_out()
    assert place.tell_noticed(CHANGES) == list(CHANGES)
    assert place.tell_noticed(UNCHANGED) == []


def test_what_a_program_does_to_the_definitions_of_a_script_is_noticed_and_nothing_else(script: Place) -> None:
    script.carry_out()
    assert script.tell_noticed(IN_PROGRAM | OF_SCRIPTS) == list(IN_PROGRAM)


def test_an_attribute_of_the_name_of_an_option_is_another_one(script: Place) -> None:
    """As of `self.lam = args.lam`."""
    script.edit("main.py", "super().__init__(hyper)", "super().__init__(hyper)\n        self.alpha = args.alpha")
    script.edit("main.py", "    alpha = args.alpha\n", "")
    script.carry_out()
    script.monkeypatch.setattr(sys, "argv", ["main.py", "2"])
    assert script.notices()


def test_a_script_that_names_itself_as_it_was_called_counts_with_its_files(script: Place) -> None:
    """As `python -m cProfile main.py` does."""
    script.monkeypatch.chdir(script.folder)
    script.path = "main.py"
    script.carry_out()
    assert not script.notices()
    (script.folder / "table.txt").write_text("1 3\n")
    assert script.notices()


def test_python_that_is_read_and_executed_counts(script: Place) -> None:
    script.edit("main.py", "SLOTTED = Slotted(3)", "SLOTTED = Slotted(3)\nexec((HERE / 'not_used.py').read_text())")
    script.carry_out()
    assert not script.notices()
    (script.folder / "not_used.py").write_text("SIZE = 2\n")
    assert script.notices()


def test_a_method_that_a_program_defines_is_all_of_the_script(script: Place) -> None:
    """As in scripts that are one function, or one block."""
    text = (script.folder / "main.py").read_text()
    before, _, after = text.partition('@METHODS.register("test-own")\n')
    begun = before + after[after.index("@DATASETS") : after.index("if __name__")]
    own = "    @METHODS.register('test-own')\n    class Own(FedAvg):\n        order = 1\n"
    for head in ('if __name__ == "__main__":\n', "def main():\n"):
        call = "\nmain()" if "main()" in head else ""
        run = "    semcom.run(request(), again=globals()['again'])"
        (script.folder / "main.py").write_text(f"{begun}\n{head}{own}{run}{call}\n")
        script.carry_out(again=True)
        assert not script.notices()
        script.edit("main.py", "order = 1\n    semcom", "order = 2\n    semcom")
        assert script.notices()


def test_a_number_from_the_command_line_counts_and_what_is_not_used_of_it_does_not(script: Place) -> None:
    script.edit("main.py", "else 1\n", "else 1\nOUT = sys.argv[2:]\n")
    script.edit("main.py", 'out="results"', "out=OUT")
    script.carry_out()
    script.monkeypatch.setattr(sys, "argv", ["main.py", "1", "elsewhere"])
    assert not script.notices()
    script.monkeypatch.setattr(sys, "argv", ["main.py", "2"])
    assert script.notices()


def add_row(path: Path) -> None:
    with sqlite3.connect(path) as base:
        base.execute("insert into t values (1)")


UNSEEN: dict[str, Callable[[Place], object]] = {
    "a file that a round opens": write("round.txt", b"2"),
    "a file that native code opens": write("base.db", add_row),
    "a variable by a name that is worked out": setenv("TEST_MODE_F", "2"),
}


@pytest.mark.parametrize("change", UNSEEN)
def test_what_cannot_be_seen_is_trained_anew_when_asked_for(change: str, place: Place) -> None:
    """As docs/reliability.md says; `depends` is the way to have it noticed."""
    place.carry_out()
    UNSEEN[change](place)
    assert not place.notices()
    before = (place.folder / "out" / "summary.json").stat().st_mtime_ns
    place.carry_out(again=True)
    assert (place.folder / "out" / "summary.json").stat().st_mtime_ns > before


# What the code says ---------------------------------------------------------------------------------------------------

SAYS = {
    "a registry": ('METHODS.register("test-own")', 'METHODS.register("test-own", depends=[{}])'),
    "another registry": ('DATASETS.register("test-own-data")', 'DATASETS.register("test-own-data", depends=[{}])'),
    "semcom.depends": ("\n@METHODS", "\nsemcom.depends({})\n\n@METHODS"),
}
THINGS: dict[str, tuple[str, Callable[[Place], object]]] = {
    "a file": ('HERE / "round.txt"', write("round.txt", b"2")),
    "a folder": ('HERE / "folder"', write("folder/one.txt", b"2")),
    "a value": ('os.environ["".join(("TEST", "_MODE_E"))], HERE / "other.txt"', setenv("TEST_MODE_E", "2")),
}


@pytest.mark.parametrize("thing", THINGS)
@pytest.mark.parametrize("way", SAYS)
def test_what_code_says_that_it_depends_on_counts(way: str, thing: str, place: Place) -> None:
    place.monkeypatch.setenv("TEST_MODE_E", "1")
    (place.folder / "folder").mkdir()
    (place.folder / "folder" / "one.txt").write_text("1")
    words, change = THINGS[thing]
    place.edit("main.py", SAYS[way][0], SAYS[way][1].format(words))
    place.carry_out()
    assert not place.notices()
    change(place)
    assert place.notices()


def test_what_is_said_to_be_needed_has_to_be_there(place: Place) -> None:
    place.edit("main.py", SAYS["a registry"][0], SAYS["a registry"][1].format('HERE / "gone.pt"'))
    with refuses("depends", "gone.pt"):
        place.carry_out()


def test_a_summary_tells_what_was_read(place: Place) -> None:
    place.carry_out()
    told = (read_summary(place.folder / "out") or {})["read"]
    names = {Path(path).name for path in told}
    assert {"built.txt", "teacher.pt", "table.txt", "helper.txt", "labels.txt", "used_dynamic.py"} <= names
    assert not {"cache.npy", "round.txt", "other.txt", "main.py", "used_helper.py"} & names


# Replacing a run ------------------------------------------------------------------------------------------------------


def test_again_replaces_a_run_and_refuses_one_that_is_held(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "out"
    words = ["train", "fedavg", "--clients", "2", "--train.rounds", "1", "--device", "cpu", "--out", str(out)]
    assert cli.main(words) == 0
    (out / "summary.json").write_text("{}")
    (out / "arrays.npz").touch()
    (out / "export").mkdir()
    left = [out / "leak-none.png", out / "arrays.damaged.npz", out / "export" / "model.safetensors"]
    mine = [out / "leakage-study.png", out / "notes.damaged.txt", out / "README.md"]
    for path in (*left, *mine):
        path.touch()
    assert cli.main([*words, "--again", "--seed", "1"]) == 0, "another run, and a damaged one"
    assert not any(path.exists() for path in left) and not (out / "export").exists(), "of the run that is gone"
    for path in mine:
        path.unlink()
    assert json.loads((out / "config.json").read_text())["seed"] == 1 and not (out / "arrays.npz").exists()
    assert (read_summary(out) or {})["seed"] == 1
    there = {path.name: path.read_bytes() for path in out.iterdir()}
    lock = take_lock(out / ".lock", 0)
    try:
        capsys.readouterr()
        assert cli.main([*words, "--again"]) == 2 and "another process is running" in capsys.readouterr().err
    finally:
        lock.release()
    assert {path.name: path.read_bytes() for path in out.iterdir()} == there
    (tmp_path / "study" / "run").mkdir(parents=True)
    (tmp_path / "study" / "sweep.json").touch()
    with refuses("out", "study"):
        semcom.run(RunConfig("fedavg", out=str(tmp_path / "study")), again=True)
    (tmp_path / "bert").mkdir()
    (tmp_path / "bert" / "config.json").write_text('{"architectures": ["BertModel"]}')
    (tmp_path / "bert" / "checkpoint.pt").touch()
    (tmp_path / "bert" / "metrics.jsonl").write_text('{"loss": 0.5}\n')
    with refuses("out", "bert"):
        semcom.run(RunConfig("fedavg", out=str(tmp_path / "bert")), again=True)
    assert json.loads((tmp_path / "bert" / "config.json").read_text()) == {"architectures": ["BertModel"]}


# Sweeps ---------------------------------------------------------------------------------------------------------------

COUNTING = """
import semcom
from semcom.methods.fedavg import FedAvg

@semcom.METHODS.register("test-own")
class Own(FedAvg):
    made, cache, last = 0, {}, None
    def setup(self, world):
        type(self).made += 1
        Own.cache[Own.made], Own.last = world, "another"
        return super().setup(world)

def train(config):
    return semcom.run(config)

few = {"clients": 2, "train.rounds": 1, "device": "cpu"}
semcom.sweep(methods="test-own", seeds=(0, 1, 2), set=few, out=out, **how)
"""


def sweep_by_script(folder: Path, text: str = COUNTING, **how: Any) -> set[str]:
    """Sweep as a script does; return the hashes of the finished runs in the folder."""
    (folder / "script.py").write_text(text)
    scope = {"__name__": "__main__", "out": str(folder / "out"), "how": how}
    try:
        exec(compile(text, str(folder / "script.py"), "exec"), scope)
    finally:
        METHODS._added.pop("test-own", None)
        EXPERIMENTS._added.pop("test-own", None)
    return {path.parent.name for path in (folder / "out").glob("*/summary.json")}


def test_a_class_that_counts_its_objects_is_one_method_in_a_sweep(tmp_path: Path) -> None:
    found = sweep_by_script(tmp_path)
    assert len(found) == 3 and sweep_by_script(tmp_path) == found


def test_an_edited_training_function_trains_again(tmp_path: Path) -> None:
    declared = "semcom.Experiment('test-own', '', 'none', ('test-own',), {'own': GRID}, train=train)"
    grid = f"GRID = semcom.Grid(semcom.RunConfig(), {{}})\nsemcom.EXPERIMENTS.register('test-own')({declared})\n"
    text = COUNTING.replace('methods="test-own"', "'test-own'").replace("few = ", f"{grid}few = ")
    found = sweep_by_script(tmp_path, text)
    assert len(found) == 3 and sweep_by_script(tmp_path, text + "# a comment\n") == found
    assert len(sweep_by_script(tmp_path, text.replace("return semcom.run", "1\n    return semcom.run"))) == 6


def test_an_edited_function_that_is_given_to_a_sweep_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = COUNTING.replace('methods="test-own"', 'methods="fedavg", train=train')
    found = sweep_by_script(tmp_path, text)
    assert len(found) == 3 and sweep_by_script(tmp_path, text + "# a comment\n") == found
    assert "train:" not in capsys.readouterr().out
    for told in (True, False):  # once: the record then names the new code
        assert sweep_by_script(tmp_path, text.replace("return semcom.run", "1\n    return semcom.run")) == found
        assert ("train: its code has changed since runs in" in capsys.readouterr().out) == told


def test_many_files_of_a_folder_count_as_the_folder(script: Place) -> None:
    (script.folder / "pictures").mkdir()
    for number in range(101):
        (script.folder / "pictures" / f"{number}.txt").write_text("1")
    reading = "PICTURES = [path.read_text() for path in (HERE / 'pictures').iterdir()]"
    script.edit("main.py", "SLOTTED = Slotted(3)", f"SLOTTED = Slotted(3)\n{reading}")
    script.carry_out()
    told = (read_summary(script.folder / "out") or {})["read"]
    assert [path for path in told if "pictures" in path] == [str(script.folder / "pictures" / "*")]
    assert not script.notices()
    (script.folder / "pictures" / "77.txt").write_text("2")
    assert script.notices()


def test_a_sweep_refuses_runs_whose_files_have_changed(tmp_path: Path) -> None:
    (tmp_path / "read.txt").write_text("1")
    reading = f"        open({str(tmp_path / 'read.txt')!r}).close()\n"
    text = COUNTING.replace("        type(self)", f"{reading}        type(self)")
    found = sweep_by_script(tmp_path, text)
    assert sweep_by_script(tmp_path, text) == found
    (tmp_path / "read.txt").write_text("2")
    with refuses("out", "read.txt"):
        sweep_by_script(tmp_path, text)
    assert json.loads((tmp_path / "out" / "sweep.json").read_text())["variants"].keys() == found


# Notebooks ------------------------------------------------------------------------------------------------------------


Notebook = Callable[..., str]
"""Executes cells, and returns the hash of a run with what they register."""


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Notebook]]:
    """Start the kernel of a notebook."""
    shells = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell

    def start() -> Notebook:
        shells.clear_instance()
        shell = shells.instance()

        def execute(*cells: str) -> str:
            for cell in cells:
                shell.run_cell(cell, store_history=True).raise_error()
            return run_hash(semcom.resolve(RunConfig("test-own", device="cpu")))

        return execute

    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    yield start
    shells.clear_instance()
    METHODS._added.pop("test-own", None)


IMPORTS = "import semcom\nimport torch\nfrom semcom import METHODS\nfrom semcom.methods.fedavg import FedAvg"
NUMBER, HELPER = "COUNT = 3", "def helper():\n    return COUNT"
OWN = "@METHODS.register('test-own')\nclass Own(FedAvg):\n    def more(self):\n        return helper()"


def test_cells_count_that_a_method_rests_on_as_they_were_executed_last(notebook: Callable[[], Notebook]) -> None:
    book = notebook()
    first = book(IMPORTS, NUMBER, HELPER, OWN)
    assert book("draw = 1", "print(COUNT)", "%time 1") == first, "cells of something else"
    assert book(NUMBER, OWN, HELPER) == first, "the same cells again"
    other = book("COUNT = 4")
    assert other != first and book("COUNT = 3  # as it was") == first
    assert book(HELPER.replace("COUNT", "COUNT + 1")) not in (first, other)
    assert book(HELPER) == first
    assert book("Own.averages = ('head.',)") != first


MAGIC = {
    "a function under %%time": ("%%time\ndef helper():\n    return COUNT + {}", {}),
    "a class by a function": ("configure(n={})", {}),
    "an import again": ("import torch\nx = {}", None),
    "a name that is not in Python": ("In = {}", None),
    "%%time": ("%%time\nCOUNT = {}", {}),
    "%%capture": ("%%capture out\nCOUNT = {}", {}),
    "%time": ("%time COUNT = {}", {}),
    "!": ("!true\nCOUNT = {}", {}),
    "an item": ("LEVELS = [{}]\nLEVELS.sort()", {}),
    "a method": ("LEVELS.append({})", {}),
    "a loop": ("for i in range({}):\n    LEVELS.append(i)", {}),
    "an attribute": ("Own.order = {}", {}),
    "an attribute by its name": ("setattr(Own, 'order', {})", {}),
    "a function that sets a global": ("configure({})", {}),
    "a global that is set": ("def other():\n    global COUNT\n    COUNT = {}\nother()", {}),
    "a patch": ("torch.nn.functional.celu = torch.{}", {3: "relu", 4: "selu"}),
    "what goes on": ("COUNT += {}", {}),
    "a value": ("COUNT = int('{}')", {}),
    "a star": ("from used_by_star_{} import *", {}),
    "a method of torch that changes nothing": ("torch.manual_seed({})", None),
    "a plot": ("results = [{}]\nresults.sort()", None),
    "a look": ("print(COUNT, LEVELS)  # {}", None),
    "another's magic": ("%%writefile {}.py\nCOUNT = {}", None),
    "not in Python": ("%%bash\nexport COUNT={}", None),
}


@pytest.mark.parametrize("kind", MAGIC)
def test_a_cell_counts_that_changes_what_a_method_rests_on(
    kind: str, notebook: Callable[[], Notebook], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each cell is executed with one number and with another one, in kernels of their own."""
    monkeypatch.setattr(torch.nn.functional, "celu", torch.nn.functional.celu)  # a cell sets another
    monkeypatch.syspath_prepend(str(here))
    for number in (3, 4):
        (here / f"used_by_star_{number}.py").write_text(f"COUNT = {number}\n")
    text, words = MAGIC[kind]
    lists = "LEVELS = []\ndef configure(n):\n    global RATE\n    RATE = n\nconfigure(0)"
    method = OWN.replace("helper()", "helper(), LEVELS, RATE, torch")
    found = []
    for number in (3, 4, 4):
        cell = text.replace("{}", str((words or {}).get(number, number)))
        found.append(notebook()(IMPORTS, NUMBER, HELPER, lists, method, cell))
    assert found[1] == found[2] and (found[0] != found[1]) == (words is not None)


def test_a_kernel_that_is_started_again_has_the_same_run(notebook: Callable[[], Notebook]) -> None:
    """A cell that shows what it has set does not go on from what was set before."""
    first = notebook()(IMPORTS, "COUNT = 2", HELPER, NUMBER + "\nCOUNT", OWN)
    assert notebook()(IMPORTS, NUMBER + "\nCOUNT", HELPER, OWN) == first
    first = notebook()(IMPORTS, "COUNT = 2", HELPER, NUMBER, OWN.replace("helper", "other"), OWN)
    assert notebook()(IMPORTS, NUMBER, HELPER, OWN) == first
