"""The items of the papers: their grids hold every cell that is printed, and the numbers that their claims need."""

from __future__ import annotations

import functools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import semcom
from semcom.config import DataConfig, run_hash
from semcom.engine.store.population import Cohort, Population
from semcom.studies.analysis.curves import average_curve_within, measure_curve_speed
from semcom.studies.analysis.study import study
from semcom.studies.experiment import Grid
from semcom.studies.grid import set_fields
from semcom.studies.names import METHODS
from semcom.studies.overrides import format_plain_value
from semcom.studies.registry import EXPERIMENTS, find_experiment
from semcom.studies.results.run import Stored
from semcom.studies.results.table import list_table_fields
from semcom_papers.experiments import fedcrl, overhead, papers, wireless
from semcom_papers.experiments.arms import ALL
from semcom_papers.experiments.claims.claim import Claim, list_comparisons
from semcom_papers.experiments.claims.evidence import Evidence, read_evidence_number
from semcom_papers.experiments.claims.scorecard import make_scorecard
from semcom_papers.experiments.fedcosr import items as fedcosr
from semcom_papers.experiments.fedcrc import items as fedcrc
from tests.studies.folders import around, config, line, scored, simple, write

POINTS, NAMES = papers.read_paper_points(), EXPERIMENTS.names()
PRINTED = sorted({item for item in POINTS["item"] if item in NAMES and not item.startswith(("letter", "repper"))})
"""Items with cells; RepPer's have a file of their own, and the letter prints none."""
METHOD = {"fedcrc-per": "fedcrc"}
"""Row of a table that is another view of a method -> that method."""


@functools.cache
def resolved(item: str, scale: str) -> list[tuple[str, dict[str, Any]]]:
    """Variant and fields of an item's runs with the first seed."""
    found = list(find_experiment(item).runs(scale))
    first = min(run.config.seed for run in found)
    return [(run.variant, list_table_fields(semcom.resolve(run.config))) for run in found if run.config.seed == first]


def runs(item: str, scale: str = "paper") -> list[tuple[str, dict[str, str]]]:
    """The same as claims spell them."""
    return [(name, {k: format_plain_value(v) for k, v in of.items()}) for name, of in resolved(item, scale)]


# Grids ---------------------------------------------------------------------------------------------------------------


def test_all_items_with_claims_are_experiments() -> None:
    claimed = {item for items in papers.read_paper_claims()["item"] for item in items.split()}
    assert claimed <= set(NAMES) and set(POINTS["item"]) <= set(NAMES)
    asked = """
        letter-fig2a letter-fig2b letter-fig3a letter-fig3b letter-fig4 letter-ablation letter-encoders fedcosr-table2
        fedcrl-table2 fedcosr-table3 fedcrl-table3 fedcosr-fig4 repper-fig3 fedcosr-fig5 fedcrl-curves fedcosr-fig6
        fedcosr-fig7 fedcosr-fig8 fedcosr-fig9 fedcrl-tsne repper-fig1 repper-fig4 repper-gradients overhead fedcrc-fig1
        fedcrc-table1 fedcrc-table2 fedcrc-table3 fedcrc-fig3 repper-table1 repper-table2 repper-table3 repper-table4
        repper-fig5 repper-fig6 wireless-snr wireless-heterogeneity wireless-baselines convergence-bound
    """
    assert len(asked.split()) == 39 and set(asked.split()) <= set(NAMES)


@pytest.mark.parametrize("item", PRINTED)
def test_every_cell_of_a_table_has_one_run_for_each_seed(item: str) -> None:
    paper = str(POINTS[POINTS["item"] == item]["paper"].iloc[0])
    places = {p["column"]: papers.parse_point(p["at"]) for _, p in POINTS[POINTS["item"] == item].iterrows()}
    cells, found = papers.read_paper_table(paper).query("item == @item"), runs(item)
    for _, cell in cells.iterrows():
        at = {f: v for f, v in places[cell["column"]].items() if f not in papers.ASPECTS}
        name = METHOD.get(cell["row"], cell["row"])
        if cell["row"] == "averaged":
            continue
        there = [of for variant, of in found if variant == name and all(of.get(f) in v for f, v in at.items())]
        assert len(there) == 1, (cell["row"], cell["column"])


def varied(grid: Grid, *names: str) -> set[tuple[object, ...]]:
    axes = [axis for axis in grid.axes("it") if set(names) & set(axis.fields)]
    return {tuple(point[name] for name in names) for axis in axes for point in axis.points()}


AWGN = ("wireless-snr", "wireless-exchange")
COMPARED = set(METHODS) - {"digital-chain", "scaffold", "feddyn", "fedbn", "fedrod", "apfl", "feddbe"}
"""The methods of the papers and their baselines."""


def test_arms_are_those_of_the_papers() -> None:
    printed = set(papers.read_paper_table("fedcosr").query("item == 'fedcosr-table2'")["row"]) - {"averaged"}
    assert {str(getattr(arm, "name", arm)) for arm in fedcosr.ARMS} == printed and len(fedcosr.ARMS) == 16
    assert {v.name for v in fedcrl.TABLE2.compared()} == printed - {"fedcosr"} | {"fedcrl"}
    assert set(fedcrc.ARMS) | {"fedcrc-per"} == set(
        papers.read_paper_table("fedcrc").query("item == 'fedcrc-table1'")["row"]
    )
    assert sorted(str(getattr(arm, "name", arm)) for arm in ALL) == sorted(COMPARED)
    assert [str(getattr(arm, "name", arm)) for arm in wireless.ARMS] == [str(getattr(a, "name", a)) for a in ALL]
    keys = {name: {run_hash(semcom.resolve(r.config)) for r in find_experiment(name).runs("small")} for name in AWGN}
    shared = keys["wireless-snr"] & keys["wireless-exchange"]
    assert len(shared) == 3 * len(COMPARED) and len(keys["wireless-exchange"] - shared) == 3 * (len(COMPARED) - 2)


def test_wireless_keeps_the_images_of_a_client_and_spares_what_has_no_exchange() -> None:
    grid = find_experiment("wireless-heterogeneity").scales["small"]
    assert {ways * shots for ways, shots in varied(grid, "partition.ways", "partition.shots")} == {150}  # type: ignore[operator]
    analog = {name for name, of in runs("wireless-exchange", "small") if of["air.parameters"] == "analog"}
    assert analog == COMPARED - {"local", "fedcl"}


# Numbers -------------------------------------------------------------------------------------------------------------


def test_parts_of_the_training_and_its_speed_by_hand() -> None:
    curve = {1: 0.1, 2: 0.3, 10: 0.5, 12: 0.6, 15: 0.5, 18: 0.7, 20: 0.8}
    lines = [{"round": i, "views": {"personal": {"accuracy": a}}} for i, a in curve.items()] + [{"round": 3}]
    assert average_curve_within(lines, "personal", "first tenth", 20) == pytest.approx(20)  # rounds 1 and 2
    # Rounds 12 and 15 stand for two and three rounds since the evaluation before; 10 is in the second quarter.
    assert average_curve_within(lines, "personal", "third quarter", 20) == pytest.approx((2 * 60 + 3 * 50) / 5)
    assert average_curve_within(lines, "personal", "last quarter", 20) == pytest.approx((3 * 70 + 2 * 80) / 5)
    assert (
        average_curve_within(lines, "other", "last quarter", 20) is None
        and average_curve_within(lines[2:3], "personal", "first tenth", 20) is None
    )
    assert measure_curve_speed(lines, "personal", 0.75, 20) == pytest.approx(
        10
    )  # 0.675 is reached in round 18, two before the end
    assert measure_curve_speed(lines, "personal", 0.5, 20) == pytest.approx(50)
    assert measure_curve_speed(lines[-2:], "personal", 0.8, 20) is None, "only the end was evaluated"


@pytest.mark.usefixtures("without_stored_results")
def test_early_and_late_claims_are_about_parts_of_curves(tmp_path: Path) -> None:
    """FedPer and FedRep lead at first; FedCoSR rises to the end, they fall."""
    curves = {"fedcosr": (0.2, 0.6, 0.7), "fedper": (0.5, 0.6, 0.5), "fedrep": (0.5, 0.6, 0.5)}
    for name, (first, third, last) in curves.items():
        for seed in range(3):
            of = config(name, seed, clients=20, data=DataConfig(name="cifar10"))
            of = set_fields(of, {"partition.kind": "dirichlet", "train.rounds": 20, "partition.options": {}})
            marks = ((2, first), (12, third), (20, last))
            found = [line(i, {"personal": scored(around(a + 1e-5 * seed * i * first, 20))}) for i, a in marks]
            write(tmp_path / "fedcosr-fig5-small" / f"{name}{seed}", semcom.resolve(of), found)
    card = make_scorecard(tmp_path, "fedcosr").set_index("id")
    names = ["fedcosr-fig5-early", "fedcosr-fig5-own-rises", "fedcosr-fig5-others-decline"]
    assert card.loc[names, ["yes", "no"]].to_numpy().tolist() == [[2, 0], [1, 0], [2, 0]]
    assert "partition.kind=pathological" in card.loc[names[0], "note"]  # which has not been run


def test_accuracy_is_that_of_the_new_clients_where_some_join(tmp_path: Path) -> None:
    joined = {"global": {"accuracy": 0.25, "clients": [0.25]}, "head": {"accuracy": 0.75, "clients": [0.75]}}
    for seed, new in ((0, joined), (1, {"head": joined["head"]}), (2, {})):
        simple(tmp_path, config("fedavg", seed), [0.5, 0.5], **({"new_clients": new} if new else {}))
    runs = {run.fields["seed"]: run for run in study(tmp_path).stored}
    assert [read_evidence_number(runs[seed], None, "accuracy") for seed in range(3)] == [25, 75, 50]
    assert read_evidence_number(runs[0], None, "accuracy_std") == pytest.approx(0), "of those that trained"


def test_the_distance_of_predictors_by_hand() -> None:
    with torch.device("meta"):
        network = nn.ModuleDict({"encoder": nn.Linear(1, 1), "head": nn.Linear(2, 1)})
    tensors = {
        "head.weight": torch.tensor([[[1.0, 2.0]], [[4.0, 2.0]]]),
        "head.bias": torch.tensor([[0.0], [4.0]]),
        "encoder.weight": torch.tensor([[[9.0]], [[0.0]]]),
        "encoder.bias": torch.zeros(2, 1),
    }
    assert fedcrc.measure_predictor_distance(Population((Cohort(network, tensors, np.arange(2)),))) == pytest.approx(
        5
    )  # 3 and 4


# Overhead ------------------------------------------------------------------------------------------------------------


def test_the_last_round_is_what_a_longer_run_adds() -> None:
    """Rounds of 5, 7 and 9 floats: means of 7 and 6."""
    whole, before = {"up": {"floats": 7.0}}, {"up": {"floats": 6.0}}
    assert overhead.isolate_last_round(whole, before, 3) == {"up": {"floats": 9.0}}


def test_formulas_by_hand() -> None:
    """phi(phi) = 100, phi(pi) = 11, phi(Omega) = 12 of a client's own classes, and 30 of all."""
    sizes = overhead.Sizes(100, 11, 12, 30)
    said = {name: formula(sizes) for name, formula in overhead.FORMULAS.items()}
    assert {said[name] for name in ("fedavg", "fedprox", "lg_fedavg", "fedpac", "fedala")} == {222}
    assert (said["fedproto"], said["fedgh"], said["fedcosr"], said["fedcrl"], said["local"]) == (42, 23, 242, 242, 0)
    assert COMPARED - set(said) == {"fedavg_ft", "fedprox_ft", "fedbabu", "fedcrc", "repper", "fedcl"}


def test_measured_floats_are_the_networks_own(tmp_path: Path) -> None:
    """The network of the smoke test, counted here from its layers."""
    found = {run.variant: run for run in find_experiment("overhead").runs("smoke")}
    rows = {}
    for name in ("fedgh", "fedper"):
        of = set_fields(semcom.resolve(found[name].config), {"out": str(tmp_path / name)})
        overhead.train_and_count_overhead(of)
        rows[name] = study(tmp_path / name).stored[0].summary or {}
    head, centroids = 16 * 10 + 10, 10 * 16
    convolutions = 32 * (1 * 25 + 1) + 64 * (32 * 25 + 1)
    body = convolutions + 64 * 1 * 1 * 16 + 16  # 16x16: 12, 6, 2, 1 pixels a side
    assert rows["fedper"]["traffic"]["up"]["floats"] == rows["fedper"]["traffic"]["down"]["floats"] == body
    assert rows["fedper"]["floats_formula"] == 2 * (body + head)
    assert rows["fedgh"]["traffic"]["down"]["floats"] == head
    assert 0 < rows["fedgh"]["traffic"]["up"]["floats"] < centroids  # a client sends the classes that it owns
    assert rows["fedgh"]["floats_formula"] == rows["fedgh"]["traffic"]["up"]["floats"] + head


@pytest.mark.usefixtures("without_stored_results")
def test_claims_with_a_formula_are_held_against_it(tmp_path: Path) -> None:
    traffic = {way: {"floats": 150.0} for way in ("up", "down")}
    for name, formula in (("fedgh", 300.0), ("fedcosr", 400.0)):
        for seed in range(2):
            simple(tmp_path / "overhead-small", config(name, seed), [0.5], traffic=traffic, floats_formula=formula)
    card = make_scorecard(tmp_path, "fedcosr").set_index("id")
    assert card.loc["fedcosr-overhead-fedgh", "state"] == "reproduced"
    assert card.loc["fedcosr-overhead-own", "state"] == "not reproduced"


def test_the_table_of_overhead(tmp_path: Path) -> None:
    import pandas as pd

    row = {"variant": "fedgh", "status": "done", "floats_formula": 200.0}
    for way, value in (("up", 60.0), ("down", 40.0)):
        row |= {f"traffic.{way}.{cost}": value for cost in ("floats", "bits", "uses", "airtime_s", "energy_j")}
    found = overhead.tabulate_overhead_costs(
        pd.DataFrame([row, {**row, "variant": "repper", "floats_formula": np.nan}])
    )
    assert found["ratio"].iloc[0] == pytest.approx(0.5) and np.isnan(found["ratio"].iloc[1])
    assert found.loc[0, ["method", "up", "down", "bits", "airtime_ms"]].tolist() == ["FedGH", 60, 40, 100, 100_000]


# The list ------------------------------------------------------------------------------------------------------------


def test_the_list_has_item_sizes_and_committed_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from semcom.cli.listing import list_overview

    monkeypatch.setattr("semcom_papers.experiments.claims.evidence.COMMITTED", tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(EXPERIMENTS, "names", lambda: ["letter-fig2b"])
    (tmp_path / "letter-fig2b-small.zip").touch()
    (tmp_path / "letter-fig2b-once-paper.zip").touch()
    lines = list_overview("experiments").splitlines()
    start = next(i for i, text in enumerate(lines) if text.startswith("letter-fig2b "))
    assert [text.strip() for text in lines[start + 1 : start + 4]] == [
        "FedCL letter, Fig. 2(b)",
        "smoke 9 runs, cost 0.0022 M; small 54 runs, cost 19 M; paper 180 runs, cost 216 M",  # 54 x 20 x 300 x 60
        "results come with semcom: small",
    ]


def test_the_cost_of_a_grid_is_that_of_its_runs() -> None:
    """Looked at once for all methods and seeds: here run by run."""
    from semcom.studies.cost import count_cost_in_samples

    for item in ("fedcosr-table2", "letter-fig3b", "repper-table1"):
        found = find_experiment(item)
        each = [count_cost_in_samples(semcom.resolve(of)) for of in found.grid("small")]
        outline = found.outline("small")
        assert outline.runs == len(each) and outline.samples == pytest.approx(sum(map(float, filter(None, each))))


def test_every_method_of_a_claim_is_an_arm_of_its_items() -> None:
    for _, claim in papers.read_paper_claims().iterrows():
        for item in claim["item"].split():
            arms = {variant.name: variant.method for variant in find_experiment(item).compared()}
            for name in {*claim["left"].split(), *claim["right"].split()} - {"averaged"}:
                assert name in arms or papers.OWN.get(name, (None,))[0] in arms.values(), (claim["id"], name)


UNKNOWN = {
    "repper-fig6-harder": "the paper has one number of new clients",
    "repper-table2-stable": "three of its methods are evaluated at their end alone",
}
"""Claim -> why the runs of its item cannot answer it."""


class Made(Stored):
    """A run with numbers that are drawn, and a learning curve of ten rounds."""

    def lines(self) -> list[dict[str, Any]]:
        ends = self.variant in ("repper", "fedavg_ft", "fedprox_ft")
        return [] if ends else [line(i, self.summary["views"]) for i in range(1, 11)]  # type: ignore[index]


def made(item: str, rng: np.random.Generator) -> Any:
    """The study of an item at scale `paper`, with the first seed of each run."""
    found, runs_ = find_experiment(item), []
    for variant, of in resolved(item, "paper"):
        view = {"accuracy": float(rng.random()), "accuracy_std": float(rng.random())}
        views = {"personal": view, "global": view, "prototype": view, "trained": view, "initialised": view}
        numbers = {"accuracy": view["accuracy"], "silhouette": view["accuracy"], "gradient": view["accuracy"]}
        summary = {
            "views": views,
            "rounds": 10,
            "traffic": {"up": {"floats": 1.0}},
            "clusters": {"silhouette": view["accuracy"], "knn_purity": view["accuracy"]},
            "groups": dict.fromkeys(("head", "middle", "tail"), numbers),
            **{"predictor_distance": view["accuracy"], "floats_formula": 2.0},
            **({"new_clients": {"global": view, "head": {**view, "clients": [0.5]}}} if of["new_clients"] else {}),
        }
        runs_.append(Made(str(len(runs_)), Path("nowhere"), "done", None, variant, of, None, summary))
    axes = [name for axis in found.axes("paper") for name in axis.fields if name != "seed"]
    return SimpleNamespace(stored=runs_, axes=axes)


def test_every_claim_gets_its_numbers_from_the_runs_of_its_item_at_paper() -> None:
    """A claim whose points, methods or numbers the grid does not have would be answered wrongly, or never."""
    rng, studies, unanswered = np.random.default_rng(0), {}, {}
    for _, claim in papers.read_paper_claims().iterrows():
        items = tuple(claim["item"].split())
        if items not in studies:
            studies[items] = Evidence({item: ("paper", made(item, rng)) for item in items})
        found = list_comparisons(Claim.read(claim), studies[items])
        if not found or not all(all(map(len, one.values)) for one in found):
            unanswered[claim["id"]] = len(found)
    assert set(unanswered) == set(UNKNOWN), unanswered
