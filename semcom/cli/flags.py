"""The command line's flags: tyro makes them from the configuration's dataclasses, and every error is one line."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import difflib
import inspect
import io
import os
import re
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal, NoReturn, TypeVar, cast

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from semcom.cli import fields
from semcom.cli.stored import read_stored
from semcom.cli.text import wrap_paragraphs
from semcom.config import COMMON, ConfigError, RunConfig
from semcom.config.options import describe_untaken_option, spell_option
from semcom.methods.registry import METHODS
from semcom.runs.request.plugins import load_plugins, locate_plugin
from semcom.runs.request.section_options import (
    NAMING,
    OWNERS,
    build_section_options,
    find_options_class,
    find_owners_of_option,
    read_option_owner,
    replace_option_owners,
)
from semcom.runs.request.stop import Stopped
from semcom.runs.request.trust import take_trusted_plugins

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")
Level = Literal["debug", "info", "warning", "error"]


@dataclass(frozen=True)
class Early:
    """The words that have to be known before the other flags can be read."""

    name: str | None
    """The first word, if it is no flag: a method, an experiment, a figure."""
    rest: list[str]
    """The words that are left."""
    config: str | None = None
    """Path of a stored config.json."""
    plugins: tuple[str, ...] = ()
    """Python files or modules, as in `RunConfig.plugins`."""
    log_level: Level = "info"
    """Lowest level that is logged to stderr."""
    trust: bool = False
    """True to execute the plug-ins that `config` names."""
    profile: bool = False
    """True to measure the parts of training too."""
    again: bool = False
    """True to replace the run that lies in the folder."""
    track: tuple[str, ...] = ()
    """Trackers of the run, NAME or NAME=PLACE."""


At = Annotated[tuple[str, ...], tyro.conf.arg(metavar="[FIELD=VALUE ...]")]
"""Values of fields that runs have."""


@dataclass(frozen=True)
class SweepFlags:
    """Train a grid of runs, print its table and draw its figures.

    EXPERIMENT comes first (see: semcom list experiments), or FILE.py that declares one. Without it the runs are those
    of --methods, --set, --vary and --seeds, and --out is needed.
    """

    scale: str | None = None
    """Scale, such as smoke (digits, seconds), small (real images, two cores) or paper (the paper's numbers); see:
    semcom list experiments EXPERIMENT (None: the first of these that it has)."""
    methods: str | None = None
    """Names of the experiment's methods that run, separated by commas; without an experiment, any methods (None: all of
    the experiment)."""
    seeds: str | None = None
    """Seeds, such as 0..4 or 0,3,7 (None: those of the experiment)."""
    set: Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(metavar="FIELD=VALUE")] = ()
    """A field of all runs, as semcom train names it: train.rounds=20, hyper.lam=0.1 (repeatable)."""
    vary: Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(metavar="FIELD=VALUES")] = ()
    """A field that varies: channel.snr_db=-6..18:3, or 0,9,18; joint ones: partition.ways,partition.shots=2:150,3:100
    (repeatable)."""
    tune: Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(metavar="FIELD=VALUES")] = ()
    """A field whose best value is chosen for each method on validation images, before the runs: train.lr=0.001,0.01
    (repeatable)."""
    dry_run: Annotated[tyro.conf.FlagCreatePairsOff[bool], tyro.conf.arg()] = False
    """Count the finished, reusable and pending runs, and show what varies; train nothing."""
    shard: str | None = None
    """Part of the grid that is carried out, such as 3/16: one job of a batch system's array (None: all of it)."""
    reuse: Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(metavar="STUDY")] = ()
    """Another study's folder or archive, whose finished runs are taken over where this one has them (repeatable)."""
    jobs: int | None = None
    """Largest number of runs that train at the same time, each in a process of its own (None: 1; with ray as many as
    the cluster has CPUs and GPUs for)."""
    limit_minutes: float | None = None
    """Minutes after which a run is stopped; the same command goes on where it stopped (None: none)."""
    backend: Literal["loky", "ray"] = "loky"
    """loky: processes of this machine; ray: a cluster (needs the extra `ray`), see docs/cluster.md."""
    gpus_per_run: float | None = None
    """GPUs that ray keeps for each run: 1, or a part of one, such as 0.25 (None: none)."""
    out: str | None = None
    """Folder of the results, which may hold some of them already (None: results/EXPERIMENT-SCALE)."""
    track: Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(metavar="NAME[=PLACE]")] = ()
    """Tracker that gets all rounds of each run: tensorboard=FOLDER, wandb=PROJECT, mlflow=EXPERIMENT, or NAME alone
    (repeatable)."""
    keep: tuple[str, ...] = ()
    """What each run keeps beside its numbers: confusion, features, curves-per-client, images, weights, checkpoint
    (default: nothing, and no models)."""
    data_root: Annotated[str | None, tyro.conf.arg(name="data.root")] = None
    """Folder where datasets lie and are downloaded to (None: the user's cache folder)."""
    device: str | None = None
    """Device, such as cpu, cuda or cuda:1 (None: CUDA where there is one)."""


@dataclass(frozen=True)
class FigureFlags:
    """Draw a figure from the results of a sweep.

    FIGURE comes first (see: semcom list figures); semcom plot draws any study.
    """

    results: str | None = None
    """Folder of a sweep, or its archive (None: the one in results/ with the largest scale)."""
    out: str | None = None
    """Folder of the drawn files (None: that of the study)."""


@dataclass(frozen=True)
class ListFlags:
    """List what there is (WHAT), or all that one of them takes (WHAT NAME).

    WHAT: methods, channels, partitions, datasets, augmentations, encoders, heads, tasks, metrics, schedulers, accesses,
    compressions, privacies, rates, places, path-losses, speeds, experiments, figures or kinds.
    """


class _EarlyParser(argparse.ArgumentParser):
    """Argument parser whose errors are ConfigErrors."""

    def error(self, message: str) -> NoReturn:
        """Raise what argparse would print."""
        field_first = re.sub(r"^argument --([\w.-]+)(?:/\S+)?: ", r"\1: ", message)
        raise ConfigError(field_first.replace("expected one argument", "no value is given"))


def read_early_flags(argv: Sequence[str], config: bool = False) -> Early:
    """Take the name, --plugin, --log-level and, for `train`, the flags that are no fields out. Raises ConfigError."""
    parser = _EarlyParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--plugin", action="append", default=[])
    parser.add_argument("--log-level", default="info")
    if config:
        parser.add_argument("--config")
        parser.add_argument("--trust", action="store_true")
        parser.add_argument("--profile", action="store_true")
        parser.add_argument("--again", action="store_true")
        parser.add_argument("--track", action="append", default=[])
    words = list[str]()
    for word in argv:  # `--plugin a.py b.py` means both; a word that is no file may be the name
        words += ["--plugin", word] if word.endswith(".py") and words[-2:-1] == ["--plugin"] else [word]
    known, rest = parser.parse_known_args(words)
    name = rest.pop(0) if rest and not rest[0].startswith("-") else None
    levels = typing.get_args(Level)
    if known.log_level not in levels:
        raise ConfigError(f"log-level: {known.log_level!r} is not one of {', '.join(levels)}")
    names = ("config", "trust", "profile", "again") if config else ()
    own = {name: getattr(known, name) for name in names} | ({"track": tuple(known.track)} if config else {})
    return Early(name, rest, plugins=tuple(known.plugin), log_level=known.log_level, **own)


def read_train_flags(early: Early) -> RunConfig:
    """Read the configuration of `semcom train`: the flags over --config over the defaults.

    Its `contents` are those of --config, whose files may have changed since.

    `--help` prints the flags, with those of all that is chosen by name and has some, and raises SystemExit.

    Raises:
        ValueError: the first error, in one line (ConfigError, or a registry's error).
    """
    base = read_stored(early.config) if early.config else RunConfig()
    load_plugins(early.plugins)
    base = take_trusted_plugins(base, early.trust)
    plugins = tuple(dict.fromkeys((*base.plugins, *map(locate_plugin, early.plugins))))
    method = early.name or (base.method if early.config else None)
    if method is None and not HELP & set(early.rest):
        raise ConfigError(f"method: none is given; known are {', '.join(METHODS.names())}")
    wanted = dataclasses.replace(base, plugins=plugins)
    chosen = ({"method": method} if method else {}) | read_owners_in_flags(early.rest)
    config = build_section_options(replace_option_owners(wanted, chosen))
    config = config if method else dataclasses.replace(config, hyper=None)
    found = parse_flags(config, f"semcom train {method or 'METHOD'}", early.rest, TRAIN, TRAIN_TEXT)
    if found.train.preset == base.train.preset:
        return found
    given = list_fields_in_flags(early.rest)  # another preset fills in all that no flag sets
    filled: dict[str, Any] = {name: None for name in (*COMMON, "local_steps") if f"train.{name}" not in given}
    return dataclasses.replace(found, train=dataclasses.replace(found.train, **filled))


def read_owners_in_flags(words: Sequence[str]) -> dict[str, str]:
    """Read the link, the partition and the like that the words choose, by their fields. Raises ConfigError."""
    parser = _EarlyParser(add_help=False, allow_abbrev=False)
    for field in NAMING:
        if field != "method":
            parser.add_argument(*dict.fromkeys((f"--{spell_option(field)}", f"--{field}")), dest=field)
    return {field: value for field, value in vars(parser.parse_known_args(words)[0]).items() if value is not None}


PLUGIN_HELP = "Python files, or a module, that register own methods, channels, partitions, datasets ... (repeatable)."
EARLY: Mapping[str, tuple[Any, Any]] = {
    "plugin": (Annotated[fields.PLUGIN, tyro.conf.arg(help=PLUGIN_HELP, help_behavior_hint="(default: none)")], ()),
    "log_level": (Annotated[Level, tyro.conf.arg(help="Lowest level that is logged to stderr.")], "info"),
}
"""Flags that commands with plug-ins take, and `read_early_flags` reads; these are for the help."""
PROFILE_HELP = "Measure the parts of training too, and print where the time went; this costs some speed."
AGAIN_HELP = "Train anew, and replace the run that lies in --out, finished or not, this one or another."
TRACK_HELP = (
    "Tracker that gets all rounds: tensorboard=FOLDER, wandb=PROJECT, mlflow=EXPERIMENT, or NAME alone (repeatable); "
    "each needs the extra of its name."
)
TRACK = tyro.conf.arg(help=TRACK_HELP, help_behavior_hint="(default: none)", metavar="NAME[=PLACE]")
CONFIG_HELP = (
    "A stored config.json, the folder of a run, or ARCHIVE.zip/RUN. A run goes on in its folder; flags override it, "
    "and where they make another run of it give --out. `none` takes an optional field back, such as --finish none. A "
    "stored field that the flags leave without effect falls away."
)
TRUST_HELP = "Execute the plug-ins that --config names; without it, those alone that --plugin gives."
CONFIG = tyro.conf.arg(help=CONFIG_HELP, help_behavior_hint="(default: none)")
TRAIN: Mapping[str, tuple[Any, Any]] = {
    "config": (Annotated[str | None, CONFIG], None),
    "trust": (Annotated[fields.TRUST, tyro.conf.arg(help=TRUST_HELP)], False),
    "profile": (Annotated[tyro.conf.FlagCreatePairsOff[bool], tyro.conf.arg(help=PROFILE_HELP)], False),
    "again": (Annotated[tyro.conf.FlagCreatePairsOff[bool], tyro.conf.arg(help=AGAIN_HELP)], False),
    "track": (Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], TRACK], ()),
    "log_level": EARLY["log_level"],
}
"""The same for `semcom train`, whose configuration has the plug-ins."""
TRAIN_TEXT = """\
Train one method. METHOD comes first (see: semcom list methods).
--help after METHOD shows its own flags too, --hyper.NAME; likewise
--help after --channel.kind, --partition.kind, --data.name,
--air.access, --air.compress, --air.privacy, --air.rate, --network.kind,
--network.path-loss or --network.speeds."""


def list_fields_in_flags(words: Sequence[str]) -> set[str]:
    """List the fields that the flags among some words set."""
    flags = [word.partition("=")[0].removeprefix("--").replace("-", "_") for word in words if word.startswith("--")]
    sections: dict[Any, str] = {f.default_factory: f.name for f in dataclasses.fields(RunConfig)}
    shorter = {flag: f"{sections[cls]}.{name}" for cls, names in fields.ALIASES.items() for name, flag in names.items()}
    flags = [shorter.get(f"--{flag}", flag) for flag in flags]
    return {*flags, *(flag.replace(".no_", ".") for flag in flags)}  # --train.no-through-link sets train.through_link


def parse_flags(
    default: T, prog: str, argv: Sequence[str], extra: Mapping[str, tuple[Any, Any]] = EARLY, text: str | None = None
) -> T:
    """Fill a dataclass instance from a command line.

    Args:
        default: the instance with the values of flags that are not given.
        prog: the command, for the help.
        argv: the words.
        extra: further flags that the help shows.
        text: description of the command in the help (None: the docstring of the dataclass).

    Raises:
        ConfigError: a flag or value that is wrong, in one line.
        SystemExit: after `--help`.
    """
    start, box = fields.make_field_flags(default, extra), io.StringIO()
    described: Any = _Described(sys.stdout, wrap_paragraphs(text or inspect.cleandoc(type(default).__doc__ or "")))
    try:
        with contextlib.redirect_stderr(box), contextlib.redirect_stdout(described), _widen_terminal(argv):
            parsed, unknown = tyro.cli(
                type(start),
                prog=prog,
                description=_Described.MARK,
                args=list(argv),
                default=start,
                return_unknown_args=True,
                registry=_make_registry(),
                config=(tyro.conf.HelptextFromCommentsOff,),  # comments take long to find, and flags have their texts
            )
    except SystemExit as stop:
        if stop.code in (0, None) or isinstance(stop, Stopped):
            raise
        raise ConfigError(_unbox_error(box.getvalue())) from None
    if unknown:
        raise ConfigError(
            _describe_others_option(unknown[0], default)
            or _refuse_unknown(unknown[0], fields.name_flags(start), default)
        )
    return fields.read_flags(default, parsed)


class _Described:
    """Stream that wraps the description in tyro's help: tyro joins its lines to one.

    Args:
        stream: where the help goes.
        text: the description.
    """

    MARK = "DESCRIPTION"

    def __init__(self, stream: IO[str], text: str) -> None:
        self.stream, self.text = stream, text

    def write(self, words: str) -> int:
        """Write words, with the text in the place of the mark."""
        return self.stream.write(words.replace(self.MARK, self.text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


HELP = {"-h", "--help"}


@contextlib.contextmanager
def _widen_terminal(argv: Sequence[str]) -> Iterator[None]:
    """Make tyro believe in a very wide terminal, unless it prints help: wrapping would break the words of an error."""
    if HELP & set(argv):
        yield
        return
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "100000"
    try:
        yield
    finally:
        os.environ.pop("COLUMNS")
        if before is not None:
            os.environ["COLUMNS"] = before


_PLAIN = {
    r"^Error parsing --([\w.-]+): ": r"\1: ",
    r"^Missing value for argument '(?:--[\w.-]+/)*--([\w.-]+)'.*": r"\1: no value is given",
}
"""tyro's wording -> that of ConfigError."""


def _unbox_error(box: str) -> str:
    """Extract the message from a boxed error of tyro, without its frame and its pointers to the help."""
    inner: list[str] = []
    for line in box.splitlines()[1:]:  # without the title
        if line.strip("│╰╯─- "):
            inner.append(line.strip("│ "))
        elif inner:  # a rule or an empty line ends the message
            break
    text = " ".join(" ".join(inner).split())
    for pattern, plain in _PLAIN.items():
        text = re.sub(pattern, plain, text)
    return text or "the command line cannot be read"


def _describe_others_option(word: str, config: object) -> str:
    """Describe the error of a flag of another method, link, partition or dataset than the chosen; empty otherwise."""
    section, _, name = word.removeprefix("--").partition("=")[0].partition(".")
    if section not in OWNERS or not hasattr(config, section):
        return ""
    run = cast(RunConfig, config)  # or what has some of its sections, as `semcom split` takes
    if section == "hyper" and run.hyper is None:
        return ""
    name = name.replace("-", "_")
    others = find_owners_of_option(section, name)
    if not others:
        return ""
    owner = read_option_owner(run, others[0][0])  # of the kind that takes it
    options = find_options_class(others[0][0], owner)
    return describe_untaken_option(section, name, owner, options, [other for _, other in others])


def _refuse_unknown(word: str, known: Sequence[str], config: object) -> str:
    """Describe the error of an unknown flag, with a similar flag if there is one."""
    if not word.startswith("-"):
        return f"{word!r} is not expected here; flags begin with --"
    flag, is_run = spell_option(word.split("=")[0]).lstrip("-"), isinstance(config, RunConfig)
    if flag == "method" and is_run:
        return f"{word}: no such flag; the method is the first word: semcom train METHOD"
    names = [name.lstrip("-") for name in known]
    if found := _find_nearest(flag, names):
        return f"{word}: no such flag; did you mean --{found}?"
    section = flag.partition(".")[0]
    if own := [name for name in names if name.startswith(f"{section}.")]:
        return f"{word}: no such flag; those of {section} are {', '.join(f'--{name}' for name in own)}"
    return f"{word}: no such flag; --help shows them all"


def _find_nearest(flag: str, known: Sequence[str]) -> str | None:
    """Find the flag that a misspelled flag most likely means.

    The end of the flag is compared: as a whole, without its prefix (`--num-clients`), as a misspelling, and as a
    word at either side of an end. A section alone stands for the flag that names its kind.
    """
    section, dot, last = flag.rpartition(".")
    sections = {name.partition(".")[0] for name in known if "." in name}
    meant = difflib.get_close_matches(section, sections - {section}, n=1, cutoff=0.7)
    if meant and f"{meant[0]}.{last}" in known:  # the section is misspelled, and the rest is right
        return f"{meant[0]}.{last}"
    ends: dict[str, str] = {}
    for name in known:
        if section == "finish" or not name.startswith("finish."):  # `--epochs` is about training
            ends.setdefault(name.rpartition(".")[2], name)
    if dot:  # another section's flag has to have the same end
        own = {end: name for end, name in ends.items() if name == f"{section}.{end}"}
        return ends.get(last) or next((own[end] for end in difflib.get_close_matches(last, own, n=1, cutoff=0.8)), None)
    kinds = [field for part, fields in OWNERS.items() if flag.startswith(part) and len(fields) == 1 for field in fields]
    alike = [ends[end] for end in difflib.get_close_matches(flag, ends, n=1, cutoff=0.8)]
    shortest = sorted(ends.items(), key=lambda each: len(each[0]))  # `--snr` is snr-db, and not snr-input
    words = [name for end, name in shortest if flag in (end.split("-")[0], end.split("-")[-1])]
    found = [ends.get(flag), *kinds, ends.get(flag.split("-")[-1]), *alike, *words]
    return next((name for name in found if name in known), None)


_SCALARS: Mapping[Any, tuple[str, str]] = {
    int: ("INT", "whole number"),
    float: ("FLOAT", "number"),
    str: ("STR", "text"),
}
"""Type -> its name in the help, and in an error."""


def _make_registry() -> ConstructorRegistry:
    """Make the registry that reads numbers, texts, choices and their unions, and shows them shorter than tyro does."""
    registry = ConstructorRegistry()
    registry.primitive_rule(_read_type)
    return registry


def _read_type(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Describe how to read the types of our fields; other types are left to tyro.

    These are Literal, int, float and float | str, each or a tuple of it with `| None`, tuples of int, and a number or
    one of some words, with `| None`.
    """
    union = typing.get_origin(info.type) in (typing.Union, types.UnionType)
    members = [m for m in (typing.get_args(info.type) if union else [info.type]) if m is not type(None)]
    members = [str if m is Path else m for m in members]  # as a text it can be empty, which is refused by name
    optional = union and type(None) in typing.get_args(info.type)
    if len(members) == 1 and typing.get_origin(members[0]) is Literal:
        choices = typing.get_args(members[0])
        return _specify(
            f"{{{','.join(map(str, choices))}}}", optional, False, lambda word: _parse_choice(word, choices)
        )
    if len(members) == 1 and typing.get_origin(members[0]) is tuple:
        (inner, *_) = typing.get_args(members[0])
        if typing.get_origin(inner) is Literal:
            known = typing.get_args(inner)
            return _specify(
                ",".join(known), optional, True, lambda word: _parse_choice(word, known), single=False, comma=True
            )
    words = [word for kind in members if typing.get_origin(kind) is Literal for word in typing.get_args(kind)]
    if words and len(members) == 2 and members[0] in _SCALARS:
        number, called = members[0], _SCALARS[members[0]]
        return _specify(
            "|".join([called[0], *words]), optional, False, lambda word: _parse_number_or(word, number, words)
        )
    if members == [tuple[int, ...]]:
        return _specify("INT", optional, True, lambda word: _parse_scalar(word, [int]), single=False)
    scalars = [kind for kind in _SCALARS if kind in members]
    many = [kind for kind in scalars if types.GenericAlias(tuple, (kind, ...)) in members]
    if not scalars or len(members) != len(scalars) + len(many):
        return None
    name = "|".join(_SCALARS[kind][0] for kind in scalars)
    return _specify(name, optional, bool(many), lambda word: _parse_scalar(word, scalars))


def _specify(
    name: str, optional: bool, many: bool, one: Callable[[str], Any], single: bool = True, comma: bool = False
) -> PrimitiveConstructorSpec[Any]:
    """Return how to read a flag shown as `name`, of one word or many, each read by `one`.

    Where it is `optional`, the word `none` is None, as is Python's own spelling of it.
    One word alone is a `single` value, or a list of one, where no word at all is an empty list. With `comma`, commas
    separate words too.
    """

    absent = (["none"], ["None"]) if optional else ()

    def read(words: list[str]) -> Any:
        if words in absent:
            return None
        split = [part for word in words for part in word.split(",")] if comma else words
        values = tuple(one(word) for word in split)
        if single and not values:
            raise ValueError("no value is given; give one or several")
        return values[0] if single and len(values) == 1 else values

    several = f"{name} [{name} ...]" if single else f"[{name} ...]"
    return PrimitiveConstructorSpec(
        nargs="*" if many else 1,
        metavar=several if many else name,
        instance_from_str=read,
        is_instance=lambda value: True,
        str_from_instance=lambda value: [str(v) for v in (value if isinstance(value, tuple) else (value,))],
    )


def _parse_choice(word: str, choices: Sequence[Any]) -> Any:
    """Find the choice, a word or a number, that is written as `word`."""
    by_word = {str(choice): choice for choice in choices}
    if word not in by_word:
        raise ValueError(f"{word!r} is not one of {', '.join(by_word)}")
    return by_word[word]


def _parse_number_or(word: str, number: Any, words: Sequence[str]) -> Any:
    """Parse one of some words, or a number of a type."""
    try:
        return word if word in words else number(word)
    except ValueError:
        raise ValueError(f"{word!r} is neither a {_SCALARS[number][1]} nor {' or '.join(words)}") from None


def _parse_scalar(word: str, scalars: Sequence[Any]) -> Any:
    """Parse a word as the first type that takes it."""
    for kind in scalars:
        with contextlib.suppress(ValueError):
            return kind(word)
    raise ValueError(f"{word!r} is not a {_SCALARS[scalars[-1]][1]}")
