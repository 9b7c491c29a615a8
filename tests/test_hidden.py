"""A user's own `channels`, `experiments` or `figures` beside his script: what is wrong is one line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def plant(folder: Path, name: str) -> str:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("SNR = 10\n")
    return str(path if path.parent == folder else path.parent)


@pytest.mark.parametrize("name", ["channels.py", "channels/__init__.py"])
def test_hidden_channels_are_an_import_error(name: str, tmp_path: Path) -> None:
    place = plant(tmp_path, name)
    (tmp_path / "script.py").write_text("import semcom\n")
    done = python(tmp_path, "script.py")
    expected = f"ImportError: {place} hides the package 'channels' that comes with semcom; rename it or move it away"
    assert done.returncode == 1 and done.stderr.splitlines()[-1] == expected


@pytest.mark.parametrize("start", [("-m", "semcom"), ("-msemcom",), ("bin/semcom",)])
def test_hidden_channels_are_a_wrong_request(start: tuple[str, ...], tmp_path: Path) -> None:
    place = plant(tmp_path, "channels.py")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "semcom").write_text("from semcom.cli.main import main\nraise SystemExit(main())\n")
    done = python(tmp_path, *start, "list", "methods")
    line = f"{place} hides the package 'channels' that comes with semcom; rename it or move it away"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"semcom: error: {line}\n")


@pytest.mark.parametrize(("name", "words"), [("experiments/__init__.py", "sweep demo"), ("figures.py", "figure arms")])
def test_hidden_names_are_unknown_and_the_line_says_why(name: str, words: str, tmp_path: Path) -> None:
    place = plant(tmp_path, name)
    done = python(tmp_path, "-m", "semcom", *words.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert f"is unknown; {place} hides the package" in done.stderr and done.stderr.count("\n") == 1
    assert python(tmp_path, "-m", "semcom", "--help").returncode == 0, "they are not needed there"


def test_folders_without_modules_hide_nothing(tmp_path: Path) -> None:
    for name in ("channels", "figures", "experiments"):
        (tmp_path / name).mkdir()
    code = (
        "from semcom.studies.registry import EXPERIMENTS; import channels, figures; print(EXPERIMENTS.get('demo').name)"
    )
    done = python(tmp_path, "-c", code)
    assert (done.returncode, done.stdout) == (0, "demo\n")
