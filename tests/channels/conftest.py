from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from semcom.channels import Link

Stack = Callable[..., dict[str, Tensor]]


@pytest.fixture
def stack() -> Stack:
    """Draws one realisation per seed and stacks them to [k, sum(sizes), ...]."""

    def draw(
        link: Link, sizes: Sequence[int], d: int, seeds: Sequence[int] = (0,), dtype: torch.dtype = torch.float64
    ) -> dict[str, Tensor]:
        each = [link.draw(sizes, d, torch.Generator().manual_seed(seed), dtype) for seed in seeds]
        return {name: torch.stack([drawn[name] for drawn in each]) for name in each[0]}

    return draw
