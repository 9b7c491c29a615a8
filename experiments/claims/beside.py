"""Compare a table of a paper with ours: both accuracies of each method, and the agreement of both orders of methods."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from scipy import stats

from semcom.channels.registry import describe_unknown_name
from semcom.config import ConfigError
from semcom.studies.analysis.means import format_markdown
from semcom.studies.analysis.statistics import compute_t_interval
from semcom.studies.names import SHIPPED
from semcom_papers.experiments import papers
from semcom_papers.experiments.claims.claim import fits_point
from semcom_papers.experiments.claims.evidence import Evidence, Key, format_sweep_command, read_evidence

FEWEST = 4
"""Least number of methods for a rank correlation."""
MEAN = "averaged"
"""The row of a paper's table that is the mean of the others."""


def compare_table_beside(item: str, folder: Path | str = "results") -> pd.DataFrame:
    """Set the numbers of a paper's table beside ours.

    Args:
        item: name of a table, such as fedcosr-table2.
        folder: results of sweeps, <experiment>-<scale>; those of a checkout of semcom are read too.

    Returns:
        A row per cell of the columns that have been run: column, method, paper (as printed, %), ours (mean over seeds,
        %), low, high (95 % interval, Student's t; NaN for one seed), seeds, scale, end (whether ours is from the end
        of training, see `Evidence.ended`).

    Raises:
        ConfigError: the papers have no such table, or nothing of it has been run, or a column is several points of our
            runs.
    """
    cells = pd.concat([papers.read_paper_table(paper) for paper in papers.PAPERS])
    tables = [name for name in cells["item"].unique() if "-table" in name and not papers.is_setting(name)]
    if item not in tables:
        raise ConfigError(f"table: {describe_unknown_name(item, tables)}")
    found = read_evidence([item], Path(folder))
    rows = [] if found is None else list(_list_cells(cells[cells["item"] == item], found))
    if not rows:
        raise ConfigError(f"table: nothing of {item} has been run; {format_sweep_command(item)} does it")
    return pd.DataFrame(rows)


def _list_cells(cells: pd.DataFrame, found: Evidence) -> Iterator[dict[str, object]]:
    points = papers.read_paper_points()
    for column, of in cells.groupby("column", sort=False):
        here = points[(points["item"] == of["item"].iloc[0]) & (points["column"] == column)]
        key = _find_point(str(column), here["at"].iloc[0], found)
        if key is None:
            continue
        for row, value in of[["row", "value"]].itertuples(index=False):
            ours = found.value(row, key, "accuracy")
            if len(ours) and not pd.isna(value):
                mean = compute_t_interval(ours.numbers)
                yield {
                    **{"column": column, "method": row, "paper": value, "ours": mean.mean},
                    **{"low": mean.low, "high": mean.high, "seeds": len(ours), "scale": found.scales[0]},
                    "end": key[0] in found.ended,
                }


def _find_point(column: str, at: str, found: Evidence) -> Key | None:
    """Find the point of our runs that a column stands for; None if it has not been run."""
    asked = papers.parse_point(at)
    keys = [key for key, place in found.places.items() if key[2] is None and fits_point(place, asked)]
    if len(keys) > 1:
        raise ConfigError(f"table: {column} is {len(keys)} points of our runs")
    return keys[0] if keys else None


def measure_agreement(frame: pd.DataFrame) -> pd.DataFrame:
    """Measure how far a paper's order of methods agrees with ours, a row per column with `FEWEST` methods or more.

    Args:
        frame: result of `compare_table_beside`.

    Returns:
        Columns: column, methods (their number), rho (Spearman's rank correlation of the accuracies), p (two-sided, of
        independent orders).
    """
    rows = []
    for column, of in frame[frame["method"] != MEAN].groupby("column", sort=False):
        if len(of) >= FEWEST:
            rho, p = stats.spearmanr(of["paper"], of["ours"])
            rows.append({"column": column, "methods": len(of), "rho": float(rho), "p": float(p)})
    return pd.DataFrame(rows, columns=["column", "methods", "rho", "p"])


def format_tables_beside(frame: pd.DataFrame) -> str:
    """Format both tables as Markdown: a row per method, two columns for each of the paper's, then the agreement."""
    shown: dict[str, dict[str, str]] = {}
    for cell in frame.to_dict("records"):
        half = (cell["high"] - cell["low"]) / 2
        ours = f"{cell['ours']:.1f}" + ("" if pd.isna(half) else f" ± {half:.1f}")
        both = {f"{cell['column']}: paper": f"{cell['paper']:.1f}", f"{cell['column']}: ours": ours}
        name = "Mean of the methods" if cell["method"] == MEAN else SHIPPED.value("method", cell["method"])
        shown.setdefault(name, {"Method": name}).update(both)
    lines = pd.DataFrame(list(shown.values())).fillna("")
    agreed = [
        f"{each['column']}: Spearman's correlation {each['rho']:.2f} over {each['methods']} methods, p {each['p']:.2f}"
        for each in measure_agreement(frame).to_dict("records")
    ]
    end = ", at the end of training" if frame["end"].iloc[0] else ""
    what = f"Accuracy in %: the paper's, and ours at scale {frame['scale'].iloc[0]}{end}; ±: 95 % intervals over seeds."
    return "\n\n".join([what, format_markdown(lines), *(["\n".join(agreed)] if agreed else [])])
