"""The plan of a sweep: its runs, their folders, and the content of sweep.json. Nothing is written or trained here."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import semcom
from semcom.config import NOT_IDENTITY, ConfigError, Resolved, RunConfig, run_hash
from semcom.data.registry import AUGMENTATIONS
from semcom.engine.air.schedulers import SCHEDULERS
from semcom.files import resolve_file
from semcom.models.registry import ENCODERS, HEADS
from semcom.runs.request.inputs import digest_training
from semcom.runs.request.plugins import load_plugins, locate_plugin
from semcom.runs.request.section_options import NAMING
from semcom.studies.analysis import means
from semcom.studies.cost import estimate_run_cost
from semcom.studies.experiment import Experiment
from semcom.studies.grid import TEST_SNR, Axis, parse_axis, read_grid_field, set_fields
from semcom.studies.registry import find_experiment
from semcom.studies.results import table
from semcom.studies.results.failures import format_run_label, format_run_labels
from semcom.studies.results.lock import read_sweep_record, refuse_another_sweep
from semcom.studies.results.run import RATIO
from semcom.studies.sweep.request import OWN, Request, apply_request, list_joining_methods, make_experiment_of_request
from semcom.tasks.registry import TASKS

LOG = logging.getLogger(__name__)
VARIANT = "variant"
"""The axis of variants, as sweep.json has it."""


@dataclass(frozen=True)
class Plan:
    """A sweep before it begins."""

    experiment: Experiment
    """The experiment with the one scale, as it was asked for."""
    scale: str
    """Name of the scale."""
    folder: Path
    """Folder of the results."""
    record: Mapping[str, Any]
    """Content of sweep.json: experiment, scale and command; whether its runs are trained by a function of their own;
    plugins, settings and axes; what was chosen for variants; hash -> variant. The command is the call, or a line for
    each of several."""
    runs: Mapping[str, Resolved]
    """Hash -> resolved configuration with its folder in `out`; the longest runs first."""
    held: Mapping[str, Any] | None
    """Content of the folder's sweep.json, if there was one: of the same sweep, or of a part of it."""

    @property
    def origin(self) -> dict[str, str]:
        """Columns that all rows of the table share."""
        return {name: self.record[name] for name in ("experiment", "scale", "command")}

    @property
    def variants(self) -> Mapping[str, str]:
        """Hash -> variant, in the order of the grid."""
        return self.record["variants"]

    @cached_property
    def labels(self) -> dict[str, str]:
        """Hash -> label of the run."""
        return format_run_labels(
            {
                key: (self.variants[key], _read_varied_fields(self.experiment, self.scale, config))
                for key, config in self.runs.items()
            }
        )

    def row(self, key: str, found: Mapping[str, Any] | None, error: str | None) -> dict[str, Any]:
        """Build the row of a run, see `make_table_row`."""
        return table.make_table_row(self.runs[key], {**self.origin, "variant": self.variants[key]}, found, error)


def make_plan(
    name: str | None,
    scale: str | None = None,
    request: Request | None = None,
    plugins: Sequence[str] = (),
    out: Path | str | None = None,
    declared: Experiment | None = None,
) -> Plan:
    """Plan a sweep; if its folder holds a part of it already, both together.

    Args:
        name: an experiment of `semcom.studies.registry`, or the Python file that registers it (None: a study without a
            declaration).
        scale: one of the experiment's scales (None: the first).
        request: the changes to the declaration.
        plugins: Python files or modules that all runs load.
        out: folder of the results (None: results/<name>-<scale>).
        declared: the experiment, if it differs from the declaration under its name.

    Raises:
        ConfigError: the request is wrong, or the folder is another sweep's.
    """
    load_plugins(plugins)
    request = request or Request()
    if declared is None:
        declared, scale, request = declare_features(name, scale, request, out)
    scale = declared.scale(scale)
    chosen = apply_request(declared, scale, request)  # what is wrong with it shows before what is with the folder
    folder = locate_results(declared, scale, out)
    held = read_sweep_record(folder)
    loaded = (*plugins, *_find_own_plugin(name, declared))

    def describe(request: Request) -> dict[str, Any]:
        record = {
            "experiment": declared.name,
            "scale": scale,
            "command": request.words,
            "own_training": declared.train is not None,
            "plugins": list(loaded),
            "set": {key: value for key, value in request.set.items() if key not in NOT_IDENTITY},
            "own": request.own,
            "axes": _list_axes(chosen, scale, request),
        }
        return json.loads(json.dumps(record, default=repr))  # what JSON cannot hold is no field's value, see `resolve`

    record, whole = describe(request), declared
    if held is not None:
        asked, request = request, _merge_calls(held, record, request, folder)
        if name is None:  # the study of both calls declares the methods of both
            whole = dataclasses.replace(declared, variants=tuple(request.methods or ()))
        parts = (asked.methods, held["axes"][VARIANT], request.methods)
        if record["set"] and len({bool(list_joining_methods(whole, names)) for names in parts}) > 1:
            raise refuse_another_sweep(folder, held)  # what is set is for those that join alone, where any do
        chosen = apply_request(whole, scale, request)
        record = describe(request)
    joining = list_joining_methods(whole, request.methods)
    code = digest_training(declared.train, loaded)
    return _lay_out_plan(chosen, scale, folder, record, held, loaded, joining, code)


def locate_results(declared: Experiment, scale: str, out: Path | str | None) -> Path:
    """Name the folder of a sweep: `out`, or results/<name>-<scale>."""
    return resolve_file(out) if out is not None else Path("results") / f"{declared.name}-{scale}"


def find_declaration(name: str | None, scale: str | None, request: Request, out: object) -> tuple[Experiment, str]:
    """Find the experiment and its scale before the request."""
    if name is not None:
        found = find_experiment(name)
        return found, found.scale(scale)
    if scale is not None:
        raise ConfigError(f"scale: {scale!r} is not for a study of your own, which has none; name an experiment")
    found = make_experiment_of_request(request)
    if out is None:
        raise ConfigError("out: none is given; a study of your own needs a folder")
    return found, OWN


def declare_features(
    name: str | None, scale: str | None, request: Request, out: Path | str | None
) -> tuple[Experiment, str, Request]:
    """Find as `find_declaration` does, and return the request with numbers of features for ratios; errors of both."""
    declared, found = find_declaration(name, scale, request, out)
    if all(RATIO not in axis.fields for axis in request.axes):
        return declared, found, request
    request = _replace_ratios(request, apply_request(declared, found, request).grid(found))
    return *find_declaration(name, scale, request, out), request


def _replace_ratios(request: Request, configs: Sequence[RunConfig]) -> Request:
    """Replace the bandwidth ratios of a request by numbers of features.

    Raises:
        ConfigError: a ratio is wrong, or means different numbers in runs with different images.
    """
    found: dict[Any, dict[str, int]] = {}
    for config in configs:
        of_ratio = found.setdefault(config.model.bandwidth_ratio, {})
        if repr(config.data) not in of_ratio:
            of_ratio[repr(config.data)] = semcom.resolve(config).model.features
    features: dict[Any, int] = {}
    for ratio, numbers in found.items():
        features[ratio], *others = sorted(set(numbers.values()))
        if others:
            several = " or ".join(map(str, (features[ratio], *others)))
            raise ConfigError(f"{RATIO}: {ratio} is {several} features; vary those")

    def count(axis: Axis) -> Axis:
        if RATIO not in axis.fields:
            return axis
        at = axis.fields.index(RATIO)
        names = (*axis.fields[:at], "model.features", *axis.fields[at + 1 :])
        values = [(*value[:at], features[value[at]], *value[at + 1 :]) for value in axis.values]
        return Axis(names, tuple(values))

    return dataclasses.replace(request, axes=tuple(map(count, request.axes)))


def _find_own_plugin(name: str | None, declared: Experiment) -> tuple[str, ...]:
    """Find the file that declares the experiment, if runs need more of it than the experiment."""
    if name is None or not name.endswith(".py"):
        return ()
    registries = (*NAMING.values(), AUGMENTATIONS, ENCODERS, HEADS, SCHEDULERS, TASKS)
    used = any(r.source(entry) == locate_plugin(name) for r in registries for entry in r.names())
    return (name,) if used or declared.train is not None else ()


def _list_axes(chosen: Experiment, scale: str, request: Request) -> dict[str, list[Any]]:
    """List the values of each axis by its fields, the variants first; one whose only value was set is none."""
    variants = {VARIANT: [variant.name for variant in chosen.compared()]}
    axes = [axis for axis in chosen.axes(scale) if axis.fields[0] not in request.set]
    return variants | {",".join(axis.fields): list(axis.entries()) for axis in axes}


def _read_varied_fields(chosen: Experiment, scale: str, config: Resolved) -> dict[str, Any]:
    """Read the values that the fields of the axes have in a run, the seed last."""
    names = [name for axis in chosen.axes(scale) for name in axis.fields if name != "seed"]
    return {name: read_grid_field(config, name) for name in (*names, "seed")}


def _merge_calls(held: dict[str, Any], record: Mapping[str, Any], request: Request, folder: Path) -> Request:
    """Merge a request with the sweep of its folder.

    That is a grid where one holds the other, or where they differ in one axis alone. Its words are those of the calls
    that it takes.

    Raises:
        ConfigError: it is none, or they differ in more than the values of their axes.
    """
    there, here = held.get("axes", {}), record["axes"]
    same = all(held.get(name) == record[name] for name in ("experiment", "scale", "plugins", "set"))
    if not same or there.keys() != here.keys():
        raise refuse_another_sweep(folder, held)
    own = held.get("own")  # older versions have stored none
    if own is not None:  # what was chosen for a variant before is not chosen anew, nor forgotten
        if any(own.get(name, {}) != record["own"].get(name, {}) for name in here[VARIANT] if name in there[VARIANT]):
            raise refuse_another_sweep(folder, held)
        request = dataclasses.replace(request, own={**request.own, **own})
    more = [name for name in here if any(value not in there[name] for value in here[name])]
    fewer = [name for name in here if any(value not in here[name] for value in there[name])]
    grid = not more or not fewer or (more == fewer and len(more) == 1)
    if not grid or TEST_SNR in (*more, *fewer):  # other test SNRs are other runs
        raise refuse_another_sweep(folder, held)
    if not more:
        request = dataclasses.replace(request, words=held["command"])
    elif fewer:
        request = dataclasses.replace(request, words=f"{held['command']}\n{request.words}")
    if not fewer:
        return request
    union = {name: [*there[name], *(value for value in here[name] if value not in there[name])] for name in there}
    names = tuple(union.pop(VARIANT))
    axes = (parse_axis(tuple(k.split(",")) if "," in k else k, values, "the sweep") for k, values in union.items())
    return dataclasses.replace(request, methods=names, axes=tuple(axes))


def _lay_out_plan(
    chosen: Experiment,
    scale: str,
    folder: Path,
    record: dict[str, Any],
    held: Mapping[str, Any] | None,
    plugins: Sequence[str],
    joining: Sequence[str],
    code: Mapping[str, str],
) -> Plan:
    """Resolve the runs, and lay them out in the folder.

    Where methods of plug-ins join an experiment, the runs of its own variants do without these, as anywhere else.

    Raises:
        ConfigError: a configuration is wrong, two are the same, or two would be averaged as seeds of one run though
            they differ in a field that the table does not show.
    """
    runs: dict[str, Resolved] = {}
    variants: dict[str, str] = {}
    for run in chosen.runs(scale):
        loaded = plugins if not joining or run.variant in joining else ()
        wanted = dataclasses.replace(run.config, plugins=tuple(dict.fromkeys((*run.config.plugins, *loaded))))
        config = semcom.resolve(wanted)
        config = dataclasses.replace(config, contents={**config.contents, **code})
        key = run_hash(config)
        if key in runs:
            one = format_run_label(run.variant, _read_varied_fields(chosen, scale, config), key)
            raise ConfigError(f"{chosen.name}: two runs have the same configuration: {one}")
        runs[key], variants[key] = config, run.variant
    rows = [table.make_table_row(config, {"variant": variants[key]}, None, None) for key, config in runs.items()]
    means.check_seeds_alone(table.make_table(rows), [*chosen.columns(scale), *chosen.rows(scale)])
    gone = [key for key in (held or {}).get("variants", {}) if key not in runs]
    if gone:
        LOG.warning("%s: %d of its runs are of an earlier declaration; they are left alone", folder, len(gone))
    # The longest first: a long run that began last would keep one worker busy while the others are idle.
    order = sorted(runs, key=lambda key: estimate_run_cost(runs[key]), reverse=True)
    placed = {key: set_fields(runs[key], {"out": str((folder / key).absolute())}) for key in order}
    return Plan(chosen, scale, folder, record | {"variants": variants}, placed, held)
