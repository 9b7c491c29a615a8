"""A refusal names its field as data, and comes through to another process."""

from __future__ import annotations

import pickle

import pytest

from semcom.config import ConfigError, NoEffect


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ("clients: 0 is not a whole number", "clients"),
        ("channel.snr-db: 'a: b' is not a number", "channel.snr_db"),
        ("--chanel.snr-db: no such flag", "chanel.snr_db"),
        ("train.round=5: no such field", "train.round"),
        ("'again' is not expected here: flags begin with --", ""),
        ("clients, seed: (9, 20, 1) is no tuple of 2 values", ""),
    ],
)
def test_the_field_is_what_the_line_begins_with(message: str, field: str) -> None:
    assert ConfigError(message).field == field


def test_fields_that_exclude_each_other_survive_a_pickle() -> None:
    error = NoEffect("train.local-steps: 5 is not taken beside train.local-epochs 2", "train.local_epochs")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (NoEffect, str(error))
    assert again.fields == error.fields == ("train.local_steps", "train.local_epochs")
