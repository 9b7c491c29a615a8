"""`semcom train --tensorboard`: all rounds of a run for TensorBoard, whichever process trained them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from semcom.config import Resolved, run_hash
from semcom.runs.folder import Folder
from semcom.runs.result import Result
from semcom.runs.tracking import TensorBoard


class Board(TensorBoard):
    """TensorBoard of one run, which begins with the rounds that the run's folder has already.

    Args:
        folder: in which the run gets a folder of its own, since runs in one folder would mix.
        config: of the run.
    """

    def __init__(self, folder: str, config: Resolved) -> None:
        super().__init__(Path(folder) / f"{config.method}-{run_hash(config)}")
        self.config = config

    def __call__(self, line: Mapping[str, Any]) -> None:
        """Write one line of metrics.jsonl, and before the first one those of the rounds before it."""
        if self.empty and self.config.out is not None:
            for earlier in Folder(Path(self.config.out), self.config).metrics(line["round"] - 1):
                super().__call__(earlier)
        super().__call__(line)

    def complete(self, result: Result) -> None:
        """Write what came after the rounds, and all of a run that had finished."""
        last = [result.summary["finish"]] if "finish" in result.summary else []
        for line in [*(result.metrics if self.empty else []), *last]:
            super().__call__(line)
