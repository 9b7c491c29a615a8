"""Names and values as the report shows them."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from semcom.runs.result.places import BEFORE
from semcom.studies.names import FIELDS, NAMED, SHIPPED, Labels
from semcom.studies.overrides import format_number
from semcom.tasks.metric import Metric


def here(text: str) -> str:
    """Return a text, of an absolute path the name of its file alone."""
    return os.path.basename(text) if os.path.isabs(text) else text


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
        """Return a text in which the study's folder has no path before its name, and the user's home none."""
        for path, short in self._hidden.items():
            text = re.sub(path, short, text)
        return text


def empty(value: Any) -> bool:
    """Return whether a cell of a table has no value."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def shown(value: Any, field: str = "", labels: Labels = SHIPPED) -> str:
    """Return the value of a field as text; a method and a variant by the method's label."""
    if empty(value):
        return "none"
    if field in NAMED:
        return labels.value(field, value)
    return format_number(value) if isinstance(value, float) else here(str(value))


def heading(field: str) -> str:
    """Return the name of a field with its unit, such as "SNR in dB"."""
    name, unit = FIELDS.get(field, (field, ""))
    return f"{name} in{unit}" if unit else name


def placed(point: Mapping[str, Any]) -> str:
    """Return a point of a study in words, such as "SNR 6 dB, ways 2"."""
    return SHIPPED.point({name: here(value) if isinstance(value, str) else value for name, value in point.items()})


def format_metric(metric: Metric, value: Any) -> str:
    """Return a value of a metric, without its unit; nothing for none."""
    return "" if empty(value) else metric.format(value)


def listed(values: Sequence[Any]) -> str:
    """Return different values with commas between them."""
    return ", ".join(dict.fromkeys(shown(value) for value in values if not empty(value)))
