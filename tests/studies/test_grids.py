"""Declarations of grids: joint fields, variants, several axes, test SNRs; and the hashes of runs that there are."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from typing import Any

import pytest

from semcom.config import ChannelConfig, RunConfig, run_hash
from semcom.runs.request.resolve import resolve
from semcom.studies.experiment import Experiment, Grid, Variant
from semcom.studies.grid import read_grid_field
from semcom.studies.registry import find_experiment
from tests.refusals import refuses

SNR, TEST, WAYS, SHOTS = "channel.snr_db", "channel.test_snr_db", "partition.ways", "partition.shots"


def study(vary: Any, variants: Any = ("fedcl", "fedavg"), apart: Any = None, **fields: Any) -> Experiment:
    return Experiment("mine", "", "none", variants, {"smoke": Grid(RunConfig(), vary, apart or {})}, **fields)


def taken(found: Experiment, *names: str) -> list[tuple[Any, ...]]:
    """Variant and fields of each run."""
    return [(run.variant, *(read_grid_field(run.config, name) for name in names)) for run in found.runs("smoke")]


HASHES = {
    "arms-small smoke": ("8b0b422fc6b5", "aa2be727d52b"),
    "arms-small small": ("7ccd5b2c5e95", "b2218413f5a1"),
    "demo smoke": ("d00c969d00c3", "9a236efba842"),
    "finish-search smoke": ("1c96ca453457", "eee92f3fa45c"),
    "finish-search small": ("1c96ca453457", "73f126d75669"),
    "wireless-baselines smoke": ("e4716ac61653", "c001924ef48a"),
    "wireless-baselines small": ("249b5e0b52a4", "9098cbeeb4d3"),
}
"""Experiment and scale -> hash of its first run, digest of all its hashes in their order: of results that there are."""


@pytest.mark.parametrize("entry", HASHES)
def test_the_runs_of_the_experiments_are_the_same_as_ever(entry: str) -> None:
    name, scale = entry.split()
    found = [run_hash(resolve(config)) for config in find_experiment(name).grid(scale)]
    assert (found[0], hashlib.sha256(" ".join(found).encode()).hexdigest()[:12]) == HASHES[entry]


def test_two_axes_and_joint_fields_are_a_product() -> None:
    found = study({SNR: (0.0, 9.0), (WAYS, SHOTS): ((2, 150), (5, 60)), "seed": range(2)})
    expected = itertools.product(("fedcl", "fedavg"), (0.0, 9.0), ((2, 150), (5, 60)), (0, 1))
    assert taken(found, SNR, WAYS, SHOTS, "seed") == [(v, snr, *joint, seed) for v, snr, joint, seed in expected]
    assert found.columns("smoke") == (SNR,) and found.rows("smoke") == (WAYS, SHOTS)
    assert dataclasses.replace(found, axis=SHOTS).columns("smoke") == (WAYS, SHOTS)
    assert dataclasses.replace(found, axis=SHOTS).rows("smoke") == (SNR,)


@pytest.mark.parametrize(("tests", "rows"), [("9,0", (TEST,)), (9.0, ()), (None, ())])
def test_several_test_snrs_make_rows_even_if_they_are_set(tests: str | float | None, rows: tuple[str, ...]) -> None:
    base = RunConfig(channel=ChannelConfig(test_snr_db=tests))
    found = Experiment("mine", "", "none", ("fedcl",), {"smoke": Grid(base, {SNR: (0.0, 9.0)})})
    assert found.columns("smoke") == (SNR,) and found.rows("smoke") == rows
    assert dataclasses.replace(found, axis=TEST).rows("smoke") == (SNR,)


def test_variants_are_methods_with_settings_of_their_own() -> None:
    mean = Variant("fedcl-mean", "fedcl", {"hyper.centroids": "mean"})
    found = study({SNR: (0.0, 9.0)}, ("fedcl", mean))
    assert taken(found, "method", "hyper.centroids", SNR) == [
        ("fedcl", "fedcl", None, 0.0),
        ("fedcl", "fedcl", None, 9.0),
        ("fedcl-mean", "fedcl", "mean", 0.0),
        ("fedcl-mean", "fedcl", "mean", 9.0),
    ]


def test_a_variant_that_sets_a_varied_field_has_no_runs_along_it() -> None:
    """A reference without noise beside runs at several SNRs, of each seed."""
    clean = Variant("clean", "fedcl", {"channel.kind": "ideal", SNR: 10.0})
    found = study({SNR: (0.0, 9.0), "seed": (0, 1)}, ("fedcl", clean))
    assert taken(found, SNR, "seed") == [
        *(("fedcl", snr, seed) for snr in (0.0, 9.0) for seed in (0, 1)),
        ("clean", 10.0, 0),
        ("clean", 10.0, 1),
    ]
    apart = {"channel.kind": {"ideal": {SNR: 10.0}}}
    found = study({"channel.kind": ("awgn", "ideal"), SNR: (0.0, 9.0)}, ("fedcl",), apart)
    assert taken(found, "channel.kind", SNR) == [
        ("fedcl", "awgn", 0.0),
        ("fedcl", "awgn", 9.0),
        ("fedcl", "ideal", 10.0),
    ]


def test_an_axis_of_test_snrs_costs_one_training() -> None:
    tested = study({TEST: (-6, 0.5, 6.0)})
    assert taken(tested, SNR, TEST) == [("fedcl", 10.0, "-6,0.5,6"), ("fedavg", 10.0, "-6,0.5,6")]
    both = study({SNR: (0.0, 9.0), TEST: (0.0, 9.0)}, ("fedcl",))
    assert taken(both, SNR, TEST) == [("fedcl", 0.0, "0,9"), ("fedcl", 9.0, "0,9")]
    assert taken(study({TEST: (3.0,)}, ("fedcl",)), TEST) == [("fedcl", 3.0)]
    joint = study({(SNR, TEST): ((0.0, 9.0), (9.0, 0.0))}, ("fedcl",))  # a setting like any other
    assert taken(joint, SNR, TEST) == [("fedcl", 0.0, 9.0), ("fedcl", 9.0, 0.0)]
    for value in ("0,9", "0:18"):
        with refuses("channel.test_snr_db", repr(value)):
            study({TEST: (0.0, value)}).runs("smoke")


def test_a_grid_without_end_is_refused() -> None:
    with refuses("vary", "2,000,000", "100,000"):
        study({"seed": range(1000), SNR: range(1000)}).runs("smoke")


def test_a_variant_has_settings_of_its_own_at_a_scale() -> None:
    own = {"b": {"train.lr": 0.5, "train.rounds": 7}}
    variants = (Variant("a", "fedcl"), Variant("b", "fedcl", {"train.rounds": 9}))
    found = Experiment("mine", "", "none", variants, {"smoke": Grid(RunConfig(), {SNR: (0.0, 9.0)}, own=own)})
    settings = [(run.variant, run.config.train.lr, run.config.train.rounds) for run in found.runs("smoke")]
    assert settings == [("a", None, None)] * 2 + [("b", 0.5, 9)] * 2


def test_settings_apart_are_of_a_field_that_varies() -> None:
    for name in ("method", TEST):
        with refuses("apart", name):
            study({TEST: (0, 9)}, apart={name: {"fedcl": {"clients": 3}}}).runs("smoke")
