"""Options of a user's link, partition and dataset: flags, Python, JSON, config.json, the hash, the help, the list."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import semcom
from semcom.cli import main as cli
from semcom.config import ChannelConfig, DataConfig, PartitionConfig, RunConfig, run_hash, to_dict
from semcom.config.options import build_options
from semcom.data.registry import PARTITIONS
from semcom.engine.air.links import build_link
from semcom.runs.request.resolve import resolve
from semcom.studies.sweep.pool import carry_out_in_pool
from tests.commands import read
from tests.refusals import refuses

PLUGIN = '''
from dataclasses import dataclass

import numpy as np

from semcom.channels import LINKS
from semcom.channels.fading import Rayleigh
from semcom.channels.options import POSITIVE, require
from semcom import DATASETS, PARTITIONS, Dataset, Partition, Split
from tests.commands import read


@LINKS.register("scaled")
class Scaled(Rayleigh):
    """Rayleigh fading, m times as strong."""

    @dataclass(frozen=True)
    class Options(Rayleigh.Options):
        m: float = 1.0
        """Factor of the gain."""

        def check(self):
            super().check()
            require("m", self.m, POSITIVE)

    def gain(self, rows):
        return self.options.m * rows["fading"]


@PARTITIONS.register("halves")
class Halves(Partition):
    """Consecutive parts of the training images; all test on the first test images."""

    @dataclass(frozen=True)
    class Options(Partition.Options):
        each: int = 10
        """Training images per client."""

    def divide(self, dataset, clients, rng):
        train = np.split(np.arange(clients * self.options.each), clients)
        test = np.arange(dataset.train_size, dataset.train_size + 20)
        return Split(tuple(train), (test,) * clients)


@DATASETS.register("stripes")
class Stripes:
    """Ten classes of images with one bright stripe."""

    @dataclass(frozen=True)
    class Options:
        width: int = 2
        """Width of a stripe in pixels."""

    def __init__(self, options):
        self.options = options

    def __call__(self, root):
        labels = np.arange(1200) % 10
        images = np.zeros((1200, 1, 32, 32), np.uint8)
        for i, label in enumerate(labels):
            images[i, 0, :, 3 * label : 3 * label + self.options.width] = 255
        return Dataset("stripes", images, labels, 1000, tuple("0123456789"))
'''
OWN = {
    "channel": ("--channel.kind scaled", "--channel.m", 2.0, "channels scaled", "m = 1.0 (a number)"),
    "partition": ("--partition.kind halves", "--partition.each", 12, "partitions halves", "each = 10 (a whole number)"),
    "data": ("--data.name stripes", "--data.width", 3, "datasets stripes", "width = 2 (a whole number)"),
}
"""Section -> how its owner is chosen, the flag, another value, and how it is listed."""


@pytest.fixture
def plugin(tmp_path: Path, own_names: None) -> str:
    """The file; what it registers is forgotten after the test."""
    path = tmp_path / "own.py"
    path.write_text(PLUGIN)
    return str(path)


def read_own(plugin: str, *words: str) -> RunConfig:
    return read("local", "--plugin", plugin, *words)


def test_own_options_reach_worker_processes(plugin: str, tmp_path: Path) -> None:
    """A worker has not loaded the plug-in when a run reaches it, so it does not know the class of its options."""
    words = "--channel.kind scaled --channel.m 2 --train.through-link --clients 2 --train.rounds 1"
    runs = {}
    for seed in "01":
        config = resolve(read_own(plugin, *words.split(), "--seed", seed, "--out", str(tmp_path / seed)))
        runs[run_hash(config)] = config
    assert carry_out_in_pool(runs, jobs=2, backend="loky", train=semcom.run) == {}
    stored = [json.loads((tmp_path / seed / "config.json").read_text()) for seed in "01"]
    assert [s["channel"]["options"]["m"] for s in stored] == [2.0, 2.0]


def option(config: RunConfig, section: str) -> Any:
    (name,) = (flag.rpartition(".")[2] for _, flag, *_ in [OWN[section]])
    return getattr(getattr(config, section).options, name)


@pytest.mark.parametrize("section", OWN)
def test_by_flag_in_the_hash_and_from_json(section: str, plugin: str, tmp_path: Path) -> None:
    kind, flag, value, _, _ = OWN[section]
    plain = resolve(read_own(plugin, *kind.split()))
    config = resolve(read_own(plugin, *kind.split(), flag, str(value)))
    assert option(config, section) == value != option(plain, section)
    assert run_hash(config) != run_hash(plain)
    stored = tmp_path / "config.json"
    stored.write_text(json.dumps(to_dict(config)))
    assert json.loads(stored.read_text())[section]["options"][flag.rpartition(".")[2]] == value
    again = read("--config", str(stored))
    assert option(again, section) == value and run_hash(resolve(again)) == run_hash(config)
    other = read("--config", str(stored), *BACK[section].split())
    assert not hasattr(getattr(other, section).options, flag.rpartition(".")[2]), "they go with their owner"


BACK = {"channel": "--channel.kind awgn", "partition": "--partition.kind iid", "data": "--data.name digits"}
"""What chooses another owner."""


@pytest.mark.parametrize("section", OWN)
def test_from_python(section: str, plugin: str) -> None:
    parts: dict[str, Any] = {
        "channel": ChannelConfig("scaled", options={"m": 2.0}),
        "partition": PartitionConfig("halves", options={"each": 12}),
        "data": DataConfig("stripes", options={"width": 3}),
    }
    config = resolve(RunConfig("local", plugins=(plugin,), **{section: parts[section]}))
    assert option(config, section) == OWN[section][2]


@pytest.mark.parametrize("section", OWN)
def test_in_help_and_in_the_list(section: str, plugin: str, capsys: pytest.CaptureFixture[str]) -> None:
    kind, flag, _, listed, line = OWN[section]
    assert cli.main(["train", "local", "--plugin", plugin, *kind.split(), "--help"]) == 0
    assert flag in capsys.readouterr().out
    assert cli.main(["train", "local", "--plugin", plugin, "--help"]) == 0
    assert f"{flag} " not in capsys.readouterr().out, "it is not the default's"
    assert cli.main(["list", *listed.split(), "--plugin", plugin]) == 0
    assert f"  {line}" in capsys.readouterr().out.splitlines()


def test_a_run_uses_them_all(plugin: str, here: Path) -> None:
    words = ["--clients", "2", "--train.rounds", "1", "--model.encoder", "dcgan-narrow", "--out", "out"]
    words += ["--device", "cpu", "--plugin"]
    own = [word for kind, flag, value, *_ in OWN.values() for word in (*kind.split(), flag, str(value))]
    assert cli.main(["train", "local", *words, plugin, *own]) == 0
    stored = json.loads((here / "out" / "config.json").read_text())
    assert [stored[s]["options"][f.rpartition(".")[2]] for s, (_, f, *_) in OWN.items()] == [2.0, 12, 3]
    result = semcom.run(semcom.RunConfig(**{**vars(read_own(plugin, *words, plugin, *own))}))
    assert result.world.session.draws.federation.train.sizes.tolist() == [12, 12]
    assert int((result.world.session.draws.federation.images[0, 0, 0] == 255).sum()) == 3
    link, _ = build_link(result.config)
    rows = {"fading": np.ones(1)}
    assert link.gain(rows) == 2.0  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        ("--channel.kind scaled --channel.m -1", "channel.m", -1.0),
        ("--channel.kind scaled --channel.m big", "channel.m", "big"),
        ("--channel.m 2", "channel.m", "downlink"),
        ("--partition.each 3", "partition.each", "shots, ways-spread"),
        ("--data.width 3", "data.width", "it is for stripes"),
    ],
)
def test_wrong_values_and_flags_of_others(words: str, field: str, value: object, plugin: str) -> None:
    with refuses(field, value):
        resolve(read_own(plugin, *words.split()))


def test_options_are_those_of_their_owner() -> None:
    """An instance of another owner's options is refused, not taken for a mapping."""
    config = RunConfig("local", partition=PartitionConfig("iid", options=PARTITIONS.get("shots").Options()))
    with refuses("partition.options", "Shots.Options(ways=3"):
        resolve(config)
    with refuses("partition.options", 3):
        build_options(PARTITIONS.get("iid").Options, 3, "partition", "iid")


@pytest.mark.parametrize("command", ["train", "sweep", "figure", "channel-check", "list", "train fedcl", "sweep demo"])
def test_every_command_s_help_has_the_plug_ins(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*command.split(), "--help"]) == 0
    text = capsys.readouterr().out
    assert "--plugin" in text and "--log-level" in text and "(None:" not in text


def test_the_help_shows_the_options_of_what_is_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "fedcl", "--channel.kind=ofdm", "--partition.kind", "iid", "--help"]) == 0
    text = capsys.readouterr().out
    assert "--channel.csi" in text and "--partition.test-fraction" in text and "--partition.ways" not in text
    assert cli.main(["train", "fedcl", "--help"]) == 0
    text = capsys.readouterr().out
    assert "--channel.downlink {noisy,ideal}" in text and "--partition.ways" in text and "--channel.csi" not in text


def test_dataclasses_of_options_are_hashable() -> None:
    """A sweep tells by them which data to load."""
    config = resolve(RunConfig("local"))
    assert len({config.data, dataclasses.replace(config.data), config.partition}) == 2
