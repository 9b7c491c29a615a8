"""The commit and the versions that a run notes."""

from __future__ import annotations

import importlib.util
import platform
import shutil
import subprocess
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest

from semcom.runs.folder import versions


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Make a checkout of one commit that holds a copy of the module which asks for it."""
    if shutil.which("git") is None:
        pytest.skip("there is no git")
    shutil.copy(versions.__file__, tmp_path / "copy.py")
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    return tmp_path


def git(folder: Path, *words: str) -> str:
    """Have git do something in a folder, under a name of its own, and return what it prints."""
    names = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    command = ["git", "-C", str(folder), *names, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def commit(folder: Path) -> str:
    """Commit all of a folder, and return the commit."""
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", "a")
    return git(folder, "rev-parse", "HEAD")


def load(folder: Path) -> ModuleType:
    """Load a copy, which asks where its own file lies."""
    spec = importlib.util.spec_from_file_location("copy", folder / "copy.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_commit_and_an_edit_are_seen_by_the_process_that_has_asked_before(checkout: Path) -> None:
    """It may import what was edited: a method, say, that only a later run of it needs."""
    first, copy = git(checkout, "rev-parse", "HEAD"), load(checkout)
    assert copy.read_commit() == first[:10]
    second = commit(checkout)
    assert copy.read_commit() == second[:10] != first[:10]
    (checkout / "copy.py").write_text((checkout / "copy.py").read_text() + "# changed\n")
    assert copy.read_commit() == f"{second[:10]}-dirty"
    assert load(checkout).read_commit() == f"{second[:10]}-dirty"


def test_what_is_not_in_the_checkout_has_no_commit(checkout: Path) -> None:
    """As of a wheel that is installed inside somebody's checkout, or of a folder without git."""
    inside = checkout / "site"
    inside.mkdir()
    shutil.copy(checkout / "copy.py", inside)
    assert load(inside).read_commit() is None
    commit(checkout)
    assert load(inside).read_commit() == git(checkout, "rev-parse", "HEAD")[:10]


def test_versions_are_those_of_the_packages_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is missing is left out."""
    names = ("torch", "torchvision", "numpy", "scipy", "pillow", "sionna-no-rt", "semcom")
    assert versions.read_versions() == {
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in names},
    }

    def find(name: str) -> str:
        if name == "sionna-no-rt":
            raise metadata.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(metadata, "version", find)
    versions._find_version.cache_clear()
    try:
        found = versions.read_versions()
    finally:
        versions._find_version.cache_clear()
    assert found == {"python": platform.python_version(), **dict.fromkeys(set(names) - {"sionna-no-rt"}, "1.0")}
