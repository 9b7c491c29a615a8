"""Encoders that an arm cannot average. The refused values of hyperparameters are in wordings.txt."""

from __future__ import annotations

import pytest

from semcom.config import ConfigError
from tests.methods.arms import ARMS
from tests.worlds import world

ANY_ENCODER = ("fedcl", "fedgh", "fedproto", "lg_fedavg", "local")
"""Arms that average no encoder."""


@pytest.mark.parametrize("arm", ARMS)
def test_what_averages_encoders_takes_one_architecture(arm: str) -> None:
    mixed = {"encoder": "test-conv,test-conv-wide"}
    if arm in ANY_ENCODER:
        assert len(world(arm, **mixed).population().cohorts) == 2
        return
    words = f"^model.encoder: {arm} averages the encoder, which test-conv and test-conv-wide do not share$"
    with pytest.raises(ConfigError, match=words):
        world(arm, **mixed)
