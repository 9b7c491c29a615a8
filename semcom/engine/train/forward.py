"""Forward passes of a stack of clients: encoder -> link -> head, vectorised over the client axis.

Legend: k clients in the stack, b mini-batch (padded where clients differ), C classes, d features.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from channels import Link, Meter
from semcom.engine.store.population import in_part
from semcom.engine.train.precision import casting
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
        signals: realisation that the batch meets on its way through each model, by the model's name.
        uniforms: keyed numbers in [0, 1) of each sample, `[k, b, p]`, where the phase asks for them.
    """

    x: Tensor
    y: Tensor
    mask: Tensor | None
    last: Tensor
    classes: int
    signals: Mapping[str, Signal] = field(default_factory=dict, repr=False)
    uniforms: Tensor | None = None

    @property
    def weight(self) -> Tensor:
        """The weight of each sample: 1, or 0 in padding, `[k, b]` in the dtype of `x`."""
        return torch.ones_like(self.y, dtype=self.x.dtype) if self.mask is None else self.mask.to(self.x.dtype)

    @property
    def count(self) -> Tensor:
        """The number of samples per client, `[k]` in the dtype of `x`."""
        return self.weight.sum(1)

    def mean(self, values: Tensor) -> Tensor:
        """Return the mean over each client's samples: `[k, b] -> [k]`."""
        if self.mask is None:
            return values.mean(1)
        return torch.where(self.mask, values, 0).sum(1) / self.mask.sum(1)


@dataclass(frozen=True)
class Signal:
    """The realisations that the samples of a stack of clients meet on the way through one model during one step.

    Attributes:
        up: realisation of the uplink, one entry per visited sample, `[k, b, ...]` each.
        up_snr_db: SNR of the uplink, `[k]`.
        down: realisation of the gradients' downlink; None where gradients are exact.
        down_snr_db: SNR of the downlink, `[k]`.
        meter, down_meter: where the received SNR is measured.
        keep: units of each sample that each dropout layer keeps, by the name of its buffer, `[k, b, ...]`.
    """

    up: Mapping[str, Tensor]
    up_snr_db: Tensor
    down: Mapping[str, Tensor] | None = None
    down_snr_db: Tensor | None = None
    meter: Meter | None = None
    down_meter: Meter | None = None
    keep: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class StackedModel:
    """The models of k clients, callable on a `Batch`.

    Attributes:
        network: architecture (meta device), a `SplitModel`; another module is called without input.
        params: trainable leaves by name, `[k, ...]`.
        fixed: everything else (frozen parameters, buffers), `[k, ...]`, or `[1, ...]` where clients share it.
        train: prefixes of the parts in training mode.
        link: the link between encoder and head; None: nothing lies between them.
        autocast: type that the networks' products are rounded to, or None; features and logits are not rounded.
        name: the key of this model's signals in a batch ("": the model in training).
        track: whether a pass in training mode moves BatchNorm's running statistics.
    """

    network: nn.Module
    params: dict[str, Tensor]
    fixed: dict[str, Tensor]
    train: tuple[str, ...] = ()
    link: Link | None = None
    autocast: torch.dtype | None = None
    name: str = ""
    track: bool = True

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All tensors by name."""
        return {**self.fixed, **self.params}

    def __call__(
        self, batch: Batch, instead: Mapping[str, Tensor] | None = None, *, track: bool = True
    ) -> tuple[Tensor, Tensor]:
        """Return received features `[k, b, d]` and logits `[k, b, C]`.

        Args:
            batch: the images.
            instead: tensors by name that stand in for the model's own.
            track: whether BatchNorm's running statistics move.
        """
        if instead is not None or not track:
            return replace(self, params={**self.params, **(instead or {})}, track=track)(batch)
        features = self.receive(self.encode(batch), batch)
        return features, self.decode(features, batch)

    def encode(self, batch: Batch) -> Tensor:
        """Return the features before the link, `[k, b, d]`."""
        return self._part("encoder.", batch.x, batch)

    def decode(self, features: Tensor, batch: Batch | None = None) -> Tensor:
        """Return the logits of received features, `[k, b, d] -> [k, b, C]`; `batch` is theirs, if there is one."""
        return self._part("head.", features, batch)

    def receive(self, features: Tensor, batch: Batch) -> Tensor:
        """Return the features after the link, `[k, b, d] -> [k, b, d]`.

        Raises:
            RuntimeError: nothing was drawn for this model, which was given to `fit` for its weights alone.
        """
        if self.link is None:
            return features
        s = batch.signals.get(self.name)
        if s is None:
            raise RuntimeError(
                f"the link has no draw for the model {self.name!r}: give it to fit as frozen, not anchor"
            )
        return self.link(
            features,
            s.up,
            s.up_snr_db,
            down=s.down,
            down_snr_db=s.down_snr_db,
            mask=batch.mask,
            meter=s.meter,
            down_meter=s.down_meter,
            check=False,
        )

    def output(self) -> Tensor:
        """Return the output of a network that takes no input, `[k, ...]` (the SCG: centroids `[k, C, d]`)."""
        self.network.train(True)
        return self._stacked(self.network, self.tensors, None)

    def _part(self, prefix: str, x: Tensor, batch: Batch | None) -> Tensor:
        """Run one part on `x` `[k, b, ...]`; in evaluation mode a part that clients share runs once, on all samples."""
        module = self.network.get_submodule(prefix.rstrip("."))
        training = in_part(prefix, self.train)
        module.train(training)
        tensors = {n[len(prefix) :]: t for n, t in self.tensors.items() if n.startswith(prefix)}
        k, b = x.shape[:2]
        if k > 1 and not training and all(len(t) == 1 for t in tensors.values()):
            return self._stacked(module, tensors, x.reshape(1, k * b, *x.shape[2:])).reshape(k, b, -1)
        if training:
            tensors |= self._of_training(prefix, module, tensors, batch)
        return self._stacked(module, {n: t.expand(k, *t.shape[1:]) for n, t in tensors.items()}, x)

    def _of_training(
        self, prefix: str, module: nn.Module, tensors: Mapping[str, Tensor], batch: Batch | None
    ) -> dict[str, Tensor]:
        """Return the buffers that only training has: masks of padding and dropout, copies of untracked statistics."""
        found: dict[str, Tensor] = {}
        norms = _batchnorms(module)
        if batch is not None and batch.mask is not None:
            found |= {f"{name}mask": batch.mask for name in norms}
        if batch is not None and self.name in batch.signals:
            keep = batch.signals[self.name].keep
            found |= {name[len(prefix) :]: t for name, t in keep.items() if name.startswith(prefix)}
        if not self.track:
            names = (f"{name}{kind}" for name in norms for kind in ("running_mean", "running_var"))
            found |= {name: tensors[name].clone() for name in names}
        return found

    def _stacked(self, module: nn.Module, tensors: Mapping[str, Tensor], x: Tensor | None) -> Tensor:
        """Run the module with k sets of tensors on `x` `[k, ...]` (None: no input), in the model's arithmetic."""
        like = next(iter(tensors.values())) if x is None else x
        if self.autocast is None:
            return _stacked(module, tensors, x)
        with casting(self.autocast, like.device, stacked=len(like) > 1):
            return _stacked(module, tensors, x).to(like.dtype)


def channels_last(stack: Tensor) -> Tensor:
    """Return weights of convolutions `[k, out, in, h, w]` in the order of channels-last images, others unchanged.

    With both in one order, a convolution on a CPU is up to twice as fast as with the weights in torch's usual order.
    """
    return stack.movedim(2, -1).contiguous().movedim(-1, 2) if stack.dim() == 5 else stack


@lru_cache(maxsize=256)
def _batchnorms(module: nn.Module) -> tuple[str, ...]:
    """Return the prefixes of the batch normalisations inside a module."""
    return tuple(f"{name}." if name else "" for name, m in module.named_modules() if isinstance(m, BatchNorm))


def _stacked(module: nn.Module, tensors: Mapping[str, Tensor], x: Tensor | None) -> Tensor:
    """Run the module with k sets of tensors on `x` `[k, ...]` (None: no input); `k == 1` needs no vmap."""
    k = len(next(iter(tensors.values()))) if x is None else len(x)
    if k == 1:
        args = () if x is None else (x.squeeze(0),)
        return functional_call(module, {n: t.squeeze(0) for n, t in tensors.items()}, args).unsqueeze(0)
    if x is None:
        return vmap(lambda t: functional_call(module, t, ()))(dict(tensors))
    return vmap(lambda t, z: functional_call(module, t, (z,)), randomness="error")(dict(tensors), x)
