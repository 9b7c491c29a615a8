"""How many clients to train at once: `--chunk auto`."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from semcom.engine.memory import free_memory

COPIES = 5
"""Of a client's weights while it trains: its row, its gradient, Adam's two moments, and one on the way."""
PASSES = 3
"""Of its activations: kept for the backward pass, their gradients, and what a layer needs meanwhile."""


def automatic(network: nn.Module, image: torch.Size, batch: int, device: torch.device) -> int:
    """Clients at once: one where a convolution on a CPU is at work, else what half of the free memory holds.

    On a CPU one client's convolution fills the core and the cache, and a stack of clients only leaves them; matrix
    products of small networks leave the core idle between operations, and an accelerator is idle without a stack.

    Args:
        network: a `SplitModel` on the meta device.
        image: shape of an image.
        batch: mini-batch size.
        device: where it will train.
    """
    if device.type == "cpu" and any(isinstance(layer, nn.modules.conv._ConvNd) for layer in network.modules()):
        return 1
    return max(1, free_memory(device) // 2 // footprint(network, image, batch))


def footprint(network: nn.Module, image: torch.Size, batch: int) -> int:
    """About how many bytes one client's training takes, in float32."""
    weights = sum(t.numel() for t in network.state_dict().values())
    sizes: list[int] = []

    def note(module: nn.Module, inputs: object, output: Tensor) -> None:
        sizes.append(output.numel())

    layers = [layer for layer in network.modules() if not list(layer.children())]
    hooks = [layer.register_forward_hook(note) for layer in layers]
    try:
        was, x = network.training, torch.empty(batch, *image, device="meta")
        network.eval()
        network.get_submodule("head")(network.get_submodule("encoder")(x))
        network.train(was)
    finally:
        for hook in hooks:
            hook.remove()
    return 4 * (COPIES * weights + PASSES * (x.numel() + sum(sizes)))
