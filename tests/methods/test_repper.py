"""RepPer: both stages worked by hand, what is sent, classifiers, and what each client keeps to itself."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from semcom.config import ConfigError
from semcom.engine.train.view import confusion
from semcom.engine.world import World
from semcom.methods import repper
from semcom.methods.parts.augment import UNIFORMS, augment
from semcom.methods.parts.classifiers import fitted
from semcom.methods.repper import RepPer
from tests.methods.arms import X, Y, as_toy, assert_toy, ended, flat, rounds, toy_world
from tests.methods.by_hand import Toy, mean
from tests.methods.parts.test_contrast import gradient
from tests.worlds import client, gap, ragged, random_federation, world

HEADS: Any = pytest.mark.parametrize("head", ["mlp", "svm", "lr"])
TAU = 0.4


def body_step(model: Toy, views: np.ndarray, y: np.ndarray, lr: float = 0.5) -> Toy:
    """One SGD step of Eq. 5 on the body: with no head, only the pull on the features is left of a step."""
    bare = Toy(model.W, 0 * model.V, 0 * model.b)
    step = bare.slope(views, y, gradient(model.features(views), y, TAU))
    return Toy(model.W - lr * step.W, model.V, model.b)


def test_a_round_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two epochs of full batches; the views that were made are noted, the rest is NumPy's."""
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
    want = mean(trained, [3 / 5, 2 / 5])
    for k in (0, 1):
        assert_toy(as_toy(after.model, k), Toy(want.W, trained[k].V, trained[k].b))


def order(w: World, k: int, epoch: int) -> np.ndarray:
    """Labels of a client in the order of an epoch's visit."""
    noted: list[np.ndarray] = []

    def objective(model: Any, batch: Any, context: Any) -> torch.Tensor:
        noted.append(batch.y[0].numpy())
        return model(batch)[1].square().sum((1, 2))

    w.fit(w.population().select(np.array([k])), objective, train=("head.",))
    return noted[epoch]


def test_whole_images_in_a_row_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without augmentation both views of an image are one; three rounds of full batches."""
    monkeypatch.setattr(repper, "augment", lambda images, uniforms, smallest: images)
    start, *_, after = rounds(toy_world("repper", hyper={"tau": TAU}), n=3)
    model, heads = as_toy(start.model, 0), [as_toy(start.model, k) for k in (0, 1)]
    for _ in range(3):
        steps = [body_step(model, np.tile(X[k], (2, 1)), np.tile(Y[k], 2)) for k in (0, 1)]
        model = mean(steps, [3 / 5, 2 / 5])
    for k in (0, 1):
        assert_toy(as_toy(after.model, k), Toy(model.W, heads[k].V, heads[k].b))


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


@HEADS
def test_the_end_sends_nothing_and_leaves_the_state(head: str) -> None:
    w = world("repper", hyper={"head": head})
    method = RepPer(w.config.hyper)
    state = rounds(w, method)[-1]
    before, sent = flat(state).clone(), w.air.counters()
    w.session.tally.begin(2)
    (view,) = method.finish(state, w).values()
    assert torch.equal(flat(state), before)
    assert {way: w.air.counters()[way] for way in ("up", "down")} == {way: sent[way] for way in ("up", "down")}
    body = [client(p, 0)["encoder.0.weight"] for p in (state.model, view.population)]
    assert torch.equal(*body)


@HEADS
def test_only_those_who_are_tested_have_classifiers(head: str) -> None:
    """The same as among all."""
    some, everyone = (
        ended(world("repper", hyper={"head": head}, train={"eval_clients": n}))[1]["personal"] for n in (2, None)
    )
    one, other = some.population, everyone.population
    assert len(one.ids) == 2 and gap(one, other.select(one.ids)) == 0
    assert all(torch.equal(t, everyone.per_client[name][one.ids]) for name, t in some.per_client.items())


def test_the_head_by_hand() -> None:
    """Three full-batch steps of CE on the frozen body, at the head's own rate, whatever the run's optimiser."""
    hyper = {"head_epochs": 3, "head_lr": 0.7}
    w = toy_world("repper", hyper=hyper, train={"optimizer": "adam", "lr": 1e-3, "weight_decay": 0.0})
    state, views = ended(w)
    for k in (0, 1):
        want = as_toy(state.model, k)
        for _ in range(3):
            step = want.step(X[k], Y[k], 0.7)
            want = Toy(want.W, step.V, step.b)
        assert_toy(as_toy(views["personal"].population, k), want)


def test_the_runs_schedule_leaves_the_heads_rate_alone() -> None:
    worlds = [toy_world("repper", train={"rounds": 2, "lr_milestones": m, "lr_decay": 0.1}) for m in ((), (2,))]
    a, b = (ended(w)[1]["personal"].population for w in worlds)
    assert gap(a, b) == 0 and [w.optimizer().lr for w in worlds] == pytest.approx([0.5, 0.05])


@pytest.mark.parametrize("head", ["svm", "lr"])
def test_classifiers_of_scikit_learn_by_hand(head: Any) -> None:
    w = toy_world("repper", hyper={"head": head})
    state, views = ended(w)
    rows = views["personal"].per_client
    for k in (0, 1):
        weight, bias = fitted(head, as_toy(state.model, k).features(X[k]), Y[k])
        np.testing.assert_allclose(rows["weight"][k], weight, rtol=0, atol=1e-6)
        np.testing.assert_allclose(rows["bias"][k], bias, rtol=0, atol=1e-6)


@HEADS
def test_clients_permute_at_the_end(head: str) -> None:
    """Relabelled clients have the same classifiers and answers; no draw belongs to an id here."""
    data, swap = random_federation((7, 5, 3)), [2, 0, 1]
    tables = {
        name: dataclasses.replace(ragged([len(table[k]) for k in swap]), flat=torch.cat([table[k] for k in swap]))
        for name, table in (("train", data.train), ("test", data.test))
    }
    found = []
    for d in (data, dataclasses.replace(data, **tables, owned=data.owned[swap])):
        w = world("repper", data=d, hyper={"head": head}, channel={"kind": "ideal"}, train={"batch_size": 50}, chunk=2)
        _, views = ended(w, n=0)  # views of the initial body: augmentations are drawn by id
        view = views["personal"]
        kept = [view.population.named("head."), dict(view.per_client)]
        found.append((kept, confusion(w.session, views, None, d.test)["personal"]))
    (one, counts), (other, swapped) = found
    for a, b in zip(one, other, strict=True):
        assert all(torch.allclose(a[name][swap], b[name], rtol=0, atol=1e-6) for name in a)
    assert torch.equal(counts[swap], swapped)


@HEADS
def test_a_client_with_one_class(head: str) -> None:
    """It answers with its class, always; others never with a class that they have not seen (`svm` and `lr`)."""
    data = random_federation((6, 6, 6), classes=3)
    labels = data.labels.clone()
    labels[data.train[0]] = 2
    labels[data.train[1]] = torch.tensor([0, 1]).repeat(3)
    owned = np.array([[0, 0, 1], [1, 1, 0], [*data.owned[2]]], dtype=bool)
    w = world(
        "repper",
        data=dataclasses.replace(data, labels=labels, owned=owned),
        hyper={"head": head, **({"head_lr": 1.0, "head_epochs": 50} if head == "mlp" else {})},
    )
    _, views = ended(w)
    answers = confusion(w.session, views, None, w.session.draws.federation.test)["personal"].sum(1)
    assert answers[0].tolist() == [0, 0, len(w.session.draws.federation.test[0])]
    assert head == "mlp" or answers[1, 2] == 0


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


def test_the_loss_falls() -> None:
    w = world("repper", sizes=(16, 16), hyper={"tau": 0.5, "crop": 1.0}, train={"batch_size": 16, "local_epochs": 5})
    method = RepPer(w.config.hyper)
    state, losses = method.setup(w), []
    for r in range(1, 9):
        w.session.tally.begin(r)
        state = method.round(state, w)
        losses.append(float(w.session.tally.log["loss"].mean()))
    assert np.mean(losses[-2:]) < np.mean(losses[:2]) - 0.1


def test_inside_is_below_outside() -> None:
    """Jensen: the logarithm of a mean is above the mean of logarithms."""
    first = {}
    for form in ("inside", "outside"):
        w = world("repper", hyper={"form": form}, train={"batch_size": 7}, chunk=3)
        rounds(w)
        first[form] = w.session.tally.log["loss"]
    assert (first["inside"] < first["outside"]).all()


@pytest.mark.parametrize(
    ("hyper", "text"),
    [
        ({"tau": 0.0}, "method.tau: 0.0 is not a positive number"),
        ({"form": "both"}, "method.form: 'both' is not one of inside, outside"),
        ({"crop": 1.5}, r"method.crop: 1.5 is not a number in \(0, 1\]"),
        ({"head": "knn"}, "method.head: 'knn' is not one of mlp, svm, lr"),
        ({"head_epochs": 0}, "method.head-epochs: 0 is not a whole number of at least 1"),
        ({"head_lr": -0.1}, "method.head-lr: -0.1 is not a positive number"),
    ],
)
def test_bad_values_are_refused(hyper: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        world("repper", hyper=hyper)


def test_the_papers_setting() -> None:
    w = world("repper", train={"preset": "paper", "batch_size": None, "lr": None, "rounds": None})
    t = w.config.train
    assert (t.optimizer, t.lr, t.weight_decay, t.batch_size, t.local_epochs) == ("adam", 1e-3, 1e-4, 256, 10)
    assert (t.rounds, t.participation, w.config.hyper.tau) == (100, 0.4, 0.1)


@HEADS
def test_chunks_agree_at_the_end(head: str) -> None:
    found = []
    for chunk in (1, 2, 3):
        _, views = ended(world("repper", chunk=chunk, hyper={"head": head}))
        view = views["personal"]
        found.append(
            torch.cat([t.flatten() for t in (*view.population.named("head.").values(), *view.per_client.values())])
        )
    for other in found[1:]:
        torch.testing.assert_close(found[0], other, rtol=0, atol=1e-6 if head != "mlp" else 1e-10)
