"""Measure the image chain after training: the accuracy of a classifier at the base station on the received images.

The classifier of a client is its encoder with the head, trained on clean images; `score_received` classifies a lost
image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from semcom.channels.coding.choice import SampleImages
from semcom.channels.coding.codec import HEADERS
from semcom.channels.coding.image import Received, send_images
from semcom.engine.host.keys import keyed
from semcom.methods.parts.received import sample_training_images, score_received

if TYPE_CHECKING:
    from semcom.runs.result.result import Result

CODECS = ("webp", "jpeg")
Curves = dict[str, dict[str, dict[str, dict[str, float]]]]
"""Chain ("webp-sent") -> SNR in dB -> channel uses -> accuracy, lost fraction and mean bytes."""


def measure_chains(result: Result, snrs: Sequence[float], uses: Sequence[int]) -> Curves:
    """Measure both codecs, with headers sent and known, at every SNR and number of uses.

    Args:
        result: of a run over the link `ideal`.
        snrs: in dB, over AWGN; constellation and code rate are the best ones for training images.
        uses: complex channel uses per image.
    """
    images = sample_training_images(result.federation)
    samples = {(codec, headers): SampleImages(images, codec, headers) for codec in CODECS for headers in HEADERS}
    return {
        f"{codec}-{headers}": {
            f"{snr:g}": {str(n): Point(codec, headers, snr, n).measure(result, sample) for n in uses} for snr in snrs
        }
        for (codec, headers), sample in samples.items()
    }


@dataclass(frozen=True)
class Point:
    """One chain at one SNR with one number of uses."""

    codec: str
    headers: str
    snr_db: float
    uses: int

    def measure(self, result: Result, sample: SampleImages) -> dict[str, float]:
        """Send all clients' test images; measure accuracy (mean over clients), lost fraction, bytes of sent images.

        Args:
            result: as in `measure_chains`.
            sample: training images through the codec.
        """
        federation, session = result.federation, result.world.session
        view, link = next(iter(result.views.values())), session.draws.link
        choices = sample.choose_schemes(self.uses, torch.tensor([[self.snr_db]]))
        accuracies, parts = [], []
        for client in range(result.config.clients):
            index = federation.test[client]
            key = ("images", self.codec, self.headers, self.snr_db, self.uses, client)
            generator = keyed(federation.images.device, result.config.seed, *key)
            images = federation.images[index]
            parts.append(send_images(images, self.uses, self.snr_db, generator, choices, self.headers))
            answer = score_received(session, view, client, parts[-1], link).argmax(-1)
            accuracies.append(float((answer == federation.labels[index]).double().mean()))
        return {"accuracy": float(np.mean(accuracies)), **_count_bytes(parts)}


def _count_bytes(parts: Sequence[Received]) -> dict[str, float]:
    """Count the fraction of lost images, and mean bytes of payload and header of the others (0 without others)."""
    lost, payload, headers = (torch.cat([getattr(p, n) for p in parts]) for n in ("lost", "payload", "headers"))
    fitted = payload > 0
    count = max(1, int(fitted.sum()))
    return {
        "lost": float(lost.double().mean()),
        "payload": float(payload[fitted].sum()) / count,
        "headers": float(headers[fitted].sum()) / count,
    }
