"""Augmentations against torchvision's functional transforms of single images with the same random numbers."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torchvision.transforms.v2 import functional as reference

from semcom.methods.parts.augment import UNIFORMS, augment, brightness, contrast, grey, hue, resized_crop, saturation

SAME = {"rtol": 0, "atol": 1e-12}


def pictures(n: int = 4, channels: int = 3, h: int = 32, w: int = 32) -> Tensor:
    """Images in [0, 1], the first one grey throughout, with black, white and equal channels here and there."""
    x = torch.rand(n, channels, h, w, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x[0] = x[0, :1]
    x[1, :, 0], x[1, :, 1], x[1, :2, 2] = 0, 1, 0.5
    return x


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def quiet(n: int, **values: float) -> Tensor:
    """Build uniform numbers that leave an image unchanged, except for `values`."""
    names = ("area", "aspect", "left", "top", "mirror", "jitter", "bright", "contrast", "saturation", "hue", "grey")
    still = dict.fromkeys(names, 0.5) | {"area": 1.0, "mirror": 0.9, "jitter": 0.9, "grey": 0.9}
    return column(*(still | values).values()).expand(n, UNIFORMS)


@pytest.mark.parametrize("mirror", [False, True])
@pytest.mark.parametrize("box", [(0, 0, 32, 32), (3, 5, 20, 11), (21, 0, 11, 32), (0, 31, 1, 1), (7, 30, 25, 2)])
def test_crops_are_torchvisions(box: tuple[int, int, int, int], mirror: bool) -> None:
    top, left, height, width = box
    x = pictures()
    want = reference.resized_crop(x, top, left, height, width, [32, 32])
    want = reference.horizontal_flip(want) if mirror else want
    parts = (column(v / 32).expand(4) for v in (left, top, width, height))
    torch.testing.assert_close(resized_crop(x, *parts, torch.full((4,), mirror)), want, **SAME)


def test_each_image_has_its_own_box() -> None:
    x, left, width = pictures(3, 1, 8, 8), column(0, 1, 4) / 8, column(8, 3, 4) / 8
    got = resized_crop(x, left, column(0, 2, 0) / 8, width, width, torch.tensor([True, False, True]))
    boxes = [(0, 0, 8, 8), (2, 1, 3, 3), (0, 4, 4, 4)]
    want = torch.stack([reference.resized_crop(x[i], *box, [8, 8]) for i, box in enumerate(boxes)])
    want[[0, 2]] = want[[0, 2]].flip(-1)
    torch.testing.assert_close(got, want, **SAME)


def test_a_crop_between_pixels_by_hand() -> None:
    """The middle half of four pixels 0, 1, 2, 3, and a box inside one pixel."""
    x = torch.arange(4, dtype=torch.float64).view(1, 1, 1, 4)
    half = resized_crop(x, column(0.25), column(0), column(0.5), column(1))
    torch.testing.assert_close(half.flatten(), column(1, 1.25, 1.75, 2), **SAME)
    inside = resized_crop(x, column(0.25), column(0), column(0.125), column(1))
    torch.testing.assert_close(inside.flatten(), column(0.75, 0.75, 0.75, 0.75), **SAME)


@pytest.mark.parametrize("factor", [0.6, 1.0, 1.37])
def test_brightness_contrast_and_saturation_are_torchvisions(factor: float) -> None:
    x, each = pictures(), column(factor).expand(4)
    torch.testing.assert_close(brightness(x, each), reference.adjust_brightness(x, factor), **SAME)
    torch.testing.assert_close(contrast(x, each), one_by_one(reference.adjust_contrast, x, factor), **SAME)
    torch.testing.assert_close(saturation(x, each), reference.adjust_saturation(x, factor), **SAME)


def one_by_one(fn: object, x: Tensor, value: float) -> Tensor:
    return torch.stack([fn(image, value) for image in x])  # type: ignore[operator]


@pytest.mark.parametrize("turn", [-0.5, -0.1, 0.0, 0.07, 0.31])
def test_hue_is_torchvisions(turn: float) -> None:
    x = pictures()
    torch.testing.assert_close(hue(x, column(turn).expand(4)), reference.adjust_hue(x, turn), rtol=0, atol=1e-6)


def test_a_third_of_the_circle_turns_red_into_green() -> None:
    red = column(1, 0, 0).view(1, 3, 1, 1)
    torch.testing.assert_close(hue(red, column(1 / 3)).flatten(), column(0, 1, 0), **SAME)


def test_grey_is_torchvisions() -> None:
    x = pictures()
    torch.testing.assert_close(grey(x), reference.rgb_to_grayscale(x), **SAME)


def test_uniforms_in_the_middle_change_nothing() -> None:
    x = 2 * pictures() - 1
    torch.testing.assert_close(augment(x, quiet(4)), x, **SAME)
    torch.testing.assert_close(augment(x, quiet(4, jitter=0.1)), x, **SAME)


def test_what_the_uniforms_say() -> None:
    """Every number's part, one at a time, in torchvision's words."""
    x = pictures()
    says = {
        "mirror": (0.1, reference.horizontal_flip(x)),
        "bright": (0.0, reference.adjust_brightness(x, 0.6)),
        "contrast": (0.75, one_by_one(reference.adjust_contrast, x, 1.2)),
        "saturation": (0.25, reference.adjust_saturation(x, 0.8)),
        "hue": (0.0, reference.adjust_hue(x, -0.1)),
        "grey": (0.1, reference.rgb_to_grayscale(x, 3)),
    }
    for name, (value, want) in says.items():
        got = augment(2 * x - 1, quiet(4, jitter=0.1, **{name: value}))
        torch.testing.assert_close((got + 1) / 2, want, rtol=0, atol=1e-6)
    square = augment(2 * x - 1, quiet(4, area=0.25 - 0.1875, left=0.25, top=0.75), 0.2)  # 0.2 + 0.8 u = 1/4
    torch.testing.assert_close((square + 1) / 2, reference.resized_crop(x, 12, 4, 16, 16, [32, 32]), **SAME)
    tall = augment(2 * x - 1, quiet(4, area=0.0, aspect=0.0, left=0.0, top=0.0), 0.1875)  # 3/8 by 1/2
    torch.testing.assert_close((tall + 1) / 2, reference.resized_crop(x, 0, 0, 16, 12, [32, 32]), **SAME)


def test_the_order_of_jitter() -> None:
    x = pictures()
    want = reference.adjust_contrast(reference.adjust_brightness(x[2], 1.4), 0.6)
    want = reference.adjust_hue(reference.adjust_saturation(want, 0.6), 0.05)
    got = augment(2 * x - 1, quiet(4, jitter=0.1, bright=1.0, contrast=0.0, saturation=0.0, hue=0.75))
    torch.testing.assert_close((got[2] + 1) / 2, want, rtol=0, atol=1e-6)


def test_one_channel_has_neither_jitter_nor_grey() -> None:
    x = 2 * pictures(4, 1) - 1
    got = augment(x, quiet(4, jitter=0.0, bright=0.0, contrast=0.0, grey=0.0, mirror=0.0))
    torch.testing.assert_close(got, x.flip(-1), **SAME)


def test_leading_axes_and_the_range() -> None:
    """A stack of clients equals single images. Views stay in [-1, 1], in float32 too."""
    u = torch.rand(5, 200, UNIFORMS, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x = 2 * torch.rand(5, 200, 3, 8, 8, generator=torch.Generator().manual_seed(2), dtype=torch.float64) - 1
    got = augment(x, u)
    assert got.shape == x.shape and got.abs().max() <= 1 + 1e-12
    for k, i in ((0, 0), (3, 17), (4, 199)):
        torch.testing.assert_close(got[k, i], augment(x[k, i : i + 1], u[k, i : i + 1])[0], **SAME)
    torch.testing.assert_close(augment(x.float(), u.float()).double(), got, rtol=0, atol=2e-4)


def test_how_many_are_mirrored_jittered_and_grey() -> None:
    n = 20000
    u = torch.rand(n, UNIFORMS, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    u[:, 1] = 0.5  # with all of the area: no crop
    x = torch.zeros(n, 3, 1, 2, dtype=torch.float64)
    x[:, 0, :, 0], x[:, 1, :, 0] = 0.2, -0.3
    x[..., 1] = -x[..., 0]
    views = augment(x, u, smallest=1.0)
    no_colour = (views[:, 0] - views[:, 1]).abs().amax((1, 2)) < 1e-9
    mirrored = views[~no_colour, 0, 0, 0] < views[~no_colour, 0, 0, 1]
    still = (views[~no_colour].abs() - x[~no_colour].abs()).abs().amax((1, 2, 3)) < 1e-9
    for found, part in ((no_colour, 0.2), (mirrored, 0.5), (still, 0.2)):
        assert abs(found.double().mean() - part) < 5 * math.sqrt(part * (1 - part) / len(found))
