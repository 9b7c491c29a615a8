"""From a request to a resolved configuration: open fields filled, everything checked before any work."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import torch

from channels import link_options
from semcom.config import ChannelConfig, ConfigError, Resolved, RunConfig, build_hyper, complete, fill
from semcom.config.checks import check, check_types
from semcom.data.partitions import default_shots
from semcom.engine.links import build_link
from semcom.methods.registry import METHODS
from semcom.models.registry import ENCODERS, HEADS
from semcom.runs.contents import locate
from semcom.runs.limits import check_size
from semcom.runs.newcomers import check as check_newcomers
from semcom.runs.plugins import load_plugins

if TYPE_CHECKING:
    from channels import Link


def resolve(config: RunConfig) -> Resolved:
    """Fills the open fields and checks everything that can be checked without loading data.

    Raises ConfigError with one line for the first thing that is wrong.
    """
    try:
        return _resolve(config)
    except ConfigError:
        raise
    except ValueError as error:  # of a registry or a link, which know nothing of configurations
        raise ConfigError(str(error)) from None


def _resolve(request: RunConfig) -> Resolved:
    """Do the work of `resolve` without the translation of errors."""
    request = complete(request)
    check_types(request)
    load_plugins(request.plugins)
    request = locate(request)
    method = METHODS.get(request.method)
    preset = method.preset if request.train.preset == "paper" else {}
    hyper, schedule = build_hyper(method.Hyper, request.hyper), fill(request.train, preset)
    config = Resolved(**{**vars(request), "hyper": hyper, "train": schedule})
    if config.partition.kind == "shots" and config.partition.shots is None:
        shots = dataclasses.replace(config.partition, shots=default_shots(config.data.name))
        config = dataclasses.replace(config, partition=shots)
    config = dataclasses.replace(config, channel=_fill_channel(config.channel))
    check(config)
    check_size(config)
    config.hyper.check()
    config = _fill_from(config, build_link(config))
    HEADS.get(config.model.head)
    for name in config.model.encoder.split(","):
        ENCODERS.get(name)
    method(config.hyper).check(config)
    check_newcomers(config)
    device = find_device(config.device, 0 if config.processes > 1 else None)
    if config.precision == "tf32" and device.type != "cuda":
        raise ConfigError(f"precision: 'tf32' is a rounding of CUDA's, not of {device.type}; give float32 or bf16")
    return config


def _fill_channel(channel: ChannelConfig) -> ChannelConfig:
    """The channel with the options that its link takes filled in. Raises ConfigError for a set one it does not take."""
    known = link_options(channel.kind)
    for name, value in channel.options().items():
        if name not in known:
            flag, takes = name.replace("_", "-"), ", ".join(known) or "no options"
            raise ConfigError(f"channel.{flag}: {value!r} is not for {channel.kind}, which takes {takes}")
    opened = {name: v for name, v in known.items() if getattr(channel, name, v) is None}
    return dataclasses.replace(channel, **opened)


def _fill_from(config: Resolved, link: Link) -> Resolved:
    """The options that the link has worked out itself, and the band. Raises ConfigError for another band."""
    channel = config.channel
    known = link_options(channel.kind)
    opened = {n: getattr(link.options, n) for n, v in known.items() if getattr(channel, n, v) is None}
    own, given = link.bandwidth_hz, config.air.bandwidth_hz
    if own is not None and given not in (None, own):
        raise ConfigError(f"air.bandwidth-hz: {given!r} is not for {channel.kind}, whose subcarriers occupy {own:g} Hz")
    air = dataclasses.replace(config.air, bandwidth_hz=own or given or 1e6)
    return dataclasses.replace(config, channel=dataclasses.replace(channel, **opened), air=air)


def find_device(name: str, local_rank: int | None = None) -> torch.device:
    """The device called `name`, of one process or of one of several on a machine, which take its accelerators in turn.

    Raises ConfigError for one that is not there, or where several processes would be on one that is named.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if local_rank is not None and name.startswith("cuda"):
        if name != "cuda":
            raise ConfigError(f"device: {name!r} for several processes; give cuda, and each takes its own")
        name = f"cuda:{local_rank % max(1, torch.cuda.device_count())}"
    try:
        device = torch.device(name)
        if device.type == "cuda":  # without a context on it, which each process would open on the first one
            device = torch.device("cuda", device.index or 0)  # Sionna wants a number
            if device.index >= torch.cuda.device_count():
                raise RuntimeError
        else:
            torch.empty(0, device=device)
    except (RuntimeError, AssertionError):
        raise ConfigError(f"device: {name!r} is not here; give cpu, cuda, cuda:N or auto") from None
    return device
