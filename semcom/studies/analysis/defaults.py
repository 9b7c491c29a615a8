"""The fields of a run that sets none, without importing its method or its link, and torch with these."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from semcom.config import BAND_HZ, ConfigError, RunConfig, fill_from_preset
from semcom.data.registry import PARTITIONS
from semcom.declarations import describe_entry, read_declared_fields
from semcom.methods.registry import METHODS
from semcom.runs.request.finish import fill_finish
from semcom.runs.request.section_options import (
    NAMING,
    OWNERS,
    find_options_class,
    list_option_owners,
    read_option_owner,
    replace_section_options,
)
from semcom.studies.results.table import list_table_fields

SETTLED: Mapping[str, Mapping[str, Any]] = {
    **{"none": {}, "ideal": {}, "awgn": {"feature_noise": 0.0, "downlink": "noisy", "power": "normalised"}},
    "digital": {
        **{"feature_noise": 0.0, "downlink": "noisy", "bits": 1.0, "modulation": 16, "code_rate": 0.5},
        **{"fading": "awgn", "coherence": None, "k_factor_db": None},
    },
    "ofdm": {
        **{"feature_noise": 0.0, "equaliser": "mmse", "downlink": "noisy", "feedback": "gain", "antennas": 1},
        **{"users": 1, "combining": "mmse", "power_control": "none", "csi": "perfect", "pilots": (2, 11)},
        **{"subcarriers": 2680, "shares": None, "spacing_khz": 15.0, "cyclic_prefix": 1 / 14},
        **{"profile": "tdl-a", "delay_spread_ns": 100.0, "carrier_ghz": 3.5, "speed_mps": 3.0},
    },
}
"""Link -> its options in a run that sets none, of links that work some out, or have fewer than the class above them."""
BANDS = {"ofdm": 40.2e6}
"""Link -> its band in such a run, in Hz."""


def list_default_fields(request: RunConfig) -> dict[str, Any]:
    """List the fields of the resolved run that sets nothing but the owners of its options, such as its link.

    Raises:
        ConfigError: an owner is unknown, as that of a plug-in that is not loaded, or has no such run, as `cir`.
    """
    for field, registry in NAMING.items():
        name = read_option_owner(request, field)
        if name == "cir" or (name not in registry and field != "data.name"):
            raise ConfigError(f"{field}: {name} has no run that sets none of its options")
    finish = fill_finish(request, describe_entry(METHODS, request.method))
    air = replace(request.air, bandwidth_hz=BANDS.get(request.channel.kind, BAND_HZ))
    request = replace(request, train=fill_from_preset(request.train, {}), finish=finish, air=air)
    for section in OWNERS:
        each = (_read_options(field, name, request) for field, name in list_option_owners(request, section).items())
        request = replace_section_options(request, section, functools.reduce(operator.or_, each))
    return list_table_fields(request)


def _read_options(field: str, name: str, request: RunConfig) -> dict[str, Any]:
    """Read the default of each option of an owner, of a class that has been imported as this settles them."""
    if field == "channel.kind" and name in SETTLED:
        return {**SETTLED[name]}
    place = NAMING[field].place(name)
    if field == "partition.kind":  # which imports no torch
        images = getattr(request.data.options, "of", request.data.name)
        return vars(PARTITIONS.get(name).settle(find_options_class(field, name)(), images))
    if place is None:
        options = find_options_class(field, name)()
        return vars(options.settled() if hasattr(options, "settled") else options)
    return {
        option: value
        for option, (value, _) in read_declared_fields(place, "Hyper" if field == "method" else "Options").items()
    }
