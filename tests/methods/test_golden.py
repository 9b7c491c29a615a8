"""Losses of ten rounds under a fixed seed: a change of structure must leave them unchanged.

To write them anew after an intended change: `python -m tests.methods.test_golden`, and give the reason in the commit.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from semcom.methods.registry import METHODS
from tests.methods.arms import ARMS
from tests.worlds import world

GOLDEN = Path(__file__).with_name("golden.json")


def losses(arm: str) -> list[float]:
    """Mean training loss of each of ten rounds, float64, Rayleigh both ways, three unequal clients."""
    w = world(arm, channel={"kind": "rayleigh"}, train={"local_epochs": 2})
    method = METHODS.get(arm)(w.config.hyper)
    state, found = method.setup(w), []
    for r in range(1, 11):
        w.session.tally.begin(r)
        state = method.round(state, w)
        found.append(float(w.session.tally.log["loss"].mean()))
    return found


@pytest.mark.parametrize("arm", ARMS)
def test_golden_losses(arm: str) -> None:
    assert losses(arm) == pytest.approx(json.loads(GOLDEN.read_text())[arm], rel=1e-8)


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps({arm: losses(arm) for arm in ARMS}, indent=1) + "\n")
