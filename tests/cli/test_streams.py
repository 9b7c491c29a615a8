"""Commands whose standard streams are closed, or take ASCII alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_analysis import folder  # noqa: F401

TRAIN = "train fedavg --clients 2 --train.rounds 1 --device cpu --out run"


@pytest.mark.parametrize(
    ("words", "shell", "made"),
    [
        ("--version", "<&- >&- 2>&-", ""),
        (TRAIN, ">&-", "run/summary.json"),
        ("table s", "> said.txt", "said.txt"),
    ],
)
def test_the_work_is_done_whatever_the_streams_are(
    words: str,
    shell: str,
    made: str,
    folder: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    ascii_alone = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    command = f"{sys.executable} -m semcom {words} {shell}"
    done = subprocess.run(command, shell=True, cwd=tmp_path, env={**os.environ, **ascii_alone}, stderr=subprocess.PIPE)
    assert done.returncode == 0 and b"Traceback" not in done.stderr and (tmp_path / made).exists()
    if ">" in shell and "said" in shell:
        assert " +- " in (tmp_path / "said.txt").read_text(encoding="ascii")
