"""The benchmark: what it compares and where, which rate is chosen, and what is left out of its ranks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

import semcom
from semcom.cli import main as cli
from semcom.methods.registry import METHODS
from semcom.studies.analysis.guessing import is_guess
from semcom.studies.experiment import Grid
from semcom.studies.results.archive import pack_archive
from semcom_papers.experiments import benchmark as of
from semcom_papers.experiments import benchmark_ends as end
from semcom_papers.experiments.fedcosr.rates import choose_rates, read_rate_scores
from semcom_papers.experiments.hypotheses import JUDGES
from semcom_papers.experiments.verdicts import OPEN, PENDING, REFUTED, SUPPORTED
from semcom_papers.figures import benchmark as figure


def test_every_method_that_classifies_is_compared_or_is_another_one() -> None:
    there = {variant.method for variant in of.BENCHMARK.compared()}
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


def test_search_tries_four_candidates_of_a_method_or_more_and_its_first_is_the_run_without_a_choice() -> None:
    runs = of.BENCHMARK_RATES.runs("small")
    assert len(runs) == (16 * 4 + 2 * 5 + 5 * 6 + 2 * 8 + 10 + 14) * 6 and {run.config.seed for run in runs} == {1000}
    first = next(run.config for run in runs if run.variant == "pfedme 0")
    assert (first.hyper, first.train.lr) == ({"eta": 0.005, "lr_p": 0.01}, None)
    rates = {run.config.train.lr for run in runs if run.config.method == "fedavg"}
    assert rates == {0.001, 0.003, 0.0003, 0.01}


def test_choice_is_each_methods_with_each_dataset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of, "CHOSEN", {"small": {"cifar100": {"fedper": 1, "scaffold": 4}}})
    grid = of._make_grid("small")
    found = {(r.variant, r.config.data.name): r.config for r in grid.runs(of.BENCHMARK.compared(), "benchmark")}
    assert [found["fedper", data].train.lr for data in ("cifar10", "cifar100")] == [0.001, 0.003]
    assert found["fedrep", "cifar100"].train.lr == 0.001
    rates = {data: (c.train.optimizer, c.train.lr) for (name, data), c in found.items() if name == "scaffold"}
    assert rates == {"cifar100": ("sgd", 0.05), "cifar10": ("adam", 0.001)}
    assert {c.finish.kind for c in found.values()} == {"round"}


def test_settings_of_one_variant_at_a_value_are_refused_without_that_axis() -> None:
    grid = Grid(semcom.RunConfig(), {"seed": (0,)}, apart_of={"fedper": {"data.name": {"cifar10": {"train.lr": 0.1}}}})
    with pytest.raises(semcom.ConfigError, match=r"apart: data.name has runs of its own in no grid"):
        grid.runs(of.BENCHMARK.compared(), "benchmark")


def _score(method: str, place: int, validation: float, status: str = "done", beta: float = 0.1) -> dict[str, object]:
    views = {"view": "personal", "views.personal.validation": validation}
    own = {"views.prototype.validation": validation - 0.5} if method == "fedproto" else {}
    known = {"variant": f"{method} {place}", "method": method, "data.name": "cifar10", "partition.beta": beta}
    return {**known, "status": status, **views, **own}


def test_rate_is_the_best_on_validation_images_the_first_among_ties_and_none_that_diverged() -> None:
    each = {
        "fedper": (0.700, 0.704, 0.60),
        "local": (0.70, 0.71, 0.1),
        "fedproto": (0.6, 0.9),
        "scaffold": (0.9, 0.3, 0.4),
    }
    rows = [
        _score(name, i, value, "failed" if (name, i, beta) == ("scaffold", 0, 0.5) else "done", beta)
        for name, of_places in each.items()
        for i, value in enumerate(of_places)
        for beta in (0.1, 0.5)
    ]
    rows += [_score("local", 3, 0.72), _score("local", 3, 0.74, beta=0.5)]
    rows += [_score("local", 4, 0.9)]  # in one division alone
    found = read_rate_scores(pd.DataFrame(rows), of.VIEWS)
    scores = found.set_index(["method", "place"])["score"]
    assert scores["local", 3] == pytest.approx(73) and scores[[("scaffold", 0), ("local", 4)]].isna().all()
    assert scores["fedproto", 1] == pytest.approx(40)  # of the view that counts
    assert choose_rates(found) == {"cifar10": {"local": 3, "scaffold": 2, "fedproto": 1}}


def test_run_guesses_at_chance_or_where_all_clients_have_one_accuracy() -> None:
    assert is_guess(0.125, [0.1, 0.15], 10) and is_guess(0.5, [0.5, 0.5], 10)
    assert not is_guess(0.126, [0.1, 0.152], 10) and not is_guess(0.7, [0.7, 0.7], 10)


def _ends(values: dict[tuple[str, int], list[float]], guess: tuple[str, int, int] | None = None) -> pd.DataFrame:
    """Return runs by variant and clients, a seed for each accuracy."""
    where = dict(zip(of.DIVISION, of.CIFAR[0], strict=True)) | {"model.encoder": "lenet"}
    return pd.DataFrame(
        {"variant": name, **where, "clients": clients, "seed": seed, "guess": (name, clients, seed) == guess}
        | {"view": "personal", "counts": True, **dict.fromkeys(end.NUMBERS, value)}
        | {**dict.fromkeys(end.COSTS, 1.0), "own": 0.5, "common": 0.1}
        for (name, clients), of_seeds in values.items()
        for seed, value in enumerate(of_seeds)
    )


def test_ranks_are_of_means_over_seeds_that_do_not_guess() -> None:
    runs = {("a", 20): [0.5, 0.1], ("b", 20): [0.4, 0.4], ("a", 100): [0.6, 0.6], ("b", 100): [0.5, 0.5]}
    runs |= {("c", 20): [0.1, 0.1], ("c", 100): [0.7, 0.7]}
    ends = _ends(runs, guess=("a", 20, 1))
    means = end.average_settings(ends)
    assert means.set_index(["variant", "clients"]).loc[("a", 20), ["mean", "guesses", "n"]].tolist() == [0.5, 1, 2]
    assert figure.rank_ends(ends).set_index("variant")["mean"].to_dict() == {"a": 1.5, "c": 2.0, "b": 2.5}
    with_all = figure.rank_ends(ends, all_runs=True)
    assert with_all.set_index("variant")["mean"].to_dict() == {"a": 2.0, "b": 2.0, "c": 2.0}
    table = figure.tabulate_methods(ends).set_index("method")
    assert table.loc["a", "cifar10, m = 2, 20 clients"] == "50.0 / 50.0 / 50.0 (1)"
    assert table["mean rank, all runs"].to_dict() == {"a": "2.0", "b": "2.0", "c": "2.0"}
    assert figure.describe_top_cliques(ends) == ""


def test_setting_counts_where_all_methods_have_as_many_seeds() -> None:
    runs = {("a", 20): [0.5, 0.5], ("b", 20): [0.4, 0.4], ("a", 100): [0.6, 0.6], ("b", 100): [0.5]}
    with pytest.raises(semcom.ConfigError, match="1 settings have all 2 variants"):
        figure.rank_ends(_ends(runs))


def _grid(value: Callable[[str, of.Division, int, int], float], clients: Sequence[int] = (20, 100)) -> pd.DataFrame:
    """Return three seeds in the twelve settings, `value` of method, division, clients and seed."""
    rows = []
    for division, size, seed in itertools.product(of.CIFAR, clients, range(3)):
        where = dict(zip(of.DIVISION, division, strict=True)) | {"clients": size, "model.encoder": "lenet"}
        for name in FIVE:
            view = "global" if name == "fedavg" else "personal"
            run = {"variant": name, **where, "seed": seed, "view": view, "counts": True, "guess": False}
            accuracy = value(name, division, size, seed)
            rows.append({**run, **dict.fromkeys(end.NUMBERS, accuracy), **dict.fromkeys(end.COSTS, 1.0)})
    return pd.DataFrame(rows)


FIVE = ("local", "fedavg", "fedavg_ft", "fedper", "fedrep")


def _judge(ends: pd.DataFrame) -> dict[str, dict[str, object]]:
    """Return the rows of the hypotheses themselves by their first words."""
    rows = JUDGES.get("benchmark")(ends)
    return {row["hypothesis"].split()[0]: row for row in rows if not row["hypothesis"].startswith(("fewer", "("))}


@pytest.mark.parametrize(
    ("lead", "spread", "tuned", "difference", "answer"),
    [
        (0.01, 0.001, 0.60, 1.0, SUPPORTED),  # 1 point, give or take a quarter
        (0.03, 0.001, 0.60, 3.0, REFUTED),  # one method is 3 points above
        (0.01, 0.010, 0.60, 1.0, OPEN),  # the interval is 2.5 points to both sides
        (0.01, 0.001, 0.10, 51.0, REFUTED),
    ],
)
def test_fine_tuned_fedavg_is_in_the_top_clique_and_nobody_far_above(
    lead: float, spread: float, tuned: float, difference: float, answer: str
) -> None:
    levels = {"local": 0.4, "fedavg": 0.3, "fedavg_ft": tuned, "fedper": 0.6 + lead, "fedrep": 0.5}
    ends = _grid(lambda name, division, size, seed: levels[name] + (seed - 1) * spread * (name != "fedavg_ft"))
    row = _judge(ends)["fine-tuned"]
    assert (round(row["difference"], 6), row["seeds"], row["answer"]) == (difference, 3, answer)
    behind = 4 if tuned == 0.1 else 1
    assert row["place"] == f"{behind:.1f} ranks behind the best, critical 1.8; largest lead: fedper"


def test_last_of_many_is_not_in_the_top_clique_though_nobody_is_far_above() -> None:
    levels = {"local": 0.604, "fedavg": 0.603, "fedavg_ft": 0.60, "fedper": 0.602, "fedrep": 0.601}
    ends = _grid(lambda name, division, size, seed: levels[name] + (seed - 1) * 0.0001 * (name != "fedavg_ft"))
    rows = list(JUDGES.get("benchmark")(ends))
    assert [row["answer"] for row in rows[:5]] == [REFUTED, *[SUPPORTED] * 4]


def test_runs_that_guess_or_failed_lead_nobody() -> None:
    """FedPer's seed 1 is 20 points above in the first setting, but guesses; FedRep's has failed in the second."""

    def value(name: str, division: of.Division, size: int, seed: int) -> float:
        return 0.6 + (seed - 1) * 0.001 * (name != "fedavg_ft")

    ends = _grid(value)
    rows = list(ends.index[(ends["seed"] == 1) & (ends["variant"] == "fedper")])
    ends.loc[rows[0], ["accuracy", "guess"]] = 0.8, True
    failed = list(ends.index[(ends["seed"] == 1) & (ends["variant"] == "fedrep")])[1]
    ends.loc[failed, ["accuracy", "guess", "view"]] = np.nan, True, None
    leads = {row["place"]: row for row in JUDGES.get("benchmark")(ends) if row["hypothesis"].startswith("fewer")}
    assert [round(leads[name]["difference"], 6) for name in ("fedper", "fedrep")] == [0, 0]
    assert [leads[name]["seeds"] for name in ("fedper", "fedrep")] == [3, 3]


@pytest.mark.parametrize(("more", "answer"), [(0.02, SUPPORTED), (-0.02, REFUTED), (0.0, OPEN)])
def test_sharing_pays_more_with_more_classes(more: float, answer: str) -> None:
    """Gains over Local are 1, 2 and 9 points with m classes a client; FedAvg, which has one model for all, has 30."""
    gains = {"local": 0.0, "fedavg": 0.3, "fedavg_ft": 0.01, "fedper": 0.02, "fedrep": 0.09}

    def value(name: str, division: of.Division, size: int, seed: int) -> float:
        many = (more + (seed - 1) * 0.001) * (division[2] == 0.5) * (name != "local")
        return 0.4 + size / 1000 + gains[name] + many

    row = _judge(_grid(value))["sharing"]
    assert (round(row["difference"], 6), row["answer"]) == (100 * more, answer)
    said = {row["place"]: row["difference"] for row in JUDGES.get("benchmark")(_grid(value)) if row["answer"] == ""}
    assert {place: round(found, 6) for place, found in said.items()} == {
        "m classes a client": 2.0,
        "beta 0.5": 2 + 100 * more,
    }


@pytest.mark.parametrize(
    ("orders", "rho", "answer"),
    [
        (("01234", "01243", "01234"), 2.9 / 3, SUPPORTED),  # two neighbours changed: 1 - 6 * 2 / (5 * 24)
        (("43210", "43201", "43210"), -2.9 / 3, REFUTED),
        (("01234", "01243", "43210"), 0.3, OPEN),
    ],
)
def test_order_of_methods_is_the_same_with_part_of_many(orders: Sequence[str], rho: float, answer: str) -> None:
    def value(name: str, division: of.Division, size: int, seed: int) -> float:
        place = FIVE.index(name)
        return 0.5 + 0.01 * (place if size == 20 else int(orders[seed][place]))

    row = _judge(_grid(value))["the"]
    assert (round(row["difference"], 6), row["seeds"], row["answer"]) == (round(rho, 6), 3, answer)


def test_order_is_pending_until_there_are_runs_with_part_of_many() -> None:
    ends = _grid(lambda name, division, size, seed: 0.5 + 0.01 * FIVE.index(name) + seed / 1000, clients=(20,))
    assert _judge(ends)["the"]["answer"] == PENDING


def test_seeds_count_that_all_whole_settings_have() -> None:
    ends = _grid(lambda name, division, size, seed: 0.5 + 0.01 * FIVE.index(name) + seed / 1000)
    found = end.tabulate_accuracies(ends[(ends["clients"] == 20) | (ends["seed"] < 2)])
    assert len(found) == 24 and {*found.index.get_level_values("seed")} == {0, 1}
    lacking = end.select_ends(ends[(ends["variant"] != "fedper") | (ends["clients"] == 20) | (ends["seed"] > 0)])
    assert {*end.tabulate_accuracies(lacking).index.get_level_values("seed")} == {*ends["seed"]} - {0}
    ranks = figure.rank_ends(lacking).set_index("variant")
    assert (ranks["n"] == 12).all() and ranks["mean"].equals(figure.rank_ends(ends).set_index("variant")["mean"])
    without = end.select_ends(ends[(ends["variant"] != "fedper") | (ends["clients"] == 20)])
    assert {*without["clients"]} == {20} and len(figure.compare_with_control(end.average_settings(without))) == 4


def test_other_views_and_answers_that_never_change_stand_beside() -> None:
    def run(name: str, seed: int, **own: Any) -> Any:
        fields = dict(zip(of.DIVISION, of.CIFAR[0], strict=True)) | {"clients": 20, "model.encoder": "lenet"}
        end = {"accuracy": 0.4, "pooled": 0.5, "worst10": 0.3, "clients": [0.3, 0.5], "classes": [0.4] * 10}
        tuned = {**end, "accuracy": 0.6 + seed / 10, "clients": [0.5, 0.8]}
        lines = [{"views": {"global": end}}, {"views": {"personal": tuned}}]
        summary = {"views": {"global": {}, "personal": {}}, "constant": {"own": 0.5 + seed / 10, "common": 0.1}}
        summary |= {"traffic": {"up": {"floats": 3.0}, "down": {"floats": 4.0}}}
        summary |= {"samples": 90, "seconds": {"train": 2.0, "train/step": 1.0, "setup": 1.0}}
        known = {"variant": name, "status": "done", "summary": summary, "headline": "global", "lines": lambda: lines}
        return SimpleNamespace(fields={**fields, "seed": seed}, **{**known, **own})

    runs = [run("fedbabu", 0), run("fedbabu", 1), run("fedavg", 0), run("fedavg", 1, status="failed", summary=None)]
    views = end.tabulate_views(cast(Any, SimpleNamespace(stored=runs)))
    ends = end.select_ends(views)
    assert ends[["variant", "view", "accuracy", "guess"]].astype(object).fillna(-1).values.tolist() == [
        ["fedbabu", "personal", 0.6, False],
        ["fedbabu", "personal", 0.7, False],
        ["fedavg", "global", 0.4, False],
        ["fedavg", -1, -1, True],
    ]
    assert ends[["floats", "samples", "seconds"]].iloc[0].tolist() == [7, 90, 3]
    means = end.average_settings(ends).set_index("variant")
    assert means.loc["fedavg", ["mean", "guesses", "n"]].tolist() == [0.4, 1, 2]
    assert end.average_settings(ends, all_runs=True).set_index("variant").loc["fedavg", "mean"] == 0.2  # failed: 0
    waited = end.average_settings(pd.concat([ends, ends.iloc[:1].assign(seconds=900.0)])).set_index("variant")
    assert waited.loc["fedbabu", "seconds"] == 3
    beside = figure.tabulate_beside(views).set_index("answers")["cifar10, m = 2, 20 clients"]
    assert beside.to_dict() == {
        "FedBABU, global": "40.0 / 50.0 / 30.0",
        "FedAvg, personal": "60.0 / 50.0 / 30.0",
        "each client's most frequent class": "55.0 / - / -",
        "the most frequent class of all": "10.0 / - / -",
    }


def test_who_is_best_with_runs_that_guess_is_said_where_it_differs() -> None:
    values = {(name, size): [0.9 - 0.1 * place] for place, name in enumerate("abcdefgh") for size in (20, 100)}
    ends = pd.concat([_ends(values).assign(**{"partition.classes": m}) for m in range(2, 10)])
    assert figure.describe_top_cliques(ends) == ""
    text = figure.describe_top_cliques(ends.assign(guess=ends["variant"] == "a"))
    assert text == "The top clique is b, c, d; with runs that guess it is a, b, c."


MINE = """
from semcom import METHODS
from semcom.methods.fedavg import FedAvg


@METHODS.register("mine")
class Mine(FedAvg):
    averages = ("encoder.",)
"""


@pytest.mark.usefixtures("own_names", "thin")
def test_method_of_a_plugin_has_a_rank_among_those_of_an_archive(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin, others, joined = tmp_path / "mine.py", tmp_path / "others", tmp_path / "joined"
    plugin.write_text(MINE)
    words = ["sweep", "benchmark", "--scale", "smoke", "--vary", "clients=4", "--methods"]
    assert cli.main([*words, "fedavg,fedper", "--out", str(others)]) == 0
    reuse = ["--reuse", str(pack_archive(others))]
    assert cli.main([*words, "mine", "--plugin", str(plugin), *reuse, "--out", str(joined)]) == 0
    ends = end.read_ends(joined)
    found = ends.pivot(index="partition.kind", columns="variant", values="accuracy")
    assert found["mine"].tolist() == found["fedper"].tolist() != found["fedavg"].tolist()
    ranks = figure.rank_ends(ends)
    assert {*ranks["variant"]} == {"fedavg", "fedper", "mine"} and set(ranks["n"]) == {2}
    capsys.readouterr()
    figure._print_tables(str(joined))
    assert "\n| mine |" in capsys.readouterr().out
