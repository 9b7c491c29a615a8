"""Check that no number of the project has changed: `python -m tests.unchanged`, before and after a change of structure.

Held against what is committed: the hashes of the runs of every named experiment at every scale, the hashes of the runs
in the archives, the verdicts of all claims, and the CSV beside every figure, drawn again from its archive. A change
that means to change some of them says which, and writes the new ones: `python -m tests.unchanged --write`.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import semcom
from semcom.config import ConfigError, from_dict, run_hash
from semcom.plots import render
from semcom.plots.base import Drawing
from semcom.plots.registry import FIGURES
from semcom.studies.registry import EXPERIMENTS
from semcom_papers.experiments.claims.scorecard import make_scorecard
from tests.archives import open_runs

ROOT = Path(__file__).parents[1]
ARCHIVES = ROOT / "experiments" / "results"
RENDERED = ROOT / "figures" / "rendered"
SNAPSHOT = Path(__file__).with_suffix(".json")
COLUMNS = ("state", "first", "why", "scale", "ours", "low", "high", "seeds", "yes", "level", "no", "open")


def digest(lines: list[str]) -> str:
    """Compute a digest of lines in any order."""
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()[:16]


def experiment_hashes() -> dict[str, str]:
    """Map experiment and scale to the digest of its runs' hashes."""
    found = {}
    for name in EXPERIMENTS.names():
        chosen = EXPERIMENTS.get(name)
        for scale in chosen.offered():
            found[f"{name} {scale}"] = digest([run_hash(semcom.resolve(config)) for config in chosen.grid(scale)])
    return found


def archive_hashes() -> dict[str, str]:
    """Map archives to the digest of the hashes that their stored configurations have now."""
    found = {}
    for path in sorted(ARCHIVES.glob("*.zip")):
        with open_runs(path) as archive:
            texts = [archive.read(name).decode() for name in archive.namelist() if name.endswith("/config.json")]
        configs = [
            json.loads(text.replace('"elsewhere/', f'"{ROOT}/docs/plugins/')) for text in texts
        ]  # a packed plug-in
        found[path.stem] = digest([run_hash(semcom.resolve(from_dict(config))) for config in configs])
    return found


def verdicts() -> dict[str, str]:
    """Map claims to their states in both editions of the rule and the numbers that decided it."""
    frame = make_scorecard(ROOT / "results-of-nobody")
    return {row["id"]: " ".join(f"{row[c]}" for c in COLUMNS) for row in frame.to_dict("records")}


def figures() -> dict[str, str]:
    """Map figures to "same" if the CSV comes out of the archive as it is committed, else to a reason."""
    found = {}
    for path in sorted(RENDERED.rglob("*.csv")):
        figure, name = FIGURES.get(path.stem), path.relative_to(RENDERED).as_posix()
        if isinstance(figure, Drawing):  # others measure their own numbers, in the last digits by the processor
            archive = ARCHIVES / f"{figure.experiment}-{path.parent.name}.zip"
            found[name] = _drawn_again(path, archive) if archive.exists() else "no archive"
    return found


def _drawn_again(path: Path, archive: Path) -> str:
    with tempfile.TemporaryDirectory() as scratch:
        try:
            render(path.stem, results=archive, out=scratch)
        except ConfigError as error:  # of arrays that an archive does not hold
            return str(error)
        return _compare(path, Path(scratch) / path.name)


def _compare(before: Path, now: Path) -> str:
    if before.read_bytes() == now.read_bytes():
        return "same"
    lines = difflib.unified_diff(before.read_text().splitlines(), now.read_text().splitlines(), n=0, lineterm="")
    changed = [line for line in lines if line[0] in "+-"][2:]
    return f"{len(changed)} lines differ; the first: {changed[0] if changed else 'an end of line'}"


def differences(before: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each entry that differs between two snapshots."""
    for part in now:
        for name in sorted({*before.get(part, {}), *now[part]}):
            old, new = before.get(part, {}).get(name), now[part].get(name)
            if old != new:
                yield f"{part}: {name}: {old} -> {new}"


def main() -> int:
    """Compare everything, print what differs, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="write the snapshot")
    parts = (experiment_hashes, archive_hashes, verdicts, figures)
    now = {part.__name__: part() for part in parts}
    if parser.parse_args().write:
        SNAPSHOT.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n")
        return 0
    lines = list(differences(json.loads(SNAPSHOT.read_text()), now))
    print("\n".join(lines) or "unchanged")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
