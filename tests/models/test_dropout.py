"""The own Dropout against torch's and by hand, and how it gets into a network."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from semcom.models.batchnorm import BatchNorm
from semcom.models.dropout import Dropout
from semcom.models.own import replace_by_own_layers
from tests.refusals import refuses

pytestmark = pytest.mark.usefixtures("own_generator")

SHAPES = {nn.Dropout: (4, 6), nn.Dropout1d: (5, 3, 2), nn.Dropout2d: (5, 3, 2, 4)}
UNITS = {nn.Dropout: (6,), nn.Dropout1d: (3, 1), nn.Dropout2d: (3, 1, 1)}


def converted(layer: nn.Module) -> Dropout:
    made = replace_by_own_layers(layer)
    assert isinstance(made, Dropout)
    return made


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("dtype", [torch.bool, torch.float32])
def test_with_torchs_draws_it_gives_torchs_numbers_and_gradients(kind: type[nn.Dropout], dtype: torch.dtype) -> None:
    theirs, x = kind(0.4), torch.randn(SHAPES[kind], dtype=torch.float64).requires_grad_()
    state = torch.get_rng_state()
    expected = theirs(x)
    torch.set_rng_state(state)
    kept = theirs(torch.ones_like(x)) > 0
    ours = converted(theirs)
    units = UNITS[kind]
    ours.keep = kept[(slice(None), *(slice(n) for n in units))].to(dtype)
    assert ours.keep.shape == (len(x), *units) and 0 < ours.keep.float().mean() < 1
    got = ours(x)
    torch.testing.assert_close(got, expected)
    toward = torch.randn_like(x)
    torch.testing.assert_close(*(torch.autograd.grad((y * toward).sum(), x) for y in (got, expected)))


@pytest.mark.parametrize("kind", SHAPES)
def test_evaluation_changes_nothing_and_notes_the_units(kind: type[nn.Dropout]) -> None:
    layer, x = converted(kind()).eval(), torch.randn(SHAPES[kind])
    assert layer.units is None
    layer.keep = torch.zeros(len(x), *UNITS[kind])
    assert torch.equal(layer(x), x) and layer.units == UNITS[kind]


def test_every_client_of_a_stack_has_its_own_draws() -> None:
    """By hand: kept numbers doubled, the others 0."""
    network = nn.Sequential(Dropout(0.5))
    x = torch.tensor([[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]]])
    keep = torch.tensor([[[1, 0], [1, 1]], [[0, 0], [0, 1]]], dtype=torch.bool)

    def run(keep: Tensor, x: Tensor) -> Tensor:
        return functional_call(network, {"0.keep": keep}, (x,))

    assert vmap(run)(keep, x).tolist() == [[[2, 0], [6, 8]], [[0, 0], [0, 16]]]
    assert network[0].keep is None and not network.state_dict()


def test_training_without_draws_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="`keep`"):
        Dropout(0.1)(torch.ones(2, 3))
    assert torch.equal(Dropout(0.0)(torch.ones(2, 3)), torch.ones(2, 3))


def test_half_precision_stays_half() -> None:
    layer = Dropout(0.5)
    layer.keep = torch.ones(2, 3, dtype=torch.float64)
    assert layer(torch.ones(2, 3, dtype=torch.bfloat16)).dtype == torch.bfloat16


@pytest.mark.parametrize("p", [1.0, float("nan")])
def test_something_must_be_left(p: float) -> None:
    with refuses("model"):
        Dropout(p)
    if p == 1:
        with refuses("model", 1):
            replace_by_own_layers(nn.Sequential(nn.Dropout(p)))


def test_layers_are_replaced_wherever_they_are() -> None:
    """Also one that lies in two places: it stays one layer."""
    drop = nn.Dropout(0.2)
    network = nn.Sequential(drop, nn.Sequential(drop, nn.BatchNorm1d(3), nn.Dropout2d(0.3)), nn.AlphaDropout(), drop)
    made = replace_by_own_layers(network)
    assert made is network and isinstance(made[1][1], BatchNorm)
    assert isinstance(made[0], Dropout) and made[0] is made[1][0] is made[3]
    assert (made[0].p, made[0].channels) == (0.2, False) and (made[1][2].p, made[1][2].channels) == (0.3, True)
    assert type(made[2]) is nn.AlphaDropout
