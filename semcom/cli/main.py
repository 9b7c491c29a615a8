"""The command `semcom` and its exit status.

0: done; 1: the work failed; 2: the request was wrong; 130: interrupted; 75: stopped by SIGTERM or the like.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import semcom
from semcom.channels import LINKS
from semcom.channels.registry import Registry, describe_unknown_name
from semcom.config import ConfigError, RunError
from semcom.config.errors import shorten_error
from semcom.config.options import spell_option
from semcom.escape import escape_controls
from semcom.packages import read_package_catalogue
from semcom.registry import find_entry
from semcom.runs.request.stop import STATUS, Stopped, raise_on_stop_signals
from semcom.screen import open_streams, say

if TYPE_CHECKING:
    from semcom.cli.flags import Early, SweepFlags
    from semcom.plots.base import Drawing
    from semcom.studies.results.lock import Shard
    from semcom.studies.sweep.plan import Plan

LOG = logging.getLogger(__name__)
USAGE = """\
usage: semcom COMMAND [NAME] [FLAGS]

Federated learning of semantic communication over noisy channels.

commands:
  train METHOD        train one method and print its result
  sweep [EXPERIMENT]  train a grid of runs, print its table, draw its figures
  split               divide a dataset over clients, and write who has what
  scene NAME          place clients in the streets of a city by ray tracing
  figure FIGURE       draw a figure that has a name from the results of a sweep
  plot FOLDER         draw a figure of a study: lines, curves, bars, heatmap ...
  table FOLDER        write the means of a study as Markdown, CSV or LaTeX
  show FOLDER         show how far a run or a study has come, and what it found
  results FOLDER      print a table of a study, or write all of them as CSV
  compare FOLDER A B  tell whether two methods of a study differ
  pack FOLDER         write a study as one file, which serves as its folder
  export RUN          write a trained model as a file of weights, with a card
  attack RUN          try what a listener learns of the clients' images
  claims              hold what the five papers claim against stored results
  report FOLDER...    write a study as one HTML page with interactive curves
  channel-check       measure the channels against theory
  image-curve         write PSNR against SNR of images sent digitally, as CSV
  env                 print versions and devices, for a report of a fault
  list WHAT [NAME]    WHAT: methods, channels, partitions, datasets,
                      augmentations, encoders, heads, tasks, metrics,
                      schedulers, accesses (to the air), compressions,
                      privacies, rates, places, path-losses, speeds,
                      experiments, figures or kinds (of figures); NAME: all
                      that one takes

`semcom COMMAND --help` explains a command's flags, `semcom train METHOD --help`
those of a method too.
flags: --help, --version
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; an error is one line on stderr."""
    open_streams()
    with raise_on_stop_signals(last=argv is None), _show_log():
        return _find_status(list(sys.argv[1:] if argv is None else argv))


def _find_status(words: list[str]) -> int:
    """Carry out a command, say how it ended where it failed, and return its exit status."""
    try:
        _dispatch(words)
        sys.stdout.flush()
    except ConfigError as error:
        return _report_failure(error, 2)
    except (RunError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            return _close_output()
        return _report_failure(error, 1)
    except KeyboardInterrupt as stop:
        return _report_failure(_describe_end("interrupted", stop), 130)
    except Stopped as stop:
        return _report_failure(_describe_end(f"stopped by {stop.signal}", stop), STATUS)
    except SystemExit as stop:  # tyro printed its help, or own code left with a word
        return stop.code if isinstance(stop.code, int) else 0 if stop.code is None else _report_failure(stop.code, 1)
    return 0


def _describe_end(how: str, stop: BaseException) -> str:
    """Describe how a signal ended the work, and which state is kept."""
    return "; ".join([how, *getattr(stop, "__notes__", ())])


def _report_failure(error: object, status: int) -> int:
    """Print one line and hand the exit status on."""
    text = shorten_error(error)
    say(f"semcom: {text}" if status in (130, STATUS) else f"semcom: error: {text}", stream=sys.stderr)
    return status


def _close_output() -> int:
    """Discard further output after its reader (`semcom ... | head`) has closed it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter complains when it exits
    return 1


def _dispatch(words: list[str]) -> None:
    """Carry out the command that the first word names."""
    command, rest = (words[0], words[1:]) if words else ("", [])
    if command in ("-h", "--help"):
        say(USAGE, end="")
    elif command == "--version":
        say(f"semcom {semcom.__version__}")
    elif not command:
        raise ConfigError(f"command: none is given; known are {', '.join(COMMANDS.names())} (see semcom --help)")
    else:
        find_entry(COMMANDS, command)(rest)


@contextlib.contextmanager
def _report_request_errors() -> Iterator[None]:
    """Turn any ValueError into a ConfigError while a request is read and checked."""
    try:
        yield
    except ValueError as error:
        raise ConfigError(str(error)) from error


class _Formatter(logging.Formatter):
    """Formatter of lines that may quote untrusted text."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a line without control sequences."""
        return escape_controls(super().format(record))


@contextlib.contextmanager
def _show_log() -> Iterator[None]:
    """Show warnings on stderr while a command runs."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S"))
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)


@contextlib.contextmanager
def _log_from(level: str) -> Iterator[None]:
    """Log from a level on in semcom's packages."""
    loggers = [logging.getLogger(package) for package in ("semcom", "semcom_papers")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(level.upper())
    try:
        yield
    finally:
        for logger, old in zip(loggers, before, strict=True):
            logger.setLevel(old)


def carry_out_train(words: list[str]) -> None:
    """Carry out `semcom train METHOD`."""
    from semcom.cli import flags
    from semcom.cli import printing as report
    from semcom.cli.stored import prepare_over_stored
    from semcom.studies.names import is_in_joule

    with _report_request_errors():
        early = flags.read_early_flags(words, config=True)
        wanted = flags.read_train_flags(early)  # first, since `prepare` imports torch
        from semcom.runs.request.resolve import resolve_setup

        request = dataclasses.replace(wanted, contents={})
        setup, fallen = (
            prepare_over_stored(request, flags.list_fields_in_flags(early.rest))
            if early.config
            else (resolve_setup(request), [])
        )
    config = setup.config
    changed = [path for path, now in config.contents.items() if wanted.contents.get(path, now) != now]
    from semcom.engine.host.ranks import launched_rank
    from semcom.runs.rounds.runner import carry_out_run
    from semcom.runs.rounds.tracking import name_tracked_run, parse_trackers

    first = not launched_rank()  # of several that torchrun started, the first one speaks
    with _log_from(early.log_level):
        for path in changed if first else ():
            LOG.warning("%s has changed since %s was written: it is taken as it is now", path, early.config)
        if fallen and first:
            idle = ", ".join(map(spell_option, fallen))
            LOG.warning("left out of %s, as it has no effect: %s", early.config, idle)
        result = carry_out_run(setup, profile=early.profile, progress=True, again=early.again, track=early.track)
    if not first:
        return
    joule = is_in_joule(config.network.kind, config.air.symbol_energy)
    say(report.format_result_table(result.summary, LINKS.get(config.channel.kind).radio, joule))
    if early.profile:
        say(report.format_time_table(result.summary["seconds"]))
    if result.out is not None:
        say(f"folder: {_shorten_path(result.out)}")
    for name, place in parse_trackers(early.track).items():
        say(f"{name}: {name_tracked_run(config)} in {place}")


def _shorten_path(path: Path) -> Path:
    """Shorten a path inside the current folder."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def carry_out_sweep(words: list[str]) -> None:
    """Carry out `semcom sweep [EXPERIMENT]`."""
    from semcom.cli import flags, grids
    from semcom.plots.registry import find_drawings_for
    from semcom.runs.request.plugins import load_plugins
    from semcom.studies.registry import find_experiment
    from semcom.studies.results.lock import parse_shard
    from semcom.studies.sweep.plan import make_plan
    from semcom.studies.sweep.pool import check_workers
    from semcom.studies.sweep.request import parse_request
    from semcom.studies.sweep.reuse import add_reused_variants
    from semcom.studies.sweep.tune import plan_search

    with _report_request_errors():
        early = flags.read_early_flags(words)
        load_plugins(early.plugins)
        declared = None if early.name is None else find_experiment(early.name)
        wanted = flags.parse_flags(flags.SweepFlags(), f"semcom sweep {early.name or '[EXPERIMENT]'}", early.rest)
        check_workers(wanted.jobs, wanted.backend, wanted.gpus_per_run, wanted.limit_minutes, wanted.track)
        shard = None if wanted.shard is None else parse_shard(wanted.shard)
        request = parse_request(**grids.read_grid_request(wanted, *grids.find_grid_in_use(declared, wanted.scale)))
        request = dataclasses.replace(request, words=_join_words(words))
    with _log_from(early.log_level):
        with _report_request_errors():
            request = add_reused_variants(early.name, request, wanted.reuse)
            asked = (early.name, wanted.scale, request, early.plugins, wanted.out)
            plan = plan_search(*asked) if request.tune else make_plan(*asked)
            drawings = [] if request.tune else find_drawings_for(declared, plan.experiment, plan.scale)
        if wanted.dry_run:
            from semcom.studies.sweep.sweep import show_plan

            return show_plan(plan, shard, wanted.jobs, wanted.reuse, asked if request.tune else None)
        if request.tune:
            from semcom.studies.sweep.sweep import carry_out_search

            plan = carry_out_search(plan, asked, shard, _choose_options(wanted))
            drawings = find_drawings_for(declared, plan.experiment, plan.scale)
        _execute_and_draw(plan, shard, wanted, drawings)


def _join_words(words: Sequence[str]) -> str:
    """Join the words of a sweep to the line that repeats it, of a shard to that of the whole sweep."""
    pairs = pairwise(("", *words))
    whole = [word for before, word in pairs if "--shard" not in (before, word) and not word.startswith("--shard=")]
    return shlex.join(["semcom", "sweep", *whole])


def _execute_and_draw(plan: Plan, shard: Shard | None, wanted: SweepFlags, drawings: Sequence[Drawing]) -> None:
    """Carry out a planned sweep, and draw its figures unless other shards have runs to do."""
    from semcom.studies.sweep.sweep import execute_sweep

    table = execute_sweep(plan, shard, **_choose_options(wanted))
    if table is not None:
        say(f"table: {table}")
        for drawing in drawings:
            try:
                _render_figure(drawing.name, results=table.parent, out=table.parent)
            except ConfigError as error:  # of the runs, some of which were asked for: these are done
                LOG.warning("figure %s is left out: %s", drawing.name, error)


def _choose_options(wanted: SweepFlags) -> dict[str, Any]:
    names = ("jobs", "backend", "gpus_per_run", "limit_minutes", "reuse", "track")
    return {name: getattr(wanted, name) for name in names}


def carry_out_split(words: list[str]) -> None:
    """Carry out `semcom split`."""
    from semcom.cli import flags
    from semcom.cli.split import carry_out_split as carry_out
    from semcom.cli.split import read_split_flags
    from semcom.runs.request.limits import limit_memory

    with _report_request_errors():
        early = flags.read_early_flags(words)
        _refuse_name("split", early)
        wanted = read_split_flags(early)
    with _log_from(early.log_level), limit_memory():
        carry_out(wanted)


def carry_out_figure(words: list[str]) -> None:
    """Carry out `semcom figure FIGURE`."""
    from semcom.cli import flags
    from semcom.plots.registry import FIGURES
    from semcom.runs.request.plugins import load_plugins

    with _report_request_errors():
        early = flags.read_early_flags(words)
        load_plugins(early.plugins)
        if early.name is not None:
            FIGURES.get(early.name)
        elif not flags.HELP & set(early.rest):
            raise ConfigError(f"figure: none is given; known are {', '.join(FIGURES.names())}")
        name = early.name or ""
        wanted = flags.parse_flags(flags.FigureFlags(), f"semcom figure {name or 'FIGURE'}", early.rest)
    with _log_from(early.log_level):
        _render_figure(name, results=wanted.results, out=wanted.out)


def _render_figure(name: str, results: Path | str | None, out: Path | str | None) -> None:
    """Render a figure, and print where it lies."""
    from semcom.plots import render

    for path in render(name, results=results, out=out):
        say(f"figure: {path}")


def _refuse_name(command: str, early: Early) -> None:
    """Raise ConfigError if a command that takes no name is given a name."""
    if early.name is not None:
        raise ConfigError(f"{command}: {early.name!r} is not expected here; flags begin with --")


def carry_out_channel_check(words: list[str]) -> None:
    """Carry out `semcom channel-check`."""
    from semcom.cli import flags
    from semcom.cli.channel_check import CheckFlags
    from semcom.cli.channel_check import channel_check as carry_out
    from semcom.runs.request.plugins import load_plugins

    with _report_request_errors():
        early = flags.read_early_flags(words)
        _refuse_name("channel-check", early)
        load_plugins(early.plugins)
        wanted = flags.parse_flags(CheckFlags(), "semcom channel-check", early.rest)
    with _log_from(early.log_level):
        carry_out(wanted.device, wanted.seed, wanted.json)


def carry_out_list(words: list[str]) -> None:
    """Carry out `semcom list WHAT [NAME]`."""
    from semcom.cli import flags, listing
    from semcom.runs.request.plugins import load_plugins

    with _report_request_errors():
        early = flags.read_early_flags(words)
        name = early.rest.pop(0) if early.name and early.rest and not early.rest[0].startswith("-") else None
        flags.parse_flags(flags.ListFlags(), "semcom list", early.rest)
        if early.name is None or early.name not in listing.LISTS:
            known = list(listing.LISTS)
            none = f"nothing to list is given; known are {', '.join(known)}"
            raise ConfigError(f"list: {none if early.name is None else describe_unknown_name(early.name, known)}")
        load_plugins(early.plugins)
        text = listing.list_overview(early.name) if name is None else listing.list_details(early.name, name)
    say(text)


COMMANDS: Registry[Callable[[list[str]], None]] = Registry(
    "command",
    {
        "train": "semcom.cli.main:carry_out_train",
        "sweep": "semcom.cli.main:carry_out_sweep",
        "split": "semcom.cli.main:carry_out_split",
        "scene": "semcom.cli.scene:carry_out_scene",
        "figure": "semcom.cli.main:carry_out_figure",
        "show": "semcom.cli.show:carry_out_show",
        "plot": "semcom.cli.plot:carry_out_plot",
        "table": "semcom.cli.plot:print_plot_table",
        "results": "semcom.cli.analysis:carry_out_results",
        "compare": "semcom.cli.analysis:carry_out_compare",
        "pack": "semcom.cli.analysis:carry_out_pack",
        "export": "semcom.cli.export:carry_out_export",
        "attack": "semcom.cli.attack:carry_out_attack_command",
        "report": "semcom.cli.report:carry_out_report",
        "channel-check": "semcom.cli.main:carry_out_channel_check",
        "image-curve": "semcom.cli.image_curve:carry_out_image_curve",
        "env": "semcom.cli.env:print_environment",
        "list": "semcom.cli.main:carry_out_list",
    },
    catalogue=partial(read_package_catalogue, "semcom.commands"),
)
"""The functions of the words after a command's name, those of installed packages among them."""
