"""Encoders that models have in common, whose features of an image serve them all.

Legend: N images of a federation, n distinct ones that clients own, d features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from semcom.data.federation import Ragged
from semcom.engine.store.population import AnyCohort, Cohort, in_part

ENCODER = "encoder."
KNOWN_BYTES = 2**28
"""Bytes of the features of distinct images that a pass keeps: those of 130,000 images with 512 numbers each."""


@dataclass(frozen=True)
class Known:
    """The features of distinct images by an encoder that all clients share.

    Attributes:
        rows: `[n, d]`.
        row: each image's row, `[N]`; zero for images without an owner.
    """

    rows: Tensor
    row: Tensor

    def __call__(self, images: Tensor) -> Tensor:
        """Look up the features of images by their indices: `[k, b] -> [k, b, d]`."""
        return self.rows[self.row[images]]


def find_known_features(
    cohorts: Mapping[str, AnyCohort],
    images: Callable[[], Tensor],
    encode: Callable[[Cohort, Tensor], Tensor],
    total: int,
    bytes_each: int,
) -> dict[str, Known]:
    """Compute the features of distinct images by the encoders that all clients of a cohort share.

    Args:
        cohorts: of the same clients, by name.
        images: gives the distinct images `[n]`.
        encode: `(models, images [n]) -> features [n, d]`.
        total: N.
        bytes_each: of an image's features.

    Returns:
        name -> features, of all such cohorts, or of none if they would take more than `KNOWN_BYTES`.
    """
    first = {name: c.select(c.ids[:1]) for name, c in cohorts.items() if shares_encoder(c)}
    if not first:
        return {}
    distinct, twin = images(), find_encoder_twins(first)
    if len(distinct) * bytes_each * len(set(twin.values())) > KNOWN_BYTES:
        return {}
    row = torch.zeros(total, dtype=torch.int64, device=distinct.device)
    row[distinct] = torch.arange(len(distinct), device=distinct.device)
    found = {name: Known(encode(first[name], distinct), row) for name in dict.fromkeys(twin.values())}
    return {name: found[other] for name, other in twin.items()}


def list_known_entries(table: Ragged, ids: np.ndarray) -> Tensor:
    """List the distinct entries of some clients' lists, ascending, `[n]`."""
    flat = table.flat
    if len(ids) < len(table):
        mine = np.zeros(len(table), dtype=bool)
        mine[ids] = True
        flat = flat[torch.as_tensor(np.repeat(mine, table.sizes), device=flat.device)]
    return flat.unique()


def find_encoder_twins(cohorts: Mapping[str, Cohort]) -> dict[str, str]:
    """Map each of some cohorts of the same clients to the first one with equal encoders, buffers included.

    A comparison reads each number of an encoder once, and encoding a single image at least once.
    """
    found: dict[str, str] = {}
    for name, cohort in cohorts.items():
        found[name] = next((other for other in found.values() if _have_equal_encoders(cohort, cohorts[other])), name)
    return found


def shares_encoder(cohort: AnyCohort) -> bool:
    """Check whether all clients of a cohort share the whole encoder."""
    return all(name in cohort.shared for name in cohort.network.state_dict() if in_part(name, ENCODER))


def _have_equal_encoders(one: Cohort, other: Cohort) -> bool:
    """Check that two cohorts have the same encoder, number by number."""
    pairs = [(t, other.tensors[name]) for name, t in one.tensors.items() if in_part(name, ENCODER)]
    return all(a is b or torch.equal(a, b) for a, b in pairs)
