"""Metrics of answers: their names and units, and which direction is better."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike


@dataclass(frozen=True)
class Metric:
    """A number of each test sample. A client's value is the mean over its samples, a run's the mean over clients.

    Attributes:
        name: key in summaries and columns, such as "psnr".
        label: name in tables and figures, such as "PSNR".
        unit: its unit (""; a share is then in percent).
        higher: whether more is better.
        share: whether it is a fraction of 1, printed in percent.
        digits: printed decimals.
    """

    name: str
    label: str
    unit: str = ""
    higher: bool = True
    share: bool = False
    digits: int = 3

    @property
    def shown_unit(self) -> str:
        """Unit of the output of `format`."""
        return self.unit or "%" * self.share

    @property
    def heading(self) -> str:
        """Its name and unit as the title of a column: "accuracy %", "PSNR dB"."""
        return f"{self.label} {self.shown_unit}".rstrip()

    def format(self, value: float) -> str:
        """Format a value for a table, without its unit."""
        return f"{100 * value if self.share else value:.{self.digits}f}"

    def choose_decimals(self, halves: ArrayLike) -> int:
        """Choose the decimals of values: its digits, or one more if some half interval would round to zero.

        Args:
            halves: half widths of their intervals, NaN for a missing interval.
        """
        shown = (100 if self.share else 1) * np.asarray(halves)
        return self.digits + bool(np.any(shown < 0.5 * 10**-self.digits))

    def state(self, value: float) -> str:
        """Format a value with its unit: "63.1 %", "25.31 dB"."""
        return f"{self.format(value)} {self.shown_unit}".rstrip()

    def key(self, derived: str) -> str:
        """Name a derived number in summaries: "psnr_worst10", or "worst10" for the accuracy."""
        name = f"{self.name}_{derived}"
        return SHORT.get(name, name)


SHORT = {f"accuracy_{name}": name for name in ("pooled", "worst10", "best", "last", "last_at", "validation", "at")}
"""Full names of numbers -> their older names in summaries, from before tasks had their own metrics."""
CURVE = "_at"
"""Suffix of a number's values at each test SNR in summaries, a mapping of the SNR in dB to the value."""


def name_metric_curve(number: str) -> str:
    """Name a number's values at each test SNR in summaries: "psnr_at", or "at" for the accuracy."""
    return SHORT.get(number + CURVE, number + CURVE)


def map_metric_curves(view: Mapping[str, Any]) -> dict[str, str]:
    """Map the names of values at each test SNR in a view, in its order, to the numbers that they belong to."""
    long = {SHORT["accuracy_at"]: "accuracy_at"}
    named = {name: long.get(name, name) for name in view}
    return {name: full.removesuffix(CURVE) for name, full in named.items() if full.endswith(CURVE)}


ACCURACY = Metric("accuracy", "accuracy", share=True, digits=1)
PSNR = Metric("psnr", "PSNR", "dB", digits=2)
SSIM = Metric("ssim_valid", "SSIM")
MS_SSIM = Metric("ms_ssim_valid", "MS-SSIM")
MSE = Metric("mse", "mean squared error", higher=False, digits=4)
PADDED = {"ssim": "SSIM (padded)", "ms_ssim": "MS-SSIM (padded)"}
"""Labels of metrics of reconstructions in earlier versions, whose windows reached over mirrored borders."""


def describe_metrics(metrics: tuple[Metric, ...]) -> list[dict[str, Any]]:
    """Convert metrics to plain values, as a summary keeps all but a lone accuracy."""
    return [asdict(metric) for metric in metrics]


def read_task_metrics(summary: Mapping[str, Any]) -> tuple[Metric, ...]:
    """Read the metrics of a run from its summary, the headline first."""
    task = summary.get("task")
    if task is None:
        return (ACCURACY,)
    named = PADDED if task["name"] == "reconstruction" else {}
    return tuple(Metric(**{**each, "label": named.get(each["name"], each["label"])}) for each in task["metrics"])


def read_headline(summary: Mapping[str, Any]) -> Metric:
    """Read the headline metric of a run."""
    return read_task_metrics(summary)[0]
