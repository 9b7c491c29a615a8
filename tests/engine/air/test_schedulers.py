"""Schedulers against closed forms: order statistics of fading, equal shares, and no memory but what follows again."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from semcom.config import NetworkConfig
from semcom.engine.air import schedulers
from semcom.engine.air.schedulers import SCHEDULERS, Turn
from semcom.engine.world import World
from tests import worlds
from tests.samples import has_mean

K, ROUNDS = 5, 3000
HARMONIC = sum(1 / k for k in range(1, K + 1))


def turns(means_db: np.ndarray, rounds: int = ROUNDS, n: int = 1) -> list[Turn]:
    """The rounds of clients whose powers are exponential, drawn by round."""
    fading = np.random.default_rng(0).exponential(size=(rounds + 1, K))
    order, memory = np.random.default_rng(1).permuted(np.tile(np.arange(K), (rounds + 1, 1)), axis=1), {}

    def snr_db(round_: int) -> np.ndarray:
        return means_db + 10 * np.log10(fading[round_])

    return [Turn(r, K, n, lambda: means_db, snr_db, lambda r: order[r], memory) for r in range(1, rounds + 1)]


def served(name: str, means_db: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Who was served in each round, and the power over its mean that it had then."""
    chosen, power = [], []
    for turn in turns(means_db):
        (k,) = SCHEDULERS.get(name)(turn)
        chosen.append(k)
        power.append(10 ** ((turn.snr_db(turn.round)[k] - means_db[k]) / 10))
    return np.array(chosen), np.array(power)


def test_the_best_of_exponentials_has_the_harmonic_mean() -> None:
    """The largest of K has the mean 1 + 1/2 + ... + 1/K; one at random, or in turn, 1."""
    assert has_mean(served("best-snr", np.zeros(K))[1], HARMONIC)
    assert has_mean(served("random", np.zeros(K))[1], 1.0)
    assert has_mean(served("round-robin", np.zeros(K))[1], 1.0)


def test_proportional_fairness_over_equal_means_is_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a long window all averages are the same, and so is the choice."""
    monkeypatch.setattr(schedulers, "WINDOW", 1e6)
    fair, best = (served(name, np.full(K, -20.0)) for name in ("proportional-fair", "best-snr"))
    assert (fair[0] == best[0]).mean() > 0.99
    monkeypatch.setattr(schedulers, "WINDOW", 300)
    chosen, power = served("proportional-fair", np.full(K, -20.0))
    assert power.mean() == pytest.approx(HARMONIC, rel=0.03)
    assert np.bincount(chosen) / ROUNDS == pytest.approx(np.full(K, 1 / K), abs=0.02)


def test_proportional_fairness_gives_equal_shares_at_each_client_s_best(monkeypatch: pytest.MonkeyPatch) -> None:
    """At low SNRs rates are proportional to powers: shares of 1/K whatever the means, where the best takes all."""
    monkeypatch.setattr(schedulers, "WINDOW", 300)
    means_db = np.array([-20.0, -22.0, -24.0, -26.0, -30.0])
    chosen, power = served("proportional-fair", means_db)
    assert np.bincount(chosen[1000:]) / (ROUNDS - 1000) == pytest.approx(np.full(K, 1 / K), abs=0.03)
    assert power.mean() == pytest.approx(HARMONIC, rel=0.03)
    assert np.bincount(served("best-snr", means_db)[0], minlength=K)[-1] < 0.02 * ROUNDS


def test_proportional_fairness_lets_nobody_wait_at_the_beginning() -> None:
    """Over 40 rounds of 40 dB between the strongest and the weakest, each has some of its fifth."""
    chosen, _ = served("proportional-fair", np.array([40.0, 30.0, 20.0, 10.0, 0.0]))
    assert np.bincount(chosen[:40], minlength=K).min() >= 4


def test_what_was_forgotten_is_worked_out_again() -> None:
    """After a stop the averages follow from the rounds before, to the last bit."""
    means_db = np.array([0.0, 3.0, 6.0, 9.0, 12.0])
    choose = SCHEDULERS.get("proportional-fair")
    going_on = [choose(turn).tolist() for turn in turns(means_db, 60, n=2)]
    for r in (1, 17, 60, 5):
        assert choose(turns(means_db, 60, n=2)[r - 1]).tolist() == going_on[r - 1]
    late = turns(means_db, 60, n=2)
    assert [choose(turn).tolist() for turn in late[30:]] == going_on[30:]
    assert choose(late[2]).tolist() == going_on[2]


def world(scheduling: str, clients: int = 8) -> World:
    channel = {"kind": "rayleigh", "coherence": "round", "round_doppler": 7.3, "snr_db": 5.0}
    network = NetworkConfig(scheduling=scheduling)
    return worlds.world(sizes=(2,) * clients, network=network, channel=channel, train={"participation": 1 / clients})


def test_schedulers_see_the_fading_of_the_round() -> None:
    """The best of 8 over Rayleigh fading: what it sends meets the h that it was chosen for."""
    w, found = world("best-snr"), []
    draws = w.session.draws
    for round_ in range(1, 151):
        w.session.tally.begin(round_)
        (k,) = w.sample()
        up = draws.realisation(draws.link, np.arange(8), [[1]] * 8, "train", "uplink")["fading"][:, 0, 0]
        assert int(up.abs().argmax()) == k
        found.append(float(up[k].abs().square()))
    assert has_mean(np.array(found), sum(1 / k for k in range(1, 9)))


@pytest.mark.parametrize("antennas", [1, 8])
def test_the_weak_are_not_served_first_because_of_antennas(antennas: int) -> None:
    """Four clients at -5 dB and four at 25 dB, two a round: each half has about half of the first eight rounds."""
    channel = {"kind": "rayleigh", "coherence": "round", "round_doppler": 0.4, "antennas": antennas}
    channel["snr_db"] = ",".join(["-5"] * 4 + ["25"] * 4)
    weak = []
    for seed in range(12):
        network, train = NetworkConfig(scheduling="proportional-fair"), {"participation": 0.25}
        w = worlds.world(sizes=(2,) * 8, network=network, channel=channel, train=train, seed=seed)
        for round_ in range(1, 9):
            w.session.tally.begin(round_)
            weak.append((w.sample() < 4).sum())
    assert np.mean(weak) == pytest.approx(1, abs=0.25)


def test_noise_free_clients_are_fair_too() -> None:
    w = worlds.world(
        sizes=(2,) * 4,
        network=NetworkConfig(scheduling="proportional-fair"),
        channel={"snr_db": float("inf")},
        train={"participation": 0.5},
    )
    times = np.zeros(4)
    for round_ in range(1, 41):
        w.session.tally.begin(round_)
        times[w.sample()] += 1
    assert times.tolist() == [20] * 4 and torch.isinf(w.session.draws.snr_db("up", np.arange(4))).all()
