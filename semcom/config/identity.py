"""A configuration as plain containers and back, and the hash that identifies a run."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import json
from collections.abc import Collection, Mapping
from typing import Any

from semcom.config.declared import declared_types
from semcom.config.errors import ConfigError
from semcom.config.fields import RunConfig
from semcom.config.misplaced import describe_misplaced_field, describe_misplaced_section
from semcom.config.options import parse_option_value, spell_option
from semcom.config.presets import ROUND

CODE = "code of "
VARIABLE = "environment variable "
DEPENDS = "dependency "
READ = "read "
"""Prefixes of names in `contents` that are in no field: an entry that a script or a notebook has registered, a variable
that own code reads, a declared dependency, and a file that own code opened during set-up. Such a file is in no hash, as
it is known too late: its digest is compared when the run is asked for again."""
NOT_IDENTITY = (
    "out",
    "keep",
    "device",
    "chunk",
    "processes",
    "store",
    "data.root",
    "train.checkpoint_every",
    "train.checkpoint_minutes",
    "train.drop_checkpoints",
)
"""Fields that only affect where or how a run is carried out: they are not in its hash."""

FORMER: Mapping[str, Mapping[str, Any]] = {
    "air": {
        "bits_per_use": 2.0,
        "truncation_db": -10.0,
        "csi_error": 0.0,
        "quantise_bits": 8,
        "top_fraction": 0.1,
        "backoff_db": 3.0,
        "outage": 0.1,
        "repeat": True,
        "coverage": "repetition",
    },
    "network": {
        "radius_m": 250.0,
        "exponent": 3.5,
        "shadowing_db": None,
        "carrier_ghz": 3.5,
        "power_dbm": 23.0,
        "base_power_dbm": 33.0,
        "noise_figure_db": 7.0,
        "flops": None,
        "flops_spread": 0.0,
    },
}
"""Section -> its options from before they had owners. config.json has all of them among the section's fields, those of
unused owners with these values. A younger option is there only if its owner is used."""
_LATER_OPTIONS: Mapping[str, Any] = {
    "partition.options.test_classes": "own",
    "partition.options.fraction_tests": None,
    "channel.options.power": "normalised",
    "channel.options.feedback": "gain",
    "channel.options.feature_noise": 0.0,
    "channel.options.antennas": 1,
    "channel.options.users": 1,
    "channel.options.combining": "mmse",
    "channel.options.power_control": "none",
    "channel.options.round_doppler": None,
    "hyper.average_encoder": False,
    "hyper.outage": 0.1,
    **{f"air.{name}": value for name, value in FORMER["air"].items() if name != "bits_per_use"},
    "air.noise_by": "base",
    "network.flops": None,
    "network.flops_spread": 0.0,
}
"""The same as `later` of `setting`, of options: their owners import torch, and a hash does not wait for that."""

AREAS = ("auc", "auc_micro")
"""The metrics of runs that asked for areas under the ROC curve by a field of their own, `auc`: their hashes have it."""


def to_dict(config: RunConfig) -> dict[str, Any]:
    """Convert a configuration to plain containers, as `config.json` holds it; see `FORMER`."""
    values = _copy_plain(config)
    for section, former in FORMER.items():
        own = values[section].pop("options") or {}
        values[section] |= {**former} | (own if isinstance(own, dict) else {"options": own})
    return values


@dataclasses.dataclass
class _Held:
    value: Any


_LEAVES = (str, int, float, bool, type(None))


def _copy_plain(value: Any) -> Any:
    """Copy as `dataclasses.asdict` does, in a fifth of its time, as most of a configuration are leaves."""
    kind: Any = type(value)
    if kind in _LEAVES:
        return value
    if kind is tuple or kind is list:
        return kind(map(_copy_plain, value))
    if kind is dict:
        return {_copy_plain(name): _copy_plain(held) for name, held in value.items()}
    if (names := _list_field_names(kind)) is None:
        return dataclasses.asdict(_Held(value))["value"]
    return {name: _copy_plain(getattr(value, name)) for name in names}


@functools.cache
def _list_field_names(cls: type) -> tuple[str, ...] | None:
    """List the fields of a dataclass; None for another class."""
    return tuple(field.name for field in dataclasses.fields(cls)) if dataclasses.is_dataclass(cls) else None


def _list_later() -> dict[str, Any]:
    """List the later fields and sections, with their values in earlier runs; fields come before their section."""
    usual, found = to_dict(RunConfig()), dict(_LATER_OPTIONS)
    for part in dataclasses.fields(RunConfig):
        section, value = part.default_factory, usual[part.name]
        if dataclasses.is_dataclass(section):
            later = [f.name for f in dataclasses.fields(section) if f.metadata.get("later")]
            found |= {f"{part.name}.{name}": value[name] for name in later}
            value = {name: held for name, held in value.items() if f"{part.name}.{name}" not in found}
        if part.metadata.get("later"):
            found[part.name] = value
    return found


LATER: Mapping[str, Any] = _list_later()
"""Fields that are younger than the first stored runs, with their values in these, with which no hash has them."""


def from_dict(values: Mapping[str, Any], seen: dict[Any, Any] | None = None) -> RunConfig:
    """Build a configuration from plain containers. Raises ConfigError for an unknown section or field.

    Args:
        values: as of `to_dict`.
        seen: sections that were built before, for configurations that are only looked at: many runs share most of
            theirs (None: the configuration has sections of its own).
    """
    return _build_config(_read_former_fields(values), seen)


def _read_former_fields(values: Any) -> Any:
    """Replace a stored field `auc` by `train.metrics`."""
    train = values.get("train") if isinstance(values, Mapping) else None
    if not isinstance(train, Mapping) or not isinstance(train.get("auc"), bool) or "metrics" in train:
        return values
    rest = {name: value for name, value in train.items() if name != "auc"}
    return {**values, "train": {**rest, "metrics": AREAS if train["auc"] else ()}}


def complete_config(config: Any) -> RunConfig:
    """Build a configuration from a request: sections, or all of it, may be mappings, and lists become tuples.

    Raises ConfigError for a section of another type, and for an unknown field.
    """
    return _build_config(vars(config) if isinstance(config, RunConfig) else config)


def _build_config(values: Any, seen: dict[Any, Any] | None = None) -> RunConfig:
    """Build a configuration. Raises ConfigError, also for lists that are nested without end."""
    try:
        return _build_section(RunConfig, values, "", seen)
    except RecursionError:
        raise ConfigError("config: lists within lists are nested too deep for any field") from None


def _build_section(cls: type, values: Any, prefix: str, seen: dict[Any, Any] | None = None) -> Any:
    """Build an instance of dataclass `cls` from a mapping, with its sections, and tuples in place of lists."""
    if not isinstance(values, Mapping):
        raise ConfigError(describe_misplaced_section(cls, prefix.rstrip(".") or "config", values))
    known = _list_sections(cls)
    if prefix.removesuffix(".") in FORMER:
        values = _gather_options(values, known)
    built, hints = {}, declared_types(cls)
    for name, value in values.items():
        if not isinstance(name, str) or name not in known:
            raise ConfigError(describe_misplaced_field(cls, prefix, name, value))
        if (section := known[name]) is not None:
            known_as = None if seen is None else (name, repr(value))  # which tells 1 from 1.0
            if seen is not None and known_as in seen:
                built[name] = seen[known_as]
                continue
            value = _build_section(section, vars(value) if isinstance(value, section) else value, f"{prefix}{name}.")
            if seen is not None:
                seen[known_as] = value
        built[name] = parse_option_value(value, hints[name])
    return cls(**built)


@functools.cache
def _list_sections(cls: type) -> dict[str, Any]:
    """List the fields of a dataclass, with the class of each that is a section (None: it holds a value)."""
    made = {field.name: field.default_factory for field in dataclasses.fields(cls)}
    return {
        name: kind if isinstance(kind, type) and dataclasses.is_dataclass(kind) else None for name, kind in made.items()
    }


def _gather_options(values: Mapping[str, Any], known: Collection[str]) -> Mapping[str, Any]:
    """Move options that stand among the fields of a section, as `to_dict` puts them, to its `options`."""
    beside = {name: value for name, value in values.items() if isinstance(name, str) and name not in known}
    given = values.get("options")
    table = vars(given) if dataclasses.is_dataclass(given) else given or {}
    if not beside or not isinstance(table, Mapping):
        return values
    return {name: value for name, value in values.items() if name not in beside} | {"options": {**table, **beside}}


# -- identity --------------------------------------------------------------------------------------------------------


def run_hash(config: RunConfig) -> str:
    """Compute the identity of a resolved configuration, 12 hexadecimal digits, from the fields that affect results."""
    return _hash_values(_collect_fields(config))


def list_earlier_hashes(config: RunConfig) -> list[str]:
    """List the hashes that a run of this configuration had before the meaning of a value changed."""
    values = _collect_fields(config)
    revised = values.pop("revised", {})
    times = itertools.product(*(range(n + 1) for n in revised.values()))
    before = [{name: n for name, n in zip(revised, each, strict=True) if n} for each in times][:-1]
    return [_hash_values(values | ({"revised": counts} if counts else {})) for counts in before]


def _hash_values(values: dict[str, Any]) -> str:
    if values["train"].get("metrics") == list(AREAS):
        train = {name: value for name, value in values["train"].items() if name != "metrics"}
        values = {**values, "train": {**train, "auc": True}}
    # Sorted, so that neither the order of fields nor that of options is part of a hash.
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def list_identity_differences(stored: RunConfig, wanted: RunConfig) -> list[str]:
    """Describe the fields in which two runs differ, each with both values."""
    one, other = (flatten_table(_collect_fields(config)) for config in (stored, wanted))
    both = one.keys() & other.keys()
    names = [n for n in {**one, **other} if n not in both or json.dumps(one[n]) != json.dumps(other[n])]  # 1 and 1.0
    if "depends" in names:
        now = wanted.contents.items() - stored.contents.items() or stored.contents.items() - wanted.contents.items()
        gone = [name for name, _ in sorted(now) if name.startswith(DEPENDS)]
        names = [name for name in names if name != "depends"] + gone
    there, here = (flatten_table(to_dict(config)) for config in (stored, wanted))
    return [_describe_difference(name, there.get(name, ABSENT), here.get(name, ABSENT)) for name in names]


def _describe_difference(name: str, stored: Any, wanted: Any) -> str:
    """Describe one field that differs; if it names the same files in both runs, their content does."""
    if name.startswith((CODE, VARIABLE, DEPENDS)):
        return f"the {name} has changed" + (", or it is registered elsewhere" if name.startswith(CODE) else "")
    flag = spell_option(name.replace(".options.", "."))
    if _shorten_value(stored) == _shorten_value(wanted) and stored == wanted:  # 1 is no 1.0
        imports = ", or of what it imports," if name == "plugins" else ""
        return f"{flag}: the content of {_shorten_value(wanted)}{imports} has changed"
    return f"{flag}: {_shorten_value(stored)} there, {_shorten_value(wanted)} here"


ABSENT = object()
"""The value of a field that a stored run does not have, as its version did not."""


def _shorten_value(value: Any) -> str:
    """Format a value as JSON, in at most 60 characters."""
    text = "nothing" if value is ABSENT else json.dumps(value)
    return text if len(text) <= 60 else f"{text[:28]}...{text[-29:]}"


def _collect_fields(config: RunConfig) -> dict[str, Any]:
    """Convert a configuration to plain containers, without `NOT_IDENTITY`, and without `LATER` fields of former values.

    The digests in `contents` take the place of the paths of files, whatever option names these. Those of code,
    variables and declared dependencies are beside them.
    """
    values = to_dict(config)
    contents = values.pop("contents")
    for name in NOT_IDENTITY:
        part, last = _locate_field(values, name)
        del part[last]
    for name, before in LATER.items():
        part, last = _locate_field(values, name)
        if isinstance(part, dict) and last in part and part[last] == before:  # an option is not everywhere
            del part[last]
    if revised := _count_revisions(values):
        values["revised"] = revised
    beside = {name: found for name, found in contents.items() if name.startswith((CODE, VARIABLE))}
    depends = sorted(found for name, found in contents.items() if name.startswith(DEPENDS))
    return _replace_paths_by_digests(values, contents) | beside | ({"depends": depends} if depends else {})


def _count_revisions(values: dict[str, Any]) -> dict[str, int]:
    """Count how often the meaning of a field's value has changed since the first runs; unchanged fields are left out.

    Analog models go up as their update, estimates over fading are unbiased, and their means are each client's own. With
    `ls`, MMSE knows its error. Several users are received at the powers that they have. Rates follow each client's own
    fades, and 5G's slowest scheme has its price. Lost blocks that are not repeated are lost downwards, too. FedAMP
    mixes what the last round's clients have sent.

    Broadcasts meet no other user, and come from all antennas alike; users share the base station's power. A repetition
    meets the h that it has met. All at once, clients spend what they need. Features that are 0 are quantised too.
    After an early stop all evaluations from the best one on count. Fresh heads see the SNR, too. Gradients by
    grouped filters and Per-FedAvg's HF take their time, and confidences of 1 are in the last bin of the calibration
    error. A broadcast's block is as long as what is sent.
    """
    kind, rate = _read_dotted_field(values, "channel.kind"), _read_dotted_field(values, "air.rate")
    analog, part = _read_dotted_field(values, "air.parameters") == "analog", values["train"]["participation"]
    lossy = _read_dotted_field(values, "air.compress") not in (None, "none")
    lossy |= (coverage := _read_dotted_field(values, "air.coverage")) not in (None, "repetition")
    fades = kind not in ("none", "ideal", "awgn") and _read_dotted_field(values, "channel.options.fading") != "awgn"
    users, antennas = ((_read_dotted_field(values, f"channel.options.{name}") or 1) for name in ("users", "antennas"))
    again = _read_dotted_field(values, "channel.options.round_doppler") is not None
    again |= _read_dotted_field(values, "channel.options.time") == "round"
    follows, repeats = rate in ("mcs", "capacity"), _read_dotted_field(values, "air.repeat") is not False
    last, flops = values.get("finish", {}).get("kind"), values.get("network", {}).get("flops")
    fresh = last not in (None, ROUND, "svm", "lr")
    fresh |= last in (None, ROUND) and (values["method"] == "repper" or values["new_clients"] > 0)
    slow = "mobilenet" in _read_dotted_field(values, "model.encoder")
    slow |= values["method"] == "perfedavg" and _read_dotted_field(values, "hyper.variant") == "hf"
    extended = values["method"] in ("apfl", "fedrod", "feddbe")
    rows = values["method"] in ("fedproto", "fedgh", "fedpac", "fedcrl", "fedcosr")
    counts = {
        "air.parameters": (2 + fades) * analog,
        "air.access": int(_read_dotted_field(values, "air.access") == "superposed"),
        "air.compress": int(rows and _read_dotted_field(values, "air.compress") == "quantise"),
        "channel.options.antennas": int(antennas > 1 and (follows or analog)),
        "model.snr_input": int(fresh and _read_dotted_field(values, "model.snr_input") is True),
        "network.flops": int(flops is not None and slow),
        "train.metrics": int("ece" in (_read_dotted_field(values, "train.metrics") or ())),
        "train.patience": int((_read_dotted_field(values, "train.patience") or 0) >= 10),
        "channel.options.csi": 2 * (_read_dotted_field(values, "channel.options.csi") == "ls"),
        "channel.options.users": 2 * (users > 1),
        "air.rate": int(rate == "mcs" or (rate == "capacity" and fades)) + (follows and again and repeats),
        "method": int(values["method"] == "fedamp" and (part not in (None, 1) or analog or lossy)),
        "air.repeat": (2 + extended) * (not repeats),
        "air.coverage": int(extended and coverage == "none"),
    }
    return {name: n for name, n in counts.items() if n}


def _replace_paths_by_digests(value: Any, contents: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {name: _replace_paths_by_digests(held, contents) for name, held in value.items()}
    if isinstance(value, tuple | list):
        return [_replace_paths_by_digests(held, contents) for held in value]
    return contents.get(value, value) if isinstance(value, str) else value


def _locate_field(values: dict[str, Any], name: str) -> tuple[dict[str, Any], str]:
    """Find the table that holds a dotted field, and the field's own name."""
    *sections, last = name.split(".")
    for section in sections:
        values = values[section]
    return values, last


def _read_dotted_field(values: dict[str, Any], name: str) -> Any:
    """Read a dotted field; None for a missing option."""
    part, last = _locate_field(values, name)
    return part.get(last) if isinstance(part, dict) else None


def flatten_table(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested tables into one with dotted names, tuples into lists: {"a": {"b": (1,)}} -> {"a.b": [1]}."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if type(value) is dict or isinstance(value, Mapping):  # the first is asked in a tenth of the time
            flat |= flatten_table(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = list(value) if isinstance(value, tuple) else value
    return flat
