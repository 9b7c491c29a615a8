"""The separate digital chain as a baseline of any sweep for images that come back: nothing is trained.

Each test image is compressed, coded and modulated by `channels.coding.image.ImageChain` into as many channel uses as
its features would take, d/2, over AWGN at the SNR of the test. What is lost counts as a grey image. Settings of
networks and training have no effect, and are not refused, since those of a sweep hold for the learned methods.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from channels.coding.image import CHECKSUM, ImageChain
from channels.coding.mcs import choose_mcs
from semcom.config import ConfigError, Resolved
from semcom.data.federation import scale_bytes, to_bytes
from semcom.engine.random import keyed
from semcom.engine.store.population import Population
from semcom.engine.train.view import View
from semcom.engine.train.visit import Outputs
from semcom.engine.world import World
from semcom.methods.base import Method

GREY = 128
"""Value of the pixels of an image that is lost."""


@dataclass(frozen=True)
class SentImages(View):
    """A view whose answers are the images that the chain delivers; the models are not asked.

    Attributes:
        seed: of the run.
        hyper: of the chain.
    """

    seed: int = 0
    hyper: Any = None

    def answer(self, heard: Outputs) -> Tensor:
        """Send the images of a batch, and return them in [-1, 1] as they arrive, `[k, b, channels, size, size]`."""
        images = to_bytes(heard.batch.x)
        back = torch.full_like(images, GREY)
        for i, (at, real, snr_db) in enumerate(
            zip(heard.at, heard.batch.weight > 0, heard.batch.signals[""].up_snr_db.tolist(), strict=True)
        ):
            if real.any():
                generator = keyed(self.seed, "image chain", int(self.population.ids[heard.where[i]]), int(at[0]))
                back[i, real] = self._send(images[i, real], snr_db, heard.features.shape[-1] // 2, generator)
        return scale_bytes(back, heard.batch.x.dtype)

    def _send(self, images: Tensor, snr_db: float, uses: int, generator: torch.Generator) -> Tensor:
        designed = self.hyper.scheme_db
        scheme = choose_mcs(snr_db if designed is None else designed, uses)
        if scheme is None or scheme.efficiency * uses < 8 * (CHECKSUM + 1):  # no room for a byte
            return torch.full_like(images, GREY)
        chain = ImageChain(uses, scheme.modulation, scheme.code_rate, self.hyper.codec, headers=self.hyper.headers)
        received = chain.send(images, snr_db, generator)
        return torch.where(received.lost.to(images.device).view(-1, 1, 1, 1), GREY, received.images)


class DigitalChain(Method):
    """Send each test image by itself, compressed and coded, in the uses of its features; nothing is trained."""

    paper = "baseline"
    exchanges = False
    shares = "nothing"
    personal = "nothing"
    sends = "nothing"

    @dataclass(frozen=True)
    class Hyper(Method.Hyper):
        """The chain."""

        codec: Literal["jpeg", "webp", "avif"] = "jpeg"
        """The compression; an image has the best quality that its uses have room for."""
        headers: Literal["free", "sent"] = "free"
        """Whether the file's header is known to the receiver, or takes its part of the uses."""
        scheme_db: float | None = None
        """SNR for which constellation and code rate are chosen, in dB (None: the SNR of each test)."""

    @dataclass(frozen=True)
    class State:
        """The clients' models, which nothing changes: the tests pass them."""

        model: Population

    def check(self, config: Resolved) -> None:
        """Check that images come back, over AWGN, to clients without a last stage. Raises ConfigError otherwise."""
        if config.task != "reconstruction":
            raise ConfigError(f"task: {config.method} sends images, and {config.task} does not ask for them back")
        if config.channel.kind != "awgn":
            raise ConfigError(f"channel.kind: {config.method} crosses awgn, not {config.channel.kind}")
        if config.finish.kind is not None or config.new_clients:
            name = "finish.kind" if config.finish.kind is not None else "new-clients"
            raise ConfigError(f"{name}: {config.method} has no models to go on with; leave it out")

    def setup(self, world: World) -> Any:
        """Return models of the clients' own, so that a test shows each its images."""
        return self.State(world.population())

    def round(self, state: Any, world: World) -> Any:
        """Leave everything as it is."""
        return state

    def views(self, state: Any, world: World) -> dict[str, View]:
        """Evaluate nothing before the last round."""
        return {}

    def finish(self, state: Any, world: World) -> dict[str, View]:
        """Evaluate the images that arrive, as `digital`."""
        return {"digital": SentImages(state.model, seed=world.config.seed, hyper=self.hyper)}
