"""Bounds on the size of a run: a request that takes more memory than is free on the host is refused before any work.

A host gives out more memory than it has, and ends the process that uses it. So everything that users may make too large
is bounded here: clients, images, files, networks, processes. Estimates are lower bounds, so that no request is refused
that would have fitted. If the system refuses memory later, the run ends with one line (`limit_memory`).
"""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from torch import nn

from semcom.config import ConfigError, Resolved, RunError
from semcom.config.errors import shorten_error
from semcom.config.options import spell_option
from semcom.data.archive import measure_archive
from semcom.data.federation import Federation
from semcom.data.readers import ARRAYS, list_image_files
from semcom.data.split_file import is_split_array
from semcom.engine.host.keys import key_global_generator
from semcom.engine.host.memory import measure_free_memory
from semcom.engine.host.ranks import count_launched_ranks
from semcom.engine.train.chunk import COPIES, Footprint, measure_footprint
from semcom.engine.train.precision import dtype_of
from semcom.engine.train.visit import EVAL_BATCH
from semcom.models.meta import build_on_meta
from semcom.models.own import replace_by_own_layers
from semcom.models.registry import build_encoder, build_head
from semcom.models.split import SplitModel
from semcom.tasks.registry import make_task

LOG = logging.getLogger(__name__)
CLIENT = 400
"""Bytes of a client before any model: counts by class `[C]`, and three lists of the indices of its images."""
PROCESS = 200 << 20
"""Bytes of a process that has imported torch, beyond what processes share."""
TRIPS = 2
"""Copies of layers' outputs for a mini-batch in training: 1 to 4, measured with built-in encoders on a CPU."""
LARGEST = 2**63 - 1
"""The largest whole number of NumPy and torch."""


class MemoryShort(RunError):
    """A lack of memory: the system gave no more."""


def check_size_limits(config: Resolved) -> None:
    """Refuse a configuration that is too large: numbers, clients, files and processes.

    Raises ConfigError with the field, the needed memory, and the free memory.
    """
    _check_numbers(config, "")
    clients = {"clients": config.clients, "new-clients": config.new_clients}
    most = max(clients, key=lambda name: clients[name])
    _check_memory(most, clients[most], "the lists of their images take", CLIENT * sum(clients.values()))
    for field, path in (("data.name", config.data.name), ("new-data", config.new_data or "")):
        check_archive_limits(field, path, ARRAYS.__contains__)
        if os.path.isabs(path) and os.path.isdir(path):
            check_image_limits(config.data.size, len(list_image_files(Path(path))), 3)
    check_archive_limits("partition.path", getattr(config.partition.options, "path", None), is_split_array)
    if config.processes > 1:
        check_process_limits("processes", config.processes, CLIENT * sum(clients.values()))


def check_image_limits(size: int, number: int, channels: int) -> None:
    """Refuse images of a size that do not fit; see `check_size_limits`."""
    what = f"{number:,} images of {channels}x{size}x{size} take"
    _check_memory("data.size", size, what, number * channels * size**2)


def check_process_limits(field: str, number: int, own: int = 0) -> None:
    """Refuse more processes of torch than the memory holds, each with bytes of its `own`; see `check_size_limits`."""
    _check_memory(field, number, "so many processes take", number * (PROCESS + own))


def check_archive_limits(field: str, path: str | None, wanted: Callable[[str], bool]) -> None:
    """Refuse a file whose arrays do not fit, as `check_size_limits` does; a dataset's name is no absolute path."""
    if path is not None and os.path.isabs(path):
        _check_memory(field, repr(path), "its arrays take", measure_archive(Path(path), wanted))


def check_model_limits(config: Resolved, members: Federation, device: torch.device) -> None:
    """Refuse networks that cannot be made, or that the host cannot hold or train; see `check_size_limits`.

    Each client's network is counted as it begins, as a record, and in training with its gradients, or before them with
    the inputs of its layers for a mini-batch. If training may take more memory than is free, though it need not, a
    warning says which field to lower. A GPU reports its own shortage.
    """
    encoders = config.model.encoder.split(",")
    itemsize = dtype_of(config.precision).itemsize
    each = max(1, config.participants // len(encoders) // (config.processes * count_launched_ranks()))
    k = 1 if config.chunk == "auto" else -(-each // -(-each // config.chunk))  # in training at once
    for encoder in dict.fromkeys(encoders):
        network = _make_network(config, encoder, members)
        numbers = count_model_numbers(network)
        if device.type == "cpu":
            one = f"the network {encoder} of {numbers:,} numbers and its gradient take"
            _check_memory("model.features", config.model.features, one, 4 * numbers * itemsize)
            many = f"{k:,} networks {encoder} of {numbers:,} numbers and their gradients take"
            _check_memory("chunk", config.chunk, many, (2 + 2 * k) * numbers * itemsize)
            footprint: Footprint | None = None
            with suppress(Exception), key_global_generator("size"):  # one that does not run: who trains it says so
                footprint = measure_footprint(network, members.images.shape[1:])
            if footprint is not None:
                _check_passes(config, encoder, members, k, footprint)


def _check_passes(config: Resolved, encoder: str, members: Federation, k: int, of: Footprint) -> None:
    """Refuse passes of k networks over images that do not fit, and warn of those that may not."""
    itemsize = dtype_of(config.precision).itemsize
    number = 2 if config.precision == "bf16" else itemsize  # of what autocast keeps
    batch = min(config.train.batch_size, int(members.train.sizes.max()))
    tests = min(EVAL_BATCH, int(members.test.sizes.max()))
    field, value = ("chunk", config.chunk) if k > 1 else ("train.batch-size", config.train.batch_size)
    what = f"{k:,} network{'s' * (k > 1)} {encoder} with mini-batches of {batch:,} images (train.batch-size)"
    own = of.weights * itemsize
    _check_memory(field, value, f"{what} take", (2 + k) * own + k * batch * of.kept * number)
    shown = f"the network {encoder} over {tests} test images at once takes"
    _check_memory("data.size", config.data.size, shown, 3 * own + tests * of.passed * number)
    likely = config.processes * k * (COPIES * own + TRIPS * batch * of.made * number)
    if likely > (free := measure_free_memory(torch.device("cpu"))):
        LOG.warning(
            "%s: %s may be too large: training of %s takes about %.1f GiB, and %.1f GiB are free; if the system ends "
            "it without a word, that is why",
            *(field, value, what, likely / 2**30, free / 2**30),
        )


def count_model_numbers(network: nn.Module) -> int:
    """Count a network's parameters and buffers."""
    return sum(t.numel() for t in network.state_dict().values())


def _make_network(config: Resolved, encoder: str, members: Federation) -> SplitModel:
    """Make a client's network on the meta device. Raises ConfigError if that fails."""
    image, pictured = tuple(members.images.shape[1:]), members.pictured
    d, head, task = config.model.features, config.model.head, make_task(config)
    shape = task.shape(members)
    try:
        with build_on_meta(), key_global_generator("size"):
            parts = build_encoder(encoder, image, d, pictured), build_head(head, d, shape)
            return SplitModel(*map(replace_by_own_layers, parts))
    except ConfigError:
        raise
    except Exception as error:  # whatever a network of the user's raises
        asked = f"{len(members.classes)} classes" if task.classifies else f"answers of {math.prod(shape):,} numbers"
        what = f"{d} features, {asked} and inputs of {'x'.join(map(str, image))}"
        raise ConfigError(
            f"model: {encoder!r} or {head!r} cannot be made with {what} ({shorten_error(error)})"
        ) from None


@contextmanager
def limit_memory() -> Iterator[None]:
    """Raise MemoryShort, in one line, if the system refuses memory inside."""
    try:
        yield
    except RunError:
        raise
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError | torch.OutOfMemoryError) and "can't allocate memory" not in str(error):
            raise
        amount = re.search(r"allocate ([\d.]+ \w+)", str(error))
        wanted = f": {amount[1]} more were wanted" if amount else ""
        raise MemoryShort(f"there is not enough memory{wanted}") from error


def _check_numbers(part: object, prefix: str) -> None:
    """Raise ConfigError for a whole number that can be no size; a seed can be any number."""
    for field in dataclasses.fields(part):  # type: ignore[arg-type]
        value, flag = getattr(part, field.name), spell_option(f"{prefix}{field.name}")
        if dataclasses.is_dataclass(value):
            _check_numbers(value, f"{flag.removesuffix('.options')}.")
        for v in value if isinstance(value, tuple) else (value,):
            if isinstance(v, int) and v > LARGEST and flag != "seed":
                raise ConfigError(f"{flag}: {v} is more than {LARGEST}, the largest number that can be counted with")


def _check_memory(field: str, value: object, what: str, needed: int) -> None:
    """Raise ConfigError where more bytes are needed than are free on the host."""
    free = measure_free_memory(torch.device("cpu"))
    if needed > free:
        amounts = f"at least {needed / 2**30:,.1f} GiB, and {free / 2**30:,.1f} GiB are free"
        raise ConfigError(f"{field}: {value} is too large: {what} {amounts}")
