"""The shapes of summary.json and of a line of metrics.jsonl; readers get no others.

A shape is a type, None, a list of one shape for all entries, a table of shapes by name, or a tuple of alternatives. In
a table `*_at` stands for all names with this end and `...` for all others; a name may be missing. As NaN is written as
null, a number may be None.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from semcom.tasks.metric import read_headline

NUMBER = (float, None)
NUMBERS = {...: NUMBER}
VIEW = {"clients": [NUMBER], "classes": [NUMBER], "best_round": int, "at": NUMBERS, "*_at": NUMBERS, ...: NUMBER}
LINE: dict[Any, Any] = {
    "round": int,
    "views": {...: VIEW},
    "warnings": {...: str},
    "timeline": {...: [float]},
    "observed": {...: object},
    ...: NUMBER,
}
METRIC = {"name": str, "label": str, "unit": str, "higher": bool, "share": bool, "digits": int}
SUMMARY: dict[Any, Any] = {
    **dict.fromkeys(("method", "label", "hash", "device", "begun", "metrics_digest"), str),
    **dict.fromkeys(("rounds", "clients", "seed", "samples", "late", "lost", "unreached"), int),
    **dict.fromkeys(("samples_per_second", "bandwidth_ratio", "time_s"), float),
    "task": {"name": str, "metrics": [METRIC]},
    "views": {...: VIEW},
    "constant": {...: float},
    "finish": LINE,
    "new_clients": {...: VIEW},
    "warnings": [str],
    "stopped": {...: int},
    "evaluated": (None, [int]),
    "seconds": {...: float},
    "traffic": {"up": {...: float}, "down": {...: float}},
    "snr_received_db": {"test_at": NUMBERS, ...: NUMBER},
    "error_rates": {"test_at": {...: NUMBERS}, ...: NUMBERS},
    "cell": {"los": [bool], ...: [NUMBER]},
    "machine": {"threads": int, ...: str},
    "versions": {...: str},
    "commit": (str, None),
    ...: object,  # what an experiment adds
}
INSIDE = {
    "": ("method", "hash", "seed", "views", "rounds", "clients", "samples", "seconds", "traffic", "snr_received_db"),
    "machine": ("processor", "vector", "threads"),
    **dict.fromkeys(("traffic.up", "traffic.down"), ("floats", "bits", "uses", "airtime_s", "energy_j")),
}
"""Required entries of a summary of `semcom.run` and of the tables in it, but for a training function of one's own."""
LARGEST = 1 << 63
"""Whole numbers are smaller: no run counts so far, and a reader may convert them to floats."""


def find_misfit(shape: Any, value: Any, name: str = "") -> str | None:
    """Find a part of a value that does not fit its shape, by its name; None if all parts fit.

    Example:
        >>> find_misfit({"rounds": int, ...: NUMBERS}, {"rounds": 3, "seconds": {"train": [1]}})
        'seconds.train'
    """
    if isinstance(shape, tuple):
        found = [find_misfit(each, value, name) for each in shape]
        return None if None in found else found[0]
    if not isinstance(shape, list | dict):
        kind = type(shape) if shape is None else (int, float) if shape is float else shape
        if type(value) is int and abs(value) >= LARGEST:
            return name
        return None if isinstance(value, kind) and (shape in (bool, object) or type(value) is not bool) else name
    if type(value) is not type(shape):
        return name
    if shape in ([float], [NUMBER]) and {*map(type, value)} == {float}:  # most of what there is
        return None
    table = shape if isinstance(shape, dict) else {...: shape[0]}
    for key, held in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(value, dict) and not isinstance(key, str):  # which JSON has not
            return name
        others = table.get("*_at", table.get(...)) if str(key).endswith("_at") else table.get(...)
        inside = table.get(key, others)
        if type(held) is float and (inside is NUMBER or inside is float or inside is object):  # nearly always
            continue
        text = find_misfit(inside, held, f"{name}.{key}".lstrip("."))
        if text is not None:
            return text
    return None


def find_summary_fault(summary: Mapping[str, Any]) -> str | None:
    """Describe the fault in the content of a summary; None for a valid one."""
    misfit = find_misfit(SUMMARY, summary)
    if misfit is None and "device" in summary:
        traffic = summary.get("traffic", {})
        tables = {"": summary, "machine": summary.get("machine"), **{f"traffic.{way}": traffic[way] for way in traffic}}
        lacking = [(at, key) for at, of in tables.items() if of is not None for key in INSIDE[at] if key not in of]
        misfit = ".".join(lacking[0]).lstrip(".") if lacking else None
    if misfit is not None:
        return f"its {misfit} is not what a run writes there"
    try:
        metric = read_headline(summary)
    except (LookupError, TypeError):
        return "its task is no task"
    views = summary.get("views", {})
    for value in (summary.get(metric.name), *(view.get(metric.name, math.nan) for view in list(views.values())[:1])):
        if not isinstance(value, int | float) or not math.isfinite(value):
            return f"its {metric.label} is {value!r}"
    if (tested := summary.get("evaluated")) is not None:
        for name, view in views.items():
            if len(view.get("clients", tested)) != len(tested):
                return f"its view {name!r} has {len(view['clients'])} clients, not {len(tested)}"
    return None


def find_lines_fault(lines: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]) -> str | None:
    """Describe a fault in lines of metrics.jsonl, by their shapes or against the summary; None for valid lines.

    They are those of a version that left no digest of them; `check_metrics` has seen that each has its round.
    """
    misfit = next((text for line in lines if (text := find_misfit(LINE, line)) is not None), None)
    if misfit is not None or len(lines) != summary["rounds"]:
        return f"its {misfit or 'JSON'} is not what a run writes there"
    metric = read_headline(summary)
    for line in lines:
        for name, view in line.get("views", {}).items():
            value, clients = view.get(metric.name, math.nan), view.get("clients", ())
            mean = math.fsum(clients) / len(clients) if clients else value
            if not math.isclose(value, mean, rel_tol=1e-6, abs_tol=1e-9) and not math.isnan(value + mean):
                return f"in round {line['round']} the {metric.label} of the view {name!r} is not that of its clients"
    last = {name: view for line in lines for name, view in line.get("views", {}).items()}
    last |= summary.get("finish", {}).get("views", {})
    for name, view in summary.get("views", {}).items():
        value = view.get(metric.key("last"))
        if value is not None and value != last.get(name, {}).get(metric.name):
            return f"its last {metric.label} of the view {name!r} is not that of summary.json"
    return None
