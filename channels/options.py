"""Options of links, and the checker of ranges and choices, for links here and for all of `semcom` above."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields
from numbers import Integral, Real
from typing import Any, get_type_hints


@dataclass(frozen=True)
class BaseOptions:
    """Base of a link's options: a frozen dataclass whose fields are options, each with a default and a docstring.

    This class has no options. A subclass is nested in its link, under the name `Options`.
    """

    def check(self) -> None:
        """Check values and how they go together.

        Raises:
            ValueError: one line that begins with the option's name: "k_factor_db: nan is not a number ...".
        """


class NoEffect(ValueError):
    """Error for an option without effect beside the others. The message begins with its name."""


@dataclass(frozen=True)
class Rule:
    """A condition on a finite number.

    Attributes:
        fine: the condition.
        wanted: its words, as they end "0.5 is not ...".
        whole: numbers that are not whole are refused too.
    """

    fine: Callable[[float], bool]
    wanted: str
    whole: bool = False

    def accepts(self, value: Any) -> bool:
        """Check whether a value is a finite number, not a bool, that meets the condition."""
        number = isinstance(value, Integral if self.whole else Real) and not isinstance(value, bool)
        return number and -math.inf < value < math.inf and self.fine(value)  # math.isfinite overflows for huge ones


COUNT = Rule(lambda v: v >= 1, "a whole number of at least 1", whole=True)
WHOLE = Rule(lambda v: v >= 0, "a whole number of at least 0", whole=True)
POSITIVE = Rule(lambda v: v > 0, "a positive number")
MEASURE = Rule(lambda v: 1e-30 <= v <= 1e30, "a positive number, from 1e-30 to 1e30")
"""Rule for quantities that enter sums, products and ratios, so that these stay finite."""
NOT_NEGATIVE = Rule(lambda v: v >= 0, "a number of at least 0")
SHARE = Rule(lambda v: 0 < v <= 1, "a number in (0, 1]")
PART = Rule(lambda v: 0 <= v <= 1, "a number in [0, 1]")


def require(name: str, value: Any, rule: Rule) -> None:
    """Raise ValueError unless a number, or each of several, meets a rule. An open value (None) passes."""
    for v in value if isinstance(value, (tuple, list)) else (value,):
        if v is not None and not rule.accepts(v):
            raise ValueError(f"{name}: {v!r} is not {rule.wanted}")


def one_of(name: str, value: object, accepted: Sequence[object]) -> None:
    """Raise ValueError unless a value is one of those accepted."""
    if value not in accepted:
        raise ValueError(f"{name}: {value!r} is unknown; known are {', '.join(map(str, accepted))}")


def find_undeclared_option(owner: object, name: str) -> str | None:
    """Describe the error in the options that a class or function declares under a name (None: they are valid)."""
    declared, place = getattr(owner, name, None), f"{getattr(owner, '__name__', owner)}.{name}"
    if declared is None:
        return None
    if not isinstance(declared, type) or "__dataclass_fields__" not in vars(declared):
        return f"{place} is no dataclass; write @dataclass(frozen=True) above it"
    for field in fields(declared):
        if field.default is MISSING and field.default_factory is MISSING:
            return f"{place}.{field.name} has no default"
        if not field.init:
            return f"{place}.{field.name} cannot be set (init=False); work it out where it is used"
    try:
        get_type_hints(declared)
    except Exception as error:  # whatever an annotation raises
        return f"{place}: the types of its fields cannot be read ({type(error).__name__}: {error})"
    return None
