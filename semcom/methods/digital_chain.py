"""The separate digital chain as a baseline of any sweep: images are compressed, coded and sent as such.

Each test image goes through `channels.coding.image.send_images` in as many channel uses as its features would take,
d/2, at the SNR of the test, over AWGN or a channel whose gain lasts for an image or longer: the gains that the features
of a learned scheme meet.

Of reconstruction nothing is trained, and what is lost counts as a grey image. Settings of networks and training have no
effect then, and are not refused, since those of a sweep hold for the learned methods. Of classification FedAvg trains a
classifier on clean images, of which the base station has encoder and head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from channels.coding.image import Received, send_images
from channels.options import SHARE, require
from channels.statistics import ClientStatistics
from semcom.config import ConfigError, NoEffect, Resolved
from semcom.config.options import Needs
from semcom.data.federation import scale_bytes
from semcom.engine.random import keyed
from semcom.engine.session import Session
from semcom.engine.train.view import View
from semcom.engine.train.visit import Outputs
from semcom.engine.world import World
from semcom.methods.base import Method
from semcom.methods.fedavg import FedAvg
from semcom.methods.parts.received import score_received

GREY = 128
"""Value of the pixels of an image that is lost."""
BLOCKS = ("sample", "batch", "round")
"""Coherences of which an image has one gain."""


@dataclass(frozen=True, kw_only=True)
class SentImages(View):
    """A view whose answers come of the images that the chain delivers.

    Attributes:
        session: the run.
        hyper: of the chain.
    """

    session: Session
    hyper: DigitalChain.Hyper

    def _answer(self, heard: Outputs) -> Tensor:
        """Send the images of a batch, and return them as they arrive in [-1, 1], or scores of classes `[k, b, C]`."""
        draws, rows = self.session.draws, []
        for i, where in enumerate(heard.where.tolist()):
            client, count = int(self.population.ids[where]), int(heard.batch.count[i])
            received = self._send(heard, i, count, client)
            if draws.task.classifies:
                answer = score_received(self.session, View(self.population), client, received, draws.quiet_link)
            else:
                lost = received.lost.to(draws.device).view(-1, 1, 1, 1)
                answer = scale_bytes(torch.where(lost, GREY, received.images), draws.dtype)
            rows.append(answer.new_zeros(heard.index.shape[1], *answer.shape[1:]))
            rows[-1][:count] = answer
        return torch.stack(rows)

    def _send(self, heard: Outputs, i: int, count: int, client: int) -> Received:
        """Send the images of the client in row i of a batch, of which the first ones are no padding."""
        link, met = self.session.draws.link, heard.batch.signals[""]
        snr_db, gain = float(met.up_snr_db[i]), link.gain({name: t[i, :count] for name, t in met.up.items()})
        return send_images(
            heard.federation.images[heard.index[i, :count]],
            heard.features.shape[-1] // 2,
            snr_db,
            keyed(self.session.draws.config.seed, "image chain", client, int(heard.at[i, 0])),
            codec=self.hyper.codec,
            headers=self.hyper.headers,
            scheme_db=self._design(client, snr_db, gain, count),
            gain=gain,
        )

    def _design(self, client: int, snr_db: float, gain: Tensor | None, count: int) -> Sequence[float]:
        """Return the SNR in dB for which the scheme of each image is chosen, by what its sender knows."""
        if self.hyper.scheme_db is not None:
            return [self.hyper.scheme_db] * count
        if gain is None:
            return [snr_db] * count
        gains = gain if self.hyper.outage is None else self.weakest(client).expand(count)
        return (snr_db + 20 * gains.abs().double().clamp_min(1e-15).log10()).flatten().tolist()

    def weakest(self, client: int) -> Tensor:
        """Return the |h| that all but a share `outage` of a client's blocks exceed."""
        assert self.hyper.outage is not None
        return torch.tensor(self._statistics.of("up", client).law.quantile(self.hyper.outage)).sqrt()

    @cached_property
    def _statistics(self) -> ClientStatistics:
        return ClientStatistics(self.session.draws.link)


class DigitalChain(FedAvg):
    """Send each test image by itself, compressed and coded, in the uses of its features; a classifier is FedAvg's."""

    paper = "baseline"
    preset = {}

    @dataclass(frozen=True)
    class Hyper(Method.Hyper):
        """The chain."""

        codec: Literal["jpeg", "webp", "avif"] = "jpeg"
        """The compression; an image has the best quality that its uses have room for."""
        headers: Literal["free", "sent"] = "free"
        """Whether the file's header is known to the receiver, or takes its part of the uses."""
        scheme_db: float | None = None
        """SNR for which constellation and code rate are chosen, in dB (None: the SNR of each test)."""
        outage: float | None = 0.1
        """Share of the blocks of a fading channel that are too weak for the scheme, which is chosen for the mean SNR,
        all that the sender knows (None: it knows each block's gain, and takes a scheme for each image)."""

        needs: ClassVar[Needs] = {"outage": {"scheme_db": (None,)}}

        def check(self) -> None:
            """Check that the outage is a share of the blocks."""
            require("outage", self.outage, SHARE)

    def check(self, config: Resolved) -> None:
        """Check that images are asked for, or their classes, over blocks, without a last stage. Raises ConfigError."""
        method, kind, options = config.method, config.channel.kind, config.channel.options
        if config.task not in ("reconstruction", "classification"):
            raise ConfigError(f"task: {method} sends images, and {config.task} asks neither for them nor for classes")
        if kind not in ("awgn", "rayleigh", "rician"):
            raise ConfigError(f"channel.kind: {method} crosses awgn, rayleigh or rician, not {kind}")
        if getattr(options, "coherence", BLOCKS[0]) not in BLOCKS:
            raise ConfigError(f"channel.coherence: {method} sends an image over one gain; give {' or '.join(BLOCKS)}")
        if getattr(options, "equaliser", "mmse") == "none":
            raise ConfigError(f"channel.equaliser: {method} decodes with every h known; choose mmse or zf")
        if getattr(options, "users", 1) > 1:
            raise ConfigError(f"channel.users: {method} sends one image at a time; give 1")
        if kind == "awgn" and self.hyper.outage != self.Hyper.outage:
            raise NoEffect(f"hyper.outage: {self.hyper.outage} has no effect, as awgn does not fade; leave it out")
        if config.finish.kind is not None or config.new_clients:
            name = "finish.kind" if config.finish.kind is not None else "new-clients"
            raise ConfigError(f"{name}: {method} has no models to go on with; leave it out")

    def setup(self, world: World) -> Any:
        """Start as FedAvg does, with training that passes no channel."""
        if not world.pictured:
            raise ConfigError("data.name: digital-chain sends images, and the data are arrays of numbers")
        draws = world.session.draws
        draws.training_link = draws.quiet_link
        return super().setup(world)

    def round(self, state: Any, world: World) -> Any:
        """Train the classifier, if there is one."""
        return super().round(state, world) if world.session.draws.task.classifies else state

    def views(self, state: Any, world: World) -> dict[str, View]:
        """Evaluate nothing before the last round."""
        return {}

    def finish(self, state: Any, world: World) -> dict[str, View]:
        """Evaluate what comes of the images that arrive, as `digital`."""
        return {"digital": SentImages(state.model, session=world.session, hyper=self.hyper)}
