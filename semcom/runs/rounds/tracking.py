"""Trackers of a run, which get the lines of `on_round` as plain scalars: TensorBoard, W&B and MLflow by name."""

from __future__ import annotations

import contextlib
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from semcom.channels.registry import Registry
from semcom.config import ConfigError, Resolved, run_hash, to_dict
from semcom.config.identity import flatten_table
from semcom.files import resolve_file, resolve_folder
from semcom.packages import check_extra_package
from semcom.registry import find_entry
from semcom.runs.folder.lines import read_metrics
from semcom.runs.result.places import hide_places

if TYPE_CHECKING:
    from semcom.runs.result.result import Result


def scalars(line: Mapping[str, Any]) -> dict[str, float]:
    """Flatten the numbers of a line of metrics.jsonl, as trackers take them.

    Nested names are joined by slashes: `loss`, `personal/accuracy`, `personal/at/10`. Lists per client and per class,
    and the round, which is the clock, are left out.

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


class Tracker(ABC):
    """A tracker of one run; `@TRACKERS.register("name")` adds one.

    It is made before the first round is logged: a wrong request leaves nothing. Rounds that an earlier attempt at the
    run has logged under the same name are logged again, from the first one on.

    Attributes:
        package: the required package.
        usual: its default place: a folder, a project, an experiment.

    Args:
        place: place of the run.
        config: of the run.
    """

    package: ClassVar[str] = ""
    usual: ClassVar[str] = "semcom"

    @abstractmethod
    def __init__(self, place: str, config: Resolved) -> None: ...

    @classmethod
    def check(cls, place: str) -> None:
        """Check a place before any work: it may be anything. Raises ConfigError."""
        del place

    @abstractmethod
    def log(self, values: Mapping[str, float], step: int) -> None:
        """Log the numbers of a round, by the names of `scalars`."""

    def close(self) -> None:  # noqa: B027 - a tracker may have nothing to close
        """End the run, whether it has finished or failed."""


def name_tracked_run(config: Resolved) -> str:
    """Name a run for trackers: its method and hash."""
    return f"{config.method}-{run_hash(config)}"


class TensorBoard(Tracker):
    """A folder METHOD-HASH for each run in a folder for TensorBoard."""

    package, usual = "tensorboard", "boards"

    def __init__(self, place: str, config: Resolved) -> None:
        from torch.utils.tensorboard import SummaryWriter

        folder = resolve_file(place) / name_tracked_run(config)
        self.writer = SummaryWriter(str(folder), purge_step=1)  # hides what an earlier attempt has written

    @classmethod
    def check(cls, place: str) -> None:
        """Check that the place may be a folder."""
        resolve_folder(place, "track")

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Write the numbers of a round."""
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)
        self.writer.flush()

    def close(self) -> None:
        """Close the file."""
        self.writer.close()


class WeightsAndBiases(Tracker):
    """A run METHOD-HASH in a project of Weights & Biases."""

    package = "wandb"

    def __init__(self, place: str, config: Resolved) -> None:
        import wandb

        name, told = name_tracked_run(config), hide_places(to_dict(config))
        # What it would record by itself tells folders: the program, its arguments, git's root, what is printed.
        settings = wandb.Settings(console="off", disable_code=True, disable_git=True, x_disable_meta=True)
        self.run = wandb.init(project=place, name=name, id=name, resume="allow", config=told, settings=settings)

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Log the numbers of a round."""
        self.run.log(dict(values), step=step)

    def close(self) -> None:
        """End the run."""
        self.run.finish()


_REFUSED = re.compile(r"[^\w\-. :/]")
"""Characters that MLflow takes in no name of a parameter, as those of a plug-in's file may be."""


class MLflow(Tracker):
    """A run METHOD-HASH in an experiment of MLflow, with the configuration as parameters."""

    package = "mlflow"

    def __init__(self, place: str, config: Resolved) -> None:
        import mlflow

        self.mlflow = mlflow
        mlflow.set_experiment(place)
        mlflow.start_run(run_name=name_tracked_run(config), tags={"mlflow.source.name": "semcom"})  # not its path
        fields = list(flatten_table(hide_places(to_dict(config))).items())
        for i in range(0, len(fields), 100):  # more at once are refused
            mlflow.log_params({_REFUSED.sub("_", name): str(value)[:500] for name, value in fields[i : i + 100]})

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Log the numbers of a round."""
        self.mlflow.log_metrics(dict(values), step=step)

    def close(self) -> None:
        """End the run."""
        self.mlflow.end_run()


TRACKERS: Registry[type[Tracker]] = Registry(
    "tracker",
    {
        "tensorboard": "semcom.runs.rounds.tracking:TensorBoard",
        "wandb": "semcom.runs.rounds.tracking:WeightsAndBiases",
        "mlflow": "semcom.runs.rounds.tracking:MLflow",
    },
    base="semcom.runs.rounds.tracking:Tracker",
)
"""Name -> subclass of `Tracker`."""


def parse_trackers(asked: Sequence[str] | str) -> dict[str, str]:
    """Parse the places of trackers by name from words NAME or NAME=PLACE.

    Raises:
        ConfigError: a name is unknown or given twice; its package is not installed, or the place is wrong.
    """
    found = dict[str, str]()
    for word in [asked] if isinstance(asked, str) else asked:
        name, _, place = word.partition("=")
        kind = find_entry(TRACKERS, name, "track")
        if kind.package:
            check_extra_package(f"track: {name!r}", kind.package, name)
        if name in found:
            raise ConfigError(f"track: {name!r} is given twice, with {found[name]!r} and {place or kind.usual!r}")
        kind.check(place or kind.usual)
        found[name] = place or kind.usual
    return found


class Tracking(contextlib.ExitStack):
    """The trackers of a run, all of whose rounds they get, whichever process trained them.

    Args:
        asked: words NAME or NAME=PLACE.
        config: of the run.

    Raises:
        ConfigError: see `parse_trackers`.
    """

    def __init__(self, asked: Sequence[str] | str, config: Resolved) -> None:
        super().__init__()
        self.places, self.config = parse_trackers(asked), config
        self.trackers: list[Tracker] = []

    def __call__(self, line: Mapping[str, Any]) -> None:
        """Log one line of metrics.jsonl, and before the first one those of the rounds before it."""
        earlier = []
        if not self.trackers:
            if self.config.out is not None:
                earlier = read_metrics(Path(self.config.out), line["round"] - 1)
            for name, place in self.places.items():
                self.trackers.append(TRACKERS.get(name)(place, self.config))
                self.callback(self.trackers[-1].close)
        for each in (*earlier, line):
            for tracker in self.trackers:
                tracker.log(scalars(each), each["round"])

    def complete(self, result: Result) -> None:
        """Log the stages after the rounds, and all of a run that had finished."""
        last = [result.summary["finish"]] if "finish" in result.summary else []
        for line in [*([] if self.trackers else result.metrics), *last] if self.places else []:
            self(line)
