"""The phases of training: how many epochs or steps they take, which samples they visit, and with which draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from semcom.config import Schedule
from semcom.engine.host.memory import measure_free_memory
from semcom.engine.train.plan import plan_batch_sizes

MANY = 2**20
"""Steps of a client in a round above which their memory is checked before they are laid out."""


@dataclass(frozen=True)
class Take:
    """A further mini-batch of each step, with its own draws of the link, of the same size as the main one.

    Attributes:
        name: the key of the mini-batch in `context.takes`, and the name of its draws.
        same: whether it holds the main batch's samples again; otherwise it follows an order of its own.
    """

    name: str
    same: bool = False


@dataclass(frozen=True)
class Phase:
    """One training of a round.

    Attributes:
        name: names the phase's own draws of the link ("": the main phase).
        stream: names the batch order: phases of a round on one stream visit the same batches.
        epochs: local epochs, one number or one per client of the federation (None: `train.local_epochs`).
        steps: steps instead of epochs (None: `train.local_steps`, unless epochs are given).
        fraction: part of a client's samples that is visited at all, drawn per round and stream; at least one sample.
        takes: further mini-batches of each step.
        uniforms: p, the number of keyed numbers in [0, 1) per visited sample, in `batch.uniforms` `[k, b, p]`.
        log: prefix of the names of logged values (None: the phase's name, or else a stream that is not "train").
    """

    name: str = ""
    stream: str = "train"
    epochs: int | tuple[int, ...] | None = None
    steps: int | None = None
    fraction: float = 1.0
    takes: Sequence[Take] = ()
    uniforms: int = 0
    log: str | None = None

    def draws(self, *also: str) -> str:
        """Name the draws of the phase, or of a take or another model in it."""
        return "/".join(part for part in (self.stream, self.name, *also) if part)

    def samples(self, owned: int) -> int:
        """Count the samples that an epoch visits of a client's `owned` ones."""
        return max(1, round(self.fraction * owned))

    def sizes(self, client: int, owned: int, schedule: Schedule) -> list[int]:
        """List the sizes of a client's mini-batches, in order. Raises MemoryError for more than can be laid out."""
        epoch = plan_batch_sizes(self.samples(owned), schedule.batch_size)
        steps = schedule.local_steps if self.steps is None and self.epochs is None else self.steps
        if steps is None:
            epochs = schedule.local_epochs or 1 if self.epochs is None else self.epochs
            steps = len(epoch) * (epochs[client] if isinstance(epochs, tuple) else epochs)
        if steps > MANY:
            needed = 8 * (2 * steps + steps // len(epoch) * sum(epoch))  # sizes, twice, and the index of each sample
            if needed > measure_free_memory(torch.device("cpu")):
                raise MemoryError(f"Unable to allocate {needed / 2**30:.1f} GiB for {steps} steps")
        return (epoch * -(-steps // len(epoch)))[:steps]

    def logged(self, name: str) -> str:
        """Name a value of the phase in the log."""
        before = self.log if self.log is not None else self.name or ("" if self.stream == "train" else self.stream)
        return f"{before}/{name}" if before else name
