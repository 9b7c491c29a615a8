"""Populations: every client-held quantity is one tensor with a leading client axis.

Legend: K clients in a population, n rows of one cohort. A part of a model is named by the prefix of its parameters:
`"encoder."` or `"head."`. Populations are values: no operation changes one in place.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

Prefix = str | Sequence[str]


def in_part(name: str, part: Prefix) -> bool:
    """Whether a tensor's name belongs to a part (a prefix, or several; `""` is everything)."""
    return name.startswith(part if isinstance(part, str) else tuple(part))


@dataclass(frozen=True)
class Cohort:
    """Clients with the same architecture.

    Attributes:
        network: the architecture, on the meta device: it holds no weights.
        tensors: parameters and buffers by name, `[n, ...]`; `[1, ...]` for the shared ones.
        ids: client ids of the rows, ascending, `[n]`.
        shared: names of the tensors that all clients have in common.
    """

    network: nn.Module
    tensors: dict[str, Tensor]
    ids: np.ndarray
    shared: frozenset[str] = frozenset()

    def rows(self, ids: np.ndarray) -> Cohort:
        """The rows of those `ids` that are in this cohort."""
        keep = np.intersect1d(ids, self.ids)
        at = self._at(keep)
        picked = {name: t if name in self.shared else t[at] for name, t in self.tensors.items()}
        return dataclasses.replace(self, tensors=picked, ids=keep)

    def put(self, other: Cohort) -> Cohort:
        """Own tensors with the rows of `other` replaced; shared ones stay."""
        at = self._at(other.ids)
        whole = len(other.ids) == len(self.ids)
        replaced = dict(self.tensors)
        for name, t in self.tensors.items():
            if name not in self.shared:
                new = other.tensors[name].expand(len(other.ids), *t.shape[1:])
                replaced[name] = new.clone() if whole else t.clone().index_copy_(0, at, new)
        return dataclasses.replace(self, tensors=replaced)

    def _at(self, ids: np.ndarray) -> Tensor:
        """Row numbers of client ids."""
        device = next(iter(self.tensors.values())).device
        return torch.as_tensor(np.searchsorted(self.ids, ids), device=device)


@dataclass(frozen=True)
class Population:
    """Models of K clients, one cohort per architecture. Results per client are ordered by `ids`."""

    cohorts: tuple[Cohort, ...]

    @property
    def ids(self) -> np.ndarray:
        """Client ids, ascending, `[K]`."""
        return np.sort(np.concatenate([c.ids for c in self.cohorts]))

    def at(self, cohort: Cohort) -> np.ndarray:
        """Positions of a cohort's clients in `ids`."""
        return np.searchsorted(self.ids, cohort.ids)

    def rows(self, ids: np.ndarray) -> Population:
        """The sub-population of some clients (cohorts without one are left out)."""
        picked = (c.rows(ids) for c in self.cohorts)
        return Population(tuple(c for c in picked if len(c.ids)))

    def put(self, other: Population) -> Population:
        """This population with the rows of `other` written back; shared tensors stay as they are."""
        by_network = {id(c.network): c for c in other.cohorts}
        return Population(
            tuple(c.put(by_network[id(c.network)]) if id(c.network) in by_network else c for c in self.cohorts)
        )

    def share(self, values: Mapping[str, Tensor]) -> Population:
        """This population with the tensors in `values`, `[1, ...]`, in common to all clients."""
        return self._each(
            lambda c: dataclasses.replace(
                c, tensors={**c.tensors, **{k: v.clone() for k, v in values.items()}}, shared=c.shared | set(values)
            )
        )

    def take(self, part: Prefix, other: Population) -> Population:
        """This population with a part (own rows or shared) taken from `other`, which has the same cohorts."""
        pairs = zip(self.cohorts, other.cohorts, strict=True)
        return Population(tuple(_take(mine, theirs, part) for mine, theirs in pairs))

    def spread(self, part: Prefix = "") -> Population:
        """This population with the shared tensors of a part copied into one row per client."""
        return self._each(lambda c: _spread(c, part))

    def map(self, fn: Callable[[str, Tensor], Tensor], part: Prefix = "") -> Population:
        """This population with `fn(name, tensor)` in place of each tensor of a part."""
        return self._each(
            lambda c: dataclasses.replace(
                c, tensors={name: fn(name, t) if in_part(name, part) else t for name, t in c.tensors.items()}
            )
        )

    def numbers(self, part: Prefix) -> np.ndarray:
        """How many numbers (parameters and buffers) a part has, per client, `[K]`."""
        counts = np.zeros(len(self.ids), dtype=np.int64)
        for c in self.cohorts:
            counts[self.at(c)] = sum(t[0].numel() for name, t in c.tensors.items() if in_part(name, part))
        return counts

    def tensors(self) -> Iterator[Tensor]:
        """All tensors, cohort by cohort."""
        for c in self.cohorts:
            yield from c.tensors.values()

    def _each(self, fn: Callable[[Cohort], Cohort]) -> Population:
        return Population(tuple(fn(c) for c in self.cohorts))


def _take(mine: Cohort, theirs: Cohort, part: Prefix) -> Cohort:
    """`mine` with a part of `theirs`, row by row."""
    names = [name for name in mine.tensors if in_part(name, part)]
    tensors = {**mine.tensors, **{name: theirs.tensors[name].clone() for name in names}}
    return dataclasses.replace(mine, tensors=tensors, shared=(mine.shared - set(names)) | (theirs.shared & set(names)))


def _spread(cohort: Cohort, part: Prefix) -> Cohort:
    """`cohort` with the shared tensors of a part as one row per client."""
    names = {name for name in cohort.shared if in_part(name, part)}
    copies = {name: cohort.tensors[name].repeat_interleave(len(cohort.ids), 0) for name in names}
    return dataclasses.replace(cohort, tensors={**cohort.tensors, **copies}, shared=cohort.shared - names)


def average(pop: Population, part: Prefix, weights: Tensor) -> dict[str, Tensor]:
    """Weighted mean over the clients of every tensor of a part, buffers included.

    Args:
        pop: K clients with own rows of the part; their cohorts agree in its shapes.
        part: prefix or prefixes.
        weights: `[K]`, in the order of `pop.ids`, summing to 1.

    Returns:
        name -> `[1, ...]`, ready for `Population.share`.
    """
    sums: dict[str, Tensor] = {}
    for cohort in pop.cohorts:
        mine = weights[torch.as_tensor(pop.at(cohort), device=weights.device)]
        for name, t in cohort.tensors.items():
            if in_part(name, part):
                if not t.is_floating_point():  # an index table or the like: the same for all
                    sums[name] = t[:1]
                    continue
                term = torch.tensordot(mine.to(t.dtype), t, dims=1).unsqueeze(0)
                sums[name] = sums[name] + term if name in sums else term
    return sums
