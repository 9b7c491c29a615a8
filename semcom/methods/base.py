"""The base class of the methods: tensor algebra over stacks of clients, with an explicit state.

A method has no loop over clients, no mini-batches, no device and no buffers; `World.fit` has. Everything it sends goes
through `world.air`. Two rules hold for every method: views are taken after the server step, with the newest shared part
and the personal part as it was after the client's last participation; and a State is all that a method remembers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from semcom.config import ConfigError, Resolved
from semcom.engine.train.context import Context, Log
from semcom.engine.train.forward import Batch, StackedModel
from semcom.engine.train.view import View
from semcom.engine.world import World


class Method(ABC):
    """Base class of the methods; `@METHODS.register("name")` adds one.

    Attributes:
        paper: citation.
        preset: the paper's own setting of `TrainConfig`'s open fields, for `--train.preset paper`.
        averages: prefixes of what the method averages over clients (it needs one architecture for each).
        classifies: whether it works on the classes of answers, and so on no other task than classification.
        split: whether local training runs through the link, features up and gradients down.
        exchanges: whether anything but split features and gradients crosses the air (models, prototypes): `air.up`,
            `air.down` or `air.send` are called.
        finishing: the values that the method's last stage takes for open fields of `FinishConfig`, where it has its own
            ({}: none of its own); None: nothing in it trains by them.
        unused: dotted fields of the configuration that have no effect on the method ("train.lr"), or one value of them
            ("air.compress=top-k"): they are refused.
        label: its name in tables and figures ("": that of the registry; those that ship have theirs in
            `semcom.studies.names`).
        shares, personal, sends: what is common to the clients, what each keeps for itself, what crosses the air; a few
            words each for `semcom list methods`.
    """

    paper: ClassVar[str]
    preset: ClassVar[Mapping[str, Any]] = {}
    averages: tuple[str, ...] = ()
    classifies: ClassVar[bool] = False
    split: ClassVar[bool] = False
    exchanges: bool = True
    finishing: ClassVar[Mapping[str, Any] | None] = None
    unused: tuple[str, ...] = ()
    label: ClassVar[str] = ""
    shares: ClassVar[str] = ""
    personal: ClassVar[str] = ""
    sends: ClassVar[str] = ""

    @dataclass(frozen=True)
    class Hyper:
        """Hyperparameters, named as in the paper."""

        def check(self) -> None:
            """Check the values.

            Raises:
                ConfigError: a value makes no sense.
            """

    def __init__(self, hyper: Any) -> None:
        self.hyper = hyper

    def check(self, config: Resolved) -> None:
        """Check that the method can carry out a resolved run, before any data are loaded.

        The clients need one architecture for each part that the method averages.

        Raises:
            ConfigError: it cannot.
        """
        kinds = sorted(set(config.model.encoder.split(",")))
        if "encoder." in self.averages and len(kinds) > 1:
            raise ConfigError(
                f"model.encoder: {config.method} averages the encoder, which {' and '.join(kinds)} do not share"
            )

    @abstractmethod
    def setup(self, world: World) -> Any:
        """Return the State before the first round: a frozen dataclass of tensors, populations and such dataclasses."""

    @abstractmethod
    def round(self, state: Any, world: World) -> Any:
        """Carry out one communication round with the clients `world.sample()`, and return the next State."""

    @abstractmethod
    def views(self, state: Any, world: World) -> dict[str, View]:
        """Return what is evaluated, by name, the first one being the headline.

        It is asked of the first State too, as a check.
        """

    def finish(self, state: Any, world: World) -> dict[str, View] | None:
        """Return what is evaluated after the last round, by name, the headline first; None: `views` says it all.

        For what clients do with the final model: fine-tuning, a classifier of their own. The world is in round T + 1,
        and nothing counts as the run's traffic.
        """
        return None

    def objective(self, model: StackedModel, batch: Batch, context: Context) -> Tensor | tuple[Tensor, Log]:
        """Return the local loss per client, `[k]`: that of the task."""
        return plain_objective(model, batch, context)


def plain_objective(model: StackedModel, batch: Batch, context: Context) -> Tensor:
    """Return the task's loss per client, `[k]`, also as an objective of methods that have another one."""
    return task_loss(model(batch)[1], batch)


def task_loss(outputs: Tensor, batch: Batch) -> Tensor:
    """Return the mean loss per client, `[k, b, ...] -> [k]`: of classification, the cross-entropy of logits."""
    return batch.mean(batch.task.loss(outputs, batch.target))
