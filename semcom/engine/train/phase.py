"""What a phase of training visits: how many epochs or steps, which samples, which draws go with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from semcom.engine.train.plan import batch_sizes


@dataclass(frozen=True)
class Take:
    """A further mini-batch of each step, with its own draws of the link, of the same size as the main one.

    Attributes:
        name: under which the objective finds it in `context.takes`; it names its draws.
        same: whether it holds the main batch's samples again; otherwise it follows an order of its own.
    """

    name: str
    same: bool = False


@dataclass(frozen=True)
class Phase:
    """One pass of `fit` over the clients' data.

    Attributes:
        stream: names the batch order: phases of a round on one stream visit the same batches.
        name: names the phase's own draws of the link ("": the main phase).
        epochs: one number or one per client of the federation.
        steps: number of steps instead of epochs.
        batch: mini-batch size.
        fraction: part of a client's samples that is visited at all, drawn per round and stream; at least one sample.
        takes: further mini-batches of each step.
        uniforms: p: keyed numbers per visited sample.
    """

    stream: str
    name: str
    epochs: int | tuple[int, ...]
    steps: int | None
    batch: int
    fraction: float = 1.0
    takes: Sequence[Take] = ()
    uniforms: int = 0

    def draws(self, *also: str) -> str:
        """Name of the phase's draws, or of those of a take or of another model in it."""
        return "/".join(part for part in (self.stream, self.name, *also) if part)

    def samples(self, owned: int) -> int:
        """How many of a client's `owned` samples an epoch visits."""
        return max(1, round(self.fraction * owned))

    def epochs_of(self, client: int) -> int:
        """A client's epochs."""
        return self.epochs[client] if isinstance(self.epochs, tuple) else self.epochs

    def sizes(self, client: int, owned: int) -> list[int]:
        """Sizes of a client's mini-batches, in order."""
        epoch = batch_sizes(self.samples(owned), self.batch)
        steps = len(epoch) * self.epochs_of(client) if self.steps is None else self.steps
        return (epoch * -(-steps // len(epoch)))[:steps]
