"""The page beside a figure: its caption, the table, the exact command, and the setting of the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.ticker import EngFormatter

from semcom.escape import escape_tags
from semcom.plots.base import Drawing, Measured, Plot
from semcom.plots.kinds import KINDS
from semcom.runs.folder.versions import read_commit, read_versions
from semcom.studies.analysis.means import format_markdown
from semcom.studies.analysis.setting import describe_setting, list_settings
from semcom.studies.analysis.sheet import Sheet
from semcom.studies.analysis.study import Study
from semcom.studies.names import NAMED
from semcom.studies.registry import find_experiment
from semcom.studies.results.failures import read_repeat


def write_page(
    chosen: Drawing, study: Study, plot: Plot, numbers: pd.DataFrame, caption: str, record: Mapping[str, Any]
) -> str:
    """Write the page of a study's figure as Markdown.

    Args:
        chosen: the figure.
        study: the drawn part of the study.
        plot: the request, settled.
        numbers: the plotted numbers.
        caption: their caption.
        record: of sweep.json for a sweep: experiment, scale and command, and the drawing command.
    """
    source = find_experiment(chosen.experiment) if chosen.experiment else None
    frame = study.runs
    failed = int((frame["status"] == "failed").sum())
    missing = f" {failed} of {len(frame)} runs failed and are missing." if failed else ""
    paper = {"Paper item": source.paper} if source else {}
    scale = {"Scale": str(record["scale"])} if "scale" in record else {}
    share = KINDS.get(str(plot.kind)).of_y and plot.metric.share
    unit = f" ({plot.metric.label} as a fraction of 1)" if share else ""
    facts = {**paper, **scale, **_list_facts(frame), "Plotted numbers": f"{chosen.name}.csv{unit}"}
    swept = read_repeat(record.get("command"))
    commands = [swept.command, *(f"# {word}: {text}" for word, text in swept.blanks().items())] if swept else []
    commands += [record["plot"]] if "plot" in record else []
    title = source.title if source else KINDS.get(str(plot.kind)).title
    return _join_page(
        chosen.name, title, f"{caption}{missing}", _format_table(numbers, plot), list(facts.items()), commands
    )


def _format_table(numbers: pd.DataFrame, plot: Plot) -> str:
    """Format the plotted means as a table, methods or the figure's rows down. Empty for a kind without a table."""
    kind = KINDS.get(str(plot.kind))
    if not kind.tabled:
        return ""
    rows = kind.rows
    named = tuple(name for name in (plot.hue, plot.facet, plot.x) if name in NAMED)
    down = named or ((getattr(plot, rows),) if rows else plot.fields[:1])
    if plot.kind == "pareto":
        # A cost of its own for each method and panel: it stands beside the method, not over a column.
        down = tuple(name for name in (plot.facet, plot.hue, plot.x) if name)
        numbers = numbers.assign(**{str(plot.x): numbers[plot.x].map(EngFormatter(places=2))})
        if plot.facet:
            numbers = pd.concat(part for _, part in numbers.groupby(plot.facet, sort=False))
    across = tuple(name for name in plot.fields if name not in down)
    return Sheet(numbers, down, across, plot.y, labels=plot.labels).markdown().rstrip()


def write_measured_page(chosen: Measured, numbers: pd.DataFrame) -> str:
    """Write the page of a figure that measured its own `numbers`, as Markdown."""
    installed = ", ".join(f"{name} {version}" for name, version in read_versions().items())
    facts = [
        ("Versions", installed),
        ("Commit", read_commit() or "not known"),
        ("Plotted numbers", f"{chosen.name}.csv"),
    ]
    table = format_markdown(chosen.table(numbers))
    return _join_page(
        chosen.name, chosen.title, chosen.caption(numbers), table, facts, [f"semcom figure {chosen.name}"]
    )


def _join_page(
    name: str, title: str, caption: str, table: str, facts: Sequence[tuple[str, str]], commands: Sequence[str]
) -> str:
    lines = [
        f"# {name}: {title}",
        "",
        f"![{title}]({name}.png)",
        "",
        escape_tags(caption),
        "",
        *([table, ""] if table else []),
        *(f"* {fact}: {escape_tags(text)}" for fact, text in facts),
        "",
        "```sh",
        *commands,
        "```",
        "",
    ]
    return "\n".join(lines)


def _list_facts(frame: pd.DataFrame) -> dict[str, str]:
    versions = [f"{c.removeprefix('versions.')} {list_settings(frame[c])}" for c in frame if c.startswith("versions.")]
    return {
        "Setting": describe_setting(frame),
        "Seeds": list_settings(frame["seed"]),
        "Versions": ", ".join(versions) or "not stored",
        "Commit": list_settings(frame["commit"]) if "commit" in frame else "not stored",
    }
