"""What is measured along a run, against closed forms; the theorems on numbers worked by hand; the experiment itself."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import semcom
from semcom import run
from semcom.config import ConfigError, DataConfig, ModelConfig, Resolved
from semcom.engine.train.context import Context, Given
from semcom.engine.train.descent import Optimizer
from semcom.engine.train.forward import Batch, StackedModel
from semcom.engine.train.phase import Phase
from semcom.engine.world import World
from semcom.methods.registry import METHODS
from semcom.plots import render
from semcom.plots.base import Plot
from semcom.plots.kinds import settle_kind
from semcom.studies.sweep import sweep
from semcom_papers.experiments import bounds
from semcom_papers.experiments.measures.bounds_report import report_bounds
from semcom_papers.experiments.measures.bounds_round import find_theorem, measure_round
from semcom_papers.experiments.measures.landscape import (
    Call,
    Landscape,
    find_next_training,
    flatten_leaves,
    list_steps,
    list_trainings,
    measure_bends,
    measure_slopes,
    step_aside,
    weight_distance,
)
from semcom_papers.experiments.measures.theorems import (
    FedCLBound,
    FedCoSRBound,
    bound_information,
    bound_local_steps,
    compute_guarantee,
    label_entropy,
)
from semcom_papers.figures.bounds import BOUNDS, list_bound_ticks
from tests import worlds
from tests.worlds import request

PIXELS = [[0, 0], [255, 0], [255, 255], [255, 0]]
"""Four images: (-1, -1), (1, -1), (1, 1), (1, -1). Their mean is (1/2, -1/2)."""
IMAGES = np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [1.0, -1.0]])
STEEP = 3.0
WEIGHT = "encoder.1.weight"


def bowl(model: StackedModel, batch: Batch, context: Context) -> Tensor:
    """3/2 times the mean over images x of the sum over both rows w of ||w - x||^2: smoothness 3, gradient 3 (w - x)."""
    rows = model.params[WEIGHT].unsqueeze(1) - batch.x.flatten(2).unsqueeze(2)
    return STEEP / 2 * batch.mean(rows.square().sum((-1, -2)))


def bowls(batch_size: int) -> tuple[World, Call]:
    """One client with the four images, to be trained on `bowl` at a rate of 0.1."""
    world = worlds.toy([PIXELS], [[0, 1, 0, 1]], train={"batch_size": batch_size})
    return world, Call(
        world.population(), bowl, Given(), Phase(), Optimizer("sgd", 0.1), {"train": "encoder.", "project": None}
    )


# -- what is measured ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [1, 3, 50])
def test_loss_and_gradient_are_those_of_all_images(batch_size: int) -> None:
    """Also where the last batch is smaller: (4, 2) and (0, 1) are 3.5^2 + 2.5^2 and 0.5^2 + 1.5^2 from the mean."""
    world, call = bowls(batch_size)
    weights = torch.tensor([[[4.0, 2.0], [0.0, 1.0]]], dtype=torch.float64)
    point = Landscape(world, call).at({WEIGHT: weights})
    gradient = STEEP * (weights.numpy()[0] - [0.5, -0.5])
    assert point.gradient.tolist() == pytest.approx(gradient.flatten().tolist(), abs=1e-12)
    spread = 1.75 - 0.25  # of both coordinates of an image: mean square less square of the mean, 1 + 1 - 1/4 - 1/4
    expected = STEEP / 2 * (3.5**2 + 2.5**2 + 0.5**2 + 1.5**2 + 2 * spread)
    assert point.loss == pytest.approx(expected)
    assert math.isclose(spread, float(np.square(IMAGES - IMAGES.mean(0)).sum(1).mean()))


def test_steps_are_those_of_the_training() -> None:
    """Each takes 3 (w - x) of one image, and the next weights are where it leads."""
    world, call = bowls(1)
    taken, fitted = list_steps(world, call)
    assert len(taken) == 4
    seen = [step.leaves[WEIGHT][0].numpy() - step.gradient.view(2, 2).numpy() / STEEP for step in taken]
    assert all(np.allclose(rows[0], rows[1]) for rows in seen)
    assert np.allclose(sorted(rows[0].round(9).tolist() for rows in seen), sorted(IMAGES.tolist()))
    after = [*(step.leaves[WEIGHT] for step in taken[1:]), fitted.models.named()[WEIGHT]]
    for step, weights in zip(taken, after, strict=True):
        assert torch.allclose(weights.flatten(), flatten_leaves(step.leaves) - 0.1 * step.gradient, atol=1e-12)
    plain = world.fit(call.models, bowl, train="encoder.", phase=call.phase, optimizer=call.optimizer)
    assert torch.equal(plain.models.named()[WEIGHT], after[-1])


def test_smoothness_of_a_bowl_is_its_steepness_in_every_way() -> None:
    world, call = bowls(3)
    landscape, start = Landscape(world, call), {WEIGHT: call.models.named()[WEIGHT]}
    weights = [start, step_aside(start, 0.5, "one"), step_aside(start, 2.0, "two")]
    assert weight_distance(weights[0], weights[1]) == pytest.approx(0.5)
    assert not torch.allclose(weights[1][WEIGHT] - start[WEIGHT], (weights[2][WEIGHT] - start[WEIGHT]) / 4)
    points = [landscape.at(w) for w in weights]
    assert measure_slopes(points, weights) == pytest.approx([STEEP, STEEP])
    assert measure_bends(points, weights) == pytest.approx([STEEP, STEEP])
    assert measure_slopes(points[:1] * 2, weights[:1] * 2) == []  # no way, no slope


@pytest.mark.parametrize("method", ["fedcl", "fedcosr"])
def test_gradients_are_those_of_one_function_of_the_weights(method: str) -> None:
    """By differences, over a noisy channel in both directions, the same in all rounds; training has its noise."""
    world = worlds.world(method, sizes=(7, 5), classes=3, channel={"snr_db": 5.0}, train={"optimizer": "sgd"})
    chosen = METHODS.get(method)(world.config.hyper)
    state = chosen.round(chosen.setup(world), world)  # then there are centroids
    world.session.tally.begin(2)
    call = list_trainings(chosen, state, world)[0].of(1)
    taken, _ = list_steps(world, call)
    leaves, landscape = taken[0].leaves, Landscape(world, call)
    point, side = landscape.at(leaves), step_aside(leaves, 1e-5, "side")
    back = {name: 2 * t - side[name] for name, t in leaves.items()}
    rise = landscape.at(side).loss - landscape.at(back).loss
    assert rise == pytest.approx(float(point.gradient @ (flatten_leaves(side) - flatten_leaves(back))), rel=1e-5)
    world.session.tally.begin(3)
    again = Landscape(world, call).at(leaves)
    assert again.loss == point.loss and torch.equal(again.gradient, point.gradient)
    assert (taken[0].gradient - point.gradient).norm() > 0.01 * point.gradient.norm()


def test_the_next_training_is_that_of_the_next_round() -> None:
    world = worlds.world("fedcl", train={"optimizer": "sgd"}, hyper={"lam": 0.1})
    chosen = METHODS.get("fedcl")(world.config.hyper)
    state = chosen.round(chosen.setup(world), world)
    call = find_next_training(chosen, state, world)
    assert world.round == 1
    assert torch.equal(call.given.common["centroids"], state.centroids.values)
    assert worlds.gap(call.models, state.model.select(call.models.ids)) == 0


# -- theorems --------------------------------------------------------------------------------------------------------


def test_local_steps_by_hand() -> None:
    """eta 0.1, L1 4: 0.1 - 4 * 0.01 / 2 = 0.08; 3 steps of variance 5: 3 * 4 * 0.01 * 5 / 2 = 0.3."""
    assert bound_local_steps(0.1, 4.0, 10.0, 3.0, 5.0) == pytest.approx(-0.8 + 0.3)
    assert float(compute_guarantee(0.1, 4.0, 10.0, 0.2)) == pytest.approx(0.25)
    assert float(compute_guarantee(0.5, 4.0, 10.0, 0.2)) == np.inf  # 0.5 - 4 * 0.25 / 2 = 0


def test_fedcl_by_hand() -> None:
    """lambda 0.5, E' 2, SCG's eta 0.1, L2 3, G 7: 0.5 * 3 * 0.1 * 2 * 7 = 2.1."""
    found = {"smoothness": 4.0, "squares": 10.0, "variance": 5.0}
    found |= {"scg_rate": 0.1, "scg_lipschitz": 3.0, "scg_gradient": 7.0}
    parts = FedCLBound(0.5, 2).parts(0.1, 3.0, found)
    assert {name: float(v) for name, v in parts.items()} == pytest.approx({"local": -0.5, "mixing": 0, "targets": 2.1})


def test_the_repaired_lemma_is_reached_by_a_centroid_that_moves_away() -> None:
    """On a line with the feature at 0: from 3 to 5 the squared distance grows by 16, all that is allowed."""
    assert FedCLBound(0.5, 1).repaired(2.0, 3.0) == pytest.approx(0.5 * (25 - 9))


def test_fedcosr_by_hand() -> None:
    """L1 4, epsilon 0.5: 4 * (0.25 + 0.5) / 2 = 1.5; alpha 2 at tau 0.1: 40."""
    found = {"smoothness": 4.0, "squares": 10.0, "variance": 5.0, "epsilon": 0.5}
    parts = FedCoSRBound(2.0, 0.1).parts(0.1, 3.0, found)
    expected = {"local": -0.5, "mixing": 1.5, "targets": 40.0}
    assert {name: float(v) for name, v in parts.items()} == pytest.approx(expected)


def test_corollary_1_is_a_root() -> None:
    """S 10, L1 4, R sigma^2 15, so S^2 = 100 against (40 + 60) (3 + 4 alpha / tau): none from alpha / tau > -1/2 on."""
    found = {"smoothness": 4.0, "squares": 10.0, "variance": 5.0, "epsilon": 0.5}
    assert not FedCoSRBound(0.0, 0.1).has_rate(3.0, found)
    assert FedCoSRBound(0.0, 0.1).has_rate(3.0, {**found, "epsilon": 0.0})
    flatter = {**found, "epsilon": 0.0, "variance": 0.0}  # 100 against 40 * 4 alpha / tau
    assert FedCoSRBound(0.62, 1.0).has_rate(3.0, flatter) and not FedCoSRBound(0.63, 1.0).has_rate(3.0, flatter)


def test_information_by_hand() -> None:
    assert label_entropy(np.array([5, 0, 5, 10])) == pytest.approx(0.5 * math.log(4) + 0.5 * math.log(2))
    assert bound_information(10.0, 0.5) == pytest.approx(math.log(10) - 0.5)


def observed(**other: Any) -> dict[str, Any]:
    """What two clients of FedCL gave in a round: at a rate of 0.1 with smoothness 4 each, as above."""
    lists = {"rate": 0.1, "steps": 3.0, "loss": 5.0, "local": -0.6, "mixing": 0.05, "targets": 0.1, "squares": 10.0}
    lists |= {"last_square": 1.0, "variance": 5.0, "smoothness_path": 2.0, "smoothness_bend": 4.0}
    lists |= {"smoothness_aside": 1.0, "mixed": 0.2, "shift": 2.0, "spread": 3.0}
    single = {"scg_rate": 0.1, "scg_gradient": 7.0, "scg_lipschitz": 3.0, "scg_loss": -1.0, "centroid_norm": 2.0}
    return {**{name: [value, value] for name, value in lists.items()}, **single, **other}


def test_a_report_by_hand() -> None:
    """Then one client has twice the variance, and -0.25 instead of -0.6; and the SCG's gradient is twice as long."""
    second = observed(variance=[5.0, 10.0], local=[-0.6, -0.25], scg_gradient=14.0, scg_loss=None)
    lines = [{"round": 1, "observed": observed()}, {"round": 2}, {"round": 3, "observed": second}]
    found = report_bounds(FedCLBound(0.01, 2), lines)
    json.dumps(found, allow_nan=False)
    assert found["rounds"] == [1, 3] and found["measured"]["scg_loss"] == [-1.0, None]
    assert found["measured"]["total"] == pytest.approx([-0.45, -0.275])
    own, whole = found["bound"]["own"], found["bound"]["run"]
    assert own["local"] == pytest.approx([-0.5, -0.35]) and whole["local"] == pytest.approx([-0.2, -0.2])
    assert own["targets"] == pytest.approx([0.042, 0.084]) and whole["targets"] == pytest.approx([0.084, 0.084])
    assert own["total"] == pytest.approx([-0.458, -0.266]) and own["mixing"] == [0, 0]
    assert found["violated"]["own"] == {"local": [0, 0], "mixing": [1, 1], "targets": [1, 1], "total": [1, 0.5]}
    assert found["excess"]["local"] == pytest.approx([-0.1, -0.05])
    conditions = found["conditions"]
    assert conditions["rate"] == pytest.approx([0.2, 0.2]) and conditions["growth"] == pytest.approx([1, 2])
    assert conditions["guarantee"] == pytest.approx([0.342 / 0.8, 0.684 / 0.8])
    assert conditions["lambda"] == pytest.approx([0.042, 0.084])
    assert conditions["lemma"] == pytest.approx([0.1 / 0.042, 0.1 / 0.084])
    assert conditions["repaired"] == pytest.approx([0.625, 0.625])
    assert found["constants"]["variance"] == 10 and found["constants"]["smoothness"] == 4


def test_the_sum_of_fedcosr_runs_one_gradient_further() -> None:
    more = {"epsilon": [0.5, 0.5], "contrast": [0.5, 0.5], "candidates": [10.0, 10.0], "entropy": [1.0, 2.0]}
    found = report_bounds(FedCoSRBound(2.0, 0.1), [{"round": 2, "observed": observed(**more, information=[0.5, 0.5])}])
    assert found["bound"]["own"]["local"] == pytest.approx([-0.08 * 11 + 0.3])
    assert found["conditions"]["gradient"] == pytest.approx([0.5])
    assert found["conditions"]["information"] == pytest.approx([math.log(10) - 0.5])
    assert found["conditions"]["has_rate"] == [0] and found["violated"]["own"]["total"] == [0]


# -- runs ------------------------------------------------------------------------------------------------------------


def asked(method: str, out: Path | None = None, train: Any = (), **other: Any) -> Resolved:
    """A short run by SGD on images of four classes, over a noisy channel; clients of unequal sizes."""
    train = {"rounds": 3, "optimizer": "sgd", "lr": 0.05, "eval_every": 2, "checkpoint_every": 1, **dict(train)}
    return request(method, train=train, clients=3, out=None if out is None else str(out), **other)


SPENT = ("begun", "seconds", "samples_per_second")


@pytest.mark.parametrize("method", ["fedcl", "fedcosr"])
def test_measuring_changes_nothing(method: str) -> None:
    """Weights, metrics and counters, bit for bit; and each round begins at the loss where the one before ended."""
    plain, seen = run(asked(method)), run(asked(method), observe=measure_round)
    for name, view in plain.views.items():
        assert worlds.gap(view.population, seen.views[name].population) == 0
    for one, other in zip(plain.metrics, seen.metrics, strict=True):
        assert {**one, "seconds": 0} == {**{k: v for k, v in other.items() if k != "observed"}, "seconds": 0}
    for summary in (plain.summary, seen.summary):
        assert all(name in summary for name in SPENT)
    rest = [{k: v for k, v in result.summary.items() if k not in SPENT} for result in (plain, seen)]
    assert rest[0] == rest[1]
    rounds = [line["observed"] for line in seen.metrics if line["observed"]]
    assert len(rounds) == {"fedcl": 3, "fedcosr": 2}[method]
    for before, after in zip(rounds[:-1], rounds[1:], strict=True):
        ends = np.sum([before[name] for name in ("loss", "local", "mixing", "targets")], axis=0)
        assert after["loss"] == pytest.approx(ends.tolist(), abs=1e-9)
        assert min(np.abs(before["mixing"])) > 1e-6 and min(np.abs(before["targets"])) > 1e-6
    found = report_bounds(find_theorem(asked(method)), seen.metrics)
    json.dumps(found, allow_nan=False)
    assert found["violated"]["own"]["mixing"][0] in ((1 / 3, 2 / 3, 1) if method == "fedcl" else (0,))


def test_what_was_observed_survives_an_interruption(tmp_path: Path) -> None:
    def stop(line: dict[str, Any]) -> None:
        if line["round"] == 1:
            raise KeyboardInterrupt

    config = asked("fedcl", tmp_path, {"rounds": 2})
    with pytest.raises(KeyboardInterrupt):
        run(config, on_round=stop, observe=measure_round)
    again, whole = (
        run(config, observe=measure_round),
        run(asked("fedcl", None, {"rounds": 2}), observe=measure_round),
    )
    assert [line["observed"] for line in again.metrics] == [line["observed"] for line in whole.metrics]


def test_an_observer_is_refused_before_any_work(tmp_path: Path) -> None:
    nothing: Any = 3
    with pytest.raises(ConfigError, match=r"^observe: 3 cannot be called"):
        run(asked("fedcl", tmp_path / "a"), observe=nothing)
    with pytest.raises(ConfigError, match=r"^processes: a run of several cannot be observed"):
        two = asked("fedcl", tmp_path / "a", processes=2, plugins=("tests.worlds",))
        run(two, observe=measure_round)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (lambda: request("fedcl", train={"optimizer": "adam"}), "train.optimizer: the theorems are about plain SGD"),
        (lambda: request("fedavg", train={"optimizer": "sgd"}), "method: fedavg, as it is set, has no theorem"),
        (lambda: asked("fedcl", hyper={"centroids": "mean"}), "method: fedcl, as it is set, has no theorem"),
        (lambda: asked("fedcosr", train={"participation": 0.5}), "train.participation: a round's bound"),
    ],
)
def test_other_runs_have_no_theorem(config: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}"):
        find_theorem(config())


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (-2.0, 50.0, [-10, -1, -0.1, 0, 0.1, 1, 10, 100]),
        (-0.01, 0.05, [-0.1, 0, 0.1]),
        (-0.5, 3e5, [-0.1, 0, 0.1, 10, 1e3, 1e5]),
    ],
)
def test_an_ordinate_has_a_tick_for_each_decade_or_for_every_second(
    low: float, high: float, expected: list[float]
) -> None:
    assert sorted(list_bound_ticks(low, high)) == pytest.approx(expected)


def test_the_sweep_stores_both_sides_and_the_figure_shows_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = bounds.CONVERGENCE_BOUND
    smoke = chosen.scales["smoke"]
    split, model = worlds.divided(ways=2, shots=6), ModelConfig(encoder="test-patches", features=4)
    base = dataclasses.replace(
        smoke.base, data=DataConfig(name="test-bars"), partition=split, model=model, clients=2, device="cpu"
    )
    tiny = dataclasses.replace(chosen, scales={"smoke": dataclasses.replace(smoke, base=base)})
    monkeypatch.setattr(bounds, "CONVERGENCE_BOUND", tiny)
    sweep.sweep("convergence-bound", scale="smoke", out=tmp_path)
    study = semcom.study(tmp_path)
    part, plot = settle_kind(study, Plot(kind="bounds"))
    cells = BOUNDS.numbers(part, plot)
    assert list(dict.fromkeys(cells["variant"])) == ["fedcl", "fedcosr"] and cells["line"].nunique() == 3
    for stored in study.stored:
        found = (stored.summary or {})["bounds"]
        shown = cells[(cells["variant"] == stored.variant) & (cells["line"] == "Measured")]
        assert shown["mean"].tolist() == found["measured"]["total"] and shown["round"].tolist() == found["rounds"]
    page = render("convergence-bound", results=tmp_path, out=tmp_path)
    assert page[1].stat().st_size > 1000 and "largest of all rounds and clients" in page[3].read_text()
