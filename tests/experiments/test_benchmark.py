"""The benchmark: what it compares and where, which rate is chosen, and what is left out of its ranks."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import semcom
from experiments import benchmark as of
from figures import benchmark as figure
from semcom.methods.registry import METHODS
from semcom.plots.ranks import tabulate_ranks
from semcom.studies.analysis.guessing import is_guess
from semcom.studies.experiment import Grid


def test_every_method_that_classifies_is_compared_or_is_another_one() -> None:
    there = {variant.method for variant in of.list_variants()}
    shipped = {name for name in METHODS.names() if METHODS.ships(name)}
    assert shipped - there == {"fedcrl", "fedbn"} and len(there) == len(of.METHODS) == 27
    assert set(of.VIEWS) <= there


def test_twelve_settings_have_five_seeds_and_the_rest_follows_from_the_clients() -> None:
    runs = [run.config for run in of.BENCHMARK.runs("small") if run.variant == "fedper"]
    settings = {(c.data.name, c.partition.kind, str(c.partition.options), c.clients) for c in runs}
    assert (len(runs), len(settings)) == (60, 12)
    drawn = {(c.clients, c.train.participation, c.train.rounds, c.partition.options["fraction"]) for c in runs}
    assert drawn == {(20, None, 20, 0.06), (100, 0.2, 40, 0.2)}
    assert {c.clients * (c.train.participation or 1) for c in runs} == {20}


def test_search_tries_three_candidates_of_each_method_and_its_first_is_the_run_without_a_choice() -> None:
    runs = of.BENCHMARK_RATES.runs("small")
    assert len(runs) == 27 * 3 * 6 and {run.config.seed for run in runs} == {1000}
    first = next(run.config for run in runs if run.variant == "pfedme 0")
    assert (first.hyper, first.train.lr) == ({"eta": 0.005, "lr_p": 0.01}, None)
    rates = {run.config.train.lr for run in runs if run.config.method == "fedavg"}
    assert rates == {0.001, 0.003, 0.0003}


def test_choice_is_each_methods_with_each_dataset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of, "CHOSEN", {"small": {"cifar100": {"fedper": 1, "scaffold": 2}}})
    grid = of._make_benchmark("small")
    found = {(r.variant, r.config.data.name): r.config for r in grid.runs(of.list_variants(), "benchmark")}
    assert [found["fedper", data].train.lr for data in ("cifar10", "cifar100")] == [0.001, 0.003]
    assert found["fedrep", "cifar100"].train.lr == 0.001
    assert found["scaffold", "cifar100"].hyper == {"eta_l": 0.01} and found["scaffold", "cifar10"].hyper is None


def test_settings_of_one_variant_at_a_value_are_refused_without_that_axis() -> None:
    grid = Grid(semcom.RunConfig(), {"seed": (0,)}, apart_of={"fedper": {"data.name": {"cifar10": {"train.lr": 0.1}}}})
    with pytest.raises(semcom.ConfigError, match=r"apart: data.name has runs of its own in no grid"):
        grid.runs(of.list_variants(), "benchmark")


def _score(
    method: str, place: int, validation: float, status: str = "done", data: str = "cifar10"
) -> dict[str, object]:
    views = {"view": "personal", "views.personal.validation": validation}
    own = {"views.prototype.validation": validation - 0.5} if method == "fedproto" else {}
    return {"variant": f"{method} {place}", "method": method, "data.name": data, "status": status, **views, **own}


def test_rate_is_the_best_on_validation_images_the_first_among_ties_and_none_that_diverged() -> None:
    rows = [
        *(_score("fedper", 0, 0.700), _score("fedper", 1, 0.704), _score("fedper", 2, 0.60)),
        *(_score("local", 0, 0.70), _score("local", 1, 0.72), _score("local", 1, 0.70), _score("local", 2, 0.1)),
        *(_score("scaffold", 0, np.nan, "failed"), _score("scaffold", 1, 0.2), _score("scaffold", 2, 0.3)),
        *(_score("fedproto", 0, 0.6), _score("fedproto", 1, 0.9)),
    ]
    scores = of.read_rate_scores(pd.DataFrame(rows)).set_index(["method", "place"])["score"]
    assert scores["local", 1] == pytest.approx(71) and np.isnan(scores["scaffold", 0])
    assert scores["fedproto", 1] == pytest.approx(40)  # of the view that counts
    found = of.choose_rates(of.read_rate_scores(pd.DataFrame(rows)))
    assert found == {"cifar10": {"local": 1, "scaffold": 2, "fedproto": 1}}


def test_run_guesses_at_chance_or_where_all_clients_have_one_accuracy() -> None:
    assert is_guess(0.125, [0.1, 0.15], 10) and is_guess(0.5, [0.5, 0.5], 10)
    assert not is_guess(0.126, [0.1, 0.152], 10) and not is_guess(0.7, [0.7, 0.7], 10)


def _ends(values: dict[tuple[str, int], list[float]], guess: tuple[str, int, int] | None = None) -> pd.DataFrame:
    """Return runs by variant and clients, a seed for each accuracy."""
    where = dict(zip(of.DIVISION, of.CIFAR[0], strict=True)) | {"model.encoder": "lenet"}
    return pd.DataFrame(
        {"variant": name, **where, "clients": clients, "seed": seed, "guess": (name, clients, seed) == guess}
        | dict.fromkeys(figure.NUMBERS, value)
        | {"floats": 1.0, "seconds": 1.0}
        for (name, clients), of_seeds in values.items()
        for seed, value in enumerate(of_seeds)
    )


def test_ranks_are_of_means_over_seeds_that_do_not_guess() -> None:
    runs = {("a", 20): [0.5, 0.1], ("b", 20): [0.4, 0.4], ("a", 100): [0.6, 0.6], ("b", 100): [0.5, 0.5]}
    runs |= {("c", 20): [0.1, 0.1], ("c", 100): [0.7, 0.7]}
    ends = _ends(runs, guess=("a", 20, 1))
    means = figure.average_settings(ends)
    assert means.set_index(["variant", "clients"]).loc[("a", 20), ["mean", "guesses", "n"]].tolist() == [0.5, 1, 2]
    ranks = tabulate_ranks(means, list(figure.SETTING)).set_index("variant")["mean"]
    assert ranks.to_dict() == {"a": 1.5, "c": 2.0, "b": 2.5}
    with_all = tabulate_ranks(figure.average_settings(ends, all_runs=True), list(figure.SETTING))
    assert with_all.set_index("variant")["mean"].to_dict() == {"a": 2.0, "b": 2.0, "c": 2.0}


def test_setting_counts_where_all_methods_have_as_many_seeds() -> None:
    runs = {("a", 20): [0.5, 0.5], ("b", 20): [0.4, 0.4], ("a", 100): [0.6, 0.6], ("b", 100): [0.5]}
    with pytest.raises(semcom.ConfigError, match="1 settings have all 2 variants"):
        tabulate_ranks(figure.average_settings(_ends(runs)), list(figure.SETTING))
