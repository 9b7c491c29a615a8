"""Names and values in the form of the report."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from semcom.runs.result.places import BEFORE
from semcom.studies.names import FIELDS, NAMED, SHIPPED, Labels
from semcom.studies.overrides import format_number, name_file
from semcom.studies.results.table import is_empty
from semcom.tasks.metric import Metric


class Names:
    """Texts of a study without the paths of a machine.

    Args:
        folder: of the study.
    """

    def __init__(self, folder: Path) -> None:
        parent = f"{folder.resolve().parent}/"
        hidden = {parent: "", f"{folder.parent}/": "", f"{os.path.expanduser('~')}/": "~/"}
        self._hidden = {BEFORE + re.escape(path): short for path, short in hidden.items() if path not in ("./", "/")}

    def text(self, text: str) -> str:
        """Remove the path of the study's folder and that of the user's home from a text."""
        for path, short in self._hidden.items():
            text = re.sub(path, short, text)
        return text


def name_value(value: Any, field: str = "", labels: Labels = SHIPPED) -> str:
    """Format the value of a field; a method and a variant by the method's label."""
    if is_empty(value):
        return "none"
    if field in NAMED:
        return labels.value(field, value)
    return format_number(value) if isinstance(value, float) else name_file(str(value))


def name_heading(field: str) -> str:
    """Name a field with its unit, such as "SNR in dB"."""
    name, unit = FIELDS.get(field, (field, ""))
    return f"{name} in{unit}" if unit else name


def name_metric(metric: Metric, of: str = "") -> str:
    """Name a metric with its unit, such as "PSNR in dB"."""
    return f"{metric.label}{of} in {metric.shown_unit}" if metric.shown_unit else f"{metric.label}{of}"


def format_metric(metric: Metric, value: Any) -> str:
    """Format a value of a metric, without its unit, as an empty text without a value."""
    return "" if is_empty(value) else metric.format(value)


def join_names(values: Sequence[Any]) -> str:
    """Join the distinct values by commas."""
    return ", ".join(dict.fromkeys(name_value(value) for value in values if not is_empty(value)))
