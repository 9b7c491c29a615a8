"""Grids hold exactly the runs that the declarations promise."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from semcom.config import ConfigError, RunConfig, fill_from_preset, run_hash
from semcom.config.checks import check_config
from semcom.runs.request.resolve import resolve
from semcom.studies.experiment import SCALES, Experiment, Grid
from semcom.studies.grid import read_grid_field, set_fields
from semcom.studies.registry import EXPERIMENTS, find_experiment

METHODS = ("fedcl", "fedproto", "fedavg")


def grid_points(name: str, scale: str) -> list[tuple[str, float, int]]:
    return [(c.method, float(c.channel.snr_db), c.seed) for c in find_experiment(name).grid(scale)]


def test_small_letter_grid_is_that_of_the_protocol() -> None:
    snrs = (-15.0, -9.0, -3.0, 3.0, 9.0, 18.0)
    assert grid_points("letter-fig2b", "small") == list(itertools.product(METHODS, snrs, range(3)))
    for config in find_experiment("letter-fig2b").grid("small"):
        assert (config.data.name, config.clients, config.channel.kind) == ("cifar10", 20, "awgn")
        split = {"ways": 3, "shots": 100, "test_per_class": 100}
        assert (config.partition.kind, config.partition.options) == ("shots", split)
        assert (config.train.rounds, config.train.lr, config.train.eval_every) == (60, 1e-3, 20)
        assert config.channel.test_snr_db is None  # tested at the training SNR
        assert (config.model.encoder, config.model.features) == ("dcgan-narrow", 64)


@pytest.mark.parametrize("name", EXPERIMENTS.names())
def test_every_declaration_is_sound(name: str) -> None:
    """Of each setting the first seed, as a seed is no reason to be refused."""
    found = find_experiment(name)
    assert found.name == name and set(found.scales) <= set(SCALES)
    for scale in found.scales:
        grid = found.grid(scale)
        first = [config for config in grid if config.seed == grid[0].seed]
        configs = [dataclasses.replace(c, train=fill_from_preset(c.train, {})) for c in first]
        for config in configs:
            check_config(config)
        assert len({run_hash(c) for c in configs}) == len(configs)


def test_set_fields_merges_hyperparameters() -> None:
    config = set_fields(set_fields(RunConfig(), {"hyper.lam": 0.1}), {"hyper.warmup": 2, "data.root": "images"})
    assert config.hyper == {"lam": 0.1, "warmup": 2}
    assert config.data.root == "images"


def test_default_scale_is_the_cheapest() -> None:
    assert find_experiment("letter-fig2b").scale() == "smoke"
    two = Experiment("x", "", "", ("fedcl",), {"paper": Grid(RunConfig(), {}), "small": Grid(RunConfig(), {})})
    assert two.scale() == "small"


def test_scales_of_other_names_come_after_the_known_ones() -> None:
    grid = Grid(RunConfig(), {})
    found = Experiment("x", "", "", ("fedcl",), {"mine": grid, "small": grid, "a": grid})
    assert found.offered() == ["small", "mine", "a"] and found.scale() == "small" and found.scale("a") == "a"
    with pytest.raises(ConfigError, match=r"^scale: x has no scale 'b'; it has small, mine, a$"):
        found.scale("b")
    assert Experiment("x", "", "", ("fedcl",), {"mine": grid, "a": grid}).scale() == "mine"
    with pytest.raises(ConfigError, match=r"^scales: x has none; "):
        Experiment("x", "", "", ("fedcl",)).scale()


def test_fields_are_found_by_their_dotted_names() -> None:
    config = set_fields(RunConfig(), {"hyper.lam": 0.5, "partition.ways": 4, "train.rounds": 3})
    names = ("hyper.lam", "partition.ways", "train.rounds", "seed", "channel.m", "hyper.mu", "nothing.at.all")
    assert [read_grid_field(config, name) for name in names] == [0.5, 4, 3, 0, None, None, None]


def test_none_leaves_an_option_open() -> None:
    """Fields of joint axes that one of their kinds has not."""
    config = set_fields(RunConfig(), {"partition.kind": "pathological", "partition.classes": 2, "hyper.lam": 0.5})
    opened = set_fields(config, {"partition.kind": "dirichlet", "partition.classes": None, "hyper.lam": None})
    assert opened.partition.options == {} and opened.hyper == {}
    assert resolve(opened).partition.options.beta == 0.1
