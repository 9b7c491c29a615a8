"""`semcom channel-check`: what it prints, what it writes, and with which status it ends."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from semcom.channels.check import Finding, Lab
from semcom.cli import channel_check
from semcom.cli import main as cli
from semcom.engine.air.air import Air

GOOD, BAD = Finding("E|h|^2", 1.0, 1.25, 0.125, 100), Finding("MSE", 0.5, 1.5, 0.125, 100)


@pytest.fixture
def finds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that measure nothing: two findings that agree, and with seed 3 one that does not."""

    def check(lab: Lab) -> Iterator[Finding]:
        yield GOOD
        yield Finding("identity", 0.0, 0.0, 0.0, None)
        if lab.seed == 3:
            yield BAD

    monkeypatch.setattr(channel_check, "CHECKS", {"check": check})
    monkeypatch.setattr(channel_check, "check_channel_accounting", lambda lab: iter(()))


def test_all_is_well(finds: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "check.json"
    assert cli.main(["channel-check", "--device", "cpu", "--json", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"semcom \S+, torch \S+, sionna-no-rt \S+; device cpu, seed 0", lines[0])
    assert lines[2].split() == ["E|h|^2", "1", "1.25", "0.12", "100", "+2.00"]
    assert lines[3].split() == ["identity", "0", "0", "0", "rounding", "+0.00"]
    assert lines[-2:] == [f"written to {file}", "2 quantities, all within 5 standard errors"]
    stored = json.loads(file.read_text())
    assert (stored["device"], stored["seed"], stored["limit"]) == ("cpu", 0, 5.0)
    assert stored["findings"][0] == {
        "quantity": "E|h|^2",
        "theory": 1.0,
        "measured": 1.25,
        "error": 0.125,
        "units": 100,
        "deviation": 2.0,
    }


def test_what_is_wrong_is_marked_stored_and_ends_with_status_1(
    finds: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "check.json"
    assert cli.main(["channel-check", "--device", "cpu", "--seed", "3", "--json", str(file)]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[4].endswith("+8.00  <- wrong") and "all within" not in out
    assert err == "semcom: error: 1 of 3 quantities are beyond 5 standard errors; the first: MSE: 1.5 is not 0.5\n"
    assert len(json.loads(file.read_text())["findings"]) == 3


def test_accounting_of_clients_that_share_a_band() -> None:
    found = list(channel_check.check_channel_accounting(Lab(torch.device("cpu"))))
    assert all(f.agrees for f in found)
    assert [round(f.measured, 9) for f in found] == [4, 1, 20, 1] * 2  # airtime and energy, AWGN and OFDM


def test_a_fault_of_the_accounting_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody has the whole band."""
    monkeypatch.setattr(Air, "_bandwidth", lambda self, ids: 1e6)
    found = list(channel_check.check_channel_accounting(Lab(torch.device("cpu"))))
    assert [f.agrees for f in found if "airtime" in f.quantity and "AWGN" in f.quantity] == [False, False]
