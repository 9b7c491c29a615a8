"""The result of a run as a few lines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from semcom.cli.text import count_terminal_columns
from semcom.runs.result.accuracy import describe_window, list_accuracy_snrs
from semcom.tasks.metric import Metric, name_metric_curve, read_task_metrics

if TYPE_CHECKING:
    from semcom.data.dataset import Indices
    from semcom.data.split import Split

MOST = 100
"""Clients that are shown of a split."""
EQUAL = 1e-9
"""Difference up to which two means count as equal, because of rounding."""
_SNR_WIDTH = 7
"""Width of the columns of a table over test SNRs."""


def format_result_table(summary: Mapping[str, Any], radio: bool = True, joule: bool = False) -> str:
    """Return the summary of a run as text: accuracies per view, measured SNR, and traffic per client and round.

    Args:
        summary: of the run.
        radio: whether the run has a channel, which is then described.
        joule: whether energies are in joule, or numbers of symbols.
    """
    views, snrs = _format_with_windows(summary), list_accuracy_snrs(summary["views"])
    metrics = read_task_metrics(summary)
    body = _format_means("view", views, metrics)
    if len(snrs) > 1:
        body += _format_curves(views, snrs, metrics[0])
    if "new_clients" in summary:
        body += _format_means("new client (at the end)", summary["new_clients"], metrics)
    rounds = summary["rounds"]
    end = f"{rounds} round{'s' if rounds > 1 else ''}" + (" and its last stage" if "finish" in summary else "")
    if "stopped" in summary:
        best = summary["stopped"]["best_on_validation"]
        end += f" (of {summary['stopped']['rounds']}; the best on validation images: round {best})"
    where = f" at {snrs[0]} dB" if len(snrs) > 1 else ""
    headline = metrics[0]
    head = f"{summary['method']}: {headline.label} {headline.state(summary[headline.name])}{where} after {end}"
    first, view = next(iter(summary["views"].items()))
    if (window := describe_window(summary, first)).startswith("mean") and headline.key("last") in view:
        head += f" ({window}; the last one: {headline.state(view[headline.key('last')])})"
    visited = [f"training samples visited: {summary['samples']:,}"] if "samples" in summary else []
    return "\n".join([head, *body, *visited, *format_air_lines(summary, radio, joule)])


def format_air_lines(summary: Mapping[str, Any], radio: bool = True, joule: bool = False) -> list[str]:
    """Format lines on the measured SNR, the traffic and the time of a run; arguments as of `format_result_table`."""
    several = len(list_accuracy_snrs(summary["views"])) > 1
    met = _name_meters(summary["snr_received_db"], several)
    snr = ", ".join(f"{name} {_format_snr(value)}" for name, value in met.items())
    sent = [
        f"{_DIRECTIONS[way]}: {_format_traffic(counts, radio, joule)}" for way, counts in summary["traffic"].items()
    ]
    rates = _name_meters(summary.get("error_rates", {}), several)
    wrong = [f"{name} {e['bits']:.3g} of bits, {e['blocks']:.3g} of blocks" for name, e in rates.items()]
    errors = [f"errors: {'; '.join(wrong)}"] if wrong else []
    if "time_s" in summary:
        sent.append(f"all rounds: {summary['time_s']:.4g} s")
    missing = [f"{summary[name]} {name}" for name in ("late", "lost", "unreached") if name in summary]
    arrivals = [f"what did not arrive: {', '.join(missing)}"] if missing else []
    told = [f"privacy of each client: epsilon {summary['epsilon']:.4g}"] if "epsilon" in summary else []
    told += [f"toward the base station: epsilon {summary['epsilon_base']:.4g}"] if "epsilon_base" in summary else []
    ratio = [f"bandwidth ratio k/n: {summary['bandwidth_ratio']:.3g}"] if radio and "bandwidth_ratio" in summary else []
    heard = [f"received SNR: {snr}"] if radio and met else [] if radio else ["no radio"]
    return [*heard, *ratio, *told, *errors, *arrivals, "per participating client and round", *sent]


def _name_meters(found: Mapping[str, Any], several: bool) -> dict[str, Any]:
    """Name the measured numbers as they are printed, each of several tests by its SNR.

    Earlier versions stored one number over all tests, which belongs to none of them and is left out.
    """
    named = {name.replace("_", " "): value for name, value in found.items() if not (several and name == "test")}
    return {name: value for name, value in named.items() if name != "test at"} | {
        f"test at {snr} dB" if several else "test": value for snr, value in found.get("test_at", {}).items()
    }


def _format_with_windows(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Name the views of a summary, with their windows if these differ, as after a last stage."""
    several = bool(summary.get("finish", {}).get("views"))
    return {
        f"{name} ({describe_window(summary, name)})" if several else name: view
        for name, view in summary["views"].items()
    }


def _format_means(title: str, views: Mapping[str, Mapping[str, Any]], metrics: Sequence[Metric]) -> list[str]:
    first, *others = (metric for metric in metrics if all(metric.name in view for view in views.values()))
    columns = {first.name: first.heading, first.key("std"): "std", first.key("worst10"): "worst 10 %"}
    pooled = first.key("pooled")  # the mean over clients, where these have equally many test images
    if all(pooled in view for view in views.values()) and any(
        abs(view[pooled] - view[first.name]) > EQUAL for view in views.values()
    ):
        columns[pooled] = "over images"
    last = first.key("last")
    if all(last in view for view in views.values()) and any(_is_last_apart(view, first) for view in views.values()):
        columns[last] = "last round"
    rows = [
        [*(first.format(view[key]) for key in columns), *(m.format(view[m.name]) for m in others)]
        for view in views.values()
    ]
    return _format_table(title, list(views), rows, [*columns.values(), *(m.heading for m in others)])


def _is_last_apart(view: Mapping[str, Any], metric: Metric) -> bool:
    """Check whether the last round is out of the interval of the mean over the last rounds: two standard errors.

    That is, over clients, some 95 %. One client has no interval: then the digits that are shown decide.
    """
    last, mean, clients = view[metric.key("last")], view[metric.name], len(view["clients"])
    error = view[metric.key("std")] / math.sqrt(max(1, clients - 1))
    return metric.format(last) != metric.format(mean) and abs(last - mean) > 2 * error


def _format_curves(views: Mapping[str, Mapping[str, Any]], snrs: Sequence[str], metric: Metric) -> list[str]:
    """Tabulate a metric of each view at each SNR, as many columns side by side as fit the terminal."""
    curve, title = name_metric_curve(metric.name), f"{metric.heading} at"
    names = [name for name, view in views.items() if curve in view]
    room = max(1, (count_terminal_columns() - max(map(len, (*names, title)))) // (_SNR_WIDTH + 1))
    lines: list[str] = []
    for first in range(0, len(snrs), room):
        some = snrs[first : first + room]
        rows = [[metric.format(views[name][curve][snr]) for snr in some] for name in names]
        lines += _format_table(title, names, rows, [f"{snr} dB" for snr in some], _SNR_WIDTH)
    return lines


def _format_table(
    title: str, names: Sequence[str], rows: Sequence[Sequence[str]], columns: Sequence[str], width: int = 13
) -> list[str]:
    """Align a table: names to the left, cells to the right, headings above."""
    left = max(width, len(title), *map(len, names))
    widths = [
        max(width, len(heading), *(len(cell) + 1 for cell in cells))
        for heading, *cells in zip(columns, *rows, strict=True)
    ]
    lines = zip([title, *names], [columns, *rows], strict=True)
    return [" ".join([name.ljust(left), *map(str.rjust, cells, widths)]) for name, cells in lines]


def format_split_table(split: Split, labels: Indices, classes: Sequence[str]) -> str:
    """Tabulate each client's images in each part, and its training images of each class.

    Where a line would be wider than the terminal, the table has the smallest, the median and the largest client.
    """
    import numpy as np

    parts = {name: lists for name, lists in vars(split).items() if any(map(len, lists))}
    clients = range(min(len(split.train), MOST))
    counts = [np.bincount(labels[split.train[client]], minlength=len(classes)).tolist() for client in clients]
    rows = [[*(str(len(lists[client])) for lists in parts.values()), *map(str, counts[client])] for client in clients]
    lines = _format_table("client", [str(client) for client in clients], rows, [*parts, *classes], width=4)
    if len(lines[0]) > count_terminal_columns():
        whole = f"one line for each, with {len(classes)} classes, takes {len(lines[0])} columns"
        return "\n".join([*_format_split(parts, labels), f"{len(split.train):,} clients; {whole}"])
    left = len(split.train) - len(clients)
    return "\n".join([*lines, *([f"and {left:,} more clients"] if left else [])])


def _format_split(parts: Mapping[str, Sequence[Indices]], labels: Indices) -> list[str]:
    """Summarise all clients: images in each part, and classes among the training images."""
    import numpy as np

    each = {f"{name} images": [len(indices) for indices in lists] for name, lists in parts.items()}
    each["classes in training"] = [len(np.unique(labels[indices])) for indices in parts["train"]]
    rows = [[f"{value:g}" for value in (min(n), float(np.median(n)), max(n))] for n in each.values()]
    return _format_table("per client", list(each), rows, ["min", "median", "max"], width=6)


def format_time_table(seconds: Mapping[str, float]) -> str:
    """Tabulate the time of a run from `summary["seconds"]`: its sections, and their parts if measured."""
    whole = max(sum(value for path, value in seconds.items() if "/" not in path), 1e-9)
    first = [path for path in (*_SECTIONS, *seconds) if path in seconds and "/" not in path]
    names, rows = [], []
    for section in dict.fromkeys(first):
        for path in (section, *(path for path in seconds if path.startswith(f"{section}/"))):
            names.append("  " * path.count("/") + _SECTIONS.get(path, path.rpartition("/")[2]))
            rows.append([f"{seconds[path]:.2f}", f"{100 * seconds[path] / whole:.1f}"])
    over = sum(seconds.get(section, 0.0) for section in ("evaluate", "log", "checkpoint"))
    last = f"overhead: evaluation, logging and checkpointing take {100 * over / whole:.1f} % of the run"
    return "\n".join([*_format_table("where the time went", names, rows, ["seconds", "% of the run"]), last])


_SECTIONS = {
    "setup": "set-up",
    "train": "training",
    "evaluate": "evaluation",
    "checkpoint": "checkpointing",
    "log": "logging",
    "finish": "last stage",
    "newcomers": "new clients",
}
"""Section of a run -> its name, in the order of the table."""
_DIRECTIONS = {"up": "  uplink  ", "down": "  downlink"}


def _format_snr(value: float | None) -> str:
    """Format a measured SNR; None or NaN: nothing was sent."""
    return "-" if value is None or value != value else f"{value:.2f} dB"


def _format_traffic(counts: Mapping[str, float], radio: bool, joule: bool) -> str:
    """Format the traffic of one direction, with its use of the channel if there is one."""
    energy = f"{counts['energy_j']:.3g} J" if joule else f"{counts['energy_j']:,.0f} symbols"
    sent = f"{counts['floats']:,.0f} floats, {counts['bits']:,.0f} bits"
    taken = f"{counts['uses']:,.0f} channel uses, {counts['airtime_s']:.3g} s, energy {energy}"
    return f"{sent}, {taken}" if radio else sent
