"""The choice of codec and scheme, checked against every candidate and against a bound computed by hand."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import pytest
import torch
from torch import Tensor

from semcom.channels import make_link
from semcom.channels.coding import codec
from semcom.channels.coding.choice import SampleImages, measure_image_psnr
from semcom.channels.coding.curve import CurvePoint, add_gain_db, measure_image_curve
from semcom.channels.coding.image import Choice, ImageChain, Received, send_images
from semcom.channels.coding.mcs import SCHEMES
from tests.channels.coding.test_image import photos, seeded

USES = 128


def mean_psnr(images: Tensor, back: Tensor) -> float:
    """By hand: 10 log10(255^2 / mean squared error) of each image, and the mean."""
    error = (images.double() - back.double()).square().flatten(1).mean(1)
    return float((10 * (255**2 / error).log10()).mean())


@lru_cache(maxsize=1)
def sampled() -> SampleImages:
    return SampleImages(photos(40), "jpeg")


def send_by_each(snr_db: float, gain: Tensor | None, times: int = 1) -> dict[Choice, tuple[float, float]]:
    """The PSNR of the images with every scheme that is not above the capacity of all blocks, and its standard error."""
    images, found = photos(40), {}
    strongest = snr_db + (0.0 if gain is None else float(20 * gain.abs().max().log10()))
    for scheme in SCHEMES:
        room = math.floor(scheme.efficiency * USES) // 8 - 2
        if room > 0 and scheme.efficiency < math.log2(1 + 10 ** (strongest / 10)):
            choice, psnr, lost = Choice("jpeg", scheme), [], []
            for seed in range(times):
                received = send_images(images, USES, snr_db, seeded(seed), [choice], "free", gain)
                psnr.append(mean_psnr(images, received.images))
                lost.append(float(received.lost.double().mean()))
            share, worth = np.mean(lost), sampled().measure("jpeg", room) - sampled().lost.mean()
            found[choice] = float(np.mean(psnr)), float(worth * np.sqrt(share * (1 - share) / 40 / times))
    return found


@pytest.mark.parametrize("snr_db", [4.0, 8.5, 12.0, 16.0])
def test_no_scheme_that_is_sent_gives_better_images(snr_db: float) -> None:
    """All that could be are sent, 40 images five times: no other is better by more than chance and 0.1 dB."""
    (choice,) = sampled().choose_schemes(USES, torch.tensor([[snr_db]]))
    found = send_by_each(snr_db, None, 5)
    best, error = found[choice]
    assert all(best > other - 0.1 - 3 * math.hypot(error, its) for other, its in found.values())


def test_over_fading_the_outage_is_searched() -> None:
    """The gains that images meet are those that are reckoned with: no other scheme gives more, whatever its outage."""
    link = make_link("rayleigh")
    gain = link.gain(link.draw([40], 2, seeded(5)))
    assert gain is not None
    (choice,) = sampled().choose_schemes(USES, add_gain_db(15.0, gain).view(1, -1))
    found = {choice: psnr for choice, (psnr, _) in send_by_each(15.0, gain).items()}
    assert found[choice] > max(found.values()) - 0.2
    each = sampled().choose_schemes(USES, add_gain_db(15.0, gain))
    assert len(each) == 40 and len(set(each)) > 5
    known = mean_psnr(photos(40), send_images(photos(40), USES, 15.0, seeded(), each, "free", gain).images)
    assert known > found[choice] + 0.5


def test_the_best_codec_is_chosen_and_named() -> None:
    """For each budget, the chain picks the codec with the best images among files at the highest quality that fits."""
    images = photos(6)
    sample = SampleImages(images)
    for room in (20, 60, 200):
        by_hand = {}
        for kind in codec.CODECS:
            each = []
            for image in images.permute(0, 2, 3, 1).numpy():
                sent = [
                    d
                    for d, _ in codec.Encoder(image.tobytes(), image.shape, kind, "free").encode_all()
                    if len(d) <= room
                ]
                read = codec.decode_image(sent[-1], image.shape, kind, "free") if sent else image.mean((0, 1)).round()
                each.append(measure_image_psnr(image, read))
            by_hand[kind] = np.mean(each)
            assert sample.measure(kind, room) == pytest.approx(by_hand[kind])
        assert sample.choose_codec(room) == max(by_hand, key=by_hand.__getitem__)


def test_the_bound_is_the_codec_at_capacity() -> None:
    """128 uses at 10 dB carry 442 bits or 55 bytes, with no checksum and no loss. Each image has its own block."""
    images = photos(3)
    bound = sampled().compress_to_capacity(images, USES, [10.0, 20.0, -20.0])
    for i, room in enumerate((55, int(16 * math.log2(101)))):
        pixels = images[i].permute(1, 2, 0).numpy()
        sizes = [len(data) for data, _ in codec.Encoder(pixels.tobytes(), pixels.shape, "jpeg", "free").encode_all()]
        assert bound.payload[i] == max(size for size in sizes if size <= room) and not bound.lost[i]
    assert bound.lost[2]


def test_no_chain_is_above_the_bound() -> None:
    images = photos(20)
    rows = list(measure_image_curve(images, sampled(), (64, USES), (0.0, 6.0, 12.0, 25.0), make_link("awgn")))
    assert [(row.snr_db, row.uses) for row in rows] == [(db, n) for n in (64, USES) for db in (0.0, 6.0, 12.0, 25.0)]
    assert all(row.psnr_db <= row.bound_db + 1e-9 for row in rows)
    assert rows[4].psnr_db < rows[5].psnr_db < rows[6].psnr_db < rows[7].psnr_db


@pytest.mark.parametrize("kind", ["awgn", "rayleigh"])
def test_a_point_of_the_curve_is_what_is_sent(kind: str) -> None:
    """A point agrees with the chain run with that point's own settings."""
    images, link = photos(20), make_link(kind)
    (row,) = measure_image_curve(images, sampled(), (USES,), (14.0,), link, seed=4)
    assert isinstance(row, CurvePoint)
    gain = link.gain(link.draw([20], 2, seeded(4)))
    chain = ImageChain(USES, row.modulation, row.code_rate, row.codec, headers="free")
    received: Received = chain.send(images, 14.0, seeded(5), gain)
    assert (
        row.psnr_db == pytest.approx(mean_psnr(images, received.images)) and row.lost == received.lost.double().mean()
    )


def test_where_no_scheme_has_room_all_is_lost() -> None:
    """3 uses hold no checksum and a byte."""
    (row,) = measure_image_curve(photos(2), sampled(), (3,), (20.0,), make_link("awgn"))
    assert (row.codec, row.modulation, row.lost) == ("", 0, 1.0)
    grey = photos(2).double().mean((2, 3), keepdim=True).round().expand(2, 3, 32, 32)
    assert row.psnr_db == row.bound_db == pytest.approx(mean_psnr(photos(2), grey))
