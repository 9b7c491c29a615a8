"""The base class of the methods: tensor algebra over stacks of clients, with an explicit state.

`World.fit` has the loop over clients, mini-batches, devices and buffers, so that methods need none. All transmissions
go through `world.air`. Two rules hold for every method: views are taken after the server step, with the newest shared
part and the personal part from the client's last participation; and a State is all that a method remembers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor

from semcom.config import ConfigError, Resolved
from semcom.engine.store.population import Population
from semcom.engine.train.context import Context, Log
from semcom.engine.train.forward import Batch, StackedModel
from semcom.engine.train.view import View
from semcom.engine.world import World


class Method(ABC):
    """Base class of the methods. Decorate a subclass with `@METHODS.register("name")` to add it.

    Attributes:
        paper: citation.
        preset: the paper's own setting of `TrainConfig`'s open fields, for `--train.preset paper`.
        averages: prefixes of the tensors that the method averages over clients, which need the same architecture there.
        classifies: whether it works on the classes of answers, and so only on classification.
        split: whether local training runs through the link, features up and gradients down.
        exchanges: whether it sends more than split features and gradients over the air (models, prototypes), by
            `air.up`, `air.down` or `air.send`.
        tells: what else goes up says of a client's classes: its "counts" of each, which "classes" it has, or nothing
            ("").
        finishing: values of open fields of `FinishConfig` for the method's last stage ({}: the usual ones). None: the
            method has no last stage.
        unused: dotted fields of the configuration without effect on the method ("train.lr"), or a single value of a
            field ("air.compress=top-k"). A run that sets them is refused.
        label: its name in tables and figures ("": that of the registry; built-in methods have theirs in
            `semcom.studies.names`).
        shares, personal, sends: the parts common to the clients, the parts that each keeps, and the transmissions, in a
            few words each for `semcom list methods`.
    """

    paper: ClassVar[str]
    preset: ClassVar[Mapping[str, Any]] = {}
    averages: tuple[str, ...] = ()
    classifies: ClassVar[bool] = False
    split: ClassVar[bool] = False
    exchanges: bool = True
    tells: Literal["", "classes", "counts"] = ""
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
        """Build the State before the first round: a frozen dataclass of tensors, populations and such dataclasses."""

    @abstractmethod
    def round(self, state: Any, world: World) -> Any:
        """Carry out one communication round with the clients `world.sample()`, and return the next State."""

    @abstractmethod
    def views(self, state: Any, world: World) -> dict[str, View]:
        """Return the views to evaluate, by name, the headline first.

        The first State is evaluated too, as a check.
        """

    def finish(self, state: Any, world: World) -> dict[str, View] | None:
        """Return the views to evaluate after the last round, by name, the headline first (None: those of `views`).

        A method overrides it if clients adapt the final model, by fine-tuning or their own classifier. The world is in
        round T + 1, and its traffic does not count as the run's.
        """
        return None

    def objective(self, model: StackedModel, batch: Batch, context: Context) -> Tensor | tuple[Tensor, Log]:
        """Compute the local loss per client, `[k]`: that of the task."""
        return plain_objective(model, batch, context)


def plain_objective(model: StackedModel, batch: Batch, context: Context) -> Tensor:
    """Compute the task's loss per client, `[k]`, also for methods with another `objective`."""
    return task_loss(model(batch)[1], batch)


def task_loss(outputs: Tensor, batch: Batch) -> Tensor:
    """Average the loss per client, `[k, b, ...] -> [k]`; for classification the cross-entropy of logits."""
    return batch.mean(batch.task.loss(outputs, batch.target))


def has_own_stage(method: Method) -> bool:
    """Check whether a method has a last stage of its own."""
    return type(method).finish is not Method.finish


def remembers_clients(state: Any) -> bool:
    """Check whether a State may hold something of single clients: whatever is not a tensor that all share."""
    values = (getattr(state, field.name) for field in fields(state))
    return any(
        any(c.network.state_dict().keys() - c.shared for c in value.cohorts)
        if isinstance(value, Population)
        else not is_dataclass(value) or remembers_clients(value)
        for value in values
    )
