"""The factors behind FedCL's lead: what is run, and effects by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

import semcom
from semcom.config import run_hash
from semcom.studies.grid import set_fields
from semcom.studies.results.archive import read_stored_table
from semcom_papers.experiments.claims.evidence import COMMITTED
from semcom_papers.experiments.letter import lead
from semcom_papers.experiments.letter.lead import (
    BASE,
    LETTER_LEAD,
    LETTER_LEAD_LOW,
    READ,
    judge_stated_leads,
    list_levels,
    measure_effects,
)

PROTOCOL = Path(__file__).parents[2] / "experiments" / "protocol.md"


def test_every_level_changes_the_base_and_can_be_run() -> None:
    runs = {run.variant: semcom.resolve(run.config) for run in LETTER_LEAD.runs("small") if run.config.seed == 10}
    assert len(runs) == 3 + sum(len(level.arms) for level in list_levels("small"))
    for level in list_levels("small"):
        for arm in level.arms:
            start, changed = runs[f"{arm} | {BASE}"], runs[f"{arm} | {level.title}"]
            assert changed.method == start.method == arm
            optimiser = level.set.get("train.optimizer"), level.set.get("train.batch_size")
            if optimiser != (start.train.optimizer, start.train.batch_size):  # the level that is the base itself
                assert changed != start, level.title
    snrs = {"SNR: 6 dB": 6, "SNR: 12 dB": 12, "training of FedCL: no noise": math.inf}
    images = "SNR: 9 dB on the images"
    for variant, of in runs.items():
        level = variant.partition(" | ")[2]
        many = 200 if level.startswith("rounds: many") else 30
        assert of.train.rounds == {"5 local epochs: as many passes": 6}.get(level, many)
        assert of.seed == 10
        if level == images:
            assert (of.data.name, of.data.options.of, of.data.options.snr_db) == ("noisy", "cifar10", 9)
            assert of.channel.kind == "ideal"
            continue
        assert of.data.name == "cifar10" and of.channel.snr_db == snrs.get(level, 9)
        assert (of.channel.test_snr_db or of.channel.snr_db) == {**snrs, "training of FedCL: no noise": 9}.get(level, 9)


def test_the_factors_are_those_of_the_protocol() -> None:
    """Each row of the table has a level here, and the other way round."""
    part = PROTOCOL.read_text("utf-8").partition("| factor | base | levels |")[2].partition("\n\n")[0]
    rows = [line.split("|")[1].strip() for line in part.splitlines() if line.startswith("| ")][1:]
    factors = list(dict.fromkeys(level.factor for level in list_levels("small")))
    assert len(rows) == len(factors) + 1 + 4  # five epochs are two rows there
    readings = dict.fromkeys(reading.factor for reading in READ)
    assert [row for row in rows if row.startswith("*")] == [f"*{name}*" for name in readings]


def test_a_step_is_one_of_the_bases_where_images_are_others() -> None:
    """300 images in batches of 20: 15 steps; at scale `paper`, in batches of 50, 6."""
    for scale, steps in (("small", 15), ("paper", 6)):
        found = [level.set["train.local_steps"] for level in list_levels(scale) if "as many steps" in level.factor]
        assert found == [steps, steps]


def frame(values: dict[str, list[float]], **more: object) -> pd.DataFrame:
    rows = [
        {"variant": variant, "seed": seed, "status": "done", "accuracy": accuracy, **more}
        for variant, each in values.items()
        for seed, accuracy in enumerate(each)
    ]
    return pd.DataFrame(rows)


def rows_of(*rows: tuple[str, str, str, float, float, float]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["factor", "level", "rival", "effect", "low", "high"])


def test_the_strongest_levels_raise_the_lead_one_for_each_rival() -> None:
    """Neither one that may be none, nor one that lowers it; no reading, and no level of the encoder."""
    found = rows_of(
        ("encoders", "four in turn", "fedproto", 9.0, 8.0, 10.0),
        ("number", "best round", "fedproto", 8.0, 7.0, 9.0),
        ("clients", "50", "fedproto", 7.0, -1.0, 15.0),
        ("power", "free", "fedproto", -7.0, -8.0, -6.0),
        ("SNR", "6 dB", "fedproto", 2.0, 1.0, 3.0),
        ("lambda of FedProto", "64 times", "fedproto", 1.0, 0.5, 1.5),
        ("SNR", "12 dB", "fedavg", 6.0, 5.0, 7.0),  # another level of the first one's factor
        ("training of FedCL", "no noise", "fedavg", 5.0, 4.0, 6.0),  # which sets the SNR too
        ("head", "mlp", "fedavg", 4.0, 3.0, 5.0),
        (BASE, "", "fedavg", math.nan, math.nan, math.nan),
    )
    assert lead.find_strongest_levels(found) == ["SNR: 6 dB", "head: mlp"]
    assert lead.find_strongest_levels(found[found["rival"] == "fedavg"]) == ["SNR: 12 dB"]
    assert lead.find_strongest_levels(found[found["low"].isna() | (found["low"] < 0)]) == []


def test_what_is_confirmed_alone_and_together() -> None:
    """Each arm has the settings of its levels beside the base's; an arm that one level changes is run once."""
    runs = {run.variant: run.config for run in lead.LETTER_LEAD_CONFIRM.runs("small") if run.config.seed == 10}
    runs_of_base = {arm: runs[f"{arm} | {BASE}"] for arm in lead.ARMS}
    assert runs_of_base["fedcl"].hyper == {"lam": 1 / 16}
    weight, classes, both = lead.list_confirmed_levels("small")
    assert (weight.title, classes.title) == lead.CONFIRMED and both.others == {"fedcl": classes.title}
    lam, fewer = {"hyper.lam": 64.0}, {"partition.ways": 2, "partition.shots": 150}
    for arm in lead.ARMS:
        changes = {BASE: {}, weight.title: lam, classes.title: fewer, both.title: {**lam, **fewer}}
        own = changes if arm == "fedproto" else {title: changes[title] for title in (BASE, classes.title)}
        for title, fields in own.items():
            assert runs.pop(f"{arm} | {title}") == set_fields(runs_of_base[arm], fields), (arm, title)
    assert not runs


def test_the_confirmation_has_a_wider_encoder_more_rounds_and_three_of_the_seeds() -> None:
    runs = [semcom.resolve(run.config) for run in lead.LETTER_LEAD_CONFIRM.runs("small")]
    assert {(of.model.encoder, of.train.rounds, of.channel.snr_db) for of in runs} == {("dcgan", 60, 9.0)}
    assert {of.seed for of in runs} == {10, 11, 12} and len(runs) >= 9


def verdict(rival: str, *leads: tuple[str, float, float, float]) -> dict[tuple[float, str], tuple[str, str]]:
    """What is said of a rival's numbers, from (factor, low, high, the rival's accuracy)."""
    rows = [
        {"factor": name, "level": "x" if name != BASE else "", "rival": rival, "lead": (low + high) / 2}
        | {"lead_low": low, "lead_high": high, "rival_accuracy": accuracy}
        for name, low, high, accuracy in leads
    ]
    found = judge_stated_leads(pd.DataFrame(rows))
    mine = found[found["rival"] == rival]
    return {(row["stated"], row["reading"]): (row["verdict"], row["settings"]) for row in mine.to_dict("records")}


def test_verdicts_by_hand() -> None:
    """Against a rival of 60 %, 12.75 is 7.65 points as a part of it, and 25.09 is 15.05."""
    none = verdict("fedproto", (BASE, -1.0, 1.0, 60.0), ("a", 3.0, 5.6, 60.0))
    assert set(none.values()) == {("no setting tried gives it", "")}, "5.6 does not reach 7.65 - 2"
    some = verdict("fedproto", (BASE, -1.0, 1.0, 60.0), ("a", 3.0, 5.7, 60.0), ("b", 13.0, 20.0, 60.0))
    assert some == {
        (12.75, "points"): ("can give it", "b: x"),
        (12.75, "relative"): ("can give it", "a: x; b: x"),
        (25.09, "points"): ("no setting tried gives it", ""),
        (25.09, "relative"): ("can give it", "b: x"),
    }
    wide = verdict("fedavg", (BASE, 30.0, 38.1, 40.0), ("a", 69.0, 90.0, 40.0), ("c", math.nan, math.nan, math.nan))
    assert wide[38.55, "points"] == ("can give it", "a: x"), "wholly above; the base's interval is 8.1 wide"
    assert wide[66.24, "points"] == ("can give it", "a: x")
    less = verdict("fedavg", (BASE, 30.0, 38.1, 40.0), ("d", -1.0, 37.0, 40.0))
    assert less[38.55, "points"] == ("inconclusive", "base; d: x")


def test_effects_by_hand() -> None:
    """In the base FedCL leads by 2, 2 and 5 points over FedProto; with free power by 5, 6 and 7: effects of 3, 4, 2."""
    found = measure_effects(
        frame(
            {
                f"fedcl | {BASE}": [0.60, 0.62, 0.65],
                f"fedproto | {BASE}": [0.58, 0.60, 0.60],
                f"fedavg | {BASE}": [0.40, 0.42, 0.44],
                "fedcl | power: free": [0.55, 0.56, 0.57],
                "fedproto | power: free": [0.50, 0.50, 0.50],
                "fedcl | centroids: none": [0.58, 0.62, 0.60],
                "fedproto | exchange: over the air": [0.57, 0.59, 0.58],
            },
            **{"views.prototype.accuracy": 0.50, "view": "a", "views.a.among_own": 0.70},
        )
    ).set_index(["factor", "level", "rival"])
    base = found.loc[BASE, "", "fedproto"]
    assert base["lead"] == pytest.approx(3) and math.isnan(base["effect"]) and base["seeds"] == 3
    free = found.loc["power", "free", "fedproto"]
    assert (free["lead"], free["effect"]) == (pytest.approx(6), pytest.approx(3))
    assert free["high"] - free["effect"] == pytest.approx(4.302653 / math.sqrt(3), rel=1e-5)  # s = 1
    assert math.isnan(found.loc["power", "free", "fedavg"]["effect"]), "not run"
    # Centroids are FedCL's alone: against both others' runs in the base.
    assert found.loc["centroids", "none", "fedproto"]["effect"] == pytest.approx((0 + 2 + 0 - 9) / 3)
    assert found.loc["centroids", "none", "fedavg"]["lead"] == pytest.approx(18)
    # Exchange is the others' alone: FedCL's runs are those of the base.
    assert found.loc["exchange", "over the air", "fedproto"]["effect"] == pytest.approx((1 + 1 + 2) / 3)
    view = found.loc["view of FedProto", "nearest prototype", "fedproto"]
    assert view["effect"] == pytest.approx((8 + 10 + 10) / 3)
    over_the_air = found.loc["view of FedProto", "nearest prototype, over the air", "fedproto"]
    assert over_the_air["lead"] == pytest.approx((10 + 12 + 15) / 3), "FedCL's runs in the base, their prototypes"
    among = found.loc["answer", "among own classes", "fedavg"]
    assert (among["lead"], among["effect"]) == (pytest.approx(0), pytest.approx(-(20 + 20 + 21) / 3))
    alone = found.loc["answer", "FedCL's among own classes", "fedavg"]
    assert alone["lead"] == pytest.approx((30 + 28 + 26) / 3) and alone["rival_accuracy"] == pytest.approx(42)
    assert base["own"] == pytest.approx(0) and math.isnan(among["own"])
    assert math.isnan(found.loc["view of FedAvg", "encoder as received over the air", "fedavg"]["lead"])
    assert ("encoders", "four in turn", "fedavg") not in found.index


def test_a_level_that_changes_another_one_further_is_held_against_it() -> None:
    """With many rounds FedCL is 20 points behind, with mean centroids beside them 5: an effect of 15, not of 5."""
    found = measure_effects(
        frame(
            {
                f"fedcl | {BASE}": [0.60],
                f"fedproto | {BASE}": [0.50],
                "fedcl | rounds: many": [0.40],
                "fedproto | rounds: many": [0.60],
                "fedcl | rounds: many with plain mean": [0.55],
            },
            view="a",
        )
    ).set_index(["factor", "level", "rival"])
    row = found.loc["rounds", "many with plain mean", "fedproto"]
    assert (row["lead"], row["effect"]) == (pytest.approx(-5), pytest.approx(15))
    assert found.loc["rounds", "many", "fedproto"]["effect"] == pytest.approx(-30)
    known = {level.title: level for level in list_levels("small")}
    further = [level for level in list_levels("small") if level.start != BASE]
    assert further and all(known[level.start].arms == lead.ARMS for level in further)
    assert all(known[level.start].set.items() <= level.set.items() for level in further)


def test_the_last_round_is_compared_where_there_are_few() -> None:
    """Six rounds against the base's last one: accuracies, which are means, play no part."""
    title = "5 local epochs: as many passes"
    runs = frame({f"{arm} | {level}": [0.1] for arm in lead.ARMS for level in (BASE, title)}, view="a")
    last = {("fedcl", BASE): 0.6, ("fedproto", BASE): 0.5, ("fedcl", title): 0.7, ("fedproto", title): 0.4}
    arms = [tuple(variant.split(" | ")) for variant in runs["variant"]]
    found = measure_effects(runs.assign(**{"views.a.last": [last.get(arm, 0.0) for arm in arms]}))
    row = found.set_index(["factor", "level", "rival"]).loc["5 local epochs", "as many passes", "fedproto"]
    assert (row["lead"], row["effect"]) == (pytest.approx(30), pytest.approx(20))


def test_the_confirmation_has_what_the_stored_screening_chose() -> None:
    found = measure_effects(read_stored_table(COMMITTED / "letter-lead-small.zip"))
    assert tuple(lead.find_strongest_levels(found)) == lead.CONFIRMED
    assert found["seeds"].min() == 4, "no run is missing"


def test_both_levels_together_have_the_runs_of_one_where_the_other_changes_nothing() -> None:
    """FedCL has fewer classes only: 70 % against FedProto's 40 % with both, and 60 % against 50 % in the base."""
    _, classes, both = lead.list_confirmed_levels("small")
    values = {
        **{f"fedcl | {BASE}": [0.60], f"fedproto | {BASE}": [0.50], f"fedproto | {both.title}": [0.40]},
        **{f"fedcl | {classes.title}": [0.70], f"fedproto | {classes.title}": [0.55]},
    }
    found = measure_effects(frame(values, view="a"), levels=lead.list_confirmed_levels("small"))
    row = found.set_index(["factor", "rival"]).loc["together", "fedproto"]
    assert (row["lead"], row["effect"]) == (pytest.approx(30), pytest.approx(20))


def test_at_low_snr_the_changes_are_those_at_9_db() -> None:
    """But for the SNRs 3 dB off: of the others each run differs from that of `letter-lead` in its SNR alone."""
    runs = {run.variant: semcom.resolve(run.config) for run in LETTER_LEAD_LOW.runs("small") if run.config.seed == 10}
    assert len(runs) == len(set(map(run_hash, runs.values()))), "none is run twice"
    at_9 = {run.variant: semcom.resolve(run.config) for run in LETTER_LEAD.runs("small") if run.config.seed == 10}
    left_out = {"SNR: 6 dB", "SNR: 12 dB"}
    kept = {name: of for name, of in at_9.items() if of.method != "fedavg" and name.partition(" | ")[2] not in left_out}
    assert len(runs) == 2 * len(kept)
    for snr in lead.LOW:
        for name, of in kept.items():
            found = runs[f"{name.replace('SNR: 9 dB', f'SNR: {snr:g} dB')} at {snr:g} dB"]
            if name.endswith("on the images"):
                assert (found.channel, found.data.options.snr_db) == (of.channel, snr)
                continue
            quiet = name.endswith("no noise")
            assert found.channel.snr_db == (math.inf if quiet else snr)
            assert found.channel.test_snr_db == (snr if quiet else None)
            assert replace(found, channel=of.channel) == of


def test_effects_at_low_snr_are_measured_as_at_9_db() -> None:
    """Stored runs of 9 dB under the names of those at 0 dB; by its own rule FedProto has its reading's lead."""
    stored = read_stored_table(COMMITTED / "letter-lead-small.zip")
    whole = measure_effects(stored).query("rival == 'fedproto'").set_index(["factor", "level"])
    names = stored["variant"].str.replace("SNR: 9 dB", "SNR: 0 dB") + " at 0 dB"
    frame = stored.assign(variant=names)
    head = lead.measure_low_effects(frame, 0.0, None).set_index(["factor", "level"])
    assert len(head) == 37
    same = head.drop(index=("SNR", "0 dB on the images"))
    pd.testing.assert_frame_equal(same, whole.loc[same.index])
    own = lead.measure_low_effects(frame, 0.0, "prototype").set_index(["factor", "level"])
    numbers = ["lead", "lead_low", "lead_high", "rival_accuracy"]
    base, reading = own.loc[(BASE, ""), numbers], whole.loc[("view of FedProto", "nearest prototype"), numbers]
    assert base.tolist() == pytest.approx(reading.tolist())
    assert own.loc[("exchange", "over the air"), "lead"] == pytest.approx(
        whole.loc[("view of FedProto", "nearest prototype, over the air"), "lead"]
    )
    said = list(lead.judge_low_levels(pd.concat([frame, frame.assign(variant=names.str.replace("0 dB", "-3 dB"))])))
    rows = {(row["hypothesis"], row["place"]): row["difference"] for row in said}
    assert len(rows) == 4 * 4
    title = "plain means lower FedCL"
    assert rows[title, "-3 dB, over FedProto's head"] == whole.loc[("centroids", "plain mean"), "effect"]
