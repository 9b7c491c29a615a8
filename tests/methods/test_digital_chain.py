"""The digital chain as a baseline: what its run reports is what the chain delivers, and nothing is trained."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from channels.coding.image import ImageChain
from channels.coding.mcs import choose_mcs
from semcom.config import ChannelConfig, ConfigError, DataConfig, ModelConfig, PartitionConfig, RunConfig, TrainConfig
from semcom.engine.random import keyed
from semcom.methods.digital_chain import GREY
from semcom.methods.registry import METHODS
from semcom.runs.resolve import resolve
from semcom.runs.runner import run

USES = 64


def asked(test_snr_db: str = "15,-20,30", **more: Any) -> RunConfig:
    """Two clients, whose images take 64 uses."""
    given: dict[str, Any] = {
        "task": "reconstruction",
        "clients": 2,
        "data": DataConfig(size=16),
        "model": ModelConfig(encoder="deepjscc", features=2 * USES),
        "channel": ChannelConfig(test_snr_db=test_snr_db),
        "partition": PartitionConfig(options={"ways": 3, "shots": 2, "test_per_class": 2}),
        "train": TrainConfig(rounds=2),
    }
    return RunConfig("digital-chain", **{**given, **more})


def psnr(images: torch.Tensor, back: torch.Tensor) -> torch.Tensor:
    """The PSNR of each image in dB, 100 at most."""
    error = ((images.double() - back.double()) / 255).square().flatten(1).mean(1)
    return (-10 * error.log10()).clamp(max=100)


def test_a_run_reports_what_the_chain_delivers() -> None:
    """The fastest scheme for 15 dB, the client's own noise; at -20 dB there is no scheme, and all images are grey."""
    result = run(asked())
    view, scheme = result.summary["views"]["digital"], choose_mcs(15.0, USES)
    assert scheme is not None and view["clients"][0] != view["clients"][1]
    for client in range(2):
        start = int(result.federation.test.offsets[client])
        images = result.federation.images[result.federation.test[client]]
        chain = ImageChain(USES, scheme.modulation, scheme.code_rate, "jpeg", headers="free")
        received = chain.send(images, 15.0, keyed(0, "image chain", client, start))
        back = torch.where(received.lost.view(-1, 1, 1, 1), GREY, received.images)
        assert view["clients"][client] == pytest.approx(float(psnr(images, back).mean()), abs=1e-4)
    tests = result.federation.images[result.federation.test.flat]
    grey = float(psnr(tests, torch.full_like(tests, GREY)).mean())
    at = view["psnr_at"]
    assert at["-20"] == pytest.approx(grey, abs=1e-4) and at["30"] > at["15"] > grey
    assert result.summary["traffic"]["up"]["floats"] == 0 and result.summary["samples"] == 0


def test_a_fixed_scheme_has_a_cliff_and_gains_nothing_above_it() -> None:
    view = run(asked("30,40,0", hyper={"scheme_db": 15.0})).summary["views"]["digital"]["psnr_at"]
    assert view["30"] == view["40"] > view["0"] + 5


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"task": "classification"}, "task"),
        ({"channel": ChannelConfig(kind="rayleigh")}, "channel.kind"),
        ({"new_clients": 1}, "new_clients"),
    ],
)
def test_what_it_cannot_do_is_refused(more: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as refused:
        resolve(asked(**more))
    assert refused.value.field == field


def test_it_stands_beside_the_federated_methods() -> None:
    """It is found by its name, and not one of those that are listed and counted."""
    assert "digital-chain" in METHODS and METHODS.ships("digital-chain") and "digital-chain" not in METHODS.names()
    with pytest.raises(ValueError, match="ships with semcom"):
        METHODS.register("digital-chain")
