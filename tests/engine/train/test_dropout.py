"""Dropout in training: what the engine draws, read off from the steps that follow from it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from semcom.engine.train.phase import Take
from semcom.engine.world import World
from semcom.models.registry import ENCODERS
from tests import worlds
from tests.engine.visits import arguments

SIZES, SIDE, CHANNELS = (7, 5, 3), 8, 2
LAYERS = {"test-drop-numbers": nn.Dropout(0.25), "test-drop-channels": nn.Dropout2d(0.25)}


def network(layer: nn.Module, channels: int, features: int) -> nn.Module:
    """Dropout on the image, then one matrix."""
    return nn.Sequential(copy.deepcopy(layer), nn.Flatten(), nn.Linear(channels * SIDE**2, features, bias=False))


@pytest.fixture(autouse=True)
def encoders() -> Iterator[None]:
    for name, layer in LAYERS.items():
        ENCODERS._added[name] = partial(network, layer)
    yield
    for name in LAYERS:
        ENCODERS._added.pop(name)


def bright(name: str, **overrides: Any) -> World:
    """All pixels are 1, so a matrix's gradient counts in how many samples each was kept."""
    total = 2 * sum(SIZES)
    images = torch.full((total, CHANNELS, SIDE, SIDE), 255, dtype=torch.uint8)
    own, tests = worlds.ragged(SIZES), worlds.ragged(SIZES, sum(SIZES))
    data = worlds.federation(images, torch.arange(total) % 3, own, tests, classes=3)
    return worlds.world("local", encoder=name, data=data, **{"train": {"batch_size": 50}, **overrides})


def kept(world: World, take: str = "", **options: Any) -> Tensor:
    """In how many of a client's samples each pixel was kept, `[n, channels, height, width]`; all steps together.

    `take` names a further mini-batch to be counted in place of the main one; `options` are those of `fit`.
    """

    def count(model: Any, batch: Any, context: Any) -> Tensor:
        batch = context.takes[take] if take else batch
        return (model.encode(batch).sum(-1) * batch.weight).sum(1)

    pop = world.population()
    step = world.optimizer(name="sgd", lr=1.0, momentum=0.0, weight_decay=0.0)
    after = world.fit(pop, count, train="encoder.", optimizer=step, **arguments(**options)).models
    before, now = (p.named("encoder.")["encoder.2.weight"] for p in (pop, after))
    moved = (before - now) * 0.75
    torch.testing.assert_close(moved, moved[:, :1].expand_as(moved))  # the same for each feature
    return moved[:, 0].unflatten(-1, (CHANNELS, SIDE, SIDE))


def test_a_quarter_of_the_numbers_is_dropped_sample_by_sample() -> None:
    counts = kept(bright("test-drop-numbers"))
    torch.testing.assert_close(counts, counts.round())
    for mine, n in zip(counts, SIZES, strict=True):
        numbers = n * mine.numel()
        assert mine.min() >= 0 and mine.max() <= n
        assert abs(mine.sum() / numbers - 0.75) < 4 * (0.75 * 0.25 / numbers) ** 0.5
        assert abs(mine.var() / (n * 0.75 * 0.25) - 1) < 0.6  # binomial: each sample has its own draws


def test_whole_channels_are_dropped() -> None:
    """In every sample: a pixel is kept as often as its neighbours."""
    counts = kept(bright("test-drop-channels"))
    torch.testing.assert_close(counts, counts.round())
    assert torch.equal(counts.round(), counts.round()[:, :, :1, :1].expand_as(counts))
    assert counts.sum() < CHANNELS * SIDE**2 * sum(SIZES)


@pytest.mark.parametrize("name", LAYERS)
def test_draws_follow_the_seed_the_round_and_the_client(name: str) -> None:
    world = bright(name)
    first, again = kept(world), kept(world)
    assert torch.equal(first, again) and torch.equal(first, kept(bright(name, chunk=1)))
    world.session.tally.begin(2)
    assert not torch.equal(first, kept(world)) and not torch.equal(first, kept(bright(name, seed=1)))
    assert not torch.equal(first[0], first[1])


@pytest.mark.parametrize("name", LAYERS)
def test_neither_chunks_nor_mini_batches_nor_a_fresh_start_matter(name: str) -> None:
    """What is dropped belongs to the sample that is visited: a run that begins in round 2 draws as one that went on."""
    small = {"train": {"batch_size": 2, "local_epochs": 2}}
    worlds = [bright(name, chunk=chunk, **small) for chunk in (1, 3)] + [bright(name, train={"local_epochs": 2})]
    first = [kept(world).round() for world in worlds]
    for world in worlds:
        world.session.tally.begin(2)
    second = [kept(world).round() for world in worlds]
    fresh = bright(name, chunk=2, **small)
    fresh.session.tally.begin(2)
    assert torch.equal(first[0], first[1]) and torch.equal(second[0], second[1])
    assert torch.equal(second[0], kept(fresh).round())
    assert not torch.equal(first[0], second[0])
    # The numbers of a client's visits are the same ones, however these are cut into mini-batches.
    assert torch.equal(first[0], first[2]) and torch.equal(second[0], second[2])


@pytest.mark.parametrize("name", LAYERS)
def test_every_pass_over_the_samples_has_its_own_draws(name: str) -> None:
    world, takes = bright(name), (Take("again", same=True), Take("inner"))
    passes = [kept(world, takes=takes), kept(world, "again", takes=takes), kept(world, "inner", takes=takes)]
    passes += [kept(world, name="other"), kept(world, stream="other")]
    assert torch.equal(passes[0], kept(world))
    assert all(not torch.equal(a, b) for i, a in enumerate(passes) for b in passes[:i])


def test_a_frozen_part_and_an_evaluated_one_drop_nothing() -> None:
    world = bright("test-drop-numbers")
    pop = world.population()
    matrix = pop.named("encoder.")["encoder.2.weight"]
    seen = []

    def look(model: Any, batch: Any, _: Any) -> Tensor:
        seen.append(model.encode(batch))
        return model(batch)[1].sum((1, 2))

    world.fit(pop, look, train="head.")
    torch.testing.assert_close(seen[0], matrix.sum(-1)[:, None].expand_as(seen[0]))
