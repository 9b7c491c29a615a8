"""Texts, configurations and tables without the folders of the machine that they come from."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from semcom.config import DEPENDS, READ
from semcom.files import ELSEWHERE

BEFORE, AFTER = r"(?<![\w.~/\\-])", r"(?![\w~-]|\.\w)"
"""Where a path may begin and end in a text: a part of a component is none."""
PATH = re.compile(rf"{BEFORE}(?:~/|[A-Za-z]:\\|/)(?:[^\s'\"/,;:()\[\]]+[/\\])+([^\s'\"/,;:()\[\]]*[\w~-])?")


class Places:
    """The files that runs read, and the names that stand for them.

    Args:
        configs: as config.json holds them; what their `contents` name is a file or a module.
    """

    def __init__(self, configs: Iterable[Mapping[str, Any]]) -> None:
        names = {str(name) for config in configs for name in _as_table(config.get("contents"))}
        paths = {name.removeprefix(READ).removeprefix(DEPENDS) for name in names}
        self.names: dict[str, str] = {}
        for path in sorted(path for path in paths if os.path.isabs(path)):
            name, count = f"{ELSEWHERE}{os.path.basename(path)}", 2
            while name in self.names.values():  # files of one name in several folders
                name, count = f"{ELSEWHERE}{count}/{os.path.basename(path)}", count + 1
            self.names[path] = name
        longest = sorted(self.names, key=len, reverse=True)
        self._known = re.compile(f"{BEFORE}(?:{'|'.join(map(re.escape, longest))}){AFTER}") if longest else None

    def config(self, value: Any) -> Any:
        """Return a configuration with names in the place of paths; its hash has their digests, and stays."""
        marked = {f"{mark}{path}": f"{mark}{name}" for path, name in self.names.items() for mark in ("", READ, DEPENDS)}
        return _map_texts(value, lambda text: marked.get(text, text))

    def words(self, value: Any) -> Any:
        """Return texts, and what holds some, in which no path has a folder."""
        return _map_texts(value, self._text)

    def frame(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return a table whose texts name no folder."""
        return frame.apply(lambda column: column if pd.api.types.is_numeric_dtype(column) else column.map(self._text))

    def _text(self, text: Any) -> Any:
        if not isinstance(text, str):
            return text
        known = self._known.sub(lambda found: self.names[found.group()], text) if self._known else text
        return PATH.sub(lambda found: f"{ELSEWHERE}{found[1] or ''}", known)


def _as_table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _map_texts(value: Any, change: Any) -> Any:
    """Return plain values with all their texts changed, names of tables among them."""
    if isinstance(value, dict):
        return {change(name): _map_texts(held, change) for name, held in value.items()}
    if isinstance(value, list | tuple):
        return [_map_texts(held, change) for held in value]
    return change(value) if isinstance(value, str) else value
