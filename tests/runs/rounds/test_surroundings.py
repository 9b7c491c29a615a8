"""What a process has set in torch before it asks for a run changes no number, and is as before afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
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
from tests.runs.rounds.test_run import stop_at, weights


def put(owner: Any, name: str, value: Any, before: Any) -> tuple[Callable[[], Any], ...]:
    """What sets an attribute of torch, whether it is set, and what puts it back."""
    return (
        lambda: setattr(owner, name, value),
        lambda: getattr(owner, name) == value,
        lambda: setattr(owner, name, before),
    )


def use(make: Callable[[], AbstractContextManager[Any]], holds: Callable[[], bool]) -> tuple[Callable[[], Any], ...]:
    """The same of a context of torch."""
    context = make()
    return context.__enter__, holds, lambda: context.__exit__(None, None, None)


BACKENDS: Any = torch.backends
HOSTILE: dict[str, Callable[[], tuple[Callable[[], Any], ...]]] = {
    "dtype": lambda: (
        lambda: torch.set_default_dtype(torch.float64),
        lambda: torch.get_default_dtype() == torch.float64,
        lambda: torch.set_default_dtype(torch.float32),
    ),
    "device": lambda: (  # without numbers: whatever is made there ends the run
        lambda: torch.set_default_device("meta"),
        lambda: torch.get_default_device().type == "meta",
        lambda: torch.set_default_device(None),
    ),
    "products": lambda: (
        lambda: torch.set_float32_matmul_precision("medium"),
        lambda: torch.get_float32_matmul_precision() == "medium",
        lambda: torch.set_float32_matmul_precision("highest"),
    ),
    "strict": lambda: (
        lambda: torch.use_deterministic_algorithms(True, warn_only=True),
        torch.is_deterministic_algorithms_warn_only_enabled,
        lambda: torch.use_deterministic_algorithms(False),
    ),
    "flushed": lambda: (
        lambda: torch.set_flush_denormal(True),
        lambda: not torch.full((), 1e-40).mul(1).item(),
        lambda: torch.set_flush_denormal(False),
    ),
    "convolutions": lambda: put(BACKENDS.mkldnn.conv, "fp32_precision", "bf16", "none"),
    "kernels": lambda: put(BACKENDS.mkldnn, "enabled", False, True),
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
    """Set something in torch, and check in the end that it still is."""
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
    """What a run has found, and what it answers afterwards."""
    losses = [{name: value for name, value in line.items() if name != "seconds"} for line in result.metrics]
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
        with suppress(KeyboardInterrupt):
            run(request(folder, precision), on_round=stop_at(2))
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
