"""docs/methods.md, the docstrings that it shows, and docs/own-method.md agree with the code, and the example runs."""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import re
import runpy
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
import torch

from semcom.config import TrainConfig
from semcom.engine.world import World
from semcom.methods.base import Method
from semcom.methods.registry import METHODS
from semcom.models.registry import ENCODERS, build_encoder, check_features, own_features
from tests.methods.arms import X, as_toy, play, rounds, toy_world
from tests.pages import carry_out, read_blocks, read_page, read_table
from tests.worlds import world

PAGE, OWN, METRICS = (read_page(f"docs/{name}.md") for name in ("methods", "own-method", "metrics"))
ARMS = [name for name in METHODS.names() if not name.startswith("test-")]


def rows(page: str, heading: str) -> list[dict[str, str]]:
    """The first table below a heading: for each row its cells by column."""
    return read_table(page[page.index(f"\n{heading}\n") :])


def quoted(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


METHODS_TABLE = {quoted(row["method"])[0]: row for row in rows(PAGE, "## All methods")}
VISITS = rows(PAGE, "## Equal budgets")


def test_every_arm_has_its_row() -> None:
    assert list(METHODS_TABLE) == ARMS and len(METHODS_TABLE) == len(rows(PAGE, "## All methods"))
    assert {METHODS.get(arm).paper for arm in ARMS if METHODS_TABLE[arm]["paper"] != METHODS.get(arm).paper} == set()


@lru_cache
def played(arm: str) -> tuple[World, Method, Any, dict[str, float]]:
    """Three rounds of two epochs; what is counted and logged in the third, when every prototype is there."""
    w = world(arm, sizes=(7, 5, 3), train={"local_epochs": 2})
    method = METHODS.get(arm)(w.config.hyper)
    states = rounds(w, method, n=2)
    before = counts(w)
    w.session.tally.begin(3)
    state = method.round(states[-1], w)
    logged = {name: float(values.mean()) for name, values in w.session.tally.log.items()}
    return w, method, state, logged | {name: value - before[name] for name, value in counts(w).items()}


def counts(w: World) -> dict[str, float]:
    return {
        "sent up": w.air.totals["up"].floats,
        "sent down": w.air.totals["down"].floats,
        "visited": w.session.tally.visited,
    }


@pytest.mark.parametrize("way", ["sent up", "sent down"])
@pytest.mark.parametrize("arm", ARMS)
def test_traffic_is_as_in_the_table(arm: str, way: str) -> None:
    w, _, _, counted = played(arm)
    clients = [{name: of[k] for name, of in numbers(w, played("local")[2].model).items()} for k in range(3)]
    assert counted[way] == sum(evaluated(METHODS_TABLE[arm][way], client) for client in clients)


@pytest.mark.parametrize("arm", ARMS)
def test_visits_are_as_in_the_table(arm: str) -> None:
    w, _, _, counted = played(arm)
    (row,) = (row for row in VISITS if arm in quoted(row["methods"]))
    times = evaluated(row["training images that a client visits per round, in D_k"], {"E": 2})
    assert counted["visited"] == times * w.session.draws.federation.train.sizes.sum()


@pytest.mark.parametrize("arm", ARMS)
def test_views_are_as_in_the_table(arm: str) -> None:
    """Those of the end, the headline first; the ones that only the last stage has are marked."""
    w, method, state, _ = played(arm)
    w.session.tally.begin(4)
    views, last = method.views(state, w), method.finish(state, w)
    cell = METHODS_TABLE[arm]["views (first: headline)"]
    assert quoted(cell) == list(last or views)
    assert set(re.findall(r"`(\w+)` \(end\)", cell)) == set(last or {}) - set(views)


@pytest.mark.parametrize("arm", ARMS)
def test_what_is_logged_is_explained(arm: str) -> None:
    """In docs/metrics.md: by name, or with all of its phase, for this arm unless for all."""
    table = {name: row["what it is"] for row in rows(METRICS, "## metrics.jsonl") for name in quoted(row["field"])}
    for name in played(arm)[3].keys() - {"sent up", "sent down", "visited"}:
        words = table.get(name) or table[f"{name.partition('/')[0]}/..."]
        assert not words.startswith("(") or arm in quoted(words), name


def numbers(w: World, models: Any) -> dict[str, list[float]]:
    """What the formulas are made of, for each of three clients: `s` for two epochs.

    `models` have encoder and head alone; BatchNorm is the encoder's layer 1, with as many statistics as parameters.
    """
    theta, phi = (models.numbers(part) for part in ("encoder.", "head."))
    inside = models.numbers([name for name in models.parameters() if name.startswith("encoder.1.")])
    owned = w.session.draws.federation.owned
    return {
        "n_theta": list(theta),
        "n_phi": list(phi),
        "n_w": list(theta + phi),
        "n_p": list(models.numbers(models.parameters())),
        "n_l": list(theta + phi - 2 * inside),
        "d": [w.config.model.features] * 3,
        "c_k": list(owned.sum(1)),
        "c": [owned.any(0).sum()] * 3,
        "s": list(2 * w.session.draws.federation.train.sizes),
    }


def evaluated(formula: str, values: dict[str, float]) -> float:
    """`n_w + 2 d c_k` with values for its names."""
    terms = [[values[t] if t in values else float(t) for t in term.split()] for term in formula.split(" + ")]
    return sum(map(math.prod, terms))


@pytest.mark.parametrize("arm", ARMS)
def test_methods_without_a_preset_are_named(arm: str) -> None:
    without = PAGE[PAGE.index("\n### Paper presets") : PAGE.index("have no preset")]
    assert set(METHODS.get(arm).preset) <= set(vars(TrainConfig()))
    assert (arm in quoted(without)) == (not METHODS.get(arm).preset)


def shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def vocabulary(arm: str) -> set[str]:
    """An arm's name, its hyperparameters and the words that they may be."""
    types = get_type_hints(METHODS.get(arm).Hyper)
    return {arm, *types, *(word for kind in types.values() for word in get_args(kind))}


@pytest.mark.parametrize("arm", ARMS)
def test_departures_name_what_there_is(arm: str) -> None:
    """Hyperparameters, views, encoders, arms and fields of a schedule; values that are named are the arm's own."""
    method = METHODS.get(arm)
    paragraphs = (inspect.getdoc(inspect.getmodule(method)) or "").split("\n\n")
    cells = " ".join(" ".join(p.split()) for p in paragraphs if p.startswith(("Choices where", "Departures:")))
    own = {f.name: f.default for f in dataclasses.fields(method.Hyper)}
    known = vocabulary(arm) | {*ARMS, *ENCODERS.names(), *quoted(METHODS_TABLE[arm]["views (first: headline)"])}
    flags = {f"train.{name}" for name in vars(TrainConfig())} | {"--train.optimizer sgd"}
    assert {*quoted(cells)} <= known | {*method.preset} | flags
    named = re.findall(r"`(\w+)` (?:`(\w+)`|([\d.]+(?: \d+)*))", cells)
    values = {name: shown(value) for name, value in {**own, **method.preset}.items()}
    assert {name: word or number for name, word, number in named} == {name: values[name] for name, *_ in named}


def test_every_encoder_has_its_size() -> None:
    """With three channels, and 64 features or its own."""
    table = {tuple(quoted(row["encoder"])): row["parameters"] for row in rows(PAGE, "## Networks")}
    assert {name for names in table for name in names} == {n for n in ENCODERS.names() if not n.startswith("test-")}
    for names, sizes in table.items():
        for i, name in enumerate(names):
            with torch.device("meta"):
                encoder = build_encoder(name, (3, 32, 32), own_features(ENCODERS.get(name)) or 64)
            size = sum(p.numel() for p in encoder.parameters())
            assert sizes.split("; ")[min(i, sizes.count("; "))].startswith(f"{size:,}"), name


def test_networks_of_the_papers_are_accepted() -> None:
    below = PAGE[PAGE.index("What the papers train") :]
    for row in rows(f"\n{below}", below.splitlines()[0]):
        for name, features in zip(quoted(row["encoder"]), row["features"].split(", "), strict=True):
            check_features([name], int(features))


def test_every_keyword_of_fit_is_explained() -> None:
    table = {quoted(row["keyword"])[0]: row for row in rows(OWN, "## World.fit: local training")}
    assert list(table) == [n for n, p in inspect.signature(World.fit).parameters.items() if p.kind is p.KEYWORD_ONLY]
    for keyword, row in table.items():
        for arm in quoted(row["shown by"]):
            source = inspect.getsource(inspect.getmodule(METHODS.get(arm)))
            assert re.search(rf"\b{keyword}=", source), f"{arm} does not use {keyword}"


@pytest.mark.parametrize("heading", ["## What a method is", "## Around it"])
def test_who_shows_it_is_an_arm(heading: str) -> None:
    for row in rows(OWN, heading):
        assert {*quoted(row.get("shown by", row.get("for example", "")))} <= set(ARMS)


@pytest.fixture
def examples(here: Path, own_names: None) -> dict[str, Path]:
    """The page's examples as files, by name; what they register is forgotten afterwards."""
    files = [block.write(here) for block in read_blocks(OWN) if block.language == "python"]
    return {path.stem: path for path in files}


@pytest.mark.usefixtures("thin", "examples")
def test_the_examples_run_as_shown() -> None:
    printed = [carry_out(block.text) for block in read_blocks(OWN) if block.language == "bash"]
    assert "weights of the features" in "".join(printed)
    for run in ("masked", "mean"):
        assert json.loads(Path(f"runs/{run}/summary.json").read_text(encoding="utf-8"))["accuracy"] > 0.1


def test_the_mean_feature_is_that_of_all_images(examples: dict[str, Path]) -> None:
    """p_k times a client's mean is the mean over all images; round 2 pulls to it, and d numbers cross each way.

    Round 1 pulls to 0, which features of unit power do not follow.
    """
    runpy.run_path(str(examples["common_mean"]))
    w = toy_world("common-mean")
    for state in rounds(w, n=2)[1:]:
        features = np.concatenate([as_toy(state.model, k).features(X[k]) for k in (0, 1)])
        np.testing.assert_allclose(state.mean, features.mean(0), atol=1e-12)
    local = rounds(toy_world("local"), n=2)[-1]
    pulled, alone = (np.stack([as_toy(of.model, k).W for k in (0, 1)]) for of in (state, local))
    assert np.abs(pulled - alone).max() > 1e-6
    assert w.air.totals["up"].floats == w.air.totals["down"].floats == 2 * 2 * features.shape[1]


def test_masks_are_the_clients_own(examples: dict[str, Path]) -> None:
    """The rest is FedAvg: after a step, the first that meets other masks, exactly."""
    runpy.run_path(str(examples["masked"]))
    step: dict[str, Any] = {"train": {"optimizer": "sgd", "lr": 0.05, "local_steps": 1}}
    own, average = (play(method, 1, **step).model.named() for method in ("masked", "fedavg"))
    for name, t in average.items():
        assert torch.equal(own[name.replace("head.", "head.1.")], t)
    w = world("masked", **step)
    model = rounds(w, n=2)[-1].model
    masks = model.named()["head.0.weight"]
    assert masks.shape == (3, 4) and not torch.equal(masks[0], masks[1]) and bool((masks != 1).any())
    assert w.air.totals["up"].floats == w.air.totals["down"].floats == 2 * (model.numbers("") - 4).sum()
