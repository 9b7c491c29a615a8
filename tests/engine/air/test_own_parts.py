"""A user's own parts of the air and the network: docs/extending.md's, their values, flags and identity."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import semcom
from semcom.channels import PATH_LOSSES
from semcom.cli import main as cli
from semcom.config import AirConfig, RunConfig, from_dict, run_hash, to_dict
from semcom.engine.air.access import Access
from semcom.engine.air.registry import ACCESS, COMPRESSIONS, PLACES, RATES, SPEEDS
from semcom.engine.air.speeds import Speeds
from semcom.engine.store.population import average
from tests import worlds
from tests.commands import read
from tests.engine.air.test_air import BOTH, moved
from tests.pages import read_blocks, read_page
from tests.refusals import refuses

PLUGINS = {block.file: block.text for block in read_blocks(read_page("docs/extending.md")) if block.file}
SIGNS = {"parameters": "analog", "access": "sign-majority"}
K, STEP = 3, 0.25


@pytest.fixture(autouse=True)
def own(tmp_path: Path, own_names: None) -> Path:
    """The folder of the plug-ins, which are registered; they are forgotten after the test."""
    np.save(tmp_path / "gains.npy", GAINS)
    for name in ("sign_majority.py", "smaller.py", "streets.py"):
        (tmp_path / name).write_text(PLUGINS[name])
        exec(compile(PLUGINS[name], name, "exec"), {"__name__": __name__})
    return tmp_path


def vote(values: torch.Tensor, snr_db: float | str, **channel: Any) -> torch.Tensor:
    """What the base station adds to a model after `values` `[K, n]` were sent over AWGN, or another channel."""
    air = {**SIGNS, "step": STEP}
    w = worlds.world("fedavg", (4,) * K, air=air, channel={"kind": "awgn", "snr_db": snr_db, **channel})
    error, _ = w.air.access.find_error("x", values, np.arange(K))
    return values.sum(0) + error


@pytest.mark.parametrize("name", ["sign_majority.py", "streets.py"])
def test_the_example_is_short(name: str) -> None:
    assert len(PLUGINS[name].splitlines()) <= 60


def test_without_noise_it_is_the_majority() -> None:
    values = torch.randn(K, 500, generator=torch.Generator().manual_seed(1)).double()
    positive = (values > 0).sum(0)
    assert torch.equal(vote(values, "inf"), torch.where(positive >= 2, STEP, -STEP).double())
    values[0] = 0  # with two left a tie is possible, and then nothing moves
    tied = (values[1] > 0) != (values[2] > 0)
    assert tied.any() and torch.equal(vote(values, "inf") == 0, tied)


@pytest.mark.parametrize("snr_db", [-12.0, -9.0, -6.0])
def test_the_majority_errs_as_often_as_its_closed_form(snr_db: float) -> None:
    """Each number of a symbol of two has noise of variance 1 / snr beside the sum, K."""
    n = 40_000
    wrong = float((vote(torch.full((K, n), 0.01).double(), snr_db) < 0).double().mean())
    expected = math.erfc(K * 10 ** (snr_db / 20) / math.sqrt(2)) / 2
    assert abs(wrong - expected) < 4 * math.sqrt(expected * (1 - expected) / n)


def test_a_mean_goes_a_step_from_where_it_began() -> None:
    """In every number but BatchNorm's variances, whatever the lengths and the weights of the updates."""
    w = worlds.world("fedavg", (7, 5, 3), air={**SIGNS, "step": STEP}, channel={"snr_db": "inf"})
    pop = w.population()
    updated = moved(pop, 1.0)
    got = w.air.average(updated, BOTH, w.weights(pop.ids), since=pop)
    start, mean = (average(p, BOTH, w.weights(p.ids)) for p in (pop, updated))
    for name, tensor in got.items():
        if name.endswith("running_var"):
            torch.testing.assert_close(tensor, mean[name])
        elif tensor.is_floating_point():
            torch.testing.assert_close((tensor - start[name]).abs(), torch.full_like(tensor, STEP))
    assert w.air.totals["up"].uses == pytest.approx(math.ceil(pop.numbers(BOTH)[0] / 2)), "all of them in one"


def test_a_compression_and_a_rate_of_ones_own_are_counted() -> None:
    """16 bits a number at half the capacity; over Rayleigh fading with less outage, 1 - exp(-(2^(r/2) - 1) / snr)."""
    channel = {"kind": "rayleigh", "snr_db": 10.0}
    air = {"compress": "bfloat16", "rate": "half-capacity", "backoff_db": 0.0, "outage": 0.2}
    w = worlds.world("fedavg", (4, 4), air=air, channel=channel)
    pop = w.population()
    arrived = w.air.up(pop, BOTH)
    for c, got in zip(pop.cohorts, arrived.cohorts, strict=True):
        for name, tensor in c.tensors.items():
            sent = tensor.is_floating_point() and not name.endswith("running_var")
            assert torch.equal(got.tensors[name], tensor.to(torch.bfloat16).double() if sent else tensor)
    up, rate = w.air.totals["up"], math.log2(1 - 10 * math.log1p(-0.2)) / 2
    whole = sum(t[0].numel() for n, t in pop.cohorts[0].tensors.items() if n.endswith("running_var"))
    assert up.bits == 2 * 32 * whole + 16 * (pop.numbers(BOTH).sum() - 2 * whole)
    assert up.bits / up.uses == pytest.approx(rate * math.exp(-(2**rate - 1) / 10), rel=1e-6)


class DigitalMajority(Access):
    """Each client sends a bit for each number, error-free and over its own part of the band."""

    @dataclasses.dataclass(frozen=True)
    class Options(Access.Options):
        step: float = STEP

    def send(self, pop: Any, part: Any, since: Any, name: str) -> Any:
        floats = pop.numbers(part)
        self.air.add_error_free("up", pop.ids, floats, 1.0 * floats, name=name)
        return pop

    def average(self, pop: Any, part: Any, weights: Any, since: Any, name: str) -> dict[str, torch.Tensor]:
        (now,), (then,) = pop.stacks(), since.stacks()
        votes = {n: (t - then.tensors[n]).sign().sum(0, keepdim=True).sign() for n, t in now.tensors.items()}
        return {n: then.tensors[n][:1] + self.options.step * vote for n, vote in votes.items()}


def test_an_access_may_be_no_sum_and_no_mean() -> None:
    """A digital majority: a bit for each number at the rate of the run; without those whose bits were lost."""
    ACCESS.register("test-digital")(DigitalMajority)
    lossy = {"rate": "capacity", "repeat": False, "outage": 0.5}
    for more in ({"bits_per_use": 4.0}, lossy):
        w = worlds.world("fedavg", (4,) * K, air={"access": "test-digital", **more}, channel={"kind": "rayleigh"})
        w.session.tally.begin(1)
        pop = w.population()
        updated = moved(pop, 1.0)
        got = w.air.average(updated, BOTH, w.weights(pop.ids), since=pop)
        up, here = w.air.totals["up"], w.arrived(pop.ids)
        assert up.bits == pop.numbers(BOTH).sum() and (more is lossy or up.uses == up.bits / 4)
        assert here.all() == (more is not lossy) and here.any()
        (start,), (end,) = pop.stacks(), updated.stacks()
        for name, tensor in got.items():
            signs = (end.tensors[name] - start.tensors[name])[torch.as_tensor(here)].sign().sum(0).sign()
            torch.testing.assert_close((tensor - start.tensors[name][:1])[0], STEP * signs)


# -- places, path losses, speeds -------------------------------------------------------------------------------------

GAINS = -100.0 - 5 * np.arange(6).reshape(2, 3)
"""Gains in dB of three clients in two rounds."""


def test_snrs_of_places_of_ones_own_are_their_closed_form() -> None:
    """200 m away, twice the breakpoint: free space up to that, 40 dB a decade from there, over thirds of 1 MHz."""
    network = {"kind": "ring", "radius_m": 200.0, "path_loss": "two-slopes", "exponent": 4.0, "shadowing_db": 0.0}
    w = worlds.world("fedavg", (2,) * K, network=network)
    free = 20 * math.log10(4 * math.pi * 3.5e9 / 299_792_458 * 100)
    expected = 23 - free - 40 * math.log10(2) + 174 - 7 - 10 * math.log10(1e6 / 3)
    np.testing.assert_allclose(w.session.draws.snr_db("up", np.arange(K)).numpy(), expected)
    w.air.up(w.population(), BOTH)
    up = w.air.totals["up"]
    assert up.energy_j == pytest.approx(10**-0.7 * up.airtime_s), "23 dBm are 0.2 W"
    places = w.session.draws.places.describe(1)
    x_m, y_m = places["x_m"], places["y_m"]
    np.testing.assert_allclose(np.hypot(x_m - x_m[[1, 2, 0]], y_m - y_m[[1, 2, 0]]), 200 * 3**0.5)


def test_clients_move_from_round_to_round(own: Path) -> None:
    """Each round has a row of the file, up and down; the scheduler chooses by it, and the file is part of the run."""
    network = {"kind": "walk", "gains": str(own / "gains.npy"), "scheduling": "best-snr"}
    w = worlds.world("fedavg", (2,) * K, network=network, train={"participation": 1 / 3})
    for round_ in (1, 2, 3):
        w.session.tally.begin(round_)
        gains, noise = GAINS[round_ % 2], -174 + 7 + 60
        for way, power in (("up", 23), ("down", 33)):
            found = w.session.draws.snr_db(way, np.array([2, 0]))  # type: ignore[arg-type]
            np.testing.assert_allclose(found.numpy(), power + gains[[2, 0]] - noise)
        assert w.sample().tolist() == [0]
    before = run_hash(w.config)
    np.save(own / "gains.npy", GAINS[:, ::-1])
    again = worlds.world("fedavg", (2,) * K, network=network, train={"participation": 1 / 3})
    again.session.tally.begin(1)
    assert run_hash(again.config) != before and again.sample().tolist() == [2]


def test_speeds_of_ones_own_set_the_time_of_a_round() -> None:
    """The second of two clients of equal work takes twice as long."""

    @SPEEDS.register("test-halves")
    class Halves(Speeds):
        def draw(self, clients: int, seed: int) -> np.ndarray:
            return 1e6 / 2.0 ** np.arange(clients)

    w = worlds.world("fedavg", (2, 2), network={"speeds": "test-halves"})
    assert w.air.timeline is not None
    w.air.timeline.compute(w.population(), np.array([5, 5]), torch.Size([1, 8, 8]), ())
    first, second = w.air.timeline.spent
    assert second == 2 * first == w.air.timeline.length_s() > 0


# -- flags, files, identity ------------------------------------------------------------------------------------------

OWN = {
    "air.access": (
        "sign_majority.py",
        "--air.parameters analog --air.access sign-majority",
        ("--air.step", "0.5", 0.5),
        "step = 0.001 (a number)",
    ),
    "air.compress": ("smaller.py", "--air.compress bfloat16", None, "no options"),
    "air.rate": (
        "smaller.py",
        "--air.rate half-capacity",
        ("--air.backoff-db", "1", 1.0),
        "backoff-db = 3.0 (a number)",
    ),
    "network.kind": (
        "streets.py",
        "--network.kind ring",
        ("--network.radius-m", "100", 100.0),
        "radius-m = 250.0 (a number)",
    ),
    "network.path_loss": (
        "streets.py",
        "--network.kind cell --network.path-loss two-slopes",
        ("--network.breakpoint-m", "50", 50.0),
        "breakpoint-m = 100.0 (a number)",
    ),
}
"""Field -> plug-in, flags, an option's flag with a word and its value, and how the option is listed."""
LISTED = {
    "air.access": "accesses",
    "air.compress": "compressions",
    "air.rate": "rates",
    "network.kind": "places",
    "network.path_loss": "path-losses",
}


@pytest.mark.parametrize("field", OWN)
def test_by_flag_in_the_hash_from_json_and_listed(field: str, own: Path, capsys: Any, monkeypatch: Any) -> None:
    for registry in (ACCESS, COMPRESSIONS, PATH_LOSSES, PLACES, RATES, SPEEDS):
        monkeypatch.setattr(registry, "_added", {})
    plugin, words, option, listed = OWN[field]
    chosen = ["fedavg", "--plugin", str(own / plugin), *words.split()]
    config = semcom.resolve(read(*chosen))
    assert run_hash(config) != run_hash(semcom.resolve(read("fedavg")))
    stored = json.loads(json.dumps(to_dict(config)))
    if option:
        flag, word, value = option
        section, name = flag.removeprefix("--").replace("-", "_").split(".")
        other = semcom.resolve(read(*chosen, flag, word))
        assert getattr(getattr(other, section).options, name) == value and run_hash(other) != run_hash(config)
        stored = json.loads(json.dumps(to_dict(other)))
        assert stored[section][name] == value
        assert run_hash(from_dict(stored)) == run_hash(other), "it is the same before it is resolved again"
        assert semcom.resolve(from_dict(stored)) == other == pickle.loads(pickle.dumps(other))
        with refuses(f"{section}.{name}"):
            read("fedavg", flag, word)
    assert cli.main(["list", LISTED[field], words.split()[-1], "--plugin", str(own / plugin)]) == 0
    assert listed in capsys.readouterr().out
    with pytest.raises(SystemExit):
        read(*chosen, "--help")
    helped = capsys.readouterr().out
    assert option is None or option[0] in helped


def test_options_go_with_the_owner_that_is_replaced_alone(own: Path) -> None:
    path = own / "config.json"
    air = {**SIGNS, "step": 0.5, "bits_per_use": 4.0}
    path.write_text(json.dumps(to_dict(semcom.resolve(RunConfig("fedcl", hyper={"average_encoder": True}, air=air)))))  # type: ignore[arg-type]
    again = read("--config", str(path), "--air.access", "orthogonal")
    assert vars(again.air.options) == {"bits_per_use": 4.0}


def test_what_runs_wrote_before_options_had_owners_is_read() -> None:
    """All options stood in each; those of others had their defaults, and such are left out, any other refused."""
    plain = semcom.resolve(RunConfig("fedavg"))
    flat = to_dict(plain)["air"]
    assert {"truncation_db", "csi_error", "outage", "repeat", "coverage", "quantise_bits"} < flat.keys()
    assert semcom.resolve(from_dict(to_dict(plain))) == plain
    for name, value in {"truncation_db": -5.0, "outage": 0.2, "top_fraction": 0.5}.items():
        with refuses(f"air.{name}", value):
            semcom.resolve(RunConfig("fedavg", air={name: value}))  # type: ignore[arg-type]
    with refuses("air.acess", "'access'"):
        semcom.resolve(RunConfig("fedavg", air={"acess": "superposed"}))  # type: ignore[arg-type]


def test_options_of_another_owner_are_replaced_in_python() -> None:
    config = semcom.resolve(RunConfig("fedavg", air=AirConfig(rate="mcs", options={"outage": 0.1})))
    again = dataclasses.replace(config, air=dataclasses.replace(config.air, rate="fixed"))
    assert vars(semcom.resolve(again).air.options) == {"bits_per_use": 2.0}


def test_two_options_of_one_name_are_refused() -> None:
    @COMPRESSIONS.register("test-clash")
    class Clash(COMPRESSIONS.get("quantise")):  # type: ignore[misc]
        @dataclasses.dataclass(frozen=True)
        class Options(COMPRESSIONS.get("quantise").Options):  # type: ignore[name-defined, misc]
            bits_per_use: float = 1.0

    with refuses("air.bits_per_use"):
        semcom.resolve(RunConfig("fedavg", air=AirConfig(compress="test-clash")))
