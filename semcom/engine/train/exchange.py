"""The exchange between the ranks of a run after a phase of training, so that each has all of its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from semcom.engine.host.ranks import Team
from semcom.engine.store.population import (
    Cohort,
    Order,
    Population,
    Prefix,
    find_common_clients,
    find_untrained,
    in_part,
)
from semcom.engine.store.rows import Layout


@dataclass(frozen=True)
class Done:
    """The result of a phase: models, logged means `[n]`, carried stacks, and the clients whose numbers are all finite.

    A network of the base station may have the state of its optimiser in it.
    """

    trained: Population
    log: dict[str, Tensor]
    carried: dict[str, Tensor]
    finite: Tensor
    optimizer_state: Population = Population(())


def merge_ranks(pop: Population, train: Prefix, done: Done, parts: Sequence[np.ndarray], team: Team) -> Done:
    """Merge the results of all ranks, each of which trained the clients of `pop` at its positions in `parts`."""
    device = done.finite.device
    small = team.exchange({kind: _copy_to_host(values) for kind, values in _list_small_values(done).items()})
    back = Order(np.argsort(np.concatenate(parts)), device)

    def join(kind: str) -> dict[str, Tensor]:
        names = max((list(values[kind]) for values in small), key=len)  # a rank without clients has none
        stacks = {name: [values[kind][name] for values in small if name in values[kind]] for name in names}
        return {name: back(torch.cat(stack).to(device)) for name, stack in stacks.items()}

    own = {id(c.network): c for c in done.trained.stacks()}
    cohorts = tuple(_exchange_cohort(c, own.get(id(c.network)), train, pop.ids, parts, team) for c in pop.stacks())
    return Done(Population(cohorts), join("log"), join("carried"), join("finite")["finite"])


def _list_small_values(done: Done) -> dict[str, dict[str, Tensor]]:
    return {"log": done.log, "carried": done.carried, "finite": {"finite": done.finite}}


def _copy_to_host(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: t.cpu() for name, t in values.items()}


def _exchange_cohort(
    cohort: Cohort, mine: Cohort | None, train: Prefix, ids: np.ndarray, parts: Sequence[np.ndarray], team: Team
) -> Cohort:
    """Join the parts of a cohort that the ranks have trained; frozen tensors are the same on all of them."""
    shared = find_untrained(cohort, train)
    layout = Layout.of({n: t[0] for n, t in cohort.tensors.items() if n not in shared and in_part(n, train)})
    owners = [find_common_clients(ids[part], cohort.ids) for part in parts]
    n = len(owners[team.rank])
    records = cohort.tensors[next(iter(cohort.tensors))].new_empty(0, layout.size, dtype=torch.uint8)
    if mine is not None:
        records = layout.pack({name: mine.tensors[name] for name in layout.places}, n)
    everyone = torch.cat(team.gather(records, [len(owned) for owned in owners]))
    back = Order(np.argsort(np.concatenate(owners)), everyone.device)
    return replace(cohort, tensors={**cohort.tensors, **layout.unpack(back(everyone))}, shared=shared)
