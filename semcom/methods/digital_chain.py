"""The separate digital chain as a baseline of any sweep: images are compressed, coded and sent as such.

Each test image goes through `semcom.channels.coding.image.send_images` in as many channel uses as its features would
take, d/2, at the SNR of the test, over AWGN or a channel whose gain lasts for an image or longer, with the gains of the
features of a learned scheme. Codec, constellation and code rate are the best for training images of the clients
(`semcom.channels.coding.choice`). With `code = capacity` a file may be as large as Shannon's limit allows, and no image
is lost: a bound.

For reconstruction no network is trained, and a lost image is shown as its mean colour. Settings of networks and
training then have no effect, but are accepted, since those of a sweep apply to the learned methods. For classification
FedAvg trains a classifier on clean images, and the base station has its encoder and head.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from semcom.channels.coding.choice import SampleImages
from semcom.channels.coding.curve import add_gain_db, find_gains
from semcom.channels.coding.image import Received, send_images
from semcom.channels.options import SHARE, require
from semcom.channels.statistics import ClientStatistics
from semcom.config import ConfigError, NoEffect, Resolved
from semcom.config.options import Needs
from semcom.data.dataset import find_picture
from semcom.data.federation import scale_bytes
from semcom.engine.host.keys import keyed
from semcom.engine.train.session import Session
from semcom.engine.train.view import View
from semcom.engine.train.visit import Outputs
from semcom.engine.world import World
from semcom.methods.base import Method
from semcom.methods.fedavg import FedAvg
from semcom.methods.parts.received import sample_training_images, score_received

BLOCKS = ("sample", "batch", "round")
"""Coherences for which an image has a single gain."""


class Crossing(NamedTuple):
    """The way of some images of a client."""

    client: int
    uses: int
    """Channel uses of an image."""
    snr_db: float
    gain: Tensor | None
    """h of each image, `[n, 1]` (None: 1)."""

    def select(self, at: Tensor) -> Crossing:
        """Select the images at some positions."""
        return self if self.gain is None else self._replace(gain=self.gain[at.to(self.gain.device)])


@dataclass(frozen=True, kw_only=True)
class SentImages(View):
    """A view whose answers come from the images that the chain delivers.

    Attributes:
        session: the run.
        hyper: of the chain.
    """

    session: Session
    hyper: DigitalChain.Hyper

    def _answer(self, heard: Outputs) -> Tensor:
        """Send the images of a batch, and return them as they arrive in [-1, 1], or scores of classes `[k, b, C]`."""
        draws, rows = self.session.draws, []
        # Codecs take one image at a time, so stacking the clients would save nothing.
        for i, where in enumerate(heard.where.tolist()):
            client, count = int(self.population.ids[where]), int(heard.batch.count[i])
            received = self._send(heard, i, count, client)
            if draws.task.classifies:
                answer = score_received(self.session, View(self.population), client, received, draws.quiet_link)
            else:
                answer = scale_bytes(received.images, draws.dtype)
            rows.append(answer.new_zeros(heard.index.shape[1], *answer.shape[1:]))
            rows[-1][:count] = answer
        return torch.stack(rows)

    def _send(self, heard: Outputs, i: int, count: int, client: int) -> Received:
        """Send the images of the client in row i of a batch, which precede the padding."""
        draws, met, index = self.session.draws, heard.batch.signals[""], heard.index[i, :count]
        images, sides = heard.federation.images[index], heard.federation.sides
        snr_db, gain = float(met.up_snr_db[i]), draws.link.gain({name: t[i, :count] for name, t in met.up.items()})
        crossing = Crossing(client, heard.features.shape[-1] // 2, snr_db, gain)
        # Keyed by the batch's first image, so that the noise does not depend on which clients share a chunk.
        generator = keyed(draws.config.seed, "image chain", client, int(heard.at[i, 0]))
        if sides is None:
            return self._send_pictures(images, crossing, generator)
        nothing = torch.zeros(count, dtype=torch.int64)
        # clone: payload and headers are written apart below.
        whole = Received(torch.zeros_like(images), nothing.bool(), nothing, nothing.clone())
        own = sides[index.cpu()]
        for height, width in own.unique(dim=0).tolist():  # pictures without their borders
            at = (own == torch.tensor([height, width])).all(1).nonzero().flatten()
            inside, framed = find_picture(images.shape[-1], height, width), torch.zeros_like(images[at])
            part = self._send_pictures(images[at][inside], crossing.select(at), generator)
            framed[inside] = part.images
            whole.images[at], whole.lost[at] = framed, part.lost
            whole.payload[at], whole.headers[at] = part.payload, part.headers
        return whole

    def _send_pictures(self, images: Tensor, crossing: Crossing, generator: torch.Generator) -> Received:
        uses, gain, sample = crossing.uses, crossing.gain, self._sample(*images.shape[2:])
        if self.hyper.code == "capacity":
            each = add_gain_db(crossing.snr_db, gain).expand(len(images), 1).flatten().tolist()
            return sample.compress_to_capacity(images, uses, each)
        choices = sample.choose_schemes(uses, self._design(crossing))
        return send_images(images, uses, crossing.snr_db, generator, choices, self.hyper.headers, gain)

    def _design(self, crossing: Crossing) -> Tensor:
        """Compute the SNRs in dB for which the sender chooses: `[images or 1, equally likely SNRs]`."""
        if self.hyper.scheme_db is not None:
            return torch.tensor([[self.hyper.scheme_db]])
        if crossing.gain is None or self.hyper.outage is None:
            return add_gain_db(crossing.snr_db, crossing.gain)
        law = self._statistics.of("up", crossing.client).law
        gains = find_gains(law) if self.hyper.outage == "best" else torch.tensor(law.quantile(self.hyper.outage)).sqrt()
        return add_gain_db(crossing.snr_db, gains).view(1, -1)

    def _sample(self, height: int, width: int) -> SampleImages:
        """Code training images, cropped to the size of the pictures."""
        if (height, width) not in self._samples:
            images = sample_training_images(self.session.draws.federation)
            inside = find_picture(images.shape[-1], height, width)
            self._samples[height, width] = SampleImages(images[inside], self.hyper.codec, self.hyper.headers)
        return self._samples[height, width]

    @cached_property
    def _samples(self) -> dict[tuple[int, int], SampleImages]:
        return {}

    @cached_property
    def _statistics(self) -> ClientStatistics:
        return ClientStatistics(self.session.draws.link)


class DigitalChain(FedAvg):
    """Send each test image by itself, compressed and coded, in the uses of its features; a classifier is FedAvg's."""

    paper = "baseline"
    preset = {}

    @dataclass(frozen=True)
    class Hyper(Method.Hyper):
        """The hyperparameters of the chain."""

        codec: Literal["best", "jpeg", "webp", "avif", "jpeg-half"] = "best"
        """The compression (best: that of these which suits the uses and the SNR); an image has the best quality
        that its uses have room for."""
        headers: Literal["free", "sent"] = "free"
        """Whether the file's header is known to the receiver, or takes its part of the uses."""
        code: Literal["ldpc", "capacity"] = "ldpc"
        """The code: 5G's, with a checksum, or an ideal one at Shannon's limit for each block, which loses nothing."""
        scheme_db: float | None = None
        """SNR for which constellation and code rate are chosen, in dB (None: the SNR of each test)."""
        outage: float | Literal["best"] | None = "best"
        """Share of the blocks of a fading channel that are too weak for the scheme, which is chosen for the mean SNR,
        all that the sender knows (best: that which gives the best images; None: it knows each block's gain, and takes a
        scheme for each image)."""

        needs: ClassVar[Needs] = {"scheme_db": {"code": ("ldpc",)}, "outage": {"code": ("ldpc",), "scheme_db": (None,)}}

        def check(self) -> None:
            """Check that the outage is a share of the blocks."""
            if self.outage != "best":
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
        for name, default in (("feature_noise", 0.0), ("power", "normalised")):
            if getattr(options, name, default) != default:
                raise NoEffect(f"channel.{name}: {getattr(options, name)} has no effect, as {method} sends no features")
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
        draws.training_link = draws.quiet_link  # the classifier learns clean images
        return super().setup(world)

    def round(self, state: Any, world: World) -> Any:
        """Train the classifier of a classification; otherwise leave the State unchanged."""
        return super().round(state, world) if world.session.draws.task.classifies else state

    def views(self, state: Any, world: World) -> dict[str, View]:
        """Return no views before the last round."""
        return {}

    def finish(self, state: Any, world: World) -> dict[str, View]:
        """Evaluate answers from the received images, as `digital`."""
        return {"digital": SentImages(state.model, session=world.session, hyper=self.hyper)}
