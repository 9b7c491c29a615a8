"""Compression of uploads: fewer bits for each number, or fewer numbers.

`quantise` rounds each number to one of 2^b levels, evenly spaced between minus and plus the largest magnitude of its
tensor, up or down at random so that it is right on average (D. Alistarh et al., "QSGD", NeurIPS 2017). `keep_largest`
keeps a fraction of a tensor's numbers. The sender may add the rest to its next update (error feedback: S. Stich, J.-B.
Cordonnier, M. Jaggi, "Sparsified SGD with memory", NeurIPS 2018).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor

from semcom.channels.options import SHARE, BaseOptions, Rule, require
from semcom.engine.air.part import Part, Planned
from semcom.engine.air.updates import map_update_starts
from semcom.engine.host.sending import send_to_device
from semcom.engine.store.population import AnyCohort, Population, Prefix, in_part

Count = TypeVar("Count", int, np.ndarray)


def is_compressed(name: str, tensor: Tensor) -> bool:
    """Check that a model's tensor may be compressed, or be sent with noise.

    BatchNorm's running variance could turn negative, and whole numbers, such as an index table, are no numbers then.
    """
    return tensor.is_floating_point() and not name.endswith("running_var")


def quantise(values: Tensor, bits: int, uniforms: Tensor) -> Tensor:
    """Round numbers at random to one of 2^bits levels: the error is below the step, `2 max|v| / (2^bits - 1)`.

    Args:
        values: a tensor per client, `[k, ...]`.
        bits: of each number.
        uniforms: in [0, 1), float64 `[k, n]` for n numbers of each client.
    """
    flat, levels = values.flatten(1).double(), 2**bits - 1
    largest = flat.abs().amax(1, keepdim=True)
    step = 2 * largest / levels
    place = torch.where(step > 0, (flat + largest) / step, 0.0)
    below = place.floor()
    drawn = (below + (uniforms < place - below)).clamp(max=levels)
    return (drawn * step - largest).to(values.dtype).view_as(values)


def keep_largest(values: Tensor, fraction: float) -> Tensor:
    """Set all but the largest magnitudes of each client's tensor `[k, ...]` to zero; `count_kept` are left."""
    flat = values.flatten(1)
    largest = flat.abs().topk(count_kept(flat.shape[1], fraction), dim=1).indices
    return torch.zeros_like(flat).scatter(1, largest, flat.gather(1, largest)).view_as(values)


def count_kept(numbers: int, fraction: float) -> int:
    """Count the kept numbers of a tensor, at least one."""
    return max(1, round(fraction * numbers))


@dataclass
class Compression(Part):
    """Compression of error-free uploads; the base of all.

    Attributes:
        options: of the air.
        bits_per_float: of an uncompressed number.
        key: as of an `Air`.
        residual: parts of each client's updates that were left out so far (None: none are).
        remembers: whether a client adds them to its next update (error feedback).
    """

    options: Any
    bits_per_float: int
    key: Callable[[str, str, int], torch.Generator]
    residual: Population | None = None
    remembers: ClassVar[bool] = False

    @classmethod
    def list_unused(cls, run: Planned) -> Iterator[tuple[str, str]]:
        """Yield the compression if no number is sent error-free."""
        if not run.error_free:
            yield "", "no number is sent error-free"

    def compresses_models(self, since: Population | None, name: str) -> bool:
        """Return whether models are compressed that go up as `name`, as updates `since` the result of `Air.down`."""
        return True

    def compresses_tensors(self) -> bool:
        """Return whether other tensors than models are compressed, such as prototypes."""
        return True

    def count_sent(self, numbers: int) -> int:
        """Count the numbers that are sent of a tensor."""
        return numbers

    def count_bits(self, numbers: Any) -> Any:
        """Count the bits of a tensor of so many numbers, or with `compresses_tensors` of several, `[n]`."""
        raise NotImplementedError(f"{type(self).__name__} compresses and has no `count_bits`")

    def compress(self, name: str, values: Tensor, ids: np.ndarray) -> Tensor:
        """Compress tensors of the clients `ids`, `[n, ...]`, and return them as they arrive; `name` is for draws."""
        raise NotImplementedError(f"{type(self).__name__} compresses and has no `compress`")

    def send_models(self, pop: Population, part: Prefix, name: str, since: Population | None) -> Population:
        """Compress models, and return them as the base station has them; remember the rest of their updates.

        Args:
            pop, part, name, since: as for `Air.up`.
        """
        before = None if self.residual is None else self.residual.select(pop.ids)
        memory = [None] * len(pop.cohorts) if before is None else before.stacks()
        cohorts, rest = [], []
        for c, start, left in zip(pop.spread(part).stacks(), map_update_starts(since, pop), memory, strict=True):
            arrived, missing = {}, {}
            for n in _list_compressed(c, part):
                if left is not None and n not in left.tensors:
                    raise ValueError(f"{n}: what top-k leaves out is remembered of parts in `Method.averages` alone")
                received = start(n).received
                update = c.tensors[n] - received
                wanted = update if left is None else update + left.tensors[n]
                sent = self.compress(name + n, wanted, c.ids)
                arrived[n], missing[n] = received + sent, wanted - sent
            cohorts.append(replace(c, tensors={**c.tensors, **arrived}))
            if left is not None:
                rest.append(replace(left, tensors={**left.tensors, **missing}))
        if self.residual is not None:
            self.residual = self.residual.put(Population(tuple(rest)))
        return Population(tuple(cohorts))

    def send_tensors(self, name: str, values: Tensor, ids: np.ndarray) -> Tensor:
        """Compress tensors `[n, ...]`, and return them as they arrive; zeros that are not sent stay zeros.

        Of `[n, C, d]` these are whole rows, of classes that a client does not own; a feature that is 0 is sent.
        """
        arrived = self.compress(name, values.reshape(len(values), -1), ids).view_as(values)
        sent = values != 0
        return torch.where(sent.any(-1, keepdim=True) if values.ndim == 3 else sent, arrived, 0.0)

    def count_models(self, pop: Population, part: Prefix) -> tuple[np.ndarray, np.ndarray]:
        """Count the numbers and bits of a part that each client sends, `[K]` both."""
        floats = pop.numbers(part)
        bits = floats * self.bits_per_float
        for c in pop.cohorts:
            for n in [c.tensors[name][0].numel() for name in _list_compressed(c, part)]:
                floats[pop.at(c)] += self.count_sent(n) - n
                bits[pop.at(c)] += self.count_bits(n) - n * self.bits_per_float
        return floats, bits


class Whole(Compression):
    """Numbers go up as they are."""

    def compresses_models(self, since: Population | None, name: str) -> bool:
        """Leave models as they are."""
        return False

    def compresses_tensors(self) -> bool:
        """Leave tensors as they are."""
        return False


class Quantise(Compression):
    """Each number of an update, of prototypes and the like is rounded at random to one of evenly spaced levels.

    A model's update is its difference to the model as received.
    """

    @dataclass(frozen=True)
    class Options(BaseOptions):
        """Options of the levels."""

        quantise_bits: int = 8
        """Bits of each number with `quantise`."""

        def check(self) -> None:
            """Check the range."""
            bits = Rule(lambda v: 1 <= v <= 32, "a whole number from 1 to 32", whole=True)
            require("quantise_bits", self.quantise_bits, bits)

    def count_bits(self, numbers: Count) -> Count:
        """Count the bits of a tensor, or of several: its numbers, and its largest magnitude uncompressed."""
        return numbers * self.options.quantise_bits + self.bits_per_float

    def compress(self, name: str, values: Tensor, ids: np.ndarray) -> Tensor:
        """Quantise the tensors."""
        generators = [self.key("compress", name, int(k)) for k in ids]
        # Drawn on the host: on an accelerator a generator gives other numbers, and the run would be another.
        uniforms = [torch.rand(values[0].numel(), generator=g, dtype=torch.float64) for g in generators]
        return quantise(values, self.options.quantise_bits, send_to_device(torch.stack(uniforms), values.device))


class TopK(Compression):
    """Of each tensor of an update the largest numbers are sent; the others are added to the client's next one."""

    remembers = True

    @dataclass(frozen=True)
    class Options(BaseOptions):
        """Options of the choice."""

        top_fraction: float = 0.1
        """Part of each tensor's numbers that `top-k` sends."""

        def check(self) -> None:
            """Check the range."""
            require("top_fraction", self.top_fraction, SHARE)

    @classmethod
    def list_unused(cls, run: Planned) -> Iterator[tuple[str, str]]:
        """Yield the compression if there are no updates, too."""
        yield from super().list_unused(run)
        if not run.method.averages:
            yield "", "{method} averages no models"

    def compresses_models(self, since: Population | None, name: str) -> bool:
        """Return True for updates, unless they have a name."""
        return since is not None and not name

    def compresses_tensors(self) -> bool:
        """Return False: such tensors are no updates."""
        return False

    def count_sent(self, numbers: int) -> int:
        """Count the numbers that are kept."""
        return count_kept(numbers, self.options.top_fraction)

    def count_bits(self, numbers: int) -> int:
        """Count the bits of the numbers that are kept of a tensor, and of their places in it."""
        return self.count_sent(numbers) * (self.bits_per_float + math.ceil(math.log2(numbers)))

    def compress(self, name: str, values: Tensor, ids: np.ndarray) -> Tensor:
        """Keep the largest numbers of each tensor."""
        return keep_largest(values, self.options.top_fraction)


def _list_compressed(c: AnyCohort, part: Prefix) -> list[str]:
    return [n for n, t in c.tensors.items() if in_part(n, part) and is_compressed(n, t)]
