"""Runs that another study has finished already, taken over into a sweep: equal configurations give equal results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from experiments.archive import unpacked
from experiments.outcome import TRAINING, is_finished, run_folder
from experiments.owner import held_by
from experiments.plan import Plan
from experiments.registry import EXPERIMENTS, experiment
from experiments.stored import Stored, stored_runs
from semcom.config import ConfigError, Resolved
from semcom.files import ARRAYS, CONFIG, METRICS, SUMMARY, write_atomically
from semcom.runs.folder import read_summary, write_config, write_summary


@contextmanager
def reusable(plan: Plan, studies: Sequence[Path | str]) -> Iterator[Mapping[str, Stored]]:
    """Surround a sweep, and give those of its unfinished runs that lie finished in other studies, by hash.

    Args:
        plan: the sweep.
        studies: folders or archives, as `semcom.study` takes them. What an experiment adds to a run by a training
            function of its own belongs to it: such runs are taken from studies of the same function alone, and others
            from studies without one. A run that is to keep arrays is taken where it has kept them.

    Raises:
        ConfigError: one of them cannot be read, or holds no finished run of the sweep.
    """
    with ExitStack() as stack:
        found: dict[str, Stored] = {}
        for study in map(Path, studies):
            place = study.expanduser()
            folder = Path(stack.enter_context(unpacked(place))) if place.is_file() else place
            theirs = {run.hash: run for run in _alike(plan, folder) if _serves(plan.runs.get(run.hash), run)}
            if not theirs:
                raise ConfigError(f"reuse: {study} holds no finished run of this sweep")
            found = {**theirs, **found}
        yield {key: run for key, run in found.items() if not is_finished(plan.runs[key])}


def _alike(plan: Plan, folder: Path) -> list[Stored]:
    """Return the runs of a study, where it trains as the sweep does."""
    held = (held_by(folder) if folder.is_dir() else None) or {}
    name, known = held.get("experiment"), EXPERIMENTS.names()
    if held.get("own_training") and name not in known:  # a plug-in's, which is not loaded
        return []
    theirs = experiment(str(name)).train if name in known else None
    if theirs is not plan.experiment.train:
        return []
    return stored_runs(folder)[0]


def _serves(wanted: Resolved | None, run: Stored) -> bool:
    """Return whether a stored run has all that is wanted of it."""
    return wanted is not None and run.status == "done" and (not wanted.keep or (run.trained / ARRAYS).is_file())


def take(config: Resolved, run: Stored) -> None:
    """Copy a finished run into its folder of a sweep; its summary, by which it counts as finished, comes last."""
    folder, summary = run_folder(config), read_summary(run.folder, run.hash)
    assert summary is not None
    if run.trained != run.folder:
        _copy(run.trained, folder / TRAINING, (CONFIG, METRICS, ARRAYS, SUMMARY))
    write_config(folder, config)
    _copy(run.folder, folder, (METRICS, ARRAYS))
    write_summary(folder, summary)


def _copy(source: Path, folder: Path, names: Sequence[str]) -> None:
    """Copy those files of a run that it has left; checkpoints and locks stay where they are."""
    for name in names:
        if (source / name).is_file():
            write_atomically(folder / name, (source / name).read_bytes())
