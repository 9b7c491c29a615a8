"""`semcom list methods [NAME]`: exact texts, what fits a terminal, and that every arm tells all about itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from semcom.cli import listing
from semcom.cli import main as cli
from semcom.cli.fields import read_field_docstrings, show_field_value
from semcom.declarations import read_declared_constants, read_declared_fields
from semcom.methods.base import Method
from semcom.methods.local import Local
from semcom.methods.parts.kinds import KINDS
from semcom.methods.registry import METHODS
from tests.commands import told

ARMS = [name for name in METHODS.names() if not name.startswith("test-")]


class Listed(Local):
    """Trains what it likes
    and says so.

    More of it.
    """

    paper = "Nobody et al., 2020"
    preset = {"lr": 0.05, "lr_milestones": (50, 75), "lr_decay": (0.2, 0.1)}
    shares = "encoder and class prototypes"
    personal = "head"
    sends = "encoder up, encoder and prototypes down"

    @dataclass(frozen=True)
    class Hyper(Method.Hyper):
        """What can be set."""

        lam: float = 1 / 4
        """lambda: weight of the pull
        (Eq. 3)."""
        tau: float | None = None
        """Temperature (None: none)."""
        kind: Literal["mean", "counts"] = "counts"
        """How it is averaged."""
        steps: int = 10
        own: bool = True
        """Whether it is the client's own."""
        rates: tuple[float, ...] = (0.5, 0.25)
        """One per round."""


class Heir(Listed):
    """Another one."""

    @dataclass(frozen=True)
    class Hyper(Listed.Hyper):
        """One more, and another meaning."""

        more: int = 3
        """One more."""
        lam: float = 2.0
        """Weight of another pull."""


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The registry knows two methods and no more."""
    monkeypatch.setattr(METHODS, "_own", {"local": "semcom.methods.local:Local"})
    monkeypatch.setattr(METHODS, "_added", {"listed": Listed})
    yield


OVERVIEW = {
    60: """\
local   baseline
        shared: nothing; personal: encoder and head; sent:
        nothing
listed  Nobody et al., 2020
        shared: encoder and class prototypes; personal:
        head; sent: encoder up, encoder and prototypes down
        lam=0.25; tau=none; kind=counts; steps=10; own=True;
        rates=0.5 0.25

theta: encoder; phi: head; w: both. `semcom list methods
NAME` tells more.
""",
    120: """\
local   baseline
        shared: nothing; personal: encoder and head; sent: nothing
listed  Nobody et al., 2020
        shared: encoder and class prototypes; personal: head; sent: encoder up, encoder and prototypes down
        lam=0.25; tau=none; kind=counts; steps=10; own=True; rates=0.5 0.25

theta: encoder; phi: head; w: both. `semcom list methods NAME` tells more.
""",
}


@pytest.mark.parametrize("columns", OVERVIEW)
def test_all_methods(
    columns: int, only: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert told(capsys, "list methods") == OVERVIEW[columns].splitlines()


DETAILS = """\
listed  Trains what it likes and says so.

paper     Nobody et al., 2020
shared    encoder and class prototypes
personal  head
sent      encoder up, encoder and prototypes down
preset    lr 0.05, lr_milestones 50 75, lr_decay 0.2 0.1

hyperparameters (--hyper.NAME) and their defaults:
  lam = 0.25 (a number)
      lambda: weight of the pull (Eq. 3).
  tau = none (a number)
      Temperature.
  kind = counts (one of mean, counts)
      How it is averaged.
  steps = 10 (a whole number)
  own = True (true or false)
      Whether it is the client's own.
  rates = 0.5 0.25 (a list of numbers)
      One per round.
"""


def test_one_method(only: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert told(capsys, "list methods listed") == DETAILS.splitlines()
    lines = told(capsys, "list methods local")
    assert lines[2:] == [
        "paper     baseline",
        "shared    nothing",
        "personal  encoder and head",
        "sent      nothing",
        "preset    none: the common defaults",
        "",
        "no hyperparameters",
    ]


def test_a_method_that_says_nothing_of_itself(
    only: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    silent = type("Silent", (Method,), {"__doc__": None})
    monkeypatch.setattr(METHODS, "_added", {"silent": silent})
    assert told(capsys, "list methods")[-4:-2] == ["silent  -", "        shared: -; personal: -; sent: -"]
    assert told(capsys, "list methods silent")[:3] == ["silent", "", "paper     -"]


def test_docstrings_of_fields_are_inherited() -> None:
    found = read_field_docstrings(Heir.Hyper)
    assert [*found] == ["lam", "tau", "kind", "own", "rates", "more"]
    assert (found["lam"], found["tau"]) == ("Weight of another pull.", "Temperature (None: none).")


def test_a_class_without_source_has_no_docstrings() -> None:
    assert read_field_docstrings(dataclasses.make_dataclass("Made", [("lam", float, 1.0)])) == {}


def test_hyperparameters_of_a_plugin(tmp_path: Path, own_names: None, capsys: pytest.CaptureFixture[str]) -> None:
    plugin = tmp_path / "own_prox.py"
    plugin.write_text(
        "from dataclasses import dataclass\nfrom semcom import METHODS\nfrom semcom.methods.local import Local\n\n"
        '@METHODS.register("own-prox")\nclass Prox(Local):\n    """My own."""\n\n'
        '    @dataclass(frozen=True)\n    class Hyper(Local.Hyper):\n        mu: float = 0.1\n        """Weight."""\n'
    )
    lines = told(capsys, f"list methods own-prox --plugin {plugin}")
    assert lines[0] == "own-prox  My own." and lines[-2:] == ["  mu = 0.1 (a number)", "      Weight."]


# The arms ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [80, 120, 300])
def test_the_text_fits_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text = "\n".join([listing.list_overview("methods"), *(listing.list_details("methods", arm) for arm in ARMS)])
    assert max(map(len, text.splitlines())) <= min(columns, 120)
    assert not [line for line in text.splitlines() if line != line.rstrip()]


@pytest.mark.parametrize("arm", ARMS)
def test_every_arm_tells_all_about_itself(arm: str) -> None:
    method = METHODS.get(arm)
    for text in (method.paper, method.shares, method.personal, method.sends):
        assert text and text == text.strip()
    assert method.__doc__ and not method.__doc__[0].isspace()
    for text in (method.shares, method.personal, method.sends):
        assert len(text) < 110 and "\n" not in text
    assert ";" not in method.shares + method.personal, "it separates them in the overview"
    known = read_field_docstrings(method.Hyper)
    assert {f.name for f in dataclasses.fields(method.Hyper)} == {name for name in known if known[name]}


def test_last_stages_are_listed_with_the_heads(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert cli.main(["list", "heads"]) == 0
    lines = [line.split(None, 1) for line in capsys.readouterr().out.splitlines()]
    names = [line[0] for line in lines]
    assert names[:2] == ["linear", "mlp"] and names[-3:] == ["svm", "lr", "round"] == list(KINDS)
    assert all(line[1].endswith("for --finish alone.") for line in lines[-3:])
    assert cli.main(["list", "heads", "lr"]) == 0
    assert capsys.readouterr().out == "lr  Multinomial logistic regression; for --finish alone.\n"


def test_a_dataset_in_the_user_s_own_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path("own.npz")
    shapes = {"train": 1200, "test": 6}
    parts = {f"x_{part}": np.zeros((n, 5, 4), np.uint8) for part, n in shapes.items()}
    np.savez(
        path,
        **parts,
        **{f"y_{part}": np.arange(n) % 3 for part, n in shapes.items()},
        classes=np.array(["a", "b", "c"]),
    )
    assert cli.main(["list", "datasets", str(path)]) == 0
    size, classes, _, options = capsys.readouterr().out.splitlines()
    assert size == f"{path}  1,200 training and 6 test images of 1x5x4" and options == "no options"
    assert classes.strip() == "3 classes: a, b, c"
    assert cli.main(["list", "datasets", str(here)]) == 2
    assert "train/ is missing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("value", "text"),
    [(1 / 14, "0.07143"), (1 / 64, "0.015625"), (0.1, "0.1"), ((1 / 3, 2), "0.3333 2"), (1e-5, "1e-05")],
)
def test_long_numbers_are_shown_in_short(value: Any, text: str) -> None:
    assert show_field_value(value) == text


@pytest.mark.parametrize("what", listing.LISTS)
def test_every_entry_begins_with_its_name_and_has_no_attributes(what: str) -> None:
    for name in listing.find_listed(what).names():
        text = listing.list_details(what, name)
        assert text.startswith(name) and "Attributes:" not in text and "Args:" not in text


def test_what_ships_is_listed_without_importing_it(capsys: pytest.CaptureFixture[str]) -> None:
    """What is read off the files is the same as of the classes."""
    for name in METHODS.names():
        method, place = METHODS.get(name), METHODS.place(name)
        if place is not None:
            found = read_declared_constants(place)
            own = {key: getattr(method, key) for key in ("paper", "shares", "personal", "sends")}
            assert {key: found[key] for key in own} == own
            assert list(read_declared_fields(place, "Hyper").items()) == list(
                listing._read_defaults(method.Hyper).items()
            )
    for what in ("channels", "partitions", "datasets", "encoders"):
        registry = listing.find_listed(what)
        for name in registry.names():
            first = (registry.get(name).__doc__ or "").strip().partition("\n")[0]
            assert listing._list_title(registry, name) == first
