"""Requests drawn at random, nonsense among them: each is run, or refused in one line; nothing else comes out.

Fields and their types are read off the configuration and off what methods, links, partitions and datasets declare, so
that a new option is tried as soon as it exists. SEMCOM_EXAMPLES=50000 makes a long run of it, with other draws.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import types
import typing
import warnings
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from semcom.channels import LINKS
from semcom.cli import main as cli
from semcom.config import ConfigError, RunConfig, RunError, to_dict
from semcom.data.registry import PARTITIONS
from semcom.engine.train.descent import Diverged
from semcom.methods.registry import METHODS
from semcom.models.registry import HEADS
from semcom.runs.request.resolve import resolve
from semcom.runs.request.section_options import OWNERS, find_options_class
from semcom.runs.rounds.runner import run
from tests import worlds

pytestmark = pytest.mark.usefixtures("here")
LONG = int(os.environ.get("SEMCOM_EXAMPLES", 0))
"""Examples of a long run (0: those of the test suite, the same every time)."""


def examples(number: int) -> settings:
    """Settings of a test with so many examples, or of its part of a long run."""
    return settings(
        max_examples=max(number, LONG * number // 200),
        derandomize=not LONG,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


# Values --------------------------------------------------------------------------------------------------------------


class Hostile:
    """An object that can be neither compared nor written."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not\nequal")

    def __hash__(self) -> int:
        return 7  # of no text and no number that is a key beside it

    def __repr__(self) -> str:
        raise RuntimeError("no\nwords")


@dataclasses.dataclass(frozen=True)
class Stranger:
    rounds: int = 1


class Text(str):
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not\nequal")

    __hash__ = str.__hash__


def deep(depth: int = 5000) -> Any:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


OBJECTS: list[Callable[[], Any]] = [
    *(lambda value=value: value for value in (None, True, b"x", 1j, (), [], {}, {1: 2}, {"x": 3}, {None: None})),
    *(lambda value=value: value for value in ({1, 2}, [[1], [2]], [None], ["x", 1], Fraction(1, 3), Path("x"))),
    *(lambda value=value: value for value in (np.int64(2), np.float32(0.5), np.bool_(True), np.str_("sgd"))),
    *(lambda value=value: value for value in (np.zeros(3), np.array(2), np.datetime64("NaT"), np.longdouble("1e4000"))),
    *(lambda value=value: value for value in (torch.zeros(3), torch.tensor(2.0), RunConfig, RunConfig(), Stranger())),
    lambda: (v for v in (1, 2)),
    lambda: types.MappingProxyType({}),
    object,
    Hostile,
    lambda: {Hostile(): Hostile()},
    lambda: Text("adam"),
    deep,
]
"""Values that few fields take; made anew, since one of them is used up."""
TEXTS = ["", " ", "x", "None", "nan", "inf", "-inf", "9,12", "0:18", "18:0", ":", ",", "1e400", "-1", "a\nb", "a\0b"]
TEXTS += ["\ud800", "\x1b[31m\u2028", "x" * 5000, "~nobody/x.npz", "/dev/null", "..", "no.such", "./no.py", "adam"]
REFUSED = [-1, 2**63, 10**30, 10**400, 10**5000, -(10**30), -(10**5000)]
"""Whole numbers that no size can be."""
HUGE = [10**12, 2**31, 2**53 + 1, 10**18]
"""Whole numbers that a run may have, or that the memory has no room for."""
METHOD_NAMES, LINK_NAMES, SPLIT_NAMES, HEAD_NAMES = (
    [name for name in registry.names() if registry.ships(name)] for registry in (METHODS, LINKS, PARTITIONS, HEADS)
)
"""Names that ship with semcom: other tests add theirs."""
SENSIBLE = {
    "kind": [*LINK_NAMES, *HEAD_NAMES, "svm"],
    "encoder": ["test-patches", "test-conv", "test-dropout"],
    "method": METHOD_NAMES,
}
SENSIBLE |= {name: ["9", "0:18", "inf", "-3,4"] for name in ("snr_db", "downlink_snr_db", "test_snr_db")}
"""Field -> texts that it may take."""
LASTING = ("rounds", "scg_steps", "inner_steps")
"""Fields of which such a number is taken, and lasts: none of them is drawn huge."""
ODD = [-0.0, 0.0, 5e-324, 1e-300, 1e-38, 1e30, 1e308, -1e308, math.nan, math.inf, -math.inf, -1.0, 2.0, 1e400]
"""Numbers at the ends of their range, and beyond."""

objects = st.sampled_from(OBJECTS).map(lambda make: make())
anything = st.one_of(objects, st.sampled_from(TEXTS), st.sampled_from(REFUSED), st.sampled_from(ODD))


def typed(hint: Any, name: str) -> st.SearchStrategy[Any]:
    """Values of a declared type, sensible ones and extreme ones."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (typing.Union, types.UnionType):
        return st.one_of([typed(kind, name) for kind in arguments])
    if origin is tuple:
        return st.lists(typed(arguments[0], name), max_size=3).map(tuple)
    if hint is bool:
        return st.booleans()
    if hint is int:
        numbers = st.just(1) if name == "processes" else st.sampled_from([1, 2, 3, 4, 6, 0])
        return numbers | numbers | st.sampled_from(REFUSED if name in (*LASTING, "processes") else REFUSED + HUGE)
    if hint is float:
        return st.sampled_from([0.1, 0.5, 0.9, 1.0, 3.0, 10.0]) | st.floats(0, 1) | st.sampled_from(ODD)
    if hint is str:
        return st.sampled_from(SENSIBLE.get(name, TEXTS)) | st.sampled_from(TEXTS)
    return objects


# Configurations ------------------------------------------------------------------------------------------------------

SECTIONS = ("data", "partition", "model", "channel", "air", "train", "finish")


def open_fields(cls: type) -> dict[str, Any]:
    """Field -> declared type, of the fields that are no sections, options or kinds."""
    hints = typing.get_type_hints(cls)
    fixed = {*SECTIONS, "options", "hyper"}
    return {f.name: hints[f.name] for f in dataclasses.fields(cls) if f.name not in fixed}


FIELDS = {("", name): hint for name, hint in open_fields(RunConfig).items()}
FIELDS |= {
    (section.name, name): hint
    for section in dataclasses.fields(RunConfig)
    if section.name in SECTIONS
    for name, hint in open_fields(typing.cast(type, section.default_factory)).items()
}
"""Section and field -> declared type."""


PARTS = {field: registry.names() for field, registry in OWNERS["air"].items()}
"""Fields that name the parts of the air -> the names that ship."""


def owned(field: str, name: str) -> dict[str, Any]:
    """Option -> declared type, of what a field calls `name`."""
    hints = typing.get_type_hints(cls := find_options_class(field, name))
    return {f.name: hints[f.name] for f in dataclasses.fields(cls)}


OWNED = {
    "hyper": {name: owned("method", name) for name in METHOD_NAMES},
    "partition": {name: owned("partition.kind", name) for name in SPLIT_NAMES},
    "channel": {name: owned("channel.kind", name) for name in LINK_NAMES},
    "air": {f"{field} {name}": owned(field, name) for field, names in PARTS.items() for name in names},
}
"""Where options are -> owner -> option -> declared type."""
FOREIGN = sorted({(place, option) for place, names in OWNED.items() for known in names.values() for option in known})
"""Every option of every owner."""
SPLITS = {
    "shots": {"ways": 2, "shots": 5},
    "dirichlet": {"beta": 1.0, "min_size": 3},
    "dirichlet-client": {"beta": 5.0},
    "place": {"scene": "munich-20", "beta": 5.0},
    "pathological": {"classes": 2},
}
"""Options with which a partition divides the tiny dataset."""


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    """A configuration as tables: a tiny one that is fine, of which some fields and options are changed."""
    method = draw(st.sampled_from(METHOD_NAMES))
    split = draw(st.sampled_from(SPLIT_NAMES))
    kind = draw(st.sampled_from(LINK_NAMES))
    schedule = {"rounds": 1, "batch_size": 32, "eval_every": 1}
    table: dict[str, Any] = {
        "method": method,
        "hyper": {},
        "data": {"name": "test-bars", "options": {}},
        "partition": {"kind": split, "options": dict(SPLITS.get(split, {}))},
        "model": {"encoder": "test-patches", "head": draw(st.sampled_from(HEAD_NAMES)), "features": 4},
        "channel": {"kind": kind, "options": {}},
        "air": {"options": {}},
        "train": worlds.used(method, schedule),
        "finish": {} if METHODS.get(method).finishing is None else {"epochs": 2},
        **{"clients": draw(st.integers(1, 4)), "device": "cpu", "new_steps": 2},
    }
    if draw(st.integers(0, 3)) == 0:
        table["new_clients"] = draw(st.integers(1, 2))
    else:
        del table["new_steps"]
    for (section, name), hint in draw(st.lists(st.sampled_from(list(FIELDS.items())), max_size=3)):
        value = draw(typed(hint, name) if draw(st.integers(0, 5)) else anything)
        (table[section] if section else table)[name] = value
    parts = {field: draw(st.sampled_from(names)) for field, names in PARTS.items()}
    if draw(st.booleans()):
        table["air"] |= {field.removeprefix("air."): name for field, name in parts.items()}
    of_air = [("air", f"{field} {name}") for field, name in parts.items()]
    for place, owner in (("hyper", method), ("partition", split), ("channel", kind), *of_air):
        for name, hint in OWNED[place][owner].items():
            if draw(st.integers(0, 6)) == 0:
                value = draw(typed(hint, name) if draw(st.integers(0, 9)) else anything)
                (table["hyper"] if place == "hyper" else table[place]["options"])[name] = value
    if draw(st.integers(0, 15)) == 0:
        place, name = draw(st.sampled_from(FOREIGN))
        (table["hyper"] if place == "hyper" else table[place]["options"])[name] = draw(anything)
    if draw(st.integers(0, 15)) == 0:
        table[draw(st.sampled_from([*SECTIONS, "hyper", "nonsense", "a\nb", ""]))] = draw(anything)
    if draw(st.integers(0, 15)) == 0:
        part = draw(st.sampled_from([table, *(table[s] for s in SECTIONS if isinstance(table[s], dict))]))
        part[draw(st.sampled_from([1, None, "nonsense", "\ud800", "options", Hostile(), (1, 2)]))] = draw(anything)
    return table


# The property --------------------------------------------------------------------------------------------------------

COUNTS = {"drawn": 0, "accepted": 0, "run": 0}
"""Number of requests that were drawn, accepted, and run to the end."""


FORESEEN = (type(None), ConfigError, RunError, Diverged, MemoryError)
"""Causes of a failed run; anything else is a bug."""


def one_line(error: Exception) -> None:
    text = str(error)
    assert text and text.isprintable() and len(text) <= 1010, repr(text)


@examples(200)
@given(requests(), st.integers(0, 2))
def test_a_request_is_run_or_refused_in_a_line(table: dict[str, Any], share: int) -> None:
    """A third of what is accepted is run, in a long run all of it."""
    COUNTS["drawn"] += 1
    if LONG and COUNTS["drawn"] % 1000 == 0:
        print(COUNTS, flush=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        check(table, share == 0 or LONG > 0)


def check(table: dict[str, Any], trained: bool) -> None:
    """Check that a configuration is accepted, and run if it is to be trained, or refused in a line."""
    try:
        config = resolve(table)  # type: ignore[arg-type]
        COUNTS["accepted"] += 1
        json.dumps(to_dict(config))
        if not trained:
            return
        result = run(dataclasses.replace(config, out=None))
    except (ConfigError, RunError) as error:
        bug = isinstance(error, RunError) and not isinstance(error.__cause__, FORESEEN)
        assert not bug, f"a bug, told as a failed run: {error.__cause__!r}"
        one_line(error)
        return
    COUNTS["run"] += 1
    assert 0 <= result.summary["accuracy"] <= 1


# The command line ----------------------------------------------------------------------------------------------------

BASE = (
    "train fedavg --data.name test-bars --model.encoder test-patches --model.features 4 --clients 2 --train.rounds 1 "
    "--partition.ways 2 --partition.shots 4 --train.batch-size 8 --device cpu"
)
FLAGS = [f"{section}.{name}" if section else name for section, name in FIELDS if name not in LASTING]
FLAGS += ["hyper.mu", "channel.downlink", "partition.ways", "partition.beta", "plugin", "log-level"]
FLAGS += ["nonsense", "", "-"]
NUMBERS = [str(v) for v in [0, 1, 3, *ODD, *(v for v in (*REFUSED, *HUGE) if abs(v) < 10**4000)]]
words = st.sampled_from([*TEXTS, *NUMBERS, "9" * 5000, "true", "True", "test-bars", "--clients", "--", "-h=3"])


def checked(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    status = cli.main(argv)
    lines = capsys.readouterr().err.splitlines()
    assert status in (0, 1, 2)
    assert status == 0 or lines[-1].startswith("semcom: error: "), lines
    assert status != 2 or len([line for line in lines if "round 1/1" not in line]) == 1, lines


@examples(20)
@given(st.lists(st.tuples(st.sampled_from(FLAGS), st.lists(words, max_size=2)), min_size=1, max_size=3))
def test_words_are_carried_out_or_refused_in_a_line(
    capsys: pytest.CaptureFixture[str], given: list[tuple[str, list[str]]]
) -> None:
    flags = [word for flag, values in given for word in (f"--{flag.replace('_', '-')}", *values)]
    checked([*BASE.split(), *flags, "--processes", "1"], capsys)


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from([*TEXTS, *ODD, *HUGE, 10**400])
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(TEXTS), inner)
)
BROKEN: list[Callable[[str], str]] = [
    lambda text: text,
    lambda text: text[: len(text) // 2],
    lambda text: text[:-1] + ', "clients": 3}',
    lambda text: text[:-1] + ', "nonsense": ' + "[" * 100_000,
    lambda text: text[:-1] + ', "out": "a\\u0000b"}',
    lambda text: text[:-1] + ', "seed": ' + "9" * 400 + "}",
    lambda text: text[:-1] + ', "seed": ' + "9" * 5000 + "}",
    lambda text: text[:-1] + ', "seed": NaN}',
    lambda text: "\0" + text,
]
"""What may have happened to a file."""


@examples(40)
@given(st.sampled_from(list(FIELDS)), values, st.sampled_from([BROKEN[0]] * len(BROKEN) + BROKEN))
def test_a_file_is_carried_out_or_refused_in_a_line(
    capsys: pytest.CaptureFixture[str], place: tuple[str, str], value: Any, broken: Callable[[str], str]
) -> None:
    section, name = place
    table: dict[str, Any] = {"clients": 2, section: {name: value}} if section else {"clients": 2, name: value}
    Path("config.json").write_text(broken(json.dumps(table)))
    checked([*BASE.split(), "--config", "config.json", "--processes", "1"], capsys)
