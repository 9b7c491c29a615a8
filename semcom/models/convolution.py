"""Convolution of a stack of clients, each with its own weights, without a loop over them.

Three ways compute the same: one convolution with a group per client, with images in torch's usual order or channels
last, and unfolding into columns with a batched product. The fastest depends on the device, the shapes and the version
of cuDNN, whose grouped kernels reach between a hundredth and all of a GPU's speed.

The output, the gradient of the input and that of the weights are three functions, each linear in both of its arguments.
Their derivatives are these functions again, so that gradients can be differentiated, too.

Legend: k clients, b images of each, c channels in, o channels out, [h, w] the size of an image.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.grad import conv2d_input, conv2d_weight

Pair = tuple[int, ...]
"""Height and width."""
REPEATS = 3
"""Times that each way is tried, after once that does not count."""


@dataclass(frozen=True)
class Geometry:
    """Position of the kernel of a convolution, and the images under it.

    Attributes:
        size: height and width of an image.
        kernel, stride, padding, dilation: as in `nn.Conv2d`.
        groups: groups of channels of one client.
    """

    size: Pair
    kernel: Pair
    stride: Pair
    padding: Pair
    dilation: Pair
    groups: int

    def grouped(self, k: int) -> dict[str, Any]:
        """List torch's arguments for k clients side by side."""
        own = {"stride": self.stride, "padding": self.padding, "dilation": self.dilation}
        return {**own, "groups": k * self.groups}

    @property
    def out(self) -> Pair:
        """Height and width of the output."""
        sides = zip(self.size, self.kernel, self.stride, self.padding, self.dilation, strict=True)
        height, width = ((n + 2 * p - d * (kernel - 1) - 1) // s + 1 for n, kernel, s, p, d in sides)
        return height, width


def convolve(x: Tensor, weight: Tensor, bias: Tensor | None, geometry: Geometry) -> Tensor:
    """Convolve each client's images with its own weights.

    Args:
        x: images, `[k, b, c, h, w]` in any order of memory.
        weight: `[k, o, c / groups, *kernel]`.
        bias: `[k, o]`, or None.
        geometry: position of the kernel.

    Returns:
        `[k, b, o, h', w']`, in the order of memory that suits the chosen way.
    """
    y: Tensor = _Bilinear.apply(OUTPUT, x, weight, geometry)  # type: ignore[assignment]
    return y if bias is None else y + bias[:, None, :, None, None]


class _Bilinear(torch.autograd.Function):
    """One of the three functions of two stacks. Its derivatives are the other two, by `DERIVATIVES`.

    The images with a border, once made, serve the gradient by the weights too.
    """

    @staticmethod
    def forward(
        ctx: Any, which: str, one: Tensor, other: Tensor, geometry: Geometry, padded: Tensor | None = None
    ) -> Tensor:
        way, first, second = _choose_way(which, one, other, geometry), one, other
        if way == UNFOLDED and which == OUTPUT:
            padded = first = _pad_images(one, geometry)
        elif way == UNFOLDED and which == OF_WEIGHT and padded is not None:
            second = padded
        ctx.save_for_backward(one, other, padded if which == OUTPUT and ctx.needs_input_grad[2] else None)
        ctx.which, ctx.geometry = which, geometry
        return WAYS[which][way](first, second, geometry)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        (one, other, padded), (a,) = ctx.saved_tensors, grads
        needed, derivatives = ctx.needs_input_grad[1:3], DERIVATIVES[ctx.which]
        if ctx.which == OUTPUT and all(needed):
            ways = {_choose_way(which, *factors(one, other, a), ctx.geometry) for which, factors in derivatives}
            if ways == {UNFOLDED}:  # both take it in this order of memory
                a = a.transpose(1, 2).contiguous().transpose(1, 2)
        found = [
            _Bilinear.apply(which, *factors(one, other, a), ctx.geometry, padded) if wanted else None
            for (which, factors), wanted in zip(derivatives, needed, strict=True)
        ]
        return None, *found, None, None


OUTPUT, OF_INPUT, OF_WEIGHT = "output", "gradient by the input", "gradient by the weights"
"""The functions: y of (x, w), and for a gradient g by y, the gradient by x, of (g, w), and by w, of (g, x)."""
Factors = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
DERIVATIVES: dict[str, tuple[tuple[str, Factors], tuple[str, Factors]]] = {
    OUTPUT: ((OF_INPUT, lambda x, w, a: (a, w)), (OF_WEIGHT, lambda x, w, a: (a, x))),
    OF_INPUT: ((OUTPUT, lambda g, w, a: (a, w)), (OF_WEIGHT, lambda g, w, a: (g, a))),
    OF_WEIGHT: ((OUTPUT, lambda g, x, a: (x, a)), (OF_INPUT, lambda g, x, a: (g, a))),
}
"""By either factor: the function, and its arguments from both factors and the gradient a by the result."""


# -- with a group per client -----------------------------------------------------------------------------------------


def lay_side_by_side(x: Tensor) -> Tensor:
    """Lay the clients' channels side by side: `[k, b, c, h, w] -> [b, k c, h, w]`, a view if memory allows."""
    return x.transpose(0, 1).flatten(1, 2)


def separate_channels(x: Tensor, k: int) -> Tensor:
    """Separate the channels of each of k clients: undo `lay_side_by_side`."""
    return x.unflatten(1, (k, -1)).transpose(0, 1)


def _grouped_output(x: Tensor, w: Tensor, geometry: Geometry, order: torch.memory_format) -> Tensor:
    side, weight = (t.contiguous(memory_format=order) for t in (lay_side_by_side(x), w.flatten(0, 1)))
    return separate_channels(F.conv2d(side, weight, **geometry.grouped(len(w))), len(w))


def _grouped_of_input(g: Tensor, w: Tensor, geometry: Geometry, order: torch.memory_format) -> Tensor:
    k, b = g.shape[:2]
    shape = (b, k * geometry.groups * w.shape[2], *geometry.size)
    side, weight = (t.contiguous(memory_format=order) for t in (lay_side_by_side(g), w.flatten(0, 1)))
    return separate_channels(conv2d_input(shape, weight, side, **geometry.grouped(k)), k)


def _grouped_of_weight(g: Tensor, x: Tensor, geometry: Geometry, order: torch.memory_format) -> Tensor:
    k, o = g.shape[0], g.shape[2]
    shape = (k * o, x.shape[2] // geometry.groups, *geometry.kernel)
    grad, side = (lay_side_by_side(t).contiguous(memory_format=order) for t in (g, x))
    return conv2d_weight(side, shape, grad, **geometry.grouped(k)).unflatten(0, (k, o)).contiguous()


# -- unfolded into columns -------------------------------------------------------------------------------------------


def _pad_images(x: Tensor, geometry: Geometry) -> Tensor:
    """Put the border around images that the kernel reaches."""
    top, left = geometry.padding
    return F.pad(x, (left, left, top, top)) if top or left else x


def _unfold_columns(x: Tensor, geometry: Geometry) -> Tensor:
    """Gather the pixels under the kernel by place, `[k, b, c, h, w] -> [k, groups, c / groups kernel, b h' w']`.

    Images may have their border already.
    """
    if x.shape[-2:] == geometry.size:
        x = _pad_images(x, geometry)
    (rows, columns), (height, width), (dy, dx) = geometry.kernel, geometry.out, geometry.dilation
    at = x.stride()
    shape = (*x.shape[:3], rows, columns, height, width)
    strides = (*at[:3], dy * at[3], dx * at[4], geometry.stride[0] * at[3], geometry.stride[1] * at[4])
    windows = x.as_strided(shape, strides, x.storage_offset())
    k, b, c = x.shape[:3]
    return windows.permute(0, 2, 3, 4, 1, 5, 6).reshape(k, geometry.groups, -1, b * height * width)


def _fold_columns(columns: Tensor, b: int, geometry: Geometry) -> Tensor:
    """Undo `_unfold_columns`: sum each pixel's values over all columns, `-> [k, b, c, h, w]`, without dilation.

    The tap i = a s + r of a kernel with stride s lies at the pixel (q + a) s + r of the place q. So the taps of a
    pixel, with its r, are those with all a, at the places before it: a sum along a diagonal of taps and places.
    """
    (rows, wide), (sy, sx), (height, width) = geometry.kernel, geometry.stride, geometry.out
    ny, nx = -(-rows // sy), -(-wide // sx)
    taps = columns.reshape(len(columns), -1, rows, wide, b, height, width)
    more = (nx - 1, nx - 1, ny - 1, ny - 1, 0, 0, 0, nx * sx - wide, 0, ny * sy - rows)
    taps = F.pad(taps, more)
    k, c, i, j, image, y, x = taps.stride()
    shape = (*taps.shape[:2], b, height + ny - 1, sy, width + nx - 1, sx, ny, nx)
    strides = (k, c, image, y, i, x, j, sy * i - y, sx * j - x)
    summed = taps.as_strided(shape, strides, (ny - 1) * y + (nx - 1) * x).sum((-2, -1)).flatten(3, 4).flatten(-2)
    (top, left), (h, w) = geometry.padding, geometry.size
    short = (0, max(0, left + w - summed.shape[-1]), 0, max(0, top + h - summed.shape[-2]))
    summed = F.pad(summed, short) if any(short) else summed  # pixels behind the last place
    return summed[..., top : top + h, left : left + w].transpose(1, 2)


def _reshape_to_matrices(g: Tensor, groups: int) -> Tensor:
    """Reshape outputs or their gradients to matrices: `[k, b, o, h', w'] -> [k, groups, o / groups, b h' w']`."""
    return g.transpose(1, 2).reshape(len(g), groups, g.shape[2] // groups, -1)


def _unfolded_output(x: Tensor, w: Tensor, geometry: Geometry) -> Tensor:
    matrices = w.flatten(2).unflatten(1, (geometry.groups, -1))
    y = torch.matmul(matrices, _unfold_columns(x, geometry))
    return y.view(*w.shape[:2], x.shape[1], *geometry.out).transpose(1, 2)


def _unfolded_of_input(g: Tensor, w: Tensor, geometry: Geometry) -> Tensor:
    if geometry.dilation != (1, 1):  # `_fold_columns` takes neighbouring taps only
        return _grouped_of_input(g, w, geometry, torch.contiguous_format)
    matrices = w.flatten(2).unflatten(1, (geometry.groups, -1))
    columns = torch.matmul(matrices.transpose(2, 3), _reshape_to_matrices(g, geometry.groups))
    return _fold_columns(columns, g.shape[1], geometry)


def _unfolded_of_weight(g: Tensor, x: Tensor, geometry: Geometry) -> Tensor:
    products = torch.matmul(_reshape_to_matrices(g, geometry.groups), _unfold_columns(x, geometry).transpose(2, 3))
    return products.view(len(g), g.shape[2], x.shape[2] // geometry.groups, *geometry.kernel)


# -- the choice ------------------------------------------------------------------------------------------------------

Way = Callable[[Tensor, Tensor, Geometry], Tensor]
UNFOLDED = "unfolded"


def _list_ways(grouped: Callable[..., Tensor], unfolded: Way) -> dict[str, Way]:
    """List the ways to compute one of the three functions, by name. The first is the default."""
    usual, last = (partial(grouped, order=order) for order in (torch.contiguous_format, torch.channels_last))
    return {UNFOLDED: unfolded, "grouped": usual, "grouped, channels last": last}


WAYS: dict[str, dict[str, Way]] = {
    OUTPUT: _list_ways(_grouped_output, _unfolded_output),
    OF_INPUT: _list_ways(_grouped_of_input, _unfolded_of_input),
    OF_WEIGHT: _list_ways(_grouped_of_weight, _unfolded_of_weight),
}
_chosen: dict[Any, str] = {}


def _choose_way(which: str, one: Tensor, other: Tensor, geometry: Geometry) -> str:
    """Choose the way that computes a function of two stacks fastest on a GPU, timed once in a process for the shapes.

    The first way is taken if results have to repeat (`torch.backends.cudnn.deterministic`), and on other devices:
    batched products run at full speed for any number of clients.
    """
    # Timings differ between runs, and so would the choice and the last bits of the results.
    if not one.is_cuda or torch.backends.cudnn.deterministic:
        return next(iter(WAYS[which]))
    key = which, one.shape, one.stride(), other.shape, one.dtype, geometry
    if key not in _chosen:
        took = {name: _time_way(partial(way, one, other, geometry)) for name, way in WAYS[which].items()}
        _chosen[key] = min(took, key=lambda name: took[name])
    return _chosen[key]


def _time_way(work: Callable[[], object]) -> float:
    """Measure the shortest time of some work on the GPU, or infinity if its memory does not suffice."""
    took = []
    try:
        for _ in range(1 + REPEATS):
            torch.cuda.synchronize()
            start = time.perf_counter()
            work()
            torch.cuda.synchronize()
            took.append(time.perf_counter() - start)
    except torch.cuda.OutOfMemoryError:
        return float("inf")
    return min(took[1:])  # the first call also sets up cuDNN
