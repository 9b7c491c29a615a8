"""Tables of counts: who gets how many of each class, against brute force, moments and promises."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from semcom.config import ConfigError
from semcom.data import counts
from tests.refusals import refuses

PROPERTY = settings(max_examples=25, deadline=None, derandomize=True)
SEEDS = st.integers(0, 2**40)


def placed(stock: list[int], ways: list[int], size: int) -> bool:
    """Whether each client can have `size` samples of `ways[k]` classes, by trying everything."""
    if not ways:
        return True
    for chosen in itertools.combinations(range(len(stock)), ways[0]):
        rest = [n - size * (c in chosen) for c, n in enumerate(stock)]
        if min(rest) >= 0 and placed(rest, ways[1:], size):
            return True
    return False


@st.composite
def shot_requests(draw: Any, classes: int = 4, clients: int = 4, shots: int = 4) -> tuple[list[int], list[int], int]:
    """Samples per class, ways per client, shots: small enough to try everything."""
    there = draw(st.integers(1, classes))
    stock = draw(st.lists(st.integers(0, 9), min_size=there, max_size=there))
    ways = draw(st.lists(st.integers(1, there), min_size=1, max_size=clients))
    return stock, ways, draw(st.integers(1, shots))


@pytest.mark.parametrize("tries", [0, counts.TRIES])
@settings(PROPERTY, max_examples=200)
@given(request=shot_requests(), seed=SEEDS)
def test_shots_are_found_whenever_they_exist(tries: int, request: Any, seed: int) -> None:
    """With and without luck: after no tries every client takes the largest stocks."""
    stock, ways, size = request
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counts, "TRIES", tries)
        check_shots(stock, ways, size, seed)


def check_shots(stock: list[int], ways: list[int], size: int, seed: int) -> None:
    wanted = (np.array(stock), np.array(ways), np.full(len(ways), size))
    if not placed(stock, ways, size):
        with refuses("partition.shots"):
            counts.draw_shot_counts(*wanted, np.random.default_rng(seed))
        return
    table = counts.draw_shot_counts(*wanted, np.random.default_rng(seed))
    assert ((table > 0).sum(axis=1) == ways).all() and set(np.unique(table)) <= {0, size}
    assert (table.sum(axis=0) <= stock).all()


def fewest_additions(stock: list[int], ways: list[int], size: int) -> int:
    """The fewest samples to add so that the clients can be placed, by trying everything in order."""
    for total in itertools.count():
        for ends in itertools.combinations_with_replacement(range(total + 1), len(stock) - 1):
            added = np.diff([0, *ends, total])
            if placed([n + int(a) for n, a in zip(stock, added, strict=True)], ways, size):
                return total
    raise AssertionError


@PROPERTY
@given(shot_requests(classes=3, clients=3, shots=3))
def test_the_missing_samples_are_the_fewest_that_help(request: tuple[list[int], list[int], int]) -> None:
    stock, ways, size = request
    assert counts.count_missing_samples(np.array(stock), np.array(ways), size) == fewest_additions(stock, ways, size)


def test_a_tight_request_is_met_for_every_seed() -> None:
    """Every sample is needed: a careless draw gets stuck here."""
    stock, ones = np.array([5, 4, 3, 2, 1]), np.ones(5, dtype=np.int64)
    for seed in range(40):
        table = counts.draw_shot_counts(stock, 3 * ones, ones, np.random.default_rng(seed))
        assert table.sum(axis=0).tolist() == [5, 4, 3, 2, 1] and (table.sum(axis=1) == 3).all()


@PROPERTY
@given(SEEDS, st.integers(1, 10), st.floats(0.05, 50))
def test_dirichlet_gives_everyone_the_minimum(seed: int, least: int, beta: float) -> None:
    table = counts.draw_dirichlet_counts(np.array([60, 40, 50]), 5, beta, least, np.random.default_rng(seed))
    assert table.sum(axis=0).tolist() == [60, 40, 50]
    assert table.sum(axis=1).min() >= least and table.min() >= 0


def test_balanced_dirichlet_stops_a_full_client() -> None:
    """A client with its full share of the total gets no samples of later classes, so at most one class too many."""
    rng = np.random.default_rng(0)
    stock = np.full(10, 100)
    for _ in range(50):
        before = np.cumsum(counts.draw_dirichlet_counts(stock, 8, 0.3, 1, rng), axis=1)
        full = before[:, :-1] >= 1000 / 8
        assert (np.diff(before, axis=1)[full] == 0).all()


@pytest.mark.parametrize("least", [0, 1])
def test_large_beta_divides_evenly(least: int) -> None:
    """Dir(beta) over K has standard deviation sqrt((K-1) / (K^2 (K beta + 1))): beta = 1e4, K = 5 gives 0.0018."""
    table = counts.draw_dirichlet_counts(np.full(4, 10_000), 5, 1e4, least, np.random.default_rng(3))
    assert np.abs(table - 2000).max() < 5 * 18 + 1


def test_plain_dirichlet_has_its_moments() -> None:
    """Shares of class 0: mean 1/K, variance (K-1) / (K^2 (K beta + 1)) = 0.16 / 3.5 for K = 5, beta = 0.5."""
    rng = np.random.default_rng(1)
    shares = (
        np.array([counts.draw_dirichlet_counts(np.array([10_000]), 5, 0.5, 0, rng)[:, 0] for _ in range(600)]) / 10_000
    )
    assert np.allclose(shares.sum(axis=1), 1)
    assert np.allclose(shares.mean(axis=0), 0.2, atol=5 * np.sqrt(0.16 / 3.5 / 600))
    assert shares.var() == pytest.approx(0.16 / 3.5, rel=0.15)


@PROPERTY
@given(SEEDS, st.integers(1, 9), st.sampled_from([1e-3, 0.1, 1.0, 1e3]))
def test_dirichlet_clients_are_equal(seed: int, clients: int, beta: float) -> None:
    stock = np.array([7, 30, 11, 0, 52])
    table = counts.draw_client_dirichlet_counts(stock, clients, beta, np.random.default_rng(seed))
    assert (table.sum(axis=1) == 100 // clients).all()
    assert (table.sum(axis=0) <= stock).all() and table.min() >= 0


def test_beta_sets_how_pure_a_client_is() -> None:
    """Largest share of a class in a client: nearly 1 for a tiny beta, falling to 1/C for a large one."""
    purest = []
    for beta in (1e-3, 0.1, 1.0, 1e6):
        table = counts.draw_client_dirichlet_counts(np.full(5, 20_000), 20, beta, np.random.default_rng(2))
        purest.append((table / 5000).max(axis=1).mean())
    assert purest[0] > 0.85 and purest == sorted(purest, reverse=True)
    assert purest[-1] < 0.2 + 5 * np.sqrt(0.16 / 5000)


def test_dirichlet_client_treats_clients_alike() -> None:
    """The order of clients has no effect: late clients would be left with the unwanted classes (5 standard errors)."""
    rng = np.random.default_rng(4)
    tables = [counts.draw_client_dirichlet_counts(np.full(5, 200), 10, 0.1, rng) for _ in range(150)]
    purity = np.array([(table / 100).max(axis=1) for table in tables])
    assert np.abs(purity.mean(axis=0) - purity.mean()).max() < 5 * purity.std() / np.sqrt(150)


@pytest.mark.parametrize(("clients", "beta"), [(10, 0.5), (20, 0.1), (100, 0.5)])
def test_dirichlet_client_says_how_far_its_mixtures_are_off(
    clients: int, beta: float, caplog: pytest.LogCaptureFixture
) -> None:
    """The line has the variance of the dealt shares and of the drawn shares, which is the Dirichlet's.

    a_i (a_0 - a_i) / (a_0^2 (a_0 + 1)) = 9 / (100 (10 beta + 1)) with ten classes. The mean of 80 divisions is within
    five standard errors of it, and that of the dealt shares is far below.
    """
    counts._note_on_partition.cache_clear()
    stock, dealt = np.full(10, 6000), []
    for seed in range(80):
        table = counts.draw_client_dirichlet_counts(stock, clients, beta, np.random.default_rng(seed))
        dealt.append(((clients * table / 60_000 - 0.1) ** 2).mean())
    pattern = r"partition\.beta: .* ([\d.]+)% of the samples .* variance of ([\d.]+), not the ([\d.]+) of those drawn"
    told = np.array([re.match(pattern, record.message).groups() for record in caplog.records], dtype=float)  # type: ignore[union-attr]
    assert len(told) == 80 and (told[:, 0] > 2).all()
    np.testing.assert_allclose(told[:, 1], dealt, atol=5.1e-5)
    expected, drawn = 9 / (100 * (10 * beta + 1)), told[:, 2]
    assert abs(drawn.mean() - expected) < 5 * drawn.std() / np.sqrt(80)
    assert expected - np.mean(dealt) > 5 * np.std(dealt) / np.sqrt(80)


def test_dirichlet_client_says_nothing_where_classes_suffice(caplog: pytest.LogCaptureFixture) -> None:
    counts.draw_client_dirichlet_counts(np.full(10, 6000), 20, 1e4, np.random.default_rng(0))
    assert not caplog.records


@PROPERTY
@given(SEEDS, st.integers(1, 7), st.integers(1, 5))
def test_pathological_clients_own_their_classes(seed: int, clients: int, classes: int) -> None:
    stock = np.array([40, 37, 60, 41, 52])
    table = counts.draw_pathological_counts(stock, clients, classes, np.random.default_rng(seed))
    assert ((table > 0).sum(axis=1) == classes).all()
    owners = (table > 0).sum(axis=0)
    assert owners.max() - owners.min() <= 1
    assert table.sum(axis=0).tolist() == np.where(owners > 0, stock, 0).tolist()
    for c in range(5):
        shares = table[:, c][table[:, c] > 0]
        assert not len(shares) or shares.max() - shares.min() <= 1


def test_pathological_deals_the_classes_that_have_samples() -> None:
    """As without the two that have none, for every seed."""
    stock, there = np.array([0, 40, 37, 0, 60]), np.array([1, 2, 4])
    for seed in range(10):
        found, alone = (
            counts.draw_pathological_counts(given, 4, 2, np.random.default_rng(seed)) for given in (stock, stock[there])
        )
        assert found[:, there].tolist() == alone.tolist() and found.sum() == stock.sum()
    with refuses("partition.classes", "3 classes"):
        counts.draw_pathological_counts(stock, 4, 4, np.random.default_rng(0))


def test_pathological_favours_no_class() -> None:
    """3 clients x 2 classes = 6 places for 5 classes: each of them gets the second owner at some time."""
    seeds = (np.random.default_rng(seed) for seed in range(40))
    twice = [(counts.draw_pathological_counts(np.full(5, 9), 3, 2, rng) > 0).sum(axis=0).argmax() for rng in seeds]
    assert set(twice) == set(range(5))


@PROPERTY
@given(SEEDS, st.integers(1, 30))
def test_iid_parts_are_equal_and_random(seed: int, clients: int) -> None:
    stock = np.array([50, 20, 30])
    table = counts.draw_iid_counts(stock, clients, np.random.default_rng(seed))
    sizes = table.sum(axis=1)
    assert sizes.max() - sizes.min() <= 1 and table.sum(axis=0).tolist() == stock.tolist()


def test_own_test_images_follow_the_training_proportions() -> None:
    table = np.array([[30, 0, 7], [10, 0, 0], [20, 0, 0]])
    assert counts.divide_stock_in_proportion(table, np.array([6, 9, 5])).tolist() == [[3, 0, 5], [1, 0, 0], [2, 0, 0]]


def test_an_unlikely_minimum_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "REDRAWS", 20)
    with refuses("partition.min_size", 10):
        counts.draw_dirichlet_counts(np.array([50, 50]), 10, 0.1, 10, np.random.default_rng(0))


def test_classes_without_samples_take_none_of_a_client_that_has_its_part() -> None:
    assert counts.draw_dirichlet_counts(np.array([5, 7, 0, 0]), 1, 0.5, 10, np.random.default_rng(0)).tolist() == [
        [5, 7, 0, 0]
    ]


@pytest.mark.parametrize(
    ("clients", "classes", "beta", "least", "draws"),
    [(20, 10, 0.01, 1500, 2001), (100, 10, 0.02, 300, 770), (1000, 10, 0.01, 10, 98)],
)
def test_a_hopeless_minimum_is_given_up_early(
    clients: int, classes: int, beta: float, least: int, draws: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn, real = [], counts._draw_one_dirichlet_table
    monkeypatch.setattr(counts, "_draw_one_dirichlet_table", lambda *a, **k: drawn.append(real(*a, **k)) or drawn[-1])
    with refuses("partition.min_size", "at best; lower it or clients, raise partition.beta, or take 0"):
        counts.draw_dirichlet_counts(np.full(classes, 6000), clients, beta, least, np.random.default_rng(0))
    assert len(drawn) == draws


@PROPERTY
@given(SEEDS, st.lists(st.integers(0, 12), min_size=1, max_size=6))
def test_every_beginning_of_the_order_is_fair(seed: int, stock: list[int]) -> None:
    """Of m samples m n_c / N, rounded down or up, and never less of a class than of m - 1."""
    sizes, total = np.array(stock), sum(stock)
    before = np.zeros(len(stock), dtype=np.int64)
    for number in range(total + 1):
        found = counts.count_among_first(sizes, number, np.random.default_rng(seed))
        assert found.sum() == number and (found >= before).all()
        assert (np.abs(found * total - number * sizes) < total).all() or number == total == 0
        before = found


def test_no_class_comes_first() -> None:
    """Of four classes of equal size each is first in a quarter of 400 draws (5 standard deviations of 8.7)."""
    firsts = sum(counts.count_among_first(np.full(4, 3), 1, np.random.default_rng(seed)) for seed in range(400))
    assert (np.abs(firsts - 100) < 43).all()


def test_fields_over_a_map_have_the_stated_correlation() -> None:
    """exp(-d / 40 m) of three places at 30, 40 and 50 m: the means of 20,000 products, each within five errors."""
    places = np.array([[0.0, 0.0], [30.0, 0.0], [0.0, 40.0]])
    drawn = counts.draw_fields(places, 40.0, 20_000, np.random.default_rng(0))
    expected = np.exp(-np.array([[0, 30, 40], [30, 0, 50], [40, 50, 0]]) / 40)
    products = drawn[:, None] * drawn
    assert (np.abs(products.mean(2) - expected) < 5 * products.std(2) / np.sqrt(20_000)).all()
    alone, alike = (counts.draw_fields(places, length, 20_000, np.random.default_rng(1)) for length in (0.0, np.inf))
    assert np.abs(np.corrcoef(alone) - np.eye(3)).max() < 5 / np.sqrt(20_000)
    np.testing.assert_allclose(alike, np.broadcast_to(alike[:1], alike.shape), atol=1e-6)


@pytest.mark.parametrize("beta", [0.05, 0.1, 1.0, 10.0])
def test_shares_at_a_place_are_dirichlet_s(beta: float) -> None:
    """A share of Dir(beta) over 4 classes is Beta(beta, 3 beta): Kolmogorov and Smirnov's distance, p above 1e-4."""
    shares = counts.convert_to_shares(np.random.default_rng(2).normal(size=(4_000, 4)), beta)
    np.testing.assert_allclose(shares.sum(1), 1)
    assert stats.kstest(np.maximum(shares[:, 0], 1e-300), stats.beta(beta, 3 * beta).cdf).pvalue > 1e-4
    low = counts.convert_to_shares(np.array([[-37.0, -38.0], [-1.0, 8.0]]), beta)
    assert np.isfinite(low).all() and low[0, 0] > low[0, 1] and low[1, 1] > low[1, 0]


@settings(PROPERTY)
@given(stock=st.lists(st.integers(1, 400), min_size=2, max_size=5), clients=st.integers(1, 6), seed=SEEDS)
def test_counts_by_shares_are_rounded_and_never_more_than_there_is(stock: list[int], clients: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(len(stock), 0.5), clients)
    try:
        table = counts.count_by_shares(np.array(stock), shares, None, rng)
    except ConfigError:
        assert min((n - clients) / wanted for n, wanted in zip(stock, shares.sum(0), strict=True)) < 1
        return
    size = table[0].sum()
    assert (table.sum(1) == size).all() and (table.sum(0) <= stock).all() and size <= sum(stock) / clients
    assert np.abs(table - size * shares).max() < 1
    half = counts.count_by_shares(np.array(stock), shares, max(1, size // 2), rng)
    assert (half.sum(1) == max(1, size // 2)).all()
    with refuses("partition.size"):
        counts.count_by_shares(np.array(stock), shares, sum(stock) // clients + 2, rng)
