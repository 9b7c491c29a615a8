"""The result of a run: metrics, trained models, predictions."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np
import torch
from torch import Tensor

from semcom.config import ConfigError, Resolved
from semcom.data.federation import Federation, to_bytes
from semcom.engine.train.precision import reset_torch
from semcom.engine.train.view import View, infer_in_view, predict_in_view
from semcom.engine.world import World
from semcom.files import ARRAYS
from semcom.runs.folder.arrays import CONFUSION, FEATURES, PREFIX, Arrays, list_lacking_arrays, read_arrays
from semcom.runs.result.artifacts import collect_artifacts
from semcom.runs.result.module import Module, build_module
from semcom.tasks.metric import read_task_metrics

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")


class ByView(dict[str, T]):
    """Values by view. An unknown name raises ConfigError, which lists the views."""

    def __missing__(self, name: object) -> NoReturn:
        raise ConfigError(f"view: {name!r} is unknown; known are {', '.join(self)}")


@dataclass(frozen=True)
class Features:
    """The features of test images by a view's encoders, n images of d features each.

    Attributes:
        received: after the channel, at the first test SNR, `[n, d]`.
        raw: before it, `[n, d]`.
        labels: classes, `[n]`.
        clients: whose test images these are, `[n]`.
        images: their places in `federation.images`, `[n]`.
    """

    received: np.ndarray
    raw: np.ndarray
    labels: np.ndarray
    clients: np.ndarray
    images: np.ndarray


@dataclass(frozen=True)
class Result:
    """The result of a run.

    Attributes:
        config: the resolved configuration.
        summary: as in summary.json.
        metrics: one line per round, as in metrics.jsonl.
        out: the run's folder, or None.
        world: data and channel of the run.
        find_stages: gives the views by the round after which they are tested, those of the last stage first.
    """

    config: Resolved
    summary: dict[str, Any]
    metrics: list[dict[str, Any]]
    out: Path | None
    world: World
    find_stages: Callable[[], Mapping[int, Mapping[str, View]]] = field(repr=False)

    @property
    def federation(self) -> Federation:
        """The images of the run, and which client owns which."""
        return self.world.session.draws.federation

    @cached_property
    def views(self) -> Mapping[str, View]:
        """Name -> `View` of the trained populations; the first one is the headline.

        Worked out when it is first asked for: of a run that had finished, the method's last stage is repeated.
        """
        return ByView({name: view for views in self._stages.values() for name, view in views.items()})

    @cached_property
    @reset_torch()
    def _stages(self) -> Mapping[int, Mapping[str, View]]:
        return self.find_stages()

    def __repr__(self) -> str:
        return f"{self._head()}\n{self._table().to_string()}"

    def _repr_html_(self) -> str:
        """Show the result as a table in a notebook."""
        return f"<p>{html.escape(self._head())}</p>{self._table().to_html()}"

    def _head(self) -> str:
        """Describe the run in a line."""
        summary, where = self.summary, "" if self.out is None else f", in {self.out}"
        trained = f"{summary['rounds']} rounds, {summary['clients']} clients, {summary['samples']:,} samples visited"
        return f"{summary['method']}, {trained}{where}"

    def _table(self) -> pd.DataFrame:
        """Return the numbers of each view as texts."""
        import pandas as pd  # takes half a second

        metric = read_task_metrics(self.summary)[0]
        names = {"mean": metric.name, "over images": metric.key("pooled"), "std": metric.key("std")}
        names |= {name: metric.key(name) for name in ("worst10", "last", "best")}
        rows = {
            view: {name: metric.format(of[key]) if key in of else "" for name, key in names.items()}
            for view, of in self.summary["views"].items()
        }
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis(metric.heading)

    # -- predictions -------------------------------------------------------------------------------------------------

    @reset_torch()
    def predict(self, client: int, images: np.ndarray | Tensor, view: str | None = None) -> Tensor:
        """Return the classes that a client's model gives to images, through the channel at its test SNR.

        Args:
            client: id.
            images: uint8 `[b, channels, size, size]`, as `federation.images`.
            view: a name in `views` (None: the headline).

        Returns:
            int64 `[b]` on the CPU.

        Raises:
            ConfigError: no such client or view, images of another shape or type, or a task that asks for no classes.
        """
        session = self.world.session
        if not session.draws.task.classifies:
            raise ConfigError(f"predict: {self.config.task} asks for no classes; call decode")
        chosen = self.views[self._named(view)]
        return predict_in_view(session, chosen, client, torch.as_tensor(images), session.draws.test_snrs[0])

    @reset_torch()
    def decode(self, client: int, images: np.ndarray | Tensor, view: str | None = None) -> Tensor:
        """Return what the base station makes of images that a client sends, through the channel at its test SNR.

        Args:
            client: id.
            images: uint8 `[b, channels, size, size]`, as `federation.images`.
            view: a name in `views` (None: the headline).

        Returns:
            The outputs of the task, `[b, ...]` on the CPU: of classification scores `[b, C]`; of reconstruction images
            `[b, channels, size, size]` in uint8.

        Raises:
            ConfigError: no such client or view, or images of another shape or type.
        """
        session = self.world.session
        chosen, task = self.views[self._named(view)], session.draws.task
        heard = infer_in_view(session, chosen, client, torch.as_tensor(images), session.draws.test_snrs[0])
        shape = task.shape(session.draws.federation)
        none = self.world.zeros(0, *shape)
        answers = (chosen.answer(each)[0].view(-1, *shape) for each in heard)
        found = torch.cat([none, *answers]).cpu()
        return to_bytes(found) if task.pictures else found

    @reset_torch()
    def encode(
        self, images: np.ndarray | Tensor, client: int, view: str | None = None, *, received: bool = False
    ) -> Tensor:
        """Return the features of images by a client's encoder.

        Args:
            images: uint8 `[b, channels, size, size]`, as `federation.images`.
            client: id.
            view: a name in `views` (None: the headline).
            received: whether they have passed the channel at the client's test SNR, as those have that `predict`
                decides on; otherwise they are as they leave the encoder.

        Returns:
            `[b, d]` on the CPU, in the run's precision.

        Raises:
            ConfigError: no such client or view, or images of another shape or type.
        """
        session = self.world.session
        chosen = self.views[self._named(view)]
        heard = infer_in_view(session, chosen, client, torch.as_tensor(images), session.draws.test_snrs[0])
        none = self.world.zeros(0, self.world.features)
        return torch.cat([none, *((each.features if received else each.raw)[0] for each in heard)]).cpu()

    @reset_torch()
    def module(self, client: int, view: str | None = None, *, link: bool = False) -> Module:
        """Build a client's model as a plain `torch.nn.Module` with copies of its weights, on the CPU, for inference.

        `module.encoder` and `module.head` are the networks. Called with images in [-1, 1] or in bytes `[b, channels,
        size, size]` it returns what `decode` does over a channel without noise, `[b, ...]`.

        Args:
            client: id.
            view: a name in `views` (None: the headline).
            link: whether features pass the client's channel at its test SNR, with other noise in each pass.

        Raises:
            ConfigError: no such client or view, a view in which the head does not decide, or a network that takes the
                SNR.
        """
        name = self._named(view)
        return build_module(self.world, name, self.views[name], client, link)

    def _named(self, view: str | None) -> str:
        """Return the name of a view, the headline's for None. Raises ConfigError for one that is not known."""
        name = view or next(iter(self.views))
        self.views[name]  # which raises
        return name

    # -- arrays ------------------------------------------------------------------------------------------------------

    @cached_property
    def clients(self) -> np.ndarray:
        """The ids of the clients that were tested, ascending, `[K]`."""
        return self.world.tested()

    @cached_property
    def confusion(self) -> Mapping[str, np.ndarray]:
        """View -> counts of (true, predicted) classes of each tested client, int64 `[K, C, C]`.

        Of the tests after the last round (of a last stage: after that), at the first test SNR. As `arrays.npz` has
        them, or else by testing again, which gives the same.
        """
        found = self._arrays(CONFUSION)
        start = PREFIX[CONFUSION]
        return ByView({name.removeprefix(start): t for name, t in found.items() if name.startswith(start)})

    def features(self, view: str | None = None) -> Features:
        """Return the features of test images, drawn evenly over the tested clients: at most 10,000 images.

        As `arrays.npz` has them, or else by testing again, which gives the same.

        Args:
            view: a name in `views` (None: the headline).

        Raises:
            ConfigError: no such view.
            RunError: `arrays.npz` is damaged.
        """
        name, found = self._named(view), self._features
        samples = (found[f"samples/{what}"] for what in ("label", "client", "image"))
        return Features(found[f"received/{name}"], found[f"raw/{name}"], *samples)

    @cached_property
    def _features(self) -> Arrays:
        return self._arrays(FEATURES)

    @reset_torch()
    def _arrays(self, kind: str) -> Arrays:
        """Return the arrays of a kind, from the folder if it has them."""
        found = read_arrays(self.out / ARRAYS, self.summary["hash"]) if self.out is not None else {}
        return collect_artifacts(self.world, self._stages, [], [kind]) if list_lacking_arrays(found, [kind]) else found
