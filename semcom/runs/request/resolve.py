"""The way from a request to a resolved configuration: open fields filled, everything checked before any work."""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import joblib
import torch

from semcom.config import (
    BAND_HZ,
    COMMON,
    ConfigError,
    NoEffect,
    Resolved,
    RunConfig,
    Schedule,
    TrainConfig,
    complete_config,
    fill_from_preset,
)
from semcom.config.checks import check_config, check_config_types
from semcom.config.errors import show_value
from semcom.config.options import check_options
from semcom.data.load import count_picture_numbers, read_dataset
from semcom.data.registry import AUGMENTATIONS, PARTITIONS
from semcom.engine.air.links import build_link
from semcom.engine.air.schedulers import SCHEDULERS
from semcom.engine.host.ranks import count_launched_ranks
from semcom.engine.train.precision import reset_torch
from semcom.methods.base import Method
from semcom.methods.parts.kinds import holds_classifier
from semcom.methods.registry import METHODS
from semcom.models.registry import HEADS, check_features
from semcom.registry import find_entry
from semcom.runs.request.finish import check_finish, fill_finish
from semcom.runs.request.inputs import check_reaches_processes, find_unshared_entry, fingerprint_inputs
from semcom.runs.request.limits import check_image_limits, check_size_limits
from semcom.runs.request.new_clients import check_new_clients as check_newcomers
from semcom.runs.request.new_clients import configure_new_clients
from semcom.runs.request.plugins import load_plugins
from semcom.runs.request.section_options import (
    OWNERS,
    build_section_options,
    read_section_options,
    replace_section_options,
)
from semcom.runs.request.setup import Setup
from semcom.runs.request.sources import watch_reads
from semcom.runs.request.unused_settings import check_unused_settings
from semcom.tasks.registry import make_task

if TYPE_CHECKING:
    from semcom.channels import Link

HIGHEST = 10**6
"""Limit of a bandwidth ratio, beyond whatever fits into memory."""


def resolve(config: RunConfig) -> Resolved:
    """Fill the open fields and check everything that can be checked without loading data.

    Raises ConfigError with one line for the first error.

    Example:
        >>> import semcom
        >>> config = semcom.resolve(semcom.RunConfig("fedprox", hyper={"mu": 0.1}))
        >>> config.train.optimizer, config.hyper.mu
        ('adam', 0.1)
    """
    return resolve_setup(config).config


@reset_torch()
def resolve_setup(request: RunConfig) -> Setup:
    """Resolve a configuration as `resolve` does, and give it with the method and the links that were built for that."""
    try:
        with watch_reads() as reads:
            return dataclasses.replace(_resolve_setup(request), reads=reads)
    except ConfigError:
        raise
    except ValueError as error:  # of a registry or a link, which know nothing of configurations
        raise ConfigError(str(error)) from None


def _resolve_setup(request: RunConfig) -> Setup:
    request = complete_config(request)
    check_config_types(request)
    load_plugins(request.plugins)
    request = build_section_options(request)
    check_config_types(request)  # of the options too, before a path among them is looked up
    train = request.train
    metrics, rates = (tuple(filter(None, ",".join(of).split(","))) for of in (train.metrics, train.lr_parts))
    # A flag may have commas between its values.
    request = dataclasses.replace(request, train=dataclasses.replace(train, metrics=metrics, lr_parts=rates))
    request = fingerprint_inputs(request)
    method = METHODS.get(request.method)(request.hyper)
    common = _fill_schedule(_leave_unused_open(request.train, method), method)
    check_finish(request, method)
    filled = {"train": _fill_schedule(request.train, method), "finish": fill_finish(request, method)}
    processes = _choose_processes(request) if request.processes == "auto" else request.processes
    config = Resolved(**{**vars(request), **filled, "processes": processes})
    images = getattr(config.data.options, "of", config.data.name)  # of `noisy`, those of another dataset
    split = PARTITIONS.get(config.partition.kind).settle(config.partition.options, images)
    config = replace_section_options(config, "partition", split)
    check_config(config)
    check_size_limits(config)
    for section in OWNERS:
        check_options(section, read_section_options(config, section))
    config = _fill_features(config)
    link, cautions = build_link(config)
    setup = Setup(config, method, link, None, cautions)
    check_unused_settings(setup, common, link.bandwidth_hz or BAND_HZ)
    config = _fill_from_link(config, link)
    if config.processes > 1:
        check_reaches_processes("processes", config)
    find_entry(HEADS, config.model.head, "model.head")
    find_entry(AUGMENTATIONS, config.data.augment, "data.augment")
    _check_task(config, method)
    find_entry(SCHEDULERS, config.network.scheduling, "network.scheduling")
    check_features(config.model.encoder.split(","), config.model.features)
    method.check(config)
    check_newcomers(config, link)
    joined = build_link(configure_new_clients(config))[0] if config.new_clients else None
    device = find_device(config.device, 0 if config.processes > 1 else None)
    if config.precision == "tf32" and device.type != "cuda":
        raise ConfigError(f"precision: 'tf32' is a rounding of CUDA's, not of {device.type}; give float32 or bf16")
    return dataclasses.replace(setup, config=config, joined_link=joined)


def _fill_features(config: Resolved) -> Resolved:
    """Fill in the number of features from a bandwidth ratio: d = 2 (k/n) n for pictures of n numbers.

    Raises ConfigError for a text that is no ratio, and for a d that is not whole and even.
    """
    asked = config.model.bandwidth_ratio
    if asked is None:
        return config
    ratio = _read_ratio(asked)
    dataset = read_dataset(config.data)
    if dataset.pictured:
        check_image_limits(config.data.size, *dataset.images.shape[:2])
    numbers = count_picture_numbers(dataset, config.data.size)
    features = 2 * ratio * numbers
    if features % 2:
        d = f"d = 2 (k/n) n has to be even and more than 0, and n is {numbers:,}"
        near = Fraction(max(1, round(ratio * numbers)), numbers)
        raise ConfigError(f"model.bandwidth-ratio: {asked} gives {float(features):g} features; {d}; give {near}")
    model = dataclasses.replace(config.model, features=int(features), bandwidth_ratio=None)
    return dataclasses.replace(config, model=model)


def _read_ratio(asked: str) -> Fraction:
    """Read a bandwidth ratio. Raises ConfigError for a text that is none, and for one out of reach."""
    with suppress(ValueError, ZeroDivisionError):
        # Of an exponent of any length a fraction would make a number of as many digits.
        if ("/" in asked or 0 < float(asked) < HIGHEST) and 0 < (ratio := Fraction(asked)) < HIGHEST:
            return ratio
    raise ConfigError(
        f"model.bandwidth-ratio: {show_value(asked)} is no ratio between 0 and {HIGHEST}; give one such as 1/12"
    )


def _check_task(config: Resolved, method: Method) -> None:
    """Raise ConfigError for a task that is unknown, or without the classes that something in a run works on."""
    task = make_task(config)
    if "images" in config.keep and not task.pictures:
        raise ConfigError(f"keep: 'images' are those that come back, and {config.task} gives none; leave it out")
    if task.classifies:
        return
    why = f"{config.task} does not ask for classes"
    if method.classifies:
        raise ConfigError(f"task: {why}, and {config.method} works on the classes of answers; take another method")
    if holds_classifier(config.finish.kind):
        raise ConfigError(f"finish.kind: {why}, and {config.finish.kind} answers with one; give a head")
    if "confusion" in config.keep:
        raise ConfigError(f"keep: {why}, and 'confusion' counts them; leave it out")


def _fill_schedule(train: TrainConfig, method: Method) -> Schedule:
    return fill_from_preset(train, method.preset if train.preset == "paper" else {})


def _leave_unused_open(train: TrainConfig, method: Method) -> TrainConfig:
    """Leave those open fields of a schedule open that the method does not use."""
    opened: dict[str, Any] = {name: None for name in COMMON if f"train.{name}" in method.unused}
    return dataclasses.replace(train, **opened)


def _fill_from_link(config: Resolved, link: Link) -> Resolved:
    """Fill in the options that the link has worked out, and the band. Raises ConfigError for another band."""
    own, given, kind = link.bandwidth_hz, config.air.bandwidth_hz, config.channel.kind
    if own is not None and given not in (None, own):
        raise NoEffect(f"air.bandwidth-hz: {given!r} is not for {kind}, whose subcarriers occupy {own:g} Hz")
    air = dataclasses.replace(config.air, bandwidth_hz=own or given or BAND_HZ)
    return replace_section_options(dataclasses.replace(config, air=air), "channel", link.options)


def _choose_processes(request: RunConfig) -> int:
    """Choose the number of processes: one per core or GPU, at most one per client, and one for code of a script.

    On a CPU they were always faster than the same number of threads on one batch (experiments/speed.md).
    """
    if count_launched_ranks() > 1 or find_unshared_entry(request):
        return 1
    device = find_device(request.device)
    named = device.type == "cuda" and request.device not in ("auto", "cuda")
    count = 1 if named else torch.cuda.device_count() if device.type == "cuda" else joblib.cpu_count(True)
    return max(1, min(count, request.clients))


def find_device(name: str, local_rank: int | None = None) -> torch.device:
    """Find the device called `name`. Of several processes on a machine, each takes an accelerator in turn.

    Raises ConfigError for a missing device, and for several processes on a device with a number.
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
            torch.zeros(1, device=device).item()  # which a device without numbers, such as meta, cannot give
    except (RuntimeError, AssertionError, ImportError):  # torch has names of devices that it has no modules for
        raise ConfigError(f"device: {name!r} is not here; give cpu, cuda, cuda:N or auto") from None
    return device
