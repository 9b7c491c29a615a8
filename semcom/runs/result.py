"""What a run gives back: its numbers, its trained models, and predictions by them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from semcom.config import ConfigError, Resolved
from semcom.data.federation import Federation
from semcom.engine.train.view import View, predict
from semcom.engine.world import World


@dataclass(frozen=True)
class Result:
    """The result of a run.

    Attributes:
        config: the resolved configuration.
        summary: as in summary.json.
        metrics: one line per round, as in metrics.jsonl.
        out: the run's folder, or None.
        world: data and channel of the run.
        find_views: makes `views`.
    """

    config: Resolved
    summary: dict[str, Any]
    metrics: list[dict[str, Any]]
    out: Path | None
    world: World
    find_views: Callable[[], Mapping[str, View]] = field(repr=False)

    @property
    def federation(self) -> Federation:
        """The images of the run, and which client owns which."""
        return self.world.session.draws.federation

    @cached_property
    def views(self) -> Mapping[str, View]:
        """Name -> `View` of the trained populations; the first one is the headline.

        Worked out when it is first asked for: of a run that was finished before, the method's last stage is repeated.
        """
        return self.find_views()

    def predict(self, client: int, images: np.ndarray | Tensor, view: str | None = None) -> Tensor:
        """Return the classes that a client's model gives to images, through the channel at its test SNR.

        Args:
            client: id.
            images: uint8 `[b, channels, 32, 32]`, as `federation.images`.
            view: a name in `views` (None: the headline).

        Returns:
            int64 `[b]` on the CPU.

        Raises:
            ConfigError: no such client or view, or images of another shape or type.
        """
        name = view or next(iter(self.views))
        if name not in self.views:
            raise ConfigError(f"view: {name!r} is unknown; known are {', '.join(self.views)}")
        session = self.world.session
        return predict(session, self.views[name], client, torch.as_tensor(images), session.draws.test_snrs[0])
