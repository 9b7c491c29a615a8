"""Tables of papers beside ours, on studies written by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from semcom.cli import main as cli
from semcom.config import ConfigError, DataConfig, PartitionConfig
from semcom.data.partitions import Dirichlet
from semcom_papers.experiments.claims.beside import compare_table_beside, format_tables_beside, measure_agreement
from tests.studies.conftest import quick_resolve  # noqa: F401 - a fixture
from tests.studies.folders import config, simple

COLUMN = "cifar10 dirichlet"
DIVISION = PartitionConfig(kind="dirichlet", options=Dirichlet.Options(beta=0.1, min_size=600))


pytestmark = pytest.mark.usefixtures("without_stored_results")


def table2(folder: Path, accuracies: dict[str, float], rate: float = 0.01) -> None:
    """FedCoSR's Table II at one division, three seeds, one point apart."""
    for method, accuracy in accuracies.items():
        for seed in range(3):
            of = config(method, seed, clients=20, data=DataConfig(name="cifar10"))
            of = replace(of, partition=DIVISION, train=replace(of.train, lr=rate))
            simple(folder / "fedcosr-table2-small", of, [accuracy + (seed - 1) / 100] * 20)


def test_each_number_of_the_paper_stands_beside_ours(tmp_path: Path) -> None:
    """The paper has Local 69.90, FedAvg 61.47, Ditto 87.47, FedPer 89.92 and FedCoSR 92.17; ours are the other way."""
    table2(tmp_path, {"local": 0.6, "fedavg": 0.7, "ditto": 0.5, "fedper": 0.4, "fedcosr": 0.3})
    frame = compare_table_beside("fedcosr-table2", tmp_path).set_index("method")
    assert set(frame["column"]) == {COLUMN} and set(frame["seeds"]) == {3} and set(frame["scale"]) == {"small"}
    assert list(frame.index) == ["local", "fedavg", "ditto", "fedper", "fedcosr"]  # no mean: methods are missing
    assert frame["paper"]["local"] == 69.9 and frame["ours"]["local"] == pytest.approx(60)
    assert frame["high"]["local"] - frame["ours"]["local"] == pytest.approx(4.303 / 3**0.5, abs=1e-3)
    (agreed,) = measure_agreement(frame.reset_index()).to_dict("records")
    assert (agreed["column"], agreed["methods"], agreed["rho"]) == (COLUMN, 5, pytest.approx(-1))


def test_orders_are_compared_by_their_ranks_without_the_mean() -> None:
    """Ranks 1 2 3 4 against 1 3 2 4: rho is 1 - 6 (1 + 1) / (4 (16 - 1)) = 0.8. Three methods are too few."""
    ours = {"local": 10.0, "fedavg": 30.0, "ditto": 20.0, "fedper": 40.0, "averaged": 0.0}
    rows = [{"column": "a", "method": name, "paper": i, "ours": value} for i, (name, value) in enumerate(ours.items())]
    frame = pd.DataFrame([*rows, *({**row, "column": "b"} for row in rows[1:])])
    (agreed,) = measure_agreement(frame).to_dict("records")
    assert (agreed["column"], agreed["methods"], agreed["rho"]) == ("a", 4, pytest.approx(0.8))


def test_the_mean_is_that_of_all_methods_of_the_table(tmp_path: Path) -> None:
    every = ("local", "fedavg", "fedprox", "moon", "pfedme", "ditto", "perfedavg", "fedrep", "lg_fedavg", "fedper")
    every = (*every, "fedamp", "fedala", "fedproto", "fedpac", "fedgh", "fedcosr")
    table2(tmp_path, {method: 0.2 + 0.02 * i for i, method in enumerate(every)})
    frame = compare_table_beside("fedcosr-table2", tmp_path).set_index("method")
    assert frame["ours"]["averaged"] == pytest.approx(100 * (0.2 + 0.02 * 7.5)) and frame["paper"]["averaged"] == 83.83


def test_the_command_prints_and_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table2(tmp_path, {"local": 0.6, "fedavg": 0.7, "ditto": 0.8, "fedcosr": 0.9})
    words = ["claims", "--table", "fedcosr-table2", "--results", str(tmp_path)]
    assert cli.main(words) == 0
    said = capsys.readouterr().out
    assert "| FedCoSR | 92.2 | 90.0 ± 2.5 |" in said.splitlines()
    assert said.splitlines()[0].startswith("Accuracy in %: the paper's, and ours at scale small")
    assert said.splitlines()[-1].startswith("cifar10 dirichlet: Spearman's correlation 0.80 over 4 methods, p 0.2")
    assert said == format_tables_beside(compare_table_beside("fedcosr-table2", tmp_path)) + "\n"
    assert cli.main([*words, "--csv", str(tmp_path / "both.csv")]) == 0
    assert len(pd.read_csv(tmp_path / "both.csv")) == 4


def test_a_column_is_one_point_of_ours(tmp_path: Path) -> None:
    """A study that was extended by a field has two accuracies for each of the paper's."""
    for rate in (1e-3, 1e-2):
        table2(tmp_path, {"local": 0.5}, rate)
    with pytest.raises(ConfigError, match="^table: cifar10 dirichlet is 2 points of our runs$"):
        compare_table_beside("fedcosr-table2", tmp_path)
