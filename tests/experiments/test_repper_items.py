"""RepPer's items: the paper's grid, the numbers of frequent and rare classes, the gradients, and claims about them."""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import semcom
from semcom.config import DataConfig, TrainConfig
from semcom.engine.host.keys import keyed
from semcom.files import CONFIG, SWEEP
from semcom.runs.folder.summary import read_summary
from semcom.studies.analysis.curves import measure_curve_roughness
from semcom.studies.analysis.study import study
from semcom.studies.grid import set_fields
from semcom.studies.overrides import format_number, format_plain_value
from semcom.studies.registry import EXPERIMENTS, find_experiment
from semcom.studies.results.table import list_table_fields
from semcom_papers.experiments import papers
from semcom_papers.experiments.claims.claim import fits_point
from semcom_papers.experiments.claims.evidence import read_evidence_number
from semcom_papers.experiments.claims.scorecard import make_scorecard
from semcom_papers.experiments.measures import class_groups, gradients
from semcom_papers.experiments.repper import items as repper
from tests.studies.folders import around, config, line, scored, simple

pytestmark = pytest.mark.usefixtures("without_stored_results")
ITEMS = [name for name in EXPERIMENTS.names() if name.startswith("repper-")]
POINTS = papers.read_paper_points().query("paper == 'repper'")
TABLE = papers.read_paper_table("repper")


def spelled(value: Any) -> str:
    return format_number(float(value)) if isinstance(value, int | float) else str(value)


SETTINGS = {
    row: set(part["value"].map(spelled)) for row, part in TABLE.query("item == 'repper-settings'").groupby("row")
}
"""Field -> the values that the paper gives."""


@functools.cache
def runs(item: str, scale: str = "paper") -> list[tuple[str, dict[str, str]]]:
    """Variant and fields of an item's runs with the first seed, as claims spell them."""
    found = [run for run in find_experiment(item).runs(scale) if run.config.seed == 0]
    return [(r.variant, {k: spelled(v) for k, v in list_table_fields(semcom.resolve(r.config)).items()}) for r in found]


# The paper's grid ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("item", sorted(POINTS["item"].unique()))
def test_every_cell_of_a_table_has_its_runs(item: str) -> None:
    """One for each seed, of which there are three, and no run that is in no cell."""
    points, cells, found = POINTS[POINTS["item"] == item], TABLE[TABLE["item"] == item], runs(item)
    places = {p["column"]: papers.parse_point(p["at"]) for _, p in points.iterrows()}
    for _, cell in cells.iterrows():
        at = places[cell["column"]]
        there = [of for name, of in found if name == cell["row"] and all(of.get(f) in v for f, v in at.items())]
        assert len(there) == 1, (cell["row"], cell["column"])
    assert len(found) == len(cells)
    assert find_experiment(item).scales["paper"].vary["seed"] == (0, 1, 2)


@pytest.mark.parametrize("item", ITEMS)
def test_the_runs_have_the_settings_of_the_paper(item: str) -> None:
    for name, of in runs(item):
        if item == "repper-fig3":  # runs of one step that only divide
            break
        for row in ("clients", "train.rounds", "train.batch_size", "train.lr", "train.lr_decay", "train.weight_decay"):
            assert {of[row]} == SETTINGS[row], row
        for row in ("train.local_epochs", "train.participation", "partition.beta"):
            assert of[row] in SETTINGS[row], row
        assert (of["train.optimizer"], of["channel.kind"], of["train.lr_milestones"]) == ("adam", "none", "50,75")
        if name == "repper":
            assert {of["hyper.tau"]} == SETTINGS["hyper.tau"]
        if name in repper.TUNED and of["finish.kind"] in ("None", "linear"):
            assert (of["finish.epochs"], of["finish.optimizer"]) == ("10", "sgd")


def test_fig_6_and_what_is_in_no_table() -> None:
    found = runs("repper-fig6")
    assert {name for name, _ in found} == {"fedavg", "fedprox", "lg_fedavg", "fedrep", "repper"}
    (claim,) = papers.read_paper_claims().query("id == 'repper-fig6-best'").to_dict("records")
    asked = {f: v for f, v in papers.parse_point(claim["at"]).items() if f not in papers.ASPECTS}
    for _, of in found:
        assert of["train.participation"] == "1" and all(of[f] in values for f, values in asked.items())
    assert "small" not in find_experiment("repper-fig6").scales  # CIFAR-100 is not on hand
    assert {of["partition.beta"] for _, of in runs("repper-fig3")} == {"100", "1", "0.5"}
    for item in ("repper-fig1", "repper-fig4", "repper-fig5"):
        assert {of["partition.beta"] for _, of in runs(item)} == {"0.5"}
        kept = {"confusion"} if item == "repper-fig5" else {"confusion", "features"}  # what the figure draws
        assert {frozenset(run.config.keep) for run in find_experiment(item).runs("small")} == {frozenset(kept)}


@pytest.mark.parametrize("item", ITEMS)
def test_small_keeps_arms_clients_and_the_division(item: str) -> None:
    whole = find_experiment(item)
    assert len(whole.runs("smoke")) <= 8
    for scale in set(whole.scales) - {"paper"}:
        assert {r.variant for r in whole.runs(scale)} == {r.variant for r in whole.runs("paper")}
    if "small" in whole.scales:
        of, paper = ([dict(found) for _, found in runs(item, scale)] for scale in ("small", "paper"))
        for name in ("clients", "partition.kind", "partition.test", "train.optimizer", "train.lr"):
            assert {each[name] for each in of} == {each[name] for each in paper}, name
        assert {each["data.name"] for each in of} == {"cifar10", *["cifar100"] * (item == "repper-table2")}
        tuned = {each["finish.epochs"] for name, each in runs(item, "small") if name in repper.TUNED}
        assert tuned <= {"100"}  # of so few images 10 epochs train no head


@pytest.mark.parametrize(("item", "columns"), [("repper-table1", 9), ("repper-table2", 4), ("repper-table3", 3)])
def test_small_runs_stand_beside_the_tables_of_the_paper(item: str, columns: int) -> None:
    """The encoder and the epochs of `small` stand for the paper's in `Experiment.reduced`."""
    reduced = find_experiment(item).reduced["small"]
    stands = {
        name: {format_plain_value(k): format_plain_value(v) for k, v in of.items()} for name, of in reduced.items()
    }
    there = [{f: (stands.get(f, {}).get(v, v),) for f, v in of.items()} for _, of in runs(item, "small")]
    asked = [papers.parse_point(p["at"]) for _, p in POINTS[POINTS["item"] == item].iterrows()]
    assert sum(any(fits_point(place, at) for place in there) for at in asked) == columns


# Frequent and rare classes -------------------------------------------------------------------------------------------


def test_thirds_by_hand() -> None:
    counts = np.array([[5, 9, 1, 7, 3, 2, 0], [0, 4, 0, 0, 8, 0, 0], [0, 0, 0, 6, 0, 0, 0], [2, 2, 2, 2, 0, 0, 0]])
    assert class_groups.split_in_thirds(counts).tolist() == [
        [1, 0, 2, 0, 1, 2, -1],
        [-1, 2, -1, -1, 0, -1, -1],
        [-1, -1, -1, 1, -1, -1, -1],
        [0, 1, 1, 2, -1, -1, -1],
    ]
    assert np.bincount(class_groups.split_in_thirds(np.arange(10, 0, -1)[None])[0]).tolist() == [3, 4, 3]


def test_accuracy_of_thirds_by_hand() -> None:
    """Client 0: 3/4 of its frequent class, 1/2 and 0 of the others; client 1: all of its rare one; class 0 untested."""
    confusion = np.array([[[3, 1, 0], [1, 1, 0], [0, 2, 0]], [[0, 0, 0], [0, 0, 0], [0, 0, 5]]])
    counts = np.array([[9, 5, 1], [7, 0, 2]])
    assert class_groups.measure_accuracy_of_thirds(confusion, counts) == {
        "head": {"accuracy": 0.75},
        "middle": {"accuracy": 0.5},
        "tail": {"accuracy": 0.5},
    }


def test_silhouettes_are_taken_client_by_client() -> None:
    """On a line: a = 1 within the pairs of client 0, b = 10.5 and 9.5 between; client 1 has one class alone."""
    features = np.array([[0.0], [1.0], [10.0], [11.0], [0.5], [0.6]])
    labels, clients = np.array([0, 0, 1, 1, 1, 1]), np.array([0, 0, 0, 0, 1, 1])
    found = class_groups.measure_silhouettes(features, labels, clients)
    outer, inner = 1 - 1 / 10.5, 1 - 1 / 9.5
    np.testing.assert_allclose(found, [outer, inner, inner, outer, np.nan, np.nan])
    assert found[:4].mean() == pytest.approx(semcom.silhouette(features[:4], labels[:4]))
    third = np.array([0, 0, 2, 2, 1, 1])
    means = class_groups.average_thirds(found, third, "silhouette")
    assert means == {g: {"silhouette": pytest.approx((outer + inner) / 2)} for g in ("head", "tail")}


def test_an_image_that_is_alone_in_its_class_has_no_silhouette() -> None:
    """The others have theirs, to which it is a class that they may be near to: a = 1, b = 2 and 3."""
    features, labels = np.array([[0.0], [1.0], [3.0]]), np.array([0, 0, 1])
    found = class_groups.measure_silhouettes(features, labels, np.zeros(3, dtype=int))
    np.testing.assert_allclose(found, [1 - 1 / 3, 1 - 1 / 2, np.nan])


# Gradients -----------------------------------------------------------------------------------------------------------


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    r = torch.randn(7, 3, generator=keyed("batch"), dtype=torch.float64)
    return r, torch.tensor([0, 0, 0, 1, 1, 2, 0])


def test_the_contrastive_gradient_is_that_of_eq_5() -> None:
    """Autograd of l_j by r_j alone, with Eq. 5 as it is printed; sample 5 has no positives."""
    r, y = batch()
    found = gradients.measure_contrast_gradients(r, y, tau=0.3)
    for j in range(7):
        own = r[j].clone().requires_grad_()
        z = torch.nn.functional.normalize(r, dim=1)
        s = (z @ torch.nn.functional.normalize(own, dim=0) / 0.3).exp()
        others = [a for a in range(7) if a != j]
        positives = [p for p in others if y[p] == y[j]]
        if not positives:
            assert j == 5 and found[j].isnan()
            continue
        loss = -(s[positives] / s[others].sum()).mean().log()
        (wanted,) = torch.autograd.grad(loss, own)
        assert found[j].item() == pytest.approx(wanted.norm().item(), rel=1e-12)


def test_the_gradient_of_the_cross_entropy_in_closed_form() -> None:
    """Of a linear head: W^T (softmax(W r + b) - e_y)."""
    (r, y), head = batch(), torch.nn.Linear(3, 4).double()
    found = gradients.measure_cross_entropy_gradients(r, y, head, dict(head.named_parameters()))
    W, b = (t.detach() for t in head.parameters())
    wanted = ((r @ W.T + b).softmax(1) - torch.eye(4)[y].double()) @ W
    torch.testing.assert_close(found, wanted.norm(dim=1), rtol=1e-12, atol=0)


def test_the_sine_by_hand() -> None:
    """Two at 0 and 60 degrees, and one alone: Eqs. 16 and 17 for what is neither rare nor frequent."""
    r = torch.tensor([[2.0, 0.0], [0.5, 0.75**0.5], [0.0, 1.0]], dtype=torch.float64)
    found = gradients.compute_sine(r, torch.tensor([0, 0, 1]))
    assert found[:2].tolist() == pytest.approx([0.75**0.5] * 2) and found[2].isnan()


def test_a_run_leaves_its_gradients(tmp_path: Path, thin: None) -> None:
    run = next(run for run in find_experiment("repper-gradients").runs("smoke") if run.variant == "repper")
    of = set_fields(semcom.resolve(run.config), {"out": str(tmp_path / "run")})
    repper.train_and_pull(of)
    found = read_summary(tmp_path / "run")
    assert found is not None
    for state in ("groups", "groups_initial"):
        assert set(found[state]) == {"head", "middle", "tail"}
        for name in ("contrast_share", "cross_entropy_share", "image_share"):
            assert sum(numbers[name] for numbers in found[state].values()) == pytest.approx(1)
        for numbers in found[state].values():
            assert numbers["gradient"] == numbers["contrast"] > 0 and 0 <= numbers["sine"] <= 1
    shares = np.array([[numbers["contrast_share"], numbers["image_share"]] for numbers in found["groups"].values()])
    lengths = np.array([numbers["contrast"] for numbers in found["groups"].values()])
    weighed = shares[:, 1] * lengths  # two views of each image, and so no image without a positive
    np.testing.assert_allclose(shares[:, 0], weighed / weighed.sum(), rtol=1e-9)


def test_a_run_leaves_its_groups_and_arrays(tmp_path: Path, thin: None) -> None:
    run = next(run for run in find_experiment("repper-fig1").runs("smoke") if run.variant == "lg_fedavg")
    repper.train_and_group(set_fields(semcom.resolve(run.config), {"out": str(tmp_path / "run")}))
    (stored,) = study(tmp_path / "run").stored
    summary, kept = stored.summary, stored.arrays()
    assert summary is not None and len(stored.lines()) == 2
    matrix, counts = kept["confusion/personal"], kept["counts/train"]
    head = []
    for k in range(len(counts)):
        order = sorted((c for c in range(10) if counts[k, c]), key=lambda c: (-counts[k, c], c))
        of_head = [c for i, c in enumerate(order) if 3 * (i + 0.5) < len(order)]
        head += [matrix[k, c, c] / matrix[k, c].sum() for c in of_head if matrix[k, c].sum()]
    assert summary["groups"]["head"]["accuracy"] == pytest.approx(np.mean(head))
    each = class_groups.measure_silhouettes(kept["received/personal"], kept["samples/label"], kept["samples/client"])
    assert summary["clusters"]["silhouette"] == pytest.approx(np.nanmean(each))


# Claims about parts of a run, and about what stands for the paper's values --------------------------------------------


def stated(folder: Path, id: str) -> pd.Series:
    """A claim's row of the scorecard, from folders that name their variants as those of sweeps do."""
    for path in folder.iterdir():
        variants = {each.name: json.loads((each / CONFIG).read_text())["method"] for each in path.glob("*/")}
        (path / SWEEP).write_text(json.dumps({"variants": variants}))
    return make_scorecard(folder, "repper").set_index("id").loc[id]


def grouped(folder: Path, name: str, values: dict[str, dict[str, float]]) -> None:
    """Three seeds of a method with the numbers of its thirds, which differ a little."""
    for seed in range(3):
        of = config(name, seed, clients=20, data=DataConfig(name="cifar10"))
        groups = {g: {k: v * (1 + 0.001 * seed) for k, v in numbers.items()} for g, numbers in values.items()}
        simple(folder, of, around(0.5, 20), groups=groups, clusters={"silhouette": groups["head"].get("silhouette", 0)})


def test_gradients_of_thirds_decide_the_claim(tmp_path: Path) -> None:
    def pulls(head: float, middle: float, tail: float) -> dict[str, dict[str, float]]:
        values = {"head": head, "middle": middle, "tail": tail}
        return {group: {"gradient": value * (1 + i)} for i, (group, value) in enumerate(values.items())}

    grouped(tmp_path / "a" / "repper-gradients-small", "repper", pulls(1, 2, 3))
    one = stated(tmp_path / "a", "repper-gradients-tail")
    assert (one["state"], one["yes"], one["seeds"]) == ("reproduced", 2, 3)
    grouped(tmp_path / "b" / "repper-gradients-small", "repper", pulls(1, 2, 1))  # 1, 4, 3: the tail is below
    assert stated(tmp_path / "b", "repper-gradients-tail")["state"] == "not reproduced"


def test_claims_about_classes_and_whole_runs_do_not_mix(tmp_path: Path) -> None:
    folder = tmp_path / "repper-fig1-small"
    values = {"repper": (0.3, 0.3, 0.4), "fedavg": (0.2, 0.1, 0.1), "lg_fedavg": (0.1, 0, 0), "fedrep": (0.1, 0, 0)}
    for name, found in values.items():
        grouped(folder, name, {g: {"silhouette": v} for g, v in zip(class_groups.GROUPS, found, strict=True)})
    tail = stated(tmp_path, "repper-fig1-tail-silhouette")
    # The lead over FedAvg, the best of the others, is 0.3 in the tail, 0.2 in the middle and 0.1 in the head.
    assert (tail["state"], tail["yes"]) == ("reproduced", 2) and -0.11 < tail["low"] < tail["high"] < -0.09
    best = stated(tmp_path, "repper-fig1-best-silhouette")
    assert best["yes"] + best["no"] + best["open"] == 3  # a rival each: thirds are no points of this claim


def test_a_fall_goes_from_the_head_to_the_tail(tmp_path: Path) -> None:
    folder = tmp_path / "repper-fig5-small"
    falls = {"repper": 0.1, **dict.fromkeys(("fedavg", "fedavg_ft", "fedprox", "fedprox_ft", "fedrep"), 0.5)}
    for name, fall in {**falls, "lg_fedavg": 0.6}.items():
        for seed in range(3):
            of = config(name, seed, clients=20, data=DataConfig(name="cifar10"))
            own = {"head": 0.8, "middle": 0.8 - fall / 2 + 0.01 * seed, "tail": 0.8 - fall + 0.02 * seed}
            simple(folder, of, around(0.5, 20), groups={g: {"accuracy": a} for g, a in own.items()})
    tail = stated(tmp_path, "repper-fig5-tail-baselines")
    assert (tail["state"], tail["yes"]) == ("reproduced", 12)  # two steps of six methods
    stable = stated(tmp_path, "repper-fig5-tail-stable")
    assert stable["no"] == 0 and stable["yes"] + stable["open"] == 6
    assert stable["ours"] == pytest.approx(10 - 50)  # points, against the nearest rival


def test_each_new_client_is_a_point(tmp_path: Path) -> None:
    folder = tmp_path / "repper-fig6-paper"
    for name, lead in {"repper": 0.1, **dict.fromkeys(("fedavg", "fedprox", "lg_fedavg", "fedrep"), 0.0)}.items():
        for seed in range(3):
            of = dataclasses.replace(
                config(name, seed, clients=20, data=DataConfig(name="cifar100")),
                **{"new_clients": 20, "new_data": "cifar10", "new_steps": 100},
            )
            of = set_fields(of, {"partition.kind": "dirichlet", "partition.options": {"beta": 1.0}})
            each = [0.5 + lead + 0.001 * seed * (lead > 0) - 0.2 * (lead > 0) * (i == 3) for i in range(20)]
            simple(folder, semcom.resolve(of), around(0.5, 20), new_clients={"head": {"clients": each}})
    found = stated(tmp_path, "repper-fig6-best")
    assert (found["yes"], found["no"], found["state"]) == (19 * 4, 4, "not reproduced")
    assert found["ours"] == pytest.approx(-9.9)


def test_what_stands_for_the_papers_epochs_is_said(tmp_path: Path) -> None:
    """At small 5 and 10 local epochs are those of the claim about 10 and 20."""
    folder = tmp_path / "repper-table1-small"
    for epochs in (5, 10):
        for seed in range(3):
            train = TrainConfig(rounds=2, local_epochs=epochs, participation=0.4)
            of = config("repper", seed, clients=20, data=DataConfig(name="cifar10"))
            of = set_fields(of, {"partition.kind": "dirichlet", "partition.options": {"beta": 1.0}, "train": train})
            simple(folder, semcom.resolve(of), [0.5 + 0.02 * epochs + 0.001 * seed * epochs] * 20)
    found = stated(tmp_path, "repper-table1-rises-with-E")
    assert (found["yes"], found["state"]) == (1, "inconclusive")
    assert found["note"] == (
        "not run: partition.beta=0.5, partition.beta=100, train.participation=0.2, train.participation=0.8; "
        "at small train.local_epochs 5 stands for 10, 10 for 20"
    )
    assert find_experiment("repper-table1").reduced["small"]["train.local_epochs"] == dict(
        zip(repper.EPOCHS["small"], repper.EPOCHS["paper"], strict=True)
    )


def test_roughness_by_hand(tmp_path: Path) -> None:
    """From round 2 to 3 by 10 points up, to 4 by 4 down; from round 1 to 2 nothing was tested."""
    curve = {2: 0.4, 3: 0.5, 4: 0.46, 6: 0.9}
    lines = [line(r, {"personal": scored([curve[r]] * 2)} if r in curve else None) for r in range(1, 7)]
    assert measure_curve_roughness(lines, "personal") == pytest.approx(7)
    assert measure_curve_roughness(lines, "global") is None and measure_curve_roughness(lines[:2], "personal") is None
    simple(tmp_path, config("fedavg"), [0.5, 0.5])
    (run,) = study(tmp_path).stored
    assert read_evidence_number(run, None, "roughness") is None and read_evidence_number(run, None, "accuracy") == 50
