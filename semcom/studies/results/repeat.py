"""The command that repeats one run: `semcom train` with a flag for all that is not as by default."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from semcom.config import COMMON, NOT_IDENTITY, AirConfig, ConfigError, RunConfig, TrainConfig, to_dict
from semcom.config.options import spelled
from semcom.data.registry import DATASETS
from semcom.runs.resolve import BAND_HZ
from semcom.runs.section_options import REGISTRIES, options_class, owner, replace_options
from semcom.studies.overrides import flag_name, number, spelled_set, spelled_vary
from semcom.studies.results.table import fields

APART = ("method", "plugins", "contents")
"""Fields that are no flag of their own: the word after `train`, `--plugin`, and what is worked out from files."""


def command(config: RunConfig, out: str) -> str:
    """Return the shell command that repeats a run, wherever its folder is.

    Paths are cut down to the names of their files: they tell nothing of a machine, and hold where these files lie in
    the current folder. Options of a plug-in are all given, as its defaults are not known without running it.

    Args:
        config: the resolved configuration, as config.json has it.
        out: folder of the repetition.
    """
    plugins = [word for path in config.plugins for word in ("--plugin", here(path))]
    flags = [word for field, value in changed(config).items() for word in _flag(field, value)]
    return shlex.join(["semcom", "train", config.method, *plugins, *flags, "--out", out])


def once_more(config: RunConfig, key: str, sweep: Mapping[str, Any]) -> str:
    """Return the command that repeats a stored run, with the folder of its dataset.

    That is `semcom train`, or for an experiment that trains by a function of its own the sweep, cut down to the run.

    Args:
        config: as config.json has it.
        key: the run's hash.
        sweep: what sweep.json says; empty for a run of no sweep.
    """
    out, root = f"repeated/{key}", config.data.root or "data"
    named = config.data.name in DATASETS.names() and config.data.name != "digits"  # what is looked for in a folder
    data = ["--data.root", root] if named else []
    if not sweep.get("own_training"):
        return command(config, out) + (" " + shlex.join(data) if data else "")
    words = ["semcom", "sweep", sweep["experiment"], "--scale", sweep["scale"], "--methods", sweep["variants"][key]]
    words += [word for path in config.plugins for word in ("--plugin", here(path))]
    mine, axes = fields(config), [axis for axis in sweep.get("axes", {}) if axis not in ("variant", "seed")]
    given = {name: value for name, value in sweep.get("set", {}).items() if name != "data.root"}
    for axis in axes:
        names = tuple(axis.split(","))
        value = tuple(mine.get(name) for name in names)
        if None in value:  # a field that the run does not have, which no word spells
            words += ["--vary", f"{','.join(map(flag_name, names))}={json.dumps([value if value[1:] else None])}"]
        elif len(names) > 1:
            words += ["--vary", spelled_vary(names, (value,))]
        else:
            given[axis] = value[0]
    words += [word for name, value in given.items() for word in ("--set", spelled_set(name, value))]
    return shlex.join([*words, "--seeds", str(config.seed), *data, "--out", out])


def changed(config: RunConfig) -> dict[str, Any]:
    """Return the dotted fields of a resolved configuration that are not as by default, with their values.

    Those that only say where or how a run is carried out are not among them, but for what it keeps.
    """
    usual = dict(_fields(to_dict(_default(config))))
    left = {*APART, *NOT_IDENTITY} - {"keep"}
    # None is a field that something else settles, as steps settle epochs.
    found = {name: value for name, value in _fields(to_dict(config)) if name not in left and value is not None}
    return {name: value for name, value in found.items() if name not in usual or value != usual[name]}


def _default(config: RunConfig) -> RunConfig:
    """Return the default run with the same owners of options, and its open fields filled as `resolve` fills them.

    A preset fills them in another way: beside one they all stay open, hence are given.
    """
    schedule = {name: value for name, value in COMMON.items() if config.train.preset == "common"}
    default = RunConfig(train=TrainConfig(**schedule), air=AirConfig(bandwidth_hz=BAND_HZ))
    for section in REGISTRIES:
        default = replace_options(default, section, _options(config, section))
    return default


def _options(config: RunConfig, section: str) -> Any:
    """Return the default options of a section's owner; none where nobody has registered it here."""
    try:
        return options_class(section, owner(config, section))()
    except ConfigError:
        return {}


def _fields(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted fields of a configuration; options belong to their section."""
    for name, value in values.items():
        if isinstance(value, Mapping) and name not in APART:
            yield from _fields(value, prefix if name == "options" else f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _flag(field: str, value: Any) -> list[str]:
    """Return the words of a flag; one whose value begins with a dash is a single word."""
    section, dot, name = flag_name(field).rpartition(".")
    if isinstance(value, bool):
        return [f"--{section}{dot}{'' if value else 'no-'}{spelled(name)}"]
    flag = f"--{section}{dot}{spelled(name)}"
    words = [_word(each) for each in value] if isinstance(value, list | tuple) else [_word(value)]
    return [f"{flag}={words[0]}"] if len(words) == 1 and words[0].startswith("-") else [flag, *words]


def _word(value: Any) -> str:
    return number(value) if isinstance(value, int | float) else here(str(value))


def here(text: str) -> str:
    """Return a text, of an absolute path the name of its file alone."""
    return os.path.basename(text) if os.path.isabs(text) else text
