"""Signal-to-noise ratios as a configuration writes them, and as values."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from semcom.config.errors import ConfigError

WANTED = "a number in dB, a comma list (9,12,6), a range (0:18) or inf"
LARGEST_DB = 300


@dataclass(frozen=True)
class SNR:
    """A signal-to-noise ratio of clients, in dB.

    Attributes:
        values: a value for all clients, one per client, or the two ends of a range.
        drawn: whether each client draws its SNR from the range in each round.
    """

    values: tuple[float, ...]
    drawn: bool = False

    def of(self, client: int, uniform: Callable[[int], float]) -> float:
        """Return a client's SNR in dB; for a range, `uniform(client)` draws a number in [0, 1)."""
        if self.drawn:
            low, high = self.values
            return low + (high - low) * uniform(client)
        return self.values[0] if len(self.values) == 1 else self.values[client]


def parse_snr(text: float | str, field_name: str) -> SNR:
    """Read an SNR field of a configuration.

    Raises:
        ConfigError: names the field, for text that is no number, NaN, minus infinity, an empty or reversed range, and
            noise that is too strong or weak for numbers in single precision.
    """
    drawn = ":" in str(text)
    try:
        values = tuple(float(part) for part in str(text).split(":" if drawn else ","))
    except ValueError:
        raise ConfigError(f"{field_name}: {text!r} is not {WANTED}") from None
    if any(math.isnan(v) or v == -math.inf for v in values):
        raise ConfigError(f"{field_name}: {text!r} is not {WANTED}")
    if any(abs(v) > LARGEST_DB and v != math.inf for v in values):
        raise ConfigError(
            f"{field_name}: {text!r} is beyond -{LARGEST_DB} to {LARGEST_DB} dB; inf is a link without noise"
        )
    if drawn and (len(values) != 2 or not values[0] < values[1] < math.inf):
        raise ConfigError(f"{field_name}: {text!r} is not a range low:high of two finite numbers in dB")
    return SNR(values, drawn)
