"""Checks, as a run begins, that a client's numbers in a user's network or link depend only on that client.

Clients are taken in stacks of any size, and all draws are keyed. So neither hidden state, nor a generator without a
key, nor a client's neighbours in a stack may change a number. Networks and links that ship with semcom are tested
instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

import torch
from torch import Tensor

from semcom.channels import LINKS, Link
from semcom.channels.users import Fades
from semcom.config import ConfigError, Resolved
from semcom.engine.host.keys import key_global_generator, keyed
from semcom.engine.train.forward import call_stacked_model
from semcom.models.dropout import Dropout
from semcom.models.snr import find_snr_inputs
from semcom.models.split import SplitModel

TOLERANCE = 1e-3
"""Part of the largest number by which others may differ, as sums of a stack are rounded otherwise."""
SAMPLES = 4
"""Samples of each client that a network is tried on: of fewer, BatchNorm takes variances that rounding decides."""
Tensors = Mapping[str, Tensor]


def check_independent_part(network: SplitModel, part: str, name: str, tensors: Tensors, samples: Tensor) -> None:
    """Check the encoder or the head of a network on samples `[2 SAMPLES, ...]`, in evaluation and in training.

    In float64 if the network takes it, as BatchNorm makes much of a rounded difference. A network that fails is left to
    the run, whose error names the place.

    Raises:
        ConfigError: it draws numbers itself, keeps them from call to call, or looks at other clients.
    """
    module, some = network.get_submodule(part), next(iter(tensors.values()))
    device, plain = some.device, some.dtype
    own = {n.removeprefix(f"{part}."): t for n, t in tensors.items() if n.startswith(f"{part}.")}
    x = samples.to(device).unflatten(0, (2, SAMPLES))
    stack = {n: torch.stack([t, 1.1 * t if t.is_floating_point() else t]) for n, t in own.items()}
    kept = {f"{n}.keep".removeprefix("."): m for n, m in module.named_modules() if isinstance(m, Dropout) and m.p}
    ones = {
        n: torch.ones(2, SAMPLES, *layer.units, device=device) for n, layer in kept.items() if layer.units is not None
    }
    snrs = {n: torch.ones(2, 1, 1, device=device) for n in find_snr_inputs(module)}

    def compute(clients: list[int], dtype: torch.dtype) -> Tensors:
        given = stack | snrs | (ones if module.training else {})
        mine = {n: t[clients].to(dtype if t.is_floating_point() else t.dtype, copy=True) for n, t in given.items()}
        alone = {n: t.squeeze(0) for n, t in mine.items()} if len(clients) == 1 else mine
        return {"y": call_stacked_model(module, alone, x[clients].to(dtype), len(clients), None)}

    def compute_finely(clients: list[int]) -> Tensors:
        with suppress(Exception):
            return compute(clients, torch.float64)
        return compute(clients, plain)

    try:
        for training in (False, True):
            module.train(training)
            what = f"model.{part}: {name!r}"
            rule = "of all layers only nn.Dropout draws, and none remembers what it has seen"
            apart = "on stacks of clients, a layer counts its axes from the last one"
            _check_repeats(what, compute_finely, rule, apart)
    finally:
        module.eval()


def draw_features_to_check(d: int) -> Tensor:
    """Draw the features on which a head is tried, `[2 SAMPLES, d]`, the same each time."""
    return torch.randn(2 * SAMPLES, d, generator=torch.Generator().manual_seed(0))


def check_independent_link(link: Link, config: Resolved, device: torch.device, dtype: torch.dtype) -> None:
    """Check a link on a few samples of two clients, as `check_independent_part` does."""
    if LINKS.ships(config.channel.kind):
        return
    sizes, d = [2, 1], config.model.features
    x = torch.linspace(-1, 2, 2 * sum(sizes) * d).to(device, dtype).view(2, sum(sizes), d)
    snr_db = torch.full((2,), 10.0, dtype=dtype, device=device)

    def fades(client: int) -> Fades:
        return Fades([keyed("fade", client, j) for j in range(link.users)], 1, range(link.users))

    def compute(clients: list[int]) -> Tensors:
        ids, generators = [k * (config.clients - 1) for k in clients], [keyed("link", k) for k in clients]
        more = {} if link.users == 1 and not link.lasting else {"fades": [fades(k) for k in clients]}
        drawn = link.draw_all(ids, [sizes] * len(ids), d, generators, dtype, device, **more)
        for each, k in zip(drawn, clients, strict=True):
            each |= link.draw_added(sum(sizes), d, keyed("added", k), dtype)
        up = {name: torch.stack([each[name] for each in drawn]).to(device) for name in drawn[0]}
        return {**up, "y": link(x[clients], up, snr_db[clients], check=False)}

    rule = "a link draws in `draw` alone, and from its generator"
    _check_repeats(f"channel.kind: {config.channel.kind!r}", compute, rule, "sums and means are those of one client")


def _check_repeats(what: str, compute: Callable[[list[int]], Tensors], rule: str, apart: str) -> None:
    """Raise ConfigError unless a computation gives a client the same result at any time and beside any other client."""
    with suppress(_Failed), torch.no_grad(), key_global_generator("independence"):
        alone = [_try_clients(compute, [k]) for k in (0, 1)]
        if not _are_close(alone[0], _try_clients(compute, [0]), 0.0):
            raise ConfigError(f"{what} gives other numbers when it is called again on the same; {rule}")
        both = _try_clients(compute, [0, 1])
        if not _are_close(both, {name: torch.cat([each[name] for each in alone]) for name in both}, TOLERANCE):
            raise ConfigError(f"{what} gives a client other numbers beside another one than alone; {apart}")


class _Failed(Exception):
    """An error inside the checked code."""


def _try_clients(compute: Callable[[list[int]], Tensors], clients: list[int]) -> Tensors:
    try:
        return compute(clients)
    except Exception as error:  # whatever a user's network or link raises
        raise _Failed from error


def _are_close(one: Tensors, other: Tensors, tolerance: float) -> bool:
    """Check that tensors agree, up to rounding of the largest number; an accelerator may add in any order."""
    for name, t in one.items():
        bound = tolerance or (0.0 if t.is_cpu else TOLERANCE)
        largest = t.abs().nan_to_num().max().item() if t.numel() else 0.0
        if not torch.allclose(t, other[name].to(t), rtol=0.0, atol=bound * largest, equal_nan=True):
            return False
    return True
