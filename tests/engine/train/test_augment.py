"""Augmentation of training images: crops and mirror images against slices, and who sees which of them."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from semcom.data.augment import CropFlip
from semcom.data.registry import AUGMENTATIONS
from semcom.engine.train.context import Context
from semcom.engine.train.forward import Batch, StackedModel
from semcom.engine.train.phase import Take
from semcom.engine.train.view import View
from semcom.engine.world import World
from semcom.methods.parts.heads import with_classifiers
from semcom.runs.request.resolve import resolve
from semcom.runs.result.evaluation import evaluate_views
from semcom.runs.rounds.runner import run
from tests import worlds
from tests.engine.visits import SIZES, images, make, same, seen, trained


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_crop_is_a_slice_of_the_image_in_its_border(dtype: torch.dtype) -> None:
    """All 81 places and their mirror images, at the lower and the upper end of the numbers that give each."""
    picture = torch.rand(3, 6, 6, generator=torch.Generator().manual_seed(0), dtype=dtype) * 2 - 1
    framed = np.pad(picture.numpy(), ((0, 0), (4, 4), (4, 4)), constant_values=-1)
    cases = list(itertools.product(range(9), range(9), (False, True), (0.01, 0.99)))
    numbers = torch.tensor([[(t + e) / 9, (c + e) / 9, 0.4999 if m else 0.5] for t, c, m, e in cases], dtype=dtype)
    stack = picture.expand(2, len(cases) // 2, -1, -1, -1)
    found = CropFlip()(stack, numbers.view(2, -1, 3))
    assert found.shape == stack.shape
    for got, (top, left, mirrored, _) in zip(found.flatten(0, 1).numpy(), cases, strict=True):
        cut = framed[:, top : top + 6, left : left + 6]
        assert np.array_equal(got, cut[:, :, ::-1] if mirrored else cut)


def augmented(**overrides: Any) -> World:
    w = make(**overrides)
    w.session.draws.augmentation = CropFlip()
    return w


def differ(one: dict[int, Tensor], other: dict[int, Tensor]) -> bool:
    return not any(torch.equal(t, other[k]) for k, t in one.items())


def test_images_are_augmented_by_keyed_draws() -> None:
    """The same in every chunk, company, phase and length of training; others in each epoch, round and stream."""
    w = augmented()
    pop = w.population()
    plain, found = seen(make(), pop, images), seen(w, pop, images)
    draws = w.session.draws
    for k, n in enumerate(SIZES):
        numbers = draws.uniforms(np.array([k]), [2 * n], 3, "augment", "train", "")[0]
        assert torch.equal(found[k], CropFlip()(plain[k], numbers)) and not torch.equal(found[k][:n], found[k][n:])
    for chunk in (1, 3):
        assert same(found, seen(augmented(chunk=chunk), pop, images))
    some = seen(w, pop.select(np.array([1, 3])), images)
    assert same(some, {k: found[k] for k in (1, 3)})
    assert same(found, seen(w, pop, images, name="head"))
    longer = seen(w, pop, images, epochs=5)
    assert same(found, {k: t[: 2 * SIZES[k]] for k, t in longer.items()})
    assert differ(found, seen(w, pop, images, stream="b"))
    w.session.tally.begin(2)
    assert differ(found, seen(w, pop, images))


@pytest.mark.parametrize("same_samples", [True, False])
def test_a_take_of_the_same_samples_has_the_same_images(same_samples: bool) -> None:
    """One with an order of its own has draws of its own."""
    w = augmented()

    def taken(model: StackedModel, batch: Batch, context: Context) -> Tensor:
        return context.takes["more"].x

    found, more = (seen(w, w.population(), see, takes=(Take("more", same_samples),)) for see in (images, taken))
    assert same(found, more) if same_samples else differ(found, more)


def test_what_does_not_train_sees_images_as_they_are() -> None:
    """Tests, and the features that heads of a last stage train on."""
    one, other = (of(finish={"kind": "linear", "epochs": 2}) for of in (make, augmented))
    pop = one.population()
    assert evaluate_views(one.session, {"": View(pop)}) == evaluate_views(other.session, {"": View(pop)})
    heads = [with_classifiers(w, pop, "linear").population for w in (one, other)]
    assert worlds.gap(*heads) == 0
    assert worlds.gap(trained(one), trained(other)) > 1e-3


def test_images_that_come_back_are_compared_with_what_was_sent() -> None:
    w = augmented(task="reconstruction")
    pairs = seen(w, w.population(), lambda model, batch, context: torch.stack([batch.x, batch.target], 2))
    plain = seen(make(task="reconstruction"), w.population(), images)
    assert all(torch.equal(*pair.unbind(1)) and not torch.equal(pair[:, 0], plain[k]) for k, pair in pairs.items())


def test_a_plug_in_augments_a_whole_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its code is part of what the run is; an unknown name is refused by the list of known ones."""
    monkeypatch.setattr(AUGMENTATIONS, "_added", {})

    @AUGMENTATIONS.register("test-black")
    class Black(CropFlip):
        numbers = 1

        def __call__(self, images: Tensor, uniforms: Tensor) -> Tensor:
            assert uniforms.shape == (*images.shape[:-3], 1)
            return torch.full_like(images, -1)

    base = worlds.request("fedavg", partition={"kind": "iid"}, train={"rounds": 2})
    losses = {}
    for name in ("none", "test-black", "crop-flip"):
        config = dataclasses.replace(base, data=dataclasses.replace(base.data, augment=name), contents={})
        result = run(config)
        losses[name] = result.metrics[-1]["loss"]
        assert any("augmentation" in code for code in result.config.contents) == (name == "test-black")
    assert len(set(losses.values())) == 3
    with pytest.raises(ValueError, match=r"data\.augment: 'flip' is unknown: .* known are none, crop-flip, test-black"):
        resolve(dataclasses.replace(base, data=dataclasses.replace(base.data, augment="flip")))
