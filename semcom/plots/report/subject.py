"""What a report is about: a study, the view of it that is averaged, and the configurations of its runs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from semcom.config import RunConfig
from semcom.files import CONFIG
from semcom.plots.report.names import Names
from semcom.runs.folder import read_config
from semcom.studies.analysis.study import Study


@dataclass(frozen=True)
class Subject:
    """A study, or the part of it that is shown."""

    study: Study
    folder: Path
    """Its folder."""
    view: str | None = None
    """Name of the view that is averaged and compared (None: the headline of each run)."""

    @cached_property
    def names(self) -> Names:
        """The names of the study, which make texts that may hold paths fit to be shown."""
        return Names(self.folder)

    @cached_property
    def configs(self) -> dict[str, RunConfig]:
        """Hash -> stored configuration of each run that has one."""
        known = [run for run in self.study.stored if (run.folder / CONFIG).is_file()]
        return {run.hash: read_config(run.folder, "report") for run in known}
