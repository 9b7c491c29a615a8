"""The command that repeats a run: read by the command line it gives the same run, and says no more than it has to."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

import semcom
from channels import LINKS
from semcom.cli import flags
from semcom.config import (
    ChannelConfig,
    DataConfig,
    FinishConfig,
    ModelConfig,
    PartitionConfig,
    RunConfig,
    TrainConfig,
    differences,
    from_dict,
    run_hash,
    to_dict,
)
from semcom.data.registry import PARTITIONS
from semcom.methods.registry import METHODS
from semcom.studies.results.repeat import changed, command


@pytest.fixture(autouse=True)
def quick_resolve() -> None:
    """Runs are resolved in earnest: the stand-in of conftest.py is not wanted."""


def stored(config: RunConfig) -> RunConfig:
    """The configuration as config.json gives it back."""
    return from_dict(json.loads(json.dumps(to_dict(semcom.resolve(config)))))


def assert_repeats(config: RunConfig) -> str:
    """Check that the command makes the same run; return it."""
    before = stored(config)
    text = command(before, "again")
    program, verb, *words = shlex.split(text)
    assert (program, verb) == ("semcom", "train")
    read = flags.read_train(flags.read_early(words, config=True))
    after = semcom.resolve(read)
    assert run_hash(after) == run_hash(before), differences(before, after)
    assert read.out == "again" and read.keep == before.keep
    return text


@pytest.mark.parametrize("method", [name for name in METHODS.names() if not name.startswith("test-")])
def test_every_method_with_defaults_and_with_its_papers_setting(method: str) -> None:
    text = assert_repeats(RunConfig(method=method))
    assert "--train" not in text and "--method" not in text, "defaults are not said"
    if METHODS.get(method).preset:
        assert "--train.preset paper" in assert_repeats(RunConfig(method=method, train=TrainConfig(preset="paper")))


@pytest.mark.parametrize("kind", [name for name in LINKS.names() if not name.startswith("test-")])
def test_every_link(kind: str) -> None:
    assert_repeats(RunConfig(method="fedavg", channel=ChannelConfig(kind=kind)))


@pytest.mark.parametrize("kind", [n for n in PARTITIONS.names() if n != "file" and not n.startswith("test-")])
def test_every_partition(kind: str) -> None:
    assert_repeats(RunConfig(partition=PartitionConfig(kind=kind), clients=4))


SPELLINGS: dict[str, dict[str, Any]] = {
    "a negative SNR, a list of them": {"channel": ChannelConfig(snr_db=-6.0, test_snr_db="-6,0,6")},
    "an SNR per client": {"channel": ChannelConfig(snr_db="0:18"), "clients": 3},
    "several rates": {"train": TrainConfig(lr=(0.1, 0.2), lr_milestones=(3, 5), optimizer="sgd"), "clients": 2},
    "steps in the place of epochs": {"train": TrainConfig(local_steps=5, rounds=7)},
    "a switch that is off": {"train": TrainConfig(through_link=False), "method": "fedavg"},
    "a last stage": {"finish": FinishConfig(kind="lr"), "method": "fedavg"},
    "what is kept": {"keep": ("confusion", "features")},
    "hyperparameters": {"hyper": {"lam": 1 / 3, "centroids": "mean"}},
    "numbers that are no short decimals": {"hyper": {"lam": 0.1 + 0.2}},
    "several encoders": {"method": "fedproto", "model": ModelConfig(encoder="dcgan,dcgan-narrow"), "clients": 4},
    "little things": {"precision": "bf16", "seed": 3, "new_clients": 2, "method": "fedavg"},
}


@pytest.mark.parametrize("what", SPELLINGS)
def test_every_spelling(what: str) -> None:
    assert_repeats(RunConfig(**SPELLINGS[what]))


def test_only_what_differs_is_said() -> None:
    config = RunConfig(seed=2, clients=3, channel=ChannelConfig(snr_db=-6.0), device="cpu", chunk=1)
    assert changed(stored(config)) == {"partition.shots": 15, "channel.snr_db": -6.0, "clients": 3, "seed": 2}
    text = command(stored(config), "a b")
    words = "--partition.shots 15 --channel.snr-db=-6 --clients 3 --seed 2"
    assert text == f"semcom train fedcl {words} --out 'a b'"


def test_paths_are_cut_down_and_what_a_plug_in_owns_is_given_in_full() -> None:
    """The method is not registered: nothing of a plug-in runs to tell how a run of it is repeated."""
    config = RunConfig(method="own; rm", hyper={"mu": 0.5}, plugins=("/home/me/own.py",), data=DataConfig("/d/x.npz"))
    text = command(config, "again")
    assert "/home" not in text and "/d/" not in text
    assert shlex.split(text)[:9] == [
        *("semcom", "train", "own; rm", "--plugin", "own.py", "--method.mu", "0.5", "--data.name", "x.npz")
    ]
