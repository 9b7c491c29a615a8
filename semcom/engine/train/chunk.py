"""The number of clients to train at once: `--chunk auto`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from semcom.engine.host.memory import SHARE, measure_free_memory
from semcom.engine.train.forward import convolves
from semcom.engine.train.visit import EVAL_BATCH

COPIES = 5
"""Copies of a client's weights while it trains: its own, its gradient, Adam's two moments, and one in transit."""
PASSES = 3
"""Copies of its activations: kept for the backward pass, their gradients, and a layer's working memory."""
UNFOLDED = 2
"""Copies of the columns that a convolution of a stack unfolds its images into: themselves, and with a border."""
ENOUGH = 64
"""Clients that keep an accelerator busy: 20 to 80 of those of the benchmark do, by their operations and bytes.

A third of a large card's memory holds hundreds, and grouped convolutions become slow with thousands of channels.
"""


def choose_chunk(network: nn.Module, image: torch.Size, batch: int, device: torch.device, itemsize: int = 4) -> int:
    """Choose the number of clients to train at once: one if a CPU convolves, else those that a third of memory holds.

    On a CPU, one client's convolution fills the core and the cache, so a stack of clients only leaves them. Matrix
    products of small networks leave the core idle between operations, and an accelerator is idle without a stack; more
    clients than keep it busy make it no faster.

    Args:
        network: a `SplitModel` on the meta device.
        image: shape of an image.
        batch: mini-batch size.
        device: device of the training.
        itemsize: bytes of a number.

    Returns:
        the number of clients, at least 1.
    """
    if device.type == "cpu" and convolves(network):
        return 1
    most = max(1, measure_free_memory(device) // SHARE // estimate_chunk_memory(network, image, batch, itemsize))
    return most if device.type == "cpu" else min(most, ENOUGH)


@dataclass(frozen=True)
class Footprint:
    """The memory of a network for one image, in numbers.

    Attributes:
        weights: parameters and buffers.
        made: the image and all outputs of layers.
        largest: the largest of these.
        columns: the largest unfolding of images by a convolution of a stack.
        kept: inputs of layers with weights, each counted once: a backward pass needs all of them at a time.
        passed: the largest sum of a layer's input and output, which exist at once in any pass.
    """

    weights: int
    made: int
    largest: int
    columns: int
    kept: int
    passed: int


def measure_footprint(network: nn.Module, image: torch.Size) -> Footprint:
    """Measure the footprint of a network, a `SplitModel` on the meta device.

    It runs on two images, on the host: on the meta device some networks fail, and BatchNorm takes seconds.
    """
    tensors = {name: torch.zeros(t.shape, dtype=t.dtype) for name, t in network.state_dict().items()}
    sizes, columns, passed, kept = [torch.Size(image).numel()], [0], [0], dict[int, Tensor]()

    def note(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        sizes.append(_count_output_numbers(output) // 2)
        if isinstance(module, nn.Conv2d):
            columns.append(sizes[-1] // module.out_channels * module.in_channels * math.prod(module.kernel_size))
        given = inputs[0] if inputs else None
        if isinstance(given, Tensor) and given.is_floating_point():
            own = isinstance(output, Tensor) and _find_address(output) != _find_address(
                given
            )  # else it is a view, or made in place
            passed.append(given.numel() // 2 + own * sizes[-1])
            if module in learning:
                kept[_find_address(given)] = given

    layers = [layer for layer in network.modules() if not list(layer.children())]
    learning = {layer for layer in layers if any(p.requires_grad for p in layer.parameters())}
    hooks = [layer.register_forward_hook(note) for layer in layers]
    try:
        was, x = network.training, torch.zeros(2, *image)
        network.eval()
        for part in ("encoder.", "head."):
            own = {name.removeprefix(part): t for name, t in tensors.items() if name.startswith(part)}
            x = functional_call(network.get_submodule(part[:-1]), own, (x,))
        network.train(was)
    finally:
        for hook in hooks:
            hook.remove()
    weights = sum(t.numel() for t in tensors.values())
    needed = sum(min(t.numel(), t.untyped_storage().nbytes() // t.element_size()) for t in kept.values()) // 2
    return Footprint(weights, sum(sizes), max(sizes), max(columns), needed, max(passed))


def _find_address(tensor: Tensor) -> int:
    """Return the address of a tensor's numbers, which its views share."""
    return tensor.untyped_storage().data_ptr()


def estimate_chunk_memory(network: nn.Module, image: torch.Size, batch: int, itemsize: int = 4) -> int:
    """Estimate the bytes of one client's training in a stack, or of its tests if these take more."""
    of = measure_footprint(network, image)
    unfolded = UNFOLDED * of.columns
    passes = max(batch * (PASSES * of.made + unfolded), EVAL_BATCH * (2 * of.largest + unfolded))
    return itemsize * (COPIES * of.weights + passes)


def _count_output_numbers(output: Any) -> int:
    """Count the numbers of a layer's output, one tensor or several."""
    if isinstance(output, Tensor):
        return output.numel()
    return sum(_count_output_numbers(part) for part in output) if isinstance(output, tuple | list) else 0
