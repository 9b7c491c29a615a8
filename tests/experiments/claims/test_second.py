"""The scorecard of the stored studies, against a second implementation of its rule and against the page about it."""

from __future__ import annotations

import re

import pandas as pd
import pytest

from semcom_papers.experiments.claims.scorecard import make_scorecard
from tests.experiments.claims import second
from tests.test_reproduction import PAGE, table

NAMES = {
    "The FedCL letter": "fedcl-letter",
    "FedCoSR": "fedcosr",
    "FedCRL": "fedcrl",
    "FedCRC": "fedcrc",
    "RepPer": "repper",
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """The scorecard with a folder without results of the user's own, by claim."""
    return make_scorecard(tmp_path_factory.mktemp("none")).set_index("id")


@pytest.fixture(scope="module")
def judged() -> dict[str, second.Judgement]:
    """What the second implementation says of each claim, by the second edition."""
    return {claim["id"]: second.judge(claim) for claim in second.rows("claims")}


def test_both_implementations_agree_on_every_verdict_of_both_editions(
    found: pd.DataFrame, judged: dict[str, second.Judgement]
) -> None:
    claims = second.rows("claims")
    assert [claim["id"] for claim in claims] == list(found.index) and len(claims) == 194 + 24
    assert {claim["id"]: second.verdict(claim) for claim in claims} == found["first"].to_dict()
    assert {name: one.state for name, one in judged.items()} == found["state"].to_dict()


def test_both_implementations_agree_on_every_comparison(
    found: pd.DataFrame, judged: dict[str, second.Judgement]
) -> None:
    """A verdict could be right by accident: the comparisons of each claim, by what they say to it."""
    words = ["yes", "level", "no", "open"]
    assert {name: one.counts for name, one in judged.items()} == found[words].astype(int).to_dict("index")


def test_both_implementations_agree_on_power_and_seeds(
    found: pd.DataFrame, judged: dict[str, second.Judgement]
) -> None:
    power, needs = ({name: getattr(one, what) for name, one in judged.items()} for what in ("power", "needs"))
    assert power == pytest.approx(found["power"].astype(float).to_dict(), abs=1e-6, nan_ok=True)
    assert needs == pytest.approx(found["needs"].astype(float).to_dict(), abs=0, nan_ok=True)


def test_the_page_counts_the_claims_by_their_states(found: pd.DataFrame) -> None:
    counts = table(PAGE, "paper").set_index("paper").astype(int)
    whole = counts.loc["all"]
    counts = counts.drop("all")
    assert whole.to_dict() == counts.sum().to_dict()
    assert list(counts.index.map(NAMES)) == list(found["paper"].unique())
    readings = found.index.str.startswith("letter-low-")
    said = re.search(r"(\d+) other readings of its 12.75 %, of which (\d+) are met", " ".join(PAGE.split()))
    assert said and [int(n) for n in said.groups()] == [sum(readings), sum(found["state"][readings] == "reproduced")]
    found = found[~readings]
    was = " ".join(PAGE.split()).partition("By the first edition of the rule: ")[2].partition(".")[0]
    assert {state: int(n) for n, state in re.findall(r"(\d+) ([^,]+)", was)} == found["first"].value_counts().to_dict()
    changed = table(PAGE, "change").set_index("change")["verdicts"].astype(int).to_dict()
    assert changed == found["why"][found["why"] != ""].str.split(", ").explode().value_counts().to_dict()
    assert counts["claims"].sum() == len(found) == int(re.search(r"make (\d+) claims", PAGE)[1])  # type: ignore[index]
    for name, row in counts.iterrows():
        of = found.loc[found["paper"] == NAMES[str(name)], "state"].value_counts()
        assert row.drop("claims").to_dict() == {state: of.get(state, 0) for state in counts.columns[1:]}, name
        assert row["claims"] == of.sum()
