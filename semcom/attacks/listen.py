"""What is heard of the features that clients send: by the base station, or by somebody else over a link of his own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from semcom.attacks.options import Place, Secret
from semcom.config import ConfigError
from semcom.engine.host.keys import keyed
from semcom.engine.world import World

BATCH = 64
"""Samples that meet one frame of a link, as in a mini-batch."""


@dataclass(frozen=True)
class Ear:
    """A receiver of features.

    Attributes:
        world: the run whose clients send.
        snr_db: mean SNR of his link (None: the base station's, the test SNR of each client).
        place: who he is; noise and fades are of each one's own.
    """

    world: World
    snr_db: float | None = None
    place: Place = "base"

    def __post_init__(self) -> None:
        link = self.world.session.draws.link
        if self.snr_db is not None and not link.noisy:
            raise ConfigError(
                f"snr_db: {self.snr_db!r} has no effect, as {self.world.config.channel.kind} has no noise"
            )
        if link.users > 1 or link.lasting:
            what = f"{link.users} users share a resource" if link.users > 1 else "fading lasts from round to round"
            raise ConfigError(f"attack: the run's {what}, and a listener hears clients one by one; attack another run")

    def find_snr_db(self, client: int) -> float:
        """Find the mean SNR at which he hears a client, in dB."""
        draws = self.world.session.draws
        found = draws.test_snrs[0] if self.snr_db is None else self.snr_db
        return float(draws.snr_db("up", [client])[0]) if found is None else found  # type: ignore[arg-type]

    def hear(self, features: Tensor, client: int, *key: object) -> Tensor:
        """Pass features `[n, d]` through his link, equalised by what he knows of it, with draws named by the key."""
        draws = self.world.session.draws
        link = draws.link.at(draws.find_seconds()).of(client)
        n, d = features.shape
        sizes = [min(BATCH, n - at) for at in range(0, n, BATCH)]
        seed = self.world.config.seed
        drawn = link.draw(sizes, d, keyed(seed, "ear", self.place, client, *key), features.dtype)
        # A client's own noise is the same for whoever listens.
        drawn |= link.draw_added(n, d, keyed(seed, "ear added", client, *key), features.dtype)
        drawn = {name: t[None] for name, t in drawn.items()}
        snr_db = torch.tensor([self.find_snr_db(client)], dtype=features.dtype)
        with torch.no_grad():
            return link(features[None], drawn, snr_db)[0]


def make_key(secret: Secret, world: World, client: int) -> Callable[[Tensor], Tensor]:
    """Make what a client does to its features `[n, d]` by a key that it shares with the base station.

    Lengths and angles of features stay as they are, so whoever hears many knows which are alike.
    """
    if secret == "none":
        return lambda features: features
    d, generator = world.features, keyed(world.config.seed, "secret", client)
    if secret == "permutation":
        order = torch.randperm(d, generator=generator)
        return lambda features: features[:, order]
    matrix, upper = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64))
    turn = matrix * upper.diagonal().sign()  # uniform over all rotations and reflections
    return lambda features: features @ turn.to(features.dtype)
