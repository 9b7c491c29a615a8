"""The scorecard's rule, on numbers with known answers, and on studies written by hand."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from semcom.cli import main as cli
from semcom.config import ConfigError, DataConfig, FinishConfig, PartitionConfig, RunConfig
from semcom.data.partitions import Dirichlet
from semcom.studies.analysis.study import study
from semcom.studies.grid import set_fields
from semcom.studies.results.archive import pack_archive
from semcom_papers.experiments.claims import scorecard as card
from semcom_papers.experiments.claims.claim import Claim, Comparison, Values
from semcom_papers.experiments.claims.evidence import Evidence, format_sweep_command, read_evidence
from semcom_papers.experiments.claims.printed import Tables
from semcom_papers.experiments.claims.rule import FIRST, SECOND, Answer, Judged, Rule, State, compute_power
from semcom_papers.experiments.claims.scorecard import _orient_interval, make_scorecard
from tests.studies.conftest import quick_resolve  # noqa: F401 - a fixture
from tests.studies.folders import around, config, line, scored, simple, write

pytestmark = pytest.mark.usefixtures("without_stored_results")


def judge_alone(one: Comparison, changes: frozenset[str] = FIRST) -> Judged:
    """Return the answer of a claim's only comparison."""
    (judged,) = Rule(changes=changes).judge([one])
    return judged


def compared(*values: float, **fields: object) -> Comparison:
    plain = Comparison((Values(values),), None, None, "a", "b", "point")
    return dataclasses.replace(plain, **fields)


@pytest.mark.parametrize(
    ("one", "answer"),
    [
        # Three seeds: the mean +- 4.303 s / sqrt(3), which is 2 +- 2.48 for 1, 2, 3, and 5 +- 2.48 for 4, 5, 6.
        (compared(1, 2, 3), "open"),
        (compared(4, 5, 6), "yes"),
        (compared(-4, -5, -6), "no"),
        (compared(5), "open"),  # one seed decides nothing
        (compared(5, 5), "open"),  # by chance, as accuracies are shares of a few images
        (compared(5, 5, exact=True), "yes"),  # counts are known
        (compared(), "open"),  # not run
        (compared(1, 1, 1, target=float("nan"), exact=True), "open"),  # no number is stated
        (compared(10, 10, target=0.0, exact=True, point=10.0), "yes"),  # a hundredth of the rival's is a point
        (compared(0, 0), "open"),
        # A lead of 8: 5 +- 2.48 reaches into 8 +- 2, and 2 +- 2.48 does not; 5 +- 6.2 does, and contains 0.
        (compared(4, 5, 6, target=8.0, lead=True), "yes"),
        (compared(1, 2, 3, target=8.0, lead=True), "no"),
        (compared(2.5, 5, 7.5, target=8.0, lead=True), "open"),
        # A value of 8: an interval that reaches into 8 +- 2 has to be at most 8 wide.
        (compared(4, 5, 6, target=8.0), "yes"),
        (compared(2.5, 5, 7.5, target=8.0), "open"),
        (compared(1, 2, 3, target=8.0), "no"),
    ],
)
def test_a_comparison_is_answered_by_its_interval(one: Comparison, answer: str) -> None:
    assert judge_alone(one).answer == answer


def rivals(*means: float) -> Comparison:
    values = tuple(Values([mean - 0.1, mean, mean + 0.1]) for mean in means)  # +- 0.25
    return Comparison(values, None, 2, "a", "a", "point")


@pytest.mark.parametrize(
    ("means", "answer"),
    [((5, -5, -5), "yes"), ((5, 0, -5), "open"), ((5, 5, -5), "no"), ((0, -5, -5), "yes"), ((0, 0, -5), "open")],
)
def test_places_count_the_rivals_that_are_ahead(means: tuple[float, ...], answer: str) -> None:
    assert judge_alone(rivals(*means)).answer == answer


@pytest.mark.parametrize(
    ("answers", "quantifier", "state"),
    [
        ("yyy", "all", "reproduced"),
        ("yyo", "all", "inconclusive"),
        ("yon", "all", "not reproduced"),
        ("yyyyo", "almost-all", "reproduced"),
        ("yyyno", "almost-all", "inconclusive"),
        ("yyynn", "almost-all", "not reproduced"),
        ("yyno", "most", "inconclusive"),
        ("yyyn", "most", "reproduced"),
        ("ynno", "most", "not reproduced"),
        ("ynnn", "some", "reproduced"),
        ("nnnn", "some", "not reproduced"),
        ("onnn", "some", "inconclusive"),
        ("yll", "all", "level"),
        ("ylo", "all", "inconclusive"),
        ("yln", "all", "not reproduced"),
        ("yyyll", "almost-all", "level"),
        ("yyyln", "almost-all", "level"),
        ("yyll", "most", "level"),
        ("yyln", "most", "level"),
        ("ylnn", "most", "not reproduced"),
        ("lnnn", "some", "level"),
    ],
)
def test_answers_add_up_as_the_quantifier_says(answers: str, quantifier: str, state: str) -> None:
    words: dict[str, Answer] = {"y": "yes", "n": "no", "o": "open", "l": "level"}
    assert Rule(quantifier).decide([words[letter] for letter in answers]) == state


# The second edition --------------------------------------------------------------------------------------------------


def differ(*mean_and_spread: tuple[float, float], seeds: int = 3) -> list[Comparison]:
    """Return comparisons with these means and standard deviations."""
    unit = np.linspace(-1, 1, seeds) / np.linspace(-1, 1, seeds).std(ddof=1)
    return [compared(*(mean + sd * unit)) for mean, sd in mean_and_spread]


def answer(comparisons: list[Comparison], quantifier: str = "all", **fields: Any) -> list[str]:
    return [one.answer for one in Rule(quantifier, **fields).judge(comparisons)]


def test_one_no_among_many_is_corrected_and_a_yes_that_all_must_give_is_not() -> None:
    """With three seeds t = 5 has p = 0.038, which is 0.08 of two and 0.11 of three; t = 10 has 0.0099."""
    five, ten = (5.0, 5 / (5 / math.sqrt(3))), (10.0, math.sqrt(3))
    assert answer(differ(five, five, five)) == ["yes"] * 3
    assert answer(differ(five, five, five), "some") == ["open"] * 3
    assert answer(differ(ten, five, five), "some") == ["yes", "open", "open"]  # 0.0296, then 0.077
    bad, holm = (-5.0, five[1]), frozenset({"Holm"})
    assert answer(differ(bad), changes=holm) == ["no"]
    assert answer(differ(bad, five, five), changes=holm) == ["open", "yes", "yes"]
    assert answer(differ(bad, five, five), changes=FIRST) == ["no", "yes", "yes"]
    assert answer(differ(bad, bad, bad), "some", changes=holm) == ["no"] * 3


def test_level_is_an_interval_within_two_points() -> None:
    """Three seeds: half an interval is 2.484 standard deviations."""
    near = (0.5, 0.55)  # -0.87 to 1.87
    assert answer(differ(near, (-0.5, 0.1), (0.5, 0.1), (0.5, 0.65))) == ["level", "level", "yes", "open"]
    assert answer(differ(near), of_accuracy=False) == ["open"] == answer(differ(near), changes=FIRST)


def test_a_no_needs_the_power_for_the_papers_effect() -> None:
    """A difference of -3 with a standard deviation of 1.1 is below 0 (-5.7 to -0.3), but may be above -2."""
    low = differ((-3.0, 1.1))
    assert answer(low) == ["open"] and answer(low, changes=SECOND - {"power"}) == ["no"]
    assert compute_power(2, 1.1, 3) < 0.8 < compute_power(5, 1.1, 3)
    (found,) = Rule().judge(low, [[5.0]])
    assert found.answer == "no"  # the paper prints 5 points, which these seeds would have found
    (found,) = Rule().judge(low, [[-5.0]])
    assert found.answer == "open"  # it prints a loss: 2 points are what counts
    assert answer(differ((-30.0, 5.0))) == ["no"]  # -42 to -18: neither yes nor level is left
    assert answer(low, of_accuracy=False) == ["no"]


@pytest.mark.parametrize(("effect", "sd", "seeds"), [(2.0, 1.0, 3), (1.5, 0.9, 10), (4.0, 3.0, 5)])
def test_power_is_what_simulation_gives(effect: float, sd: float, seeds: int) -> None:
    draws = np.random.default_rng(0).normal(effect, sd, (100_000, seeds))
    t = draws.mean(1) / draws.std(1, ddof=1) * math.sqrt(seeds)
    share = (t > stats.t.ppf(0.975, seeds - 1)).mean()
    assert compute_power(effect, sd, seeds) == pytest.approx(share, abs=5 * math.sqrt(0.25 / 100_000))


def test_power_without_a_spread() -> None:
    assert (compute_power(2, 0, 2), compute_power(2, math.nan, 3), compute_power(2, 1, 1)) == (1, 0, 0)
    assert compute_power(1e6, 1.0, 5) == 1.0


def test_the_power_of_a_claim_and_the_seeds_that_it_needs() -> None:
    """Three rivals with equal spreads, found with p, q and q: all, or two of them at a third of 5 %."""
    comparisons, effects = differ((1, 1), (0, 1), (-1, 1), seeds=8), [[3.0], [1.0], [math.nan]]
    power, needed = Rule().estimate_power(comparisons, effects)
    p, q = compute_power(3, 1, 8), compute_power(2, 1, 8)
    assert power == pytest.approx(p * q * q) and needed is not None
    for seeds, enough in ((needed, True), (needed - 1, False)):
        assert (compute_power(3, 1, seeds) * compute_power(2, 1, seeds) ** 2 >= 0.8) == enough
    power, _ = Rule("most").estimate_power(comparisons, effects)
    p, q = compute_power(3, 1, 8, 0.05 / 3), compute_power(2, 1, 8, 0.05 / 3)
    assert power == pytest.approx(p * q * q + 2 * p * q * (1 - q) + (1 - p) * q * q)
    place = Comparison(tuple(one.values[0] for one in comparisons), None, 2, "a", "a", "point", rivals=("x", "y", "z"))
    power, _ = Rule().estimate_power([place], [[3.0, 1.0, math.nan]])  # two of three have to be behind
    p, q = compute_power(3, 1, 8), compute_power(2, 1, 8)
    assert power == pytest.approx(p * q * q + 2 * p * q * (1 - q) + (1 - p) * q * q)
    assert Rule(of_accuracy=False).estimate_power(comparisons, effects)[1] is None
    assert Rule().estimate_power(differ((1, 300)), [])[1] is None  # more than a thousand


def test_the_rule_says_not_reproduced_of_equal_methods_in_few_studies_and_finds_true_leads() -> None:
    """Eleven rivals, spreads of 1 over seeds of which half is the method's own.

    The first edition calls equal methods "not reproduced" in a fifth of the studies or more, the second one in 5 % at
    most; of a true lead of 1.5 points, three seeds reproduce nothing.
    """
    rng = np.random.default_rng(1)

    def study(lead: float, seeds: int) -> list[Comparison]:
        own, theirs = rng.normal(0, 0.7, seeds), rng.normal(0, 0.7, (11, seeds))
        return [compared(*(lead + own - rival)) for rival in theirs]

    def share(state: State, lead: float, seeds: int, changes: frozenset[str]) -> float:
        rule = Rule(changes=changes)
        said = [rule.decide([one.answer for one in rule.judge(study(lead, seeds))]) for _ in range(200)]
        return said.count(state) / 200

    assert share("not reproduced", 0, 3, FIRST) > 0.12
    assert share("not reproduced", 0, 3, SECOND) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 200)
    assert share("reproduced", 1.5, 3, SECOND) < 0.05 and share("reproduced", 1.5, 10, SECOND) > 0.9


def test_places_within_two_points_are_level() -> None:
    """Intervals are +- 0.25: two rivals are ahead of one among the two best, one of them by less than 2 points."""
    assert judge_alone(rivals(5, 1, -5), SECOND).answer == "level"
    assert judge_alone(rivals(5, 5, -5), SECOND).answer == "no"
    assert judge_alone(rivals(5, -5, -5), SECOND).answer == "yes"
    assert judge_alone(rivals(5, 1.9, -5), SECOND).answer == "no"  # it may be 2.15 ahead


def fig2a(folder: Path, lead: float, seeds: int = 3, warning: str = "") -> None:
    """A study of the letter's Fig. 2(a): FedCL is ahead of FedProto by `lead`, and FedAvg at 30 %.

    FedCL with 5 clients may have warned.
    """
    base = {"fedcl": 0.6 + lead, "fedproto": 0.6, "fedavg": 0.3}
    for clients in (5, 20):
        for name, accuracy in base.items():
            for seed in range(seeds):
                of = config(name, seed, clients=clients, data=DataConfig(name="cifar10"))
                own = 0.01 * seed * (name == "fedcl")
                warnings = [warning] if warning and (name, clients) == ("fedcl", 5) else []
                simple(folder, of, around(accuracy + own, clients), warnings=warnings)


def states(frame: pd.DataFrame) -> dict[str, str]:
    return {row["id"].removeprefix("letter-fig2a-"): row["state"] for _, row in frame.iterrows() if row["seeds"]}


def test_claims_are_judged_from_stored_studies(tmp_path: Path) -> None:
    fig2a(tmp_path / "letter-fig2a-small", 0.13)
    frame = make_scorecard(tmp_path, "fedcl-letter")
    found = states(frame)
    assert found["best"] == "reproduced" and found["over-fedproto-points"] == "reproduced"
    # 12.75 % of 60 are 7.65 points, and 38.55 % of 30 are 11.57: the leads are 14 and 44 +- 2.5.
    assert found["over-fedproto-relative"] == "not reproduced"
    assert found["over-fedavg-relative"] == "not reproduced"
    assert found["over-fedavg-points"] == "not reproduced"
    assert found["stable"] == "inconclusive"  # nothing changes with the number of clients
    one = frame.set_index("id").loc["letter-fig2a-over-fedproto-points"]
    assert one["ours"] == pytest.approx(14) and one["high"] - one["low"] == pytest.approx(
        2 * 4.3027 * 1 / 3**0.5, rel=1e-3
    )
    assert (one["seeds"], one["scale"], one["of"]) == (3, "small", "fedcl")
    rest = frame[~frame["id"].str.startswith("letter-fig2a")]
    assert set(rest["state"]) == {"not run", "protocol unknown"}


def test_a_claim_names_the_warnings_of_the_runs_that_it_rests_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """FedCL with 5 clients has warned in each of three runs; claims about 20 clients alone do not rest on these."""
    monkeypatch.setenv("COLUMNS", "200")
    fig2a(tmp_path / "letter-fig2a-small", 0.13, warning="round 1: too far")
    found = make_scorecard(tmp_path, "fedcl-letter").set_index("id")["warnings"]
    assert found["letter-fig2a-best"] == "3 of 18 runs warn, the first in round 1: too far"
    assert found["letter-fig2a-over-fedproto-points"] == "" == found["letter-fig2b-best"]
    assert cli.main(["claims", "--paper", "fedcl-letter", "--results", str(tmp_path)]) == 0
    assert "(letter-fig2a) [3 of 18 runs warn]" in capsys.readouterr().out


def test_an_archive_is_evidence_and_one_seed_is_none(tmp_path: Path) -> None:
    fig2a(tmp_path / "runs", 0.12, seeds=1)
    pack_archive(tmp_path / "runs", tmp_path / "letter-fig2a-small.zip")
    found = states(make_scorecard(tmp_path, "fedcl-letter"))
    assert set(found.values()) == {"inconclusive"}


def test_what_was_not_run_is_said(tmp_path: Path) -> None:
    for name, accuracy in (("fedcl", 0.7), ("fedproto", 0.6)):
        for seed in range(3):
            of = config(name, seed, clients=20, data=DataConfig(name="cifar10"))
            simple(tmp_path / "letter-fig2a-small", of, around(accuracy + 0.001 * seed * (name == "fedcl"), 20))
    frame = make_scorecard(tmp_path, "fedcl-letter").set_index("id")
    best = frame.loc["letter-fig2a-best"]
    assert best["state"] == "inconclusive"
    assert best["note"] == "not run: clients=5; no results for fedcl - fedavg at some points"
    assert (best["yes"], best["no"], best["open"]) == (1, 0, 1)


@pytest.mark.parametrize(
    ("lead", "quantifier", "state"),
    [
        (0.1, "all", "inconclusive"),
        (0.1, "most", "inconclusive"),
        (0.1, "almost-all", "inconclusive"),
        (0.1, "some", "reproduced"),
        (-0.1, "all", "not reproduced"),
        (-0.1, "most", "inconclusive"),
        (-0.1, "almost-all", "inconclusive"),
        (-0.1, "some", "inconclusive"),
    ],
)
@pytest.mark.parametrize("lacks", ["a value", "an item"])
def test_what_was_not_run_decides_nothing(lead: float, quantifier: str, state: str, lacks: str, tmp_path: Path) -> None:
    """One point of two says yes or no, with hardly any spread; the other has no runs, or no study."""
    for name, accuracy in (("fedcl", 0.6 + lead), ("fedproto", 0.6)):
        for seed in range(3):
            of = config(name, seed, clients=20, data=DataConfig(name="cifar10"))
            simple(tmp_path / "letter-fig2a-small", of, around(accuracy + 0.001 * seed * (name == "fedcl"), 20))
    value = lacks == "a value"
    asked = f"clients={'5|20' if value else '20'};quantifier={quantifier}"
    fields = {"left": "fedcl", "right": "fedproto", "at": asked, "relation": "above", "value": math.nan, "unit": ""}
    items = "letter-fig2a letter-fig3b" if not value else "letter-fig2a"
    blank = dict.fromkeys(("reading", "contradicted_by", "note"), "")
    whole = {"id": "x", "paper": "fedcl-letter", "item": items, "page": "1", "says": "", "protocol": "known", **blank}
    evidence = read_evidence(items.split(), tmp_path)
    found = card.judge_claim({**whole, **fields}, evidence, evidence, Tables({}, {}))
    assert found["state"] == state
    assert found["note"].startswith("not run: " + ("clients=5" if value else "letter-fig3b"))


def test_an_arm_that_failed_at_one_point_leaves_the_claim_open(tmp_path: Path) -> None:
    folder = tmp_path / "letter-fig2a-small"
    fig2a(folder, 0.13)
    assert states(make_scorecard(tmp_path, "fedcl-letter"))["best"] == "reproduced"
    for run in study(folder).where({"method": "fedavg", "clients": 5}).stored:
        (run.folder / "summary.json").unlink()
        (run.folder / "error.txt").write_text("RuntimeError: no memory\n")
    best = make_scorecard(tmp_path, "fedcl-letter").set_index("id").loc["letter-fig2a-best"]
    assert (best["state"], best["yes"], best["open"]) == ("inconclusive", 3, 1)
    (tmp_path / "letter-fig2a-paper").mkdir()  # a better scale without any result hides nothing
    assert states(make_scorecard(tmp_path, "fedcl-letter"))["over-fedproto-points"] == "reproduced"


def test_signs_are_those_of_the_label(tmp_path: Path) -> None:
    """FedProto loses 10 points from 20 to 5 clients, FedCL 1: a difference of -9, which speaks for the claim."""
    for clients, name, accuracy in (
        (20, "fedcl", 0.7),
        (5, "fedcl", 0.69),
        (20, "fedproto", 0.7),
        (5, "fedproto", 0.6),
    ):
        for seed in range(3):
            of = config(name, seed, clients=clients, data=DataConfig(name="cifar10"))
            own = 0.001 * seed * (clients == 5 and name == "fedcl")
            simple(tmp_path / "letter-fig2a-small", of, around(accuracy + own, clients))
    stable = make_scorecard(tmp_path, "fedcl-letter").set_index("id").loc["letter-fig2a-stable"]
    assert stable["state"] == "reproduced" and stable["of"] == "fedcl - fedproto"
    assert stable["ours"] == pytest.approx(-9.1) and stable["low"] < -9.1 < stable["high"] < 0


def test_a_contradicted_claim_is_judged_and_the_papers_table_is_told(tmp_path: Path) -> None:
    frame = make_scorecard(tmp_path)
    assert len(frame) == 194 + 24 and frame["id"].is_unique
    against = frame["first"] == "contradicted by the paper itself"
    assert against.sum() == 5 and set(frame["state"][against]) == {"not run", "protocol unknown"}
    assert frame["note"][against].str.contains("the paper's own table speaks against it").all()
    assert format_sweep_command("arms-small") == "semcom sweep arms-small --scale small"
    assert format_sweep_command("no-such") is None
    for item, field, at_small, at_paper in (
        ("fedcosr-table2", "data.name", "cifar100", "emnist"),
        ("fedcosr-fig7", "partition.fraction", "0.15", "1"),  # 0.13 stands for 0.15
        ("repper-table4", "model.encoder", "dcgan-narrow", "mobilenet-v1"),
    ):
        for value, scale in ((at_small, "small"), (at_paper, "paper"), ("none-such", "small")):
            assert format_sweep_command(item, {field: (value,)}) == f"semcom sweep {item} --scale {scale}"
    with pytest.raises(ConfigError, match="^paper: 'letter' is unknown: known are fedcl-letter"):
        make_scorecard(tmp_path, "letter")


def test_the_command_prints_states_numbers_and_what_to_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    fig2a(tmp_path / "letter-fig2a-small", 0.13)
    words = ["claims", "--paper", "fedcl-letter", "--results", str(tmp_path)]
    assert cli.main(words) == 0
    said = capsys.readouterr().out
    line = next(line for line in said.splitlines() if "FedProto by 12.75%. Read as points. (letter-fig2a)" in line)
    assert line.split("  ")[0] == "reproduced" and "fedcl: 14.0 [11.5, 16.5], 3 seeds" in line
    counted = " ".join(said.partition("\nby the rule's")[0].split())
    assert counted.startswith("fedcl-letter: 21 claims: 11 not run, 3 not reproduced, 3 ")
    assert counted.endswith("; 24 further readings of a claim: 24 not run")
    assert "semcom sweep letter-fig2b --scale small" in said
    assert cli.main([*words, "--csv", str(tmp_path / "card.csv"), "--html", str(tmp_path / "card.html")]) == 0
    assert len(pd.read_csv(tmp_path / "card.csv")) == 45
    page = (tmp_path / "card.html").read_text("utf-8")
    assert page.count("<tr") == 46 and "http" not in page and "With 20 clients FedCL is ahead" in page


def test_shares_are_in_points_and_other_numbers_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Purities of 0.58 and 0.54 differ by 4 points, silhouettes of 0.06 and 0.04 by 0.02, which can be seen."""
    monkeypatch.setenv("COLUMNS", "200")
    for name, gain in (("fedcl", 1), ("fedproto", 0), ("fedavg", 0)):
        for seed in range(3):
            of = config(name, seed, snr=5.0, clients=20, data=DataConfig(name="cifar10"))
            noise = 0.001 * seed * gain
            clusters = {"knn_purity": 0.54 + 0.04 * gain + noise, "silhouette": 0.04 + 0.02 * gain + noise}
            simple(tmp_path / "letter-fig4-small", of, around(0.5, 20), clusters=clusters)
    found = make_scorecard(tmp_path, "fedcl-letter").set_index("id")["ours"]
    assert found["letter-fig4-knn-purity"] == pytest.approx(4.1)
    assert found["letter-fig4-silhouette"] == pytest.approx(0.021)
    assert cli.main(["claims", "--paper", "fedcl-letter", "--results", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "fedcl - fedproto: 4.1 [3.9, 4.3]" in said and "fedcl - fedproto: 0.02 [0.02, 0.02]" in said


# What an archive, a rival that has not been run, and settings of variants do to an answer ----------------------------


def test_an_archive_has_its_learning_curves(tmp_path: Path) -> None:
    """The files that it was unpacked into live as long as the numbers are asked for."""
    for seed in range(2):
        of = config("fedcosr", seed, clients=20, data=DataConfig(name="cifar10"))
        lines = [line(i, {"personal": scored(around(0.1 * i + 0.01 * seed, 20))}) for i in range(1, 5)]
        write(tmp_path / "sweep" / f"{seed}", of, lines)
    pack_archive(tmp_path / "sweep", tmp_path / "fedcosr-fig5-small.zip")
    found = read_evidence(["fedcosr-fig5"], tmp_path)
    assert found is not None
    whole = next(key for key, place in found.places.items() if "round" not in place)
    assert found.value("fedcosr", whole, "roughness").tolist() == pytest.approx([10, 10])
    late = next(key for key, place in found.places.items() if place.get("round") == ("last quarter",))
    assert found.value("fedcosr", late, "accuracy").tolist() == pytest.approx([40, 41])


def test_a_rival_that_has_not_been_run_leaves_the_best_and_the_place_open(tmp_path: Path) -> None:
    """Of sixteen methods three: FedCoSR is 10 points ahead of those, and nothing is known of the others."""
    for name, accuracy in (("fedcosr", 0.9), ("fedper", 0.8), ("fedavg", 0.5)):
        for seed in range(3):
            of = config(name, seed, clients=20, data=DataConfig(name="cifar10"))
            of = set_fields(of, {"partition.kind": "dirichlet", "partition.options": {}})
            simple(tmp_path / "fedcosr-table2-small", of, around(accuracy + 0.001 * seed * len(name), 20))
    card_ = make_scorecard(tmp_path, "fedcosr").set_index("id")
    for name in ("fair-top-three", "gain-cifar10-dirichlet", "abstract-fairness"):
        assert card_.loc[f"fedcosr-table2-{name}", "state"] in ("inconclusive", "not run"), name
    assert "fedproto" in card_.loc["fedcosr-table2-fair-top-three", "note"]


@pytest.mark.parametrize(("metric", "better"), [("accuracy_std", -1), ("accuracy", 1)])
def test_a_number_among_the_best_is_told_as_the_methods_minus_anothers(metric: str, better: int) -> None:
    """3 with spreads of 0.1 for 4.5, which is ahead where less is better."""
    read = Claim("top", ("a",), ("b",), 1.0, False, metric, None, "all", {}, False)
    ahead = [better * (4.5 - mine) for mine in (2.9, 3.0, 3.1)]
    mean, low, high = _orient_interval(read, judge_alone(compared(*ahead, top=1)))
    assert mean == pytest.approx(-1.5) and low < mean < high


def test_settings_of_variants_are_no_places(tmp_path: Path) -> None:
    """RepPer keeps the settings of its last stage where others have none: they still meet at each head."""
    for name, kind in (("repper", "svm"), ("fedavg", "svm"), ("repper", "linear"), ("fedavg", "linear")):
        finish = FinishConfig(kind=kind, epochs=10 if name == "repper" or kind == "linear" else None)
        simple(tmp_path / "repper-table3-small", config(name, clients=20, finish=finish), around(0.5, 20))
    found = read_evidence(["repper-table3"], tmp_path)
    assert found is not None
    whole = [key for key, place in found.places.items() if "round" not in place]
    assert len(whole) == 2 and all(
        len(found.value(name, key, "accuracy")) for key in whole for name in ("repper", "fedavg")
    )


def test_where_one_method_is_tested_at_the_end_all_are(tmp_path: Path) -> None:
    """FedAvg has 40 % in round 3 and 60 % in round 4, RepPer 55 % after its last stage: 5 points less, not 5 more."""
    division = PartitionConfig("dirichlet", options=Dirichlet.Options(beta=1.0))

    def of_method(name: str, seed: int) -> RunConfig:
        of = config(name, seed, clients=20, data=DataConfig(name="cifar10"))
        share = dataclasses.replace(of.train, participation=0.4, local_epochs=5)
        return dataclasses.replace(of, partition=division, train=share)

    for seed in range(3):
        lines = [
            line(3, {"personal": scored(around(0.4, 20))}),
            line(4, {"personal": scored(around(0.6 + 0.001 * seed, 20))}),
        ]
        write(tmp_path / "repper-table1-small" / f"a{seed}", of_method("fedavg", seed), lines)
    alone = read_evidence(["repper-table1"], tmp_path)
    assert alone is not None and not alone.ended  # without RepPer the mean of the last evaluations, as everywhere
    (key,) = (key for key in alone.places if key[2] is None)
    assert alone.value("fedavg", key, "accuracy").tolist() == pytest.approx([50, 50.05, 50.1])
    for seed in range(3):
        after = line(5, {"personal": scored(around(0.55, 20))})
        write(tmp_path / "repper-table1-small" / f"r{seed}", of_method("repper", seed), [line(4)], finish=after)
    found = read_evidence(["repper-table1"], tmp_path)
    assert found is not None and found.ended == {"repper-table1"}
    (key,) = (key for key in found.places if key[2] is None)
    assert found.value("fedavg", key, "accuracy").tolist() == pytest.approx([60, 60.1, 60.2])
    assert found.value("repper", key, "accuracy").tolist() == pytest.approx([55] * 3)
    row = make_scorecard(tmp_path, "repper").set_index("id").loc["repper-table1-best"]
    assert row["ours"] == pytest.approx(-5.1) and "those of the end" in row["note"]


def test_a_formula_is_met_within_two_hundredths_of_it() -> None:
    assert judge_alone(compared(1001, 1001, target=1000.0, exact=True, point=10.0)).answer == "yes"
    assert judge_alone(compared(1030, 1030, target=1000.0, exact=True, point=10.0)).answer == "no"


def test_a_fall_of_a_mean_is_of_the_methods_that_guess_at_neither_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """One falls from 90 to 85; another guesses at the second point: the mean falls by 5, it does not rise from 60."""
    numbers = {"a": (90.0, 85.0), "b": (30.0, 10.0)}
    evidence, keys = Evidence({}).under(frozenset({"guessing"})), [("item", (clients,), None) for clients in (20, 100)]
    monkeypatch.setattr("semcom_papers.experiments.claims.evidence._list_declared", lambda item: [*numbers])
    monkeypatch.setattr(evidence, "_find_runs", lambda key: [SimpleNamespace(variant=name) for name in numbers])
    monkeypatch.setattr(evidence, "_guesses", lambda name, key: numbers[name][keys.index(key)] <= 12.5)
    monkeypatch.setattr(evidence, "_find_value", lambda name, key, _: Values([numbers[name][keys.index(key)]], ["0"]))
    ends = [evidence.value("averaged", key, "accuracy", tuple(keys)).mean() for key in keys]
    assert ends == [90, 85]
    assert [evidence.value("averaged", key, "accuracy").mean() for key in keys] == [60, 85]
