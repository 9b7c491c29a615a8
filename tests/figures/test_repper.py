"""The numbers of RepPer's figures that are those of one run, or of one client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import semcom
from semcom.plots import Plot
from semcom.plots.classes import SORTED
from semcom_papers.figures.repper import CLIENT, average_repper_new, embed_client_0, embed_clients
from tests.refusals import refuses
from tests.studies.folders import begin, config, simple


@pytest.mark.parametrize("embed", [embed_client_0, embed_clients])
def test_runs_that_would_hide_each_other_are_refused(embed: Any, tmp_path: Path) -> None:
    for snr in (0.0, 9.0):
        simple(tmp_path, config("repper", snr=snr), [0.5, 0.7])
    with refuses("results", "2 runs of seed 0"):
        embed(semcom.study(tmp_path), Plot(kind="embedding", facet="variant"))


@pytest.mark.parametrize("seeds", [1, 2])
def test_new_clients_are_sorted_where_several_seeds_have_finished(seeds: int, tmp_path: Path) -> None:
    """A further seed is at work, and counts for nothing."""
    for seed in range(seeds):
        new = {"head": {"clients": [0.7 + seed / 10, 0.3 + seed / 10]}}
        simple(tmp_path, config("repper", seed), [0.5, 0.7], new_clients=new)
    begin(tmp_path / "more", config("repper", 7), [])
    cells = average_repper_new(semcom.study(tmp_path), Plot(kind="clients", x=CLIENT, facet="variant"))
    assert cells["mean"].tolist() == pytest.approx([0.7, 0.3] if seeds == 1 else [0.35, 0.75])
    assert set(cells[SORTED]) == {seeds > 1}
