"""What a phase of training visits, for how long and at which rate; what is done after a step, and what is counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from semcom.engine.train.context import Context, Given
from semcom.engine.train.forward import Batch, StackedModel
from semcom.engine.train.phase import Phase
from semcom.methods.base import task_loss
from tests import worlds
from tests.engine.visits import PER_EPOCH, SIZES, arguments, images, make, pull, received, same, seen, task, trained
from tests.worlds import mapped


def numbers(model: StackedModel, batch: Batch, context: Context) -> Tensor:
    assert batch.uniforms is not None and batch.uniforms.shape == (*batch.y.shape, 3)
    return batch.uniforms


def test_numbers_of_each_sample() -> None:
    """One row per visited sample, the same in every chunk and company; others in another round, phase and stream."""
    w = make(chunk=4)
    pop = w.population()
    found = seen(w, pop, numbers, uniforms=3)
    assert [len(found[k]) for k in range(4)] == [2 * n for n in SIZES]
    flat = torch.cat([found[k].flatten() for k in range(4)])
    assert len(flat.unique()) == len(flat) == 3 * 32 and flat.min() >= 0 and flat.max() < 1
    assert abs(float(flat.mean()) - 0.5) < 4 / (12 * len(flat)) ** 0.5
    for chunk in (1, 3):
        assert same(found, seen(make(chunk=chunk), pop, numbers, uniforms=3))
    some = seen(w, pop.select(np.array([1, 3])), numbers, uniforms=3)
    assert same(some, {k: found[k] for k in (1, 3)})
    for options in ({"name": "b"}, {"stream": "b"}):
        assert not any(torch.equal(t, found[k]) for k, t in seen(w, pop, numbers, uniforms=3, **options).items())
    w.session.tally.begin(2)
    assert not any(torch.equal(t, found[k]) for k, t in seen(w, pop, numbers, uniforms=3).items())


def test_numbers_shift_nothing() -> None:
    assert worlds.gap(trained(make()), trained(make(), uniforms=3)) == 0
    assert seen(make(), make().population(), lambda m, b, c: b.y + (b.uniforms is None))[0].min() >= 1


@pytest.mark.parametrize("fraction", [0.01, 0.4, 0.8, 1.0])
def test_a_part_of_each_client_s_samples(fraction: float) -> None:
    """The same ones in each epoch of a phase, others on another stream; at least one."""
    w = make()
    pop = w.population()
    visited, other = (seen(w, pop, images, fraction=fraction, epochs=3, stream=s) for s in ("train", "b"))
    counts = [max(1, round(fraction * n)) for n in SIZES]
    assert w.session.tally.visited == 2 * 3 * sum(counts)
    for k, n in enumerate(counts):
        table = w.session.draws.federation.gather(w.session.draws.federation.train[k], torch.float64).flatten(1)
        epochs = [(e.flatten(1)[:, None] == table[None]).all(-1) for e in visited[k].split(n)]
        assert len(epochs) == 3 and all((e.sum(1) == 1).all() and e.sum() == n for e in epochs)
        assert all(torch.equal(e.sum(0), epochs[0].sum(0)) for e in epochs) and epochs[0].sum(0).max() == 1
    assert not same(visited, other)


def test_a_phase_visits_the_same_batches_and_hears_other_noise() -> None:
    w = make()
    pop = w.population()
    options: list[dict[str, Any]] = [{}, {"name": "head"}, {"stream": "head"}]
    x = [seen(w, pop, images, train="head.", **o) for o in options]
    heard = [seen(w, pop, received, train="head.", **o) for o in options]
    assert same(x[0], x[1]) and not same(x[0], x[2])
    assert all(not (a == heard[1][k]).all(1).any() for k, a in heard[0].items())


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({}, "loss"),
        ({"name": "head"}, "head/loss"),
        ({"stream": "tune"}, "tune/loss"),
        ({"stream": "tune", "name": "head"}, "head/loss"),
        ({"name": "head", "log": "body"}, "body/loss"),
        ({"name": "head", "log": ""}, "loss"),
    ],
)
def test_names_of_logs(options: dict[str, Any], name: str) -> None:
    w = make()
    log = w.fit(w.population(), task, **arguments(**options)).log
    assert set(w.session.tally.log) == {name} and set(log) == {"loss"} and w.session.tally.log[name] is log["loss"]


def test_each_step_of_the_base_station_has_its_row() -> None:
    """w <- w - lr (w - target_s), one target after the other; not a word of it about clients' data."""
    w = make(split=False)
    pop = w.population("head.").one("head.")
    generator = torch.Generator().manual_seed(3)
    targets = torch.randn(5, 3, generator=generator, dtype=torch.float64)

    def objective(model: StackedModel, batch: None, context: Context) -> Tensor:
        assert batch is None and context.per_step["target"].shape == (3,)
        off = model.params["head.0.bias"] - context.per_step["target"]
        return off.square().sum(1) / 2 + 0 * model.params["head.0.weight"].sum((1, 2))

    before = pop.named()["head.0.bias"][0].numpy()
    for order in (slice(None), torch.arange(4, -1, -1)):
        expected, losses = before, []
        for target in targets[order].numpy():
            losses.append(((expected - target) ** 2).sum() / 2)
            expected = expected - 0.3 * (expected - target)
        given, phase = Given(per_step={"target": targets[order]}), Phase(stream="phi")
        fitted = w.fit(pop, objective, train="head.", optimizer=w.optimizer(lr=0.3), given=given, phase=phase)
        after, loss = fitted.models, fitted.log["loss"]
        np.testing.assert_allclose(after.named()["head.0.bias"][0], expected, rtol=0, atol=1e-14)
        assert loss.tolist() == pytest.approx([np.mean(losses)]) and w.session.tally.log["phi/loss"] is loss
    assert w.session.tally.visited == 0 and after.ids.tolist() == [0] and w.air.totals["up"].floats == 0


@pytest.mark.parametrize("chunk", [1, 4])
def test_a_projection_follows_every_step(chunk: int) -> None:
    """w <- (w - lr_k (w - a)) / 2, so w_S = f + c^S (w_0 - f) with c = (1 - lr_k) / 2 and f = lr_k a / (2 (1 - c))."""
    rates, names = (0.1, 0.2, 0.3, 0.4), set()

    def halve(name: str, leaf: Tensor) -> Tensor:
        names.add(name)
        return leaf / 2

    w, other = make(chunk=chunk, train={"lr": rates}), make(seed=1)
    pop = w.population()
    goal = w.population().replaced(other.population().named())
    after = w.fit(pop, pull, train="head.", project=halve, given=Given(anchors={"goal": goal})).models
    assert names == {"head.0.weight", "head.0.bias"}
    for k, rate in enumerate(rates):
        before, a, now = (worlds.client(p, k) for p in (pop, goal, after))
        for name in before:
            if name.startswith("head."):
                c = (1 - rate) / 2
                fixed = rate * a[name] / 2 / (1 - c)
                expected = fixed + c ** (2 * int(PER_EPOCH[k])) * (before[name] - fixed)
                torch.testing.assert_close(now[name], expected, rtol=0, atol=1e-12)
            else:
                assert torch.equal(now[name], before[name])


@pytest.mark.parametrize("chunk", [1, 4])
def test_a_pass_that_leaves_no_track(chunk: int) -> None:
    """Running statistics move with the passes that are tracked, whichever these are."""

    def twice(first: bool, second: bool) -> Any:
        def objective(model: StackedModel, batch: Batch, context: Context) -> Tensor:
            model(batch, track=first)
            return task_loss(model(batch, track=second)[1], batch)

        return trained(make(chunk=chunk), objective)

    once, start = trained(make(chunk=chunk)), make(chunk=chunk).population()
    assert worlds.gap(twice(False, True), once) == 0
    assert worlds.gap(twice(True, False), once) == 0 and worlds.gap(twice(True, True), once) > 1e-3
    statistics = {n: t for n, t in twice(False, False).named().items() if "running" in n}
    assert len(statistics) == 2
    assert all(torch.equal(t, start.named()[n]) for n, t in statistics.items())
    weights = [twice(False, False).named(n)[n] for n in once.parameters()]
    assert all(torch.equal(a, once.named(n)[n]) for a, n in zip(weights, once.parameters(), strict=True))


def test_other_tensors_in_place_of_the_models() -> None:
    w = make()
    pop = w.population()

    def objective(model: StackedModel, batch: Batch, context: Context) -> Tensor:
        _, logits = model(batch, track=False)
        assert torch.equal(model(batch, dict(model.params), track=False)[1], logits)
        shifted = model(batch, {"head.0.bias": model.params["head.0.bias"] + 1.5}, track=False)[1]
        torch.testing.assert_close(shifted, logits + 1.5, rtol=0, atol=1e-12)
        none = {"head.0.weight": torch.zeros_like(model.params["head.0.weight"])}
        bias = model.params["head.0.bias"].unsqueeze(1).expand_as(logits)
        torch.testing.assert_close(model(batch, none, track=False)[1], bias, rtol=0, atol=1e-12)
        return task(model, batch, context)

    assert worlds.gap(w.fit(pop, objective).models, w.fit(pop, task).models) == 0


def test_other_statistics_in_place_of_the_models() -> None:
    """What is fixed can be replaced as well, in a part that is not in training."""
    w = make(channel={"kind": "ideal"}, train={"batch_size": 50})
    pop = w.population()
    shift = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)

    def shifted(model: StackedModel, batch: Batch, context: Context) -> Tensor:
        return model(batch, {"encoder.1.running_mean": model.fixed["encoder.1.running_mean"] + shift})[1]

    setting: dict[str, Any] = {"train": "head.", "epochs": 1}
    logits, x = seen(w, pop, shifted, **setting), seen(w, pop, images, **setting)
    for k in range(4):
        own = worlds.client(pop, k)
        there = {**own, "encoder.1.running_mean": own["encoder.1.running_mean"] + shift}
        torch.testing.assert_close(logits[k], worlds.plain(there, x[k]), rtol=0, atol=1e-12)
        assert (logits[k] - worlds.plain(own, x[k])).abs().max() > 1e-3


def test_steps_and_epochs_of_a_call_stand_above_those_of_the_run() -> None:
    w = make(train={"local_epochs": None, "local_steps": 3})
    pop, seconds = w.population(), []
    for options in ({}, {"epochs": 1}, {"steps": 1}, {"epochs": (1, 2, 3, 4)}):
        before = w.session.tally.visited
        w.fit(pop, task, **arguments(**options))
        seconds.append(w.session.tally.visited - before)
    assert seconds == [6 + (2 + 1 + 2) + 3 + (2 + 2 + 1), 16, 2 + 2 + 1 + 2, 7 + 2 * 3 + 3 * 1 + 4 * 5]


def test_the_rate_of_the_round_is_that_of_the_steps() -> None:
    """Rates 0.2, 0.1 and 0.025 in three rounds of one step: the distance to the anchor shrinks by each."""
    schedule = {"lr": 0.2, "lr_milestones": (2, 3), "lr_decay": (0.5, 0.25), "batch_size": 50, "local_epochs": 1}
    w = make(train=schedule)
    pop, goal = w.population(), mapped(w.population(), lambda name, t: t + 1)
    names = pop.parameters()
    for round_, rate in ((1, 0.2), (2, 0.1), (3, 0.025)):
        w.session.tally.begin(round_)
        for optimizer, factor in ((None, rate), (w.optimizer(lr=0.4), 2 * rate)):
            after = w.fit(pop, pull, optimizer=optimizer, given=Given(anchors={"goal": goal})).models
            for name in names:
                moved = after.named(name)[name] - pop.named(name)[name]
                torch.testing.assert_close(moved, torch.full_like(moved, factor), rtol=0, atol=1e-14)


def test_parts_of_the_optimiser_are_replaced() -> None:
    w = make(train={"momentum": 0.9, "weight_decay": 0.1})
    assert w.optimizer() == w.optimizer(name="sgd", lr=0.1, momentum=0.9, weight_decay=0.1)
    assert vars(w.optimizer(name="adam")) == {
        "name": "adam",
        "lr": 0.1,
        "momentum": 0.0,
        "weight_decay": 0.1,
        "parts": (),
    }
    plain = w.optimizer(momentum=0.0, weight_decay=0.0, lr=0.5)
    assert vars(plain) == {"name": "sgd", "lr": 0.5, "momentum": 0.0, "weight_decay": 0.0, "parts": ()}


def test_uncounted_training_counts_for_nothing() -> None:
    """The same weights, and neither samples, nor traffic, nor losses; also within one another."""
    w, plain = make(), make()
    tally = w.session.tally
    with tally.uncounted():
        fitted = w.fit(w.population(), task)
        one, log = fitted.models, fitted.log
        w.warn("odd", "this")
        with tally.uncounted():
            tally.begin(7)
            w.warn("odd", "that")
            w.fit(w.population(), task)
        assert w.round == 1 and tally.visited == 32 and tally.warnings == {"odd": "this"}
    assert tally.log == {} == tally.warnings and tally.visited == 0 and w.round == 1
    assert w.session.counters()["air"]["up"]["floats"] == 0 == w.session.counters()["air"]["down"]["floats"]
    fitted = plain.fit(plain.population(), task)
    other, other_log = fitted.models, fitted.log
    assert worlds.gap(one, other) == 0 and torch.equal(log["loss"], other_log["loss"])
    w.fit(w.population(), task)
    assert w.session.counters()["visited"] == plain.session.counters()["visited"] == 32
    assert set(w.session.tally.log) == {"loss"}
    assert w.session.counters()["air"]["up"] == plain.session.counters()["air"]["up"]


def test_energy_of_uncounted_averages_is_not_owed() -> None:
    """Clients that send at once leave their energy to be added when the totals are read."""
    air = {"parameters": "analog", "access": "superposed"}
    w = worlds.world("fedavg", (4, 4), air=air, channel={"kind": "awgn", "snr_db": "0,20"})
    with w.session.tally.uncounted():
        start = w.population()
        w.air.average(w.fit(start, task).models, "", w.weights(np.arange(2)), since=start)
    assert w.session.counters()["air"]["up"]["energy_j"] == 0


def test_gradients_come_down_to_an_encoder_that_trains() -> None:
    for part, down in (("head.", 0), ("encoder.", 32 * 4), ("", 32 * 4)):
        w = make()
        w.fit(w.population(), task, train=part)
        air = w.session.counters()["air"]
        assert (air["up"]["floats"], air["down"]["floats"]) == (32 * 4, down)


def test_a_network_of_the_base_station_has_the_mean_rate() -> None:
    """Of clients that differ: w <- w - mean(lr), at a gradient of one."""
    w = worlds.world("fedavg", (4, 4), train={"optimizer": "sgd", "lr": (0.1, 0.3)})
    pop = w.population("head.").one("head.")
    given = Given(per_step={"x": torch.zeros(1, 1, dtype=torch.float64)})
    after = w.fit(
        pop, lambda model, batch, context: model.params["head.0.bias"].sum(1), given=given, train="head.0.bias"
    ).models
    assert (pop.named()["head.0.bias"] - after.named()["head.0.bias"]).flatten().tolist() == pytest.approx([0.2] * 3)
