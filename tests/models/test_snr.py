"""The SNR as an input of encoder and head: in stacks, in tests at several SNRs, and switched off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from semcom.config import ConfigError, list_earlier_hashes, run_hash
from semcom.models.deepjscc import deepjscc_decoder
from semcom.models.own import replace_by_own_layers
from semcom.models.registry import build_encoder, build_head
from semcom.models.snr import SNRAttention, attend_to_snr_before, attend_to_snr_behind
from semcom.models.stacks import on_stacks
from semcom.runs.rounds.runner import run
from tests import worlds


def test_features_are_scaled_by_what_features_and_snr_say() -> None:
    """By hand. In a stack each client uses its own weights and SNR, and above 40 dB the factors stay constant."""
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


def by_loops(block: SNRAttention, maps: np.ndarray, snr_db: float) -> np.ndarray:
    """The block of ADJSCC in loops over images and maps: pool, put the SNR beside, two layers, scale each map."""
    w1, b1, w2, b2 = (t.detach().numpy() for t in block.parameters())
    scaled = np.empty_like(maps)
    for i, image in enumerate(maps):
        context = [*(float(of.sum()) / of.size for of in image), snr_db / 10]
        hidden = [max(0.0, float(np.dot(row, context)) + b) for row, b in zip(w1, b1, strict=True)]
        for j, of in enumerate(image):
            scaled[i, j] = of / (1 + np.exp(-(np.dot(w2[j], hidden) + b2[j])))
    return scaled


@pytest.mark.parametrize("flatten", ["last", "first"])
def test_maps_are_pooled_and_scaled_as_wholes(flatten: str) -> None:
    """Each map has one factor, whatever the map is flattened to. In a stack each client has its own factors."""
    torch.manual_seed(1)
    flat = nn.Flatten() if flatten == "first" else build_encoder("deepjscc", (3, 8, 8), 12)[-1]  # type: ignore[index]
    body = nn.Conv2d(2, 3, 3)
    network = replace_by_own_layers(attend_to_snr_behind(nn.Sequential(body, flat), 12)).double()
    block = network[1]  # type: ignore[index]
    x, snr_db = torch.randn(5, 2, 4, 4).double(), torch.tensor([[7.0]]).double()
    block.snr_db = snr_db
    maps = body(x)
    expected = torch.as_tensor(by_loops(block, maps.detach().numpy(), 7.0))
    torch.testing.assert_close(block(maps), expected)
    torch.testing.assert_close(network(x), network[2](expected))  # type: ignore[index]
    assert ((block(maps) / maps).flatten(2).std(-1) < 1e-12).all()
    stack = {n: torch.stack([t, 1.5 * t]) for n, t in block.named_parameters()}
    with on_stacks():
        both = torch.func.functional_call(
            block, {**stack, "snr_db": torch.stack([snr_db, -snr_db])}, (torch.stack([maps, maps]),)
        )
    torch.testing.assert_close(both[0], expected)
    assert (both[1] - expected).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("encoder", "features", "seen"),
    [("deepjscc", 512, 8), ("deepjscc", 1024, 16), ("conv4", 256, 64), ("conv4", 64, 64), ("dcgan-narrow", 64, 64)]
    + [("cnn", 64, 64), ("cnn-dropout", 64, 64), ("mlp", 64, 64), ("mobilenet-v1", 1024, 1024)],
)
def test_an_encoder_has_the_block_of_what_it_ends_in(encoder: str, features: int, seen: int) -> None:
    """(c + 1) c + c and c^2 + c parameters of c maps, or of d numbers behind a fully-connected layer."""
    plain = build_encoder(encoder, (3, 32, 32), features)
    aware = attend_to_snr_behind(plain, features)
    added = sum(p.numel() for p in aware.parameters()) - sum(p.numel() for p in plain.parameters())
    assert added == (seen + 1) * seen + seen + seen**2 + seen == seen * (2 * seen + 3)
    aware[1].snr_db = torch.zeros(1, 1)  # type: ignore[index]
    assert aware.eval()(torch.randn(2, 3, 32, 32)).shape == (2, features)


@pytest.mark.parametrize(
    ("head", "features", "seen"), [("deepjscc", 512, 8), ("dcgan", 64, 64), ("linear", 64, 64), ("mlp", 64, 64)]
)
def test_a_head_has_the_block_of_what_it_begins_with(head: str, features: int, seen: int) -> None:
    shape = (3, 32, 32) if head in ("deepjscc", "dcgan") else (10,)
    plain = build_head(head, features, shape)
    aware = attend_to_snr_before(lambda: build_head(head, features, shape), features)
    added = sum(p.numel() for p in aware.parameters()) - sum(p.numel() for p in plain.parameters())
    assert added == seen * (2 * seen + 3)


def test_a_model_of_deepjscc_sends_hardly_more_with_the_snr() -> None:
    """By the factor of its numbers: 64 features in 16 maps of 2 x 2, so 560 numbers behind the encoder, and before."""
    sent = []
    for on in (False, True):
        model = {"features": 64, "head": "deepjscc", "snr_input": on}
        w = worlds.world(encoder="deepjscc", task="reconstruction", model=model)
        sent.append([int(w.population().numbers(part)[0]) for part in ("encoder.", "head.")])
    assert [aware - plain for plain, aware in zip(*sent, strict=True)] == [560, 560]


def test_a_block_that_passes_everything_is_no_block() -> None:
    """With factors of 1 the decoder gives the same output as without. Maps of one pixel are plain numbers."""
    torch.manual_seed(2)
    plain = deepjscc_decoder(128, (3, 16, 16)).double()
    aware = attend_to_snr_before(lambda: plain, 128).double()
    block = aware[1]
    nn.init.zeros_(block.factors.weight)
    nn.init.constant_(block.factors.bias, 50.0)
    block.snr_db = torch.zeros(1, 1).double()
    z = torch.randn(3, 128).double()
    torch.testing.assert_close(aware(z), plain(z))
    numbers, maps = SNRAttention(4), SNRAttention(4, maps=True)
    maps.load_state_dict(numbers.state_dict())
    numbers.snr_db = maps.snr_db = torch.ones(1, 1)
    x = torch.randn(3, 4)
    torch.testing.assert_close(maps(x[..., None, None]), numbers(x)[..., None, None])


@pytest.mark.parametrize(
    ("method", "encoder"),
    [(name, "test-patches") for name in ("fedavg", "fedcrc", "moon")]
    + [(name, "test-deep-vmap") for name in ("fedcl", "repper")],
)
def test_the_chunk_changes_no_run(method: str, encoder: str) -> None:
    """Convolutions one by one and networks in vmap, with different SNRs per client."""
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
    """A test at two SNRs equals two tests at one SNR each."""
    several = run(worlds.request(model={"snr_input": True}, channel={"test_snr_db": "15,-5"}))
    alone = run(worlds.request(model={"snr_input": True}, channel={"test_snr_db": -5.0}))
    (both,), (one,) = (list(each.summary["views"].values()) for each in (several, alone))
    assert both["at"]["-5"] == one["at"]["-5"] and both["at"]["15"] == both["accuracy"]


def test_fresh_heads_see_the_snr_as_the_runs_own_does(tmp_path: Path) -> None:
    """They begin as it does, be its weights drawn or those of a file."""
    model, path = {"snr_input": True}, tmp_path / "weights.pt"
    torch.save({name: 2 * t[0] for name, t in worlds.world(model=model).population().named().items()}, path)
    for given in (None, str(path)):
        w = worlds.world(model={**model, "weights": given})
        own, fresh = w.population().named("head."), w.heads("linear", np.array([1])).named("head.")
        assert own.keys() == fresh.keys() and all(torch.equal(t[0], own[name][0]) for name, t in fresh.items())
    assert "head.0.context.weight" in w.heads("mlp", np.array([1])).named("head.")


@pytest.mark.parametrize(
    ("method", "options"),
    [("fedavg", {"new_clients": 2}), ("fedavg", {"finish": {"kind": "linear", "epochs": 1}}), ("repper", {})],
)
def test_a_run_that_begins_with_a_file_ends_with_fresh_heads(
    method: str, options: dict[str, Any], tmp_path: Path
) -> None:
    """The file holds what is drawn anyway. Nothing moves, so new clients' heads, which begin with it too, stay it."""
    model, path, begun = {"snr_input": True}, tmp_path / "weights.pt", []
    options = {"train": {"rounds": 1, "lr": 1e-12}, **options, "finish": {"lr": 1e-12, **options.get("finish", {})}}

    def note(before: Any, after: Any, world: Any) -> dict[str, Any]:
        begun.append(before.model.named())
        return {}

    drawn = run(worlds.request(method, model=model, **options), observe=note)
    torch.save({name: t[0] for name, t in begun[0].items()}, path)
    given = run(worlds.request(method, model={**model, "weights": str(path)}, **options))
    if "new_clients" in options:
        assert given.summary["new_clients"]["head"] == given.summary["new_clients"]["global"]
    else:
        assert given.summary["finish"] == drawn.summary["finish"]


def test_off_is_the_run_that_there_was_and_on_is_another() -> None:
    off, on = (worlds.request(model={"snr_input": each}) for each in (False, True))
    assert run_hash(off) == run_hash(worlds.request()) != run_hash(on)


@pytest.mark.parametrize(
    ("method", "options", "fresh"),
    [
        ("fedavg", {}, False),
        ("fedavg", {"new_clients": 2}, True),
        ("fedavg", {"new_clients": 2, "finish": {"kind": "svm"}}, False),
        ("fedavg", {"finish": {"kind": "round"}}, False),
        ("fedavg", {"finish": {"kind": "linear"}}, True),
        ("repper", {}, True),
        ("repper", {"finish": {"kind": "svm"}}, False),
    ],
)
def test_runs_whose_fresh_heads_did_not_see_the_snr_are_others(
    method: str, options: dict[str, Any], fresh: bool
) -> None:
    for on in (False, True):
        assert len(list_earlier_hashes(worlds.request(method, model={"snr_input": on}, **options))) == (fresh and on)


@pytest.mark.parametrize(("method", "kind"), [("local", "ideal"), ("local", "none"), ("fedgh", "awgn")])
def test_where_it_does_nothing_it_is_refused(method: str, kind: str) -> None:
    """A noiseless link has no SNR, and FedGH's head learns from means over clients."""
    with pytest.raises(ConfigError, match="model.snr-input"):
        worlds.request(method, model={"snr_input": True}, channel={"kind": kind})
