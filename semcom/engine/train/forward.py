"""Forward passes of a stack of clients: encoder -> link -> head, vectorised over the client axis.

Legend: k clients in the stack, b mini-batch (padded where clients differ), C classes, d features.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.func import vmap

from semcom.channels import Link, Meter
from semcom.config.errors import shorten_error
from semcom.engine.store.population import in_part
from semcom.engine.train.adversary import oppose_inversion
from semcom.engine.train.precision import InVmap
from semcom.models.batchnorm import BatchNorm
from semcom.models.frozen import find_frozen, is_frozen
from semcom.models.snr import find_snr_inputs
from semcom.models.stacks import on_stacks, works_on_stacks
from semcom.tasks.classification import Classification
from semcom.tasks.task import Task

LOG = logging.getLogger(__name__)
CLASSIFICATION = Classification()


@dataclass(frozen=True)
class Batch:
    """One mini-batch of each client in the stack.

    Attributes:
        x: images, `[k, b, channels, size, size]`.
        y: labels, `[k, b]` (0 in padding).
        mask: True for samples, False for padding, `[k, b]` (None: no padding).
        last: whether the step belongs to the client's last epoch of the phase, bool `[k]`.
        classes: C.
        signals: realisation that the batch meets on its way through each model, by the model's name.
        uniforms: keyed numbers in [0, 1) of each sample, `[k, b, p]`, if the phase asks for them.
        task: of the run.
        answers: the right answers, `[k, b, ...]` (None: the labels).
    """

    x: Tensor
    y: Tensor
    mask: Tensor | None
    last: Tensor
    classes: int
    signals: Mapping[str, Signal] = field(default_factory=dict, repr=False)
    uniforms: Tensor | None = None
    task: Task = CLASSIFICATION
    answers: Tensor | None = None

    @property
    def target(self) -> Tensor:
        """The right answers, `[k, b, ...]`."""
        return self.y if self.answers is None else self.answers

    @property
    def weight(self) -> Tensor:
        """The weight of each sample: 1, or 0 in padding, `[k, b]` in the dtype of `x`."""
        return torch.ones_like(self.y, dtype=self.x.dtype) if self.mask is None else self.mask.to(self.x.dtype)

    @property
    def count(self) -> Tensor:
        """The number of samples per client, `[k]` in the dtype of `x`."""
        return self.weight.sum(1)

    def mean(self, values: Tensor) -> Tensor:
        """Average over each client's samples: `[k, b] -> [k]`."""
        if self.mask is None:
            return values.mean(1)
        return torch.where(self.mask, values, 0).sum(1) / self.mask.sum(1)


@dataclass(frozen=True)
class Signal:
    """The realisations that the samples of a stack of clients meet on the way through one model during one step.

    Attributes:
        up: realisation of the uplink, one entry per visited sample, `[k, b, ...]` each.
        up_snr_db: SNR of the uplink, `[k]`.
        down: realisation of the gradients' downlink (None: gradients are exact).
        down_snr_db: SNR of the downlink, `[k]`.
        meter, down_meter: meters of the received SNR.
        keep: units of each sample that each dropout layer keeps, by the name of its buffer, `[k, b, ...]`.
    """

    up: Mapping[str, Tensor]
    up_snr_db: Tensor
    down: Mapping[str, Tensor] | None = None
    down_snr_db: Tensor | None = None
    meter: Meter | None = None
    down_meter: Meter | None = None
    keep: Mapping[str, Tensor] = field(default_factory=dict)


def _note_dict_method(name: str) -> Any:
    """Wrap a method of dict so that its call is noted."""
    plain = getattr(dict, name)

    def noted(self: Leaves, *given: Any) -> Any:
        self.asked = True
        return plain(self, *given)

    return noted


class Leaves(dict[str, Tensor]):
    """The leaves of one client in training for an objective, `[1, ...]`, which note whether it looks at them.

    Args:
        alone: the leaves without the client axis, by name.
        asked: whether it has looked before.
    """

    def __init__(self, alone: Mapping[str, Tensor], asked: bool) -> None:
        super().__init__({name: leaf.unsqueeze(0) for name, leaf in alone.items()})
        self.asked = asked

    __getitem__, __iter__, __or__, __ror__ = map(_note_dict_method, ("__getitem__", "__iter__", "__or__", "__ror__"))  # type: ignore[assignment]
    keys, values, items, get, copy = map(_note_dict_method, ("keys", "values", "items", "get", "copy"))  # type: ignore[assignment]


@dataclass(frozen=True)
class Alone:
    """All tensors of a stack of one client without the client axis, by name, with which its networks are called.

    They stand for `params` and `fixed`. Gradients by these do not follow from the networks' outputs.
    """

    tensors: Mapping[str, Tensor]
    params: Mapping[str, Tensor]
    fixed: Mapping[str, Tensor]

    def stands_for(self, model: StackedModel) -> bool:
        """Check whether a model has the tensors that these stand for, and no others in their place."""
        return model.params is self.params and model.fixed is self.fixed


@dataclass(frozen=True)
class StackedModel:
    """The models of k clients, callable on a `Batch`.

    Attributes:
        network: architecture (meta device), a `SplitModel`; another module is called without input.
        params: trainable leaves by name, `[k, ...]`.
        fixed: everything else (frozen parameters, buffers), `[k, ...]`, or `[1, ...]` if clients share it.
        train: prefixes of the parts in training mode.
        link: the link between encoder and head (None: no link).
        autocast: type to which the networks' products are rounded, or None; features and logits are not rounded.
        name: the key of this model's signals in a batch ("": the model in training).
        track: whether a pass in training mode moves BatchNorm's running statistics.
        alone: tensors for the calls of a single client's networks (None: `params` and `fixed` without the client axis).
        adversary: weight of the adversary's error in the encoder's training, see `semcom.engine.train.adversary`.
    """

    network: nn.Module
    params: dict[str, Tensor]
    fixed: dict[str, Tensor]
    train: tuple[str, ...] = ()
    link: Link | None = None
    autocast: torch.dtype | None = None
    name: str = ""
    track: bool = True
    alone: Alone | None = None
    adversary: float = 0.0

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All tensors by name."""
        return {**self.fixed, **self.params}

    def __call__(
        self, batch: Batch, instead: Mapping[str, Tensor] | None = None, *, track: bool = True
    ) -> tuple[Tensor, Tensor]:
        """Compute received features `[k, b, d]` and the head's outputs `[k, b, ...]`: logits `[k, b, C]` of classes.

        Args:
            batch: the images.
            instead: tensors by name that stand in for the model's own.
            track: whether BatchNorm's running statistics move.
        """
        if instead is not None or not track:
            params = self.params if instead is None else {**self.params, **instead}
            return replace(self, params=params, track=track)(batch)
        features = self.receive(self.encode(batch), batch)
        return features, self.decode(features, batch)

    def encode(self, batch: Batch) -> Tensor:
        """Compute the features before the link, `[k, b, d]`."""
        features = self.run("encoder.", batch.x, batch)
        if self.adversary and features.requires_grad:
            return oppose_inversion(features, batch.x, batch.mask, self.adversary)
        return features

    def decode(self, features: Tensor, batch: Batch | None = None) -> Tensor:
        """Compute the outputs of received features, `[k, b, d] -> [k, b, ...]`; `batch` is theirs, if there is one."""
        return self.run("head.", features, batch)

    def receive(self, features: Tensor, batch: Batch) -> Tensor:
        """Send features through the link, `[k, b, d] -> [k, b, d]`.

        Raises:
            RuntimeError: the model has no draws, as `fit` got it only for its weights.
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
        """Compute the output of a network without input, `[k, ...]` (the SCG: centroids `[k, C, d]`)."""
        self.network.train(True)
        k = len(next(iter(self._quietly().values())))
        return self._run(self.network, self._tensors_of("", k), None, k)

    def run(self, prefix: str, x: Tensor, batch: Batch | None) -> Tensor:
        """Run a part of the network, such as `"head."` or `"head.own."`, on `x`, `[k, b, ...]`.

        In evaluation mode a part that clients share runs once, on all samples. `batch` is that of `x`, if there is one.
        """
        module = self.network.get_submodule(prefix.rstrip("."))
        training = in_part(prefix, self.train) and not is_frozen(module)
        # A part inside it may have been run by itself, in the other mode.
        odd = [layer for layer in module.modules() if layer.training != training]
        if len(odd) > (training and len(_list_frozen_batchnorms(module))):
            module.train(training)
            for layer in _list_frozen_batchnorms(module):
                layer.eval()
        k, b = x.shape[:2]
        seen = self._snrs(module, batch, k)
        if k > 1 and not training and not seen and self._is_shared(prefix):
            once = self.run(prefix, x.reshape(1, k * b, *x.shape[2:]), None)
            return once.reshape(k, b, *once.shape[2:])
        tensors = self._tensors_of(prefix, k) | seen
        if training:
            drawn = self._drawn(prefix, module, batch)
            tensors |= {n: t.squeeze(0) for n, t in drawn.items()} if k == 1 else drawn
            if not self.track:
                statistics = (
                    f"{n}{kind}" for n in _list_batchnorms(module) for kind in ("running_mean", "running_var")
                )
                tensors |= {n: tensors[n].clone() for n in statistics}
        return self._run(module, tensors, x, k)

    def _is_shared(self, prefix: str) -> bool:
        """Check whether the clients have all tensors of a part in common."""
        return all(len(t) == 1 for name, t in self._quietly().items() if name.startswith(prefix))

    def _quietly(self) -> dict[str, Tensor]:
        """Return all tensors by name, without counting as a look at the leaves."""
        return {**self.fixed, **dict(dict.items(self.params))}

    def _tensors_of(self, prefix: str, k: int) -> dict[str, Tensor]:
        """Select the tensors of a part by their names in it: `[k, ...]`, or without the client axis for one client."""
        n = len(prefix)
        if k == 1 and self.alone is not None and self.alone.stands_for(self):
            return {name[n:]: t for name, t in self.alone.tensors.items() if name.startswith(prefix)}
        part = {name[n:]: t for name, t in self._quietly().items() if name.startswith(prefix)}
        return {name: t.squeeze(0) if k == 1 else t.expand(k, *t.shape[1:]) for name, t in part.items()}

    def _snrs(self, module: nn.Module, batch: Batch | None, k: int) -> dict[str, Tensor]:
        """Make the buffers for the SNRs of the clients, `[k, 1, 1]`, or `[1, 1]` of one, if a part takes them."""
        names = _list_snr_inputs(module)
        if not names or batch is None or not batch.signals:
            return {}
        snr_db = next(iter(batch.signals.values())).up_snr_db.view(-1, 1, 1)  # whatever the model, it is the client's
        return dict.fromkeys(names, snr_db.squeeze(0) if k == 1 else snr_db)

    def _drawn(self, prefix: str, module: nn.Module, batch: Batch | None) -> dict[str, Tensor]:
        """Make the buffers that only training has, `[k, ...]`: masks of padding and of dropout."""
        found: dict[str, Tensor] = {}
        if batch is not None and batch.mask is not None:
            found |= {f"{name}mask": batch.mask for name in _list_batchnorms(module)}
        if batch is not None and self.name in batch.signals:
            keep = batch.signals[self.name].keep
            found |= {name[len(prefix) :]: t for name, t in keep.items() if name.startswith(prefix)}
        return found

    def _run(self, module: nn.Module, tensors: Mapping[str, Tensor], x: Tensor | None, k: int) -> Tensor:
        """Run the module with k sets of tensors on `x` `[k, ...]` (None: no input), in the model's arithmetic."""
        if self.autocast is None:
            return call_stacked_model(module, tensors, x, k, None)
        like = next(iter(tensors.values())) if x is None else x
        with torch.autocast(like.device.type, self.autocast):
            return call_stacked_model(module, tensors, x, k, self.autocast).to(like.dtype)


def lay_channels_last(stack: Tensor) -> Tensor:
    """Lay weights of convolutions on a CPU, `[k, out, in, h, w]`, out in the order of channels-last images.

    With both in one order, a convolution on a CPU is up to twice as fast as with the weights in torch's usual order.
    Other tensors, and those of an accelerator, are returned unchanged.
    """
    return stack.movedim(2, -1).contiguous().movedim(-1, 2) if stack.dim() == 5 and stack.is_cpu else stack


@lru_cache(maxsize=256)
def _list_batchnorms(module: nn.Module) -> tuple[str, ...]:
    return tuple(f"{name}." if name else "" for name, m in module.named_modules() if isinstance(m, BatchNorm))


@lru_cache(maxsize=256)
def _list_frozen_batchnorms(module: nn.Module) -> tuple[nn.Module, ...]:
    still = find_frozen(module)
    return tuple(module.get_submodule(n[:-1]) for n in _list_batchnorms(module) if f"{n}running_mean" in still)


@lru_cache(maxsize=256)
def _list_snr_inputs(module: nn.Module) -> tuple[str, ...]:
    return tuple(find_snr_inputs(module))


def call_stacked_model(
    module: nn.Module, tensors: Mapping[str, Tensor], x: Tensor | None, k: int, autocast: torch.dtype | None
) -> Tensor:
    """Call the module with k sets of tensors on `x` `[k, ...]` (None: no input).

    One set needs no stack. The convolution of one client fills a CPU's core, which is slower on a stack of several.
    vmap is for networks that do not work on stacks by themselves; those that vmap cannot stack run client by client.
    """
    if k == 1:
        return _call_module(module, tensors, None if x is None else x.squeeze(0)).unsqueeze(0)
    if x is not None and ((x.is_cpu and convolves(module)) or module in _never_stacked):
        return _call_one_by_one(module, tensors, x)
    if works_on_stacks(module):
        with on_stacks():
            return _call_module(module, tensors, x)
    given = (dict(tensors),) if x is None else (dict(tensors), x)
    try:
        with nullcontext() if autocast is None else InVmap(autocast):
            return vmap(partial(_call_module, module), randomness="error")(*given)
    except RuntimeError as error:
        if x is None:
            raise
        found = _call_one_by_one(module, tensors, x)  # a fault of the module's own is raised here again
        LOG.warning("model: torch's vmap cannot stack it (%s); clients go one after the other", shorten_error(error))
        _never_stacked.add(module)
        return found


_never_stacked: WeakSet[nn.Module] = WeakSet()
"""Networks that vmap has refused."""


def _call_one_by_one(module: nn.Module, tensors: Mapping[str, Tensor], x: Tensor) -> Tensor:
    own = [t.unbind(0) for t in tensors.values()]
    each = [dict(zip(tensors, mine, strict=True)) for mine in zip(*own, strict=True)]
    return torch.stack([_call_module(module, mine, z) for mine, z in zip(each, x.unbind(0), strict=True)])


@lru_cache(maxsize=256)
def convolves(module: nn.Module) -> bool:
    """Check whether a module has a convolution inside."""
    return any(isinstance(layer, nn.modules.conv._ConvNd) for layer in module.modules())


def _call_module(module: nn.Module, tensors: Mapping[str, Tensor], x: Tensor | None = None) -> Any:
    """Call the module with other tensors, as `torch.func.functional_call` does in ten times the time."""
    holders = _find_tensor_holders(module)
    before = [(holder, key, holder[key]) for name in tensors for holder, key in holders[name]]
    try:
        for name, t in tensors.items():
            for holder, key in holders[name]:
                holder[key] = t
        return module() if x is None else module(x)
    finally:
        for holder, key, own in before:
            holder[key] = own


@lru_cache(maxsize=256)
def _find_tensor_holders(module: nn.Module) -> dict[str, list[tuple[dict[str, Any], str]]]:
    """Find where a module keeps each parameter and buffer, by name; a shared tensor is in several places."""
    names, places = [], []
    for path, part in module.named_modules(remove_duplicate=False):
        for holder in (part._parameters, part._buffers):
            names += [f"{path}.{key}" if path else key for key in holder]
            places += [(holder, key) for key in holder]
    return {
        name: [p for p in places if p is own or p[0][p[1]] is own[0][own[1]] is not None]
        for name, own in zip(names, places, strict=True)
    }
