"""Values as the command line spells them, read and written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from semcom.config import PartitionConfig, RunConfig
from semcom.studies.experiment import Experiment, Grid, Variant
from semcom.studies.names import ARMS, SHIPPED
from semcom.studies.overrides import (
    format_duration,
    format_override_values,
    format_set_override,
    parse_set_override,
    parse_vary_override,
    split_override_values,
)
from semcom.studies.sweep.request import Request, apply_request, format_call, parse_request
from semcom_papers.experiments import papers


def typed(field: str, word: str) -> Any:
    """A word as a number where it is one, as fields of type float | str take it."""
    try:
        return None if word == "None" else float(word)
    except ValueError:
        return word


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0..4", ["0", "1", "2", "3", "4"]),
        ("-6..18:3", ["-6", "-3", "0", "3", "6", "9", "12", "15", "18"]),
        ("0.1..0.5:0.1", ["0.1", "0.2", "0.3", "0.4", "0.5"]),  # 0.1 + 0.2 is not 0.30000000000000004
        ("1e-3..3e-3:1e-3", ["0.001", "0.002", "0.003"]),
        ("4..0:-2", ["4", "2", "0"]),
        ("0..5:2,9", ["0", "2", "4", "9"]),
        ("7..7", ["7"]),
        ("a,../b.npz,0:18", ["a", "../b.npz", "0:18"]),
    ],
)
def test_ranges_and_lists(text: str, words: list[str]) -> None:
    assert split_override_values(text, "seeds") == words


def test_joint_fields() -> None:
    found = parse_vary_override("partition.ways,partition.shots=2:150,3:100", typed)
    assert found == (("partition.ways", "partition.shots"), ((2.0, 150.0), (3.0, 100.0)))
    assert parse_vary_override("hyper.fine-tune=a", typed) == (("hyper.fine_tune",), (("a",),))
    assert parse_set_override("finish=lr", typed) == ("finish.kind", "lr")


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((0, 1, 2, 3), "0..3"),
        ((-6.0, -3.0, 0.0), "-6..0:3"),
        ((0.1, 0.2, 0.3), "0.1..0.3:0.1"),
        ((0, 3), "0,3"),
        ((0, 3, 7), "0,3,7"),
        ((1, 1, 1), "1,1,1"),
        ((5, 3, 1), "5..1:-2"),
        ((0.0, 9.0, float("inf")), "0,9,inf"),
        ((None, "digits", True), "None,digits,True"),
        (((2, 150), (3, 100.0)), "2:150,3:100"),
    ],
)
def test_lists_are_spelled_in_short(values: tuple[Any, ...], text: str) -> None:
    assert format_override_values(values) == text


def test_settings_are_spelled() -> None:
    assert format_set_override("partition.scarce", (1, 2)) == "partition.scarce=1 2"
    assert format_set_override("hyper.lam", 0.1) == "hyper.lam=0.1"
    assert format_set_override("train.lr", None) == "train.lr=None"


# Requests ------------------------------------------------------------------------------------------------------------

SNR, WAYS, SHOTS = "channel.snr_db", "partition.ways", "partition.shots"
BASE = RunConfig(partition=PartitionConfig(options={"ways": 3, "shots": 15}))
VARIANTS = ("fedcl", Variant("mean", "fedcl", {"hyper.centroids": "mean"}), "fedavg")
MINE = Experiment("mine", "", "none", VARIANTS, {"smoke": Grid(BASE, {SNR: (0.0, 9.0), "seed": (0,)})})
JOINT = Experiment("joint", "", "none", ("fedcl",), {"smoke": Grid(BASE, {(WAYS, SHOTS): ((2, 20), (3, 15))})})


def test_a_request_replaces_axes_and_adds_others() -> None:
    request = parse_request(["mean", "fedcl"], seeds=(3, 4), set={"train.rounds": 2}, vary={"clients": [5], SNR: [6]})
    found = apply_request(MINE, "smoke", request).runs("smoke")
    assert [(r.variant, r.config.channel.snr_db, r.config.seed, r.config.clients) for r in found] == [
        (variant, 6, seed, 5) for variant in ("fedcl", "mean") for seed in (3, 4)
    ]
    assert {r.config.train.rounds for r in found} == {2}
    fixed = apply_request(MINE, "smoke", parse_request(set={SNR: 3.0, "seed": 7}))
    assert [(r.variant, r.config.channel.snr_db, r.config.seed) for r in fixed.runs("smoke")] == [
        (name, 3.0, 7) for name in ("fedcl", "mean", "fedavg")
    ]


def test_another_partition_takes_its_options_with_it() -> None:
    request = parse_request(set={"partition.kind": "dirichlet", "partition.beta": 0.5})
    (config, *_) = apply_request(MINE, "smoke", request).grid("smoke")
    assert (config.partition.kind, config.partition.options) == ("dirichlet", {"beta": 0.5})
    same = apply_request(MINE, "smoke", parse_request(set={"partition.kind": "shots", WAYS: 2})).grid("smoke")
    assert same[0].partition.options == {"ways": 2, "shots": 15}


def test_the_call_of_a_request_is_a_line_of_python() -> None:
    """Evaluated, it asks for the same."""
    request = parse_request(["mean"], range(2), {"train.rounds": 5}, {(WAYS, SHOTS): ((2, 150),), SNR: ("9,12", 0.5)})
    call = format_call("mine", "smoke", request, ["own.py"], Path("my results"))
    given = eval(call.replace("semcom.sweep", "dict").replace("'mine', ", "name='mine', "))
    assert (given.pop("name"), given.pop("scale"), given.pop("plugins")) == ("mine", "smoke", ("own.py",))
    assert given.pop("out") == "my results" and parse_request(**given) == request
    assert format_call(None, None, parse_request("fedcl"), (), "x") == "semcom.sweep(methods=('fedcl',), out='x')"


def test_requests_are_plain() -> None:
    assert parse_request("fedcl", 3, {"partition.scarce": [1]}, {"clients": [5]}) == Request(
        ("fedcl",), {"partition.scarce": (1,)}, parse_request(vary={"clients": (5,), "seed": (3,)}).axes
    )


def test_a_point_is_named_without_the_options_that_it_does_not_have() -> None:
    """Not those of another partition; a channel called "none" is no missing value, and a lone None stays."""
    dirichlet = {"partition.kind": "dirichlet", "partition.beta": 0.1, "partition.classes": None}
    assert SHIPPED.point(dirichlet) == "partition dirichlet, Dirichlet beta 0.1"
    owned = {"partition.kind": "pathological", "partition.beta": float("nan"), "partition.classes": 2}
    assert SHIPPED.point(owned) == "partition pathological, classes of a client 2"
    assert SHIPPED.point({"channel.kind": "none", "channel.snr_db": 9.0}) == "channel none, SNR 9 dB"
    assert SHIPPED.point({"partition.beta": None}) == "Dirichlet beta none" and SHIPPED.point({}) == ""


def test_arms_have_the_names_of_their_papers() -> None:
    assert SHIPPED.value("variant", "fedcosr-without-la") == "FedCoSR without LA"
    assert SHIPPED.value("variant", "fedcl with mean centroids") == "FedCL with mean centroids"
    assert SHIPPED.value("hyper.kind", "fedcosr-without-la") == "fedcosr-without-la", "no name of a method here"
    assert set(ARMS) == {name for name in papers.OWN if name.startswith(("fedcosr", "fedcrc"))}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0 s"), (8.26, "8.3 s"), (89.4, "89 s"), (91, "1.5 min"), (7200, "2 h"), (40 * 3600, "40 h")],
)
def test_times_are_short(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
