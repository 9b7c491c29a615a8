"""The examples in the docstrings of what `semcom` exports: each function has one, and they do what they show."""

from __future__ import annotations

import doctest
import inspect
from pathlib import Path

import pytest

import semcom
from semcom.channels import registry

FUNCTIONS = [name for name in semcom.__all__ if inspect.isfunction(getattr(semcom, name))]
SHOWN = [name for name in semcom.__all__ if ">>> " in (inspect.getdoc(getattr(semcom, name)) or "")]
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def test_every_function_has_an_example() -> None:
    assert set(FUNCTIONS) <= set(SHOWN)


@pytest.mark.usefixtures("thin")
@pytest.mark.parametrize("name", SHOWN)
def test_examples(name: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_depends", {})  # what an example declares is not for what other tests register
    runner = doctest.DocTestRunner(optionflags=OPTIONS, verbose=False)
    for test in doctest.DocTestFinder(recurse=False).find(getattr(semcom, name), name, globs={}):
        runner.run(test)
    assert runner.tries and not runner.failures
