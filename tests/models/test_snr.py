"""The SNR as an input of encoder and head: in stacks, in tests at several SNRs, and when it is off."""

from __future__ import annotations

import pytest
import torch

from semcom.config import ConfigError, run_hash
from semcom.models.own import replace_by_own_layers
from semcom.models.snr import SNRAttention
from semcom.models.stacks import on_stacks
from semcom.runs.runner import run
from tests import worlds


def test_features_are_scaled_by_what_features_and_snr_say() -> None:
    """By hand; on a stack each client by its own weights and SNR; beyond 40 dB nothing changes."""
    torch.manual_seed(0)
    layers = [replace_by_own_layers(SNRAttention(3)).double() for _ in range(2)]
    x = torch.randn(2, 5, 3, dtype=torch.float64)
    alone = []
    for layer, mine, snr_db in zip(layers, x, (-5.0, 20.0), strict=True):
        layer.snr_db = torch.tensor([[snr_db]], dtype=torch.float64)
        seen = torch.cat([mine, torch.full((5, 1), snr_db / 10, dtype=torch.float64)], 1)
        hidden = (seen @ layer.context.weight.T + layer.context.bias).clamp_min(0)
        alone.append(mine / (1 + torch.exp(-(hidden @ layer.factors.weight.T + layer.factors.bias))))
        torch.testing.assert_close(layer(mine), alone[-1])
    tensors = {
        n: torch.stack([dict(each.named_parameters())[n] for each in layers]) for n, _ in layers[0].named_parameters()
    }
    snr = torch.tensor([-5.0, 20.0]).double().view(2, 1, 1)
    with on_stacks():
        got = torch.func.functional_call(layers[0], {**tensors, "snr_db": snr}, (x,))
    torch.testing.assert_close(got, torch.stack(alone))
    ends = []
    for far in (40.0, float("inf")):
        layers[0].snr_db = torch.tensor([[far]]).double()
        ends.append(layers[0](x[0]))
    assert torch.equal(*ends)
    layers[0].snr_db = None
    with pytest.raises(RuntimeError, match="SNR"):
        layers[0](x[0])


@pytest.mark.parametrize(
    ("method", "encoder"),
    [(name, "test-patches") for name in ("fedavg", "fedcrc", "moon")]
    + [(name, "test-deep-vmap") for name in ("fedcl", "repper")],
)
def test_the_chunk_changes_no_run(method: str, encoder: str) -> None:
    """Convolutions one by one and networks in vmap; SNRs that differ between clients."""
    channel = {"snr_db": "0,5,10,20", "test_snr_db": "15,-5"}
    found = [
        run(
            worlds.request(
                method, encoder=encoder, channel=channel, model={"snr_input": True}, chunk=chunk, train={"rounds": 2}
            )
        ).summary["views"]
        for chunk in (1, 3)
    ]
    for name, view in found[0].items():
        assert view["at"] == pytest.approx(found[1][name]["at"], abs=1e-9) and set(view["at"]) == {"15", "-5"}


def test_tests_at_several_snrs_encode_for_each() -> None:
    """Tested at two SNRs at once is what is tested at each alone."""
    several = run(worlds.request(model={"snr_input": True}, channel={"test_snr_db": "15,-5"}))
    alone = run(worlds.request(model={"snr_input": True}, channel={"test_snr_db": -5.0}))
    (both,), (one,) = (list(each.summary["views"].values()) for each in (several, alone))
    assert both["at"]["-5"] == one["at"]["-5"] and both["at"]["15"] == both["accuracy"]


def test_off_is_the_run_that_there_was_and_on_is_another() -> None:
    off, on = (worlds.request(model={"snr_input": each}) for each in (False, True))
    assert run_hash(off) == run_hash(worlds.request()) != run_hash(on)


@pytest.mark.parametrize(("method", "kind"), [("local", "ideal"), ("local", "none"), ("fedgh", "awgn")])
def test_where_it_does_nothing_it_is_refused(method: str, kind: str) -> None:
    """Without noise there is no SNR; FedGH's head learns from means over clients."""
    with pytest.raises(ConfigError, match="model.snr-input"):
        worlds.request(method, model={"snr_input": True}, channel={"kind": kind})
