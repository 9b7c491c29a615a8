"""Own classifiers of the clients on frozen encoders: learning, training data and untouched weights."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from semcom.engine.train.phase import Phase
from semcom.engine.train.view import View, count_confusions_of_views
from semcom.engine.world import World
from semcom.methods.base import plain_objective
from semcom.methods.parts.classifiers import fit_linear_classifiers
from semcom.methods.parts.heads import make_head_optimizer, with_classifiers
from tests.engine.train.test_known import counting
from tests.methods.arms import X, Y, as_toy, assert_toys, ended, flat, rounds, toy_world, toys
from tests.worlds import confusion, gap, random_federation, reorder, world

KINDS: Any = pytest.mark.parametrize("kind", ["linear", "mlp", "svm", "lr"])
QUICK = {"epochs": 4, "lr": 0.1, "optimizer": "sgd"}


def own(w: World, kind: str, n: int = 1) -> tuple[Any, View]:
    """The State after n rounds, and the clients' classifiers then."""
    state = rounds(w, n=n)[-1]
    w.session.tally.begin(n + 1)
    return state, with_classifiers(w, state.model.select(w.tested()), kind)


def arm(kind: str, name: str = "fedper", **overrides: Any) -> World:
    """Build a world with this number of epochs in its last stage."""
    settings = {} if kind in ("svm", "lr") else QUICK
    return world(name, **{"finish": {"kind": kind, **settings}, **overrides})


@pytest.mark.parametrize("through_link", [True, False])
@pytest.mark.parametrize("encoder", ["test-conv", "test-conv,test-conv-wide"])
def test_training_on_features_is_training_behind_the_frozen_encoder(encoder: str, through_link: bool) -> None:
    """The same batches, noise and losses, but each image passes the encoder once. Fading and unequal clients."""
    options: dict[str, Any] = {"train": {"through_link": through_link}, "channel": {"kind": "rayleigh"}}
    w = arm("linear", "local", encoder=encoder, sizes=(7, 5, 3, 4), **options)
    state, view = own(w, "linear")
    log = w.session.tally.log["head/loss"]
    fresh = w.population()
    models = state.model.take("head.", fresh)
    phase = Phase("head", epochs=QUICK["epochs"])  # type: ignore[arg-type]
    usual = w.fit(models, plain_objective, train="head.", phase=phase, optimizer=make_head_optimizer(w))
    assert gap(view.population, usual.models) < 1e-12 < gap(usual.models, models)
    torch.testing.assert_close(log, usual.log["loss"], rtol=0, atol=1e-12)


@KINDS
def test_nothing_is_sent_and_the_state_stays(kind: str) -> None:
    w = arm(kind)
    state = rounds(w)[-1]
    before, sent = flat(state).clone(), w.air.counters()
    w.session.tally.begin(2)
    view = with_classifiers(w, state.model.select(w.tested()), kind)
    assert torch.equal(flat(state), before) and w.air.counters()["up"] == sent["up"]
    for name, t in view.population.named("encoder.").items():
        assert torch.equal(t, state.model.named("encoder.")[name])


@KINDS
def test_only_those_who_are_tested_have_classifiers(kind: str) -> None:
    """The same as among all."""
    some, everyone = (own(arm(kind, train={"eval_clients": n}), kind)[1] for n in (2, None))
    one, other = some.population, everyone.population
    assert len(one.ids) == 2 and gap(one, other.select(one.ids)) == 0
    assert all(torch.equal(t, everyone.per_client[name][one.ids]) for name, t in some.per_client.items())


@pytest.mark.parametrize("kind", ["svm", "lr"])
@pytest.mark.parametrize("name", ["local", "fedavg", "lg_fedavg"])
def test_classifiers_of_scikit_learn_by_hand(kind: Any, name: str) -> None:
    """On the features that the base station receives, whatever the method."""
    state, view = own(toy_world(name, finish={"kind": kind}), kind)
    for k in (0, 1):
        weight, bias = fit_linear_classifiers(kind, as_toy(state.model, k).features(X[k]), Y[k])
        np.testing.assert_allclose(view.per_client["weight"][k], weight, rtol=0, atol=1e-6)
        np.testing.assert_allclose(view.per_client["bias"][k], bias, rtol=0, atol=1e-6)


def test_a_linear_head_by_hand() -> None:
    """Four full-batch steps from the weights that the run's heads had at its start, not from those it has trained."""
    w = toy_world("fedavg", finish={"kind": "linear", **QUICK})
    state, view = own(w, "linear")
    start = as_toy(w.population(), 0)
    want = [model.under(start) for model in toys(state.model)]
    for _ in range(4):
        want = [model.under(model.step(X[k], Y[k], 0.1)) for k, model in enumerate(want)]
    assert_toys(view.population, want)


def test_a_multilayer_perceptron_is_another_network() -> None:
    w = arm("mlp")
    _, view = own(w, "mlp")
    shapes = {name: list(t.shape) for name, t in view.population.named("head.").items()}
    assert shapes == {
        "head.0.weight": [3, 4, 4],
        "head.0.bias": [3, 4],
        "head.2.weight": [3, 3, 4],
        "head.2.bias": [3, 3],
    }


@KINDS
def test_clients_permute(kind: str) -> None:
    """Relabelled clients have the same classifiers and answers, because no draw depends on an id here."""
    data, swap = random_federation((7, 5, 3)), [2, 0, 1]
    tables = {"train": reorder(data.train, swap), "test": reorder(data.test, swap)}
    found = []
    for d in (data, dataclasses.replace(data, **tables, owned=data.owned[swap])):
        w = arm(kind, "fedavg", data=d, channel={"kind": "ideal"}, train={"batch_size": 50}, chunk=2)
        _, view = own(w, kind, n=0)
        kept = [view.population.named("head."), dict(view.per_client)]
        found.append((kept, confusion(w, view)))
    (one, counts), (other, swapped) = found
    for a, b in zip(one, other, strict=True):
        assert all(torch.allclose(a[name][swap], b[name], rtol=0, atol=1e-6) for name in a)
    assert torch.equal(counts[swap], swapped)


@pytest.mark.parametrize("kind", ["svm", "lr"])
def test_a_client_with_one_class(kind: str) -> None:
    """It always answers with its class, and the others never answer with a class that they have not seen."""
    data = random_federation((6, 6, 6), classes=3)
    labels = data.labels.clone()
    labels[data.train[0]] = 2
    labels[data.train[1]] = torch.tensor([0, 1]).repeat(3)
    owned = np.array([[0, 0, 1], [1, 1, 0], [*data.owned[2]]], dtype=bool)
    changed = dataclasses.replace(data, labels=labels, owned=owned)
    w = arm(kind, data=changed)
    _, view = own(w, kind)
    answers = confusion(w, view).sum(1)
    assert answers[0].tolist() == [0, 0, len(changed.test[0])] and answers[1, 2] == 0


@KINDS
def test_chunks_agree(kind: str) -> None:
    found = []
    for chunk in (1, 2, 3):
        _, view = own(arm(kind, chunk=chunk), kind)
        tensors = (*view.population.named("head.").values(), *view.per_client.values())
        found.append(torch.cat([t.flatten() for t in tensors]))
    for other in found[1:]:
        torch.testing.assert_close(found[0], other, rtol=0, atol=1e-6 if kind in ("svm", "lr") else 1e-10)


def test_it_is_reppers_own_last_stage() -> None:
    """RepPer's heads are those of `linear`, on its body, at the same settings."""
    w = world("repper", finish=QUICK)
    state, views = ended(w, n=2)
    assert (
        gap(with_classifiers(w, state.model.select(w.tested()), "linear").population, views["personal"].population) == 0
    )


@pytest.mark.parametrize("chunk", [1, 3])
@pytest.mark.parametrize(
    ("name", "encoder"), [("fedavg", "test-conv"), ("local", "test-conv"), ("local", "test-conv,test-conv-wide")]
)
def test_views_with_new_heads_share_encoders_with_those_they_are_made_from(name: str, encoder: str, chunk: int) -> None:
    """A test encodes each image once, with a common or personal encoders, then applies several kinds of heads."""
    w = arm("mlp", name, encoder=encoder, chunk=chunk, channel={"kind": "rayleigh"})
    state, view = own(w, "mlp")
    views = {"mlp": view, "linear": with_classifiers(w, state.model.select(w.tested()), "linear")}
    views["before"] = View(state.model)
    test = w.session.draws.federation.test
    with counting() as seen:
        (found,) = count_confusions_of_views(w.session, views, (None,), test)
        assert sum(seen) == len(test.flat)
    for label, one in views.items():
        assert torch.equal(found[label], confusion(w, one))
    assert len({str(counts.tolist()) for counts in found.values()}) == 3, "the heads differ"
