"""Passes without training: confusion counts and predictions against a plain loop."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from semcom.engine.store.population import Population
from semcom.engine.train import visit as module
from semcom.engine.train.forward import Batch
from semcom.engine.train.phase import Phase
from semcom.engine.train.view import View, predict_in_view
from semcom.engine.train.visit import visit_clients
from semcom.engine.world import World
from semcom.methods.base import task_loss
from semcom.methods.parts.prototypes import compute_prototype_moments, prototypes
from tests import worlds
from tests.samples import has_mean
from tests.worlds import confusion, mapped

SIZES, TESTS = (7, 3, 5, 2), (4, 9, 1, 6)


def make(**overrides: Any) -> World:
    options: dict[str, Any] = {"method": "local", "model": {"init": "client"}, "tests": TESTS, "sizes": SIZES}
    return worlds.world(**{**options, **overrides})


def used(w: World) -> Population:
    """Models whose running statistics are not the initial ones."""
    return w.fit(w.population(), lambda m, b, c: task_loss(m(b)[1], b), phase=Phase(epochs=3)).models


def by_hand(w: World, pop: Population) -> Tensor:
    """True and predicted classes counted client by client over an ideal link."""
    table = torch.zeros(len(pop.ids), 3, 3, dtype=torch.int64)
    for row, k in enumerate(pop.ids):
        index = w.session.draws.federation.test[int(k)]
        x = w.session.draws.federation.images[index].double() / 127.5 - 1
        answers = worlds.plain(worlds.client(pop, int(k)), x).argmax(1)
        for true, answer in zip(w.session.draws.federation.labels[index], answers, strict=True):
            table[row, true, answer] += 1
    return table


@pytest.mark.parametrize("chunk", [1, 2, 3, 4])
@pytest.mark.parametrize("encoder", ["test-conv", "test-conv,test-conv-wide"])
def test_confusion_is_the_plain_loop(chunk: int, encoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    w = make(chunk=chunk, encoder=encoder, channel={"kind": "ideal"})
    pop = used(w)
    expected = by_hand(w, pop)
    assert expected.sum((1, 2)).tolist() == list(TESTS) and (expected.sum((0, 2)) > 0).all()
    for batch in (250, 4, 1):
        monkeypatch.setattr(module, "EVAL_BATCH", batch)
        counts = confusion(w, View(pop))
        assert torch.equal(counts, expected) and counts.dtype == torch.int64


def test_a_part_of_the_clients() -> None:
    w = make(chunk=2, channel={"kind": "ideal"})
    pop = used(w).select(np.array([1, 3]))
    assert torch.equal(confusion(w, View(pop), 3.0), by_hand(w, pop))


@pytest.mark.parametrize("shared", [("encoder.", "head."), ("head.",), ("encoder.",)])
@pytest.mark.parametrize("chunk", [1, 3, 4])
def test_a_shared_model_is_tested_on_each_client_s_data(shared: tuple[str, ...], chunk: int) -> None:
    w = make(chunk=chunk, channel={"kind": "ideal"})
    pop = w.population(shared=shared)
    assert torch.equal(confusion(w, View(pop)), by_hand(w, pop.spread()))


def collect(w: World, pop: Population, **options: Any) -> dict[int, Tensor]:
    """Received features of each client's test samples, in order."""
    rows: dict[int, list[Tensor]] = {}

    def note(batch: Batch, features: Tensor, logits: Tensor, where: Tensor) -> None:
        for i, position in enumerate(where.tolist()):
            keep = slice(None) if batch.mask is None else batch.mask[i]
            rows.setdefault(position, []).append(features[i][keep])

    visit_clients(
        w.session,
        pop,
        w.session.draws.federation.test,
        note,
        **{"stream": "test", "meter": w.session.tally.meters["test"], **options},
    )
    return {k: torch.cat(v) for k, v in rows.items()}


def test_a_fade_lasts_for_a_mini_batch_of_the_run_not_for_a_forward_pass() -> None:
    """Coherence "batch": with batches of 2, pairs of test samples share a fade; the forward pass takes all at once."""
    w = make(channel={"kind": "rayleigh", "coherence": "batch", "snr_db": "inf", "equaliser": "none"})
    seen: list[Tensor] = []
    w.session.draws.link.gain = lambda rows: (seen.append(rows["fading"]), rows["fading"])[1]  # type: ignore[method-assign]
    collect(w, w.population())
    for fading, n in zip(seen, TESTS, strict=True):
        fade = fading[0, :n, 0]
        assert all((fade[i] == fade[i + 1]) == (i % 2 == 0) for i in range(n - 1))


@pytest.mark.parametrize("batch", [250, 4, 1])
def test_neither_chunk_nor_batch_changes_what_is_received(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EVAL_BATCH", 250)
    reference = None
    for chunk in (1, 2, 3, 4):
        w = make(chunk=chunk, channel={"kind": "rayleigh", "snr_db": "3,9,12,0"})
        pop = w.population()
        got = collect(w, pop)
        monkeypatch.setattr(module, "EVAL_BATCH", batch)
        reference = reference or got
        assert {k: len(t) for k, t in got.items()} == dict(enumerate(TESTS))
        assert all((got[k] - reference[k]).abs().max() < 1e-10 for k in got)
        assert None not in (w.session.tally.meters["test"].signal, w.session.tally.meters["test"].noise)


def test_the_noise_of_a_test_is_that_of_its_snr() -> None:
    """And the same realisation at every SNR, so that curves are smooth."""
    w = make(sizes=(2,) * 8, tests=(120,) * 8, chunk=8, channel={"kind": "awgn"})
    pop = w.population()
    clean = collect(w, pop, snr_db=math.inf)
    noise = {}
    for snr in (0.0, 20.0):
        got = collect(w, pop, snr_db=snr)
        noise[snr] = torch.cat([got[k] - clean[k] for k in got])
        assert has_mean(noise[snr].square(), 10 ** (-snr / 10))
    assert (noise[0.0] - 10 * noise[20.0]).abs().max() < 1e-9
    now = collect(w, pop)[0]
    w.session.tally.begin(2)
    assert not torch.isclose(now, collect(w, pop)[0]).any()


@pytest.mark.parametrize("chunk", [1, 2, 4])
def test_the_context_of_scores_follows_the_client(chunk: int) -> None:
    """Scores that always say client k mod 3, in mixed cohorts."""
    w = make(chunk=chunk, encoder="test-conv,test-conv-wide")

    def fixed(features: Tensor, logits: Tensor, rows: Any) -> Tensor:
        return torch.zeros_like(logits) + rows["answer"][:, None]

    answer = torch.nn.functional.one_hot(torch.arange(4) % 3, 3).double()
    view = View(w.population(), fixed, {"answer": answer})
    counts = confusion(w, view)
    for k in range(4):
        labels = torch.bincount(w.session.draws.federation.labels[w.session.draws.federation.test[k]], minlength=3)
        assert torch.equal(counts[k, :, k % 3], labels)
        assert predict_in_view(w.session, view, k, w.session.draws.federation.images[:5], None).tolist() == [k % 3] * 5


def test_predictions_by_hand() -> None:
    w = make(channel={"kind": "ideal"})
    pop, images = used(w), w.session.draws.federation.images[:9]
    for k in range(4):
        expected = worlds.plain(worlds.client(pop, k), images.double() / 127.5 - 1).argmax(1)
        assert torch.equal(predict_in_view(w.session, View(pop), k, images, None), expected)
        assert torch.equal(
            predict_in_view(w.session, View(pop.select(np.array([k, (k + 1) % 4]))), k, images, 7.0), expected
        )
    assert predict_in_view(w.session, View(pop), 0, images[:0], None).tolist() == []


def test_predictions_do_not_depend_on_earlier_ones_nor_change_the_data() -> None:
    w = make(channel={"kind": "awgn", "snr_db": -10.0})
    pop, before = w.population(), w.session.draws.federation.images.clone()
    first = predict_in_view(w.session, View(pop), 2, before[:20], None)
    assert torch.equal(first, predict_in_view(w.session, View(pop), 2, before[:20], None))
    assert torch.equal(w.session.draws.federation.images, before) and len(w.session.draws.federation.labels) == len(
        before
    )


@pytest.mark.parametrize("chunk", [1, 3, 4])
def test_prototypes_by_hand(chunk: int) -> None:
    w = make(chunk=chunk, channel={"kind": "ideal"})
    pop = used(w)
    means, counts = prototypes(w, pop)
    for k in range(4):
        index = w.session.draws.federation.train[k]
        head = {"head.0.weight": torch.eye(4).double(), "head.0.bias": torch.zeros(4).double()}
        x = w.session.draws.federation.images[index].double() / 127.5 - 1
        features, labels = worlds.plain({**worlds.client(pop, k), **head}, x), w.session.draws.federation.labels[index]
        for c in range(3):
            mine = features[labels == c]
            assert int(counts[k, c]) == len(mine)
            expected = mine.mean(0) if len(mine) else torch.zeros(4).double()
            assert (means[k, c] - expected).abs().max() < 1e-12


@pytest.mark.parametrize("chunk", [1, 3, 4])
def test_moments_by_hand(chunk: int) -> None:
    """Of the features as they are received: means per class, numbers of samples, and the mean of ||f||^2."""
    w = make(chunk=chunk, channel={"kind": "awgn", "snr_db": 3.0})
    pop = used(w)
    seen: list[list[tuple[int, np.ndarray]]] = [[] for _ in range(4)]

    def note(batch: Batch, features: Tensor, logits: Tensor, where: Tensor) -> None:
        for i, k in enumerate(where.tolist()):
            real = batch.weight[i] > 0
            seen[k] += zip(batch.y[i][real].tolist(), features[i][real].numpy(), strict=True)

    visit_clients(
        w.session, pop, w.session.draws.federation.train, note, stream="a", link=w.session.draws.training_link
    )
    means, counts, squares = compute_prototype_moments(w, pop, "a")
    assert torch.equal(prototypes(w, pop, "a")[0], means) and not torch.equal(prototypes(w, pop)[0], means)
    for k in range(4):
        assert len(seen[k]) == len(w.session.draws.federation.train[k])
        for c in range(3):
            mine = np.array([f for y, f in seen[k] if y == c]).reshape(-1, 4)
            assert int(counts[k, c]) == len(mine)
            expected = (mine.mean(0), (mine**2).sum(1).mean()) if len(mine) else (np.zeros(4), 0.0)
            np.testing.assert_allclose(means[k, c], expected[0], rtol=0, atol=1e-12)
            assert float(squares[k, c]) == pytest.approx(expected[1], abs=1e-12)
    assert squares.unique().numel() > 4


def test_a_visit_moves_no_buffer_and_no_draw_of_training() -> None:
    w, still = make(channel={"kind": "rayleigh"}), make(channel={"kind": "rayleigh"})
    pop = w.population()
    kept = mapped(pop, lambda n, t: t.clone())
    prototypes(w, pop)
    confusion(w, View(pop))
    assert worlds.gap(pop, kept) == 0 and w.session.tally.visited == 0
    assert worlds.gap(used(w), used(still)) == 0
