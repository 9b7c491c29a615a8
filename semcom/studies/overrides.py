"""Values of fields as `semcom sweep` spells them: ranges, lists and values of joint fields, read and written.

    --set train.rounds=20    --vary channel.snr_db=-6..18:3    --vary partition.ways,partition.shots=2:150,3:100

What cannot be spelled like that (a value with a comma in it, a list) is a JSON list:

    --vary 'train.lr=[[0.1,0.2],[0.3]]'
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from semcom.config import ConfigError

Fields = tuple[str, ...]
Values = tuple[tuple[Any, ...], ...]
"""The values of an axis: for each of them a tuple, with an entry per field."""
Typed = Callable[[str, str], Any]
"""Function from a dotted field and a word to the value that the word spells. Raises ConfigError for a wrong one."""

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\.\.({_NUMBER})(?::({_NUMBER}))?")
MOST = 10_000
"""Values of the longest range."""


def parse_field_of_flag(word: str) -> str:
    """Turn the name of a flag into the dotted name of its field: `--channel.snr-db` -> `channel.snr_db`."""
    name = word.strip().removeprefix("--").replace("-", "_")
    return "finish.kind" if name == "finish" else name


def format_number(value: float) -> str:
    """Format a number without needless decimals, and without loss: 9.0 -> "9", 0.1 -> "0.1"."""
    short = f"{value:g}"
    return short if isinstance(value, float) and float(short) == value else str(value)


def format_plain_value(value: Any) -> str:
    """Format a value of a field without needless decimals: "None" for an empty one, commas between several."""
    if isinstance(value, tuple | list):
        return ",".join(map(format_plain_value, value))
    if isinstance(value, float):
        return "None" if math.isnan(value) else format_number(value)
    return "None" if str(value) == "<NA>" else str(value)  # pandas's own


def name_file(text: str) -> str:
    """Shorten an absolute path to the name of its file, as tables and figures show it; other texts stay unchanged."""
    return os.path.basename(text) if os.path.isabs(text) else text


def format_duration(seconds: float) -> str:
    """Format a time in the unit that suits it: 8.3 s, 42 min, 11 h."""
    units = (("s", 1, 90), ("min", 60, 90), ("h", 3600, 48), ("days", 86_400, math.inf))
    value, unit = next((seconds / size, unit) for unit, size, most in units if seconds / size < most)
    return f"{round(value, 1 if value < 10 else 0):g} {unit}"


# -- reading ---------------------------------------------------------------------------------------------------------


def parse_set_override(text: str, typed: Typed) -> tuple[str, Any]:
    """Parse `--set FIELD=VALUE` into the field and its value. Raises ConfigError."""
    names, given = _split_setting(text, "set", "train.rounds=20")
    field = parse_field_of_flag(names)
    return field, typed(field, given)


def parse_vary_override(text: str, typed: Typed) -> tuple[Fields, Values]:
    """Parse `--vary FIELDS=VALUES` into the fields and their values.

    Raises:
        ConfigError: it is spelled wrongly, or a value is none of its field.
    """
    names, given = _split_setting(text, "vary", "channel.snr_db=-6..18:3")
    fields = tuple(parse_field_of_flag(name) for name in names.split(","))
    if given.startswith("["):
        return fields, _parse_json_values(given, len(fields), names)
    if len(fields) == 1:
        return fields, tuple((typed(fields[0], word),) for word in split_override_values(given, names))
    return fields, tuple(_parse_joint_value(word, fields, typed) for word in given.split(","))


def parse_seeds_override(text: str) -> tuple[int, ...]:
    """Parse `--seeds 0..4` or `--seeds 0,3,7`. Raises ConfigError."""
    words = split_override_values(text, "seeds")
    wrong = [word for word in words if not re.fullmatch(r"\+?\d+", word)]
    if wrong:
        raise ConfigError(f"seeds: {wrong[0]!r} is not a whole number of at least 0; write 0..4 or 0,3,7")
    return tuple(map(int, words))


def split_override_values(text: str, name: str) -> list[str]:
    """Split a comma list into words, in which ranges FIRST..LAST[:STEP] stand for their numbers.

    Steps are exact: those of 0..1:0.1 are 0.1, 0.2, 0.3. LAST is among them where the steps meet it.

    Raises:
        ConfigError: a word is empty, or a range has no number or more than `MOST`.
    """
    words: list[str] = []
    for part in (part.strip() for part in text.split(",")):
        if not part:
            raise ConfigError(f"{name}: {text!r} has an empty value; write values with commas between them")
        ends = _RANGE.fullmatch(part)
        words += _expand_range(part, name, *ends.groups(default="1")) if ends else [part]
    return words


def _expand_range(text: str, name: str, first: str, last: str, step: str) -> list[str]:
    start, stop, by = Decimal(first), Decimal(last), Decimal(step)
    count = int((stop - start) / by) + 1 if by and (stop - start) / by >= 0 else 0
    if not 0 < count <= MOST:
        wanted = f"write FIRST..LAST or FIRST..LAST:STEP, with 1 to {MOST} numbers"
        raise ConfigError(f"{name}: {text!r} has {count or 'no'} numbers; {wanted}")
    return [format(start + i * by, "f") for i in range(count)]


def _split_setting(text: str, flag: str, example: str) -> tuple[str, str]:
    """Split a text at the first equals sign."""
    names, equals, given = text.partition("=")
    if not equals or not names.strip():
        raise ConfigError(f"{flag}: {text!r} is not FIELD=VALUE; write for example --{flag} {example}")
    return names, given


def _parse_joint_value(word: str, fields: Fields, typed: Typed) -> tuple[Any, ...]:
    """Parse one value of joint fields, spelled with colons between its parts."""
    parts = word.split(":")
    if len(parts) != len(fields):
        wanted = ":".join(field.rpartition(".")[2].upper() for field in fields)
        raise ConfigError(f"vary: {word!r} has {len(parts)} values for {len(fields)} fields; write {wanted}")
    return tuple(typed(field, part) for field, part in zip(fields, parts, strict=True))


def _parse_json_values(text: str, count: int, names: str) -> Values:
    """Parse the values of a JSON list; those of joint fields are lists themselves."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"vary: {names}={text!r} is no JSON list ({error})") from None
    rows = [(value,) for value in found] if count == 1 else found
    if not all(isinstance(row, list | tuple) and len(row) == count for row in rows):
        raise ConfigError(f"vary: {names} takes a JSON list of lists with {count} values each, not {text!r}")
    return tuple(tuple(row) for row in rows)


# -- writing ---------------------------------------------------------------------------------------------------------


def format_set_override(field: str, value: Any) -> str:
    """Format what `parse_set_override` reads; several values of one field stand with spaces between them."""
    parts = value if isinstance(value, tuple | list) else (value,)
    return f"{field}={' '.join(map(_format_word, parts))}"


def format_override_values(values: Sequence[Any]) -> str:
    """Format values as words with commas between them, those of joint fields with colons; even steps are a range."""
    if len(values) < 3 or not all(_is_number(value) and math.isfinite(value) for value in values):
        return ",".join(map(_format_word, values))
    exact = [Decimal(format_number(value)) for value in values]
    step = exact[1] - exact[0]
    if not step or any(exact[0] + i * step != value for i, value in enumerate(exact)):
        return ",".join(map(_format_word, values))
    return f"{exact[0]:f}..{exact[-1]:f}" + ("" if step == 1 else f":{step:f}")


def _format_word(value: Any) -> str:
    if isinstance(value, tuple):
        return ":".join(map(_format_word, value))
    return format_number(value) if _is_number(value) else str(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
