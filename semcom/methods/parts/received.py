"""What a classifier at the base station makes of images that were sent as such, some of which are lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from semcom.engine.session import Session
from semcom.engine.train.view import View, infer_images

if TYPE_CHECKING:
    from channels import Link
    from channels.coding.image import Received


def score_received(session: Session, view: View, client: int, received: Received, link: Link) -> Tensor:
    """Return the scores of a client's images as they arrived, `[n, C]`.

    A lost image is taken for the class that the client has most training images of, the lowest one where several are
    equal.

    Args:
        session: the run.
        view: the classifier: the client's encoder with the head, which both are at the base station.
        client: id.
        received: n images, sent over whatever channel.
        link: between encoder and head, such as one without noise.
    """
    draws = session.draws
    counts = draws.federation.labels[draws.federation.train[client]].bincount(minlength=len(draws.federation.classes))
    scores = torch.zeros(len(received.lost), len(counts), dtype=draws.dtype, device=draws.device)
    scores[:, counts.argmax()] = 1
    if not received.lost.all():
        arrived = ~received.lost
        heard = infer_images(session, view, client, received.images[arrived], None, link)
        scores[arrived.to(draws.device)] = torch.cat([view.answer(each)[0] for each in heard])
    return scores
