"""Populations: every quantity that clients hold is one tensor with a leading client axis.

Legend: K clients in a population, n of them in one cohort. A part of a model is named by a prefix of its parameters
that ends in a dot (`"encoder."`, `"head.0."`), by the whole name of one, or by several of these.

Populations are values: no operation changes one in place.

During training a cohort is a stack of tensors; in a State it is a row store. `select` loads rows, `put` writes them
back. `derive` computes models from others for the clients that are read, so no K of them are ever in memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from semcom.engine.host.sending import send_to_device
from semcom.engine.store.rows import Rows
from semcom.models.frozen import find_frozen

Prefix = str | Sequence[str]
AT_ONCE = 64
"""The largest number of clients with models in memory at once in a pass over all of them."""


def in_part(name: str, part: Prefix) -> bool:
    """Check whether a tensor's name belongs to a part: one or several prefixes and names; `""` is everything."""
    parts = (part,) if isinstance(part, str) else part
    return name in parts or name.startswith(tuple(p for p in parts if not p or p.endswith(".")))


def find_untrained(cohort: AnyCohort, train: Prefix) -> frozenset[str]:
    """Find the shared tensors of a cohort that stay so while some parts are trained."""
    frozen = find_frozen(cohort.network)
    return frozenset(name for name in cohort.shared if name in frozen or not in_part(name, train))


def list_trained_parameters(network: nn.Module, train: Prefix) -> list[str]:
    """List the parameters of a network that learn while some parts are trained."""
    return [name for name, p in network.named_parameters() if p.requires_grad and in_part(name, train)]


@dataclass(frozen=True)
class Order:
    """Some clients of stacks, in an order of their own: their positions, which go to a device once for all stacks.

    Attributes:
        rows: the positions, on the host, `[n]`.
        device: of the stacks.
    """

    rows: np.ndarray
    device: torch.device

    def __call__(self, stack: Tensor) -> Tensor:
        """Select these clients of a stack, `[K, ...] -> [n, ...]`; all of them, in its order, are the stack itself."""
        return stack if self.is_whole(len(stack)) else stack.index_select(0, self.index)

    @cached_property
    def index(self) -> Tensor:
        """The positions on the device."""
        return send_to_device(torch.from_numpy(self.rows), self.device)

    def copy(self, stack: Tensor) -> Tensor:
        """Copy these clients of a stack."""
        return stack.clone() if self.is_whole(len(stack)) else self(stack)

    def is_whole(self, n: int) -> bool:
        """True if these are all of n clients, in order."""
        return len(self.rows) == n and bool((self.rows == np.arange(n)).all())


@dataclass(frozen=True)
class Cohort:
    """Clients with the same architecture, as stacks.

    Attributes:
        network: the architecture, on the meta device: it holds no weights.
        tensors: parameters and buffers by name, `[n, ...]`; `[1, ...]` if shared.
        ids: client ids in the order of the stacks, ascending, `[n]`.
        shared: names of the tensors that all clients have in common.
    """

    network: nn.Module
    tensors: dict[str, Tensor]
    ids: np.ndarray
    shared: frozenset[str] = frozenset()

    @property
    def common(self) -> dict[str, Tensor]:
        """The tensors that all clients share, `[1, ...]`."""
        return {name: self.tensors[name] for name in self.shared}

    @property
    def device(self) -> torch.device:
        """The device of the tensors."""
        return next(iter(self.tensors.values())).device

    def dense(self) -> Cohort:
        """Return the cohort itself, which is made of stacks already."""
        return self

    def select(self, ids: np.ndarray) -> Cohort:
        """Select the `ids` that are in this cohort; all of them are the cohort itself."""
        keep = find_common_clients(ids, self.ids)
        if len(keep) == len(self.ids):
            return self
        at = self._at(keep)
        picked = {name: t if name in self.shared else at(t) for name, t in self.tensors.items()}
        return dataclasses.replace(self, tensors=picked, ids=keep)

    def narrow(self, ids: np.ndarray) -> Cohort:
        """Return the cohort of those `ids` that are in this one, as `select` does."""
        return self.select(ids)

    def list_alike(self) -> np.ndarray:
        """List the clients with one and the same model: all clients if they share all tensors, otherwise no client."""
        return self.ids if self.tensors.keys() <= self.shared else self.ids[:0]

    def put(self, other: Cohort) -> Cohort:
        """Replace the own tensors of `other`'s clients; shared tensors stay."""
        at = self._at(other.ids)
        whole = len(other.ids) == len(self.ids)
        replaced = dict(self.tensors)
        for name, t in self.tensors.items():
            if name not in self.shared:
                new = other.tensors[name].expand(len(other.ids), *t.shape[1:])
                replaced[name] = new.clone() if whole else t.clone().index_copy_(0, at.index, new)
        return dataclasses.replace(self, tensors=replaced)

    def share(self, values: Mapping[str, Tensor]) -> Cohort:
        """Give all clients the tensors in `values`, `[1, ...]`, in common."""
        tensors = {**self.tensors, **{name: t.clone() for name, t in values.items()}}
        return dataclasses.replace(self, tensors=tensors, shared=self.shared | set(values))

    def counts(self, part: Prefix) -> int:
        """Count the numbers in a part of one model."""
        return sum(t[0].numel() for name, t in self.tensors.items() if in_part(name, part))

    def _at(self, ids: np.ndarray) -> Order:
        return Order(np.searchsorted(self.ids, ids), self.device)


@dataclass(frozen=True)
class StoredCohort:
    """A cohort in a State: own tensors as versioned rows, which are read when they are asked for.

    Attributes:
        network, ids: as of a `Cohort`.
        own: the rows.
        common: tensors that all clients share, `[1, ...]`, also in place of rows' tensors of these names.
        device: where rows that are asked for go.
    """

    network: nn.Module
    own: Rows
    common: dict[str, Tensor]
    ids: np.ndarray
    device: torch.device

    @property
    def shared(self) -> frozenset[str]:
        """The names of the tensors that all clients have in common."""
        return frozenset(self.common)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The tensors by name, every row read: `[n, ...]`, `[1, ...]` for the shared ones."""
        return self.dense().tensors

    def dense(self) -> Cohort:
        """Load all clients as stacks."""
        return self._gather(self.ids)

    def select(self, ids: np.ndarray) -> Cohort:
        """Load the `ids` that are in this cohort as stacks."""
        return self._gather(find_common_clients(ids, self.ids))

    def narrow(self, ids: np.ndarray) -> StoredCohort:
        """Return the cohort of those `ids` that are in this one, at rest."""
        return dataclasses.replace(self, ids=find_common_clients(ids, self.ids))

    def list_alike(self) -> np.ndarray:
        """List the clients with one and the same model: those with rows still at their common beginning, `[n]`."""
        if self.own.layout.places.keys() <= self.shared:
            return self.ids
        if not self.own.alike:
            return self.ids[:0]
        return np.setdiff1d(self.ids, np.fromiter(self.own.changed, dtype=self.ids.dtype), assume_unique=True)

    def put(self, other: Cohort) -> StoredCohort:
        """Write the clients of `other` as the newest version of their rows; shared tensors stay."""
        if not self.own.layout.places:
            return self
        return dataclasses.replace(self, own=self.own.replace(other.ids, other.tensors))

    def share(self, values: Mapping[str, Tensor]) -> StoredCohort:
        """Give all clients the tensors in `values`, `[1, ...]`, in common."""
        return dataclasses.replace(self, common={**self.common, **{name: t.clone() for name, t in values.items()}})

    def counts(self, part: Prefix) -> int:
        """Count the numbers in a part of one model."""
        places = self.own.layout.places.items()
        own = sum(shape.numel() for name, (_, shape, _) in places if in_part(name, part) and name not in self.common)
        return own + sum(t.numel() for name, t in self.common.items() if in_part(name, part))

    def _gather(self, ids: np.ndarray) -> Cohort:
        own = self.own.gather(ids, self.device)
        return Cohort(self.network, {**own, **self.common}, ids, self.shared)


@dataclass(frozen=True)
class DerivedCohort:
    """A cohort that a function makes of another one, computed for the clients that are read.

    Attributes:
        base: the other cohort, at rest.
        function: makes the models, of stacks of any of the clients.
        alike: whether equal models give equal ones, whoever has them.
        first: the first client, computed: it has the network and the names of shared tensors.
    """

    base: StoredCohort | DerivedCohort
    function: Callable[[Cohort], Cohort]
    alike: bool
    first: Cohort

    @staticmethod
    def of(base: StoredCohort | DerivedCohort, function: Callable[[Cohort], Cohort], alike: bool) -> DerivedCohort:
        """Derive a cohort from another by a function."""
        return DerivedCohort(base, function, alike, function(base.select(base.ids[:1])))

    @property
    def network(self) -> nn.Module:
        """The architecture, on the meta device."""
        return self.first.network

    @property
    def ids(self) -> np.ndarray:
        """The client ids, ascending, `[n]`."""
        return self.base.ids

    @property
    def device(self) -> torch.device:
        """The device of the tensors."""
        return self.base.device

    @property
    def shared(self) -> frozenset[str]:
        """The names of the tensors that all clients have in common."""
        return self.first.shared

    @property
    def common(self) -> dict[str, Tensor]:
        """The tensors that all clients share, `[1, ...]`."""
        return self.first.common

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The tensors by name, every client's computed: `[n, ...]`, `[1, ...]` for the shared ones."""
        return self.dense().tensors

    def dense(self) -> Cohort:
        """Compute all clients, as stacks."""
        return self.select(self.ids)

    def select(self, ids: np.ndarray) -> Cohort:
        """Compute those `ids` that are in this cohort, as stacks."""
        return self.function(self.base.select(ids))

    def narrow(self, ids: np.ndarray) -> DerivedCohort:
        """Return the cohort of those `ids` that are in this one; nothing is computed."""
        return dataclasses.replace(self, base=self.base.narrow(ids))

    def list_alike(self) -> np.ndarray:
        """List the clients with one and the same model, `[n]`."""
        return self.base.list_alike() if self.alike else self.ids[:0]

    def put(self, other: Cohort) -> Cohort:
        """Compute all clients, as stacks, and put those of `other` in their places."""
        return self.dense().put(other)

    def share(self, values: Mapping[str, Tensor]) -> DerivedCohort:
        """Give all clients the tensors in `values`, `[1, ...]`, in common."""
        return DerivedCohort.of(self, lambda cohort: cohort.share(values), alike=True)

    def counts(self, part: Prefix) -> int:
        """Count the numbers in a part of one model."""
        return self.first.counts(part)


AnyCohort = Cohort | StoredCohort | DerivedCohort


@dataclass(frozen=True)
class Population:
    """Models of K clients, one cohort per architecture. Results per client are ordered by `ids`."""

    cohorts: tuple[AnyCohort, ...]

    @cached_property
    def ids(self) -> np.ndarray:
        """The client ids, ascending, `[K]`."""
        return self.cohorts[0].ids if len(self.cohorts) == 1 else np.sort(np.concatenate([c.ids for c in self.cohorts]))

    def at(self, cohort: AnyCohort) -> np.ndarray:
        """Find the positions of a cohort's clients in `ids`."""
        return np.searchsorted(self.ids, cohort.ids)

    def select(self, ids: np.ndarray) -> Population:
        """Select some clients as a population of stacks, without cohorts that have none of them."""
        picked = (c.select(ids) for c in self.cohorts)
        return Population(tuple(c for c in picked if len(c.ids)))

    def narrow(self, ids: np.ndarray) -> Population:
        """Select some clients as `select` does, but leave rows at rest."""
        picked = (c.narrow(ids) for c in self.cohorts)
        return Population(tuple(c for c in picked if len(c.ids)))

    def pieces(self) -> Iterator[Population]:
        """Yield all clients, at most `AT_ONCE` at a time, as stacks."""
        yield from (self.select(self.ids[i : i + AT_ONCE]) for i in range(0, len(self.ids), AT_ONCE))

    def derive(self, function: Callable[[Population], Population], alike: bool = True) -> Population:
        """Derive a population from this one by a function, which runs for clients when they are read.

        So a view that is derived from K models never has all of them in memory.

        Args:
            function: function from the models of some clients, as stacks, to their new models. It treats each client by
                itself, and is called whenever clients are read.
            alike: whether equal models give equal models; False if the function also uses a client's data, for
                instance.

        Example:
            >>> import semcom
            >>> result = semcom.run(semcom.RunConfig("local", clients=2, train=semcom.TrainConfig(rounds=1)))
            >>> models = result.views["personal"].population
            >>> halved = models.derive(lambda some: some.replaced({n: t / 2 for n, t in some.named("head.").items()}))
            >>> bool((2 * halved.named()["head.weight"] == models.named()["head.weight"]).all())
            True
        """

        def change(cohort: Cohort) -> Cohort:
            with torch.enable_grad():  # the reader may need no gradients where the function takes a step along one
                (changed,) = function(Population((cohort,))).stacks()
            return changed

        return Population(
            tuple(change(c) if isinstance(c, Cohort) else DerivedCohort.of(c, change, alike) for c in self.cohorts)
        )

    def put(self, other: Population) -> Population:
        """Write the clients of `other` back; shared tensors stay.

        Raises:
            ValueError: `other` has a cohort that this population has not.
        """
        by_network = {id(c.network): c for c in other.cohorts}
        if not by_network.keys() <= {id(c.network) for c in self.cohorts}:
            raise ValueError(
                "clients of another population: take those that `select` gives of this one, or of a version of it"
            )
        return Population(
            tuple(c.put(by_network[id(c.network)].dense()) if id(c.network) in by_network else c for c in self.cohorts)
        )

    def share(self, values: Mapping[str, Tensor]) -> Population:
        """Give all clients the tensors in `values`, `[1, ...]`, in common."""
        return Population(tuple(c.share(values) for c in self.cohorts))

    def take(self, part: Prefix, other: Population) -> Population:
        """Take a part (own or shared) from `other`, which has the same cohorts."""
        pairs = zip(self.cohorts, other.cohorts, strict=True)
        return Population(tuple(_take_cohort(mine.dense(), theirs.dense(), part) for mine, theirs in pairs))

    def spread(self, part: Prefix = "") -> Population:
        """Copy a part's shared tensors for each client."""
        return Population(tuple(_spread_cohort(c, part) for c in self.stacks()))

    def numbers(self, part: Prefix) -> np.ndarray:
        """Count the numbers (parameters and buffers) of a part, per client, `[K]`."""
        counts = np.zeros(len(self.ids), dtype=np.int64)
        for c in self.cohorts:
            counts[self.at(c)] = c.counts(part)
        return counts

    def parameters(self, part: Prefix = "") -> tuple[str, ...]:
        """List the names of a part's parameters (not buffers) in the network's order, without frozen ones.

        Raises:
            ValueError: the clients have several architectures.
        """
        return tuple(list_trained_parameters(self._only().network, part))

    def moving(self, part: Prefix) -> Prefix:
        """Leave what is frozen out of a part, as the names of all else; without anything frozen it is the part itself.

        What is frozen is the same for all, and stays so: it is neither sent nor averaged.
        """
        frozen = frozenset[str]().union(*(find_frozen(c.network) for c in self.cohorts))
        if not any(in_part(name, part) for name in frozen):
            return part
        names = dict.fromkeys(name for c in self.cohorts for name in c.network.state_dict())
        return tuple(name for name in names if name not in frozen and in_part(name, part))

    def named(self, part: Prefix = "") -> dict[str, Tensor]:
        """Return a part's tensors by name, `[K, ...]`, shared tensors repeated.

        Raises:
            ValueError: the clients have several architectures.
        """
        cohort = self._only().dense()
        k = len(cohort.ids)
        return {name: t.expand(k, *t.shape[1:]) for name, t in cohort.tensors.items() if in_part(name, part)}

    def replaced(self, values: Mapping[str, Tensor]) -> Population:
        """Replace the clients' own tensors by `values`, `[K, ...]` by name.

        Raises:
            ValueError: the clients have several architectures.
        """
        cohort = self._only().dense()
        # clone: `values` may be expanded, with one memory for all clients, or be somebody else's.
        tensors = {**cohort.tensors, **{name: t.clone() for name, t in values.items()}}
        return Population((dataclasses.replace(cohort, tensors=tensors, shared=cohort.shared - set(values)),))

    def one(self, part: Prefix) -> Population:
        """Copy a part's shared tensors as a population of one: the base station's own.

        Raises:
            ValueError: the clients do not share the part.
        """
        cohort = self.cohorts[0]
        inside = [name for name in cohort.network.state_dict() if in_part(name, part)]
        names = [name for name in inside if name in cohort.shared]  # in this order, not in that of a set
        own = [name for name in inside if name not in cohort.shared]
        if own or not names:
            raise ValueError(f"the clients do not share {own[0] if own else part}")
        shared = cohort.select(cohort.ids[:1]).tensors
        return Population((Cohort(cohort.network, {name: shared[name].clone() for name in names}, np.array([0])),))

    def tensors(self) -> Iterator[Tensor]:
        """Yield all tensors, cohort by cohort."""
        for c in self.cohorts:
            yield from c.tensors.values()

    def _only(self) -> AnyCohort:
        """Return the only cohort. Raises ValueError if there are several."""
        if len(self.cohorts) != 1:
            raise ValueError(f"{len(self.cohorts)} architectures have no tensors in common")
        return self.cohorts[0]

    def stacks(self) -> tuple[Cohort, ...]:
        """Return the cohorts as stacks."""
        return tuple(c.dense() for c in self.cohorts)


def find_common_clients(ids: np.ndarray, among: np.ndarray) -> np.ndarray:
    """Find the `ids` that are `among` ascending ones, ascending; the cost is that of `ids`."""
    ids = np.unique(ids)
    at = np.searchsorted(among, ids)
    return ids[among[np.minimum(at, len(among) - 1)] == ids]


def merge_alike(cohort: AnyCohort, ids: np.ndarray) -> Cohort:
    """Merge clients of `cohort.list_alike()` to a cohort in which they share all tensors; only one model is read."""
    first = cohort.select(ids[:1])
    return dataclasses.replace(first, ids=ids, shared=frozenset(first.tensors))


def _take_cohort(mine: Cohort, theirs: Cohort, part: Prefix) -> Cohort:
    names = [name for name in mine.tensors if in_part(name, part)]
    tensors = {**mine.tensors, **{name: theirs.tensors[name].clone() for name in names}}
    return dataclasses.replace(mine, tensors=tensors, shared=(mine.shared - set(names)) | (theirs.shared & set(names)))


def _spread_cohort(cohort: Cohort, part: Prefix) -> Cohort:
    names = {name for name in cohort.shared if in_part(name, part)}
    copies = {name: cohort.tensors[name].repeat_interleave(len(cohort.ids), 0) for name in names}
    return dataclasses.replace(cohort, tensors={**cohort.tensors, **copies}, shared=cohort.shared - names)


def average(pop: Population, part: Prefix, weights: Tensor) -> dict[str, Tensor]:
    """Average every tensor of a part over the clients with weights, buffers included; what is frozen is left out.

    Args:
        pop: K clients, each with its own tensors of the part; their cohorts agree in its shapes.
        part: prefix or prefixes.
        weights: `[K]`, in the order of `pop.ids`, summing to 1.

    Returns:
        name -> `[1, ...]`, ready for `Population.share`.

    Example:
        >>> import semcom, torch
        >>> result = semcom.run(semcom.RunConfig("local", clients=2, train=semcom.TrainConfig(rounds=1)))
        >>> models = result.views["personal"].population
        >>> mean = semcom.average(models, "head.", torch.tensor([0.25, 0.75]))
        >>> {name: tuple(tensor.shape) for name, tensor in mean.items()}
        {...(1, 10, 64)...}
    """
    sums, part = dict[str, Tensor](), pop.moving(part)
    for cohort in pop.stacks():
        mine = Order(pop.at(cohort), weights.device)(weights)
        for name, t in cohort.tensors.items():
            if in_part(name, part):
                if not t.is_floating_point():  # an index table or the like: the same for all
                    sums[name] = t[:1]
                    continue
                term = torch.tensordot(mine.to(t.dtype), t, dims=1).unsqueeze(0)
                sums[name] = sums[name] + term if name in sums else term
    return sums


def blend(one: Population, other: Population, weight: float | Tensor, part: Prefix = "") -> Population:
    """Compute weight * one + (1 - weight) * other in a part, buffers included; the rest is that of `one`.

    Args:
        one, other: K clients with the same cohorts.
        part: prefix or prefixes.
        weight: a number, with which shared tensors stay shared if both share them, or `[K]`, one per client.

    Returns:
        a population of stacks: a State that is to hold it at rest takes it with `put` or `share`.
    """
    pairs, part = zip(one.cohorts, other.cohorts, strict=True), one.moving(part)
    return Population(
        tuple(_blend_cohorts(a.dense(), b.dense(), _select_weights(weight, one.at(a)), part) for a, b in pairs)
    )


def mix(pop: Population, weights: Tensor, part: Prefix = "") -> Population:
    """Replace client i's part by the sum over j of weights[i, j] times client j's, buffers included.

    Args:
        pop: K clients of one architecture.
        weights: `[K, K]`.
        part: prefix or prefixes; the rest stays.

    Returns:
        a population of stacks, as `blend` does.

    Raises:
        ValueError: the clients have several architectures.
    """
    stacks = {name: t for name, t in pop.named(pop.moving(part)).items() if t.is_floating_point()}
    return pop.replaced({name: torch.tensordot(weights.to(t), t, dims=1) for name, t in stacks.items()})


def gram(pop: Population, part: Prefix = "") -> Tensor:
    """Compute the inner products of the clients' parameters of a part, float64 `[K, K]`, for cosines and distances.

    In float64, so that the distance of two models that are nearly equal survives the difference of large products.

    Raises:
        ValueError: the clients have several architectures.
    """
    rows = [t.flatten(1).double() for t in pop.named(pop.parameters(part)).values()]
    return torch.stack([t @ t.T for t in rows]).sum(0)


def _select_weights(weight: float | Tensor, rows: np.ndarray) -> float | Tensor:
    return Order(rows, weight.device)(weight) if isinstance(weight, Tensor) and weight.dim() else weight


def _blend_cohorts(one: Cohort, other: Cohort, weight: float | Tensor, part: Prefix) -> Cohort:
    each = isinstance(weight, Tensor) and weight.dim() > 0
    tensors, shared = dict(one.tensors), set(one.shared)
    for name, mine in one.tensors.items():
        if in_part(name, part) and mine.is_floating_point():
            theirs = other.tensors[name]
            w = weight.to(mine).view(-1, *[1] * (mine.dim() - 1)) if isinstance(weight, Tensor) and each else weight
            tensors[name] = w * mine + (1 - w) * theirs
            if each or name not in other.shared:
                shared -= {name}
    return dataclasses.replace(one, tensors=tensors, shared=frozenset(shared))
