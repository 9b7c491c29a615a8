"""What methods say to `fit` beyond an objective: gradients, other models of the clients, further mini-batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from semcom.engine.host.keys import keyed
from semcom.engine.train.context import Context, Given, Gradient, Log
from semcom.engine.train.descent import compute_gradients
from semcom.engine.train.forward import Batch, StackedModel
from semcom.engine.train.phase import Phase, Take
from semcom.methods.base import task_loss
from semcom.methods.parts.distance import proximal
from tests import worlds
from tests.engine.visits import (
    MIXED,
    PER_EPOCH,
    SIZES,
    See,
    images,
    make,
    pull,
    received,
    same,
    seen,
    slope,
    task,
    trained,
)
from tests.worlds import mapped

# -- gradients -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [1, 4])
@pytest.mark.parametrize(
    "train", [{"momentum": 0.9}, {"optimizer": "adam"}, {"lr": (0.01, 0.3, 0.02, 0.1), "weight_decay": 0.1}]
)
def test_gradients_are_descended_as_an_objective_is(chunk: int, train: dict[str, Any]) -> None:
    w = make(chunk=chunk, train=train)
    pop = w.population()
    fitted = w.fit(pop, task)
    one, log = fitted.models, fitted.log
    fitted = w.fit(pop, Gradient(slope))
    other, other_log = fitted.models, fitted.log
    assert worlds.gap(one, other) == 0 and torch.equal(log["loss"], other_log["loss"])
    assert set(other_log) == {"loss", "size"} == set(w.session.tally.log)
    sizes = [[2] * (n // 2) + [1] * (n % 2) for n in SIZES]
    assert other_log["size"].tolist() == pytest.approx([sum(s * s for s in mine) / sum(mine) for mine in sizes])


def test_a_loss_may_take_gradients_by_the_leaves_of_one_client_as_of_several() -> None:
    """The squared norm of the gradient as a penalty, in every step: gradients come through what the networks are."""

    def penalised(model: StackedModel, batch: Batch, context: Context) -> Tensor:
        loss = task(model, batch, context)
        slopes = torch.autograd.grad(loss.sum(), list(model.params.values()), create_graph=True)
        return loss + torch.stack([g.flatten(1).square().sum(1) for g in slopes]).sum(0)

    ends = []
    for chunk in (1, 4):
        w = make(chunk=chunk)
        ends.append(w.fit(w.population(), penalised).models)
    assert worlds.gap(*ends) < 1e-12
    assert worlds.gap(ends[0], w.fit(w.population(), task).models) > 1e-6


def looks(model: StackedModel, batch: Batch) -> Tensor:
    """Zero, from passes without gradients, before which nobody has looked at the leaves."""
    with torch.no_grad():
        norm = sum(leaf.flatten(1).square().sum(1) for leaf in model.params.values())
        return 0 * norm * model(batch, track=False)[1].flatten(1).sum(1)


def doubles(model: StackedModel, batch: Batch) -> Tensor:
    """Zero, from a model whose leaves are all zero: its logits are."""
    zero = replace(model, params={name: torch.zeros_like(leaf) for name, leaf in model.params.items()})
    assert not zero(batch, track=False)[1].any()
    return 0 * batch.count


def unites(model: StackedModel, batch: Batch) -> Tensor:
    """Zero, from the model with tensors that are its own."""
    one, other = (model(batch, leaves, track=False)[1] for leaves in (model.params | {}, {} | model.params))
    return 0 * (one - other).flatten(1).sum(1)


@pytest.mark.parametrize("chunk", [1, 4])
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("do", [looks, doubles, unites])
def test_an_objective_may_do_with_the_leaves_what_it_likes(do: Any, first: int, chunk: int) -> None:
    """In the first step or from a later one on: the weights' own term has its gradient all the same."""

    def decayed(model: StackedModel, batch: Batch, context: Context) -> Tensor:
        steps.append(1)
        extra = do(model, batch) if sum(steps) > first else torch.zeros_like(batch.count)
        weights = torch.stack([leaf.flatten(1).square().sum(1) for leaf in model.params.values()]).sum(0)
        return task(model, batch, context) + weights + extra

    def usual(model: StackedModel, batch: Batch, context: Context) -> Tensor:
        weights = torch.stack([leaf.flatten(1).square().sum(1) for leaf in model.params.values()]).sum(0)
        return task(model, batch, context) + weights

    steps: list[int] = []
    w = make(chunk=chunk)
    pop = w.population()
    assert worlds.gap(w.fit(pop, decayed).models, w.fit(pop, usual).models) < 1e-12


def test_along_a_gradient_of_ones_every_weight_falls_by_the_rate() -> None:
    def ones(model: StackedModel, batch: Batch, context: Context) -> tuple[dict[str, Tensor], Log]:
        return {name: torch.ones_like(leaf) for name, leaf in model.params.items()}, {"loss": 0 * batch.count}

    w = make(train={"lr": 0.25})
    pop = w.population()
    after = w.fit(pop, Gradient(ones), train="head.").models
    for k, n in enumerate(2 * PER_EPOCH):
        for name, t in worlds.client(pop, k).items():
            torch.testing.assert_close(worlds.client(after, k)[name], t - 0.25 * int(n) * name.startswith("head."))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda g: {"head.0.weight": g["head.0.weight"]}, r"these names do not match: head\.0\.bias$"),
        (lambda g: {**g, "encoder.0.weight": g["head.0.bias"], "a": g["head.0.bias"]}, r": a, encoder\.0\.weight$"),
        (
            lambda g: {**g, "head.0.bias": g["head.0.bias"][0]},
            r"of head\.0\.bias has shape \[3\], not \[4, 3\]$",
        ),
        (lambda g: {**g, "head.0.weight": g["head.0.weight"].mT}, r"has shape \[4, 4, 3\], not \[4, 3, 4\]$"),
    ],
)
def test_other_gradients_are_refused(change: Callable[[Any], Any], message: str) -> None:
    def wrong(model: StackedModel, batch: Batch, context: Context) -> tuple[dict[str, Tensor], Log]:
        grads, log = slope(model, batch, context)
        return change(grads), log

    with pytest.raises(RuntimeError, match=message):
        trained(make(), Gradient(wrong), train="head.")


def test_a_loss_that_is_not_one_per_client_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"^the objective gave a loss of shape \[\]; one per client is \[4\]$"):
        trained(make(), lambda model, batch, context: task(model, batch, context).sum())


# -- other models ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [2, 4])
@pytest.mark.parametrize("kind", ["anchors", "frozen"])
@pytest.mark.parametrize("shared", [(), ("head.",)])
@pytest.mark.parametrize("subset", [(0, 1, 2, 3), (1, 3)])
def test_another_model_is_that_of_the_client(chunk: int, kind: str, shared: Any, subset: tuple[int, ...]) -> None:
    """Steps of lr on half the squared distance: w_S = a + (1 - lr)^S (w_0 - a), for mixed architectures too."""
    ids, w = np.array(subset), make(chunk=chunk, **MIXED)
    pop = w.population().select(ids)
    goal = mapped(w.population(shared), lambda name, t: 1 - t / 2)
    given = Given(**{kind: {"goal": goal.select(ids) if chunk == 2 else goal}})
    fitted = w.fit(pop, pull, given=given)
    after, log = fitted.models, fitted.log
    for i, k in enumerate(subset):
        steps = 2 * int(PER_EPOCH[k])
        a, before, now = (worlds.client(p, k) for p in (goal, pop, after))
        leaves = [n for n in a if "running" not in n]
        for name in leaves:
            torch.testing.assert_close(now[name] - a[name], 0.9**steps * (before[name] - a[name]), rtol=0, atol=1e-12)
        distance = float(sum((before[n] - a[n]).square().sum() for n in leaves)) / 2
        sizes = ([2] * 9)[: SIZES[k] // 2] + [1] * (SIZES[k] % 2)
        first = steps - len(sizes)
        losses = [distance * 0.9 ** (2 * (first + s)) * size for s, size in enumerate(sizes)]
        assert float(log["loss"][i]) == pytest.approx(sum(losses) / SIZES[k])


def test_the_anchor_gets_no_gradient() -> None:
    """||w - sg(w)||^2 with a leaf for an anchor: were it not detached, its gradient would not be None."""
    leaf, anchor = torch.ones(2, 3, requires_grad=True), torch.zeros(2, 3, requires_grad=True)
    model, other = (StackedModel(torch.nn.Identity(), {"w": t}, {}) for t in (leaf, anchor))
    distance = proximal(model, other)
    assert distance.tolist() == [3.0, 3.0]
    distance.sum().backward()
    assert anchor.grad is None and torch.equal(leaf.grad, 2 * torch.ones(2, 3))


@pytest.mark.parametrize("kind", ["awgn", "rayleigh"])
def test_an_anchor_is_not_called_over_a_link(kind: str) -> None:
    """It decodes features that are there; nothing was drawn for a transmission of its own."""
    w, logits = make(channel={"kind": kind}), []
    pop = w.population()

    def decoded(model: StackedModel, batch: Batch, context: Context) -> Tensor:
        features, _ = model(batch)
        logits.append((context.models["other"].decode(features, batch), features))
        return task(model, batch, context)

    w.fit(pop, decoded, given=Given(anchors={"other": pop}))
    got, features = logits[0]
    order = [0, 3, 1, 2]  # most steps first
    for i, k in enumerate(order):
        own = worlds.client(pop, k)
        expected = features[i] @ own["head.0.weight"].T + own["head.0.bias"]
        torch.testing.assert_close(got[i], expected, rtol=0, atol=1e-12)
    message = r"^the link has no draw for the model 'other': give it to fit as frozen, not anchor$"
    with pytest.raises(RuntimeError, match=message):
        w.fit(pop, lambda m, b, c: task_loss(c.models["other"](b)[1], b), given=Given(anchors={"other": pop}))


@pytest.mark.parametrize("chunk", [1, 4])
def test_a_frozen_model_moves_nothing(chunk: int) -> None:
    """Called or not: the trained model, the meters and the traffic are what they are without it, and so is itself."""

    def calls(model: StackedModel, batch: Batch, context: Context) -> Tensor:
        old = context.models["old"]
        assert not old.params and not any(t.requires_grad for t in old.tensors.values())
        return task(model, batch, context) + 0 * old(batch)[1].sum((1, 2))

    counters, results = [], []
    for objective, given in ((task, False), (task, True), (calls, True)):
        w = make(chunk=chunk)
        pop = w.population()
        old = w.fit(pop, task, phase=Phase(epochs=1, stream="old")).models
        before = mapped(old, lambda name, t: t.clone())
        results.append(w.fit(pop, objective, given=Given(frozen={"old": old} if given else {})).models)
        assert worlds.gap(old, before) == 0
        counters.append(w.session.counters())
    assert worlds.gap(results[0], results[1]) == 0 == worlds.gap(results[0], results[2])
    assert counters[0] == counters[1] == counters[2]


def test_a_frozen_model_is_in_evaluation_mode() -> None:
    """Over an ideal link its logits are those of torch's own layers with the running statistics."""
    w = make(channel={"kind": "ideal"})
    pop = w.population()
    old = w.fit(pop, task, phase=Phase(stream="old")).models
    logits = seen(w, pop, lambda m, b, c: c.models["old"](b)[1], frozen={"old": old})
    x = seen(w, pop, images)
    for k in range(4):
        torch.testing.assert_close(logits[k], worlds.plain(worlds.client(old, k), x[k]), rtol=0, atol=1e-12)


@pytest.mark.parametrize("chunk", [1, 4])
def test_a_frozen_model_has_draws_of_its_own(chunk: int) -> None:
    """Noise by hand: that of "train/<name>" in the place of "train"."""
    w = make(chunk=chunk)
    pop = w.population()
    heard = {
        name: seen(w, pop, lambda m, b, c, n=name: c.models[n](b)[0], frozen={"one": pop, "two": pop}, train="head.")
        for name in ("one", "two")
    }
    heard[""] = seen(w, pop, received, train="head.")  # the body in evaluation mode as well
    clean = seen(w, pop, lambda m, b, c: m.encode(b), train="head.")
    for name, found in heard.items():
        for k, got in found.items():
            sizes = w.session.draws.sizes(k, Phase())
            generator = keyed(w.config.seed, f"train/{name}" if name else "train", "uplink", 1, k)
            rows = w.session.draws.training_link.draw(sizes, 4, generator, torch.float64)
            rows, snr = {n: t[None] for n, t in rows.items()}, w.session.draws.snr_db("up", np.array([k]))
            expected = w.session.draws.training_link(clean[k][None], rows, snr)[0]
            torch.testing.assert_close(got, expected, rtol=0, atol=1e-10)
    assert not any(same(heard[a], heard[b]) for a, b in (("one", "two"), ("one", ""), ("two", "")))


# -- further mini-batches --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [1, 4])
def test_the_same_images_again_with_other_noise(chunk: int) -> None:
    options = {"takes": (Take("again", same=True),), "train": "head."}
    again: See = lambda m, b, c: m(c.takes["again"], track=False)[0]  # noqa: E731
    for kind in ("awgn", "ideal"):
        w = make(chunk=chunk, channel={"kind": kind})
        pop = w.population()
        for field in ("x", "y", "mask"):

            def both(model: StackedModel, batch: Batch, context: Context, field: str = field) -> Tensor:
                one, other = getattr(batch, field), getattr(context.takes["again"], field)
                assert (one is None) == (other is None) and (one is None or torch.equal(one, other))
                return batch.x

            seen(w, pop, both, **options)
        one, other = seen(w, pop, received, **options), seen(w, pop, again, **options)
        assert same(one, other) == (kind == "ideal")
        if kind == "awgn":
            assert all(not (one[k] == other[k]).all(1).any() for k in one)


@pytest.mark.parametrize("chunk", [1, 4])
def test_another_mini_batch_has_its_own_order_and_covers_the_data(chunk: int) -> None:
    w = make(chunk=chunk)
    pop = w.population()
    main = seen(w, pop, images, takes=(Take("inner"), Take("third")))
    own = {
        n: seen(w, pop, lambda m, b, c, n=n: c.takes[n].x, takes=(Take("inner"), Take("third")))
        for n in ("inner", "third")
    }
    labels = seen(w, pop, lambda m, b, c: c.takes["inner"].y, takes=(Take("inner"),))
    for k, n in enumerate(SIZES):
        index = w.session.draws.federation.train[k]
        table = w.session.draws.federation.gather(index, torch.float64)
        for visited in (main[k], own["inner"][k], own["third"][k]):
            assert len(visited) == 2 * n
            for epoch in visited.split(n):
                match = (epoch.flatten(1)[:, None] == table.flatten(1)[None]).all(-1)
                assert (match.sum(0) == 1).all() and (match.sum(1) == 1).all()
        place = (own["inner"][k].flatten(1)[:, None] == table.flatten(1)[None]).all(-1).double().argmax(1)
        assert torch.equal(labels[k], w.session.draws.federation.labels[index][place])
    assert not same(main, own["inner"]) and not same(own["inner"], own["third"])


def test_a_take_shifts_no_draw_and_is_counted() -> None:
    """The main batch is what it is without takes; each take is as much of samples and, for a split method, traffic."""
    results, counters = [], []
    for takes in ((), (Take("inner"), Take("again", same=True))):
        w = make()
        results.append(trained(w, takes=takes))
        counters.append(w.session.counters())
    assert worlds.gap(*results) == 0
    assert [c["visited"] for c in counters] == [2 * 16, 3 * 2 * 16]
    for way in ("up", "down"):
        assert counters[1]["air"][way]["floats"] == 3 * counters[0]["air"][way]["floats"] > 0


def test_a_step_at_the_inner_batch_s_gradient() -> None:
    """First-order adaptation with `instead`: chunks agree, and without an inner rate it is the plain step."""

    def adapted(rate: float) -> Any:
        def gradient(model: StackedModel, batch: Batch, context: Context) -> tuple[dict[str, Tensor], Log]:
            inner = task_loss(model(context.takes["inner"], track=False)[1], context.takes["inner"])
            slopes = compute_gradients(inner, model.params)
            there = {n: (t - rate * slopes[n]).detach().requires_grad_() for n, t in model.params.items()}
            loss = task_loss(model(batch, there)[1], batch)
            return compute_gradients(loss, there), {"loss": loss}

        return gradient

    takes = (Take("inner"),)
    one, two = (trained(make(chunk=c), Gradient(adapted(0.5)), takes=takes) for c in (1, 4))
    assert worlds.gap(one, two) < 1e-10
    still = trained(make(), Gradient(adapted(0.0)), takes=takes)
    assert worlds.gap(still, trained(make())) == 0 and worlds.gap(one, still) > 1e-3
