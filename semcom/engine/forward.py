"""Forward passes of a stack of clients: encoder -> link -> head, vectorised over the client axis.

Legend: k clients in the stack, b mini-batch (padded where clients differ), C classes, d features.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from channels import Link, Meter
from semcom.engine.population import in_part
from semcom.engine.precision import casting
from semcom.models.batchnorm import BatchNorm


@dataclass(frozen=True)
class Batch:
    """One mini-batch of each client in the stack.

    Attributes:
        x: images, `[k, b, channels, 32, 32]`.
        y: labels, `[k, b]` (0 in padding).
        mask: True for samples, False for padding, `[k, b]`; None where nothing is padded.
        last: whether the step belongs to the client's last epoch of the phase, bool `[k]`.
        classes: C.
    """

    x: Tensor
    y: Tensor
    mask: Tensor | None
    last: Tensor
    classes: int

    @property
    def weight(self) -> Tensor:
        """1 for samples, 0 for padding, `[k, b]` in the dtype of `x`."""
        return torch.ones_like(self.y, dtype=self.x.dtype) if self.mask is None else self.mask.to(self.x.dtype)

    @property
    def count(self) -> Tensor:
        """Samples per client, `[k]` in the dtype of `x`."""
        return self.weight.sum(1)

    def mean(self, values: Tensor) -> Tensor:
        """Mean over each client's samples: `[k, b] -> [k]`."""
        if self.mask is None:
            return values.mean(1)
        return torch.where(self.mask, values, 0).sum(1) / self.mask.sum(1)


@dataclass(frozen=True)
class Signal:
    """What a stack of clients meets on the air during one step.

    Attributes:
        up: realisation of the uplink, a row per visited sample, `[k, b, ...]` each.
        up_snr_db: `[k]`.
        down: realisation of the gradients' downlink; None where gradients are exact.
        down_snr_db: `[k]`.
        meter, down_meter: where the received SNR is measured.
    """

    up: Mapping[str, Tensor]
    up_snr_db: Tensor
    down: Mapping[str, Tensor] | None = None
    down_snr_db: Tensor | None = None
    meter: Meter | None = None
    down_meter: Meter | None = None


@dataclass(frozen=True)
class StackedModel:
    """The models of k clients, callable on a `Batch`.

    Attributes:
        network: architecture (meta device), a `SplitModel`; another module is called without input.
        params: trainable leaves by name, `[k, ...]`.
        fixed: everything else (frozen parameters, buffers), `[k, ...]`, or `[1, ...]` where clients share it.
        train: prefixes of the parts in training mode.
        link: what lies between encoder and head; None: nothing.
        signal: the link's realisation of this step.
        autocast: what the networks' products are rounded to, if they are; features and logits are not.
    """

    network: nn.Module
    params: dict[str, Tensor]
    fixed: dict[str, Tensor]
    train: tuple[str, ...] = ()
    link: Link | None = None
    signal: Signal | None = field(default=None, repr=False)
    autocast: torch.dtype | None = None

    def __call__(self, batch: Batch | None = None) -> tuple[Tensor, Tensor]:
        """Received features `[k, b, d]` and logits `[k, b, C]`."""
        assert batch is not None
        features = self.receive(self.encode(batch), batch.mask)
        return features, self._part("head.", features, batch.mask)

    def encode(self, batch: Batch) -> Tensor:
        """Features before the link, `[k, b, d]`."""
        return self._part("encoder.", batch.x, batch.mask)

    def receive(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        """Features after the link, `[k, b, d] -> [k, b, d]`."""
        if self.link is None or self.signal is None:
            return features
        s = self.signal
        return self.link(
            features,
            s.up,
            s.up_snr_db,
            down=s.down,
            down_snr_db=s.down_snr_db,
            mask=mask,
            meter=s.meter,
            down_meter=s.down_meter,
            check=False,
        )

    def output(self) -> Tensor:
        """Output of a network that takes no input, `[k, ...]` (the SCG: centroids `[k, C, d]`)."""
        tensors = {**self.fixed, **self.params}
        self.network.train(True)
        return self._stacked(self.network, tensors, None)

    def _part(self, prefix: str, x: Tensor, mask: Tensor | None) -> Tensor:
        """One part on `x` `[k, b, ...]`; in evaluation mode a part that clients share runs once, on all samples."""
        module = self.network.get_submodule(prefix.rstrip("."))
        training = in_part(prefix, self.train)
        module.train(training)
        tensors = {n[len(prefix) :]: t for n, t in {**self.fixed, **self.params}.items() if n.startswith(prefix)}
        k, b = x.shape[:2]
        if k > 1 and not training and all(len(t) == 1 for t in tensors.values()):
            return self._stacked(module, tensors, x.reshape(1, k * b, *x.shape[2:])).reshape(k, b, -1)
        if training and mask is not None:
            tensors |= {f"{name}mask": mask for name in _batchnorms(module)}
        return self._stacked(module, {n: t.expand(k, *t.shape[1:]) for n, t in tensors.items()}, x)

    def _stacked(self, module: nn.Module, tensors: Mapping[str, Tensor], x: Tensor | None) -> Tensor:
        """The module with k sets of tensors on `x` `[k, ...]` (None: no input), in the model's arithmetic."""
        like = next(iter(tensors.values())) if x is None else x
        if self.autocast is None:
            return _stacked(module, tensors, x)
        with casting(self.autocast, like.device, stacked=len(like) > 1):
            return _stacked(module, tensors, x).to(like.dtype)


def channels_last(stack: Tensor) -> Tensor:
    """Weights of convolutions `[k, out, in, h, w]` as they lie best beside channels-last images; others as they are.

    With both in one order a convolution on a CPU is up to twice as fast as with the weights in torch's usual one.
    """
    return stack.movedim(2, -1).contiguous().movedim(-1, 2) if stack.dim() == 5 else stack


@lru_cache(maxsize=256)
def _batchnorms(module: nn.Module) -> tuple[str, ...]:
    """Prefixes of the batch normalisations inside a module."""
    return tuple(f"{name}." if name else "" for name, m in module.named_modules() if isinstance(m, BatchNorm))


def _stacked(module: nn.Module, tensors: Mapping[str, Tensor], x: Tensor | None) -> Tensor:
    """The module with k sets of tensors on `x` `[k, ...]` (None: no input); `k == 1` does without vmap."""
    k = len(next(iter(tensors.values()))) if x is None else len(x)
    if k == 1:
        args = () if x is None else (x.squeeze(0),)
        return functional_call(module, {n: t.squeeze(0) for n, t in tensors.items()}, args).unsqueeze(0)
    if x is None:
        return vmap(lambda t: functional_call(module, t, ()))(dict(tensors))
    return vmap(lambda t, z: functional_call(module, t, (z,)), randomness="error")(dict(tensors), x)
