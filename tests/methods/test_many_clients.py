"""A round costs what its participants cost, and a test what its chunk costs: no K models are ever in memory at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from semcom.engine.store.population import AT_ONCE, Population
from semcom.engine.world import World
from semcom.methods.registry import METHODS
from semcom.runs.result.evaluation import evaluate_views
from tests.methods.arms import ARMS
from tests.worlds import gap, tensors, world

K, ACTIVE = 130, 3


class Stacks(TorchDispatchMode):
    """Notes the largest number of models of which a convolution's weights are a stack in memory of their own.

    Args:
        w: the run whose models they are.
    """

    def __init__(self, w: World) -> None:
        super().__init__()
        self.networks, self.most, self.where = w._initial.networks, 0, ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        weights = {t.shape for network in self.networks.values() for t in network.state_dict().values() if t.dim() > 2}
        for t in (t for t in tree_leaves(found) if isinstance(t, torch.Tensor) and t.dim() > 3 and not t.is_meta):
            if t.shape[1:] in weights and t.untyped_storage().nbytes() >= t.numel() * t.element_size():
                self.most, self.where = max((self.most, self.where), (len(t), str(func)))
        return found


def many(arm: str, **overrides: Any) -> World:
    """Many clients with two images each to train and one to test; three take part in a round."""
    train = {"participation": ACTIVE / K, **overrides.pop("train", {})}
    if arm == "repper":
        train |= {"eval_every": 10}
    return world(arm, sizes=(2,) * K, tests=(1,) * K, chunk=4, train=train, **overrides)


@pytest.mark.parametrize("arm", ARMS)
def test_no_method_has_all_models_in_memory(arm: str) -> None:
    """In two rounds, their tests, and the last stage: at most `AT_ONCE`, which is far below K."""
    w = many(arm)
    with Stacks(w) as stacks:
        method = METHODS.get(arm)(w.config.hyper)
        state = method.setup(w)
        for r in (1, 2):
            w.session.tally.begin(r)
            state = method.round(state, w)
        evaluate_views(w.session, method.views(state, w))
        w.session.tally.begin(3)
        evaluate_views(w.session, method.finish(state, w) or {})
    assert 0 < stacks.most <= AT_ONCE < K / 2, stacks.where


def test_a_view_of_all_models_is_noticed() -> None:
    w = many("apfl")
    with Stacks(w) as stacks:
        pop = w.population()
        pop.replaced({name: 2 * t for name, t in pop.named("encoder.").items()})
    assert stacks.most == K


def doubled(some: Population) -> Population:
    return some.replaced({name: 2 * t for name, t in some.named("head.").items()})


@pytest.mark.parametrize("shared", [(), ("encoder.",), ("encoder.", "head.")])
def test_what_is_derived_is_what_the_function_gives(shared: tuple[str, ...]) -> None:
    w = world("fedavg", sizes=(2,) * 5)
    pop = w.population(shared=shared)
    pop = pop.put(w.fit(pop.select(np.array([1, 3])), METHODS.get("fedavg")(w.config.hyper).objective).models)
    derived, whole = pop.derive(doubled), doubled(Population(pop.stacks()))
    assert gap(derived, whole) == 0
    (cohort,), (dense,) = derived.cohorts, whole.cohorts
    assert cohort.shared == dense.shared and cohort.common.keys() == dense.common.keys()
    assert (derived.numbers("") == whole.numbers("")).all()
    assert gap(derived.select(np.array([3, 4])), whole.select(np.array([3, 4]))) == 0
    assert gap(derived.narrow(np.array([1, 2])), whole.select(np.array([1, 2]))) == 0
    assert gap(derived.derive(doubled), doubled(whole)) == 0
    values = {name: t[:1] for name, t in whole.named("encoder.").items()}
    assert gap(derived.share(values), whole.share(values)) == 0
    other = whole.select(np.array([2]))
    assert gap(derived.put(other), whole.put(other)) == 0


@pytest.mark.parametrize("init", ["common", "client"])
@pytest.mark.parametrize("arm", ["ditto", "apfl", "fedcosr", "fedrod", "fedproto", "fedala"])
def test_clients_that_have_not_trained_are_tested_as_if_they_had_models_of_their_own(arm: str, init: str) -> None:
    """The same views, whose models lie in memory as stacks, give the same numbers."""
    w = world(arm, sizes=(2,) * 9, tests=(3,) * 9, train={"participation": 1 / 3}, model={"init": init}, chunk=2)
    method = METHODS.get(arm)(w.config.hyper)
    state = method.round(method.setup(w), w)
    views = method.views(state, w)
    dense = {
        name: type(view)(Population(view.population.stacks()), view.scores, view.per_client)
        for name, view in views.items()
    }
    assert evaluate_views(w.session, views) == evaluate_views(w.session, dense)


def test_models_that_come_some_at_a_time_are_held() -> None:
    w = world("local", sizes=(2,) * 5)
    pop = w.population(shared=("head.",))
    parts = [pop.select(np.array([0, 3])), pop.select(np.array([1, 2, 4]))]
    held = w.hold(iter(parts))
    assert tensors(held).keys() == tensors(pop).keys() and gap(held, Population(pop.stacks())) == 0
