"""`semcom split`: who owns which images of a dataset, drawn or read from another toolkit, written to a file."""

from __future__ import annotations

import dataclasses
import os
import shlex
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import semcom
from semcom.cli import flags
from semcom.cli.fields import is_dataclass_record
from semcom.cli.printing import format_split_table
from semcom.config import ConfigError, DataConfig, PartitionConfig, Resolved, RunConfig
from semcom.config.options import read_option_default, spell_option
from semcom.data.dataset import SIDE, Dataset
from semcom.data.load import load_dataset, read_dataset
from semcom.data.partitions import partition_dataset
from semcom.data.pfllib import NAME, list_pfllib_files, measure_pfllib_side, read_pfllib
from semcom.data.split import Split
from semcom.data.split_file import write_split
from semcom.runs.request.limits import check_archive_limits
from semcom.runs.request.plugins import load_plugins
from semcom.runs.request.section_options import build_section_options, replace_option_owners
from semcom.screen import say

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@dataclass(frozen=True)
class SplitFlags:
    """Divide a dataset over clients as `semcom train` does, write who owns which images, and print who has what.

    `semcom train --partition.kind file --partition.path OUT` trains on what was written.
    """

    data: DataConfig = field(default_factory=DataConfig, metadata={"hidden": ("size", "augment")})
    partition: PartitionConfig = field(default_factory=PartitionConfig)
    clients: int = 20
    """K: number of clients, new ones included."""
    seed: int = 0
    """Seed from which the division follows."""
    out: str | None = None
    """File that is written, an .npz that is not there yet: train_0, test_0, train_1, ... are indices of images."""
    from_pfllib: str | None = None
    """Folder of a dataset that PFLlib has divided: its division is written (None: one is drawn)."""
    plugins: tuple[str, ...] = ()
    """Python files or modules that register own datasets and partitions (repeatable)."""


def read_split_flags(early: flags.Early) -> SplitFlags:
    """Read the flags of `semcom split`. Raises ConfigError or ValueError for the first error."""
    load_plugins(early.plugins)
    config = build_section_options(replace_option_owners(RunConfig(), flags.read_owners_in_flags(early.rest)))
    start = SplitFlags(config.data, config.partition, plugins=early.plugins)
    wanted = flags.parse_flags(start, "semcom split", early.rest, {"log_level": flags.EARLY["log_level"]})
    _check_out(wanted.out)
    if wanted.from_pfllib is not None:
        _refuse_beside_pfllib(wanted, SplitFlags(partition=build_section_options(RunConfig()).partition))
    return wanted


def _check_out(out: str | None) -> None:
    """Raise ConfigError for a file that cannot be written, or that is there already."""
    wanted = "give the path of the .npz that is to be written"
    if out is None:
        raise ConfigError(f"out: no file is named; {wanted}")
    path = os.path.expanduser(out)
    if os.path.isdir(path):
        raise ConfigError(f"out: {out!r} is a folder; {wanted}")
    if not path.endswith(".npz"):
        raise ConfigError(f"out: {out!r} does not end in .npz; {wanted}")
    if os.path.exists(path):
        raise ConfigError(f"out: {out!r} is there already; remove it, or give another path")


def carry_out_split(wanted: SplitFlags) -> None:
    """Draw or read the split, write it and print its table.

    Raises:
        ConfigError: the data cannot be had, or not be divided like that.
        OSError: the file cannot be written.
    """
    assert wanted.out is not None
    config = semcom.resolve(
        RunConfig(
            method="local",
            data=wanted.data,
            partition=wanted.partition,
            clients=wanted.clients,
            seed=wanted.seed,
            plugins=wanted.plugins,
            device="cpu",
        )
    )
    if wanted.from_pfllib is None:
        dataset = read_dataset(config.data)
        made = partition_dataset(dataset, config.partition, config.clients, config.seed)
    else:
        dataset, made = _read_pfllib(wanted.from_pfllib, config)
    out = write_split(os.path.expanduser(wanted.out), made, dataset)
    say(format_split_table(made, dataset.labels, dataset.classes))
    divided = ["--clients", len(made.train), "--seed", wanted.seed, "--partition.kind", "file", "--partition.path", out]
    plugins = [word for plugin in wanted.plugins for word in ("--plugin", plugin)]
    say(f"written to {out}: {shlex.join(map(str, [*_spell_data(wanted.data), *divided, *plugins]))}")


def _spell_data(data: DataConfig) -> list[str]:
    """Spell the flags of a dataset: its name, its root, and those of its own options that are not the default."""
    words = ["--data.name", data.name, *(["--data.root", data.root] if data.root else [])]
    for name, value in vars(data.options).items():
        if value == read_option_default(data.options, name):
            continue
        flag = spell_option(name)
        if isinstance(value, bool):
            words.append(f"--data.{flag}" if value else f"--data.no-{flag}")
        else:
            words += [f"--data.{flag}", *map(str, value if isinstance(value, tuple) else (value,))]
    return words


def _read_pfllib(folder: str, config: Resolved) -> tuple[Dataset, Split]:
    """Read a dataset, and its split from a folder of PFLlib's."""
    for files in list_pfllib_files(folder).values():
        for file in files:
            check_archive_limits("from-pfllib", str(Path(file).absolute()), NAME.__eq__)
    dataset = load_dataset(
        replace(config.data, size=max(SIDE, measure_pfllib_side(folder)))
    )  # as large as they are stored
    return dataset, read_pfllib(folder, dataset)


def _refuse_beside_pfllib(wanted: DataclassInstance, start: DataclassInstance, prefix: str = "") -> None:
    """Raise ConfigError for the first flag beside --from-pfllib that says how to divide: the folder says it."""
    for each in dataclasses.fields(start):
        value, usual = getattr(wanted, each.name), getattr(start, each.name)
        if is_dataclass_record(usual) and each.name != "data":
            inner = prefix if each.name == "options" else f"{prefix}{each.name}."
            _refuse_beside_pfllib(value, usual, inner)
        elif value != usual and each.name not in ("data", "out", "from_pfllib", "plugins"):
            flag = spell_option(f"{prefix}{each.name}")
            raise ConfigError(f"{flag}: {value!r} has no effect with from-pfllib, whose folder says it; leave it out")
