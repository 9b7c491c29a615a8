"""Studies: tables of runs with known numbers, and answers worked out by hand."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import semcom
from semcom.config import ChannelConfig, FinishConfig, run_hash
from semcom.runs.result.accuracy import LAST
from semcom.studies.analysis.comparison import Comparison
from semcom.studies.analysis.efficiency import compute_cost_until_target
from semcom.studies.analysis.overview import read_overview
from semcom.studies.analysis.sheet import make_sheet
from semcom.studies.analysis.study import Study
from semcom.studies.results import table
from semcom.studies.results.run import read_stored_runs
from tests.refusals import refuses
from tests.studies.folders import TRAFFIC, begin, config, keep, line, scored, simple, write

SNR = "channel.snr_db"
KEYS = ["hash", "method", "variant", "seed"]


# Which runs there are ------------------------------------------------------------------------------------------------


def test_a_running_sweep_lists_what_has_come_of_each_run(tmp_path: Path) -> None:
    done, failed, damaged, active, coming = (config(seed=seed) for seed in range(5))
    simple(tmp_path, done, [0.5, 0.7])
    begin(tmp_path / run_hash(failed), failed, [])
    (tmp_path / run_hash(failed) / "error.txt").write_text("RunError: the loss is NaN\nTraceback\n")
    summary = simple(tmp_path, damaged, [0.5, 0.7]) / "summary.json"
    summary.write_text(summary.read_text().replace('"samples": 1000', '"samples": 1001'))
    begin(tmp_path / run_hash(active), active, [line(1, {"personal": scored([0.25, 0.5])})])
    variants = {run_hash(each): "mine" for each in (done, failed, damaged, active, coming)}
    (tmp_path / "sweep.json").write_text(
        json.dumps({"experiment": "x", "scale": "y", "command": "z", "variants": variants})
    )

    study = semcom.study(tmp_path)
    runs = study.runs.set_index("hash")
    assert [runs["status"][key] for key in variants] == ["done", "failed", "failed", "unfinished", "pending"]
    assert runs["error"][run_hash(failed)] == "RunError: the loss is NaN"
    assert "its digest is not that of its content" in runs["error"][run_hash(damaged)]
    assert set(runs["variant"]) == {"mine"} and runs["folder"][run_hash(done)] == str(tmp_path / run_hash(done))
    assert runs["view"][run_hash(done)] == "personal" and runs["view"].count() == 1
    assert runs["accuracy"][run_hash(done)] == pytest.approx(0.6) and runs["accuracy"].count() == 1
    assert runs["partition.ways"][run_hash(failed)] == 3 and runs["samples"][run_hash(done)] == 1000
    assert set(study.rounds["hash"]) == {run_hash(each) for each in (done, active)}, "curves while they come"
    assert repr(study) == "Study of 5 runs (2 failed, 1 done, 1 unfinished, 1 pending) of mine"


def test_a_single_run_and_a_folder_of_runs(tmp_path: Path) -> None:
    for name, accuracy in (("b", 0.5), ("a", 0.25)):
        of = config(method={"a": "fedavg", "b": "fedcl"}[name])
        write(tmp_path / name, of, [line(4, {"personal": scored([accuracy, accuracy])})])
    one = semcom.study(str(tmp_path / "b"))
    assert list(one.runs["accuracy"]) == [0.5] and one.axes == () and list(one.runs)[:4] == KEYS
    both = semcom.study(tmp_path)
    assert list(both.runs["method"]) == ["fedavg", "fedcl"] == both.variants and list(both.runs["accuracy"]) == [
        0.25,
        0.5,
    ]


def test_a_sweep_tells_of_runs_without_a_configuration(tmp_path: Path) -> None:
    """As of an experiment that trains in its own way, and of a run that was never started."""
    rows = []
    for seed, error in ((0, None), (1, "not started: the disk is full")):
        of = config(seed=seed)
        rows.append(table.make_table_row(of, {"experiment": "x"}, None, error))
        if not error:
            folder = simple(tmp_path, of, [0.5, 0.7])
            (folder / "config.json").unlink()
    table.write_table(table.make_table(rows), tmp_path / "results.parquet")
    runs = semcom.study(tmp_path).runs
    assert list(runs["status"]) == ["done", "failed"] and list(runs["seed"]) == [0, 1]
    assert runs["error"][1] == "not started: the disk is full" and runs["accuracy"][0] == pytest.approx(0.6)
    assert list(runs["partition.ways"]) == [3, 3]
    (tmp_path / ".owner").write_text("process 1")  # a sweep is running: what failed is tried again
    assert list(semcom.study(tmp_path).runs["status"]) == ["done", "pending"]


def test_what_is_no_study(tmp_path: Path) -> None:
    with refuses("study", "nowhere"):
        semcom.study(tmp_path / "nowhere")
    with refuses("study", tmp_path):
        semcom.study(tmp_path)
    for name in ("a", "b"):
        write(tmp_path / name, config(), [line(4, {"personal": scored([1.0, 0.0])})])
    with refuses("study", tmp_path / "a", tmp_path / "b"):
        semcom.study(tmp_path)
    (tmp_path / "a" / "config.json").write_text("{")
    with refuses("study", "config.json"):
        semcom.study(tmp_path / "a")


# What varies ---------------------------------------------------------------------------------------------------------


def test_axes_are_the_fields_that_vary_but_not_a_methods_own(tmp_path: Path) -> None:
    for method, hyper in (("fedcl", {"lam": 0.5}), ("fedprox", {"mu": 0.1})):
        for seed in (0, 1):
            for snr in (18.0, 6.0):
                simple(tmp_path, config(method, seed, snr, hyper=hyper), [0.5, 0.5])
    study = semcom.study(tmp_path)
    assert study.axes == (SNR,)
    assert list(study.runs)[:5] == [*KEYS, SNR]
    assert list(study.runs[SNR]) == [6, 6, 18, 18] * 2 and list(study.runs["seed"]) == [0, 1] * 4
    simple(tmp_path, config("fedcl", 0, 6.0, hyper={"lam": 0.25}), [0.5, 0.5])
    assert semcom.study(tmp_path).axes == ("hyper.lam", SNR)


def test_methods_at_different_points_are_not_compared_unless_these_are_variants(tmp_path: Path) -> None:
    """Without names for the variants, a channel that differs between methods alone is no setting of the method."""
    runs = [config("fedcl", 0, 6.0), config("fedavg", 0, 18.0)]
    for of in runs:
        simple(tmp_path, of, [0.5, 0.25])
    study = semcom.study(tmp_path)
    assert study.axes == (SNR,)
    with refuses("compare", "fedcl and fedavg"):
        study.compare("fedcl", "fedavg")
    names = {run_hash(of): name for of, name in zip(runs, ("near", "far"), strict=True)}
    (tmp_path / "sweep.json").write_text(json.dumps({"variants": names}))
    declared = semcom.study(tmp_path)
    assert declared.axes == () and declared.compare("near", "far").difference == 0


def test_what_follows_from_the_axes_is_none(tmp_path: Path) -> None:
    """RepPer trains heads for 100 epochs whatever classifier is asked for, FedAvg where that is a head, so that epochs
    would keep points apart; rounds follow from the SNR in both."""
    names = {}
    for method, epochs in (("fedavg", {"linear": 100, "svm": None}), ("repper", {"linear": 100, "svm": 100})):
        for kind, number in epochs.items():
            for snr, rounds in ((6.0, 4), (18.0, 8)):
                of = config(method, 0, snr, rounds=rounds, finish=FinishConfig(kind=kind, epochs=number))
                simple(tmp_path, of, [0.5 if method == "fedavg" else 0.75 if kind == "svm" else 1.0] * 2)
                names[run_hash(of)] = method
    swept = {"variant": ["fedavg", "repper"], "finish.kind": ["linear", "svm"], SNR: [6.0, 18.0], "seed": [0]}
    (tmp_path / "sweep.json").write_text(json.dumps({"variants": names, "axes": swept}))
    study = semcom.study(tmp_path)
    assert study.axes == (SNR, "finish.kind")
    found = study.compare_all(["repper", "fedavg"])
    assert [(one.point["finish.kind"], one.difference) for one in found] == [("linear", 0.5), ("svm", 0.25)] * 2


def test_where_selects_by_number_text_and_list(tmp_path: Path) -> None:
    for snr in (0.0, 9.0, 18.0):
        simple(tmp_path, config(snr=snr), [0.5, 0.5])
    study = semcom.study(tmp_path)
    for wanted in (9, 9.0, "9", "9.0", [9], ("9",)):
        assert list(study.where({SNR: wanted}).runs[SNR]) == [9.0]
    assert list(study.where({"channel.snr-db": [0, "18"]}).runs[SNR]) == [0.0, 18.0]
    assert study.where({SNR: 9}).axes == (SNR,), "it is still a part of that study"
    assert len(study.where({"method": "fedcl", "seed": 0, "partition.ways": 3}).stored) == 3


def of_tests(folder: Path, of: semcom.RunConfig, accuracy: float, at: dict[str, float]) -> None:
    """Write a run of one round that was tested at several SNRs; it has its accuracy at the first of them."""
    of = dataclasses.replace(of, channel=dataclasses.replace(of.channel, test_snr_db=",".join(at)))
    write(folder / run_hash(of), of, [line(4, {"personal": scored([accuracy] * 2, at=at)})])


def test_a_test_snr_is_an_axis_like_any_other(tmp_path: Path) -> None:
    """Two methods tested at -15 dB, the first one, and at 9 dB."""
    for seed in (0, 1):
        of_tests(tmp_path, config("fedcl", seed), 0.6, {"-15": 0.6, "9": 0.9})
        of_tests(tmp_path, config("local", seed), 0.5 + seed / 100, {"-15": 0.5 + seed / 100, "9": 0.8 + seed / 50})
    found = semcom.study(tmp_path)
    assert found.axes == ("test_snr_db",) and len(found.stored) == len(found.runs) == 4 and len(found.results) == 8
    means = found.mean().set_index(["variant", "test_snr_db"])["mean"]
    assert means[("fedcl", 9)] == pytest.approx(0.9) and means[("local", -15)] == pytest.approx(0.505)
    assert list(found.mean(metric="worst10")["test_snr_db"]) == [-15, -15], "it is known at the first one only"
    for name in ("channel.test-snr-db", "channel.test_snr_db", "test_snr_db"):
        part = found.where({name: "9"})
        assert len(part.results) == 4 and len(part.runs) == 4 and part.clients.empty and part.rounds.empty
    assert set(found.clients["test_snr_db"]) == set(found.rounds["test_snr_db"]) == {-15}
    with refuses("at", "test_snr_db 3", "-15, 9"):
        found.where({"test_snr_db": 3})
    with refuses("metric", "worst10"):
        found.where({"test_snr_db": 9}).mean(metric="worst10")
    with refuses("at", "test_snr_db"):
        found.compare("fedcl", "local")
    assert found.compare("fedcl", "local", metric="worst10").point == {"test_snr_db": -15}
    one = found.where({"test_snr_db": 9}).compare("fedcl", "local")
    assert one.sentence.startswith("At test SNR 9 dB, ") and one.difference == pytest.approx(0.09) and one.clients == 0
    assert [each.family for each in found.compare_all(["fedcl", "local"])] == [2, 2]
    head = make_sheet(found).markdown().splitlines()[2]
    assert head == "| Method | test SNR -15 dB | test SNR 9 dB |"
    with refuses("test_snr_db", "-15 and 9"):
        make_sheet(found, columns=[])
    assert "SNR test" not in read_overview(tmp_path).air(), "-14.98 dB is the SNR of no test"


def test_runs_with_other_test_snrs_meet_where_both_were_tested(tmp_path: Path) -> None:
    of_tests(tmp_path, config("fedcl"), 0.6, {"-15": 0.6, "9": 0.9})
    of_tests(tmp_path, config("local"), 0.7, {"9": 0.7, "3": 0.65})
    found = semcom.study(tmp_path)
    assert found.axes == ("test_snr_db",)
    (one,) = found.compare_all()
    assert one.point == {"test_snr_db": 9} and one.difference == pytest.approx(0.2)
    of_tests(tmp_path, config("local"), 0.6, {"9": 0.6, "0": 0.5})
    with refuses("study", "further test SNRs"):
        semcom.study(tmp_path).compare_all()


# Tables --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def curves(tmp_path: Path) -> Study:
    """One run of 12 rounds: `personal` is tested in all but the first, `global` in the last; a last stage follows."""
    of = config(rounds=12)
    lines: list[dict[str, Any]] = [line(1)]
    for r in range(2, 13):
        views = {"personal": scored([r / 20, r / 10 - 0.1], classes=(r / 20, None, 0.5))}
        lines.append(line(r, views | ({"global": scored([0.25, 0.5])} if r == 12 else {})))
    finish = line(13, {"finished": scored([0.75, 1.0], classes=(1.0, None, 0.75))})
    folder = write(tmp_path / "run", of, lines, finish=finish)
    confusion = np.zeros((2, 3, 3), dtype=int)
    confusion[0, 0, 0], confusion[0, 2, 0], confusion[1, 2, 0] = 4, 1, 2
    keep(folder, of, confusion, np.array([[5, 0, 1], [0, 7, 2]]), np.array([[4, 0, 1], [0, 0, 2]]))
    return semcom.study(folder)


def test_rounds(curves: Study) -> None:
    rounds = curves.rounds
    assert list(rounds["round"]) == [*range(1, 13), 12, 13]
    assert rounds["view"].isna().tolist() == [True] + 13 * [False] and math.isnan(rounds["accuracy"][0])
    personal = rounds[rounds["view"] == "personal"].set_index("round")
    assert personal["accuracy"][4] == pytest.approx((0.2 + 0.3) / 2) and personal["loss"][4] == 0.25
    assert personal["worst10"][4] == pytest.approx(0.2) and personal["jain"][4] == 1 and personal["seconds"][4] == 0.5
    assert personal["accuracy_std"][4] == pytest.approx(0.05)
    assert rounds["view"].iloc[-1] == "finished" and rounds["accuracy"].iloc[-1] == 0.875


def test_clients_have_the_headline_and_their_images(curves: Study) -> None:
    clients = curves.clients.set_index(["view", "client"])
    assert list(clients.index) == [(view, k) for view in ("finished", "personal", "global") for k in (0, 1)]
    last_ten = np.arange(3, 13)
    assert clients["accuracy"][("personal", 0)] == pytest.approx((last_ten / 20).mean())
    assert clients["accuracy"][("finished", 1)] == 1
    assert clients.loc[("global", 1), ["train", "test", "train.0", "train.1", "train.2", "test.2"]].tolist() == [
        9,
        2,
        0,
        7,
        2,
        2,
    ]
    means = curves.clients.groupby("view")["accuracy"].mean()
    assert means["finished"] == pytest.approx(curves.runs["accuracy"][0])


def test_clients_that_were_tested_have_their_ids(tmp_path: Path) -> None:
    simple(tmp_path, config(), [0.5, 0.7], evaluated=[3, 8])
    assert list(semcom.study(tmp_path).clients["client"]) == [3, 8]


def test_classes_average_the_evaluations_of_the_headline(curves: Study) -> None:
    classes = curves.classes.set_index(["view", "class"])["accuracy"]
    assert classes[("personal", 0)] == pytest.approx((np.arange(3, 13) / 20).mean())
    assert math.isnan(classes[("personal", 1)]) and classes[("finished", 0)] == 1 and classes[("global", 2)] == 1


def test_confusion_adds_up_the_clients(curves: Study, tmp_path: Path) -> None:
    table = curves.confusion
    assert len(table) == 9 and table["count"].sum() == 7
    assert table.set_index(["true", "predicted"])["count"][(2, 0)] == 3
    simple(tmp_path / "other", config(), [0.5, 0.7])
    with refuses("confusion", "--keep confusion"):
        _ = semcom.study(tmp_path / "other").confusion


def test_results_are_at_each_snr_of_the_list_or_at_the_one_of_the_run(tmp_path: Path) -> None:
    of = config(seed=0)
    of = dataclasses.replace(of, channel=dataclasses.replace(of.channel, test_snr_db="10,-3"))
    lines = [line(r, {"personal": scored([0.5, 0.5], at={"10": 0.5, "-3": r / 10})}) for r in (3, 4)]
    write(tmp_path / "0", of, lines)
    simple(tmp_path, config(seed=1, snr=6.0), [0.5, 0.75])
    simple(tmp_path, config(seed=2, snr="0:18"), [0.5, 0.75])
    simple(tmp_path, config(seed=3), [0.5, 0.75], snr_received_db={"test": None})
    table = semcom.study(tmp_path).results
    found = {seed: dict(zip(of["test_snr_db"], of["accuracy"], strict=True)) for seed, of in table.groupby("seed")}
    assert found[0] == {10.0: 0.5, -3.0: pytest.approx(0.35)} and found[1] == {6.0: 0.625}
    last = table[table["seed"] == 0].set_index("test_snr_db")["last"]
    assert last.to_dict() == {10.0: 0.5, -3.0: pytest.approx(0.4)}, "of the last round alone"
    assert all(math.isnan(snr) for seed in (2, 3) for snr in found[seed]), "several SNRs, and a link without noise"


def test_traffic_and_its_totals(tmp_path: Path) -> None:
    of = config(clients=20, rounds=4)
    of = config(clients=20, rounds=4, train=semcom.TrainConfig(rounds=4, participation=0.25))
    simple(tmp_path, of, [0.5] * 20)
    table = semcom.study(tmp_path).traffic.set_index("direction")
    assert list(table.index) == ["up", "down"]
    for name, value in TRAFFIC.items():
        assert table[name]["up"] == value and table[name]["down"] == 2 * value
        # 5 clients take part in each of 4 rounds, all at once
        assert table[f"total_{name}"]["up"] == value * 4 * (1 if name == "airtime_s" else 5)


def test_results_and_metrics(curves: Study) -> None:
    views = curves.results.set_index("view")
    assert list(views.index) == ["finished", "personal", "global"] and list(views["headline"]) == [True, False, False]
    assert views["best_round"]["personal"] == 12 and views["best"]["personal"] == pytest.approx((0.6 + 1.1) / 2)


def test_no_table_breaks_on_a_study_without_results(tmp_path: Path) -> None:
    begin(tmp_path / "a", config(), [])
    study = semcom.study(tmp_path)
    for name in ("rounds", "results", "clients", "classes", "traffic"):
        table = getattr(study, name)
        assert len(table) == 0 and list(table)[:4] == KEYS, name
    assert len(study.mean()) == 0 and len(study.rank()) == 0 and len(study.pareto()) == 0 and len(study.until(0.5)) == 0


# Comparisons ---------------------------------------------------------------------------------------------------------


def pair(
    folder: Path, differences: list[list[float]], snr: float = 10.0, methods: tuple[str, str] = ("fedcl", "fedavg")
) -> Study:
    """A study of two methods whose clients differ, seed by seed, by these."""
    for seed, each in enumerate(differences):
        for method, share in zip(methods, (1, 0), strict=True):
            accuracies = [0.5 + share * d for d in each]
            simple(folder, config(method, seed, snr, clients=len(each)), accuracies)
    return semcom.study(folder)


def test_a_paired_t_interval_by_hand(tmp_path: Path) -> None:
    """Means of the seeds .1, .2, .3: t = .2 / (.1 / sqrt 3) = 3.46 with 2 degrees of freedom, quantile 4.303."""
    found = pair(tmp_path, [[0.0, 0.2], [0.3, 0.1], [0.25, 0.35]]).compare("fedcl", "fedavg")
    half = 4.302653 * 0.1 / math.sqrt(3)
    assert (found.mean_first, found.mean_second, found.difference) == pytest.approx((0.7, 0.5, 0.2))
    assert (found.low, found.high) == pytest.approx((0.2 - half, 0.2 + half), abs=1e-6)
    assert found.p == found.p_holm == pytest.approx(0.0741799, abs=1e-6) and found.family == 1
    assert (found.wins, found.ties, found.losses, found.clients, found.seeds) == (5, 1, 0, 2, (0, 1, 2))
    assert found.procedure == "paired t over 3 seeds" and not found.supported
    assert 0 < found.bootstrap_low < 0.2 < found.bootstrap_high < 0.35
    values = "70.0 % against 50.0 %, difference 20.0 percentage points"
    interval = "95 % interval of the difference -4.8 to 44.8, paired t over 3 seeds; p = 0.074"
    clients = "With fedcl the accuracy is higher for 5 of 6 pairs of seed and client, and equal for 1."
    assert str(found) == found.sentence
    assert found.sentence == f"No difference between fedcl and fedavg can be told ({values}; {interval}). {clients}"


def test_a_difference_that_can_be_told_in_either_direction(tmp_path: Path) -> None:
    study = pair(tmp_path, [[0.1, 0.11], [0.1, 0.1], [0.12, 0.1], [0.1, 0.12]])
    found, back = study.compare("fedcl", "fedavg"), study.compare("fedavg", "fedcl")
    assert found.supported and back.supported and back.difference == -found.difference and back.losses == 8
    assert found.sentence.startswith(
        "fedcl is 10.6 percentage points more accurate than fedavg (60.6 % against 50.0 %; "
    )
    assert back.sentence.startswith(
        "fedavg is 10.6 percentage points less accurate than fedcl (50.0 % against 60.6 %; "
    )
    ends = f"{100 * found.low:.1f} to {100 * found.high:.1f}"
    assert f"95 % interval of the difference {ends}, paired t over 4 seeds; p < 0.001)" in found.sentence
    assert f"95 % interval of the difference {ends}, paired t over 4 seeds; p < 0.001)" in back.sentence


def test_a_narrow_interval_is_said_with_a_digit_more(tmp_path: Path) -> None:
    narrow = pair(tmp_path / "narrow", [[0.001, 0.001], [0.00101, 0.00101], [0.00099, 0.00099]])
    sentence = narrow.compare("fedcl", "fedavg").sentence
    assert sentence.startswith("fedcl is 0.10 percentage points more accurate than fedavg (50.10 % against 50.00 %; ")
    assert "95 % interval of the difference 0.10 to 0.10," in sentence
    wide = pair(tmp_path / "wide", [[0.0101, 0.0101], [-0.0103, -0.0103], [0.0, 0.0]]).compare("fedcl", "fedavg")
    assert -0.0005 < wide.difference < 0 and "difference 0.0 percentage points" in wide.sentence, "there is no -0.0"


def test_one_seed_speaks_of_its_clients_alone(tmp_path: Path) -> None:
    found = pair(tmp_path, [[0.05, 0.1, 0.15, 0.1, 0.2, 0.1, 0.12, 0.08, 0.1, 0.0]]).compare("fedcl", "fedavg")
    assert found.procedure == "BCa bootstrap over the 10 clients of this seed" and 0 < found.low < 0.1 < found.high
    assert math.isnan(found.bootstrap_low) and found.p == pytest.approx(2 / 2**9)  # of the ten signs, one counts not
    assert found.sentence.startswith("In seed 0, fedcl is 10.0 percentage points more accurate than fedavg (")
    assert found.sentence.endswith(", and equal for 1. This is one seed, and says nothing about others.")


def test_without_any_spread_there_is_no_interval(tmp_path: Path) -> None:
    same = pair(tmp_path / "same", [[0.0, 0.0], [0.0, 0.0]]).compare("fedcl", "fedavg")
    assert same.difference == 0 and math.isnan(same.low) and not same.supported
    assert "difference 0.0 percentage points; no interval: the 2 seeds do not differ)" in same.sentence
    shift = pair(tmp_path / "shift", [[0.1, 0.3], [0.3, 0.1]]).compare("fedcl", "fedavg")
    assert shift.difference == pytest.approx(0.2) and math.isnan(shift.p) and not shift.supported
    few = pair(tmp_path / "few", [[0.1, 0.2]]).compare("fedcl", "fedavg")
    assert math.isnan(few.low) and "no interval: 2 clients of one seed are too few" in few.sentence
    alone = pair(tmp_path / "alone", [[0.1] * 6]).compare("fedcl", "fedavg")
    assert math.isnan(alone.low) and "no interval: the clients do not differ" in alone.sentence


def test_other_metrics_and_views(curves: Study, tmp_path: Path) -> None:
    study = pair(tmp_path / "s", [[0.0, 0.2], [0.3, 0.1], [0.25, 0.35]])
    worst = study.compare("fedcl", "fedavg", metric="worst10", view="personal")
    assert worst.difference == pytest.approx((0.0 + 0.1 + 0.25) / 3) and worst.clients == 0
    assert "difference 11.7 percentage points" in worst.sentence and "is higher" not in worst.sentence
    one = study.where({"seed": 1}).compare("fedcl", "fedavg", metric="jain")
    assert "no interval: there is one seed). This is one seed" in one.sentence and "0.98" in one.sentence


def test_numbers_of_a_run_are_compared_and_shown_as_they_are(tmp_path: Path) -> None:
    """Power is a share, a silhouette and seconds are none; that more is better is said of the silhouette alone."""
    for seed, step in enumerate((0.1, 0.2, 0.15)):
        for method, sign in (("fedavg", 0), ("fedcl", 1)):
            shifted = {"power_common": 0.5 + sign * step, "silhouette": 0.2 + sign * step}
            more = {"clusters": shifted, "seconds": {"train": 10.0 + sign * (5 + step)}, "worst10": 0.0}
            simple(tmp_path, config(method, seed), [0.5, 0.7], **more)
    study = semcom.study(tmp_path)

    def compared(metric: str) -> Comparison:
        return study.compare("fedcl", "fedavg", metric=metric)

    power, silhouette, seconds = map(compared, ("clusters.power_common", "clusters.silhouette", "seconds.train"))
    assert power.difference == pytest.approx(0.15) and power.clients == 0
    assert "15.0 percentage points higher in power of what all classes have in common" in power.sentence
    assert "0.150 higher in silhouette of the features than fedavg (0.350 against 0.200;" in silhouette.sentence
    assert "5.150 higher in seconds.train than fedavg (15.150 against 10.000;" in seconds.sentence
    marks = {name: set(study.marked(metric=name)["mark"]) for name in ("clusters.silhouette", "seconds.train")}
    assert marks == {"clusters.silhouette": {"", "best"}, "seconds.train": {""}}
    assert set(study.marked(metric="clusters.power_common")["mark"]) == {""}
    with refuses("metric", "seconds.train"):
        study.compare("fedcl", "fedavg", metric="seconds.train", view="personal")
    assert compared("worst10").mean_first == pytest.approx(0.5), "a view's number comes before one of the run"


def test_seeds_that_one_of_them_lacks_do_not_count(tmp_path: Path) -> None:
    study = pair(tmp_path, [[0.1, 0.1], [0.2, 0.2]])
    simple(tmp_path, config("fedcl", 7), [1.0, 1.0])
    found = semcom.study(tmp_path).compare("fedcl", "fedavg")
    assert found.seeds == (0, 1) and found.difference == study.compare("fedcl", "fedavg").difference


def test_several_points_are_corrected_by_holm(tmp_path: Path) -> None:
    pair(tmp_path, [[0.1, 0.11], [0.1, 0.1], [0.12, 0.1]], snr=0.0)
    study = pair(tmp_path, [[0.0, 0.2], [0.3, 0.1], [0.25, 0.35]], snr=9.0)
    with refuses("at", "channel.snr_db"):
        study.compare("fedcl", "fedavg")
    low, high = study.compare_all(["fedcl", "fedavg"])
    alone = study.where({SNR: 0}).compare("fedcl", "fedavg")
    assert (low.point, high.point) == ({SNR: 0.0}, {SNR: 9.0}) and low.family == 2
    assert low.p == alone.p and low.p_holm == 2 * alone.p and high.p_holm == high.p
    assert low.sentence.startswith("At SNR 0 dB, fedcl is 10.5 percentage points more accurate")
    assert "95 % interval of this difference alone " in low.sentence, "it is not corrected"
    assert "; p = 0.0015, corrected by Holm for 2 comparisons). With" in low.sentence
    frame = study.compare_all().frame
    assert list(frame[SNR]) == [0.0, 9.0] and list(frame["supported"]) == [True, False]
    assert str(study.compare_all()).count("\n") == 1


@pytest.mark.parametrize("metric", ["accuracy", "last"])
def test_a_varied_number_of_clients_is_that_of_the_point(metric: str, tmp_path: Path) -> None:
    """That of the tested clients, which is not known of other numbers than the headline, has the same name."""
    for method, clients in itertools.product(("fedcl", "fedavg"), (2, 3)):
        simple(tmp_path, config(method, clients=clients), [0.5] * clients)
    frame = semcom.study(tmp_path).compare_all(metric=metric).frame
    assert frame["clients"].tolist() == [2, 3] and list(frame)[0] == "clients"


def test_a_claim_does_not_survive_too_many_questions(tmp_path: Path) -> None:
    """p = 0.04 alone, and 0.12 among three pairs: the interval without zero is not enough."""
    pair(tmp_path, [[0.1, 0.1], [0.13, 0.13], [0.2, 0.2]])
    study = pair(tmp_path / "more", [[0.0, 0.0]])
    for seed, other in enumerate((0.52, 0.48, 0.5)):
        simple(tmp_path, config("fedproto", seed), [other, other])
    study = semcom.study(tmp_path)
    alone = study.compare("fedcl", "fedavg")
    among = next(c for c in study.compare_all() if {c.first, c.second} == {"fedcl", "fedavg"})
    assert alone.supported and abs(among.difference) == alone.difference and not among.supported and among.family == 3
    assert among.sentence.startswith("No difference between ")
    assert "alone -27.1 to -1.6, paired t over 3 seeds; p = 0.12, corrected by Holm for 3 comparisons)." in str(among)
    assert (
        "Asked alone, this difference would be told (p = 0.04); among 3 comparisons chance may show one as clear in "
        "more than 5 % of studies." in str(among)
    )


def test_runs_that_differ_in_the_content_of_files_alone_are_refused(tmp_path: Path) -> None:
    for number, digest in enumerate("ab"):
        of = config(plugins=("own.py",), contents={"own.py": digest})
        write(tmp_path / str(number), of, [line(4, {"personal": scored([1.0, 0.0])})])
    simple(tmp_path, config("fedavg"), [0.5, 0.5])
    with refuses("study", "plug-ins or files"):
        semcom.study(tmp_path).compare("fedcl", "fedavg")


# Means and ranks -----------------------------------------------------------------------------------------------------


def test_means_have_t_intervals_over_seeds(tmp_path: Path) -> None:
    for seed, accuracy in enumerate((0.5, 0.6, 0.7)):
        simple(tmp_path, config("fedcl", seed), [accuracy, accuracy])
    simple(tmp_path, config("fedavg", 0), [0.25, 0.25])
    study = semcom.study(tmp_path)
    table = study.mean().set_index("variant")
    assert table.loc["fedcl", ["mean", "low", "high"]].tolist() == pytest.approx(
        [0.6, 0.6 - 4.302653 * 0.1 / math.sqrt(3), 0.6 + 4.302653 * 0.1 / math.sqrt(3)], abs=1e-6
    )
    assert list(table["n"]) == [1, 3] and math.isnan(table["low"]["fedavg"])
    assert list(table["interval"]) == ["none: one seed", "95 % t interval over 3 seeds"]
    assert study.mean(metric="jain", by=["method"])["mean"].tolist() == pytest.approx([1, 1])


def test_runs_of_several_versions_are_alike(tmp_path: Path) -> None:
    """A run of a version without an option has the value that held then, where its method or link takes that now."""
    power, averaged = "channel.power", "hyper.average_encoder"
    older = dataclasses.replace(config(), hyper={"lam": 0.5}, channel=ChannelConfig(options={}))
    newer = dataclasses.replace(
        config(seed=1),
        hyper={"lam": 0.5, "average_encoder": False},
        channel=ChannelConfig(options={"power": "normalised"}),
    )
    other = dataclasses.replace(config("fedavg"), channel=ChannelConfig(kind="ideal"))
    for i, each in enumerate((older, newer, other)):
        simple(tmp_path, each, [0.5 + 0.1 * i] * 2)
    study = semcom.study(tmp_path)
    fields = {(run.fields["method"], run.fields["seed"]): run.fields for run in read_stored_runs(tmp_path)[0]}
    assert fields["fedcl", 0] == {**fields["fedcl", 1], "seed": 0}
    assert fields["fedcl", 0][averaged] is False and fields["fedcl", 0][power] == "normalised"
    assert not {averaged, power} & fields["fedavg", 0].keys()
    assert study.where({"method": "fedcl"}).mean()["mean"].item() == pytest.approx(0.55)


def test_means_do_not_mix_what_differs(tmp_path: Path) -> None:
    for snr in (0.0, 9.0):
        simple(tmp_path, config(snr=snr), [0.5, 0.5])
    study = semcom.study(tmp_path)
    assert study.where({SNR: 9}).mean(by=["variant"])["mean"].tolist() == [0.5]


def ranks(folder: Path, accuracies: dict[str, list[float]]) -> dict[str, str]:
    for method, values in accuracies.items():
        for seed, value in enumerate(values):
            simple(folder, config(method, seed), [value - 0.1, value + 0.1])
    table = semcom.study(folder).rank()
    assert list(table["place"]) == list(range(1, len(accuracies) + 1)) and table["mean"].is_monotonic_decreasing
    return dict(zip(table["variant"], table["mark"], strict=True))


def test_ranks_are_claimed_only_where_the_intervals_support_them(tmp_path: Path) -> None:
    clear, close = [0.4, 0.41, 0.39], [0.6, 0.65, 0.58]
    assert ranks(tmp_path / "1", {"fedavg": clear, "fedcl": [0.8, 0.81, 0.79], "fedproto": [0.6, 0.615, 0.59]}) == {
        "fedcl": "best", "fedproto": "second", "fedavg": "",
    }  # fmt: skip
    assert ranks(tmp_path / "2", {"fedavg": clear, "fedcl": close, "fedproto": [0.61, 0.6, 0.6]}) == {
        "fedcl": "", "fedproto": "", "fedavg": "",
    }  # fmt: skip
    assert ranks(tmp_path / "3", {"fedavg": [0.59, 0.66, 0.57], "fedproto": close, "fedcl": [0.8, 0.86, 0.78]}) == {
        "fedcl": "best", "fedproto": "", "fedavg": "",
    }  # fmt: skip
    assert ranks(tmp_path / "4", {"fedavg": [0.1], "fedcl": [0.9]}) == {"fedcl": "", "fedavg": ""}, "one seed"
    assert ranks(tmp_path / "5", {"fedcl": [0.9, 0.8]}) == {"fedcl": ""}, "best of one"


def test_cells_are_marked_as_they_are_ranked(tmp_path: Path) -> None:
    """At 0 dB fedcl is ahead by far, at 9 dB nothing is."""
    for snr, lead in ((0.0, 0.3), (9.0, 0.0)):
        for seed, accuracy in enumerate((0.5, 0.52, 0.49)):
            simple(tmp_path, config("fedavg", seed, snr), [accuracy, accuracy])
            simple(tmp_path, config("fedcl", seed, snr), [accuracy + lead + seed / 1000, accuracy + lead])
    study = semcom.study(tmp_path)
    expected = {("fedavg", 0.0): "", ("fedcl", 0.0): "best", ("fedavg", 9.0): "", ("fedcl", 9.0): ""}
    assert study.rank().set_index(["variant", SNR])["mark"].to_dict() == expected, "the last of two is no second"
    for by in (None, ["variant", SNR], [SNR, "method"]):
        cells = study.marked(by)
        assert list(cells) == [*study.mean(by), "mark"]
        found = cells.rename(columns={"method": "variant"}).set_index(["variant", SNR])
        assert found["mark"].to_dict() == expected and found["mean"][("fedcl", 9.0)] == pytest.approx(0.5033, abs=1e-3)
    assert study.where({SNR: 0}).marked(["variant"])["mark"].tolist() == ["", "best"]
    assert set(study.marked(["variant", SNR, "seed"])["mark"]) == {""}, "single runs have no rank"
    assert set(study.marked(metric="accuracy_std")["mark"]) == {""}, "more of it is not better"


# Curves and costs ----------------------------------------------------------------------------------------------------


def test_smoothed_curves_end_with_the_headline(curves: Study) -> None:
    smooth = curves.smooth().set_index(["view", "round"])["accuracy"]
    assert smooth[("personal", 12)] == pytest.approx(curves.results.set_index("view")["accuracy"]["personal"])
    raw = curves.rounds.set_index(["view", "round"])["accuracy"]
    assert smooth[("personal", 3)] == pytest.approx((raw[("personal", 2)] + raw[("personal", 3)]) / 2)
    assert smooth[("personal", 12)] == pytest.approx(np.mean([raw[("personal", r)] for r in range(13 - LAST, 13)]))
    assert curves.smooth(1).set_index(["view", "round"])["accuracy"].equals(raw[raw.index.get_level_values(0).notna()])


def costly(folder: Path, method: str, accuracies: list[list[float]], uses: float, **fields: Any) -> None:
    """A run per seed of 4 rounds with 2 clients, that uses the channel so many times per client and round, up alone."""
    for seed, curve in enumerate(accuracies):
        lines = [line(r, {"personal": scored([a, a])}) for r, a in enumerate(curve, 1)]
        of = config(method, seed, **fields)
        write(
            folder / run_hash(of),
            of,
            lines,
            traffic={"up": {"uses": uses, "airtime_s": uses}, "down": {"uses": 0.0, "airtime_s": 0.0}},
        )


def test_the_pareto_front(tmp_path: Path) -> None:
    for method, accuracy, uses in (
        ("fedcl", 0.8, 100),
        ("fedavg", 0.6, 200),
        ("fedproto", 0.6, 10),
        ("local", 0.3, 0),
        ("fedper", 0.6, 10),
    ):
        costly(tmp_path, method, [[accuracy] * 4], uses)
    table = semcom.study(tmp_path).pareto("uses").set_index("variant")
    assert table["efficient"].to_dict() == {
        "fedavg": False,
        "fedcl": True,
        "fedproto": True,
        "local": True,
        "fedper": True,
    }
    assert table["cost"]["fedcl"] == 100 * 2 * 4 and table["accuracy"]["fedcl"] == pytest.approx(0.8)
    assert semcom.study(tmp_path).pareto("airtime_s").set_index("variant")["cost"]["fedcl"] == 100 * 4
    assert set(semcom.study(tmp_path).pareto("samples")["cost"]) == {1000}


def test_points_have_fronts_of_their_own(tmp_path: Path) -> None:
    for snr, accuracy in ((0.0, 0.5), (9.0, 0.7)):
        costly(tmp_path, "fedcl", [[accuracy] * 4], 100, snr=snr)
    assert semcom.study(tmp_path).pareto()["efficient"].tolist() == [True, True]


def test_the_cost_until_a_target(tmp_path: Path) -> None:
    """Means of the two seeds: .35, .55, .65, .55. The second run alone is there after round 1, and the mean after 3."""
    costly(tmp_path, "fedcl", [[0.1, 0.5, 0.6, 0.5], [0.6, 0.6, 0.7, 0.6]], 100)
    costly(tmp_path, "fedavg", [[0.1, 0.2, 0.3, 0.4]], 100)
    study = semcom.study(tmp_path)
    table = study.until(0.6).set_index("variant")
    assert (table["round"]["fedcl"], table["cost"]["fedcl"], table["n"]["fedcl"]) == (3, 100 * 2 * 3, 2)
    assert math.isnan(table["cost"]["fedavg"]) and math.isnan(table["round"]["fedavg"])
    assert study.until(0.6, "rounds").set_index("variant")["cost"]["fedcl"] == 3
    assert study.until(0.6, "samples").set_index("variant")["cost"]["fedcl"] == 750
    smooth = study.until(0.6, "rounds", window=2).set_index("variant")["cost"]
    assert smooth["fedcl"] == 3 and math.isnan(study.until(0.61, window=2).set_index("variant")["cost"]["fedcl"])


def test_of_what_is_better_small_a_target_is_reached_from_above() -> None:
    """Errors of .9, .5, .4 and .6: at most .5 after round 2."""
    rows = [
        {"hash": "a", "variant": "x", "round": r, "value": v, "spent": r} for r, v in enumerate((0.9, 0.5, 0.4, 0.6), 1)
    ]
    for higher, reached in ((False, 2), (True, 1)):
        found = compute_cost_until_target(pd.DataFrame(rows), (), 0.5, higher)
        assert found[["round", "cost"]].values.tolist() == [[reached, reached]]


def test_time_is_that_of_the_rounds_so_far(tmp_path: Path) -> None:
    """Rounds of 1, 2, 3 and 4 s, and twice that with the other seed: 6 and 12 s after three of them."""
    for seed in (0, 1):
        seconds = [(1 + seed) * r for r in range(1, 5)]
        of = config("fedcl", seed)
        lines = [{**line(r, {"personal": scored([0.2 * r] * 2)}), "round_s": s} for r, s in enumerate(seconds, 1)]
        write(tmp_path / run_hash(of), of, lines, time_s=sum(seconds))
    costly(tmp_path, "fedavg", [[0.6] * 4], 100)
    study = semcom.study(tmp_path)
    found = study.until(0.6, "time_s").set_index("variant")["cost"]
    assert found["fedcl"] == 9 and math.isnan(found["fedavg"])
    assert study.pareto("time_s").set_index("variant")["cost"]["fedcl"] == 15


def test_a_last_stage_costs_what_the_rounds_cost(curves: Study) -> None:
    table = curves.until(0.8, "uses")
    assert (table["round"][0], table["cost"][0]) == (13, 300 * 2 * 12)
    personal = curves.until(0.8, "rounds", view="personal")
    assert personal["cost"][0] == 12 and isinstance(personal, pd.DataFrame)
