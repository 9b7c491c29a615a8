"""Labels of runs, and reports on failed ones: the cause, its place in the user's code, the command to repeat one."""

from __future__ import annotations

import re
import shlex
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from semcom.config import ConfigError, DataConfig, RunConfig
from semcom.data.sources import is_dataset_cached
from semcom.escape import escape_texts
from semcom.files import CONFIG, ELSEWHERE, ERROR
from semcom.packages import list_own_folders
from semcom.runs.folder.stored import read_stored_config
from semcom.runs.request.plugins import list_loaded_plugins, locate_plugin
from semcom.studies.grid import read_grid_field
from semcom.studies.overrides import format_set_override

ROOT = "--data.root FOLDER"
"""End of a command for which the user has to name the folder of the images."""
IMAGES = "without --data.root they are looked for in the cache folder, and then downloaded"
"""The effect of leaving it out."""
FULL = 5
"""Failed runs that are described in full; each further run has a line."""
_FRAME = re.compile(r'  File "(?P<file>.+)", line \d+, in .+\n(?:    .*\n)*')
"""Pattern of a frame in a traceback."""
_OURS = tuple(map(Path, list_own_folders()))
_LIBRARIES = tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib"))


@dataclass(frozen=True)
class Failure:
    """A failed run."""

    label: str
    """Its label among the runs."""
    folder: Path
    """Its folder."""
    error: str
    """The cause in a line."""
    own: bool = False
    """Whether the experiment trains by a function of its own, which `semcom train` knows nothing of."""

    config: Path | None = None
    """Where its configuration lies, as `semcom train` takes it (None: in the folder)."""

    def format(self) -> list[str]:
        """Describe it in lines: label, cause, place, command."""
        where = [f"    {line}" for line in locate_failure(self.folder)]
        command = ["  the command of the sweep tries it again"]
        if not self.own and (self.folder / CONFIG).is_file():
            again = build_repeat(self.config or self.folder / CONFIG, self.folder)
            command = [f"  this run alone: {again.command}", *(f"  {n}: {text}" for n, text in again.blanks().items())]
        return [f"FAILED {self.label}", f"  {self.error}", *where, *command]


@dataclass(frozen=True)
class Repeat:
    """The command that repeats a run or a sweep, for its reader to look at and to paste."""

    command: str
    """The command; the reader has to fill in the words in capitals."""
    plugins: tuple[str, ...] = ()
    """The files that FILE stands for, as the results name them."""

    def blanks(self) -> dict[str, str]:
        """Describe each word in capitals that has to be filled in."""
        names = " and ".join(escape_texts(plugin.removeprefix(ELSEWHERE)) for plugin in self.plugins)
        file = {"FILE": f"your copy of {names}; read it first, for the command executes it"} if names else {}
        root = {"FOLDER": f"where the images lie; {IMAGES}"} if self.command.endswith(ROOT) else {}
        return file | root


def build_repeat(config: Path, folder: Path, out: str | None = None) -> Repeat:
    """Build the command that repeats a run.

    A plug-in that this process has not imported is left to the reader: its path may be somebody else's. So is the
    folder of the images (`ROOT`) where these are neither in one that the configuration names, and an archive names
    none, nor in the cache folder.

    Args:
        config: its config.json, or ARCHIVE.zip/RUN.
        folder: where its config.json lies, be it unpacked from an archive.
        out: folder of the repetition (None: that of the configuration).
    """
    try:
        stored = read_stored_config(folder, "show")
    except ConfigError:  # the command will say what is wrong with it
        stored = None
    named = [word for plugin in (stored.plugins if stored else ()) for word in ("--plugin", plugin)]
    found = _leave_plugins(["semcom", "train", "--config", str(config), *named, *(("--out", out) if out else ())])
    return found if stored is None or _finds_images(stored.data) else replace(found, command=f"{found.command} {ROOT}")


def read_repeat(command: Any) -> Repeat | None:
    """Read the commands that a sweep has left, with the plug-ins left to the reader.

    None for a text with a line that does anything but carry out a sweep, or that is Python.
    """
    try:
        lines = [shlex.split(line) for line in command.splitlines()] if isinstance(command, str) else []
    except ValueError:
        return None
    if not lines or any(words[:2] != ["semcom", "sweep"] for words in lines):
        return None
    found = [_leave_plugins(words) for words in lines]
    plugins = dict.fromkeys(plugin for each in found for plugin in each.plugins)
    return Repeat("\n".join(each.command for each in found), tuple(plugins))


def _leave_plugins(words: Sequence[str]) -> Repeat:
    """Replace plug-ins, and files of experiments, by FILE in a command unless this process has imported them."""
    words = [part for word in words for part in (word.split("=", 1) if word.startswith("--plugin=") else [word])]
    own = [before == "--plugin" or word.endswith(".py") for before, word in pairwise(["", *words])]
    left = [of and locate_plugin(word) not in list_loaded_plugins() for of, word in zip(own, words, strict=True)]
    named = [word for word, is_left in zip(words, left, strict=True) if is_left]
    shown = ["FILE" if is_left else word for word, is_left in zip(words, left, strict=True)]
    return Repeat(shlex.join(shown), tuple(dict.fromkeys(named)))


def _finds_images(data: DataConfig) -> bool:
    known = read_grid_field(RunConfig(data=data), "data.of") if data.name == "noisy" else None
    return data.root is not None or is_dataset_cached(str(known or data.name))


def report_failures(failures: Sequence[Failure]) -> str:
    """Describe failed runs: the first `FULL` in full, each of the others in a line."""
    lines = [line for failure in failures[:FULL] for line in failure.format()]
    return "\n".join([*lines, *(f"FAILED {failure.label}: {failure.error}" for failure in failures[FULL:])])


def locate_failure(folder: Path) -> list[str]:
    """Find where the error of a failed run arose, with the line of code: the last place in the user's own code.

    Where none of that was running it is the last one in semcom; where no traceback was left, there are no lines.
    """
    path = folder / ERROR
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    first = text.partition("Traceback (most recent call last):\n")[2].partition("\n\n")[0]  # of several, the cause
    frames = {found.group(): Path(found["file"]) for found in _FRAME.finditer(first + "\n")}
    ours = [frame for frame, file in frames.items() if _is_inside(file, _OURS)]
    users = [frame for frame, file in frames.items() if not _is_inside(file, (*_OURS, *_LIBRARIES))]
    chosen = next((found[-1] for found in (users, ours, list(frames)) if found), "")
    at, *code = [line.strip() for line in chosen.splitlines() if line.strip("^~ ")] or [""]
    return [at, *(f"  {line}" for line in code)] if at else []


def _is_inside(file: Path, folders: Sequence[Path]) -> bool:
    return any(file.is_relative_to(folder) for folder in folders)


# -- labels ----------------------------------------------------------------------------------------------------------


def format_run_label(variant: str, fields: Mapping[str, Any], key: str | None = None) -> str:
    """Format the label of a run, such as "fedcl, channel.snr_db=9, seed=1, 4f1c0d6a9b2e".

    Args:
        variant: its variant; the method's name, where it has no other.
        fields: dotted field -> value, of the fields that are named; one without a value is left out.
        key: hash of the run, which is the name of its folder in a sweep (None: it is not one run).
    """
    named = [format_set_override(name, value) for name, value in fields.items() if value is not None]
    return ", ".join([variant, *named, *([key] if key else [])])


def format_run_labels(runs: Mapping[str, tuple[str, Mapping[str, Any]]]) -> dict[str, str]:
    """Label the runs of a study by hash; a field that has the same value in all of them is not named.

    Args:
        runs: hash -> variant, and the values of the fields that may vary.
    """
    several = find_varied_fields([fields for _, fields in runs.values()])
    return {
        key: format_run_label(variant, {n: fields.get(n) for n in several}, key)
        for key, (variant, fields) in runs.items()
    }


def find_varied_fields(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Find the fields that have more than one value in some runs, dotted field -> value of each."""
    names = dict.fromkeys(name for fields in runs for name in fields)
    return [name for name in names if len({repr(fields.get(name)) for fields in runs}) > 1]
