"""The numbers by which answers are judged: what they are called, in which unit they are, and which way is better."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike


@dataclass(frozen=True)
class Metric:
    """A number of each test sample; a client's is the mean over its samples, a run's the mean over clients.

    Attributes:
        name: key in summaries and columns, such as "psnr".
        label: what it is called in tables and figures, such as "PSNR".
        unit: its unit ("": it has none, and a share is in percent).
        higher: whether more is better.
        share: whether it is a fraction of 1, which is shown in percent.
        digits: decimals that are shown.
    """

    name: str
    label: str
    unit: str = ""
    higher: bool = True
    share: bool = False
    digits: int = 3

    @property
    def shown_unit(self) -> str:
        """The unit of what `format` gives."""
        return self.unit or "%" * self.share

    @property
    def heading(self) -> str:
        """Its name and unit as the title of a column: "accuracy %", "PSNR dB"."""
        return f"{self.label} {self.shown_unit}".rstrip()

    def format(self, value: float) -> str:
        """Return a value as it stands in a table, without its unit."""
        return f"{100 * value if self.share else value:.{self.digits}f}"

    def choose_decimals(self, halves: ArrayLike) -> int:
        """Choose the decimals of values: its digits, or one more where half an interval would have none.

        Args:
            halves: of their intervals; NaN where there is none.
        """
        shown = (100 if self.share else 1) * np.asarray(halves)
        return self.digits + bool(np.any(shown < 0.5 * 10**-self.digits))

    def state(self, value: float) -> str:
        """Return a value with its unit: "63.1 %", "25.31 dB"."""
        return f"{self.format(value)} {self.shown_unit}".rstrip()

    def key(self, derived: str) -> str:
        """Return what summaries call a number that is derived from it: "psnr_worst10", of the accuracy "worst10"."""
        name = f"{self.name}_{derived}"
        return SHORT.get(name, name)


SHORT = {f"accuracy_{name}": name for name in ("pooled", "worst10", "best", "last", "last_at", "validation", "at")}
"""Numbers whose names in summaries are older than tasks with metrics of their own -> these names."""
CURVE = "_at"
"""End of what summaries call a number's values at each test SNR, a mapping of the SNR in dB to the value."""


def curve_of(number: str) -> str:
    """Return what summaries call a number's values at each test SNR: "psnr_at", of the accuracy "at"."""
    return SHORT.get(number + CURVE, number + CURVE)


def curves_in(view: Mapping[str, Any]) -> dict[str, str]:
    """Return which numbers of a view are known at each test SNR, in its order: what summaries call that -> number."""
    long = {SHORT["accuracy_at"]: "accuracy_at"}
    named = {name: long.get(name, name) for name in view}
    return {name: full.removesuffix(CURVE) for name, full in named.items() if full.endswith(CURVE)}


ACCURACY = Metric("accuracy", "accuracy", share=True, digits=1)
PSNR = Metric("psnr", "PSNR", "dB", digits=2)
SSIM = Metric("ssim_valid", "SSIM")
MS_SSIM = Metric("ms_ssim_valid", "MS-SSIM")
MSE = Metric("mse", "mean squared error", higher=False, digits=4)
PADDED = {"ssim": "SSIM (padded)", "ms_ssim": "MS-SSIM (padded)"}
"""Labels of what earlier versions measured of reconstructions, whose windows reached over mirrored borders."""


def describe_metrics(metrics: tuple[Metric, ...]) -> list[dict[str, Any]]:
    """Return metrics as plain values, as a summary keeps all but a lone accuracy."""
    return [asdict(metric) for metric in metrics]


def read_task_metrics(summary: Mapping[str, Any]) -> tuple[Metric, ...]:
    """Return the metrics of a run from its summary, the headline first."""
    task = summary.get("task")
    if task is None:
        return (ACCURACY,)
    named = PADDED if task["name"] == "reconstruction" else {}
    return tuple(Metric(**{**each, "label": named.get(each["name"], each["label"])}) for each in task["metrics"])


def read_headline(summary: Mapping[str, Any]) -> Metric:
    """Return the metric that a run reports of itself."""
    return read_task_metrics(summary)[0]
