"""Keyed randomness: every draw of a run has its own generator, named by its purpose.

So a result does not depend on the order in which clients are visited, on chunks or on padding, and no function here
reads or moves torch's global generator. All draws are made on the host: an accelerator's generators draw other numbers,
which may even differ between models of a card, and a run would be another sample there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

T = TypeVar("T")


def derive_key_seed(*key: object) -> int:
    """Compute the 63-bit seed of a key, such as `(seed, "uplink", round, client)`.

    It is BLAKE2b of the key's repr, so it is the same everywhere.
    """
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def keyed(*key: object) -> torch.Generator:
    """Make a generator of the host whose state depends only on the key (on 32 bits of its hash)."""
    return torch.Generator().manual_seed(derive_key_seed(*key))


@contextmanager
def key_global_generator(*key: object) -> Iterator[None]:
    """Seed torch's global CPU generator by the key while the context lasts, and restore it afterwards.

    For the constructors of `nn.Module`, which know no other generator. Not for several threads at once.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derive_key_seed(*key))
        yield


def build_with_key(factory: Callable[[], T], *key: object) -> T:
    """Call `factory`, which makes a module with fresh weights, with its draws keyed, and return the result."""
    with key_global_generator(*key):
        return factory()
