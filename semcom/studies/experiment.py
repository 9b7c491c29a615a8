"""An experiment: the variants of methods that it compares, and one grid of runs per scale."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import semcom
from semcom.config import ConfigError, RunConfig
from semcom.studies.cost import count_cost_in_samples
from semcom.studies.grid import TEST_SNR, Axis, Grid, Run, Variant, read_grid_field

SCALES = ("smoke", "small", "paper")
"""The scales of this project's experiments, the cheapest first: digits in seconds; real images, two cores, an hour or
two; the paper's own numbers. An experiment may have others."""

Train = Callable[[RunConfig], object]
"""Function that carries out one run and leaves summary.json in its `out`, see `semcom.runs.folder.summary`."""


@dataclass(frozen=True)
class Outline:
    """The size of one scale of an experiment."""

    runs: int
    """Number of runs of the scale."""
    axes: tuple[Axis, ...]
    """What varies, the seed among them."""
    samples: float | None
    """Training samples that pass through all runs' encoders, see `semcom.studies.cost`; None: not known."""


@dataclass(frozen=True)
class Experiment:
    """A named comparison of methods; the plain declaration is all that a new experiment needs."""

    name: str
    """Its name on the command line and in `semcom.studies.registry`."""
    title: str
    """One line: what is compared."""
    paper: str
    """The paper item that it reproduces, or "none"."""
    variants: tuple[str | Variant, ...]
    """What is compared, in the order of tables and legends: names of methods, or methods with settings of their own."""
    scales: Mapping[str, Grid] = field(default_factory=dict)
    """Name of a scale (one of `SCALES`, or any other) -> its grid."""
    axis: str = "channel.snr_db"
    """The field that makes the columns of the table and the abscissa of figures. Other fields that vary, but for the
    seed, make rows."""
    figures: tuple[str, ...] = ()
    """The figures (of `semcom.plots.registry`) that are drawn after a sweep."""
    reduced: Mapping[str, Mapping[str, Mapping[Any, Any]]] = field(default_factory=dict)
    """Scale -> field -> value in its runs -> the paper's value that it stands for, where the scale cannot afford that
    one. Claims about the paper's value are then held against these runs, and the scorecard says so."""
    train: Train | None = None
    """Function that carries out a run and leaves its summary by `semcom.runs.folder.summary.write_summary` (None:
    `semcom.run`)."""

    def compared(self) -> tuple[Variant, ...]:
        """List the variants; the name of a method stands for a variant without settings.

        Raises:
            ConfigError: there is none, two have one name, or it is none that `--methods` can take.
        """
        given = self.variants
        if isinstance(given, str) or not given or not all(isinstance(v, str | Variant) for v in given):
            raise ConfigError(f"variants: {self.name} has {given!r}; give a tuple of methods' names or Variants")
        found = tuple(Variant(v, v) if isinstance(v, str) else v for v in given)
        names = [variant.name for variant in found]
        wrong = [name for name in names if not name.strip() or "," in name or names.count(name) > 1]
        if wrong:
            raise ConfigError(f"variants: {wrong[0]!r} is no name of its own, without commas, in {self.name}")
        return found

    def offered(self) -> list[str]:
        """List the scales: those of `SCALES`, the cheapest first, then others in the order of their declaration.

        Raises:
            ConfigError: there is none.
        """
        if not self.scales:
            raise ConfigError(f"scales: {self.name} has none; declare one, such as scales={{'smoke': Grid(...)}}")
        return [*(name for name in SCALES if name in self.scales), *(n for n in self.scales if n not in SCALES)]

    def scale(self, name: str | None = None) -> str:
        """Check the name of a scale and return it; None becomes the first of `offered`.

        Raises:
            ConfigError: the experiment has no such scale, or none at all.
        """
        offered = self.offered()
        if name is None:
            return offered[0]
        if name not in offered:
            raise ConfigError(f"scale: {self.name} has no scale {name!r}; it has {', '.join(offered)}")
        return name

    def runs(self, scale: str) -> list[Run]:
        """Build the runs of a scale, variant by variant, then in the order of the varied values.

        Raises:
            ConfigError: a scale or a field that does not exist, or an axis without values.
        """
        return self.scales[self.scale(scale)].runs(self.compared(), self.name)

    def grid(self, scale: str) -> list[RunConfig]:
        """List the configurations of `runs`."""
        return [run.config for run in self.runs(scale)]

    def axes(self, scale: str) -> tuple[Axis, ...]:
        """List the axes of a scale beside the variants. Raises ConfigError for an axis without values."""
        return self.scales[self.scale(scale)].axes(self.name)

    def columns(self, scale: str) -> tuple[str, ...]:
        """List the fields that make the columns of the table: `axis`, and those that are joint with it."""
        joint = next((axis for axis in self.axes(scale) if self.axis in axis.fields), None)
        return (self.axis,) if joint is None else tuple(n for n in joint.fields if n == self.axis or _varies(joint, n))

    def rows(self, scale: str) -> tuple[str, ...]:
        """List the fields that make rows of the table beside the variant: those of the other axes.

        The test SNR is one of them where some runs are tested at several, be it an axis of the declaration or not.
        """
        done = (*self.columns(scale), "seed")
        rows = [n for axis in self.axes(scale) for n in axis.fields if n not in done and _varies(axis, n)]
        several = any("," in str(run.config.channel.test_snr_db) for run in self.runs(scale))
        return (*rows, *([TEST_SNR] if several and TEST_SNR not in (*done, *rows) else []))

    def values(self, scale: str, name: str) -> list[Any]:
        """List the values of a field in the runs of a scale."""
        axis = next((axis for axis in self.axes(scale) if name in axis.fields), None)
        base = self.scales[self.scale(scale)].base
        return [read_grid_field(base, name)] if axis is None else [point[name] for point in axis.points()]

    def outline(self, scale: str | None = None) -> Outline:
        """Count the runs of a scale (None: the first), its axes and its cost.

        Nothing is loaded: the cost follows from the schedule, the clients and the sizes of the known datasets, and from
        the method only if its own preset holds. Of runs that are equal in these one is looked at.

        Raises:
            ConfigError: the experiment has no such scale, or a configuration that is looked at is wrong.
        """
        chosen, found = self.scale(scale), dict[str, float | None]()
        whole = self.scales[chosen]
        seeds = next((len(axis.values) for axis in whole.axes(self.name) if axis.fields == ("seed",)), 1)
        one = replace(whole, vary={key: values[:1] if key == "seed" else values for key, values in whole.vary.items()})
        costs = []
        for run in one.runs(self.compared(), self.name):
            of = run.config
            method = of.method if of.train.preset == "paper" else ""
            key = repr(
                (method, replace(of.train, lr=None, optimizer=None), of.data, of.partition, of.clients, of.sharers)
            )
            if key not in found:
                found[key] = count_cost_in_samples(semcom.resolve(of))
            costs.append(found[key])
        known = [cost for cost in costs if cost is not None]
        total = seeds * sum(known) if len(known) == len(costs) else None
        return Outline(seeds * len(costs), self.axes(chosen), total)


def each_scale(make: Callable[[str], Grid], scales: Sequence[str] = SCALES) -> dict[str, Grid]:
    """Make the grid of each scale by a function of its name."""
    return {scale: make(scale) for scale in scales}


def _varies(axis: Axis, name: str) -> bool:
    """Check whether a field of an axis has several values: one of several joint fields may be constant."""
    return len({repr(point[name]) for point in axis.points()}) > 1
