"""`semcom claims`: the scorecard of what the five papers claim."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from semcom.cli import flags
from semcom.config import ConfigError
from semcom.escape import format_csv
from semcom.files import resolve_file, write_atomically
from semcom.screen import say
from semcom_papers.experiments.catalogue import RESULTS as COMMITTED

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class ClaimsFlags:
    """Hold each claim of the five papers against stored results; experiments/protocol.md has the rule that decides.

    The verdict is that of the rule's second edition; where the first one had another, that and the reason stand below.
    Results are read from folders and archives of sweeps, and from those that come with semcom.
    """

    paper: str | None = None
    """Claims of one paper: fedcl-letter, fedcosr, fedcrl, fedcrc or repper (None: all)."""
    results: str = "results"
    """Folder with results of sweeps, each as EXPERIMENT-SCALE or EXPERIMENT-SCALE.zip."""
    csv: str | None = None
    """File in which the whole scorecard is written (None: none)."""
    html: str | None = None
    """File in which it is written as a page that needs no network (None: none)."""
    table: str | None = None
    """Print this table of a paper, such as fedcosr-table2, beside ours and nothing else (None: none)."""


def carry_out_claims_command(words: list[str]) -> None:
    """Print the scorecard or write it to files: the command `semcom claims`."""
    from semcom_papers.experiments.claims.scorecard import format_scorecard_page, make_scorecard

    wanted = flags.parse_flags(ClaimsFlags(), "semcom claims", words, {})
    if not COMMITTED.is_dir():
        say("semcom: stored results are in its repository: --results CLONE/experiments/results", stream=sys.stderr)
    if wanted.table is not None:
        _show_table(wanted)
        return
    frame = make_scorecard(resolve_file(wanted.results), wanted.paper)
    if wanted.csv is not None:
        say(f"table: {write_atomically(resolve_file(wanted.csv), format_csv(frame))}")
    if wanted.html is not None:
        say(f"page: {write_atomically(resolve_file(wanted.html), format_scorecard_page(frame))}")
    if wanted.csv is None and wanted.html is None:
        _print_claims(frame)


def _show_table(wanted: ClaimsFlags) -> None:
    """Print a table of a paper beside ours, or write its numbers.

    Raises:
        ConfigError: flags of the scorecard are given too, the table is unknown, or has no runs.
    """
    from semcom_papers.experiments.claims.beside import compare_table_beside, format_tables_beside

    if wanted.paper is not None or wanted.html is not None:
        raise ConfigError("table: it comes without the scorecard; leave --paper and --html out")
    frame = compare_table_beside(wanted.table or "", resolve_file(wanted.results))
    if wanted.csv is not None:
        say(f"table: {write_atomically(resolve_file(wanted.csv), format_csv(frame))}")
    else:
        say(format_tables_beside(frame))


def _print_claims(frame: pd.DataFrame) -> None:
    """Print a table per paper: state in both editions, ours, the claim; then the commands of what was not run."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from semcom_papers.experiments.claims.scorecard import count_verdicts

    console = Console(highlight=False)
    for paper, of in frame.groupby("paper", sort=False):
        console.print(Text(f"{paper}: {count_verdicts(of, 'state')}", style="bold"))
        console.print(Text(f"by the rule's first edition: {count_verdicts(of, 'first')}", style="dim"))
        table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False)
        table.add_column("state", max_width=20)
        table.add_column("ours (shares in points)", max_width=44)
        table.add_column("claim", overflow="fold")
        for row in of.to_dict("records"):
            was = f"\n(was {row['first']}: {row['why']})" if row["why"] else ""
            table.add_row(row["state"] + was, Text(_format_evidence(row)), Text(_format_claim(row)))
        console.print(table, "")
    missing = frame[frame["state"] == "not run"]["command"]
    commands = dict.fromkeys(part for line in missing for part in line.split("; ") if part)
    if commands:
        console.print("not run; these commands make results:")
    for command in commands:
        console.print(Text(f"  {command}"))


def _format_claim(row: dict[str, Any]) -> str:
    """Format a claim with the reading of its percentage, its item, and notes on guessing and inconclusive runs."""
    read = {"points": " Read as points.", "percent-relative": " Read as a percentage of the rival's accuracy."}
    reading = read.get(row["unit"], "") if row["relation"] == "by" else ""
    notes = [row["note"]] if row["note"] and row["state"] == "inconclusive" else []
    notes += [f"guessing, and not counted: {row['guessing']}"] if row["guessing"] else []
    note = "".join(f" [{each}]" for each in notes)
    warned = f" [{row['warnings'].partition(', the first')[0]}]" if row["warnings"] else ""
    return f"{row['claim']}{reading} ({row['item']}){note}{warned}"


def _format_evidence(row: dict[str, Any]) -> str:
    """Format the comparison that decides a claim, the counts of all comparisons, and the power of the seeds."""
    from semcom.tasks.metric import ACCURACY

    if not row["seeds"]:
        return ""
    digits = ACCURACY.choose_decimals((row["high"] - row["low"]) / 200)
    interval = "" if math.isnan(row["low"]) else f" [{row['low']:.{digits}f}, {row['high']:.{digits}f}]"
    counts = {word: row[word] for word in ("yes", "level", "no", "open")}
    several = f"; {', '.join(f'{word} {n}' for word, n in counts.items())}" if sum(counts.values()) > 1 else ""
    seeds = f"{row['seeds']} seed" + ("s" if row["seeds"] > 1 else "")
    return f"{row['of']}: {row['ours']:.{digits}f}{interval}, {seeds}{several}{_format_power(row)}"


def _format_power(row: dict[str, Any]) -> str:
    if math.isnan(row["power"]):
        return ""
    from semcom_papers.experiments.claims.rule import POWER

    short = row["state"] == "inconclusive" and row["power"] < POWER and row["needs"] > row["seeds"]
    more = f", needs {row['needs']:.0f} seeds" if short else ""
    return f"; power {row['power']:.2f}{more}"
