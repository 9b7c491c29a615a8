"""Features of training images by frozen encoders: what they are, and how often an encoder runs for them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from semcom.engine.store.population import Population
from semcom.engine.train import visit
from semcom.engine.train.frozen import encode_frozen
from semcom.engine.world import World
from tests import worlds
from tests.engine.train.test_known import counting, moved, overlapping
from tests.engine.train.test_visit import SIZES, make, used


def shared(w: World) -> Population:
    """Models with one encoder, whose running statistics are not the initial ones."""
    return moved(w.population(shared=("encoder.",)), "encoder.1.running_mean")


@pytest.mark.parametrize(("chunk", "batch"), [(1, 125), (3, 3)])
@pytest.mark.parametrize("ids", [[0, 1, 2, 3], [1, 3]])
@pytest.mark.parametrize("kind", ["own", "shared", "mixed"])
def test_features_are_those_of_each_image_alone(
    kind: str, ids: list[int], chunk: int, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the order of the clients' lists, for stacks of any size; clients that are left out have none."""
    monkeypatch.setattr(visit, "EVAL_BATCH", batch)
    w = make(chunk=chunk, encoder="test-conv,test-conv-wide" if kind == "mixed" else "test-conv")
    pop = (shared(w) if kind == "shared" else used(w)).select(np.array(ids))
    found, images = encode_frozen(w.session, pop), w.session.draws.federation
    assert found.train.sizes.tolist() == [n if k in ids else 0 for k, n in enumerate(SIZES)]
    for k in ids:
        index, rows = images.train[k], found.train[k]
        model, pixels = worlds.client(pop, k), images.gather(index, torch.float64)
        one_by_one = [worlds.plain_features(model, x[None]) for x in pixels]
        torch.testing.assert_close(found.gather(rows, torch.float64), torch.cat(one_by_one), rtol=0, atol=1e-12)
        assert torch.equal(found.labels[rows], images.labels[index])
    assert not found.test.sizes.any() and not found.validation.sizes.any()


@pytest.mark.parametrize("chunk", [1, 4])
def test_an_encoder_of_all_clients_sees_distinct_images_once(chunk: int) -> None:
    """Nine images in one batch, and each owner's rows are what its own copy of the encoder gives."""
    w = overlapping("train", chunk=chunk)
    with counting() as seen:
        found = encode_frozen(w.session, shared(w))
        assert seen == [9]
    own = encode_frozen(w.session, shared(w).spread())
    torch.testing.assert_close(found.images, own.images, rtol=0, atol=1e-12)
    assert len(found.images) == 20 and len(found.images.unique(dim=0)) == 9


@pytest.mark.parametrize(("chunk", "calls"), [(1, [4, 9, 1, 6]), (2, [4 + 9, 1 + 6]), (4, [20])])
def test_own_encoders_run_in_stacks(chunk: int, calls: list[int]) -> None:
    """Of images in a call, those that only pad do not count."""
    w = overlapping("train", chunk=chunk)
    pop = used(w)
    with counting() as seen:
        encode_frozen(w.session, pop)
        assert seen == calls
