"""Precision: what is rounded and what is not, by how much, and the switches of CUDA."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from semcom.engine.store.population import Population
from semcom.engine.train.context import Context
from semcom.engine.train.forward import Batch, StackedModel
from semcom.engine.train.precision import autocast_of, dtype_of, set_precision
from semcom.engine.train.view import View, predict_in_view
from semcom.engine.train.visit import visit_clients
from semcom.engine.world import World
from semcom.methods.base import task_loss
from tests import worlds
from tests.engine.visits import SIZES, task
from tests.methods.arms import fields, rounds
from tests.worlds import mapped

ROUND = 2.0**-8
"""Largest relative error of rounding to bf16, which keeps 8 bits."""


def make(precision: str, chunk: int = 1, kind: str = "ideal", **overrides: Any) -> World:
    """Unequal clients on an ideal link (noise of float64 is another draw than that of float32)."""
    train = {"optimizer": "sgd", "lr": 0.1, "batch_size": 3, **overrides.pop("train", {})}
    settings: dict[str, Any] = {"model": {"init": "client"}, "channel": {"kind": kind}, "train": train, **overrides}
    return worlds.world(overrides.pop("method", "local"), SIZES, precision=precision, chunk=chunk, **settings)


def fitted(precision: str, chunk: int = 1, **overrides: Any) -> tuple[Population, Tensor]:
    """Models after two epochs, and losses, in float64."""
    w = make(precision, chunk, train={"local_epochs": 2}, **overrides)
    fitted = w.fit(w.population(), task)
    trained, log = fitted.models, fitted.log
    kept = torch.float64 if precision == "float64" else torch.float32
    assert all(t.dtype == kept for t in trained.tensors())
    return mapped(trained, lambda name, t: t.double()), log["loss"]


@pytest.mark.parametrize("precision", ["float32", "bf16", "float64"])
def test_what_numbers_are_kept_in(precision: str) -> None:
    """Rounded products or not: weights, buffers, features, logits, losses and what is exchanged are not."""
    kept = torch.float64 if precision == "float64" else torch.float32
    assert dtype_of(precision) == kept and dtype_of("tf32") == torch.float32 and autocast_of("tf32") is None
    assert autocast_of(precision) == (torch.bfloat16 if precision == "bf16" else None)
    w, seen = make(precision, chunk=3, kind="rayleigh"), []

    def objective(model: StackedModel, batch: Batch, context: Context) -> Tensor:
        features, logits = model(batch)
        loss = task_loss(logits, batch)
        seen.extend([batch.x, model.encode(batch), features, logits, loss, *model.params.values()])
        return loss

    fitted = w.fit(w.population(), objective)
    trained, log = fitted.models, fitted.log
    visit_clients(
        w.session, trained, w.session.draws.federation.test, lambda b, *values: seen.extend(values[:2]), stream="test"
    )
    assert {t.dtype for t in (*seen, *trained.tensors())} == {kept} and log["loss"].dtype == torch.float64
    views = {"": View(trained)}
    assert int(worlds.confusion(w, views[""]).sum()) == len(w.session.draws.federation.test.flat)
    assert predict_in_view(w.session, views[""], 0, w.session.draws.federation.images[:3], None).dtype == torch.int64


@pytest.mark.parametrize("arm", ["fedavg", "fedproto", "fedcl"])
def test_a_state_in_bf16_is_in_float32(arm: str) -> None:
    start, end = rounds(worlds.world(arm, precision="bf16"), n=1)
    dtypes = {t.dtype for state in (start, end) for ts in fields(state).values() for t in ts}
    assert dtypes <= {torch.float32, torch.bool} and torch.float32 in dtypes


@pytest.mark.parametrize("chunk", [1, 3])
def test_float32_is_float64_up_to_rounding(chunk: int) -> None:
    (exact, losses), (got, log) = fitted("float64"), fitted("float32", chunk)
    assert 0 < worlds.gap(got, exact) < 1e-5 and (log - losses).abs().max() < 1e-5
    assert worlds.gap(make("float64").population(), exact) > 0.1  # of weights that moved


def encoded(precision: str, masked: bool, train: tuple[str, ...] = ("encoder.",)) -> list[Tensor]:
    """Features of each client's first seven images, alone or padded with large numbers beside the others."""
    w = make(precision)
    pop = w.population().select(torch.arange(3).numpy())
    sizes, x = (7, 3, 5), worlds.random_federation((21,)).gather(torch.arange(21).view(3, 7), w.session.draws.dtype)
    (cohort,) = pop.stacks()
    mask = torch.arange(7)[None] < torch.tensor(sizes)[:, None]
    last = torch.ones(3, dtype=torch.bool)
    y = torch.zeros(3, 7, dtype=torch.int64)

    def features(rows: slice, x: Tensor, mask: Tensor | None) -> Tensor:
        tensors = {name: t[rows].clone() for name, t in cohort.tensors.items()}
        model = StackedModel(cohort.network, {}, tensors, train, autocast=w.session.draws.autocast)
        return model.encode(Batch(x, y[rows, : x.shape[1]], mask, last[rows], 3))

    if masked:
        padded = torch.where(mask[:, :, None, None, None], x, 1e3)
        return [f[:n].double() for f, n in zip(features(slice(0, 3), padded, mask), sizes, strict=True)]
    return [features(slice(k, k + 1), x[k : k + 1, :n], None)[0].double() for k, n in enumerate(sizes)]


@pytest.mark.parametrize("train", [("encoder.",), ()])
def test_bf16_rounds_products_by_as_much_as_it_should(train: tuple[str, ...]) -> None:
    """A sum of products of rounded factors, twice; errors of single ones partly cancel. It must not be zero."""
    for exact, rounded in zip(encoded("float32", False, train), encoded("bf16", False, train), strict=True):
        error = (rounded - exact).norm() / exact.norm()
        assert ROUND / 16 < error < 4 * ROUND


def test_padding_does_not_reach_batch_statistics_in_bf16() -> None:
    """Images of 1000 in the padding: what a client's own images give stays within rounding."""
    exact = encoded("float32", True)
    for padded, alone, true in zip(encoded("bf16", True), encoded("bf16", False), exact, strict=True):
        assert (padded - alone).norm() < 2 * ROUND * alone.norm() and (padded - true).norm() < 4 * ROUND * true.norm()
        assert not torch.equal(padded, true)


def test_chunks_agree_in_bf16_as_far_as_bf16_goes() -> None:
    one, losses = fitted("bf16", 1)
    for chunk in (3, 4):
        got, log = fitted("bf16", chunk)
        assert worlds.gap(got, one) < 4 * ROUND and (log - losses).abs().max() < ROUND


def loss_on_bars(precision: str, chunk: int, n: int) -> float:
    """Loss in the n-th round of FedAvg on images that can be learnt."""
    dataset = worlds.bars(None)
    images, labels = torch.from_numpy(dataset.images), torch.from_numpy(dataset.labels)
    data = worlds.federation(images, labels, worlds.ragged([30, 30, 25, 15]), worlds.ragged([15] * 4, 100), 4)
    w = worlds.world(data=data, precision=precision, chunk=chunk, train={"batch_size": 10, "lr": 0.01})
    rounds(w, n=n)
    return float(w.session.tally.log["loss"].mean())


@pytest.mark.parametrize("chunk", [1, 4])
def test_bf16_learns_as_float32_does(chunk: int) -> None:
    first, full, half = (
        loss_on_bars(*case) for case in (("float32", chunk, 1), ("float32", chunk, 10), ("bf16", chunk, 10))
    )
    assert full < 0.5 * first and half == pytest.approx(full, rel=0.05) and half != full


@pytest.mark.parametrize("train", [("encoder.",), ()])
def test_clients_in_a_stack_are_rounded_as_each_alone(train: tuple[str, ...]) -> None:
    """Where autocast does not reach: features, gradients and running statistics of a real network.

    Not to the last bit, as a sum in another order moves some number over an edge of rounding.
    """
    data = worlds.random_federation((4, 4))
    data = dataclasses.replace(data, images=data.images.repeat(1, 1, 4, 4))
    x, y = data.gather(torch.arange(8).view(2, 4)), torch.zeros(2, 4, dtype=torch.int64)

    def found(precision: str, clients: int) -> dict[str, Tensor]:
        """Of the first client, among so many."""
        w = worlds.world("local", data=data, encoder="dcgan-narrow", precision=precision, model={"init": "client"})
        (cohort,) = w.population().stacks()
        tensors = {n: t[:clients].clone() for n, t in cohort.tensors.items()}
        parameters = {n for n, _ in cohort.network.named_parameters()}
        leaves = {n: t.requires_grad_() for n, t in tensors.items() if n in parameters}
        fixed = {n: t for n, t in tensors.items() if n not in parameters}
        model = StackedModel(cohort.network, leaves, fixed, train, autocast=w.session.draws.autocast)
        features, logits = model(Batch(x[:clients], y[:clients], None, torch.ones(clients), 3))
        grads = torch.autograd.grad(features.square().sum() + logits.square().sum(), list(leaves.values()))
        kinds = {"features": [features], "logits": [logits], "gradients": grads, "statistics": list(fixed.values())}
        return {kind: torch.cat([t[0].detach().flatten() for t in ts]) for kind, ts in kinds.items()}

    alone, stacked, exact = found("bf16", 1), found("bf16", 2), found("float32", 2)
    for kind, t in alone.items():
        error = (t - exact[kind]).norm()
        assert (stacked[kind] - t).norm() <= 0.8 * error, kind
        assert kind == "statistics" or error > ROUND / 8 * t.norm(), kind


def test_updates_smaller_than_bf16_can_tell_are_not_lost() -> None:
    """A rate of 1e-5 moves weights by less than half of a bf16 step; the weights kept in float32 add it up."""
    w = make("bf16", train={"lr": 1e-5, "local_epochs": 2})
    pop = w.population()
    trained = w.fit(pop, task).models
    before, after = (p.stacks()[0].tensors["encoder.0.weight"] for p in (pop, trained))
    moved = (after - before).abs()
    assert moved.max() > 0 and (moved < ROUND / 2 * before.abs()).float().mean() > 0.9
    assert (moved > 0).float().mean() > 0.5


def flags() -> tuple[str, str]:
    return torch.backends.cuda.matmul.fp32_precision, torch.backends.cudnn.conv.fp32_precision  # type: ignore[attr-defined]


@pytest.mark.parametrize("before", ["none", "ieee", "tf32"])
def test_rounding_of_cuda_products_is_set_and_put_back(before: str) -> None:
    kinds = torch.backends.cuda.matmul, torch.backends.cudnn.conv  # type: ignore[attr-defined]
    defaults = flags()
    try:
        for kind in kinds:
            kind.fp32_precision = before
        started = flags()
        for precision in ("float32", "bf16", "float64", "tf32"):
            with set_precision(precision):
                assert flags() == (("tf32",) * 2 if precision == "tf32" else ("ieee",) * 2)
            assert flags() == started
            with pytest.raises(ZeroDivisionError), set_precision(precision):
                raise ZeroDivisionError
            assert flags() == started
    finally:
        for kind, old in zip(kinds, defaults, strict=True):
            kind.fp32_precision = old


def test_training_and_tests_run_with_the_switches_of_the_run() -> None:
    for precision, wanted in (("float32", "ieee"), ("tf32", "tf32"), ("bf16", "ieee")):
        w, seen = make("float32"), set()
        # A request for TF32 on a CPU is refused.
        w.config = w.session.draws.config = dataclasses.replace(w.config, precision=precision)

        def objective(model: StackedModel, batch: Batch, context: Context, seen: set[Any] = seen) -> Tensor:
            seen.add(flags())
            return task(model, batch, context)

        outside = flags()
        trained = w.fit(w.population(), objective).models
        visit_clients(
            w.session,
            trained,
            w.session.draws.federation.test,
            lambda *values, seen=seen: seen.add(flags()),
            stream="test",
        )
        assert seen == {(wanted, wanted)} and flags() == outside
