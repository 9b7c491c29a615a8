"""Sionna as the oracle: the same SNR gives the same error rates through its channels and through ours."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from channels import make_link

N = 200_000
SNR_DB = 4.0
NO = 10 ** (-SNR_DB / 10)


@pytest.fixture(scope="module")
def sionna():
    """Sionna's parts, imported and seeded without a trace in torch's global generator."""
    pytest.importorskip("sionna")
    before = torch.get_rng_state()
    with torch.random.fork_rng():
        from sionna.phy import config
        from sionna.phy.channel import AWGN, FlatFadingChannel
        from sionna.phy.mapping import Demapper, Mapper
    config.torch_rng("cpu").manual_seed(1)
    assert torch.equal(torch.get_rng_state(), before)
    return SimpleNamespace(AWGN=AWGN, FlatFadingChannel=FlatFadingChannel, Mapper=Mapper, Demapper=Demapper)


def same_rate(ours: Tensor, theirs: Tensor) -> None:
    """Bits or symbols [N] that are wrong, or the wrong part of them: two means within five standard errors."""
    error = math.sqrt(float(ours.var() + theirs.var()) / N)
    assert abs(float(ours.mean() - theirs.mean())) < 5 * error


@pytest.mark.parametrize("kind", ["awgn", "rayleigh"])
@pytest.mark.parametrize("bits", [2, 4])
def test_error_rates_agree(kind, bits, sionna, stack):
    sent = torch.randint(2, (1, N * bits), generator=torch.Generator().manual_seed(1)).float()
    x = sionna.Mapper("qam", bits, device="cpu")(sent)
    demap = sionna.Demapper("maxlog", "qam", bits, hard_out=True, device="cpu")
    link = make_link(kind, **({} if kind == "awgn" else {"equaliser": "zf", "coherence": "symbol"}))
    up = {name: rows[0] for name, rows in stack(link, [1], 2 * N, (2,), torch.float32).items()}
    ours = link.transmit(x, up, torch.tensor([SNR_DB]))
    if kind == "awgn":
        theirs = sionna.AWGN(device="cpu")(x, NO)
    else:
        y, h = sionna.FlatFadingChannel(1, 1, return_channel=True, device="cpu")(x.reshape(N, 1), NO)
        theirs = (y[:, 0] / h[:, 0, 0])[None]

    def wrong(received: Tensor) -> Tensor:
        """Wrong part of the bits of each symbol, [N]."""
        return (demap(received, torch.tensor(NO)) != sent).double().view(N, bits).mean(-1)

    same_rate(wrong(ours), wrong(theirs))
