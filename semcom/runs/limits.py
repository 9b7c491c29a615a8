"""Bounds on the size of a run: a request that takes more memory than is free is refused before any work.

Estimates are lower bounds, so that nothing is refused that would have fitted; what they miss and the system then
refuses ends a run with one line (`within_memory`). Legend: K clients, k clients at once, M images of all clients
together, d features.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from channels import LINKS
from semcom.config import ConfigError, Resolved, RunError
from semcom.config.errors import one_line
from semcom.config.options import spelled
from semcom.data.archive import size_of_archive
from semcom.data.federation import Federation
from semcom.data.readers import ARRAYS, image_files
from semcom.data.split_file import is_read
from semcom.engine.host.memory import free_memory
from semcom.engine.host.ranks import launched_size
from semcom.engine.links import build_link
from semcom.engine.random import global_draws
from semcom.engine.store.population import Prefix, in_part
from semcom.engine.train.descent import Optimizer
from semcom.engine.train.precision import dtype_of
from semcom.methods.parts.classifiers import is_classifier, is_head
from semcom.methods.registry import METHODS
from semcom.models.meta import on_meta
from semcom.models.own import own_layers
from semcom.models.registry import HEADS, build_encoder

CLIENT = 400
"""Bytes of a client before any model: counts by class `[C]`, and three lists of the indices of its images."""
PROCESS = 200 << 20
"""Bytes of a process that has imported torch, beyond what processes share."""
LARGEST = 2**63 - 1
"""The largest whole number of NumPy and torch."""


class MemoryShort(RunError):
    """A lack of memory: the system gave no more."""


def check_size(config: Resolved) -> None:
    """Refuse what is too large before anything is read: numbers, clients, files and processes of a configuration.

    Raises ConfigError that names the field, what it would take, and what there is.
    """
    _check_numbers(config, "")
    clients = {"clients": config.clients, "new-clients": config.new_clients}
    most = max(clients, key=lambda name: clients[name])
    _compare(most, clients[most], "the lists of their images take", CLIENT * sum(clients.values()))
    check_archive("data.name", config.data.name, ARRAYS.__contains__)
    check_archive("new-data", config.new_data, ARRAYS.__contains__)
    for path in (config.data.name, config.new_data or ""):
        if os.path.isabs(path) and os.path.isdir(path):
            check_images(config.data.size, len(image_files(Path(path))), 3)
    check_archive("partition.path", getattr(config.partition.options, "path", None), is_read)
    if config.processes > 1:
        check_processes("processes", config.processes, CLIENT * sum(clients.values()))


def check_images(size: int, number: int, channels: int, device: torch.device | None = None) -> None:
    """Refuse images of a size that do not fit, on a device or on the host; see `check_size`."""
    what = f"{number:,} images of {channels}x{size}x{size} take"
    _compare("data.size", size, what, number * channels * size**2, device)


def check_processes(field: str, number: int, own: int = 0) -> None:
    """Refuse more processes of torch than the memory holds, each with so many bytes of its `own`; see `check_size`."""
    _compare(field, number, "so many processes take", number * (PROCESS + own))


def check_archive(field: str, path: str | None, wanted: Callable[[str], bool]) -> None:
    """Refuse a file whose arrays do not fit, as `check_size` does; a dataset's name is no absolute path."""
    if path is not None and os.path.isabs(path):
        _compare(field, repr(path), "its arrays take", size_of_archive(Path(path), wanted))


def check_work(config: Resolved, members: Federation, newcomers: Federation | None, device: torch.device) -> None:
    """Refuse models, and orders of visits, that `device` cannot hold. Raises ConfigError as `check_size` does."""
    if device.type != "cpu":  # where they are already
        number, channels = members.images.shape[:2]
        check_images(config.data.size, number, channels, device)
    for encoder in dict.fromkeys(config.model.encoder.split(",")):
        _check_model(config, encoder, members, device)
    link, batch = build_link(config), min(config.train.batch_size, int(members.train.sizes.max()))
    for option, needed in link.takes(batch, config.model.features).items():
        _compare(f"channel.{spelled(option)}", getattr(link.options, option), "a mini-batch takes", needed, device)
    steps, epochs = config.train.local_steps, config.train.local_epochs
    largest = max(epochs) if isinstance(epochs, tuple) else epochs or 1
    if steps is None:
        _check_visits(config, "train.local-epochs", epochs, members, largest, None, device)
    else:
        _check_visits(config, "train.local-steps", steps, members, 1, steps, device)
    if config.finish.epochs is not None:
        _check_visits(config, "finish.epochs", config.finish.epochs, members, config.finish.epochs, None, device)
    _check_last_stage(config, members, device)
    if newcomers is not None:
        _check_visits(config, "new-steps", config.new_steps, newcomers, 1, config.new_steps, device)
        joined = Crowd("new-clients", config.new_clients, newcomers)
        _check_classifiers(config, config.finish.kind, joined, device)


@contextmanager
def within_memory() -> Iterator[None]:
    """Turn memory that the system refuses inside into a MemoryShort, in one line."""
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
    """Raise ConfigError for a whole number that can be no size; a seed can be any."""
    for field in dataclasses.fields(part):  # type: ignore[arg-type]
        value, flag = getattr(part, field.name), spelled(f"{prefix}{field.name}")
        if dataclasses.is_dataclass(value):
            _check_numbers(value, f"{flag.removesuffix('.options')}.")
        for v in value if isinstance(value, tuple) else (value,):
            if isinstance(v, int) and v > LARGEST and flag != "seed":
                raise ConfigError(f"{flag}: {v} is more than {LARGEST}, the largest number that can be counted with")


def _check_model(config: Resolved, encoder: str, members: Federation, device: torch.device) -> None:
    """Compare the memory of models: each as it begins, as a record, and k times with its gradients."""
    d, itemsize = config.model.features, dtype_of(config.precision).itemsize
    numbers = _numbers(config, encoder, members)
    groups = len(config.model.encoder.split(","))
    k = _at_once(config, config.participants // groups)
    one = f"the network {encoder} of {numbers:,} numbers and its gradient take"
    _compare("model.features", d, one, 4 * numbers * itemsize, device)
    many = f"{k:,} networks {encoder} of {numbers:,} numbers and their gradients take"
    _compare("chunk", config.chunk, many, (2 + 2 * k) * numbers * itemsize, device)


def _at_once(config: Resolved, n: int) -> int:
    """Return how many of n clients are trained at once, as `Session.chunk_of` does; one where that is open."""
    each = max(1, n // (config.processes * launched_size()))
    return 1 if config.chunk == "auto" else -(-each // -(-each // config.chunk))


def _numbers(config: Resolved, encoder: str, members: Federation, part: Prefix = "") -> int:
    """Count a client's parameters and buffers of a part. Raises ConfigError for a network that cannot be described."""
    channels, size = members.images.shape[1], members.images.shape[2]
    d, classes = config.model.features, len(members.classes)
    return _counted(
        lambda: {
            "encoder.": build_encoder(encoder, channels, d, size),
            "head.": HEADS.get(config.model.head)(d, classes),
        },
        part,
        f"model: {encoder!r} or {config.model.head!r}",
        f"{d} features, {classes} classes and {size}x{size} pixels",
    )


def _head_numbers(config: Resolved, kind: str | None, federation: Federation) -> int:
    """Count the parameters and buffers of a head of a kind (None: the run's); raises ConfigError as `_numbers` does."""
    d, classes, name = config.model.features, len(federation.classes), kind or config.model.head
    what = f"{'finish.kind' if kind else 'model.head'}: {name!r}"
    return _counted(
        lambda: {"head.": HEADS.get(name)(d, classes)}, "head.", what, f"{d} features and {classes} classes"
    )


def _counted(parts: Callable[[], Mapping[str, nn.Module]], part: Prefix, names: str, sizes: str) -> int:
    """Count parameters and buffers of a part of what `parts` makes; `names` and `sizes` are for the error."""
    try:
        with on_meta(), global_draws("size"):
            made = {prefix: own_layers(module).state_dict() for prefix, module in parts().items()}
    except ConfigError:
        raise
    except Exception as error:  # whatever a network of the user's raises
        raise ConfigError(f"{names} cannot be made with {sizes} ({one_line(error)})") from None
    return sum(t.numel() for prefix, own in made.items() for name, t in own.items() if in_part(prefix + name, part))


@dataclass(frozen=True)
class Crowd:
    """The clients that train after the rounds.

    Attributes:
        field: the field of the configuration by which they are fewer.
        clients: their number, n.
        federation: in which they are, and perhaps others.
    """

    field: str
    clients: int
    federation: Federation

    @property
    def images(self) -> int:
        """M, the number of their training images: the fewest that so many clients have."""
        return int(np.sort(self.federation.train.sizes)[: self.clients].sum())


def _check_last_stage(config: Resolved, members: Federation, device: torch.device) -> None:
    """Compare the memory of what the tested clients train after the rounds: the method's own last stage, or another."""
    kind, epochs, part = config.finish.kind, config.finish.epochs, METHODS.get(config.method)(config.hyper).tunes
    tested = Crowd("train.eval-clients", config.train.eval_clients or config.clients, members)
    if epochs and part == "head.":
        _check_classifiers(config, None, tested, device)
    elif epochs and part:
        _check_copies(config, part, tested, device)
    if is_classifier(kind) or (epochs and is_head(kind)):
        _check_classifiers(config, kind, tested, device)


def _check_copies(config: Resolved, part: Prefix, crowd: Crowd, device: torch.device) -> None:
    """Compare the memory of a part of the model that clients fine-tune, each a copy of its own."""
    numbers = min(_numbers(config, encoder, crowd.federation, part) for encoder in config.model.encoder.split(","))
    needed = _trained(config, crowd.clients) * numbers * dtype_of(config.precision).itemsize
    what = f"fine-tuned copies of {numbers:,} numbers for so many clients take"
    _compare(crowd.field, crowd.clients, what, needed, device)


def _check_classifiers(config: Resolved, kind: str | None, crowd: Crowd, device: torch.device) -> None:
    """Compare the memory of classifiers of a kind that `with_classifiers` takes, and of the features that they see.

    scikit-learn's are given features in float64 on the host, those of batches and, joined, those of clients; of several
    machines each holds its part.
    """
    d, n, m = config.model.features, crowd.clients, crowd.images
    if is_classifier(kind):
        needed = 2 * 8 * m * d // launched_size()
        _compare(crowd.field, n, f"the features of {m:,} images that {kind} is fitted to take", needed)
        return
    head = _head_numbers(config, kind, crowd.federation)
    needed = (m * d + _trained(config, n) * head) * dtype_of(config.precision).itemsize
    what = f"{kind or config.model.head} heads for so many clients and the features of their {m:,} images take"
    _compare(crowd.field, n, what, needed, device)


def _trained(config: Resolved, n: int) -> int:
    """Return how many times the numbers in training are held by n clients after the rounds.

    Each has its own, and k of them gradients and what the optimiser remembers.
    """
    assert config.finish.optimizer is not None, "resolved for whatever trains after the rounds"
    return n + (1 + len(Optimizer(config.finish.optimizer).slots)) * _at_once(config, n)


def _check_visits(
    config: Resolved,
    field: str,
    value: object,
    federation: Federation,
    epochs: int,
    steps: int | None,
    device: torch.device,
) -> None:
    """Compare the memory of a client's visits of a round, laid out at once: an index and a realisation for each."""
    owned, batch = int(federation.train.sizes.max()), config.train.batch_size
    visits = owned * epochs if steps is None else steps * min(batch, owned)
    taken = -(-owned // batch) * epochs if steps is None else steps
    noisy = LINKS.get(config.channel.kind).noisy and config.train.through_link
    met = config.model.features * dtype_of(config.precision).itemsize if noisy else 0
    _compare(field, value, f"{visits:,} visits of a client in a round take", 8 * taken + (8 + met) * visits, device)


def _compare(field: str, value: object, what: str, needed: int, device: torch.device | None = None) -> None:
    """Raise ConfigError where more bytes are needed than are free on the device, or on the host."""
    free = free_memory(device or torch.device("cpu"))
    if needed > free:
        amounts = f"at least {needed / 2**30:,.1f} GiB, and {free / 2**30:,.1f} GiB are free"
        raise ConfigError(f"{field}: {value} is too large: {what} {amounts}")
