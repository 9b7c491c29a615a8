"""The factors behind FedCL's lead: what is run, and effects by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest

import semcom
from experiments import letter_lead as lead
from experiments.letter_lead import BASE, LETTER_LEAD, effects, levels

PROTOCOL = Path(__file__).parents[2] / "docs" / "protocol.md"


@pytest.fixture(autouse=True)
def quick_resolve() -> None:
    """Configurations are resolved in earnest here, in the place of the stand-in of conftest.py."""


def test_every_level_changes_the_base_and_can_be_run() -> None:
    runs = {run.variant: semcom.resolve(run.config) for run in LETTER_LEAD.runs("small") if run.config.seed == 0}
    assert len(runs) == 3 + sum(len(level.arms) for level in levels("small"))
    for level in levels("small"):
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
        assert of.train.rounds == (6 if "as many passes" in variant else 30)
        if level == images:
            assert (of.data.name, of.data.options.of, of.data.options.snr_db) == ("noisy", "cifar10", 9)
            assert of.channel.kind == "none"
            continue
        assert of.data.name == "cifar10" and of.channel.snr_db == snrs.get(level, 9)
        assert (of.channel.test_snr_db or of.channel.snr_db) == {**snrs, "training of FedCL: no noise": 9}.get(level, 9)


def test_the_factors_are_those_of_the_protocol() -> None:
    """Each row of the table has a level here, and the other way round."""
    part = PROTOCOL.read_text("utf-8").partition("| factor | base | levels |")[2].partition("\n\n")[0]
    rows = [line.split("|")[1].strip() for line in part.splitlines() if line.startswith("| ")][1:]
    factors = list(dict.fromkeys(level.factor for level in levels("small")))
    assert len(rows) == len(factors) + 3  # five epochs are two rows there, two others have no runs


def frame(values: dict[str, list[float]], **more: object) -> pd.DataFrame:
    rows = [
        {"variant": variant, "seed": seed, "status": "done", "accuracy": accuracy, **more}
        for variant, each in values.items()
        for seed, accuracy in enumerate(each)
    ]
    return pd.DataFrame(rows)


def test_the_strongest_levels_are_of_two_factors_and_told_from_zero() -> None:
    """Not the largest one, whose interval contains zero; not another level of the first one's factor; no view."""
    rows = [
        ("a", "1", "fedproto", 9.0, -1.0, 19.0),
        ("b", "1", "fedavg", -8.0, -9.0, -7.0),
        ("b", "2", "fedavg", 7.0, 6.0, 8.0),
        ("view of FedProto", lead.PROTOTYPE, "fedproto", 6.0, 5.0, 7.0),
        ("answer", lead.AMONG_OWN, "fedavg", -9.0, -9.5, -8.5),
        ("c", "1", "fedproto", 5.0, 4.0, 6.0),
        ("d", "1", "fedproto", 4.0, 3.0, 5.0),
        (BASE, "", "fedproto", math.nan, math.nan, math.nan),
    ]
    frame_ = pd.DataFrame(rows, columns=["factor", "level", "rival", "effect", "low", "high"])
    assert lead.strongest(frame_) == ["b: 1", "c: 1"]
    assert lead.strongest(frame_[frame_["factor"].isin(["a", BASE])]) == []


def test_effects_by_hand() -> None:
    """In the base FedCL leads by 2, 2 and 5 points over FedProto; with free power by 5, 6 and 7: effects of 3, 4, 2."""
    found = effects(
        frame(
            {
                f"fedcl | {BASE}": [0.60, 0.62, 0.65],
                f"fedproto | {BASE}": [0.58, 0.60, 0.60],
                f"fedavg | {BASE}": [0.40, 0.42, 0.44],
                "fedcl | power: free": [0.55, 0.56, 0.57],
                "fedproto | power: free": [0.50, 0.50, 0.50],
                "fedcl | lambda: 0": [0.58, 0.62, 0.60],
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
    # lambda is FedCL's alone: against both others' runs in the base.
    assert found.loc["lambda", "0", "fedproto"]["effect"] == pytest.approx((0 + 2 + 0 - 9) / 3)
    assert found.loc["lambda", "0", "fedavg"]["lead"] == pytest.approx(18)
    # Exchange is the others' alone: FedCL's runs are those of the base.
    assert found.loc["exchange", "over the air", "fedproto"]["effect"] == pytest.approx((1 + 1 + 2) / 3)
    view = found.loc["view of FedProto", lead.PROTOTYPE, "fedproto"]
    assert view["effect"] == pytest.approx((8 + 10 + 10) / 3)
    among = found.loc["answer", lead.AMONG_OWN, "fedavg"]
    assert (among["lead"], among["effect"]) == (pytest.approx(0), pytest.approx(-(20 + 20 + 21) / 3))
    assert ("encoders", "four in turn", "fedavg") not in found.index
