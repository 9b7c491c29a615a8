"""Signal-to-noise ratios as a configuration writes them."""

from __future__ import annotations

import math
from typing import Literal

from semcom.config.errors import ConfigError


def parse_snr(text: float | str, field_name: str) -> tuple[Literal["list", "range"], tuple[float, ...]]:
    """Reads an SNR field: ("list", values in dB) or ("range", (low, high)).

    Raises ConfigError naming the field for NaN, minus infinity, an empty or reversed range, or what is no number.
    """
    wanted = "a number in dB, a comma list (9,12,6), a range (0:18) or inf"
    parts = str(text).split(":" if ":" in str(text) else ",")
    try:
        values = tuple(float(p) for p in parts)
    except ValueError:
        raise ConfigError(f"{field_name}: {text!r} is not {wanted}") from None
    if any(math.isnan(v) or v == -math.inf for v in values):
        raise ConfigError(f"{field_name}: {text!r} is not {wanted}")
    if ":" in str(text):
        if len(values) != 2 or not values[0] < values[1] < math.inf:
            raise ConfigError(f"{field_name}: {text!r} is not a range low:high of two finite numbers in dB")
        return "range", values
    return "list", values
