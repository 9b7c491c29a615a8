"""Crosses and shades mark the runs' numbers and divisions, and add no column to a CSV file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from semcom.config import DataConfig
from semcom.plots import Plot, plot
from semcom.plots.classes import _find_scarce
from semcom.plots.guessing import CROSS, GUESSING, count_own_classes, mark_guessing
from semcom.plots.kinds import KINDS, settle_kind
from tests.plots.studies import SNR, TOPS, drawn, made
from tests.studies.folders import config, line, scored, simple, write


@pytest.mark.parametrize("kind", ["lines", "dots"])
def test_a_seed_that_names_one_of_its_three_classes_is_crossed(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FedProto's seeds have 33.8, 34.0 and 34.2 % at 0 dB, the first within half a point of 1/3, and more at 9 dB."""
    monkeypatch.setitem(TOPS, "fedproto", 0.34)
    part, request = settle_kind(made(tmp_path), Plot(kind=kind, x=SNR, hue="variant"))
    numbers = KINDS.get(kind).numbers(part, request)
    marked = mark_guessing(part, request, numbers)
    pd.testing.assert_frame_equal(marked.drop(columns=GUESSING), numbers)
    assert marked.loc[marked[GUESSING], ["variant", SNR]].to_numpy().tolist() == [["fedproto", 0.0]]
    axes = drawn(marked, request).axes[0]
    (cross,) = [line for line in axes.lines if line.get_label() == CROSS]
    at = cross.get_ydata() if kind == "lines" else cross.get_xdata()
    assert at == pytest.approx([0.34])
    assert "guessing" in KINDS.get(kind).note(marked, request) and KINDS.get(kind).note(numbers, request) == ""
    *_, table, page = plot(tmp_path, Plot(kind=kind, x=SNR, hue="variant"), out=tmp_path / "out")
    assert GUESSING not in table.read_text().splitlines()[0] and "Crossed" in page.read_text()


def test_noise_alone_is_not_crossed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TOPS, "fedproto", 0.3)
    part, request = settle_kind(made(tmp_path), Plot(x="channel.test_snr_db", facet=SNR))
    numbers = KINDS.get("lines").numbers(part, request)
    assert GUESSING not in mark_guessing(part, request, numbers)


@pytest.mark.parametrize("fields", [{"kind": "dots", "at": {"test_snr_db": -5}}, {"x": "round"}])
def test_noise_at_a_later_test_is_not_crossed(fields: dict[str, Any], tmp_path: Path) -> None:
    """At 5 dB, the first one, it has 60 %; at -5 dB 20 % of three classes."""
    of = config("fedcl")
    of = replace(of, channel=replace(of.channel, test_snr_db="5,-5"))
    write(tmp_path / "run", of, [line(4, {"personal": scored([0.6] * 2, at={"5": 0.6, "-5": 0.2})})])
    *_, page = plot(tmp_path, Plot(**fields), out=tmp_path / "out")
    assert "Crossed" not in page.read_text()


def test_a_file_of_ones_own_is_crossed_under_its_name(tmp_path: Path) -> None:
    """It has 20 % of three classes."""
    of = config("fedcl", data=DataConfig("/home/me/own.npz"))
    simple(tmp_path, of, [0.2, 0.2])
    *_, table, page = plot(tmp_path, Plot(kind="dots", hue="data.name"), out=tmp_path / "out")
    assert "Crossed" in page.read_text() and pd.read_csv(table)["data.name"].tolist() == ["own.npz"]


def run(**fields: Any) -> Any:
    return SimpleNamespace(status="done", field={name.replace("__", "."): v for name, v in fields.items()}.get)


def test_the_classes_of_a_client_are_known_where_the_partition_sets_them() -> None:
    assert count_own_classes(run(partition__kind="pathological", partition__classes=2)) == 2
    assert count_own_classes(run(partition__kind="shots", partition__ways=3, partition__test_classes="own")) == 3
    assert count_own_classes(run(partition__kind="shots", partition__ways=3, partition__test_classes="all")) is None
    assert count_own_classes(run(partition__kind="shots", partition__ways=3, partition__ways_spread=1)) is None
    assert count_own_classes(run(partition__kind="dirichlet", partition__beta=0.1)) is None


def test_scarce_clients_are_those_of_all_runs_unless_they_are_everyone() -> None:
    def scarce(*clients: str) -> dict[int, float]:
        runs = [run(partition__scarce=each, partition__scarce_fraction=0.1, clients=3) for each in clients]
        return _find_scarce(SimpleNamespace(stored=runs))  # type: ignore[arg-type]

    assert scarce("1,2", "1,2") == {1: 0.1, 2: 0.1}
    assert scarce("1,2", "0") == scarce("0,1,2") == scarce("") == {}
