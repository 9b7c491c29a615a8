"""FedAMP: rounds worked by hand with both kinds of attention, its weights, and rates that diverge."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from semcom.config import ConfigError
from semcom.engine.store.population import gram
from semcom.engine.train.context import Fitted
from semcom.engine.world import World
from semcom.methods.fedamp import FedAMP
from tests.methods.arms import IMAGES, LABELS, as_toy, assert_toy, rounds
from tests.methods.by_hand import Toy, mean
from tests.worlds import settings, toy, world

ALL_IMAGES = [*IMAGES, [[51, 204], [204, 51], [0, 153], [255, 51]], [[153, 0], [255, 255]]]
ALL_LABELS = [*LABELS, [1, 0, 0, 1], [0, 1]]
X = [np.array(mine) / 127.5 - 1 for mine in ALL_IMAGES]
Y = [np.array(mine) for mine in ALL_LABELS]
LR, LAM, ALPHA = 0.5, 3.0, 4.0


def amp_world(**hyper: Any) -> World:
    """Four clients with different initial models, plain SGD and two epochs of full batches."""
    train = {"optimizer": "sgd", "lr": LR, "local_epochs": 2}
    return toy(ALL_IMAGES, ALL_LABELS, "fedamp", model={"init": "client"}, train=train, hyper=hyper)


def vector(model: Toy) -> np.ndarray:
    return np.concatenate([model.W.ravel(), model.V.ravel(), model.b])


def attention(models: list[Toy], weights: str, sigma: float | None, alpha: float) -> np.ndarray:
    """xi, pair by pair."""
    w, n = [vector(m) for m in models], len(models)
    squared = [[float(((a - b) ** 2).sum()) for b in w] for a in w]
    if sigma is None:
        sigma = sorted(squared[i][j] for i in range(n) for j in range(i))[(n * (n - 1) // 2 - 1) // 2]
    xi = np.zeros((n, n))
    for i in range(n):
        others = [j for j in range(n) if j != i]
        if weights == "cosine":
            cosines = [w[i] @ w[j] / np.linalg.norm(w[i]) / np.linalg.norm(w[j]) for j in others]
            e = np.exp(sigma * np.array(cosines))
            xi[i, others] = e / e.sum() * (1 - 1 / n)
        else:
            xi[i, others] = [min(alpha / sigma, 1 / n) * np.exp(-squared[i][j] / sigma) for j in others]
        xi[i, i] = 1 - xi[i].sum()
    return xi


@pytest.mark.parametrize("start", ["cloud", "own"])
@pytest.mark.parametrize(
    ("weights", "sigma", "alpha"),
    [("cosine", 2.0, ALPHA), ("euclid", None, ALPHA), ("euclid", 20.0, ALPHA), ("euclid", 30.0, 1000.0)],
)
def test_two_rounds_by_hand(weights: str, sigma: float | None, alpha: float, start: str) -> None:
    """alpha is halved in the second round: the pull doubles, and with sigma 20 the server's step halves."""
    w = amp_world(weights=weights, sigma=sigma, alpha=alpha, lam=LAM, alpha_decay=0.5, alpha_every=1, start=start)
    before, *after = rounds(w, n=2)
    own = [as_toy(before.model, k) for k in range(4)]
    for state in after:
        clouds = [mean(own, list(xi)) for xi in attention(own, weights, sigma, alpha)]
        own = clouds if start == "cloud" else own
        for _ in range(2):
            distance = [((vector(m) - vector(u)) ** 2).sum() for m, u in zip(own, clouds, strict=True)]
            own = [own[k].tied_step(X[k], Y[k], LR, clouds[k], LAM / alpha) for k in range(4)]
        for k in range(4):
            assert_toy(as_toy(state.model, k), own[k])
        alpha /= 2
    assert min(distance) > 1e-4
    np.testing.assert_allclose(w.session.tally.log["distance"], distance, rtol=1e-9)
    np.testing.assert_allclose(
        w.session.tally.log["loss"],
        w.session.tally.log["task"] + LAM / alpha / 4 * w.session.tally.log["distance"],
        rtol=1e-12,
    )


def test_the_server_step_in_the_cases_above() -> None:
    """With sigma 20 it is alpha, then half of it. With sigma 30 and the large alpha it is sigma / n."""
    assert ALPHA / 20 < 1 / 4 < 1000 / 2 / 30


# -- the weights -----------------------------------------------------------------------------------------------------


def xi_of(models: Tensor, alpha: float = 1e4, **hyper: Any) -> Tensor:
    """Attention of models `[n, d]`."""
    return FedAMP(FedAMP.Hyper(**hyper)).attention(models @ models.T, alpha, torch.ones(len(models)).bool())


@pytest.mark.parametrize("weights", ["cosine", "euclid"])
@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_rows_are_a_convex_combination(weights: Any, n: int) -> None:
    """Also with the paper's alpha, which by itself would make them sum to thousands."""
    models = torch.randn(n, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(n))
    xi = xi_of(models, weights=weights)
    torch.testing.assert_close(xi.sum(1), torch.ones(n, dtype=torch.float64), rtol=0, atol=1e-14)
    assert (xi >= 0).all() and (xi.diagonal() >= 1 / n - 1e-14).all()
    if weights == "cosine":
        torch.testing.assert_close(xi.diagonal(), torch.full((n,), 1 / n, dtype=torch.float64), rtol=0, atol=1e-14)


@pytest.mark.parametrize("weights", ["cosine", "euclid"])
def test_models_that_are_all_alike_weigh_the_same(weights: Any) -> None:
    xi = xi_of(torch.ones(4, 3, dtype=torch.float64) / 3, weights=weights)
    torch.testing.assert_close(xi, torch.full((4, 4), 0.25, dtype=torch.float64), rtol=0, atol=1e-14)


def test_weights_by_hand() -> None:
    """Right angles and opposite models. Lengths matter to the distance but not to the cosine."""
    models = torch.tensor([[1.0, 0.0], [0.0, 2.0], [-3.0, 0.0]], dtype=torch.float64)
    xi = xi_of(models, sigma=np.log(2))
    torch.testing.assert_close(xi[0], torch.tensor([1 / 3, 2 / 3 * 2 / 3, 2 / 3 * 1 / 3], dtype=torch.float64))
    xi = xi_of(models, weights="euclid")  # squared distances 5, 13, 16: the median is 13
    e = np.exp([-5 / 13, -16 / 13]) / 3
    torch.testing.assert_close(xi[0], torch.tensor([1 - e.sum(), *e], dtype=torch.float64))
    xi = xi_of(models, alpha=1.0, weights="euclid", sigma=10.0)
    assert xi[0, 1].item() == pytest.approx(0.1 * np.exp(-0.5))


def test_a_large_sigma_finds_the_twin() -> None:
    """Clients 0 and 1, 2 and 3 are alike: with cosines each takes the other half from its twin."""
    models = torch.tensor([[1.0, 0.0], [1.0, 0.01], [0.0, 1.0], [0.01, 1.0]], dtype=torch.float64)
    xi = xi_of(models, sigma=100.0)
    torch.testing.assert_close(xi[[0, 1, 2, 3], [1, 0, 3, 2]], torch.full((4,), 0.75, dtype=torch.float64))


# -- reductions ------------------------------------------------------------------------------------------------------


def test_a_pull_of_one_step_lands_on_the_cloud_model() -> None:
    """With lr lambda / alpha = 1 the last step ends a gradient step away from u_k, from wherever it came."""
    w = amp_world(alpha=LR, lam=1.0, start="own")
    before, after = rounds(w)
    own = [as_toy(before.model, k) for k in range(4)]
    clouds = [mean(own, list(xi)) for xi in attention(own, "cosine", 25.0, LR)]
    for k in range(4):
        first = clouds[k].plus(own[k].slope(X[k], Y[k]), -LR)
        assert_toy(as_toy(after.model, k), clouds[k].plus(first.slope(X[k], Y[k]), -LR))


def test_masked_columns_do_not_count_for_the_median() -> None:
    """Of three models the third is not mixed: the median is that of the pairs (0, 1), (1, 0), (2, 0) and (2, 1)."""
    models = torch.tensor([[1.0, 0.0], [0.0, 2.0], [-3.0, 0.0]], dtype=torch.float64)  # squared distances 5, 16, 13
    method = FedAMP(FedAMP.Hyper(weights="euclid"))
    xi = method.attention(models @ models.T, 1e4, torch.tensor([True, True, False]))
    e = np.exp(-np.array([5, 5, 16, 13]) / 5) / np.array([2, 2, 3, 3])  # torch's median is the lower one
    want = [[1 - e[0], e[0], 0], [e[1], 1 - e[1], 0], [e[2], e[3], 1 - e[2] - e[3]]]
    torch.testing.assert_close(xi, torch.tensor(want, dtype=torch.float64))


@pytest.mark.parametrize("weights", ["cosine", "euclid"])
def test_models_of_the_last_round_are_mixed_with_the_clients_own(weights: str) -> None:
    """In the first round those that its clients begin with; the other clients keep their models."""
    setting: dict[str, Any] = {"train": {"optimizer": "sgd", "lr": LR, "participation": 0.5}}
    hyper = {"sigma": 3.0, "weights": weights}
    w = toy(ALL_IMAGES, ALL_LABELS, "fedamp", model={"init": "client"}, hyper=hyper, **setting)
    method, state, told, apart = FedAMP(w.config.hyper), None, None, False
    for number in range(1, 7):
        before = method.setup(w) if state is None else state
        w.session.tally.begin(number)
        ids, state = w.sample().tolist(), method.round(before, w)
        assert len(ids) == 2
        told = ids if told is None else told
        apart |= not set(ids) & set(told)
        for k in range(4):
            want = as_toy(before.model, k)
            if k in ids:
                mixed = [k, *(j for j in told if j != k)]
                models = [as_toy(before.model, j) for j in mixed]
                want = mean(models, list(attention(models, weights, 3.0, 1e4)[0])).step(X[k], Y[k], LR)
            assert_toy(as_toy(state.model, k), want)
        told = ids
    assert apart, "in some round nobody was there in the last one"


def test_nearly_equal_models_are_not_blown_up() -> None:
    """As after a first round at a low rate: the pull does not grow as the median distance falls."""
    w = world("fedamp", hyper={"weights": "euclid"}, train={"optimizer": "sgd", "lr": 0.005})
    states = rounds(w, n=6)
    names = states[0].model.parameters()
    first = states[0].model.named()
    moved = [float((state.model.named()[name] - first[name]).abs().max()) for state in states for name in names]
    assert 0 < max(moved) < 0.1


def test_buffers_are_mixed(monkeypatch: pytest.MonkeyPatch) -> None:
    """BatchNorm's statistics go up and come down as weights do: here without training after the second exchange."""
    w = world("fedamp", channel={"kind": "ideal"})
    method = FedAMP(w.config.hyper)
    state = rounds(w, method)[-1]
    monkeypatch.setattr(World, "fit", lambda self, pop, *_, **__: Fitted(pop, {}, {}))
    w.session.tally.begin(2)
    mixed, before = method.round(state, w).model.named(), state.model.named()
    xi = method.attention(gram(state.model), 1e4, state.told)
    for name in ("encoder.1.running_mean", "encoder.1.running_var", "head.0.weight"):
        want = torch.einsum("ij,j...->i...", xi, before[name])
        assert float((want - before[name]).abs().max()) > 1e-3
        torch.testing.assert_close(mixed[name], want, rtol=0, atol=1e-14)


# -- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rounds_", "train", "refused"),
    [
        (150, {}, False),
        (151, {}, True),
        (151, {"lr": (0.1, 0.3, 0.2)}, True),
        (180, {"lr_milestones": (100,)}, False),
        (180, {"momentum": 0.4}, True),
        (180, {"momentum": 0.6}, False),
        (180, {"optimizer": "adam"}, False),
    ],
)
def test_an_alpha_that_makes_training_diverge_is_refused(rounds_: int, train: dict[str, Any], refused: bool) -> None:
    """From round 151 on alpha is 0.1 and 0.3 lambda / alpha is 3, above the stability limit 2 + 2 momentum. A rate that
    falls in time gives 0.3. The refusal comes before any data are loaded."""
    train = {"optimizer": "sgd", "lr": 0.3, "rounds": rounds_, **train}
    if not refused:
        settings("fedamp", "test-conv", 3, train=train)
        return
    least = 0.3 / (2 + 2 * train.get("momentum", 0.0))
    with pytest.raises(
        ConfigError, match=rf"^hyper.alpha: it falls to 0.1; SGD at this train.lr needs at least {least:g}$"
    ):
        settings("fedamp", "test-conv", 3, train=train)


@pytest.mark.parametrize("momentum", [0.0, 0.4, 0.9])
def test_the_stable_rate_is_the_largest(momentum: float) -> None:
    """Just below it, SGD on only the pull settles at u_k. Just above it, it diverges."""
    for factor in (0.98, 1.02):
        w, rate = torch.ones(1, requires_grad=True), factor * (2 + 2 * momentum)
        sgd = torch.optim.SGD([w], rate, momentum=momentum)
        for _ in range(2000):
            w.grad = w.detach().clone()  # lambda / alpha is 1, u_k is 0
            sgd.step()
            if abs(w.item()) > 1e6:
                break
        assert abs(w.item()) < 1e-3 if factor < 1 else abs(w.item()) > 1e6
