"""Each figure that has a name, on few runs that lack what it shows: it is drawn, or a line says what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

import semcom
from semcom.config import ConfigError
from semcom.plots.base import Drawing
from semcom.plots.kinds import KINDS, name_empty, settle_kind
from semcom.plots.registry import FIGURES
from tests.studies.folders import config, simple

DRAWINGS = [name for name in FIGURES.names() if FIGURES.ships(name) and isinstance(FIGURES.get(name), Drawing)]
SUBSETS = [("local",), ("fedcl",), ("repper", "local"), ("fedcl", "fedper", "local")]
"""Methods of the runs, each of seed 1 alone."""


@pytest.mark.parametrize("methods", SUBSETS, ids=",".join)
def test_few_runs_are_drawn_or_refused_in_a_line(methods: tuple[str, ...], tmp_path: Path) -> None:
    for method in methods:
        simple(tmp_path, config(method, seed=1), [0.25, 0.5])
    whole = semcom.study(tmp_path)
    for name in DRAWINGS:
        drawing = FIGURES.get(name)
        assert isinstance(drawing, Drawing)
        try:
            part, plot = (whole, drawing.plot) if drawing.numbers else settle_kind(whole, drawing.plot)
            kind = KINDS.get(str(plot.kind))
            cells = name_empty((drawing.numbers or kind.numbers)(part, plot), plot)
        except ConfigError as error:
            assert len(str(error).splitlines()) == 1
            continue
        except Exception as error:
            pytest.fail(f"{name}: {error!r}")
        assert len(cells) > 0 and (drawing.caption or kind.caption)(cells, plot), name
