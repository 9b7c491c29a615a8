"""Rules for numbers and choices, and the words in which they refuse."""

from __future__ import annotations

import math

import numpy as np
import pytest

from semcom.channels.options import COUNT, NOT_NEGATIVE, PART, POSITIVE, SHARE, WHOLE, one_of, require

TINY = 5e-324
HUGE = 10**400


@pytest.mark.parametrize(
    ("rule", "fine", "wrong", "words"),
    [
        (COUNT, [1, np.int64(7), HUGE], [0, -1, 1.0, 1.5], "a whole number of at least 1"),
        (WHOLE, [0, 1, HUGE], [-1, 0.0, 0.5], "a whole number of at least 0"),
        (POSITIVE, [TINY, 1, np.float32(0.5)], [0, 0.0, -TINY], "a positive number"),
        (NOT_NEGATIVE, [0, 0.0, 3.5], [-TINY, -1], "a number of at least 0"),
        (SHARE, [TINY, 0.5, 1], [0, 1 + 1e-15, -0.5], "a number in (0, 1]"),
        (PART, [0, 0.5, 1], [-TINY, 1 + 1e-15], "a number in [0, 1]"),
    ],
)
def test_a_rule_accepts_its_numbers_and_no_other(rule, fine, wrong, words):
    for value in fine:
        require("x", value, rule)
    for value in [*wrong, math.nan, math.inf, -math.inf, True, "1", (1,), object]:
        with pytest.raises(ValueError) as refused:
            require("x", [value], rule)
        assert str(refused.value) == f"x: {value!r} is not {words}"


def test_each_of_several_is_looked_at_and_an_open_one_passes():
    require("x", None, COUNT)
    require("x", (1, None, 2), COUNT)
    require("x", (), COUNT)
    with pytest.raises(ValueError, match="^x: 0 is not"):
        require("x", (1, 0, -1), COUNT)


def test_a_choice_is_one_of_those_known():
    one_of("x", "b", ("a", "b"))
    with pytest.raises(ValueError, match="^x: 'c' is unknown; known are a, b$"):
        one_of("x", "c", ("a", "b"))
    with pytest.raises(ValueError, match="^x: 3 is unknown; known are 4, 16$"):
        one_of("x", 3, (4, 16))
