"""Differential privacy of what is averaged: clipping and noise by hand, epsilon against closed forms and a library."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import norm

import semcom
from semcom.config import ConfigError
from semcom.engine.air.privacy import find_gaussian_epsilon, find_sampled_epsilon, join_multipliers
from semcom.engine.world import World
from tests import worlds
from tests.methods import arms
from tests.runs.rounds.test_run import interrupt, timeless
from tests.worlds import mapped

needs_library = pytest.mark.skipif(importlib.util.find_spec("dp_accounting") is None, reason="pip install 'semcom[dp]'")
SIZES = (4, 4, 4)
UNCODED = {"parameters": "analog", "access": "superposed"}


def private(sizes: tuple[int, ...] = SIZES, **options: Any) -> World:
    return worlds.world("fedavg", sizes, encoder="mlp", air={"privacy": "gaussian", **options})


def moved(w: World, steps: tuple[float, ...]) -> tuple[Any, Any]:
    """Models that have moved by so much in every number of the head since they were received."""
    received = w.air.down(w.population(shared=""), "")
    by = dict(zip(range(len(steps)), steps, strict=True))

    def move(name: str, t: torch.Tensor) -> torch.Tensor:
        step = torch.tensor([by[k] for k in range(len(by))], dtype=t.dtype).view(-1, *[1] * (t.ndim - 1))
        return t + step if name.startswith("head.") else t

    return mapped(received.spread(""), move), received


def average_updates_of_zero(w: World, rounds: int) -> list[torch.Tensor]:
    """All numbers of the mean in each round: what was added to it."""
    pop, received = moved(w, (0.0, 0.0, 0.0))
    start, drawn = worlds.client(received, 0), []
    for round_ in range(1, rounds + 1):
        w.session.tally.begin(round_)
        mean = w.air.average(pop, "", w.weights(pop.ids), since=received)
        drawn.append(torch.cat([(t[0] - start[name]).flatten() for name, t in mean.items()]))
    return drawn


def test_updates_are_clipped_to_the_norm_and_weigh_the_same() -> None:
    """Of the head's n numbers, moved by 1, -2 and 0.001: norms sqrt(n), 2 sqrt(n) and less than C = 1/2."""
    w = private(sizes=(9, 2, 4), clip=0.5, noise_multiplier=0.0)
    pop, received = moved(w, (1.0, -2.0, 1e-3))
    mean = w.air.average(pop, "head.", w.weights(pop.ids), since=received)
    start, n = worlds.client(received, 0), sum(t.numel() for t in mean.values())
    for name, value in mean.items():
        step = (0.5 / math.sqrt(n) - 0.5 / math.sqrt(n) + 1e-3) / 3
        torch.testing.assert_close(value[0], start[name] + step, rtol=0, atol=1e-12)
    assert w.air.privacy.find_epsilon() is None


def test_without_a_bound_and_noise_it_is_the_method_itself() -> None:
    """Bit for bit: clients of equal size, a norm that nobody reaches."""
    found = [
        worlds.world("fedavg", SIZES, encoder="mlp", air=air)
        for air in ({}, {"privacy": "gaussian", "clip": 1e9, "noise_multiplier": 0.0})
    ]
    first, second = (arms.flat(arms.rounds(w, n=3)[-1]) for w in found)
    assert torch.equal(first, second)


@pytest.mark.parametrize("by", ["base", "clients"])
def test_the_noise_of_a_mean_is_that_of_the_sum_over_the_clients(by: str) -> None:
    w = private(clip=2.0, noise_multiplier=3.0, noise_by=by)
    drawn = average_updates_of_zero(w, 199)
    noise = torch.cat(drawn) / (3.0 * 2.0 / len(SIZES))
    assert abs(float(noise.mean())) < 5 / len(noise) ** 0.5
    assert abs(float(noise.square().mean()) - 1) < 5 * (2 / len(noise)) ** 0.5
    assert not torch.equal(drawn[0], drawn[1])
    assert set(w.air.privacy.spent) == {(3.0, 3.0)}


def test_the_base_station_sees_no_update_without_the_noise_that_its_client_adds() -> None:
    """Of the deviation z C / sqrt(n), each client's own, on top of the clipped update."""
    w = private(clip=2.0, noise_multiplier=3.0, noise_by="clients")
    pop, received = moved(w, (0.0, 0.0, 0.0))
    w.session.tally.begin(1)
    sent, _ = w.air.privacy.clip(pop, "", received, w.weights(pop.ids), "")
    own = [worlds.client(sent, k) for k in range(3)]
    start = worlds.client(received, 0)
    noise = [torch.cat([(mine[name] - t).flatten() for name, t in start.items()]) / (6 / 3**0.5) for mine in own]
    for drawn in noise:
        assert abs(float(drawn.square().mean()) - 1) < 5 * (2 / len(drawn)) ** 0.5
    assert abs(float((noise[0] * noise[1]).mean())) < 5 / len(noise[0]) ** 0.5


def test_toward_the_base_station_the_client_that_sent_most_counts_and_goes_on_counting(tmp_path: Path) -> None:
    """4 clients, z / (2 sqrt(4)) each round; over the air the base station hears the sum alone."""

    def request(out: Path | None = None, **more: Any) -> Any:
        air = {"privacy": "gaussian", "noise_multiplier": 2.0, "noise_by": "clients", "delta": 1e-3, **more}
        channel = {"kind": "awgn", "snr_db": 10.0} if more else {}
        train = {"checkpoint_every": 1}
        return worlds.request("fedavg", encoder="mlp", air=air, train=train, channel=channel, out=out and str(out))

    whole = semcom.run(request())
    told = [line["epsilon_base"] for line in whole.metrics]
    assert told == [pytest.approx(find_gaussian_epsilon(0.5, r, 1e-3), rel=1e-6) for r in range(1, 7)]
    assert whole.metrics[-1]["epsilon"] == pytest.approx(find_gaussian_epsilon(1.0, 6, 1e-3), rel=1e-6)
    interrupt(request(tmp_path), 3)
    assert [timeless(line) for line in semcom.run(request(tmp_path)).metrics] == [timeless(x) for x in whole.metrics]
    summed = semcom.run(request(**UNCODED)).summary
    assert "epsilon_base" not in summed and summed["epsilon"] < whole.summary["epsilon"]


def test_of_clients_that_take_turns_the_base_station_counts_each_ones_updates() -> None:
    w = private(noise_multiplier=2.0, noise_by="clients", delta=1e-3)
    pop, received = moved(w, (0.0, 0.0, 0.0))
    for k in (0, 1, 1, 2):
        w.session.tally.begin(1)
        one = pop.select(np.array([k]))
        w.air.average(one, "", torch.ones(1), since=received.select(one.ids))
    found = w.air.privacy.find_epsilon_of_one()
    assert found == pytest.approx(find_gaussian_epsilon(1 / 3**0.5, 2, 1e-3), rel=1e-6)


@pytest.mark.parametrize("multiplier", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("delta", [1e-5, 1e-2])
def test_one_release_is_the_analytic_gaussian_mechanism(multiplier: float, delta: float) -> None:
    """Balle and Wang, Theorem 8, written out: delta at the epsilon that is found."""
    e = find_gaussian_epsilon(multiplier, 1, delta)
    at = norm.cdf(0.5 / multiplier - e * multiplier) - math.exp(e) * norm.cdf(-0.5 / multiplier - e * multiplier)
    assert at == pytest.approx(delta, rel=1e-6)


def test_many_releases_are_one_with_less_noise_and_none_tells_nothing() -> None:
    assert find_gaussian_epsilon(3.0, 9, 1e-5) == pytest.approx(find_gaussian_epsilon(1.0, 1, 1e-5))
    assert find_gaussian_epsilon(1.0, 0, 1e-5) == 0.0
    assert find_gaussian_epsilon(1e4, 1, 1e-2) == 0.0  # delta alone covers it


@needs_library
@pytest.mark.parametrize("releases", [1, 10, 100])
def test_epsilon_is_that_of_dp_accounting(releases: int) -> None:
    """The exact one by privacy loss distributions; amplified it is less, and never more than without sampling."""
    from dp_accounting import dp_event
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant()
    accountant.compose(dp_event.GaussianDpEvent(2.0), releases)
    exact = find_gaussian_epsilon(2.0, releases, 1e-5)
    assert exact == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-3)
    sampled = [find_sampled_epsilon(((2.0, releases),), n, 1000, 1e-5) for n in (10, 500, 1000)]
    assert sampled[0] < sampled[1] <= exact and sampled[2] == exact


@needs_library
def test_a_run_tells_its_epsilon_and_goes_on_with_it(tmp_path: Path) -> None:
    """What a client keeps would tell later that it took part, so with personal parts nothing is amplified."""

    def request(out: Path | None = None, method: str = "fedavg") -> Any:
        air = {"privacy": "gaussian", "noise_multiplier": 2.0, "delta": 1e-3}
        train = {"participation": 0.5, "checkpoint_every": 1}
        return worlds.request(method, encoder="mlp", air=air, train=train, out=out and str(out))

    whole = semcom.run(request())
    told = [line["epsilon"] for line in whole.metrics]
    assert told == [pytest.approx(find_sampled_epsilon(((1.0, r),), 2, 4, 1e-3), rel=1e-6) for r in range(1, 7)]
    assert whole.summary["epsilon"] == pytest.approx(told[-1])
    interrupt(request(tmp_path), 3)
    assert [timeless(line) for line in semcom.run(request(tmp_path)).metrics] == [timeless(x) for x in whole.metrics]
    best = dataclasses.replace(request(), network=dataclasses.replace(request().network, scheduling="best-snr"))
    chosen = semcom.run(best).metrics[0]["epsilon"]  # a choice that is not by chance hides nobody
    assert chosen == pytest.approx(find_gaussian_epsilon(1.0, 1, 1e-3), rel=1e-6) and chosen > told[0]
    assert semcom.run(request(method="fedper")).metrics[0]["epsilon"] == chosen


@pytest.mark.parametrize(
    ("method", "more", "why"),
    [
        ("fedcl", {}, "air.privacy: 'gaussian' has no effect, as fedcl sends features and labels, which it"),
        ("local", {}, "air.privacy: 'gaussian' has no effect, as local averages no models"),
        ("fedavg", {"compress": "quantise"}, "air.privacy: 'gaussian' has no effect, as compressed updates have no"),
        (
            "fedavg",
            {"parameters": "analog"},
            "air.privacy: 'gaussian' has no effect, as updates that cross the channel uncoded, each by itself",
        ),
        ("fedavg", {"rate": "mcs", "repeat": False}, "air.privacy: 'gaussian' has no effect, as those that arrive"),
        ("fedavg", {"noise_by": "clients", "noise_multiplier": 0.0}, "air.noise-by: 'clients' has no effect with"),
        ("fedavg", {"clip": 0.0}, "air.clip: 0.0 is not a positive number"),
        ("fedavg", {"delta": 1.0}, "air.delta: 1.0 is not a number"),
    ],
)
def test_what_it_would_not_protect_is_refused(method: str, more: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=f"^{why}"):
        worlds.request(method, air={"privacy": "gaussian", **more})


@pytest.mark.parametrize(
    ("method", "why"),
    [
        *(
            (name, f"air.privacy: 'gaussian' has no effect, as {name} does not use it")
            for name in ("scaffold", "feddyn")
        ),
        *(
            (
                name,
                f"air.privacy: 'gaussian' has no effect, as {name} sends means of classes, which it does not protect",
            )
            for name in ("fedcosr", "fedpac")
        ),
    ],
)
def test_methods_that_send_more_than_a_mean_are_refused(method: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"^{why}"):
        semcom.run(worlds.request(method, encoder="mlp", air={"privacy": "gaussian"}))


def test_the_round_in_which_training_ends_is_not_protected() -> None:
    with pytest.raises(
        ConfigError, match="^air.privacy: 'gaussian' has no effect, as the round in which training ends"
    ):
        worlds.request("fedavg", air={"privacy": "gaussian"}, train={"patience": 2, "eval_every": 1})


def test_a_second_average_in_a_round_is_refused() -> None:
    """Both would be of one choice of clients, and a mean of some and of others could have the same noise."""
    w = private()
    pop, received = moved(w, (0.0, 0.0, 0.0))
    w.session.tally.begin(1)
    w.air.average(pop, "head.", w.weights(pop.ids), since=received)
    with pytest.raises(ConfigError, match="^air.privacy: it protects one average in a round"):
        w.air.average(pop, "encoder.", w.weights(pop.ids), since=received)


def test_whole_numbers_pass_if_they_are_the_same_for_all() -> None:
    w = private(noise_multiplier=2.0, noise_by="clients")
    table = {"head.table": torch.arange(3)[None]}
    received = w.air.down(w.population(shared=""), "").share(table)
    mean = w.air.average(received.spread(""), "head.", w.weights(received.ids), since=received)
    assert torch.equal(mean["head.table"], table["head.table"])
    w.session.tally.begin(2)
    moved_on = mapped(received.spread(""), lambda name, t: t + 1 if name == "head.table" else t)
    with pytest.raises(ConfigError, match="^air.privacy: head.table goes up, a statistic without a bounded norm"):
        w.air.average(moved_on, "head.", w.weights(received.ids), since=received)


def test_an_update_that_is_not_finite_is_none() -> None:
    w = private(clip=0.5, noise_multiplier=0.0)
    pop, received = moved(w, (math.inf, math.nan, 1e-3))
    mean = w.air.average(pop, "head.", w.weights(pop.ids), since=received)
    for name, value in mean.items():
        torch.testing.assert_close(value[0], worlds.client(received, 0)[name] + 1e-3 / 3, rtol=0, atol=1e-9)


def test_statistics_of_batchnorm_have_no_bounded_norm() -> None:
    with pytest.raises(ConfigError, match="^air.privacy: .*running_mean goes up, a statistic without a bounded norm"):
        semcom.run(worlds.request("fedavg", encoder="dcgan-narrow", air={"privacy": "gaussian"}))


def heard(snr_db: float, kind: str = "awgn", **options: Any) -> tuple[World, torch.Tensor]:
    """The error of means that are sent at once, over clip / n: of 100 rounds, all numbers."""
    air, channel = (
        {"privacy": "gaussian", "noise_multiplier": 0.0, **UNCODED, **options},
        {"kind": kind, "snr_db": snr_db},
    )
    w = worlds.world("fedavg", SIZES, encoder="mlp", air=air, channel={**channel, "downlink_snr_db": math.inf})
    return w, torch.cat(average_updates_of_zero(w, 100)) / (w.air.privacy.options.clip / len(SIZES))


@pytest.mark.parametrize("snr_db", [-10.0, 10.0])
def test_the_noise_of_the_channel_counts_with_the_deviation_that_it_has(snr_db: float) -> None:
    """1 / sqrt(numbers snr) over AWGN, though updates are zero: powers do not follow them."""
    w, noise = heard(snr_db)
    numbers = len(noise) / 100
    (told,) = {each for each, _ in w.air.privacy.spent}
    assert told == pytest.approx(1 / math.sqrt(numbers * 10 ** (snr_db / 10)), rel=2 / numbers)  # pairs of odd tensors
    assert float(noise.square().mean()) == pytest.approx(told**2, rel=5 * (2 / len(noise)) ** 0.5)


@pytest.mark.parametrize("snr_db", [-10.0, 10.0])
def test_noise_of_clients_takes_of_their_power(snr_db: float) -> None:
    """An update of norm C and N numbers of noise have together 1 + N z^2 / n times its energy."""
    z = 0.05
    w, noise = heard(snr_db, noise_multiplier=z, noise_by="clients")
    numbers, snr = len(noise) / 100, 10 ** (snr_db / 10)
    ((whole, added),) = set(w.air.privacy.spent)
    channel = math.sqrt((1 + numbers * z * z / len(SIZES)) / (numbers * snr))
    assert added == z and whole == pytest.approx(math.hypot(z, channel), rel=2 / numbers)
    assert float(noise.square().mean()) == pytest.approx(whole**2, rel=5 * (2 / len(noise)) ** 0.5)


def test_over_fading_nobody_knows_whose_noise_is_on_a_symbol() -> None:
    air = {"privacy": "gaussian", "noise_by": "clients", **UNCODED}
    with pytest.raises(ConfigError, match="^air.noise-by: 'clients' has no effect, as rayleigh fades, and whose noise"):
        worlds.request("fedavg", air=air, channel={"kind": "rayleigh"})


def test_over_fading_the_sum_is_as_noisy_and_as_sensitive_as_inversion_makes_it() -> None:
    """A symbol that is sent counts 1 / q times, q the fraction of symbols that are sent; added noise hides it less."""
    q = math.exp(-0.1)
    w, noise = heard(0.0, kind="rayleigh", truncation_db=-10.0)
    (told,) = set(w.air.privacy.spent)
    assert told[1] == 0 and float(noise.square().mean()) == pytest.approx((told[0] / q) ** 2, rel=0.05)
    added, _ = heard(0.0, kind="rayleigh", truncation_db=-10.0, noise_multiplier=2.0)
    (both,) = set(added.air.privacy.spent)
    assert both[1] == pytest.approx(2 * q, rel=1e-6) and both[0] == pytest.approx(math.hypot(*told, 2 * q), rel=1e-6)
    far, _ = heard(math.inf, kind="rayleigh", truncation_db=-10.0, noise_multiplier=2.0)
    assert set(far.air.privacy.spent) == {(both[1], both[1])}


def test_a_release_reaches_its_limit_where_all_symbols_of_an_update_are_sent() -> None:
    """Of all gains above the threshold the sum moves by the update over q, so by C / (n q) at most."""
    from semcom.channels.superposition import Inversion

    q, gains = 0.5, torch.ones(1, 8, dtype=torch.complex128)
    inversion = Inversion(0.1, 0.0, torch.ones(1).double(), torch.full((1,), q).double())
    arrives, _ = inversion.invert(gains, torch.Generator())
    values = torch.randn(1, 8, dtype=torch.complex128, generator=torch.Generator().manual_seed(0))
    got = values.sum(0) + inversion.error(values, arrives, None, torch.ones(1).double())
    assert torch.allclose(got, values[0] / q)


def test_counters_of_a_round_do_not_change_in_the_next() -> None:
    w = private(noise_multiplier=2.0)
    pop, received = moved(w, (0.0, 0.0, 0.0))
    before = w.air.counters()
    w.air.average(pop, "", w.weights(pop.ids), since=received)
    assert before["releases"] == [] and w.air.counters()["releases"] == [(2.0, 2.0)]


def test_epsilon_tells_the_noise_of_the_channel_apart() -> None:
    air = {"privacy": "gaussian", "noise_multiplier": 1.0, "delta": 1e-3, **UNCODED}
    summary = semcom.run(
        worlds.request("fedavg", encoder="mlp", air=air, channel={"kind": "awgn", "snr_db": -20.0})
    ).summary
    assert summary["epsilon_added"] == pytest.approx(find_gaussian_epsilon(0.5, summary["rounds"], 1e-3), rel=1e-6)
    assert summary["epsilon"] < summary["epsilon_added"]
    exact = semcom.run(
        worlds.request("fedavg", encoder="mlp", air={**air, "parameters": "ideal", "access": "orthogonal"})
    )
    assert exact.summary["epsilon"] == summary["epsilon_added"] and "epsilon_added" not in exact.summary


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
def test_the_noise_of_liu_and_simeone_suffices(epsilon: float) -> None:
    """Their condition for (epsilon, delta): the sum of squared sensitivities over variances is below 2 R.

    R = (sqrt(epsilon + x^2) - x)^2 with sqrt(pi) x exp(x^2) = 1 / delta. It is sufficient, and within a third of tight.
    """
    delta = 1e-5
    x = brentq(lambda x: math.sqrt(math.pi) * x * math.exp(x * x) - 1 / delta, 0, 5)
    r = (math.sqrt(epsilon + x * x) - x) ** 2
    rounds = [(1 / math.sqrt(share * 2 * r), 1) for share in (0.2, 0.3, 0.5)]
    found = find_gaussian_epsilon(join_multipliers(rounds), 1, delta)
    assert 0.65 * epsilon < found <= epsilon


def test_a_wrong_estimate_bounds_nothing() -> None:
    air = {"privacy": "gaussian", **UNCODED, "csi_error": 0.1}
    with pytest.raises(ConfigError, match="an inversion by wrong estimates has no bounded norm"):
        worlds.request("fedavg", air=air, channel={"kind": "rayleigh"})
