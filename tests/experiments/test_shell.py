"""What modules tell of studies by `python -m`."""

from __future__ import annotations

import sys

import pytest

from semcom.config import ConfigError
from semcom_papers.experiments.shell import run_on_named_studies


@pytest.mark.parametrize(("at_most", "named"), [(1, ["a"]), (2, ["a"]), (2, ["a", "b"])])
def test_the_studies_that_are_named(monkeypatch: pytest.MonkeyPatch, at_most: int, named: list[str]) -> None:
    given: list[str] = []
    monkeypatch.setattr(sys, "argv", ["module", *named])
    run_on_named_studies(lambda *paths: given.extend(paths), at_most)
    assert given == named


@pytest.mark.parametrize(("at_most", "named"), [(1, []), (1, ["a", "b"]), (2, ["a", "b", "c"])])
def test_none_or_too_many(monkeypatch: pytest.MonkeyPatch, at_most: int, named: list[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["module", *named])
    with pytest.raises(SystemExit, match="^error: name the study: FOLDER-OR-ARCHIVE"):
        run_on_named_studies(lambda *paths: pytest.fail("called"), at_most)


def test_what_cannot_be_read_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> None:
        raise ConfigError(f"study: {path} is no folder")

    monkeypatch.setattr(sys, "argv", ["module", "a"])
    with pytest.raises(SystemExit, match="^error: study: a is no folder$"):
        run_on_named_studies(refuse)
