"""What is computed of whole populations, against NumPy: blend, mix, gram, named and replaced, one, parameters."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from semcom.engine.store.population import Cohort, Population, blend, gram, mix
from tests import worlds
from tests.worlds import mapped

BOTH = ("encoder.", "head.")


def models(encoder: str = "test-conv", seed: int = 0, shared: tuple[str, ...] = ()) -> Population:
    """Four clients, each with a start of its own, also of its running statistics; and a table of whole numbers."""
    w = worlds.world("local", (7, 5, 3, 4), encoder=encoder, seed=seed, model={"init": "client"})
    generator = torch.Generator().manual_seed(seed)

    def moved(name: str, t: Tensor) -> Tensor:
        return t + torch.rand(t.shape, generator=generator, dtype=t.dtype) if "running" in name else t

    pop = mapped(w.population(shared), moved)
    return Population(tuple(with_table(c, seed) for c in pop.stacks()))


def with_table(cohort: Cohort, seed: int) -> Cohort:
    table = torch.arange(len(cohort.ids))[:, None] + 10 * seed
    return Cohort(cohort.network, {**cohort.tensors, "encoder.table": table}, cohort.ids, cohort.shared)


def mixed(seed: int = 0, shared: tuple[str, ...] = ()) -> Population:
    """Clients 0 and 2 with one architecture, 1 and 3 with another."""
    return models("test-conv,test-conv-wide", seed, shared)


def rows(pop: Population, name: str) -> np.ndarray:
    return np.stack([worlds.client(pop, int(k))[name].numpy() for k in pop.ids])


def names(pop: Population) -> list[str]:
    return list(pop.cohorts[0].tensors)


def vectors(pop: Population, part: str = "") -> np.ndarray:
    """All parameters of each client as one vector; running statistics and tables are none."""
    chosen = [n for n in names(pop) if n.startswith(part) and "running" not in n and "table" not in n]
    return np.concatenate([rows(pop, n).reshape(len(pop.ids), -1) for n in chosen], 1)


PARAMETERS = (
    "encoder.0.weight",
    "encoder.1.weight",
    "encoder.1.bias",
    "encoder.3.weight",
    "head.0.weight",
    "head.0.bias",
)


def test_parameters_in_the_network_s_order() -> None:
    pop = models()
    assert set(names(pop)) - set(PARAMETERS) == {"encoder.1.running_mean", "encoder.1.running_var", "encoder.table"}
    assert pop.parameters() == PARAMETERS and pop.parameters("head.") == PARAMETERS[4:]
    assert pop.parameters(("encoder.3.", "head.")) == PARAMETERS[3:] and pop.parameters(()) == ()


@pytest.mark.parametrize("shared", [(), ("head.",)])
def test_named(shared: tuple[str, ...]) -> None:
    pop = models(shared=shared)
    found = pop.named("head.")
    assert list(found) == ["head.0.weight", "head.0.bias"] and set(pop.named()) == set(names(pop))
    for name, t in pop.named().items():
        assert len(t) == 4 and np.array_equal(t, rows(pop, name))
    some = pop.select(np.array([1, 3])).named()
    assert all(torch.equal(t[[1, 3]], some[name]) for name, t in pop.named().items())


@pytest.mark.parametrize("shared", [(), ("head.",)])
def test_replaced_is_the_inverse_of_named(shared: tuple[str, ...]) -> None:
    pop, other = models(shared=shared), models(seed=1)
    assert worlds.gap(pop.replaced(pop.named()), pop.spread()) == 0
    values = other.named("head.")
    got = pop.replaced(values)
    assert not got.cohorts[0].shared and worlds.gap(got, pop.spread().take("head.", other)) == 0
    body = pop.replaced(other.named("encoder."))
    assert worlds.gap(body, pop.take("encoder.", other)) == 0 and body.cohorts[0].shared == pop.cohorts[0].shared
    before = rows(got, "head.0.bias").copy()
    values["head.0.bias"].fill_(9.0)  # copies
    assert np.array_equal(rows(got, "head.0.bias"), before)


@pytest.mark.parametrize(("make", "shared"), [(models, ("head.",)), (mixed, ("head.",)), (models, BOTH)])
def test_one_is_the_base_station_s_own(make: Callable[..., Population], shared: tuple[str, ...]) -> None:
    pop = make(shared=shared)
    one = pop.one("head.")
    assert one.ids.tolist() == [0] and names(one) == ["head.0.weight", "head.0.bias"]
    assert all(t.shape[0] == 1 for t in one.tensors()) and not one.cohorts[0].shared
    for name, t in one.named().items():
        assert all(np.array_equal(t[0], mine) for mine in rows(pop, name))
    before = {n: t.clone() for n, t in worlds.tensors(pop).items()}
    back = pop.share(mapped(one, lambda name, t: 2 * t).named("head."))
    for name in names(one):
        np.testing.assert_array_equal(rows(back, name), 2 * rows(pop, name))
    for t in one.tensors():
        t.fill_(9.0)
    assert all(torch.equal(t, before[n]) for n, t in worlds.tensors(pop).items())
    assert [c.shared for c in back.cohorts] == [c.shared for c in pop.cohorts]


def test_a_part_of_each_client_s_own_is_not_one() -> None:
    pop = models(shared=("head.",))
    for part, name in (("encoder.", r"encoder\.0\.weight"), (BOTH, r"encoder\.0\.weight"), ("tail", "tail")):
        with pytest.raises(ValueError, match=f"^the clients do not share {name}$"):
            pop.one(part)


@pytest.mark.parametrize("make", [models, mixed])
@pytest.mark.parametrize("part", ["", "head.", "encoder."])
def test_blend_by_a_number(make: Callable[..., Population], part: str) -> None:
    """Parameters and running statistics of a part; whole numbers, and the rest, are those of the first."""
    one, other = make(), make(seed=1)
    got = blend(one, other, 0.3, part)
    for c, k in ((i, int(k)) for i, cohort in enumerate(one.cohorts) for k in cohort.ids):
        for name in one.cohorts[c].tensors:
            a, b, mine = (worlds.client(p, k)[name].numpy() for p in (one, other, got))
            inside = name.startswith(part) and "table" not in name
            np.testing.assert_allclose(mine, 0.3 * a + 0.7 * b if inside else a, rtol=0, atol=1e-15)
    assert worlds.gap(one, make()) == 0 == worlds.gap(other, make(seed=1))
    assert worlds.gap(blend(one, other, 1.0, part), one) == 0


@pytest.mark.parametrize("make", [models, mixed])
@pytest.mark.parametrize("shared", [(), BOTH])
def test_blend_client_by_client(make: Callable[..., Population], shared: tuple[str, ...]) -> None:
    """Weights in the order of ids, across architectures."""
    one, other, weights = make(shared=shared), make(seed=1), torch.tensor([0.0, 0.25, 0.5, 1.0], dtype=torch.float64)
    got = blend(one, other, weights)
    for k, w in enumerate(weights.tolist()):
        for name, mine in worlds.client(got, k).items():
            a, b = (worlds.client(p, k)[name].numpy() for p in (one, other))
            np.testing.assert_allclose(mine, a if "table" in name else w * a + (1 - w) * b, rtol=0, atol=1e-15)
    assert not any(c.shared for c in got.cohorts)


def test_what_both_share_stays_shared() -> None:
    one, other, own = models(shared=("head.",)), models(seed=1, shared=("head.",)), models(seed=2)
    assert blend(one, other, 0.5).cohorts[0].shared == {"head.0.weight", "head.0.bias"}
    assert blend(one, other, 0.5).cohorts[0].tensors["head.0.weight"].shape == (1, 3, 4)
    assert blend(one, own, 0.5, "encoder.").cohorts[0].shared == {"head.0.weight", "head.0.bias"}
    for a, b in ((one, own), (own, one)):
        got = blend(a, b, 0.25, "head.")
        assert not got.cohorts[0].shared
        np.testing.assert_allclose(
            rows(got, "head.0.bias"), 0.25 * rows(a, "head.0.bias") + 0.75 * rows(b, "head.0.bias"), atol=1e-15
        )


WEIGHTS = np.random.default_rng(5).normal(size=(4, 4))


@pytest.mark.parametrize("shared", [(), ("head.",)])
@pytest.mark.parametrize("part", ["", "head.", BOTH])
def test_mix(part: str | tuple[str, ...], shared: tuple[str, ...]) -> None:
    """Row i is sum_j weights[i, j] row j, running statistics included; whole numbers stay."""
    pop = models(shared=shared)
    got = mix(pop, torch.tensor(WEIGHTS), part)
    for name in names(pop):
        before = rows(pop, name)
        inside = name.startswith(part) and "table" not in name
        expected = np.einsum("ij,j...->i...", WEIGHTS, before) if inside else before
        np.testing.assert_allclose(rows(got, name), expected, rtol=0, atol=1e-13)
    assert worlds.gap(pop, models(shared=shared)) == 0
    assert worlds.gap(mix(pop, torch.eye(4, dtype=torch.float64)), pop.spread()) == 0


@pytest.mark.parametrize("part", ["", "head."])
def test_gram(part: str) -> None:
    """Cosines and distances of the parameters, of those alone."""
    pop = models()
    v, got = vectors(pop, part), gram(pop, part).numpy()
    np.testing.assert_allclose(got, v @ v.T, rtol=0, atol=1e-11)
    norms = np.diag(got)
    distance = ((v[:, None] - v[None]) ** 2).sum(-1)
    np.testing.assert_allclose(norms[:, None] + norms[None] - 2 * got, distance, rtol=0, atol=1e-11)


def test_gram_of_single_precision_is_in_double() -> None:
    """Two models that differ by 1e-4 in numbers near 1: products of float32 would lose their distance."""
    pop = mapped(models(), lambda name, t: (1 + 1e-4 * t).float())
    v, got = vectors(pop).astype(np.float64), gram(pop)
    assert got.dtype == torch.float64
    distance = got[0, 0] + got[1, 1] - 2 * got[0, 1]
    assert float(distance) == pytest.approx(((v[0] - v[1]) ** 2).sum(), rel=1e-5)


@pytest.mark.parametrize(
    "act",
    [
        lambda pop: pop.named(),
        lambda pop: pop.parameters(),
        lambda pop: pop.replaced({}),
        lambda pop: mix(pop, torch.eye(4)),
        gram,
    ],
)
def test_two_architectures_have_nothing_in_common(act: Callable[[Population], object]) -> None:
    with pytest.raises(ValueError, match="^2 architectures have no tensors in common$"):
        act(mixed())
