"""The search for the defaults of a last stage: what it measures, and the rule by which it chooses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from semcom.config import FINISH, FinishConfig
from semcom.runs.folder.summary import read_summary
from semcom.studies.results.table import list_configuration_columns, make_table, make_table_row
from semcom_papers.experiments import finish_search
from semcom_papers.experiments.finish_search import (
    CANDIDATES,
    choose_finish_candidate,
    score_finish_candidates,
    train_and_search,
)
from tests import worlds


def frame(values: dict[str, tuple[float, ...]]) -> pd.DataFrame:
    """The table of two runs: accuracies of both by candidate and stage, 0.1 for all others; one run has `all`."""
    names = [finish_search._name_candidate(candidate) for candidate in CANDIDATES]
    columns: dict[str, Any] = {f"search.{name}.{kind}": (0.1, 0.1) for name in names for kind in ("linear", "mlp")}
    columns |= {f"search.{name}.all": (0.1, None) for name in names} | values
    return pd.DataFrame(columns)


def test_a_score_is_the_mean_over_runs_and_stages() -> None:
    best = score_finish_candidates(
        frame(
            {
                "search.sgd 0.1 x 30.linear": (0.9, 0.7),
                "search.sgd 0.1 x 30.mlp": (0.5, 0.3),
                "search.sgd 0.1 x 30.all": (0.1, None),  # type: ignore[dict-item]
            }
        )
    ).iloc[0]
    assert (best.optimizer, best.lr, best.epochs) == ("sgd", 0.1, 30)
    assert best.score == pytest.approx(50) and (best.linear, best.mlp, best["all"]) == pytest.approx((80, 40, 10))


@pytest.mark.parametrize(
    ("points", "choice"),
    [
        ({"adam 0.01 x 100": 90.0, "sgd 0.1 x 100": 89.4}, ("adam", 0.01, 100)),
        ({"adam 0.01 x 100": 90.0, "sgd 0.3 x 100": 89.6, "sgd 0.1 x 100": 89.6}, ("sgd", 0.1, 100)),
        ({"sgd 0.1 x 100": 90.0, "adam 0.01 x 30": 89.6, "adam 0.03 x 10": 80.0}, ("adam", 0.01, 30)),
    ],
)
def test_of_those_that_are_tied_the_cheapest_is_chosen(
    points: dict[str, float], choice: tuple[str, float, int]
) -> None:
    """Half a point below the best: the fewest epochs, then SGD, then the smallest rate."""
    rows = [
        vars(candidate) | {"score": points.get(finish_search._name_candidate(candidate), 10.0)}
        for candidate in CANDIDATES
    ]
    found = choose_finish_candidate(pd.DataFrame(rows))
    assert (found.optimizer, found.lr, found.epochs) == choice


def test_the_defaults_are_among_the_candidates() -> None:
    assert FinishConfig(None, **FINISH) in CANDIDATES


def test_a_run_leaves_the_accuracies_of_all_stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On validation images; what trains for longer fits more. The table takes none of it for a configuration."""
    monkeypatch.setattr(finish_search, "CANDIDATES", [FinishConfig(None, n, 0.1, "sgd") for n in (1, 40)])
    part = {"shots": 12, "validation": 0.5}
    config = worlds.request(
        "fedbabu", out=str(tmp_path), partition=part, train={"rounds": 2}, channel={"kind": "ideal"}
    )
    train_and_search(config)
    summary = read_summary(tmp_path)
    assert summary is not None and summary["search"].keys() == {"sgd 0.1 x 1", "sgd 0.1 x 40"}
    few, many = (summary["search"][name] for name in ("sgd 0.1 x 1", "sgd 0.1 x 40"))
    assert few.keys() == many.keys() == {"linear", "mlp", "all"} and few["all"] == many["all"]
    assert few["linear"] < many["linear"] and many["linear"] > 0.7  # two classes each
    columns = list_configuration_columns(make_table([make_table_row(config, {}, summary, None)]))
    assert {"finish.kind", "finish.epochs", "partition.shots"} <= set(columns)
    assert not {name for name in columns if name.startswith(("search.", "finish.views", "finish.round"))}
