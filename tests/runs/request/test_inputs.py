"""What a run reads is part of what it is: plug-ins and files by their content, from whatever folder they are named."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from semcom.channels import LINKS
from semcom.channels.fading import AWGN
from semcom.channels.options import BaseOptions
from semcom.channels.registry import Registry
from semcom.cli import main as cli
from semcom.config import (
    CODE,
    ChannelConfig,
    ConfigError,
    DataConfig,
    PartitionConfig,
    RunConfig,
    from_dict,
    run_hash,
    to_dict,
)
from semcom.data.partitions import IID
from semcom.data.registry import DATASETS, PARTITIONS
from semcom.methods.fedavg import FedAvg
from semcom.methods.registry import METHODS
from semcom.runs.folder.folder import CONFIG
from semcom.runs.request import plugins
from semcom.runs.request.resolve import resolve
from semcom.runs.request.sources import add_imported_sources
from semcom.runs.rounds.runner import run
from tests import worlds
from tests.fresh import forget_modules
from tests.refusals import refuses

PLUGIN = """
from semcom import METHODS
from semcom.methods.fedavg import FedAvg

@METHODS.register("test-mine")
class Mine(FedAvg):
    averages = ("{part}.",)
"""


@pytest.fixture
def new_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """What makes this process forget the plug-ins that it has loaded, as another one has not loaded them."""

    def forget() -> None:
        monkeypatch.setattr(plugins, "_loaded", {})
        forget_modules(tmp_path)

    monkeypatch.setattr(sys, "path", [*sys.path])
    forget()
    yield forget
    forget()
    for name in [name for name in METHODS._added if name.startswith("test-mine")]:
        METHODS._added.pop(name)


@pytest.fixture
def plugin(tmp_path: Path, new_process: Callable[[], None]) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(PLUGIN.format(part="encoder"))
    return path


def with_plugin(*paths: Path | str, method: str = "test-mine", **fields: Any) -> RunConfig:
    return resolve(RunConfig(method=method, device="cpu", plugins=tuple(map(str, paths)), **fields))


# Plug-ins ------------------------------------------------------------------------------------------------------------


def test_the_folder_of_an_edited_plugin_is_refused(
    plugin: Path, new_process: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """From a stored configuration it is another run, and a line says so."""
    out = str(plugin.parent / "out")
    request = worlds.request("test-mine", plugins=(str(plugin),), out=out)
    first = run(request)
    new_process()
    assert run(dataclasses.replace(request, contents={})).summary == first.summary
    plugin.write_text(PLUGIN.format(part="head"))
    new_process()
    with refuses("out", "plugins", "mine.py"):
        run(dataclasses.replace(request, contents={}))
    words = ["test-mine", "--config", str(Path(out) / CONFIG), "--out", out + "2"]
    assert cli.main(["train", *words, "--log-level", "warning"]) == 0
    changed = f"{plugin} has changed since {Path(out) / CONFIG} was written: it is taken as it is now\n"
    assert capsys.readouterr().err.endswith(f" WARNING {changed}")
    assert cli.main(["train", "test-mine", "--config", str(Path(out + "2") / CONFIG), "--log-level", "warning"]) == 0
    assert "has changed" not in capsys.readouterr().err


def test_where_a_plugin_lies_is_not_what_it_is(plugin: Path, new_process: Callable[[], None]) -> None:
    before = run_hash(with_plugin(plugin))
    METHODS._added.pop("test-mine")
    other = plugin.parent / "elsewhere" / "renamed.py"
    other.parent.mkdir()
    plugin.rename(other)
    assert run_hash(with_plugin(other)) == before


@pytest.mark.parametrize("words", ["", "import os, sys\nsys.path.insert(0, os.path.dirname(__file__))\n"])
def test_a_plugin_finds_the_modules_beside_it(words: str, plugin: Path, new_process: Callable[[], None]) -> None:
    """As a script does, and those of the same name as one of Python's."""
    late = "        import test_late_beside\n        return test_late_beside.SIZE\n"
    beside = f"import test_helper_beside\n{words}{plugin.read_text()}\n    def more(self):\n{late}"
    plugin.write_text(beside.replace("import test", f"{words}import test", 1))
    helper, lazy = plugin.with_name("test_helper_beside.py"), plugin.with_name("test_late_beside.py")
    helper.write_text("SIZE = 1\n"), lazy.write_text("SIZE = 1\n")
    before = with_plugin(plugin)
    assert with_plugin(plugin) == before and METHODS.get("test-mine").more(None) == 1
    for file in (helper, lazy):
        file.write_text("SIZE = 22\n")
        with refuses("plugin", "has changed since"):
            with_plugin(plugin)
        new_process()
        after = with_plugin(plugin)
        assert run_hash(after) != run_hash(before)
        before = after


@pytest.mark.parametrize("lazy", [False, True])
def test_modules_of_one_name_beside_two_plugins_are_not_mixed_up(
    lazy: bool, plugin: Path, new_process: Callable[[], None]
) -> None:
    other = plugin.parent / "other" / "mine.py"
    other.parent.mkdir()
    words = "def f():\n    import test_helper_of_two\n" if lazy else "import test_helper_of_two\n"
    for file in (plugin, other):
        file.write_text(words + PLUGIN.format(part="head").replace("test-mine", f"test-mine-{file.parent.name}"))
        file.with_name("test_helper_of_two.py").write_text(f"PLACE = {file.parent.name!r}\n")
    with_plugin(plugin, method="local")
    with refuses("plugin", "test_helper_of_two"):
        with_plugin(plugin, other, method="local")
    new_process()
    with_plugin(other, method="local")


def test_a_plugin_that_imports_nothing_of_ones_own_counts_as_it_always_did(plugin: Path) -> None:
    """By the digest of its name and that of its bytes."""
    held = f"__main__\0{hashlib.sha256(plugin.read_bytes()).hexdigest()}\0"
    assert with_plugin(plugin).contents == {str(plugin): hashlib.sha256(held.encode()).hexdigest()}


@pytest.mark.parametrize("place", ["folder", "package", "elsewhere"])
@pytest.mark.parametrize("words", ["import {0}.inner", "from {0} import inner", "def f():\n    import {0}.inner as i"])
def test_whatever_of_ones_own_python_imports_counts(
    place: str, words: str, plugin: Path, new_process: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folders without __init__.py too, and not those that only bear the name of an installed package."""
    root = plugin.parent / ("other" if place == "elsewhere" else "")
    name = f"test_{place}_used"
    (root / name).mkdir(parents=True)
    if place == "package":
        (root / name / "__init__.py").touch()
    (plugin.parent / "PIL").mkdir()
    monkeypatch.syspath_prepend(str(root))
    plugin.write_text(words.format(name) + "\nimport PIL.Image\n" + plugin.read_text())
    (root / name / "inner.py").write_text("SIZE = 1\n")
    before = run_hash(with_plugin(plugin))
    (root / name / "inner.py").write_text("SIZE = 2\n")
    new_process()
    assert run_hash(with_plugin(plugin)) != before


def test_a_module_counts_by_its_source_and_a_package_by_all_of_its(
    plugin: Path, new_process: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(plugin.parent))
    package = plugin.parent / "test_package_of_mine"
    package.mkdir()
    registers = PLUGIN.format(part="head")
    (plugin.parent / "test_module_of_mine.py").write_text(registers.replace("test-mine", "test-mine-of-module"))
    (package / "inner.py").touch()
    (package / "__init__.py").write_text(registers.replace("test-mine", "test-mine-of-package"))
    for name, file in (
        ("test_module_of_mine", plugin.parent / "test_module_of_mine.py"),
        ("test_package_of_mine", package / "inner.py"),
    ):
        before = with_plugin(name, method="local")
        assert before.plugins == (name,)
        file.write_text(file.read_text() + "SIZE = 2\n")
        with refuses("plugin"):
            with_plugin(name, method="local")
        new_process()
        assert run_hash(with_plugin(name, method="local")) != run_hash(before)


@pytest.mark.parametrize(
    "files",
    [
        {"test_idle.py": "import json\n"},
        {"test_idle.py": "from semcom.methods.fedavg import FedAvg\n\nclass Mine(FedAvg):\n    pass\n"},
        {"test_idle.py": "import test_helper\n", "test_helper.py": "SIZE = 2\n"},
        {"test_idle/__init__.py": "from test_idle import inner\n", "test_idle/inner.py": ""},
    ],
    ids=["nothing", "forgotten", "of-two", "package"],
)
def test_a_plugin_that_registers_nothing_is_refused_each_time(
    files: dict[str, str], plugin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(plugin.parent))
    for name, text in files.items():
        (plugin.parent / name).parent.mkdir(exist_ok=True)
        (plugin.parent / name).write_text(text)
    file = str(plugin.parent / "test_idle.py")
    for idle in ["test_idle", "json", "sys", *([file] if "test_idle.py" in files else [])]:
        for _ in range(2):
            with refuses("plugin", idle, "registers nothing"):
                with_plugin(plugin, idle)


def test_a_plugin_may_be_called_as_a_module_of_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "profile.py").write_text("from semcom import SCHEDULERS\nSCHEDULERS.register('test-profile')(len)\n")
    monkeypatch.delitem(sys.modules, "profile", raising=False)
    importlib.import_module("profile")
    with_plugin("profile", method="fedavg")
    del sys.modules["profile"]


def test_a_plugin_whose_modules_a_script_has_imported_already_is_taken(
    plugin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They registered when the script imported them."""
    monkeypatch.syspath_prepend(str(plugin.parent))
    plugin.rename(plugin.with_name("test_mine_of_script.py"))
    (plugin.parent / "test_facade.py").write_text("import test_mine_of_script\n")
    importlib.import_module("test_mine_of_script")
    assert with_plugin("test_facade").plugins == ("test_facade",)


def test_two_plugins_with_one_name_are_refused(plugin: Path) -> None:
    other = plugin.parent / "other.py"
    other.write_text(PLUGIN.format(part="head"))
    with refuses("plugin", "test-mine", plugin, "other.py"):
        with_plugin(plugin, other)


def test_a_name_of_ones_own_may_be_given_again_outside_plugins() -> None:
    registry: Registry[Callable[[], int]] = Registry("number", {})
    for value in (1, 2):  # a cell of a notebook that is executed twice
        registry.register("mine")(lambda value=value: value)
    assert registry.get("mine")() == 2


def test_a_resolved_request_holds_to_what_it_was_resolved_with(plugin: Path, new_process: Callable[[], None]) -> None:
    """A sweep resolves its runs hours before their workers train them."""
    config = with_plugin(plugin)
    assert resolve(config) == config == resolve(from_dict(json.loads(json.dumps(to_dict(config)))))
    plugin.write_text(PLUGIN.format(part="head"))
    with refuses("plugin", "mine.py"):
        with_plugin(plugin)  # by this process, which would go on with the old code
    new_process()
    with refuses("plugins"):
        resolve(config)
    again = resolve(dataclasses.replace(config, contents={}))
    assert run_hash(again) != run_hash(config) and METHODS.get("test-mine").averages == ("head.",)


# Data ----------------------------------------------------------------------------------------------------------------


def archive(path: Path, level: int = 0) -> Path:
    x, y = np.full((40, 8, 8), level, np.uint8), np.arange(40) % 2
    np.savez(path, x_train=x, y_train=y, x_test=x, y_test=y)
    return path


def images(path: Path, level: int = 0) -> Path:
    for part in ("train", "test"):
        for label in ("ant", "bee"):
            (path / part / label).mkdir(parents=True, exist_ok=True)
            Image.new("L", (8, 8), level).save(path / part / label / "one.bmp")  # of the same size for every level
    return path


FILES: dict[str, tuple[Callable[..., Path], Callable[[str], dict[str, Any]]]] = {
    "data.name, an archive": (archive, lambda path: {"data": DataConfig(name=path)}),
    "data.name, a folder": (images, lambda path: {"data": DataConfig(name=path)}),
    "new_data": (archive, lambda path: {"new_clients": 2, "new_data": path}),
    "partition.path": (archive, lambda path: {"partition": PartitionConfig(kind="file", options={"path": path})}),
}


@pytest.mark.parametrize("field", FILES)
def test_files_count_by_content_and_not_by_place(field: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, fields = FILES[field]

    def found(name: str) -> RunConfig:
        return with_plugin(method="local", **fields(name))

    write(here / "set.npz")
    config = found("set.npz")
    place = str(here / "set.npz")
    assert place in json.dumps(to_dict(config)) and list(config.contents) == [place]
    (here / "other").mkdir()
    write(here / "other" / "copy.npz")
    assert run_hash(found("other/copy.npz")) == run_hash(config)
    monkeypatch.chdir(here / "other")
    assert resolve(from_dict(to_dict(config))) == config, "it can be repeated from another folder"
    write(here / "set.npz", level=9)
    changed = run_hash(found(str(here / "set.npz")))
    assert changed != run_hash(config)
    before = (here / "set.npz").stat()
    write(here / "set.npz", level=7)
    os.utime(here / "set.npz", ns=(before.st_atime_ns, before.st_mtime_ns))  # as a copy that keeps its time does
    assert (here / "set.npz").stat().st_size == before.st_size
    assert run_hash(found(str(here / "set.npz"))) != changed


def test_paths_are_stored_for_any_folder(
    plugin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_process: Callable[[], None]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for at in (str(tmp_path), "~"):
        new_process()
        monkeypatch.chdir(tmp_path.parent)
        config = with_plugin(f"{tmp_path.name}/mine.py", data=DataConfig(root=at if at == "~" else tmp_path.name))
        assert config.plugins == (str(plugin),) and config.data.root == str(tmp_path)
    assert with_plugin(f"{tmp_path.name}/mine.py", str(plugin)).plugins == (str(plugin),), "given twice it is one"


def test_the_images_behind_a_link_to_a_folder_count(tmp_path: Path) -> None:
    images(tmp_path / "set")
    away = tmp_path / "away"
    shutil.copytree(tmp_path / "set" / "train" / "ant", away)
    (tmp_path / "set" / "train" / "ant" / "more").symlink_to(away, target_is_directory=True)
    config = with_plugin(method="local", data=DataConfig(name=str(tmp_path / "set")))
    Image.new("L", (8, 8), 9).save(away / "one.bmp")
    assert run_hash(with_plugin(method="local", data=DataConfig(name=str(tmp_path / "set")))) != run_hash(config)


def test_a_known_name_is_no_path(here: Path) -> None:
    before = with_plugin(method="local")
    images(here / "digits")
    assert with_plugin(method="local") == before and before.data.name == "digits" and before.contents == {}


# Another run ---------------------------------------------------------------------------------------------------------


def test_the_fields_that_differ_are_named(tmp_path: Path) -> None:
    run(worlds.request(out=str(tmp_path)))
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    named = 'method: "fedavg" there, "fedprox" here; train.rounds: 6 there, 3 here; seed: 0 there, 1 here; and 1 more'
    with refuses("out", tmp_path, named):
        run(worlds.request("fedprox", hyper={"mu": 2.0}, out=str(tmp_path), seed=1, train={"rounds": 3}))
    with refuses("out", "hyper.mu: nothing there, 2.0 here"):
        run(worlds.request("fedprox", hyper={"mu": 2.0}, out=str(tmp_path)))
    with refuses("out", "train.lr-milestones: [] there, [2] here"):
        run(worlds.request(out=str(tmp_path), train={"rounds": 3, "lr_milestones": (2,), "lr_decay": 0.5}))
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_file_that_is_gone_is_told_as_such(tmp_path: Path) -> None:
    images(tmp_path / "set")
    config = resolve(RunConfig(method="local", device="cpu", data=DataConfig(name=str(tmp_path / "set"))))
    shutil.rmtree(tmp_path / "set")
    with refuses("data.name"):
        run(config)


# Files that options name ---------------------------------------------------------------------------------------------


class Source:
    """A dataset with options, which is never read."""

    Options = BaseOptions

    def __init__(self, options: BaseOptions) -> None:
        self.options = options

    def __call__(self, root: str | None) -> None:
        raise AssertionError("it was read")


OWNERS: dict[str, tuple[Registry[Any], type, Callable[[Any], RunConfig]]] = {
    "hyper": (METHODS, FedAvg, lambda own: RunConfig("test-own", hyper=own)),
    "channel": (LINKS, AWGN, lambda own: RunConfig("fedavg", channel=ChannelConfig("test-own", options=own))),
    "partition": (PARTITIONS, IID, lambda own: RunConfig("fedavg", partition=PartitionConfig("test-own", options=own))),
    "data": (DATASETS, Source, lambda own: RunConfig("fedavg", data=DataConfig("test-own", options=own))),
}
"""Section -> registry, an entry of it, and a run that uses one's own entry with options."""


@pytest.mark.parametrize("section", OWNERS)
@pytest.mark.parametrize("hint", [Path, Path | None])
def test_a_file_that_an_option_names_counts_by_its_content(
    section: str, hint: Any, here: Path, own_names: None
) -> None:
    registry, parent, request = OWNERS[section]
    default, name = None if hint == Path | None else Path("weights.pt"), "Hyper" if section == "hyper" else "Options"
    base = getattr(parent, name)
    options = dataclasses.make_dataclass("Options", [("weights", hint, default)], bases=(base,), frozen=True)
    registry.register("test-own")(type("Own", (parent,), {name: options}))
    (here / "weights.pt").write_bytes(b"one")
    (here / "deep").mkdir()
    (here / "deep" / "copy.pt").write_bytes(b"one")
    first = resolve(request({"weights": "weights.pt"}))
    absolute = str(here / "weights.pt")
    assert {name for name in first.contents if not name.startswith(CODE)} == {absolute}
    assert run_hash(first) == run_hash(resolve(request({"weights": here / "deep" / "copy.pt"})))
    assert run_hash(from_dict(json.loads(json.dumps(to_dict(first))))) == run_hash(first)
    if default is not None:
        assert run_hash(resolve(request(None))) == run_hash(first)
    (here / "weights.pt").write_bytes(b"two")
    assert run_hash(resolve(request({"weights": absolute}))) != run_hash(first)
    with pytest.raises(ConfigError, match=r"weights: '.*weights\.pt' is not what it was when this configuration"):
        resolve(first)
    with refuses(f"{section}.weights", "'' is no path"):
        resolve(request({"weights": ""}))
    folder = resolve(request({"weights": "deep"}))
    (here / "deep" / "more.pt").touch()
    assert run_hash(resolve(request({"weights": "deep"}))) != run_hash(folder), "of a folder, all files count"


def test_a_folder_without_init_inside_another_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`outer/inner/deep.py`, neither folder with __init__.py, of which nothing is imported."""
    deep = tmp_path / "outer" / "inner" / "deep.py"
    deep.parent.mkdir(parents=True)
    deep.write_text("X = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    main = tmp_path / "main.py"
    main.write_text("from outer.inner.deep import X\n")
    assert add_imported_sources({"main": main}) == {"main": main, "outer.inner.deep": deep}
