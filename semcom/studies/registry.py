"""The experiments by name: those of installed packages and of plug-ins."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from semcom.channels.registry import Registry
from semcom.config import ConfigError, RunConfig
from semcom.packages import read_package_catalogue
from semcom.registry import find_entry
from semcom.runs.request.plugins import load_plugins, locate_plugin
from semcom.studies.experiment import Experiment, Train

EXPERIMENTS: Registry[Experiment] = Registry(
    "experiment",
    {},
    base="semcom.studies.experiment:Experiment",
    made=True,
    catalogue=partial(read_package_catalogue, "semcom.experiments"),
)
"""Experiments by name."""


def find_experiment(name: str) -> Experiment:
    """Find the experiment called `name`, or the one that a Python file registers.

    Raises:
        ConfigError: there is none, and the known ones are listed; or the file cannot be imported, or registers none or
            several.
    """
    return find_entry(EXPERIMENTS, find_declared_experiment(name) if name.endswith(".py") else name)


@dataclass(frozen=True)
class OwnTrain:
    """The training function of an experiment that a plug-in declares, for processes that have not loaded it.

    They could not import its module; so they load the plug-in and take the function from the experiment.
    """

    name: str
    """Of the experiment."""
    plugin: str
    """The Python file or module that declares it."""

    def __call__(self, config: RunConfig) -> object:
        """Carry out one run."""
        load_plugins((self.plugin,))
        train = find_entry(EXPERIMENTS, self.name).train
        assert train is not None
        return train(config)


def find_own_train(declared: Experiment) -> Train | None:
    """Find the training function of an experiment in a form that any process can load; None for `semcom.run`."""
    source = EXPERIMENTS.source(declared.name)
    known = source is not None and find_entry(EXPERIMENTS, declared.name).train is declared.train
    return OwnTrain(declared.name, source) if declared.train and source and known else declared.train


def find_declared_experiment(file: str) -> str:
    """Find the name of the experiment that a Python file registers.

    Raises:
        ConfigError: the file cannot be imported, or registers none or several.
    """
    load_plugins((file,))
    names = [name for name in EXPERIMENTS.names() if EXPERIMENTS.source(name) == locate_plugin(file)]
    if not names:
        raise ConfigError(f"experiment: {file} registers none; see docs/extending.md")
    if len(names) > 1:
        raise ConfigError(f"experiment: {file} registers {', '.join(names)}; give one: NAME --plugin {file}")
    return names[0]
