"""The replacement of torch's layers by those that work on stacks of clients."""

from __future__ import annotations

from torch import nn

from semcom.config import ConfigError
from semcom.models.batchnorm import BatchNorm
from semcom.models.dropout import Dropout
from semcom.models.stacks import OWN


def replace_by_own_layers(module: nn.Module) -> nn.Module:
    """Replace torch's layers inside `module` by ours, where ours exist, keep the values, and return the module.

    Raises:
        ConfigError: a BatchNorm keeps no running statistics or averages them cumulatively (`momentum=None`), or a
            Dropout drops every unit.
    """
    made = {layer: _replace_layer(layer) for layer in module.modules()}  # a shared layer is replaced by one
    for path, layer in [*module.named_modules(remove_duplicate=False)]:
        if path and made[layer] is not layer:
            module.set_submodule(path, made[layer])
    return made[module]


def _replace_layer(layer: nn.Module) -> nn.Module:
    """Make our layer for a layer of torch. Any other module is returned unchanged."""
    if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
        return _make_batchnorm(layer)
    if isinstance(layer, nn.Dropout | nn.Dropout1d | nn.Dropout2d):
        return Dropout(layer.p, channels=not isinstance(layer, nn.Dropout))
    if type(layer) in OWN:
        layer.__class__ = OWN[type(layer)]
    return layer


def _make_batchnorm(layer: nn.BatchNorm1d | nn.BatchNorm2d) -> BatchNorm:
    """Make our layer with the same values, without torch's count of batches, which only a cumulative mean needs."""
    if layer.momentum is None or layer.running_mean is None:
        raise ConfigError("model: batch normalisation needs running statistics and a momentum")
    own = BatchNorm(layer.num_features, layer.eps, layer.momentum, layer.affine).to(layer.running_mean.dtype)
    own.load_state_dict({k: v for k, v in layer.state_dict().items() if k != "num_batches_tracked"})
    for name, parameter in layer.named_parameters():
        own.get_parameter(name).requires_grad_(parameter.requires_grad)
    return own
