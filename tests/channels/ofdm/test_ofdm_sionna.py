"""Sionna's own OFDM chain as the oracle: resource grid, channel, estimator and equaliser at the same SNR."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from semcom.channels import make_link
from semcom.channels.ofdm.grid import SLOT
from semcom.channels.ofdm.profiles import ThreeGPP, import_sionna

FRAMES, WIDTH, SNR_DB = 1000, 12, 8.0
NO = 10 ** (-SNR_DB / 10)
ELEMENTS = 12 * WIDTH


@pytest.fixture(scope="module")
def parts() -> SimpleNamespace:
    """More of Sionna, seeded without a trace in torch's global generator."""
    config = import_sionna().config
    before = torch.get_rng_state()
    with torch.random.fork_rng():
        from sionna.phy.channel import OFDMChannel
        from sionna.phy.mapping import Demapper, Mapper
        from sionna.phy.mimo import StreamManagement
        from sionna.phy.ofdm import LSChannelEstimator, ResourceGrid, ResourceGridMapper, ZFEqualizer
    config.torch_rng("cpu").manual_seed(1)
    assert torch.equal(torch.get_rng_state(), before)
    return SimpleNamespace(
        OFDMChannel=OFDMChannel,
        Demapper=Demapper,
        Mapper=Mapper,
        StreamManagement=StreamManagement,
        LSChannelEstimator=LSChannelEstimator,
        ResourceGrid=ResourceGrid,
        ResourceGridMapper=ResourceGridMapper,
        ZFEqualizer=ZFEqualizer,
    )


def theirs(parts: SimpleNamespace, profile: ThreeGPP, csi: str, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Symbols `[FRAMES, ELEMENTS]` through Sionna's chain: equalised by its ZF, as received, and the estimates of h."""
    grid = parts.ResourceGrid(
        num_ofdm_symbols=SLOT,
        fft_size=WIDTH,
        subcarrier_spacing=15e3,
        cyclic_prefix_length=0,  # of the time domain; with it the rate of OFDM symbols, here that of no prefix
        pilot_pattern="kronecker",
        pilot_ofdm_symbol_indices=[2, 11],
        device="cpu",
    )
    channel = parts.OFDMChannel(profile.model("cpu"), grid, return_channel=True, device="cpu")
    y, h = channel(parts.ResourceGridMapper(grid, device="cpu")(x[:, None, None]), NO)
    if csi == "ls":
        h, variance = parts.LSChannelEstimator(grid, interpolation_type="lin", device="cpu")(y, NO)
    else:
        variance = torch.zeros_like(h.real)
    streams = parts.StreamManagement([[1]], 1)
    equalised, _ = parts.ZFEqualizer(grid, streams, device="cpu")(y, h, variance, NO)
    data = [t for t in range(SLOT) if t not in (2, 11)]
    return equalised.view(FRAMES, ELEMENTS), *(t.view(FRAMES, SLOT, WIDTH)[:, data].flatten(1) for t in (y, h))


def ours(csi: str, equaliser: str, options: dict[str, float | str], x: Tensor) -> Tensor:
    """Send the same symbols through the link, one frame per mini-batch of one sample."""
    link = make_link("ofdm", csi=csi, equaliser=equaliser, subcarriers=WIDTH, cyclic_prefix=0.0, **options)
    up = link.draw([1] * FRAMES, 2 * ELEMENTS, torch.Generator().manual_seed(5))
    return link.transmit(x[None], {name: tensor[None] for name, tensor in up.items()}, torch.tensor([SNR_DB]))[0]


def same_mean(one: Tensor, two: Tensor) -> None:
    """Means over independent frames `[FRAMES]`, within five standard errors of their difference."""
    error = math.sqrt(float(one.var() + two.var()) / FRAMES)
    assert abs(float(one.mean() - two.mean())) < 5 * error, f"{one.mean():.5g}, {two.mean():.5g}, +- {error:.2g}"


@pytest.mark.filterwarnings("ignore:delay_spread_ns")
@pytest.mark.parametrize(
    ("csi", "options"),
    [
        ("perfect", {"profile": "rayleigh"}),
        ("ls", {"profile": "tdl-a", "delay_spread_ns": 1000.0, "speed_mps": 60.0}),
        ("ls", {"profile": "cdl-d", "delay_spread_ns": 300.0, "speed_mps": 30.0}),
    ],
    ids=["rayleigh", "tdl-a", "cdl-d"],
)
def test_bit_error_rate_and_mean_square_error_agree(csi, options, parts):
    """QPSK: bit errors after zero forcing (its square error has no mean), and the error of our MMSE on their estimates.

    The quality of these estimates is known from ours.
    """
    bits = torch.randint(2, (FRAMES, 2 * ELEMENTS), generator=torch.Generator().manual_seed(1)).float()
    x = parts.Mapper("qam", 2, device="cpu")(bits)
    channel = make_link("ofdm", cyclic_prefix=0.0, **options).profile
    equalised, y, h = theirs(parts, channel, csi, x)
    demap = parts.Demapper("maxlog", "qam", 2, hard_out=True, device="cpu")

    def wrong(received: Tensor) -> Tensor:
        return (demap(received, torch.tensor(NO)) != bits).float().mean(1)

    same_mean(wrong(ours(csi, "zf", options, x)), wrong(equalised))
    known = torch.tensor([1.0, 0.0, 0.0])
    if csi == "ls":
        known = make_link("ofdm", csi=csi, subcarriers=WIDTH, cyclic_prefix=0.0, **options).draw(
            [1], 2 * ELEMENTS, torch.Generator()
        )["moments"]
    r, floor, weights = known.unbind(-1)
    wrong_part = floor + weights * NO
    power = r.square() + wrong_part
    mean = r / power * h
    mmse = mean.conj() * y / (mean.abs().square() + wrong_part / power + NO)
    same_mean((ours(csi, "mmse", options, x) - x).abs().square().mean(1), (mmse - x).abs().square().mean(1))
