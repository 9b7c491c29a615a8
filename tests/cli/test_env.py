"""`semcom env` says what a report needs, and no place of its user's."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

import pytest

from semcom.cli import main as cli
from tests.modules import PROJECT


def test_environment_names_versions_and_no_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "semcom").mkdir()
    (tmp_path / "semcom" / "mnist.npz").write_bytes(b"")
    assert cli.main(["env"]) == 0
    lines = dict(line.split(":", 1) for line in capsys.readouterr().out.splitlines())
    found = {name: value.strip() for name, value in lines.items()}
    assert found["images"] == "mnist in the cache" and found["python"].startswith(platform.python_version())
    for line in PROJECT["project"]["dependencies"]:
        name = line.split(">")[0]
        assert f"{name} {metadata.version(name)}" in found["packages"].split(", ")
    assert f"pytest {pytest.__version__}" in found["of extras"]
    text = "\n".join(found.values())
    assert os.path.expanduser("~") not in text and str(Path.cwd()) not in text and str(tmp_path) not in text
