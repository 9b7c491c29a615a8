"""summary.json of a run: written with a digest of its content, and checked by it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from semcom.config import RunError
from semcom.files import METRICS, SUMMARY, digest_of_file, format_json, read_json, write_atomically
from semcom.runs.folder.lines import check_metrics
from semcom.runs.folder.schema import find_summary_fault
from semcom.runs.folder.stored import locate_training


def write_summary(folder: Path, summary: Mapping[str, Any]) -> Path:
    """Write summary.json, with a digest of its content, and return its path.

    Args:
        folder: of the run.
        summary: as docs/metrics.md has it; `hash` (of the resolved configuration) and the
            task's headline, such as `accuracy`, at least. The digest of metrics.jsonl is that of the file there.

    Raises:
        OSError: it could not be written; no half of it is there.
    """
    values = {name: value for name, value in summary.items() if name != "metrics_digest"}
    if (lines := locate_training(folder) / METRICS).is_file():
        values["metrics_digest"] = digest_of_file(lines)
    return write_atomically(folder / SUMMARY, format_summary(values))


def format_summary(summary: Mapping[str, Any]) -> str:
    """Format the content of summary.json."""
    return format_json(seal_summary(summary), indent=2) + "\n"


def seal_summary(values: Mapping[str, Any]) -> dict[str, Any]:
    """Convert plain values as JSON does, and add or replace their digest."""
    plain = json.loads(format_json({name: value for name, value in values.items() if name != "digest"}))
    return {**plain, "digest": _digest_values(plain)}


def is_summary_sealed(values: Mapping[str, Any]) -> bool:
    """Check whether the digest among some values is that of all others."""
    return values.get("digest") == _digest_values({name: value for name, value in values.items() if name != "digest"})


def read_summary(folder: Path, expected: str | None = None) -> dict[str, Any] | None:
    """Read the summary of the finished run in a folder; None if no run has finished.

    Args:
        folder: of the run.
        expected: required hash of the run (None: any).

    Raises:
        RunError: the file is damaged, or of another run.
        DamagedRun: metrics.jsonl has changed, see `check_metrics`.
    """
    path = folder / SUMMARY
    try:
        found = read_json(path)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise RunError(f"{path} is damaged ({error}); the command that trained the run writes it again") from None
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from None
    if problem := _find_fault(found, expected):
        raise RunError(f"{path} is damaged ({problem}); the command that trained the run writes it again")
    check_metrics(folder, found)
    return {name: value for name, value in found.items() if name != "digest"}


def _find_fault(found: Any, expected: str | None) -> str | None:
    """Describe the fault in the content of summary.json; None for a valid one."""
    if not isinstance(found, dict):
        return "it holds no JSON object"
    if not is_summary_sealed(found):
        return "its digest is not that of its content"
    if (fault := find_summary_fault(found)) is not None:
        return fault
    if expected is not None and found.get("hash") != expected:
        return f"it is of run {found.get('hash')}, not of {expected}: of another configuration or version"
    return None


def _digest_values(values: Mapping[str, Any]) -> str:
    """Compute the digest of values as they come back from JSON."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
