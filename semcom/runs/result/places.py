"""Texts, configurations and tables for others, in archives and trackers, without the folders of files."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semcom.config import DEPENDS, READ
from semcom.escape import map_texts
from semcom.files import ELSEWHERE

if TYPE_CHECKING:
    import pandas as pd

BEFORE, AFTER = r"(?<![\w.~/\\-])", r"(?![\w~-]|\.\w)"
"""Where a path may begin and end in a text: a part of a component is none."""
_IN = r"[^\s'\"/\\,;:()\[\]]"
_SCHEME = r"[A-Za-z][A-Za-z0-9+.-]+:"
_SECRET = r"(?=[^\s'\"/]*@|[^\s'\"]*\?)"
_HOST = rf"(?:(?:(?!https?:){_SCHEME}//|https?://{_SECRET})[^\s'\"/,;()]+/?|~[\w.-]+/)"
"""Pattern of texts that reveal a place: a user's home, a bucket or a server; but not of a public address, which has
neither a user nor a key."""
_ROOT = rf"(?:{_HOST}|~/|[A-Za-z]:[\\/]+|file:/+|{_SCHEME}///+|\\\\|(?<!:)//+|/(?!/))"
_UP = rf"(?:{_IN}+/)*\.\.(?:/|$)"
_LEAVES = re.compile(rf"{_ROOT}|{_UP}")
"""Pattern of the beginning of a path that leaves the folder where it is read."""
_PLAIN = "and|are|as|at|but|by|for|from|has|in|into|is|not|of|on|or|than|that|the|to|was|which|with"
_WORD = rf"(?<!\.\w)(?<!\.\w\w)(?<!\.\w\w\w)(?<!\.\w\w\w\w) (?!(?:{_PLAIN})\b){_IN}+"
_FOLDER = rf"{_IN}+(?:{_WORD}){{0,3}}[/\\]"
"""Pattern of a folder, whose name may have a few spaces: not behind the end of a file, nor before a plain word."""
_PATH = re.compile(rf"{BEFORE}(?:{_HOST}(?:{_FOLDER})*|{_ROOT}(?:{_FOLDER})+|{_UP}(?:{_FOLDER})*)(?:{_IN}*[\w~-])?")
_QUOTED = re.compile(rf"(?<=['\"])((?:[\w.-]+=)?)((?:{_ROOT}|{_UP})(?={_IN})[^'\"\n]*)(?=['\"])")
_ITEM = re.compile(rf",(?={_ROOT}|{_UP})")


class Places:
    """The files and folders that runs read and write, and the names that stand for them.

    Args:
        configs: as config.json holds them; entries of their `contents` are files or modules.
        folders: further ones whose names may have spaces.
    """

    def __init__(self, configs: Iterable[Mapping[str, Any]], *folders: Path) -> None:
        configs = list(configs)
        names = {str(name) for config in configs for name in _as_table(config.get("contents"))}
        paths = {name.removeprefix(READ).removeprefix(DEPENDS) for name in names}
        self.names: dict[str, str] = {}
        for path in sorted(path for path in paths if os.path.isabs(path)):
            name, count = f"{ELSEWHERE}{os.path.basename(path)}", 2
            while name in self.names.values():  # files of one name in several folders
                name, count = f"{ELSEWHERE}{count}/{os.path.basename(path)}", count + 1
            self.names[path] = name
        given = [place for each in configs for place in (each.get("out"), _as_table(each.get("data")).get("root"))]
        known = {Path(place) for place in (*given, *folders) if isinstance(place, str | Path)}
        within = {str(each) for place in known for each in (place, *place.parents) if len(each.parts) > 2}
        self._names, self._folders = _compile_any(self.names, ""), _compile_any(within, rf"(?:/{_IN}*[\w~-])*")

    def config(self, value: Any) -> Any:
        """Replace paths in a configuration by names; its hash has their digests, and stays."""
        marked = {f"{mark}{path}": f"{mark}{name}" for path, name in self.names.items() for mark in ("", READ, DEPENDS)}
        return map_texts(value, lambda text: marked.get(text, text))

    def values(self, value: Any) -> Any:
        """Replace paths in values, each a path, a list, or another text; those of `command` are lines for a shell."""
        if isinstance(value, dict):
            return {self.values(k): self._command(v) if k == "command" else self.values(v) for k, v in value.items()}
        return map_texts(value, self._value)

    def words(self, value: Any) -> Any:
        """Remove folders from paths in texts, and in containers of texts."""
        return map_texts(value, self._text)

    def frame(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Remove folders from the texts of a table."""
        from pandas.api.types import is_numeric_dtype

        own = {"command": self._command, "error": self._text}
        texts = {name: own.get(name, self._value) for name in frame if not is_numeric_dtype(frame[name])}
        return frame.assign(**{name: frame[name].map(change) for name, change in texts.items()})

    def _text(self, text: Any) -> Any:
        """Remove folders from a sentence; paths with spaces are found if they are quoted, or known."""
        if not isinstance(text, str):
            return text
        text = self._names.sub(lambda found: self.names[found.group()], text)
        text = self._folders.sub(lambda found: self._hide(found.group()), text)
        text = _QUOTED.sub(lambda found: found[1] + self._value(found[2]), text)
        return _PATH.sub(lambda found: self._hide(found.group()), text)

    def _value(self, text: Any) -> Any:
        """Remove folders from a value: a path as a whole, whatever its characters."""
        if not isinstance(text, str):
            return text
        parts = _ITEM.split(text)
        return ",".join(self._hide(part) if _LEAVES.match(part) else self._text(part) for part in parts)

    def _command(self, line: Any) -> Any:
        """Remove folders from the words of commands, a line each, and from values after a name and an equals sign."""
        if not isinstance(line, str):
            return line
        if "\n" in line:
            return "\n".join(map(self._command, line.splitlines()))
        if line.startswith("semcom.sweep("):
            return self._text(line)
        line = self._names.sub(lambda found: self.names[found.group()], line)
        try:
            words = [re.fullmatch(r"((?:[\w.-]+=)?)(.*)", word, re.DOTALL) for word in shlex.split(line)]
        except ValueError:  # it is none
            return self._text(line)
        new = [found[1] + self._value(found[2]) for found in words if found]
        return line if new == [found.group() for found in words if found] else shlex.join(new)

    def _hide(self, path: str) -> str:
        if (host := re.match(_HOST, path)) is not None:
            path = path[host.end() :].partition("?")[0]
        return self.names.get(path) or ELSEWHERE + re.split(r"[/\\]", path.rstrip("/\\"))[-1].replace("..", "")


def hide_places(config: Mapping[str, Any]) -> dict[str, Any]:
    """Prepare a configuration for a reader: with names of files, and without their folders or the results'."""
    return Places([config]).values(strip_places(config))


def strip_places(found: Mapping[str, Any]) -> dict[str, Any]:
    """Copy the content of config.json or sweep.json without `out` and `data.root`, which are in no hash."""
    kept = {name: value for name, value in found.items() if name != "out"}
    for section, place in (("data", "root"), ("set", "data.root")):
        if isinstance(kept.get(section), dict):
            kept[section] = {name: value for name, value in kept[section].items() if name != place}
    return kept


def _compile_any(paths: Iterable[str], end: str) -> re.Pattern[str]:
    """Compile the pattern of any of some paths, the longest first; without paths it matches nothing."""
    longest = sorted(paths, key=len, reverse=True)
    return re.compile(f"{BEFORE}(?:{'|'.join(map(re.escape, longest))}){end}{AFTER}" if longest else r"(?!)")


def _as_table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
