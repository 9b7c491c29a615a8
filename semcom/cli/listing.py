"""Text that `semcom list WHAT [NAME]` prints: the entries of a registry, or all that one of them takes."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import os
import typing
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from semcom.channels.registry import Registry
from semcom.cli.fields import explain_field, read_field_docstrings, show_field_value
from semcom.cli.text import hang_text
from semcom.config import FINISH, DataConfig
from semcom.config.checks import describe_type
from semcom.config.options import spell_option
from semcom.data.dataset import SIDE
from semcom.declarations import describe_entry, read_declared_fields, read_declared_title
from semcom.methods.registry import METHODS
from semcom.models.registry import build_encoder, own_features
from semcom.packages import find_installed_packages
from semcom.registry import find_entry
from semcom.runs.request.section_options import NAMING, find_options_class

if typing.TYPE_CHECKING:
    from semcom.methods.base import Method
    from semcom.plots.base import Kind, NamedFigure
    from semcom.studies.experiment import Experiment, Outline
    from semcom.studies.grid import Variant

COST = "cost: samples that pass through the encoder in training, all runs together."
"""Below the scales of an experiment."""
LISTS: Mapping[str, str] = {
    "methods": "semcom.methods.registry:METHODS",
    "channels": "semcom.channels:LINKS",
    "partitions": "semcom.data.registry:PARTITIONS",
    "datasets": "semcom.data.registry:DATASETS",
    "augmentations": "semcom.data.registry:AUGMENTATIONS",
    "encoders": "semcom.models.registry:ENCODERS",
    "heads": "semcom.models.registry:HEADS",
    "tasks": "semcom.tasks.registry:TASKS",
    "metrics": "semcom.tasks.registry:METRICS",
    "schedulers": "semcom.engine.air.schedulers:SCHEDULERS",
    "accesses": "semcom.engine.air.registry:ACCESS",
    "compressions": "semcom.engine.air.registry:COMPRESSIONS",
    "privacies": "semcom.engine.air.registry:PRIVACY",
    "rates": "semcom.engine.air.registry:RATES",
    "places": "semcom.engine.air.registry:PLACES",
    "path-losses": "semcom.channels:PATH_LOSSES",
    "speeds": "semcom.engine.air.registry:SPEEDS",
    "experiments": "semcom.studies.registry:EXPERIMENTS",
    "figures": "semcom.plots.registry:FIGURES",
    "kinds": "semcom.plots.kinds:KINDS",
}
"""Name of a list -> its registry."""
LEGEND = "theta: encoder; phi: head; w: both. `semcom list methods NAME` tells more."
"""Below the overview of methods: the papers' symbols."""
FEATURES, CLASSES, CHANNELS = 64, 10, 3
"""Features, classes and channels for which the parameters of encoders and heads are counted."""
IMAGES = f"images of {SIDE}x{SIDE} pixels and {CHANNELS} channels"


def list_overview(what: str) -> str:
    """Format the name and title of each entry, of methods also their parameters, of experiments their sizes."""
    if what == "methods":
        return _list_methods()
    if what == "experiments":
        return _list_experiments()
    registry = find_listed(what)
    titles = {**{name: _list_title(registry, name) for name in registry.names()}, **_list_beside(what)}
    width = max(map(len, titles)) + 2
    return "\n".join(line for name, title in titles.items() for line in hang_text(f"{name:<{width}}", title))


def list_details(what: str, name: str) -> str:
    """Describe one entry of a registry, or a dataset in the user's own files.

    Raises ConfigError for an unknown name.
    """
    if what == "datasets" and name not in find_listed(what) and os.path.exists(os.path.expanduser(name)):
        return _list_files(name)
    if name in _list_beside(what):
        return "\n".join(_list_head(name, _list_beside(what)[name]))
    registry = find_listed(what)
    entry = find_entry(registry, name)
    field = next((field for field, named in NAMING.items() if named is registry), None)
    describe = _DETAILS.get(what) or (partial(_list_owner, field) if field else _list_documented)
    return "\n".join(describe(name, entry))


def find_listed(what: str) -> Registry[Any]:
    """Find the registry of a list."""
    module, attribute = LISTS[what].split(":")
    return getattr(importlib.import_module(module), attribute)


def _list_beside(what: str) -> Mapping[str, str]:
    """List the entries, with titles, that a list has beside its registry: a last stage has more kinds than heads."""
    if what != "heads":
        return {}
    from semcom.methods.parts.kinds import KINDS

    return KINDS


def _list_title(registry: Registry[Any], name: str) -> str:
    place = registry.place(name)
    if place is not None and (title := read_declared_title(place)):
        return title
    entry = registry.get(name)
    text = getattr(entry, "title", None) or inspect.getdoc(entry) or ""
    if dataclasses.is_dataclass(entry) and not isinstance(entry, type) and not hasattr(entry, "title"):
        text = f"from the results of {getattr(entry, 'experiment', '')}"
    return text.partition("\n")[0]


# -- methods ---------------------------------------------------------------------------------------------------------


def _list_methods() -> str:
    """Describe each method: citation, shared, personal and sent parts, hyperparameters with their defaults."""
    margin = max(map(len, METHODS.names())) + 2
    lines: list[str] = []
    for name in METHODS.names():
        place = METHODS.place(name)
        method: Any = describe_entry(METHODS, name)
        traits = "; ".join(f"{key}: {text}" for key, text in _read_traits(method).items())
        fields = _read_defaults(method.Hyper) if place is None else read_declared_fields(place, "Hyper")
        defaults = "; ".join(f"{key}={explain_field(*field)[1]}" for key, field in fields.items())
        lines += hang_text(f"{name:<{margin}}", _read_paper(method))
        lines += [line for text in (traits, defaults) if text for line in hang_text(" " * margin, text)]
    return "\n".join([*lines, "", *hang_text("", LEGEND)])


def _read_defaults(hyper: type) -> dict[str, tuple[Any, str]]:
    """Read the default of each hyperparameter and its docstring."""
    start, known = hyper(), read_field_docstrings(hyper)
    return {f.name: (getattr(start, f.name), known.get(f.name, "")) for f in dataclasses.fields(start)}


def _list_method(name: str, method: type[Method]) -> list[str]:
    """Describe a method: its traits, the paper's setting, the meaning and range of each hyperparameter."""
    preset = ", ".join(f"{key} {show_field_value(value)}" for key, value in method.preset.items())
    facts = {"paper": _read_paper(method), **_read_traits(method), "preset": preset or "none: the common defaults"}
    if method.finishing is not None:
        last = {**FINISH, **method.finishing}
        facts["finish"] = (
            ", ".join(f"{key} {show_field_value(value)}" for key, value in last.items()) + " (--finish.NAME)"
        )
    options = _list_options(method.Hyper, "hyper", "hyperparameters")
    _, *paragraphs = (inspect.getdoc(inspect.getmodule(method)) or "").split("\n\n")
    head = _list_head(name, inspect.cleandoc(method.__doc__ or ""))
    return [*head, *_space_out_paragraphs(paragraphs), "", *_align_facts(facts), "", *options]


def _read_paper(method: type[Method]) -> str:
    """Read the citation; a plug-in may have none."""
    return getattr(method, "paper", "") or "-"


def _read_traits(method: type[Method]) -> dict[str, str]:
    """Read what clients share, what each keeps, and what crosses the air."""
    return {"shared": method.shares or "-", "personal": method.personal or "-", "sent": method.sends or "-"}


# -- what has options ------------------------------------------------------------------------------------------------


def _list_owner(field: str, name: str, entry: type) -> list[str]:
    """Describe an owner of options, which a field names."""
    options = _list_options(find_options_class(field, name), field.partition(".")[0], "options")
    return [*_list_documented(name, entry), "", *options]


def _list_options(cls: type, section: str, title: str) -> list[str]:
    """Format two lines for each option: its default and range, and its meaning."""
    known, hints, start = read_field_docstrings(cls), typing.get_type_hints(cls), cls()
    if not dataclasses.fields(start):
        return [f"no {title}"]
    flag = f"--{section}." if section else "--"
    lines = [f"{title} ({flag}NAME) and their defaults:"]
    for field in dataclasses.fields(start):
        text, default = explain_field(getattr(start, field.name), known.get(field.name, ""))
        lines += hang_text("  ", f"{spell_option(field.name)} = {default} ({describe_type(hints[field.name])})")
        lines += hang_text("      ", text) if text else []
    return lines


def _list_files(path: str) -> str:
    """Describe the content of an .npz file or an image folder."""
    from semcom.data.load import load_dataset

    found = load_dataset(DataConfig(path))
    count, *image = found.images.shape
    what = f"test {'images' if found.pictured else 'arrays'} of {'x'.join(map(str, image))}"
    size = f"{found.train_size:,} training and {count - found.train_size:,} {what}"
    classes = f"{len(found.classes)} classes: {', '.join(found.classes)}"
    return "\n".join([*_list_head(path, size), *hang_text(" " * (len(path) + 2), classes), "", "no options"])


# -- the others ------------------------------------------------------------------------------------------------------


def _list_module(name: str, build: Callable[..., Any], sizes: tuple[Any, ...], said: str) -> list[str]:
    """Describe an encoder or a head by its docstring and its size in a usual run."""
    from semcom.models.meta import build_on_meta

    with build_on_meta():
        count = sum(t.numel() for t in build(*sizes).parameters())
    return [*_list_head(name, inspect.getdoc(build) or "", whole=True), "", f"{count:,} parameters {said}"]


def _describe_encoder(name: str, build: Callable[..., Any]) -> list[str]:
    features = own_features(build) or FEATURES
    made = partial(build_encoder, name, (CHANNELS, SIDE, SIDE))
    return _list_module(name, made, (features,), f"for {features} features of {IMAGES}")


def _describe_head(name: str, build: Callable[..., Any]) -> list[str]:
    pictures = "shape" in inspect.signature(build).parameters
    answer = ((CHANNELS, SIDE, SIDE), IMAGES) if pictures else (CLASSES, f"{CLASSES} classes")
    return _list_module(name, build, (FEATURES, answer[0]), f"for {FEATURES} features and {answer[1]}")


def _list_experiments() -> str:
    """Describe all experiments: title, paper item, size of each scale, stored results."""
    stored = [
        path.stem for folder in find_installed_packages("semcom.results")[0] for path in sorted(folder.glob("*.zip"))
    ]
    registry, lines = find_listed("experiments"), list[str]()
    margin = max(map(len, registry.names())) + 2
    for name in registry.names():
        entry = registry.get(name)
        sizes = "; ".join(f"{scale} {_list_size(entry.outline(scale))}" for scale in entry.offered())
        there = ", ".join(scale for scale in entry.offered() if f"{name}-{scale}" in stored)
        facts = [entry.paper, sizes, *([f"results come with semcom: {there}"] if there else [])]
        lines += hang_text(f"{name:<{margin}}", entry.title)
        lines += [line for text in facts for line in hang_text(" " * margin, text)]
    return "\n".join([*lines, "", *hang_text("", f"{COST} M is a million.")])


def _list_size(outline: Outline) -> str:
    """Format the number of runs and their cost in millions of samples."""
    millions = (outline.samples or 0) / 1e6
    known = f"{millions:,.0f} M" if millions > 10 else f"{millions:.2g} M"
    cost = "not known" if outline.samples is None else known
    return f"{outline.runs} run{'s' if outline.runs != 1 else ''}, cost {cost}"


def _list_experiment(name: str, entry: Experiment) -> list[str]:
    """Describe an experiment: what it compares, and the runs of each scale with their cost."""
    facts = {
        "paper": entry.paper,
        "methods": ", ".join(map(_format_variant, entry.compared())),
        "axis": entry.axis,
        "figures": ", ".join(entry.figures) or "none",
    }
    lines = [*_list_head(name, entry.title), "", *_align_facts(facts), "", "scales (--scale NAME):"]
    for scale in entry.offered():
        base, outline = entry.scales[scale].base, entry.outline(scale)
        varied = "; ".join(
            f"{axis.name} {show_field_value(tuple(map(_format_joint, axis.values)))}" for axis in outline.axes
        )
        fields = {name for axis in outline.axes for name in axis.fields}
        parts = {"clients": f"{base.clients} clients", "data.name": base.data.name}
        fixed = ", ".join(text for field, text in parts.items() if field not in fields)
        size = f"{outline.runs} runs of {base.train.rounds} rounds" + (f", {fixed}" if fixed else "")
        cost = "not known" if outline.samples is None else f"{outline.samples:,.0f}"
        lines += hang_text(f"  {scale:<8}", f"{size}; {varied}; cost: {cost}")
    return [*lines, "", *hang_text("", COST)]


def _format_variant(entry: Variant) -> str:
    """Format a variant's name, then its method if that has another name, and its settings."""
    own = ", ".join(f"{name} {value}" for name, value in entry.set.items())
    about = "; ".join(text for text in (entry.method if entry.method != entry.name else "", own) if text)
    return f"{entry.name} ({about})" if about else entry.name


def _format_joint(values: tuple[Any, ...]) -> str:
    """Format values of joint fields as `--vary` takes them."""
    return ":".join(map(show_field_value, values))


def _list_figure(name: str, entry: NamedFigure) -> list[str]:
    if hasattr(entry, "experiment"):
        return [*_list_head(name, f"Drawn from the results of `semcom sweep {entry.experiment}`.")]
    return [*_list_head(name, entry.title), "", "needs no results: it measures what it draws"]


def _list_kind(name: str, entry: Kind) -> list[str]:
    """Describe a kind of figure and the settings that only it takes."""
    return [
        *_list_head(name, entry.title),
        "",
        f"takes --{', --'.join(entry.takes)}" if entry.takes else "takes no fields",
    ]


def _list_documented(name: str, entry: object) -> list[str]:
    return _list_head(name, inspect.getdoc(entry) or "", whole=True)


_DETAILS: Mapping[str, Callable[[str, Any], list[str]]] = {
    "methods": _list_method,
    "encoders": _describe_encoder,
    "heads": _describe_head,
    "experiments": _list_experiment,
    "figures": _list_figure,
    "kinds": _list_kind,
}
"""Name of a list -> how an entry is described; any other one by its docstring, and its options if a field names it."""


# -- text ------------------------------------------------------------------------------------------------------------


def _list_head(name: str, text: str, whole: bool = False) -> list[str]:
    """Format a name with the first paragraph of its docstring, or with `whole` all of them."""
    first, *more = text.split("\n\n")
    more = [each for each in more if not each.startswith(("Args:", "Attributes:"))]  # of the code, not of a run
    lines = hang_text(f"{name}  ", first)
    return lines + _space_out_paragraphs(more if whole else ())


def _space_out_paragraphs(paragraphs: Iterable[str]) -> list[str]:
    """Fit paragraphs to the terminal, each after an empty line; an indented one keeps its lines."""
    fitted = (text.split("\n") if text.startswith(" ") else hang_text("", text) for text in paragraphs)
    return [line for lines in fitted for line in ("", *lines)]


def _align_facts(facts: Mapping[str, str]) -> list[str]:
    return [line for key, text in facts.items() for line in hang_text(f"{key:<10}", text)]
