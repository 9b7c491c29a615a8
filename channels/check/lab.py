"""Laboratory of the checks: a device, a seed, and the maker of the links that are measured."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from semcom.channels import Link, make_link


@dataclass(frozen=True)
class Lab:
    """Laboratory that sends probes through links, each with its own realisation.

    Attributes:
        device: of every tensor.
        seed: of every draw.
        make: maker of the links. A test substitutes a maker of faulty links.
    """

    device: torch.device
    seed: int = 0
    make: Callable[..., Link] = make_link

    def generator(self, key: str) -> torch.Generator:
        """Seed the generator of the draw called `key`, independent of all others."""
        digest = hashlib.sha256(f"{self.seed}/{key}".encode()).digest()
        return torch.Generator(self.device).manual_seed(int.from_bytes(digest[:8], "little") >> 1)

    def draw(self, link: Link, sizes: Sequence[int], d: int, key: str) -> dict[str, Tensor]:
        """Draw a realisation for one client, `[1, sum(sizes), ...]`. The same key draws the same realisation."""
        return {name: tensor[None] for name, tensor in link.draw(sizes, d, self.generator(key)).items()}

    def transmit(self, link: Link, symbols: Tensor, snr_db: float, key: str) -> Tensor:
        """Send unit-power symbols `[b, n]` of b samples, and return them as equalised, `[b, n]`."""
        drawn = self.draw(link, [len(symbols)], 2 * symbols.shape[1], key)
        return link.transmit(symbols[None], drawn, self.snr(snr_db))[0]

    def features(self, link: Link, features: Tensor, snr_db: float, key: str) -> Tensor:
        """Send features `[b, d]`, and return them as received, `[b, d]`. Their gradient comes back without noise."""
        drawn = self.draw(link, [len(features)], features.shape[1], key)
        return link(features[None], drawn, self.snr(snr_db))[0]

    def snr(self, snr_db: float) -> Tensor:
        """Make the SNR of one client, `[1]`."""
        return torch.tensor([snr_db], device=self.device)

    def ones(self, *shape: int) -> Tensor:
        """Make symbols that are all 1."""
        return torch.ones(shape, dtype=torch.complex64, device=self.device)

    def normal(self, *shape: int, key: str) -> Tensor:
        """Draw independent N(0, 1) numbers."""
        return torch.randn(shape, generator=self.generator(key), device=self.device)

    def bits(self, *shape: int, key: str) -> Tensor:
        """Draw independent fair bits, as floats."""
        return torch.randint(2, shape, generator=self.generator(key), device=self.device).float()
