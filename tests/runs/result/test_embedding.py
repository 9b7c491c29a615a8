"""Maps of features and how classes lie apart: closed forms, and what chance gives."""

from __future__ import annotations

import numpy as np
import pytest

from semcom import embedding, knn_purity, silhouette
from tests.refusals import refuses

RNG = np.random.default_rng(0)


def clusters() -> tuple[np.ndarray, np.ndarray]:
    labels = np.arange(80) % 2
    return RNG.normal(size=(80, 6)) + 100.0 * labels[:, None], labels


def test_purity_of_clusters_and_of_chance() -> None:
    features, labels = clusters()
    assert knn_purity(features, labels) == 1.0
    purity = [knn_purity(features, RNG.integers(0, 4, 80), k=5) for _ in range(200)]
    assert abs(np.mean(purity) - 1 / 4) < 4 * np.std(purity) / 200**0.5 + 1e-9
    line, alternating = np.arange(6.0)[:, None], np.array([0, 1, 0, 1, 0, 1])
    assert knn_purity(line[:, [0]], alternating, k=1) == 0.0
    # Of two neighbours each: the ends have one of their own class (two steps away), the inner four none.
    assert knn_purity(line[:, [0]], alternating, k=2) == pytest.approx(2 * 0.5 / 6)
    assert knn_purity(features, labels, k=79) == pytest.approx(39 / 79)  # everybody is a neighbour


def test_copies_of_an_image_are_no_neighbours() -> None:
    """Random vectors of random classes, three rows each: without `images` two of three neighbours are copies."""
    x, y, image = RNG.normal(size=(200, 8)), RNG.integers(0, 4, 200), np.tile(np.arange(200), 3)
    rows, labels = np.tile(x, (3, 1)), np.tile(y, 3)
    assert knn_purity(rows, labels, k=2) == 1.0
    assert abs(knn_purity(rows, labels, k=3, images=image) - 1 / 4) < 5 * (3 / 16 / 200) ** 0.5
    assert knn_purity(x, y, images=np.arange(200)) == knn_purity(x, y)
    with refuses("k", 598, 600):
        knn_purity(rows, labels, k=598, images=image)
    with refuses("images", [200], 600):
        knn_purity(rows, labels, images=np.arange(200))


def test_silhouette_by_hand() -> None:
    """Pairs (0, 1) and (10, 11) on a line: a = 1; b = 10.5 at the outer points, 9.5 at the inner ones."""
    x, y = np.array([[0.0], [1.0], [10.0], [11.0]]), np.array([3, 3, 5, 5])
    assert silhouette(x, y) == pytest.approx((2 * 9.5 / 10.5 + 2 * 8.5 / 9.5) / 4, abs=1e-15)
    features, labels = clusters()
    assert silhouette(features, labels) > 0.95
    assert abs(silhouette(features, RNG.integers(0, 2, 80))) < 0.1


def test_principal_components_by_hand() -> None:
    """Points on an ellipse of half axes 3 and 1, turned and lifted into five dimensions."""
    angles = 2 * np.pi * np.arange(12) / 12
    flat = np.stack([3 * np.cos(angles), np.sin(angles)], 1)
    basis = np.linalg.qr(RNG.normal(size=(5, 5)))[0][:2]
    found = embedding(flat @ basis + 7.0, kind="pca")
    np.testing.assert_allclose(np.abs(found), np.abs(flat), rtol=0, atol=1e-12)


def test_tsne_keeps_clusters_apart_and_is_the_same_again() -> None:
    features, labels = clusters()
    first = embedding(features)
    assert first.shape == (80, 2) and knn_purity(first, labels, k=5) == 1.0
    assert np.array_equal(first, embedding(features, seed=0))
    few = embedding(features[:5])
    assert few.shape == (5, 2) and np.isfinite(few).all()
