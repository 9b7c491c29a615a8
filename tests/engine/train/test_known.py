"""What is encoded in a test: each image once by each encoder, whoever uses it, at however many SNRs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from semcom.data.federation import Ragged
from semcom.engine.store.population import Population
from semcom.engine.train import known, visit
from semcom.engine.train.forward import Batch, StackedModel
from semcom.engine.train.known import list_known_entries
from semcom.engine.train.view import View, count_confusion, count_confusions_of_views, predict_in_view
from semcom.engine.world import World
from tests import worlds
from tests.engine.train.test_visit import TESTS, by_hand, make, used
from tests.worlds import mapped

NOISY = {"kind": "rayleigh", "snr_db": "3,6,9,0"}
LISTS = ([30, 31, 32, 33], [32, 33, 34, 35, 36, 37, 38, 30, 31], [33], [30, 31, 32, 33, 34, 36])
"""Images of four clients, 9 distinct ones among 20."""


@contextmanager
def counting() -> Iterator[list[int]]:
    """Count the images that encoders see, without padding."""
    seen: list[int] = []
    encode = StackedModel.encode

    def counted(self: StackedModel, batch: Batch) -> Tensor:
        seen.append(int(batch.count.sum()))
        return encode(self, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StackedModel, "encode", counted)
        yield seen


def overlapping(part: str = "test", **options: Any) -> World:
    """Clients of whom several are tested, or trained, on the same images."""
    data = worlds.random_federation((7, 3, 5, 2), (4, 9, 1, 8))
    flat = torch.tensor([i for mine in LISTS for i in mine])
    table = Ragged(flat, np.concatenate([[0], np.cumsum([len(mine) for mine in LISTS])]))
    return make(data=dataclasses.replace(data, **{part: table}), **options)


def moved(pop: Population, part: str) -> Population:
    def shifted(name: str, t: Tensor) -> Tensor:
        waves = 0.8 * torch.arange(t.numel(), dtype=torch.float64).add(1).sin().view_as(t)
        return t + waves if name.startswith(part) and t.is_floating_point() else t.clone()

    return mapped(pop, shifted)


def separately(w: World, views: dict[str, View], snrs: tuple[float | None, ...]) -> list[dict[str, Tensor]]:
    test = w.session.draws.federation.test
    return [{n: count_confusion(w.session, {n: v}, snr, test)[n] for n, v in views.items()} for snr in snrs]


def equal(one: list[dict[str, Tensor]], other: list[dict[str, Tensor]]) -> bool:
    pairs = zip(one, other, strict=True)
    return all(a.keys() == b.keys() and all(torch.equal(t, b[n]) for n, t in a.items()) for a, b in pairs)


@pytest.mark.parametrize("chunk", [1, 3, 4])
@pytest.mark.parametrize("encoder", ["test-conv", "test-conv,test-conv-wide"])
def test_views_with_equal_encoders_share_them_at_every_snr(chunk: int, encoder: str) -> None:
    """Also where their populations hold copies; other heads, weights or running statistics are told apart."""
    w = make(chunk=chunk, encoder=encoder, channel=NOISY)
    pop = used(w)
    views = {"own": View(pop), "head": View(moved(pop, "head.")), "copy": View(moved(pop, "none"))}
    others = {"weights": View(moved(pop, "encoder.0")), "buffers": View(moved(pop, "encoder.1.running_mean"))}
    snrs = (None, -6.0, 12.0)
    with counting() as seen:
        found = count_confusions_of_views(w.session, views, snrs, w.session.draws.federation.test)
        assert sum(seen) == sum(TESTS)
        seen.clear()
        apart = count_confusions_of_views(w.session, {**views, **others}, snrs, w.session.draws.federation.test)
        assert sum(seen) == 3 * sum(TESTS)
        seen.clear()
        expected = separately(w, {**views, **others}, snrs)
        assert sum(seen) == 15 * sum(TESTS)
    assert equal(apart, expected) and equal(found, [{n: t[n] for n in views} for t in expected])
    assert len({str(tables["own"].tolist()) for tables in found}) == 3, "each SNR has answers of its own"
    assert not torch.equal(found[0]["own"], found[0]["head"])
    assert len({str(expected[2][n].tolist()) for n in ("own", *others)}) == 3


def test_clients_who_agree_in_part_are_told_apart() -> None:
    """One client of four has another encoder in the second view: in its chunk both are used."""
    w = make(chunk=2, channel={"kind": "ideal"})
    pop = used(w)
    rows = torch.tensor([0.0, 0.0, 0.0, 0.5]).double()
    other = mapped(pop, lambda n, t: t + rows.view(-1, *[1] * (t.dim() - 1)) if n == "encoder.0.weight" else t)
    views = {"a": View(pop), "b": View(other)}
    with counting() as seen:
        (counts,) = count_confusions_of_views(w.session, views, (None,), w.session.draws.federation.test)
        assert sum(seen) == sum(TESTS) + sum(TESTS[2:])
    assert torch.equal(counts["a"], by_hand(w, pop)) and torch.equal(counts["b"], by_hand(w, other))
    assert not torch.equal(counts["a"][3], counts["b"][3])


@pytest.mark.parametrize("shared", [("encoder.", "head."), ("encoder.",)])
@pytest.mark.parametrize("chunk", [1, 4])
def test_an_encoder_of_all_clients_sees_distinct_images_once(shared: tuple[str, ...], chunk: int) -> None:
    w = overlapping(chunk=chunk, channel={"kind": "ideal"})
    pop = moved(w.population(shared=shared), "encoder.1.running_mean")
    views = {"a": View(pop), "b": View(moved(pop, "head.")), "own": View(pop.spread())}
    with counting() as seen:
        (counts,) = count_confusions_of_views(w.session, views, (None,), w.session.draws.federation.test)
        assert sum(seen) == 9 + sum(map(len, LISTS))
    assert all(torch.equal(counts[name], by_hand(w, view.population.spread())) for name, view in views.items())
    assert counts["a"].sum((1, 2)).tolist() == [len(mine) for mine in LISTS]


@pytest.mark.parametrize(("limit", "encoded"), [(9 * 4 * 8, 9), (9 * 4 * 8 - 1, 20)])
def test_features_of_distinct_images_are_kept_within_bounds(
    limit: int, encoded: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nine images of four numbers of eight bytes; with less each client's images are encoded for it."""
    w = overlapping(channel=NOISY)
    pop = w.population(shared=("encoder.", "head."))
    reference = separately(w, {"a": View(pop)}, (None,))
    monkeypatch.setattr(known, "KNOWN_BYTES", limit)
    with counting() as seen:
        assert equal(separately(w, {"a": View(pop)}, (None,)), reference)
        assert sum(seen) == encoded
    images = w.session.draws.federation.images[30:39]
    first = predict_in_view(w.session, View(pop), 1, images, None)
    monkeypatch.setattr(known, "KNOWN_BYTES", 0)
    assert torch.equal(first, predict_in_view(w.session, View(pop), 1, images, None))


@pytest.mark.parametrize("linked", [1, 7, 1000])
def test_how_many_pass_the_link_at_once_changes_no_answer(linked: int, monkeypatch: pytest.MonkeyPatch) -> None:
    w = overlapping(channel=NOISY, chunk=1)
    pop = w.population(shared=("encoder.",))
    reference = separately(w, {"a": View(pop.spread())}, (None,))
    monkeypatch.setattr(visit, "LINKED", linked)
    assert equal(separately(w, {"a": View(pop)}, (None,)), reference)


def test_distinct_entries_of_some_clients() -> None:
    table = overlapping().session.draws.federation.test
    assert list_known_entries(table, np.arange(4)).tolist() == list(range(30, 39))
    assert list_known_entries(table, np.array([0, 2])).tolist() == [30, 31, 32, 33]
    assert list_known_entries(table, np.array([2])).tolist() == [33]
