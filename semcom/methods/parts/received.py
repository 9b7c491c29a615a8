"""Images sent as such: samples by which a sender chooses, and a classifier's scores of received images."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from semcom.data.federation import Federation
from semcom.engine.train.session import Session
from semcom.engine.train.view import View, infer_in_view

if TYPE_CHECKING:
    from semcom.channels import Link
    from semcom.channels.coding.image import Received

SAMPLE = 128
"""Training images by which codec and scheme are chosen."""


def sample_training_images(federation: Federation) -> Tensor:
    """Choose some training images, spread over the clients, uint8 `[n, channels, size, size]`."""
    mine = federation.train.flat
    spread = torch.linspace(0, len(mine) - 1, min(SAMPLE, len(mine))).long()
    return federation.images[mine[spread.to(mine.device)]]


def score_received(session: Session, view: View, client: int, received: Received, link: Link) -> Tensor:
    """Compute the scores of a client's received images, `[n, C]`.

    A lost image is taken for the class with most of the client's training images, the lowest of equal classes.

    Args:
        session: the run.
        view: the classifier: the client's encoder with the head, both at the base station.
        client: id.
        received: n images, sent over any channel.
        link: between encoder and head, such as a link without noise.
    """
    draws = session.draws
    counts = draws.federation.labels[draws.federation.train[client]].bincount(minlength=len(draws.federation.classes))
    scores = torch.zeros(len(received.lost), len(counts), dtype=draws.dtype, device=draws.device)
    scores[:, counts.argmax()] = 1
    if not received.lost.all():
        arrived = ~received.lost
        heard = infer_in_view(session, view, client, received.images[arrived], None, link)
        scores[arrived.to(draws.device)] = torch.cat([view.answer(each)[0] for each in heard])
    return scores
