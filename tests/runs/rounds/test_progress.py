"""What a run shows while it trains, and what its result shows of itself."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from semcom.runs.rounds.runner import run
from tests import worlds


def test_progress_is_log_lines_without_a_terminal(caplog: pytest.LogCaptureFixture) -> None:
    lines: list[dict[str, Any]] = []
    with caplog.at_level(logging.INFO, "semcom.runs.rounds.progress"):
        result = run(worlds.request(train={"rounds": 2}), on_round=lines.append, progress=True)
    last = result.metrics[-1]
    text = f"round 2/2  loss {last['loss']:.4g}  global {100 * last['views']['global']['accuracy']:.1f}%"
    assert caplog.messages[-1] == text and lines == result.metrics
    caplog.clear()
    run(worlds.request(train={"rounds": 1}))
    assert not caplog.messages


def test_progress_in_a_notebook_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("semcom.runs.rounds.progress.is_notebook", lambda: True)
    run(worlds.request(train={"rounds": 3}), progress=True)
    text = capsys.readouterr().err
    assert text.count("\n") == 1 and [part.split()[1] for part in text.split("\r")[1:]] == ["1/3", "2/3", "3/3"]


def test_a_result_is_a_small_table() -> None:
    result = run(worlds.request("fedproto", train={"rounds": 2}))
    head, _, _, *rows = repr(result).splitlines()
    assert head == f"fedproto, 2 rounds, 4 clients, {result.summary['samples']:,} samples visited"
    assert [row.split()[0] for row in rows] == list(result.summary["views"])
    view = result.summary["views"]["personal"]
    wanted = [view[name] for name in ("accuracy", "pooled", "accuracy_std", "worst10", "last", "best")]
    shown = next(row.split()[1:] for row in rows if row.startswith("personal"))
    assert shown == [f"{100 * value:.1f}" for value in wanted]
    assert f"<td>{shown[0]}</td>" in result._repr_html_() and head in result._repr_html_()
