"""A client's model as a plain `torch.nn.Module`, for use outside of semcom."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import torch
from torch import Tensor, nn

from semcom.channels import Link
from semcom.channels.power import normalise_power
from semcom.config import ConfigError
from semcom.data.federation import scale_bytes
from semcom.engine.train.view import View
from semcom.engine.world import World
from semcom.models.stacks import OWN


class Module(nn.Module):
    """A trained model: encoder, link, and head.

    Attributes:
        encoder: images `[b, channels, size, size]` in [-1, 1] -> features `[b, d]`.
        between: features as they leave the encoder -> as the head takes them, `[b, d]`.
        head: features -> outputs, `[b, ...]`: of classification scores `[b, C]`.
    """

    def __init__(self, encoder: nn.Module, between: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.encoder, self.between, self.head = encoder, between, head

    def forward(self, images: Tensor) -> Tensor:
        """Compute the outputs for images, `[b, ...]`: real numbers in [-1, 1], or bytes, which are scaled to that.

        Other inputs than images are not scaled.
        """
        dtype = next(self.parameters()).dtype
        x = scale_bytes(images, dtype) if images.dtype == torch.uint8 else images
        out = self.head(self.between(self.encoder(x)))
        assert isinstance(out, Tensor)
        return out


class UnitPower(nn.Module):
    """Scale the features of an image to mean square 1, as a link without noise does."""

    def forward(self, features: Tensor) -> Tensor:
        """Scale `[b, d]`."""
        return normalise_power(features)


class Noisy(nn.Module):
    """A client's link at an SNR in dB; each pass has other noise, from torch's global generator."""

    def __init__(self, link: Link, snr_db: float) -> None:
        super().__init__()
        self.link, self.snr_db = link, snr_db

    def forward(self, features: Tensor) -> Tensor:
        """Send `[b, d]`, and return it as received."""
        generator = torch.Generator().manual_seed(int(torch.randint(2**62, ())))
        n, d = features.shape
        drawn = self.link.draw([n], d, generator, features.dtype)
        drawn |= self.link.draw_added(n, d, generator, features.dtype)
        there = {name: t[None].to(features.device) for name, t in drawn.items()}
        snr = torch.full((1,), self.snr_db, dtype=features.dtype, device=features.device)
        return self.link(features[None], there, snr)[0]


def build_module(world: World, name: str, view: View, client: int, link: bool) -> Module:
    """Build the model of a client; see `Result.module`."""
    draws = world.session.draws
    view.check_client(client)
    if view.scores is not None:
        raise ConfigError(f"view: of {name!r} the head does not decide; call predict, or give another view")
    if world.config.model.snr_input:
        raise ConfigError("model.snr-input: such a network takes the SNR beside the images; call decode")
    (cohort,) = view.population.select(np.array([client])).stacks()
    network = deepcopy(cohort.network)
    network.load_state_dict({n: t[0].detach().cpu().clone() for n, t in cohort.tensors.items()}, assign=True)
    for layer in network.modules():
        layer.__class__ = PLAIN.get(type(layer), type(layer))
    encoder, head = network.get_submodule("encoder"), network.get_submodule("head")
    between: nn.Module = UnitPower() if draws.link.normalises else nn.Identity()
    if link and draws.link.noisy:
        if draws.link.users > 1 or draws.link.lasting:
            raise ConfigError("link: that of this run couples clients or rounds; leave it out, or call predict")
        snr = draws.test_snrs[0]
        snr = float(draws.snr_db("up", np.array([client]))[0]) if snr is None else snr
        between = Noisy(draws.link.of(client), snr)
    return Module(encoder, between, head).eval()


PLAIN = {ours: theirs for theirs, ours in OWN.items()}
"""The engine's layers -> torch's own, which compute the same for one client."""
