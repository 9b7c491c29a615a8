"""Commands of semcom in this process: what they read, and what they print."""

from __future__ import annotations

import shlex

import pytest

from semcom.cli import flags
from semcom.cli import main as cli
from semcom.config import RunConfig


def read(*words: str) -> RunConfig:
    """Read the configuration that `semcom train` makes of its words."""
    return flags.read_train_flags(flags.read_early_flags(words, config=True))


def told(capsys: pytest.CaptureFixture[str], line: str, status: int = 0) -> list[str]:
    """Carry out a command; return the lines that it prints, or those of its error."""
    assert cli.main(shlex.split(line)) == status, capsys.readouterr().err
    printed = capsys.readouterr()
    return (printed.err if status else printed.out).splitlines()
