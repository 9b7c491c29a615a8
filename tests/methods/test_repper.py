"""RepPer: both stages by hand, the traffic, classifiers, and the clients' private state."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from semcom.engine.world import World
from semcom.methods import repper
from semcom.methods.parts.augment import UNIFORMS, augment
from semcom.methods.repper import RepPer
from tests.methods.arms import X, Y, as_toy, assert_toys, ended, rounds, toy_world, toys
from tests.methods.by_hand import Toy, mean
from tests.methods.parts.test_contrast import gradient
from tests.worlds import client, gap, random_federation, world

TAU = 0.4


def body_step(model: Toy, views: np.ndarray, y: np.ndarray) -> Toy:
    """One SGD step of Eq. 5 on the body: with no head, only the pull on the features is left of a step."""
    bare = Toy(model.W, 0 * model.V, 0 * model.b)
    step = bare.slope(views, y, gradient(model.features(views), y, TAU))
    return Toy(model.W - 0.5 * step.W, model.V, model.b)


def test_a_round_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two epochs of full batches. The test records the drawn views and computes the rest in NumPy."""
    seen: list[np.ndarray] = []

    def note(*args: Any) -> torch.Tensor:
        views = augment(*args)
        seen.append(views.flatten(-3).numpy())
        return views

    monkeypatch.setattr(repper, "augment", note)
    w = toy_world("repper", chunk=1, hyper={"tau": TAU}, train={"local_epochs": 2})
    before, after = rounds(w)
    trained = []
    for k in (0, 1):
        model = as_toy(before.model, k)
        for epoch in (0, 1):
            one, other = (seen[4 * k + 2 * epoch + i][0] for i in (0, 1))
            assert not np.allclose(one, other)
            x, y = np.concatenate([one, other]), order(w, k, epoch)
            model = body_step(model, x, np.concatenate([y, y]))
        trained.append(model)
    assert len(seen) == 8 and all(np.abs(views).max() <= 1 for views in seen)
    want = mean(trained)
    assert_toys(after.model, [want.under(model) for model in trained])


def order(w: World, k: int, epoch: int) -> np.ndarray:
    """Labels of a client in the order of an epoch's visit."""
    noted: list[np.ndarray] = []

    def objective(model: Any, batch: Any, context: Any) -> torch.Tensor:
        noted.append(batch.y[0].numpy())
        return model(batch)[1].square().sum((1, 2))

    w.fit(w.population().select(np.array([k])), objective, train=("head.",))
    return noted[epoch]


def test_whole_images_in_a_row_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without augmentation both views of an image are equal. Three rounds of full batches."""
    monkeypatch.setattr(repper, "augment", lambda images, uniforms, smallest: images)
    start, *_, after = rounds(toy_world("repper", hyper={"tau": TAU}), n=3)
    model, heads = as_toy(start.model, 0), toys(start.model)
    for _ in range(3):
        steps = [body_step(model, np.tile(X[k], (2, 1)), np.tile(Y[k], 2)) for k in (0, 1)]
        model = mean(steps)
    assert_toys(after.model, [model.under(head) for head in heads])


def test_views_have_uniforms_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eleven numbers per view, all different, from one sample to the next, and from epoch to epoch."""
    seen: list[torch.Tensor] = []

    def note(images: torch.Tensor, uniforms: torch.Tensor, smallest: float) -> torch.Tensor:
        assert smallest == 0.3 and uniforms.shape == (*images.shape[:2], UNIFORMS)
        seen.append(uniforms)
        return images

    monkeypatch.setattr(repper, "augment", note)
    rounds(world("repper", sizes=(4, 4), chunk=2, hyper={"crop": 0.3}, train={"local_epochs": 2}), n=2)
    drawn = torch.cat([u.flatten() for u in seen])
    assert len(seen) == 2 * 2 * 2 * 2 and len(drawn.unique()) == len(drawn) == 16 * 2 * 2 * UNIFORMS


def test_the_second_view_has_noise_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repper, "augment", lambda images, uniforms, smallest: images)
    heard: list[torch.Tensor] = []
    loss = repper.supervised_contrastive

    def note(features: torch.Tensor, *rest: Any) -> torch.Tensor:
        heard.append(features.detach())
        return loss(features, *rest)

    monkeypatch.setattr(repper, "supervised_contrastive", note)
    for channel, differ in (({"kind": "awgn"}, True), ({"kind": "ideal"}, False)):
        heard.clear()
        rounds(world("repper", chunk=3, channel=channel))
        one, other = heard[0].chunk(2, 1)
        assert one.shape == other.shape == (3, 2, 4) and torch.equal(one, other) != differ


def test_heads_are_neither_trained_nor_sent_in_rounds() -> None:
    w = world("repper", model={"init": "client"})
    before, *_, after = rounds(w, n=2)
    for k in range(3):
        one, other = client(before.model, k), client(after.model, k)
        assert all(torch.equal(one[name], other[name]) == name.startswith("head.") for name in one)
    numbers = int(after.model.numbers("encoder.")[0])
    assert w.air.totals["up"].floats == w.air.totals["down"].floats == 2 * 3 * numbers
    assert RepPer(w.config.hyper).views(after, w) == {}


def test_the_head_by_hand() -> None:
    """Three full-batch steps of CE on the frozen body, at the head's own rate, whatever the run's optimiser."""
    train = {"optimizer": "adam", "lr": 1e-3, "weight_decay": 0.0}
    w = toy_world("repper", finish={"epochs": 3, "lr": 0.7, "optimizer": "sgd"}, train=train)
    state, views = ended(w)
    want = toys(state.model)
    for _ in range(3):
        want = [model.under(model.step(X[k], Y[k], 0.7)) for k, model in enumerate(want)]
    assert_toys(views["personal"].population, want)


def test_the_runs_schedule_leaves_the_heads_rate_alone() -> None:
    worlds = [toy_world("repper", train={"rounds": 2, "lr_milestones": m, "lr_decay": 0.1}) for m in ((), (2,))]
    a, b = (ended(w)[1]["personal"].population for w in worlds)
    assert gap(a, b) == 0 and [w.optimizer().lr for w in worlds] == pytest.approx([0.5, 0.05])


@pytest.mark.parametrize("init", ["common", "client"])
def test_heads_begin_as_those_of_the_models(init: str) -> None:
    """Without an epoch, a client's head is its initial head."""
    w = world("repper", model={"init": init}, finish={"epochs": 0})
    state, views = ended(w)
    for name, t in views["personal"].population.named("head.").items():
        assert torch.equal(t, state.model.named("head.")[name])


def test_distinct_labels_are_simclr() -> None:
    """Where no client has two samples of a class, a round is one of NT-Xent: find the other view of each image."""

    class SimCLR(RepPer):
        def objective(self, model: Any, batch: Any, context: Any) -> torch.Tensor:
            views = zip((batch, context.takes["second"]), batch.uniforms.split(UNIFORMS, -1), strict=True)
            seen = [dataclasses.replace(view, x=augment(view.x, u, 0.2)) for view, u in views]
            z = functional.normalize(torch.cat([model(view)[0] for view in seen], 1), dim=-1)
            b = batch.y.shape[1]
            itself, other = torch.eye(2 * b, dtype=torch.bool), torch.arange(2 * b).roll(b)
            logits = (z @ z.mT / 0.1).masked_fill(itself, -torch.inf)
            return torch.stack([functional.cross_entropy(of, other) for of in logits])

    data = random_federation((6, 6), classes=6)
    labels = data.labels.clone()
    labels[data.train.flat] = torch.arange(6).repeat(2)
    data = dataclasses.replace(data, labels=labels, owned=np.ones((2, 6), dtype=bool))
    one, other = (world("repper", data=data, classes=6, chunk=2, train={"batch_size": 3}) for _ in range(2))
    want = rounds(one, SimCLR(one.config.hyper), n=2)[-1].model
    assert gap(rounds(other, n=2)[-1].model, want) < 1e-10
