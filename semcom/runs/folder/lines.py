"""metrics.jsonl of a run: a line for each round, checked where it is read."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from semcom.config import RunError
from semcom.files import CHECKPOINT, CONFIG, METRICS, format_json, open_file
from semcom.runs.folder.stored import locate_training


class DamagedRun(RunError):
    """A run with a changed metrics.jsonl or config.json, which cannot be made again."""

    def __init__(self, path: Path, reason: str) -> None:
        remedy = f"move {path.parent} away, and its command trains the run again"
        anew = "" if path.name == CONFIG else "; semcom train takes --again instead"  # which reads the configuration
        super().__init__(f"{path} is damaged ({reason}); {remedy}{anew}")


def read_metrics(folder: Path, rounds: int | None = None) -> list[dict[str, Any]]:
    """Read the lines of metrics.jsonl, up to a round or to the first line that is not whole (cut off in writing)."""
    whole: list[dict[str, Any]] = []
    try:
        with open_file(folder / METRICS) as file:
            for line in map(_parse_numbers, file):
                if line is None or (rounds is not None and line["round"] > rounds):
                    break
                whole.append(line)
    except FileNotFoundError:
        pass
    return whole


def check_metrics(folder: Path, summary: Mapping[str, Any] | None) -> None:
    """Check that metrics.jsonl of a run has not changed, at the cost of reading it.

    Runs of older versions have left no digest of it: in theirs, as in unfinished ones, each line must be that of its
    round; `find_lines_fault` checks parsed lines further.

    Args:
        folder: of the run.
        summary: of a finished run (None: it is not finished, and its last line may be cut off).

    Raises:
        DamagedRun: it has changed.
    """
    place = locate_training(folder)
    path, told = place / METRICS, summary or {}
    expected, rounds = told.get("metrics_digest"), told.get("rounds")
    try:
        with open_file(path) as file:
            content = file.read()
    except FileNotFoundError:
        if expected is not None or (rounds is not None and (place / CHECKPOINT).exists()):
            raise DamagedRun(path, "it is missing") from None
        return
    except OSError as error:
        raise DamagedRun(path, f"it cannot be read: {error.strerror}") from None
    if expected is not None:
        if hashlib.sha256(content).hexdigest() != expected:
            raise DamagedRun(path, "its digest is not that in summary.json")
        return
    *lines, rest = content.split(b"\n")
    whole = all(re.match(rb'\{"round": %d[,}].*(?<=\})$' % at, line) for at, line in enumerate(lines, 1))
    if not whole or (summary is not None and (rest or rounds not in (None, len(lines)))):
        raise DamagedRun(path, "it has not one line for each round")


def digest_metrics(digest: hashlib._Hash, *lines: dict[str, Any]) -> list[int]:
    """Add lines of metrics.jsonl to a running digest, and return it as numbers, as a checkpoint keeps it."""
    digest.update(format_lines(lines).encode())
    return list(digest.digest())


def format_lines(lines: Iterable[dict[str, Any]]) -> str:
    """Format lines for metrics.jsonl."""
    return "".join(format_json(line) + "\n" for line in lines)


def _parse_numbers(text: bytes) -> dict[str, Any] | None:
    """Parse a line of metrics.jsonl, with NaN for null; None for an incomplete line."""
    try:
        line = _read_null(json.loads(text)) if text.endswith(b"\n") else None
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) and isinstance(line.get("round"), int) else None


def _read_null(value: Any) -> Any:
    """Replace null, as `format_json` writes NaN, by NaN; a class that no client tests stays None."""
    if isinstance(value, dict):
        return {name: held if name == "classes" else _read_null(held) for name, held in value.items()}
    return [_read_null(held) for held in value] if isinstance(value, list) else math.nan if value is None else value
