"""A split model: encoder at the client, head at the base station, a link between them."""

from __future__ import annotations

from torch import nn


class SplitModel(nn.Module):
    """The two parts of a model, held such that every parameter name starts with `encoder.` or `head.`.

    It has no forward of its own: the engine runs the parts, and the link between them.
    """

    def __init__(self, encoder: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head
