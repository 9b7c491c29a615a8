"""Views of what a method trained: its models as they are used, their decisions, and what they answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from semcom.config import ConfigError
from semcom.data.federation import Ragged
from semcom.engine.session import Session
from semcom.engine.store.population import Population
from semcom.engine.train.forward import Batch
from semcom.engine.train.visit import share_out, visit

Scores = Callable[[Tensor, Tensor, Mapping[str, Tensor]], Tensor]
"""`(received features [k, b, d], logits [k, b, C], per_client) -> scores [k, b, C]`; the largest one is the answer."""


@dataclass(frozen=True)
class View:
    """A way to use what a method trained: a population and, where it is not the head's logits, its decision.

    Attributes:
        population: the models of K clients.
        scores: the decision (None: the logits).
        per_client: context of `scores`, `[K, ...]` each, in the order of `population.ids`.
    """

    population: Population
    scores: Scores | None = None
    per_client: Mapping[str, Tensor] = field(default_factory=dict)

    def decide(self, features: Tensor, logits: Tensor, where: Tensor) -> Tensor:
        """Return the predicted classes `[k, b]` of the clients at positions `where`."""
        if self.scores is None:
            return logits.argmax(-1)
        return self.scores(features, logits, {n: t[where] for n, t in self.per_client.items()}).argmax(-1)


def confusion(
    session: Session,
    views: Mapping[str, View],
    snr_db: float | None,
    table: Ragged,
    stream: str = "test",
    metered: bool = True,
) -> dict[str, Tensor]:
    """Count (true, predicted) classes per view and client, int64 `[K, C, C]`.

    Views of one population share its forward passes (and so the realisation of the channel).

    Args:
        session: the run.
        views: views to test.
        snr_db: test SNR of all clients, or None: their training SNR.
        table: which samples, usually those of `federation.test`.
        stream: names the realisation of the channel.
        metered: whether the received SNR counts as that of the test.
    """
    draws, meter = session.draws, session.tally.meters["test"] if metered else None
    c, device = len(draws.federation.classes), draws.device
    counts = {n: torch.zeros(len(v.population.ids), c * c, dtype=torch.int64, device=device) for n, v in views.items()}
    groups: dict[int, list[str]] = {}
    for name, view in views.items():
        groups.setdefault(id(view.population), []).append(name)
    for names in groups.values():

        def count(batch: Batch, features: Tensor, logits: Tensor, where: Tensor, names: list[str] = names) -> None:
            for name in names:
                cell = batch.y * c + views[name].decide(features, logits, where)
                counts[name][where] = counts[name][where].scatter_add(1, cell, batch.weight.to(torch.int64))

        pop = views[names[0]].population
        fixed = None if snr_db is None else torch.full((len(pop.ids),), snr_db, device=device, dtype=draws.dtype)
        share_out(session, pop, table, count, stream=stream, snr_db=fixed, meter=meter)
    return {name: session.team.sum(t).view(-1, c, c) for name, t in counts.items()}


@torch.no_grad()
def predict(session: Session, view: View, client: int, images: Tensor, snr_db: float | None) -> Tensor:
    """Return the classes, int64 `[b]`, that a client's model gives to images that pass the channel.

    Args:
        session: the run.
        view: the models and their decision.
        client: id.
        images: uint8 `[b, channels, 32, 32]`.
        snr_db: test SNR, or None: the client's training SNR.

    Raises:
        ConfigError: images of another shape or type, or a client that has no model in the view.
    """
    draws, device = session.draws, session.draws.device
    shape = tuple(draws.federation.images.shape[1:])
    if images.dtype != torch.uint8 or tuple(images.shape[1:]) != shape:
        raise ConfigError(
            f"images: {images.dtype} {tuple(images.shape)} is not uint8 [b, {', '.join(map(str, shape))}]"
        )
    ids = view.population.ids
    if client not in ids:
        raise ConfigError(f"client: there is no model of client {client}; there are {len(ids)}, {ids[0]} to {ids[-1]}")
    n = len(images)
    labels = torch.zeros(n, dtype=torch.int64, device=device)
    guest = replace(draws.federation, images=images.to(device), labels=labels)
    offsets = np.where(np.arange(draws.config.clients + 1) > client, n, 0)
    table = Ragged(torch.arange(n, device=device), offsets)
    one = view.population.select(np.array([client]))
    answers = [torch.zeros(1, 0, dtype=torch.int64, device=device)]  # the answer to no image at all

    def note(batch: Batch, features: Tensor, logits: Tensor, where: Tensor) -> None:
        at = torch.as_tensor([np.searchsorted(ids, client)], device=device)
        answers.append(view.decide(features, logits, at))

    snr = None if snr_db is None else torch.full((1,), snr_db, device=device, dtype=draws.dtype)
    visit(session, one, table, note, snr_db=snr, stream="predict", federation=guest)
    return torch.cat(answers, 1)[0].cpu()
