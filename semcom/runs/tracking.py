"""Trackers of a run: what `on_round` is called with, as plain scalars, and a ready callback for TensorBoard."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any

from semcom.config import ConfigError
from semcom.files import refuse_file, resolve_file


def scalars(line: Mapping[str, Any]) -> dict[str, float]:
    """Flatten the numbers of a line of metrics.jsonl, as trackers take them.

    Nested names are joined by slashes: `loss`, `personal/accuracy`, `personal/at/10`. What is not one number (the lists
    per client and per class) and the round, which is the clock, are left out.

    Example:
        >>> import semcom
        >>> semcom.scalars({"round": 1, "loss": 0.5, "views": {"personal": {"accuracy": 0.6, "clients": [0.5, 0.7]}}})
        {'loss': 0.5, 'personal/accuracy': 0.6}
    """
    return {name: value for name, value in _flatten_line(line).items() if name != "round"}


def _flatten_line(values: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    found: dict[str, float] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= _flatten_line(value, prefix if name == "views" else f"{prefix}{name}/")
        elif isinstance(value, int | float):
            found[f"{prefix}{name}"] = value
    return found


class TensorBoard:
    """Callback for `semcom.run(config, on_round=...)` that writes each round for TensorBoard, with the round as step.

    A context that closes its file; `semcom train METHOD --tensorboard FOLDER` uses it.

    Args:
        folder: of one run's event files. What an earlier attempt wrote there is hidden from the first round on that is
            written now.

    Raises:
        ConfigError: the package is not installed, or `folder` is a file.

    Example:
        >>> import semcom
        >>> small = semcom.RunConfig("fedavg", clients=2, train=semcom.TrainConfig(rounds=1))
        >>> with semcom.TensorBoard("board/one") as board:
        ...     result = semcom.run(small, on_round=board)
        >>> board.empty
        False
    """

    def __init__(self, folder: Path | str) -> None:
        if find_spec("tensorboard") is None:
            raise ConfigError("tensorboard: the package is not installed; pip install 'semcom[tensorboard]'")
        self.folder = resolve_file(folder)
        refuse_file(self.folder, "tensorboard")
        self._writer: Any = None

    @property
    def empty(self) -> bool:
        """True as long as nothing was written."""
        return self._writer is None

    def __call__(self, line: Mapping[str, Any]) -> None:
        """Write one line of metrics.jsonl, or `summary["finish"]`."""
        if self._writer is None:  # not before the first round: a wrong request leaves nothing
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(self.folder), purge_step=line["round"])
        for name, value in scalars(line).items():
            self._writer.add_scalar(name, value, line["round"])
        self._writer.flush()

    def __enter__(self) -> TensorBoard:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._writer is not None:
            self._writer.close()
