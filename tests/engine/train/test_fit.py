"""Local training against a plain loop in torch's own words, and what must not depend on chunks, order or neighbours."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from semcom.channels import make_link
from semcom.config import ConfigError
from semcom.data.federation import Federation
from semcom.engine.host.keys import keyed
from semcom.engine.store.population import Population
from semcom.engine.train.context import Context, Given, Log
from semcom.engine.train.descent import Diverged, Optimizer
from semcom.engine.train.forward import Batch, StackedModel
from semcom.engine.train.phase import Phase
from semcom.engine.world import World
from tests import worlds
from tests.engine.visits import SIZES, task
from tests.worlds import mapped

TOLERANCE = 1e-10
CHANNELS: dict[str, dict[str, Any]] = {
    "nothing": {"kind": "none"},
    "ideal": {"kind": "ideal"},
    "free": {"kind": "awgn", "power": "free", "snr_db": "3,6,9,12", "downlink_snr_db": "0,20,5,10"},
    "awgn": {"kind": "awgn", "snr_db": "3,6,9,12", "downlink_snr_db": "0,20,5,10"},
    "rayleigh": {"kind": "rayleigh", "snr_db": 5.0, "downlink_snr_db": "0:10"},
    "zf": {"kind": "rayleigh", "snr_db": "0:18", "equaliser": "zf", "coherence": "batch", "downlink": "ideal"},
    "none": {"kind": "rayleigh", "equaliser": "none", "coherence": "symbol"},
    "rician": {"kind": "rician", "snr_db": "0:10"},
    "ofdm": {"kind": "ofdm", "csi": "ls", "snr_db": "3,6,9,12", "speed_mps": 300.0},
    "shares": {"kind": "ofdm", "csi": "ls", "equaliser": "zf", "shares": (0.4, 0.3, 0.2, 0.1), "subcarriers": 10},
}
OPTIMISERS: dict[str, dict[str, Any]] = {
    "adam": {"optimizer": "adam", "lr": 0.01, "weight_decay": 0.1},
    "adamw": {"optimizer": "adamw", "lr": 0.01, "weight_decay": 0.1},
    "momentum": {"optimizer": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.01},
    "sgd": {"optimizer": "sgd", "lr": 0.1},
    "rates": {"optimizer": "adam", "lr": (0.01, 0.003, 0.02, 0.001)},
    "rates-adamw": {"optimizer": "adamw", "lr": (0.01, 0.003, 0.02, 0.001), "weight_decay": 3.0},
    "rates-momentum": {"optimizer": "sgd", "lr": (0.01, 0.3, 0.02, 0.001), "momentum": 0.5, "weight_decay": 0.1},
}


def make(
    channel: str = "rayleigh", optimiser: str = "adam", epochs: int | tuple[int, ...] = 2, **overrides: Any
) -> World:
    train = {**OPTIMISERS[optimiser], "local_epochs": epochs, **overrides.pop("train", {})}
    return worlds.world(
        overrides.pop("method", "test-split"),
        overrides.pop("sizes", SIZES),
        split=overrides.pop("split", True),
        channel=CHANNELS[channel],
        train=train,
        **{"model": {"init": "client"}, **overrides},
    )


def copy(pop: Population) -> Population:
    return mapped(pop, lambda name, t: t.clone())


class Plain:
    """One client in the classic loop: `nn.BatchNorm2d`, `nn.Linear`, one optimiser, one mini-batch after the other."""

    def __init__(self, world: World, pop: Population, k: int, train: tuple[str, ...] = ("encoder.", "head.")) -> None:
        self.world, self.k, self.train = world, k, train
        tensors = worlds.client(pop, k)
        self.encoder = worlds.conv(1, 4, width=tensors["encoder.0.weight"].shape[0]).double()
        self.head = nn.Linear(4, 3).double()
        self.net = nn.ModuleDict({"encoder": self.encoder, "head": nn.Sequential(self.head)})
        state = {**{n: t.clone() for n, t in tensors.items()}, "encoder.1.num_batches_tracked": torch.tensor(0)}
        self.net.load_state_dict(state)
        self.encoder.train("encoder." in train)
        for name, p in self.net.named_parameters():
            p.requires_grad_(self.factor(name) > 0)
        self.encoder[1].train(self.encoder.training and self.factor("encoder.1.weight") > 0)
        self.losses: list[tuple[float, int]] = []

    def rate(self, value: Any) -> Any:
        return value[self.k] if isinstance(value, tuple) else value

    def factor(self, name: str) -> float:
        """The factor of a parameter's rate: the last of `lr_parts` that fits, which the tests order by length."""
        fits = [part.split("=")[1] for part in self.world.config.train.lr_parts if name.startswith(part.split("=")[0])]
        return float(fits[-1]) if fits else 1.0

    def optimiser(self) -> torch.optim.Optimizer:
        t, leaves = (
            self.world.config.train,
            [(n, p) for n, p in self.net.named_parameters() if n.startswith(self.train)],
        )
        groups = [{"params": [p], "lr": self.rate(t.lr) * self.factor(n)} for n, p in leaves if p.requires_grad]
        decay = t.weight_decay or 0.0
        if t.optimizer != "sgd":
            kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[t.optimizer]
            return kind(groups, weight_decay=decay, fused=False, foreach=False)
        return torch.optim.SGD(groups, momentum=t.momentum or 0.0, weight_decay=decay, fused=False, foreach=False)

    def rows(self, sizes: list[int], kind: str) -> dict[str, Tensor]:
        w = self.world
        generator = keyed(w.config.seed, "train", kind, w.round, self.k)
        return w.session.draws.training_link.of(self.k).draw(sizes, 4, generator, torch.float64)

    def run(self) -> dict[str, Tensor]:
        w, at = self.world, 0
        plan = w.session.draws.plan(self.k, Phase())
        up, down = self.rows(plan.sizes, "uplink"), self.rows(plan.sizes, "downlink")
        optimiser, me = self.optimiser(), np.array([self.k])
        for size in plan.sizes:
            index = plan.order[at : at + size]
            x, y = (
                w.session.draws.federation.images[index].double() / 127.5 - 1,
                w.session.draws.federation.labels[index],
            )
            received = self.encoder(x)
            if w.config.channel.kind != "none":
                received = w.session.draws.training_link(
                    received[None],
                    {n: t[None, at : at + size] for n, t in up.items()},
                    w.session.draws.snr_db("up", me),
                    down={n: t[None, at : at + size] for n, t in down.items()} if w.session.draws.split else None,
                    down_snr_db=w.session.draws.snr_db("down", me),
                )[0]
            loss = functional.cross_entropy(self.head(received), y)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            self.losses.append((loss.item(), size))
            at += size
        return {n: t.detach() for n, t in self.net.state_dict().items() if "num_batches" not in n}

    def mean_of_last_epoch(self) -> float:
        steps = -(
            -int(self.world.session.draws.federation.train.sizes[self.k]) // (self.world.config.train.batch_size or 0)
        )
        last = self.losses[-steps:]
        return sum(loss * size for loss, size in last) / sum(size for _, size in last)


def assert_plain(world: World, **options: Any) -> tuple[Population, Population]:
    """Check a fit against the plain loop of each client, and return the models before and after it."""
    pop = world.population()
    fitted = world.fit(pop, task, **options)
    for k in world.sample():
        plain = Plain(world, pop, int(k), **options)
        expected, got = plain.run(), worlds.client(fitted.models, int(k))
        assert expected.keys() == got.keys()
        for name in expected:
            assert (expected[name] - got[name]).abs().max() < TOLERANCE, (k, name)
        assert float(fitted.log["loss"][int(k)]) == pytest.approx(plain.mean_of_last_epoch(), abs=TOLERANCE)
    return pop, fitted.models


@pytest.mark.parametrize("optimiser", OPTIMISERS)
@pytest.mark.parametrize("chunk", [1, 4])
def test_it_is_the_classic_loop(optimiser: str, chunk: int) -> None:
    assert_plain(make(optimiser=optimiser, chunk=chunk))


@pytest.mark.parametrize("optimiser", OPTIMISERS)
@pytest.mark.parametrize("chunk", [1, 4])
def test_it_is_the_classic_loop_with_groups_of_parameters(optimiser: str, chunk: int) -> None:
    parts = ("encoder=0.5", "head=3", "encoder.1=0", "encoder.3.weight=0.1")
    before, after = assert_plain(make(optimiser=optimiser, chunk=chunk, train={"lr_parts": parts}))
    frozen = {"encoder.1.weight", "encoder.1.bias", "encoder.1.running_mean", "encoder.1.running_var"}
    assert after.cohorts[0].shared == frozen  # though clients begin with weights of their own
    assert all(torch.equal(after.cohorts[0].tensors[n], before.cohorts[0].tensors[n]) for n in frozen)


@worlds.ENCODERS.register("test-conv-frozen")
def conv_frozen(channels: int, features: int) -> nn.Module:
    """test-conv, whose first two layers take no gradients."""
    made = worlds.conv(channels, features)
    made[:2].requires_grad_(False)
    return made


def test_parameters_that_take_no_gradients_are_frozen() -> None:
    usual = make(train={"lr_parts": ("encoder.0=0", "encoder.1=0")})
    own = make(encoder="test-conv-frozen")
    (start,), (network,) = usual.population().stacks(), (c.network for c in own.population().cohorts)
    alike = Population((dataclasses.replace(start, network=network),))  # else drawn for the encoder's name
    assert worlds.gap(usual.fit(Population((start,)), task).models, own.fit(alike, task).models) == 0


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        (("encoder",), "'encoder' is not a list of names of parts with factors"),
        (("=1",), "'=1' is not a list"),
        (("head=-1",), "'head=-1' is not a list"),
        (("head=inf", "encoder=1"), "'head=inf,encoder=1' is not a list"),
        (("head=0.1", "head=2"), "'head=0.1,head=2' names a part twice"),
        (
            ("encoder.7=0",),
            "'encoder.7' has no weights in the network, whose parts are encoder.0, encoder.1, encoder.3",
        ),
        (
            ("encoder.2=0",),
            "'encoder.2' has no weights in the network, whose parts are encoder.0, encoder.1, encoder.3",
        ),
        (("body.conv=0",), "'body.conv' has no weights in the network, whose parts are encoder, head"),
        (("encoder=0", "head=0"), "test-split trains encoder and head, of which nothing has a rate above 0"),
    ],
)
def test_rates_of_parts_that_are_wrong_are_refused(parts: tuple[str, ...], why: str) -> None:
    with pytest.raises(ConfigError, match=f"^train.lr-parts: {re.escape(why)}"):
        w = make(train={"lr_parts": parts})
        w.fit(w.population(), task, train=("encoder.", "head."))


@worlds.ENCODERS.register("test-conv-still")
def conv_still(channels: int, features: int) -> nn.Module:
    """test-conv, which learns nothing."""
    return worlds.conv(channels, features).requires_grad_(False)


@pytest.mark.parametrize(
    ("parts", "encoder", "learning"),
    [
        (("encoder=0",), "test-conv", []),
        (("encoder.0=0",), "test-conv", SIZES),
        ((), "test-conv,test-conv-still", SIZES[::2]),
    ],
)
def test_gradients_come_down_to_encoders_that_learn(
    parts: tuple[str, ...], encoder: str, learning: Sequence[int]
) -> None:
    w = make(encoder=encoder, train={"lr_parts": parts})
    w.fit(w.population(), task)
    assert w.air.totals["up"].floats == 4 * 2 * sum(SIZES) and w.air.totals["down"].floats == 4 * 2 * sum(learning)


def test_a_part_that_no_encoder_has_is_refused() -> None:
    parts = ("encoder.3=0.5", "encoder.9=0")
    with pytest.raises(
        ConfigError, match=r"^train.lr-parts: 'encoder.9' has no weights in the network, whose parts are"
    ):
        make(encoder="test-conv,test-conv-wide", train={"lr_parts": parts}).population()


@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("split", [True, False])
def test_it_is_the_classic_loop_over_every_link(channel: str, split: bool) -> None:
    assert_plain(make(channel, chunk=3, split=split))


@pytest.mark.parametrize(("power", "kind"), [("normalised", "ideal"), ("free", "none")])
def test_it_is_the_classic_loop_without_a_simulated_channel(power: str, kind: str) -> None:
    channel, train = {"power": power}, {"through_link": False}
    w = worlds.world("local", SIZES, model={"init": "client"}, channel=channel, train=train, chunk=4)
    assert type(w.session.draws.training_link) is type(make_link(kind))
    assert_plain(w)


def test_it_is_the_classic_loop_for_mixed_encoders_and_epochs_of_each() -> None:
    _, trained = assert_plain(make(epochs=(1, 3, 2, 4), encoder="test-conv,test-conv-wide", chunk=2))
    assert trained.ids.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("chunk", [1, 3])
def test_the_meters_see_every_visited_sample_once(chunk: int) -> None:
    """Each sends d / 2 symbols of unit power and d numbers; padding is not counted."""
    w = make("awgn", chunk=chunk)
    w.fit(w.population(), task)
    assert w.session.tally.visited == 2 * sum(SIZES) and w.air.totals["up"].floats == 2 * sum(SIZES) * 4
    signal = w.session.tally.meters["train_up"].signal
    assert signal is not None and float(signal) == pytest.approx(2 * sum(SIZES) * 4 / 2)


def test_a_finished_client_does_not_move_by_a_bit() -> None:
    """The first two steps of all are the whole epoch of client 1: whether others go on changes nothing for it."""
    for optimiser in ("adam", "rates-momentum"):
        w = make(optimiser=optimiser, epochs=1, chunk=4)
        pop = w.population()
        on = w.fit(pop, task).models
        stopped = w.fit(pop, task, phase=Phase(steps=2)).models
        phase = Phase()
        assert w.session.draws.plan(1, phase).steps == 2 < w.session.draws.plan(0, phase).steps
        one, other, start = (worlds.client(p, 1) for p in (on, stopped, pop))
        assert all(torch.equal(one[n], other[n]) for n in one)
        assert all(not torch.equal(one[n], start[n]) for n in one)
        assert worlds.gap(on, stopped) > 0


def with_images(federation: Federation, k: int, fn: Callable[[Tensor], Tensor]) -> Federation:
    images = federation.images.clone()
    images[federation.train[k]] = fn(images[federation.train[k]])
    return dataclasses.replace(federation, images=images)


def test_nothing_of_a_client_reaches_another() -> None:
    """Other images at one client: no other client's result changes by a bit, and its own does."""
    data = worlds.random_federation(SIZES)
    results = []
    for federation in (data, with_images(data, 1, lambda x: 255 - x)):
        w = make(chunk=4, data=federation)
        results.append(w.fit(w.population(), task).models)
    for k in range(4):
        one, other = (worlds.client(p, k) for p in results)
        assert all(torch.equal(one[n], other[n]) == (k != 1) for n in one if not n.endswith("running_mean")), k


@pytest.mark.parametrize("part", ["encoder.", "head."])
@pytest.mark.parametrize("chunk", [1, 4])
def test_a_frozen_part_does_not_move(part: str, chunk: int) -> None:
    pop, trained = assert_plain(make(chunk=chunk), train=(part,))
    for name, t in trained.cohorts[0].tensors.items():
        assert torch.equal(t, pop.cohorts[0].tensors[name]) == (not name.startswith(part)), name


@pytest.mark.parametrize("chunk", [1, 3])
def test_a_shared_frozen_part_stays_shared(chunk: int) -> None:
    w = make(chunk=chunk)
    pop = w.population(shared=("head.",))
    trained = w.fit(pop, task, train=("encoder.",)).models
    own = w.fit(pop.spread(), task, train=("encoder.",)).models
    assert trained.cohorts[0].shared == pop.cohorts[0].shared
    assert torch.equal(trained.cohorts[0].tensors["head.0.weight"], pop.cohorts[0].tensors["head.0.weight"])
    assert worlds.gap(trained.spread(), own) < TOLERANCE


@pytest.mark.parametrize("chunk", [1, 4])
def test_a_shared_part_in_training_becomes_one_per_client(chunk: int) -> None:
    w = make(chunk=chunk)
    pop = w.population(shared=("encoder.", "head."))
    trained = w.fit(pop, task).models
    own = w.fit(pop.spread(), task).models
    assert not trained.cohorts[0].shared and worlds.gap(trained, own) == 0
    assert all(len(t) == 4 for t in trained.cohorts[0].tensors.values())


@pytest.mark.parametrize("shared", [(), ("head.",)])
@pytest.mark.parametrize("chunk", [1, 4])
def test_the_population_given_is_not_changed(shared: tuple[str, ...], chunk: int) -> None:
    w = make(chunk=chunk)
    pop = w.population(shared=shared)
    before = copy(pop)
    trained = w.fit(pop, task).models
    assert worlds.gap(pop, before) == 0 and not any(t.requires_grad for t in (*pop.tensors(), *trained.tensors()))
    kept = copy(trained)
    w.fit(trained, task)
    assert worlds.gap(trained, kept) == 0
    storages = [{t.untyped_storage().data_ptr() for t in p.tensors()} for p in (pop, trained)]
    assert not storages[0] & storages[1]


def test_an_unused_leaf_is_an_error() -> None:
    def features(model: StackedModel, batch: Batch, context: Context) -> Tensor:
        return batch.mean(model(batch)[0].square().sum(-1) * 0.5 + model.encode(batch).sum(-1))

    w = make(chunk=2)
    with pytest.raises(RuntimeError, match=r"does not use head\.0\.(weight|bias), which is to be trained"):
        w.fit(w.population(), features)
    w.fit(w.population(), features, train=("encoder.",))


@pytest.mark.parametrize("chunk", [1, 2, 4])
def test_divergence_names_the_clients(chunk: int) -> None:
    rates = {"optimizer": "sgd", "lr": (1e300, 0.01, 0.01, 1e300)}
    w = make("ideal", epochs=3, train=rates, chunk=chunk)
    with pytest.raises(Diverged) as error:
        w.fit(w.population(), task)
    assert error.value.clients == [0, 3] and str(error.value) == "non-finite loss or weights at client 0, 3"


def test_divergence_of_one_does_not_touch_the_others() -> None:
    """Its numbers are not finite, in the same tensors as theirs; they end as they do without it."""
    seen: dict[int, Tensor] = {}

    def watched(model: StackedModel, batch: Batch, context: Context) -> Tensor:
        loss = task(model, batch, context)
        seen[len(seen)] = loss.detach().clone()
        return loss * context.per_client["factor"]

    losses = []
    for factor in (1.0, float("nan")):
        w = make("awgn", epochs=1, chunk=4)
        rows = {"factor": torch.tensor([1.0, factor, 1.0, 1.0], dtype=torch.float64)}
        seen = {}
        if factor == factor:
            w.fit(w.population(), watched, given=Given(per_client=rows))
        else:
            with pytest.raises(Diverged, match="at client 1$"):
                w.fit(w.population(), watched, given=Given(per_client=rows))
        losses.append(seen)
    order = [0, 3, 1, 2]  # most steps first
    for step, values in losses[0].items():
        for place, value in enumerate(values):
            if order[place] != 1:
                assert torch.equal(value, losses[1][step][place])


@pytest.mark.parametrize("chunk", [1, 4])
@pytest.mark.parametrize("at", [0, 3])
def test_a_loss_that_is_not_finite_ends_a_run_whatever_the_weights_are(chunk: int, at: int) -> None:
    """In the first step or in the last one, by a term without a gradient: every weight stays finite."""
    w = make("ideal", chunk=chunk, epochs=1, sizes=(7, 3, 1, 5))
    step = torch.zeros(4)

    def infinite(model: StackedModel, batch: Batch, context: Context) -> Tensor:
        now = (context.carry["step"] == at) & (context.per_client["id"] == 0)
        context.carry["step"].add_(1)
        return task(model, batch, context) + torch.where(now, torch.inf, 0.0)

    given = Given(per_client={"id": torch.arange(4)}, carry={"step": step})
    with pytest.raises(Diverged, match="^non-finite loss or weights at client 0$"):
        w.fit(w.population(), infinite, given=given)


# -- context, accumulators, logs, steps ------------------------------------------------------------------------------


def towards(model: StackedModel, batch: Batch, context: Context) -> tuple[Tensor, Log]:
    """Half the squared distance to the client's anchor; counts steps and samples."""
    weight = model.params["head.0.weight"]
    context.carry["steps"].add_(1)
    context.carry["samples"].add_(batch.count)
    distance = (weight - context.per_client["anchor"] - context.common["shift"]).square().flatten(1).sum(1) / 2
    return distance, {"label": batch.mean(batch.y.double()), "size": batch.count}


@pytest.mark.parametrize("chunk", [1, 2, 3, 4])
@pytest.mark.parametrize("subset", [(0, 1, 2, 3), (1, 3), (2,)])
def test_context_follows_the_client(chunk: int, subset: tuple[int, ...]) -> None:
    """Gradient descent on a parabola has a closed form: w_S = a + (1 - lr)^S (w_0 - a), in mixed cohorts too."""
    rate, epochs, ids = 0.1, (2, 1, 3, 2), np.array(subset)
    w = make(optimiser="sgd", epochs=epochs, encoder="test-conv,test-conv-wide", chunk=chunk)
    pop = w.population().select(ids)
    n, generator = len(ids), torch.Generator().manual_seed(0)
    anchor = torch.randn(n, 3, 4, generator=generator, dtype=torch.float64)
    rows, shift = {"anchor": anchor.clone()}, torch.full((3, 4), 0.5, dtype=torch.float64)
    carry = {"steps": torch.zeros(n), "samples": torch.full((n,), 10.0)}
    fitted = w.fit(
        pop, towards, train=("head.0.weight",), given=Given(per_client=rows, common={"shift": shift}, carry=carry)
    )
    log, carried = fitted.log, fitted.carried
    per_epoch = np.ceil(np.array(SIZES) / 2).astype(int)
    steps = (per_epoch * np.array(epochs))[ids]
    assert carried["steps"].tolist() == steps.tolist()
    assert carried["samples"].tolist() == [10 + SIZES[k] * epochs[k] for k in subset]
    assert carry["steps"].tolist() == [0] * n and torch.equal(rows["anchor"], anchor)
    for i, k in enumerate(subset):
        start, end = (worlds.client(p, k)["head.0.weight"] for p in (pop, fitted.models))
        goal = anchor[i] + shift
        assert (end - goal - (1 - rate) ** int(steps[i]) * (start - goal)).abs().max() < 1e-12
        assert log["loss"].shape == (n,)
        own = w.session.draws.federation.labels[w.session.draws.federation.train[k]].double()
        assert float(log["label"][i]) == pytest.approx(float(own.mean()))  # over the samples of one epoch
        sizes = [2] * (SIZES[k] // 2) + [1] * (SIZES[k] % 2)
        assert float(log["size"][i]) == pytest.approx(sum(s * s for s in sizes) / SIZES[k])
        before = [(1 - rate) ** (2 * s) for s in range(int(steps[i] - per_epoch[k]), int(steps[i]))]
        first = float((start - goal).square().sum() / 2)
        expected = first * sum(a * b for a, b in zip(before, sizes, strict=True)) / SIZES[k]
        assert float(log["loss"][i]) == pytest.approx(expected)


def test_a_number_of_steps_and_another_batch() -> None:
    ones = {"anchor": torch.zeros(4, 3, 4, dtype=torch.float64)}
    carry = {"steps": torch.zeros(4), "samples": torch.zeros(4)}
    shift = {"shift": torch.zeros(3, 4, dtype=torch.float64)}
    given = Given(per_client=ones, common=shift, carry=carry)
    for batch, phase, steps, samples in (
        (3, Phase(steps=5), [5] * 4, [13, 15, 5, 13]),  # 3+3+1+3+3, 3 each, 1 each, 3+2+3+2+3
        (50, Phase(epochs=(1, 2, 3, 1)), [1, 2, 3, 1], None),
    ):
        w = make("ideal", optimiser="sgd", chunk=4, train={"batch_size": batch})
        carried = w.fit(w.population(), towards, train="head.0.weight", given=given, phase=phase).carried
        assert carried["steps"].tolist() == steps
        assert samples is None or carried["samples"].tolist() == samples


def test_the_optimiser_is_new_at_every_fit() -> None:
    w = make("ideal", optimiser="momentum", epochs=1, train={"batch_size": 50})
    pop = w.population()
    once = w.fit(pop, task).models
    again = w.fit(once, task).models
    plain = Plain(w, once, 0).run()
    assert max((plain[n] - t).abs().max() for n, t in worlds.client(again, 0).items()) < TOLERANCE


def test_streams_are_separate_and_log_under_their_name() -> None:
    w = make(epochs=1)
    pop = w.population()
    fitted = w.fit(pop, task)
    one, log, two = fitted.models, fitted.log, w.fit(pop, task).models
    other = w.fit(pop, task, phase=Phase(stream="tune")).models
    assert worlds.gap(one, two) == 0 and worlds.gap(one, other) > 0
    assert set(w.session.tally.log) == {"loss", "tune/loss"} and torch.equal(w.session.tally.log["loss"], log["loss"])
    w.session.tally.begin(2)
    assert w.session.tally.log == {} and worlds.gap(one, w.fit(pop, task).models) > 0


def test_a_given_optimiser_replaces_that_of_the_run() -> None:
    w = make("ideal", optimiser="adam", chunk=4)
    sgd = make("ideal", optimiser="sgd", chunk=4)
    pop = w.population()
    assert worlds.gap(w.fit(pop, task, optimizer=Optimizer("sgd", 0.1)).models, sgd.fit(pop, task).models) == 0
    run = make(optimiser="rates-momentum").optimizer()
    assert run == Optimizer("sgd", (0.01, 0.3, 0.02, 0.001), 0.5, 0.1)


class Vector(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.randn(3))
        self.register_buffer("fixed", torch.ones(3))

    def forward(self) -> Tensor:
        return self.value


def test_a_network_of_the_base_station() -> None:
    w = make(chunk=4)
    pop = w.server(Vector, "vector")
    goal = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)

    def objective(model: StackedModel, batch: None, context: Context) -> Tensor:
        return (model.output() - context.common["goal"]).square().sum(1) / 2

    given, phase = Given(common={"goal": goal}), Phase(stream="vector", steps=4)
    fitted = w.fit(pop, objective, train="", given=given, phase=phase, optimizer=Optimizer("sgd", 0.25))
    trained, log = fitted.models, fitted.log
    start = pop.cohorts[0].tensors["value"][0] - goal
    assert (trained.cohorts[0].tensors["value"][0] - goal - 0.75**4 * start).abs().max() < 1e-14
    expected = float(start.square().sum() / 2) * sum(0.75 ** (2 * s) for s in range(4)) / 4
    assert log["loss"].tolist() == pytest.approx([expected]) and set(w.session.tally.log) == {"vector/loss"}
    assert torch.equal(trained.cohorts[0].tensors["fixed"], torch.ones(1, 3, dtype=torch.float64))
    assert w.session.tally.visited == 0
    with pytest.raises(Diverged, match="^non-finite loss or weights at the base station's vector$"):
        w.fit(pop, objective, train="", given=given, phase=phase, optimizer=Optimizer("sgd", 1e300))


class Kernel(nn.Module):
    """A network without input whose weight has the shape of a convolution's, hence an order of memory of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3, 2, 2))
        self.bias = nn.Parameter(torch.randn(2))

    def forward(self) -> Tensor:
        return self.weight.sum(1).square().sum() + (self.weight * torch.arange(4.0).view(-1, 1, 1, 1)).sum() * self.bias


def downhill(model: StackedModel, batch: None, context: Context) -> Tensor:
    return model.output().square().mean(1)


KINDS = [Optimizer("adam", 0.1, weight_decay=0.1), Optimizer("sgd", 1e-6, momentum=0.9), Optimizer("sgd", 1e-6)]


@pytest.mark.parametrize("kind", KINDS, ids=["adam", "momentum", "sgd"])
def test_the_optimiser_of_the_base_station_can_go_on(kind: Optimizer) -> None:
    """Two fits of three and two steps that hand its state on are one of five, to the last bit."""
    w = make()
    pop = w.server(Kernel, "kernel")
    blank = kind.state(pop)
    one = w.fit(pop, downhill, train="", phase=Phase(steps=5), optimizer=kind)
    assert one.optimizer_state.cohorts == ()
    once = w.fit(pop, downhill, train="", phase=Phase(steps=5), optimizer=kind, optimizer_state=blank)
    half = w.fit(pop, downhill, train="", phase=Phase(steps=3), optimizer=kind, optimizer_state=blank)
    before = mapped(half.optimizer_state, lambda name, t: t.clone())
    whole = w.fit(
        half.models, downhill, train="", phase=Phase(steps=2), optimizer=kind, optimizer_state=half.optimizer_state
    )
    anew = w.fit(half.models, downhill, train="", phase=Phase(steps=2), optimizer=kind)
    assert worlds.gap(one.models, once.models) == worlds.gap(one.models, whole.models) == 0
    assert (worlds.gap(one.models, anew.models) > 0) == bool(kind.slots)
    pairs = [(before, half.optimizer_state), (once.optimizer_state, whole.optimizer_state)]
    for mine, theirs in pairs if kind.slots else []:
        assert worlds.gap(mine, theirs) == 0
    names = {f"{slot}/{name}" for slot in kind.slots for name in ("weight", "bias")}
    assert set(blank.cohorts[0].tensors) == names | ({"step"} if kind.name == "adam" else set())
    assert all((t == 0).all() for t in blank.tensors())


def test_an_optimisers_state_of_another_kind_or_for_clients_is_refused() -> None:
    w = make()
    pop, adam, sgd = w.server(Kernel, "kernel"), *KINDS[::2]
    with pytest.raises(ValueError, match="^the optimiser's state is that of another optimiser or network$"):
        w.fit(pop, downhill, train="", phase=Phase(steps=1), optimizer=adam, optimizer_state=sgd.state(pop))
    with pytest.raises(ValueError, match="^optimizer_state: it goes on at the base station alone; a client's"):
        w.fit(w.population(), task, optimizer_state=adam.state(pop))
