"""The image chain: the files that fit, the images that are lost, and the images that come out."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from semcom.channels.coding import codec
from semcom.channels.coding.choice import SampleImages
from semcom.channels.coding.image import Choice, ImageChain, compress_images, send_images
from semcom.channels.coding.mcs import SCHEMES
from tests.channels.draws import seeded

CIFAR = Path(os.environ.get("SEMCOM_DATA", "")) / "cifar10.npz"
SETTINGS = [(kind, headers) for kind in codec.CODECS for headers in codec.HEADERS]


def photos(n: int, channels: int = 3, size: int = 32) -> Tensor:
    """Smooth random images of little colour, uint8 `[n, channels, size, size]`."""
    generator = torch.Generator().manual_seed(1)
    coarse = torch.rand(n, 1, 4, 4, generator=generator) + 0.1 * torch.rand(n, channels, 4, 4, generator=generator)
    return (230 * torch.nn.functional.interpolate(coarse, size, mode="bicubic").clamp(0, 1)).to(torch.uint8)


def versions(image: Tensor, kind: str, headers: str) -> list[tuple[bytes, int]]:
    pixels = image.permute(1, 2, 0).numpy() if len(image) == 3 else image[0].numpy()
    return codec.Encoder(pixels.tobytes(), pixels.shape, kind, headers).encode_all()


@pytest.mark.parametrize(("kind", "headers"), SETTINGS)
@pytest.mark.parametrize(("channels", "size"), [(3, 32), (1, 32), (1, 28), (3, 45)])
def test_a_file_can_do_without_its_header(kind, headers, channels, size):
    """Without the header, or with trailing zeros, the image is the same. A higher quality gives a closer image."""
    image = photos(1, channels, size)[0]
    shape = (size, size, 3) if channels == 3 else (size, size)
    original = image.permute(1, 2, 0).numpy().reshape(shape).astype(float)
    errors = []
    for data, _ in versions(image, kind, headers):
        read = codec.decode_image(data, shape, kind, headers)
        padded = codec.decode_image(data + bytes(40), shape, kind, headers)
        assert read is not None and padded is not None and np.array_equal(read, padded)
        errors.append(np.square(read - original).mean())
    assert errors[-1] < 0.2 * errors[0] and errors[-1] < 10
    assert codec.decode_image(b"\x00" * 50, shape, kind, headers) is None or headers == "free"


@pytest.mark.parametrize("kind", codec.CODECS)
def test_the_best_file_with_room_is_found_by_few_encodings(kind):
    """As of all files; the size does not always rise with the quality."""
    for image in photos(6):
        every, pixels = versions(image, kind, "free"), image.permute(1, 2, 0).numpy()
        for room in range(0, 1200, 11):
            encoder = codec.Encoder(pixels.tobytes(), pixels.shape, kind, "free")
            expected = next((each for each in reversed(every) if len(each[0]) <= room), (b"", 0))
            assert encoder.fit(room) == expected
            assert len(encoder.found) <= 1 + len(every).bit_length() + codec.AHEAD


def test_an_image_is_encoded_once():
    pixels = photos(1)[0].permute(1, 2, 0).numpy()
    one, other = (codec.encode_image(pixels.tobytes(), pixels.shape, "webp", "free") for _ in range(2))
    assert one is other and one.fit(300) is other.fit(300)


@pytest.mark.parametrize("kind", codec.CODECS)
def test_payload_and_header_add_up_to_the_file(kind):
    """WebP: RIFF, WEBP and VP8 chunk (20 bytes), start code, width and height (7). JPEG and AVIF: over 250 bytes."""
    image = photos(1)[0]
    for (sent, header), (free, same) in zip(versions(image, kind, "sent"), versions(image, kind, "free"), strict=True):
        if kind == "webp":
            assert header == same == 27 and len(sent) == len(free) + 27
        elif kind == "avif":  # ftyp 32, meta 235 and mdat 8 bytes; delimiter 2, sequence 11, the frame's kind 1
            assert header == same == 32 + 235 + 8 + 14 and len(sent) == len(free) + header
        else:
            assert header > 250 and same == 623 + 2 - 1  # all before the scan, and the end; less the byte for quality


@pytest.mark.parametrize(("kind", "headers"), SETTINGS)
@pytest.mark.parametrize("channels", [1, 3])
def test_at_a_high_snr_images_arrive_as_they_were_compressed(kind, headers, channels):
    images = photos(6, channels)
    received = ImageChain(1500, 64, 3 / 4, kind, headers=headers).send(images, 60.0, seeded())
    room = 1500 * 6 * 3 // 4 // 8 - 2
    for i, image in enumerate(images):
        data, header = [each for each in versions(image, kind, headers) if len(each[0]) <= room][-1]
        shape = (32, 32, 3) if channels == 3 else (32, 32)
        expected = codec.decode_image(data, shape, kind, headers)
        arrived = received.images[i].permute(1, 2, 0).numpy().reshape(shape)
        assert expected is not None and np.array_equal(arrived, expected)
        assert received.headers[i] == header
        assert received.payload[i] == len(data) - (header if headers == "sent" else 0) > 0
    assert received.images.dtype == torch.uint8 and not received.lost.any()


def test_more_uses_give_better_images_until_nothing_fits():
    images, errors = photos(8), []
    for uses in (2048, 768, 512):
        received = ImageChain(uses).send(images, 30.0, seeded())
        assert not received.lost.any() and (received.payload + received.headers <= uses * 2 // 8 - 2).all()
        errors.append(float((received.images.double() - images).square().mean()))
    assert errors == sorted(errors) and errors[0] < 0.3 * errors[-1]
    nothing = ImageChain(32).send(images, 30.0, seeded())
    assert nothing.lost.all() and not nothing.payload.any() and not nothing.headers.any()


def test_a_checksum_finds_what_noise_broke():
    """In the waterfall some are lost, and no broken image passes for a good one."""
    images = photos(30)
    clean = ImageChain(400).send(images, 60.0, seeded())
    received = ImageChain(400).send(images, 6.0, seeded())
    assert 3 < received.lost.sum() < 27
    assert torch.equal(received.images[~received.lost], clean.images[~received.lost])
    assert ImageChain(400).send(images, 2.0, seeded()).lost.all()


def test_a_lost_image_is_shown_as_the_mean_of_each_colour():
    """As Bourtsoulatze et al. (2019) count images without room: by hand, rounded to bytes."""
    images = photos(3)
    received = ImageChain(32).send(images, 30.0, seeded())
    mean = np.rint(images.numpy().mean((2, 3), dtype=float)).astype(np.uint8)
    assert received.lost.all() and np.array_equal(
        received.images.numpy(), np.broadcast_to(mean[..., None, None], images.shape)
    )
    assert torch.equal(send_images(images, 32, 30.0, seeded(), [], "free").images, received.images)


def test_each_image_goes_by_its_own_choice():
    """A batch equals separate calls when there is no noise, and also when files need no channel."""
    images, schemes = photos(4), (SCHEMES[3], SCHEMES[20])
    choices = [Choice(kind, scheme) for kind in ("jpeg", "avif") for scheme in schemes]
    together = send_images(images, 300, 60.0, seeded(), choices, "free")
    for i, (kind, scheme) in enumerate(choices):
        alone = ImageChain(300, *scheme, kind, headers="free").send(images[i : i + 1], 60.0, seeded())
        room = int(300 * scheme.efficiency) // 8 - 2
        free = compress_images(images[i : i + 1], [kind], [room], "free")
        assert torch.equal(together.images[i], alone.images[0]) and torch.equal(free.images, alone.images)
        assert together.payload[i] == alone.payload[0] == free.payload[0] <= room


def test_fading_loses_images_in_outages():
    """With one h per image, a share 1 - exp(-a) falls below the SNR that the code needs. Rician fading loses fewer."""
    images = photos(100)
    awgn, rayleigh, rician = (
        ImageChain(400, headers="free", fading=fading).send(images, 12.0, seeded()).lost.double().mean()
        for fading in ("awgn", "rayleigh", "rician")
    )
    assert awgn == 0
    low, high = (1 - np.exp(-(10 ** ((needed - 12.0) / 10))) for needed in (5.5, 7.5))
    error = 5 * np.sqrt(high / 100)
    assert low - error < rayleigh < high + error and rician < rayleigh - 0.1


@pytest.mark.parametrize("coherence", ["batch", "round"])
def test_one_gain_lasts_for_all_images_of_a_call(coherence, monkeypatch):
    """However many are sent at once."""
    met, block = [], ImageChain._block
    monkeypatch.setattr("semcom.channels.coding.image.BLOCK", 1200)
    monkeypatch.setattr(ImageChain, "_block", lambda *args: met.append(args[-1]) or block(*args))
    chain = ImageChain(400, headers="free", fading="rayleigh", coherence=coherence)
    for seed in (0, 1):
        chain.send(photos(12), 12.0, seeded(seed))
    assert [len(h) for h in met] == [3] * 8 and len(torch.cat(met).abs().unique()) == 2


def test_the_draw_is_a_function_of_the_generator_alone():
    images, chain = photos(30), ImageChain(400)
    before = torch.get_rng_state()
    one, two, other = (chain.send(images, 6.4, seeded(seed)) for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one.images, two.images) and torch.equal(one.lost, two.lost)
    assert not torch.equal(one.lost, other.lost)
    none = chain.send(images[:0], 6.4, seeded())
    assert none.images.shape == (0, 3, 32, 32) and none.lost.shape == none.payload.shape == (0,)


@pytest.mark.parametrize("images", [torch.zeros(2, 3, 8, 8), torch.zeros(3, 8, 8, dtype=torch.uint8)])
def test_other_images_are_one_line(images):
    with pytest.raises(ValueError, match=r"^images: torch\.\w+ \[.*\] is not uint8 \[n, 1 or 3, height, width\]$"):
        ImageChain(512).send(images, 9.0, seeded())


@pytest.mark.skipif(not CIFAR.is_file(), reason="needs CIFAR-10: set SEMCOM_DATA to the folder of cifar10.npz")
def test_the_smallest_webp_of_a_cifar_image_has_about_70_bytes():
    """Of the first 40 images, the smallest file has 68 bytes and the mean is 90 bytes, including 27 bytes of header.

    32 uses carry 4 to 24 bytes at 0 to 18 dB, so no file fits.
    """
    images = np.load(CIFAR)["x_test"][:40]
    files = [codec.Encoder(image.tobytes(), image.shape, "webp", "sent").encode(0)[0] for image in images]
    sizes = np.array([len(file) for file in files])
    assert 60 <= sizes.min() <= 80 and 80 <= sizes.mean() <= 105
    tensor = torch.from_numpy(images[:20]).permute(0, 3, 1, 2)
    choices = SampleImages(tensor, "webp").choose_schemes(32, torch.tensor([[18.0]]))
    assert send_images(tensor, 32, 18.0, seeded(), choices, "free").lost.all()
