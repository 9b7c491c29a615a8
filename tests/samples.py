"""What the mean of random samples has to be."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def has_mean(samples: Tensor | np.ndarray, expected: float, slack: float = 0.0) -> bool:
    """Check whether independent samples have this mean, within five standard errors of their own."""
    numbers = torch.as_tensor(samples).double()
    error = float(numbers.std()) / numbers.numel() ** 0.5
    return abs(float(numbers.mean()) - float(expected)) < 5 * error + slack
