"""Populations as values: rows, put, share, take, spread, numbers, average, and the initial models."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from semcom.engine.host.ranks import Team
from semcom.engine.store.population import Cohort, Population, StoredCohort, average, find_common_clients, in_part
from semcom.engine.store.rows import Disk
from semcom.engine.train import initial as module
from semcom.engine.train.context import Context
from semcom.engine.train.forward import Batch, StackedModel
from semcom.methods.base import task_loss
from semcom.models.batchnorm import BatchNorm
from semcom.models.split import SplitModel
from tests import worlds
from tests.worlds import mapped

BOTH = ("encoder.", "head.")
NETWORK = nn.Identity()
OTHER = nn.Identity()


def ids(*values: int) -> np.ndarray:
    return np.array(values)


def stack(clients: np.ndarray, *shape: int, offset: float = 0.0) -> Tensor:
    """Numbers that tell client and place: 100 k + place + offset."""
    places = torch.arange(int(np.prod(shape)), dtype=torch.float64).view(shape)
    return torch.stack([100.0 * int(k) + places + offset for k in clients])


def mixed(shared: bool = False) -> Population:
    """Clients 0, 2, 3 with one encoder, 1 and 4 with another; a head for all, or of their own."""
    cohorts = []
    for network, clients, width in ((NETWORK, ids(0, 2, 3), 2), (OTHER, ids(1, 4), 3)):
        head = stack(ids(0) if shared else clients, 2, 2, offset=0.5)
        tensors = {"encoder.w": stack(clients, width), "head.w": head}
        cohorts.append(Cohort(network, tensors, clients, frozenset({"head.w"}) if shared else frozenset()))
    return Population(tuple(cohorts))


def plus(pop: Population, amount: float) -> Population:
    return mapped(pop, lambda name, t: t + amount)


def one(pop: Population, k: int, name: str) -> Tensor:
    return worlds.client(pop, k)[name]


def storages(tensors: Mapping[str, Tensor]) -> set[int]:
    return {t.untyped_storage().data_ptr() for t in tensors.values()}


def test_parts_are_named_by_prefixes() -> None:
    assert in_part("encoder.0.weight", "encoder.") and not in_part("head.0.weight", "encoder.")
    assert in_part("head.0.weight", BOTH) and in_part("anything", "") and not in_part("anything", ())
    assert in_part("head.0.weight", ("encoder.", "head.0.weight")), "without a dot it is the name of a tensor"
    assert not in_part("head.0.weight_g", "head.0.weight")


def test_ids_and_positions() -> None:
    pop = mixed()
    assert pop.ids.tolist() == [0, 1, 2, 3, 4]
    assert [pop.at(c).tolist() for c in pop.cohorts] == [[0, 2, 3], [1, 4]]
    part = pop.select(ids(4, 2, 3))
    assert part.ids.tolist() == [2, 3, 4] and [part.at(c).tolist() for c in part.cohorts] == [[0, 1], [2]]


@pytest.mark.parametrize("shared", [False, True])
def test_rows(shared: bool) -> None:
    pop = mixed(shared)
    part = pop.select(ids(4, 2))
    assert part.ids.tolist() == [2, 4] and [c.network for c in part.cohorts] == [NETWORK, OTHER]
    assert torch.equal(one(part, 2, "encoder.w"), torch.tensor([200.0, 201.0], dtype=torch.float64))
    assert torch.equal(one(part, 4, "encoder.w"), torch.tensor([400.0, 401.0, 402.0], dtype=torch.float64))
    assert torch.equal(one(part, 4, "head.w"), stack(ids(0 if shared else 4), 2, 2, offset=0.5)[0])
    assert [c.network for c in pop.select(ids(0)).cohorts] == [NETWORK]  # a cohort without a client is left out


@pytest.mark.parametrize("chosen", [(2, 4), (0, 2, 3), (1,), (0, 1, 2, 3, 4)])
@pytest.mark.parametrize("shared", [False, True])
def test_put(chosen: tuple[int, ...], shared: bool) -> None:
    pop = mixed(shared)
    new = plus(pop.select(ids(*chosen)), 1000.0)
    got = pop.put(new)
    assert got.ids.tolist() == [0, 1, 2, 3, 4]
    for k in range(5):
        moved = 1000.0 if k in chosen else 0.0
        assert torch.equal(one(got, k, "encoder.w"), one(pop, k, "encoder.w") + moved)
        assert torch.equal(one(got, k, "head.w"), one(pop, k, "head.w") + (0.0 if shared else moved))
    assert worlds.gap(pop, mixed(shared)) == 0
    for mine, theirs in zip([c for c in got.cohorts if set(c.ids) & set(chosen)], new.cohorts, strict=True):
        assert not storages({n: t for n, t in mine.tensors.items() if n not in mine.shared}) & storages(theirs.tensors)


def test_put_of_a_trained_part_that_is_shared_in_the_other() -> None:
    """Fitting gives own rows; the other way round, a shared tensor is written to every row."""
    got = mixed(shared=False).put(mixed(shared=True).select(ids(0, 3, 1)))
    for k in (0, 1, 3):
        assert torch.equal(one(got, k, "head.w"), stack(ids(0), 2, 2, offset=0.5)[0])
    assert torch.equal(one(got, 2, "head.w"), stack(ids(2), 2, 2, offset=0.5)[0])


def test_share() -> None:
    values = {"head.w": torch.full((1, 2, 2), 7.0, dtype=torch.float64)}
    pop = mixed()
    got = pop.share(values)
    assert all(c.shared == {"head.w"} and c.tensors["head.w"].shape == (1, 2, 2) for c in got.cohorts)
    assert all(torch.equal(one(got, k, "encoder.w"), one(pop, k, "encoder.w")) for k in range(5))
    places = [c.tensors["head.w"].data_ptr() for c in got.cohorts]
    values["head.w"].fill_(-1.0)
    assert all((one(got, k, "head.w") == 7.0).all() for k in range(5)) and len(set(places)) == 2
    assert not pop.cohorts[0].shared and worlds.gap(pop, mixed()) == 0


@pytest.mark.parametrize("shared", [False, True])
def test_take(shared: bool) -> None:
    pop, other = mixed(not shared), plus(mixed(shared), 0.25)
    got = pop.take("head.", other)
    for k in range(5):
        assert torch.equal(one(got, k, "encoder.w"), one(pop, k, "encoder.w"))
        assert torch.equal(one(got, k, "head.w"), one(other, k, "head.w"))
    assert all(c.shared == ({"head.w"} if shared else set()) for c in got.cohorts)
    before = one(got, 3, "head.w").clone()
    for t in other.tensors():
        t.fill_(0.0)
    assert torch.equal(one(got, 3, "head.w"), before)


def test_spread() -> None:
    pop = mixed(shared=True)
    got = pop.spread("head.")
    assert all(not c.shared and c.tensors["head.w"].shape == (len(c.ids), 2, 2) for c in got.cohorts)
    assert all(torch.equal(one(got, k, "head.w"), one(pop, 0, "head.w")) for k in range(5))
    got.cohorts[0].tensors["head.w"][1].fill_(9.0)  # rows are copies of their own
    assert torch.equal(one(got, 0, "head.w"), one(pop, 0, "head.w")) and worlds.gap(pop, mixed(shared=True)) == 0
    assert [c.shared for c in pop.spread("encoder.").cohorts] == [{"head.w"}] * 2


@pytest.mark.parametrize("shared", [False, True])
def test_numbers(shared: bool) -> None:
    pop = mixed(shared)
    assert pop.numbers("encoder.").tolist() == [2, 3, 2, 2, 3]
    assert pop.numbers("head.").tolist() == [4] * 5 and pop.numbers(BOTH).tolist() == [6, 7, 6, 6, 7]
    assert pop.numbers(()).tolist() == [0] * 5
    assert pop.select(ids(1, 2)).numbers(BOTH).tolist() == [7, 6]


def test_average_by_hand() -> None:
    pop, weights = mixed(), np.array([0.1, 0.2, 0.3, 0.15, 0.25])
    got = average(pop, "head.", torch.tensor(weights))
    assert list(got) == ["head.w"] and got["head.w"].shape == (1, 2, 2)
    centre = (weights * 100 * np.arange(5)).sum()  # 0.2*100 + 0.3*200 + 0.15*300 + 0.25*400 = 225
    assert centre == pytest.approx(225.0)
    assert got["head.w"][0].numpy() == pytest.approx(centre + 0.5 + np.arange(4).reshape(2, 2))
    assert average(pop, (), torch.tensor(weights)) == {}


def test_average_of_some_clients_and_no_alias() -> None:
    pop = mixed().select(ids(2, 4))
    got = average(pop, "head.", torch.tensor([0.25, 0.75], dtype=torch.float64))
    assert got["head.w"][0, 0, 0] == 0.25 * 200 + 0.75 * 400 + 0.5
    alone = average(mixed().select(ids(1)), BOTH, torch.ones(1, dtype=torch.float64))
    source = mixed().select(ids(1))
    assert all(torch.equal(alone[n][0], one(source, 1, n)) for n in alone)
    kept = {n: t.clone() for n, t in alone.items()}
    for t in source.tensors():
        t.zero_()
    assert all(torch.equal(alone[n], kept[n]) for n in kept)


def test_weights_follow_the_samples() -> None:
    w = worlds.world(sizes=(7, 5, 3))
    assert w.weights(ids(0, 1, 2)).tolist() == pytest.approx([7 / 15, 5 / 15, 3 / 15])
    assert w.weights(ids(0, 2)).tolist() == pytest.approx([0.7, 0.3])


# -- initial models --------------------------------------------------------------------------------------------------


def test_a_common_start_is_the_same_for_all() -> None:
    pop = worlds.world().population()
    (cohort,) = pop.cohorts
    assert all(torch.equal(t[0], t[k]) for t in cohort.tensors.values() for k in (1, 2)) and not cohort.shared
    assert all(t.shape[0] == 3 and t.dtype == torch.float64 for t in cohort.tensors.values())
    assert all(p.is_meta for p in cohort.network.parameters())
    assert "encoder.1.running_var" in cohort.tensors and not [n for n in cohort.tensors if "num_batches" in n]


def test_own_starts_differ_and_follow_the_client() -> None:
    pop = worlds.world("local", model={"init": "client"}).population()
    weights = pop.cohorts[0].tensors["encoder.0.weight"]
    assert len({float(w.sum()) for w in weights}) == 3
    alone = worlds.world("local", sizes=(4, 4), model={"init": "client"}).population()
    assert torch.equal(alone.cohorts[0].tensors["encoder.0.weight"], weights[:2])  # keyed by the client, not by K
    other = worlds.world("local", model={"init": "client"}, seed=1).population()
    assert not torch.equal(other.cohorts[0].tensors["encoder.0.weight"], weights)


def test_a_shared_part_is_one_row() -> None:
    pop = worlds.world("local", model={"init": "client"}).population(shared=("head.",))
    (cohort,) = pop.cohorts
    assert cohort.shared == {"head.0.weight", "head.0.bias"}
    assert all(len(t) == (1 if n in cohort.shared else 3) for n, t in cohort.tensors.items())
    assert len({float(w.sum()) for w in cohort.tensors["encoder.0.weight"]}) == 3


def test_mixed_encoders_have_the_same_head() -> None:
    w = worlds.world("local", sizes=(7, 5, 3, 4, 2), encoder="test-conv,test-conv-wide")
    pop = w.population()
    assert [c.ids.tolist() for c in pop.cohorts] == [[0, 2, 4], [1, 3]]
    assert [c.tensors["encoder.0.weight"].shape[1] for c in pop.cohorts] == [3, 5]
    heads = [c.tensors["head.0.weight"][0] for c in pop.cohorts]
    assert torch.equal(heads[0], heads[1])
    own = worlds.world("local", sizes=(7, 5, 3), encoder="test-conv,test-conv-wide", model={"init": "client"})
    heads = [c.tensors["head.0.weight"][0] for c in own.population().cohorts]
    assert not torch.equal(heads[0], heads[1])
    alone = worlds.world("local", sizes=(3,), encoder="test-conv,test-conv-wide").population()
    assert [c.ids.tolist() for c in alone.cohorts] == [[0]], "there may be more encoders than clients"


def test_a_network_of_the_base_station() -> None:
    w = worlds.world()
    pop = w.server(lambda: nn.Linear(3, 2), "net")
    again, other = w.server(lambda: nn.Linear(3, 2), "net"), w.server(lambda: nn.Linear(3, 2), "another")
    assert pop.ids.tolist() == [0] and pop.cohorts[0].tensors["weight"].shape == (1, 2, 3)
    assert pop.cohorts[0].tensors["weight"].dtype == torch.float64
    assert worlds.gap(pop, again) == 0 and worlds.gap(pop, other) > 0


# -- at rest ---------------------------------------------------------------------------------------------------------

SUBSET = st.lists(st.integers(0, 4), unique=True, min_size=1).map(lambda k: ids(*k))
Step = tuple[str, np.ndarray, float]
STEP = st.tuples(st.sampled_from(["put", "put shared", "share", "back"]), SUBSET, st.sampled_from([0.5, -3.0]))


@lru_cache(maxsize=8)
def resting(store: str, shared: tuple[str, ...]) -> Population:
    """Clients 0, 2, 4 with one encoder, 1 and 3 with another, each with a start of its own."""
    w = worlds.world(
        "local", sizes=(7, 5, 3, 4, 2), encoder="test-conv,test-conv-wide", model={"init": "client"}, store=store
    )
    return w.population(shared)


def dense(pop: Population) -> Population:
    return Population(pop.stacks())


def alike(one: Population, other: Population) -> bool:
    return (
        np.array_equal(one.ids, other.ids)
        and [c.shared for c in one.cohorts] == [c.shared for c in other.cohorts]
        and [c.network for c in one.cohorts] == [c.network for c in other.cohorts]
        and worlds.gap(one, other) == 0
    )


def changed(pop: Population, step: Step) -> Population:
    what, clients, factor = step
    some = pop.select(clients)
    if what == "put":
        return pop.put(mapped(some, lambda _, t: factor * t))
    if what == "put shared":  # what is one tensor for some becomes a row of each
        return pop.put(
            some.share({n: factor * t[:1] for n, t in some.cohorts[0].tensors.items() if in_part(n, "head.")})
        )
    if what == "share":
        weights = torch.full((len(clients),), factor, dtype=torch.float64)
        return pop.share(average(some.spread(), sorted(pop.cohorts[0].shared), weights))
    return pop.put(some)


@pytest.mark.parametrize("store", ["host", "disk"])
@pytest.mark.parametrize("shared", [(), ("head.",)])
@settings(max_examples=6, deadline=None, derandomize=True)
@given(steps=st.lists(STEP, max_size=6), clients=SUBSET)
def test_at_rest_is_what_stacks_are(
    store: str, shared: tuple[str, ...], steps: list[Step], clients: np.ndarray
) -> None:
    """Whatever is done to both: the same numbers, and earlier versions stay as they were."""
    pops = [resting(store, shared)]
    twins = [dense(pops[0])]
    for step in steps:
        pops.append(changed(pops[-1], step))
        twins.append(changed(twins[-1], step))
    assert all(isinstance(c, StoredCohort) for pop in pops for c in pop.cohorts)
    assert all(isinstance(c, Cohort) for twin in twins for c in twin.cohorts)
    assert all(alike(pop, twin) for pop, twin in zip(pops, twins, strict=True))
    pop, twin, first, first_twin = pops[-1], twins[-1], pops[0], twins[0]
    assert alike(pop.select(clients), twin.select(clients)) and alike(pop.narrow(clients), twin.narrow(clients))
    assert all(isinstance(c, StoredCohort) for c in pop.narrow(clients).cohorts)  # read when asked for
    assert alike(pop.spread("head."), twin.spread("head.")) and alike(plus(pop, 2.0), plus(twin, 2.0))
    assert alike(first.take("head.", pop), first_twin.take("head.", twin))
    assert alike(pop.put(first.select(clients)), twin.put(first_twin.select(clients)))
    for part in ("encoder.", "head.", BOTH, "encoder.1.", ()):
        assert np.array_equal(pop.numbers(part), twin.numbers(part))
        assert np.array_equal(pop.narrow(clients).numbers(part), twin.select(clients).numbers(part))
    assert [c.counts("head.") for c in pop.cohorts] == [c.counts("head.") for c in twin.cohorts]
    weights = torch.arange(1.0, 1 + len(clients), dtype=torch.float64)
    means = average(pop.narrow(clients).spread(), "head.", weights)
    assert all(torch.equal(means[n], t) for n, t in average(twin.select(clients).spread(), "head.", weights).items())


@pytest.mark.parametrize("store", ["host", "disk"])
def test_a_part_that_becomes_common_takes_the_place_of_its_rows(store: str) -> None:
    pop = resting(store, ())
    values = average(pop, "head.", torch.full((5,), 0.2, dtype=torch.float64))
    got, twin = pop.share(values), dense(pop).share(values)
    assert alike(got, twin) and all(isinstance(c, StoredCohort) for c in got.cohorts)
    assert np.array_equal(got.numbers(""), twin.numbers(""))
    moved = plus(got.select(ids(0, 2)).spread("encoder."), 1.0)
    assert alike(got.put(moved), twin.put(moved))


def test_all_in_common_has_no_rows() -> None:
    pop = worlds.world().population(shared=BOTH)
    (cohort,) = pop.cohorts
    assert isinstance(cohort, StoredCohort) and cohort.own.layout.size == 0
    trained = plus(pop.select(ids(0, 2)).spread(), 1.0)
    assert pop.put(trained).cohorts[0] is cohort  # there is nothing to keep
    newest = pop.put(trained).share(average(trained, BOTH, torch.full((2,), 0.5, dtype=torch.float64)))
    assert isinstance(newest.cohorts[0], StoredCohort) and worlds.gap(newest, plus(pop, 1.0)) < 1e-15


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 20), max_size=8), st.sets(st.integers(0, 20), min_size=1))
def test_common_ids(asked: list[int], among: set[int]) -> None:
    assert find_common_clients(ids(*asked).astype(int), np.array(sorted(among))).tolist() == sorted(set(asked) & among)


def test_where_rows_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`auto`: the memory that holds all that can be alive. A cohort's file has the same name wherever others lie."""

    def shelves(store: str, free: int, rounds: int = 2, participation: float = 1.0, ranks: int = 1) -> list[str]:
        monkeypatch.setattr(module, "measure_free_memory", lambda device: free)
        w = worlds.world(
            "local",
            sizes=(7, 5, 3, 4, 2),
            encoder="test-conv,test-conv-wide",
            store=store,
            out=str(tmp_path),
            train={"rounds": rounds, "participation": participation},
            chunk=1,
        )
        w.session.tally.team = Team(size=ranks)
        found = [c.own.shelf for c in w.population().cohorts if isinstance(c, StoredCohort)]
        return [(s.path.name if s.path else "") if isinstance(s, Disk) else "memory" for s in found]

    sizes = [c.own.layout.size for c in resting("host", ()).cohorts if isinstance(c, StoredCohort)]
    assert sizes[0] < sizes[1]
    files = ["rows-1.bin", "rows-2.bin"]
    assert shelves("host", 0) == shelves("device", 0) == ["memory", "memory"] and shelves("disk", 10**9) == files
    enough = [3 * 2 * 5 * size for size in sizes]  # two versions of five clients, in a third of what is free
    assert shelves("auto", enough[1]) == ["memory", "memory"] and shelves("auto", enough[0] - 1) == files
    assert shelves("auto", enough[1] - 1) == ["memory", "rows-2.bin"]
    assert shelves("auto", 2 * enough[1], ranks=2) == ["memory", "memory"]  # each process has all rows
    assert shelves("auto", 2 * enough[0] - 1, ranks=2) == files
    few = 3 * 2 * 2 * sizes[1]  # two clients a round, one round: only those can ever have trained
    assert shelves("auto", few, 1, 0.4) == ["memory", "memory"] and shelves("auto", few, 2, 0.4) != ["memory", "memory"]


@pytest.mark.parametrize("init", ["common", "client"])
def test_clients_share_parts_of_parts(init: str) -> None:
    """A layer, a tensor by its whole name; what is left has the weights that it has where nothing is shared."""
    w = worlds.world("local", model={"init": init})
    own, shared = (w.population(shared=s).stacks()[0] for s in ((), ("encoder.0.", "head.0.bias")))
    assert shared.shared == {"encoder.0.weight", "head.0.bias"}
    common = worlds.world().population(shared="").stacks()[0].tensors
    for name, t in shared.tensors.items():
        assert torch.equal(t, common[name] if name in shared.shared else own.tensors[name])
    with pytest.raises(ValueError, match="'head.1.' is no part that clients can share: no tensor's name begins so"):
        w.population(shared=("encoder.", "head.1."))


def test_what_is_outside_of_a_kind_of_layer() -> None:
    """All tensors of the model but those inside BatchNorm, whose running statistics are among them."""
    names = worlds.world().outside(BatchNorm)
    assert names == ("encoder.0.weight", "encoder.3.weight", "head.0.weight", "head.0.bias")


def test_models_have_further_parts() -> None:
    """With the weights that a function gives them: here a copy of each client's own head, which trains by itself."""

    def extend(model: SplitModel) -> None:
        model.second = deepcopy(model.head)

    w, plain = (worlds.world("local", model={"init": "client"}) for _ in range(2))
    pop = w.population(shared=("encoder.", "head."), extend=extend)
    start = pop.named()
    for name, t in plain.population().named("head.").items():
        assert torch.equal(start[name.replace("head.", "second.")], t) and not torch.equal(t[0], t[1])

    def objective(model: StackedModel, batch: Batch, context: Context) -> Tensor:
        features = model.receive(model.encode(batch), batch)
        return task_loss(model.run("second.", features, batch), batch)

    after = w.fit(pop, objective, train="second.").models.named()
    moved = {name for name, t in after.items() if not torch.equal(t, start[name])}
    assert moved == {"second.0.weight", "second.0.bias"}
    assert w.constant(("second.0.bias",), 1.0).named()["second.0.bias"].shape == (3, 3)
    with pytest.raises(ValueError, match="extend: all populations of a run have the same parts"):
        w.population()
