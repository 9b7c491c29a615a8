"""The subject of a report: a study, and the view of it that is averaged."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from semcom.plots.report.names import Names
from semcom.studies.analysis.study import Study


@dataclass(frozen=True)
class Subject:
    """A study, or the reported part of it."""

    study: Study
    folder: Path
    """Its folder."""
    view: str | None = None
    """Name of the view that is averaged and compared (None: the headline of each run)."""

    @cached_property
    def names(self) -> Names:
        """The names of the study, which remove local paths from texts."""
        return Names(self.folder)
