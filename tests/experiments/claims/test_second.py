"""The scorecard of the stored studies, against a second implementation of its rule."""

from __future__ import annotations

from pathlib import Path

from experiments.claims.scorecard import make_scorecard
from tests.experiments.claims import second


def test_both_implementations_agree_on_every_verdict_and_comparison(tmp_path: Path) -> None:
    found = make_scorecard(tmp_path).set_index("id")  # a folder without results of the user's own
    claims = second.rows("claims")
    assert [claim["id"] for claim in claims] == list(found.index) and len(claims) == 194
    assert {claim["id"]: second.verdict(claim) for claim in claims} == found["state"].to_dict()
    # A verdict could be right by accident: the comparisons of each claim, by what they say to it.
    for row in claims:
        points = [point for item in row["item"].split() for point in second.of_runs(item)]
        answers = [second.answer(one) for one in second.Claim(row, lacking=True).compared(points)]
        counts = {name: answers.count(name) for name in ("yes", "no", "open")}
        assert found.loc[row["id"], list(counts)].to_dict() == counts, row["id"]
