"""What a process has set in torch before it asks for a run changes no number, and is as before afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from semcom.config import RunConfig
from semcom.runs.result.result import Result
from semcom.runs.rounds.load import load
from semcom.runs.rounds.runner import run
from tests import worlds
from tests.runs.rounds.test_run import interrupt, timeless, weights


def switch(put: Callable[[Any], Any], value: Any, before: Any, get: Callable[[], Any]) -> tuple[Callable[[], Any], ...]:
    """What sets something of torch, whether it is set, and what puts it back."""
    return lambda: put(value), lambda: get() == value, lambda: put(before)


def attribute(owner: Any, name: str, value: Any, before: Any) -> tuple[Callable[[], Any], ...]:
    return switch(partial(setattr, owner, name), value, before, lambda: getattr(owner, name))


def use(make: Callable[[], AbstractContextManager[Any]], holds: Callable[[], bool]) -> tuple[Callable[[], Any], ...]:
    context = make()
    return context.__enter__, holds, lambda: context.__exit__(None, None, None)


BACKENDS: Any = torch.backends
HOSTILE: dict[str, Callable[[], tuple[Callable[[], Any], ...]]] = {
    "dtype": lambda: switch(torch.set_default_dtype, torch.float64, torch.float32, torch.get_default_dtype),
    # Without numbers: whatever is made there ends the run.
    "device": lambda: switch(torch.set_default_device, "meta", None, lambda: torch.get_default_device().type),
    "products": lambda: switch(
        torch.set_float32_matmul_precision, "medium", "highest", torch.get_float32_matmul_precision
    ),
    "strict": lambda: switch(
        lambda on: torch.use_deterministic_algorithms(on, warn_only=on),
        True,
        False,
        torch.is_deterministic_algorithms_warn_only_enabled,
    ),
    "flushed": lambda: switch(torch.set_flush_denormal, True, False, lambda: not torch.full((), 1e-40).mul(1).item()),
    "convolutions": lambda: attribute(BACKENDS.mkldnn.conv, "fp32_precision", "bf16", "none"),
    "kernels": lambda: attribute(BACKENDS.mkldnn, "enabled", False, True),
    "no grad": lambda: use(torch.no_grad, lambda: not torch.is_grad_enabled()),
    "inference": lambda: use(torch.inference_mode, torch.is_inference_mode_enabled),
    "autocast": lambda: use(
        lambda: torch.autocast("cpu", torch.bfloat16),
        lambda: torch.is_autocast_enabled("cpu") and torch.is_autocast_cache_enabled(),
    ),
}
"""Setting -> what sets it, whether it is set, and what puts it back."""


@contextmanager
def surroundings(name: str) -> Iterator[None]:
    begin, holds, end = HOSTILE[name]()
    begin()
    try:
        yield
        assert holds(), name
    finally:
        end()


def request(folder: Path, precision: str) -> RunConfig:
    """Clients that train, new ones that join, and features that pass a channel."""
    asked = worlds.request(
        "fedavg",
        encoder="dcgan-narrow",
        precision=precision,
        out=str(folder),
        model={"features": 64, "head": "mlp"},
        channel={"kind": "rayleigh"},
        train={"rounds": 3, "batch_size": 25},
        new_clients=1,
        new_steps=2,
    )
    return RunConfig(**vars(asked))


def numbers(result: Result) -> tuple[Any, ...]:
    losses = [timeless(line) for line in result.metrics]
    images = result.federation.images[::9]
    arrays = [*weights(result), result.predict(1, images), result.decode(1, images), result.encode(images, 1)]
    module = result.module(0)
    arrays += [t.detach() for t in module.state_dict().values()]
    kept = {name: value for name, value in result.summary.items() if name in ("views", "new_clients", "traffic")}
    return losses, kept, [np.asarray(t.clone()).tobytes() for t in arrays]


def found(folder: Path, precision: str, around: AbstractContextManager[None] | None = None) -> list[Any]:
    """The numbers of a run that is stopped and goes on, and of the same when it is given back."""
    with ExitStack() as stack:
        if around is not None:
            stack.enter_context(around)
        interrupt(request(folder, precision), 2)
        result = run(request(folder, precision))
        return [numbers(result), numbers(load(folder))]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    return {name: found(tmp_path_factory.mktemp(name) / "run", name) for name in ("float32", "bf16")}


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_run_is_the_same_in_any_surroundings(
    hostile: str, precision: str, expected: dict[str, list[Any]], tmp_path: Path
) -> None:
    """Bit for bit: losses, accuracies, models, answers."""
    assert found(tmp_path / "run", precision, surroundings(hostile)) == expected[precision]
