"""Absolute paths of a run's inputs, and digests of their contents, which are part of its identity."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from semcom.channels import PROFILES
from semcom.channels.registry import Registry, list_depends
from semcom.channels.scene import list_scenes
from semcom.config import CODE, DEPENDS, READ, VARIABLE, ConfigError, RunConfig
from semcom.config.errors import shorten_error
from semcom.config.options import list_paths_in_options, spell_option
from semcom.data.readers import list_image_files
from semcom.data.registry import AUGMENTATIONS, DATASETS
from semcom.engine.air.schedulers import SCHEDULERS
from semcom.files import digest_bytes, digest_of_file
from semcom.models.registry import ENCODERS, HEADS
from semcom.runs.request.code import find_definition, read_code
from semcom.runs.request.plugins import locate_plugin, read_plugin
from semcom.runs.request.section_options import (
    NAMING,
    OWNERS,
    list_option_owners,
    read_option_owner,
    read_section_options,
    replace_section_options,
)
from semcom.runs.request.sources import Code, Version, is_own_file, is_shipped, list_opened, list_reads, stat_version
from semcom.tasks.registry import METRICS, TASKS

TRAINING = f"{CODE}training"
"""The name in `contents` of a function of the user's that carries out a sweep's runs."""
_MANY = 100
"""Number of files in a folder above which the whole folder counts, as FOLDER/*."""


def fingerprint_inputs(config: RunConfig) -> RunConfig:
    """Make paths absolute, and add the digest of every file, folder and plug-in that a run reads.

    Plug-ins must be loaded and options built. A missing path stays unchanged, and its reader raises the error.

    Raises ConfigError for unreadable inputs, and for other contents than a digest in `config.contents` says.
    """
    named = {section: list_paths_in_options(read_section_options(config, section)) for section in OWNERS}
    _check_paths(config, named)
    folders = getattr(config.data.options, "local_folders", {})
    named["data"], whole = {**named["data"], **folders}, {f"data.{spell_option(name)}" for name in folders}
    data, root, out = config.data, config.data.root, config.out
    config = replace(
        config,
        plugins=tuple(dict.fromkeys(locate_plugin(plugin) for plugin in config.plugins)),
        data=replace(data, name=_locate_dataset(data.name), root=root if root is None else _make_absolute(root)),
        new_data=config.new_data if config.new_data is None else _locate_dataset(config.new_data),
        out=out if out is None else _make_absolute(out),
    )
    weights = _path(config.model.weights)
    config = replace(config, model=replace(config.model, weights=weights))
    files = {"data.name": config.data.name, "new-data": config.new_data, "model.weights": weights}
    for section, own in named.items():
        there = {name: path if path in list_scenes() else _path(path) for name, path in own.items()}
        config = (
            replace_section_options(config, section, replace(read_section_options(config, section), **there))
            if there
            else config
        )
        files |= {f"{section}.{spell_option(name)}": path for name, path in there.items()}
    read = {field: path for field, path in files.items() if path and _is_path(path)}
    found = {path: (field, _digest_path(field, path, field in whole)) for field, path in read.items()}
    code = _read_own_code(config)
    found = {name: (field, each.digest) for name, (field, each) in code.items() if field == "plugins"} | found
    found |= {name: (field, each.digest) for name, (field, each) in code.items() if field != "plugins"}
    for name in sorted({name for _, each in code.values() for name in each.variables} & os.environ.keys()):
        found[VARIABLE + name] = name, hashlib.sha256(os.environ[name].encode(errors="surrogateescape")).hexdigest()
    found |= _digest_depends(config)
    reads = {name: was for name, was in config.contents.items() if name.startswith((READ, TRAINING))}
    if changed := find_changed_input(reads):
        raise ConfigError(f"contents: {changed!r} is not what it was when the run read it; leave contents empty")
    for path, was in config.contents.items():
        if path in reads:
            continue
        if path not in found and path not in files.values():  # a file that is gone is its reader's to tell
            raise ConfigError(f"contents: {path!r} is not read by this run; leave contents empty")
        field, now = found.get(path, ("", was))
        if was != now:
            change = "is not what it was when this configuration was resolved"
            raise ConfigError(f"{field}: {path!r} {change}; leave contents empty to take it as it is now")
    return replace(config, contents={path: now for path, (_, now) in found.items()} | reads)


def add_read_inputs(config: RunConfig, reads: Mapping[str, Version]) -> RunConfig:
    """Add to `contents` the files that own code has opened during its import, and `reads`, during the run's set-up.

    Files of the dataset and of the run's folder do not count, nor do files with a digest already.

    Raises ConfigError for a file that has changed since.
    """
    code = [each for _, each in _read_own_code(config).values()]
    found = {path: was for each in code for path, was in list_opened(each).items()}
    own = tuple(os.path.join(place, "") for place in (config.data.root, config.out) if place)
    named = {name.removeprefix(DEPENDS) for name in config.contents}.union(*(each.sources for each in code))
    kept = dict[str, list[str]]()
    for path, was in sorted((found | dict(reads)).items()):
        if path in named or (own and path.startswith(own)) or (now := stat_version(path)) is None:
            continue
        if now != was:
            raise ConfigError(f"code: {path!r} has changed since this process read it; start Python again")
        kept.setdefault(os.path.dirname(path), []).append(path)
    each = [path for folder, paths in kept.items() for path in (paths if len(paths) <= _MANY else [f"{folder}/*"])]
    return replace(config, contents=config.contents | {READ + path: _digest_path("code", path) for path in each})


def find_changed_input(contents: Mapping[str, str]) -> str | None:
    """Find a file that has changed since the run read it during set-up; missing files are not compared."""
    there = (path for path in list_reads(contents) if os.path.exists(path.removesuffix("*")))
    return next((path for path in there if _digest_path("code", path) != contents[READ + path]), None)


def _digest_depends(config: RunConfig) -> dict[str, tuple[str, str]]:
    """Compute the digests of declared dependencies, by their names in `contents`, with a field."""
    used = [(registry, name) for registry, _, name in _list_used(config) if not registry.ships(name)]
    things = [thing for registry, name in used for thing in registry.depends(name)]
    sources = [*config.plugins, *([None] if any(registry.source(name) is None for registry, name in used) else [])]
    things += [thing for source in sources for thing in list_depends(source)]
    found = {}
    for thing in things:
        if isinstance(thing, os.PathLike):
            path = _make_absolute(os.fspath(thing))
            if not _is_path(path):
                raise ConfigError(f"depends: {path!r} is no file or folder; give one that is there")
            found[DEPENDS + path] = "depends", _digest_path("depends", path)
        else:
            found[f"{DEPENDS}{len(found) + 1}"] = "depends", hashlib.sha256(repr(thing).encode()).hexdigest()
    return found


def _read_own_code(config: RunConfig) -> dict[str, tuple[str, Code]]:
    """Read the code of plug-ins and of entries from a script, by their names in `contents`, with a field."""
    found = {plugin: ("plugins", read_plugin(plugin)) for plugin in config.plugins}
    packages = {plugin.partition(".")[0] for plugin in config.plugins if not plugin.endswith(".py")}
    for registry, field, name in _list_used(config):
        if not registry.ships(name) and registry.source(name) not in config.plugins:
            entry, place = registry.get(name), registry.origin(name)
            module = str(getattr(entry, "__module__", ""))
            place = place if place and (place.cell or is_own_file(os.path.abspath(place.file))) else None
            if not is_shipped(module) and module.partition(".")[0] not in packages:  # a plug-in counts whole
                try:
                    found[f"{CODE}{registry.kind} {name}"] = field, read_code(entry, place)
                except (
                    ConfigError,
                    OSError,
                    SyntaxError,
                    RecursionError,
                ) as error:  # of a module that it imports, or may import
                    raise ConfigError(f"{field}: {name!r}: {shorten_error(error)}") from None
    return found


def _list_used(config: RunConfig) -> list[tuple[Registry[Any], str, str]]:
    """List the entries of registries that the run uses: the registry, the field, the name."""
    used = [(registry, field, read_option_owner(config, field)) for field, registry in NAMING.items()]
    used += [(ENCODERS, "model.encoder", name) for name in config.model.encoder.split(",")]
    used += [(PROFILES, "channel.profile", getattr(config.channel.options, "profile", ""))]
    used += [(AUGMENTATIONS, "data.augment", config.data.augment)]
    used += [(TASKS, "task", config.task), (SCHEDULERS, "network.scheduling", config.network.scheduling)]
    used += [(METRICS, "train.metrics", name) for name in config.train.metrics]
    used += [(HEADS, "model.head", config.model.head), (DATASETS, "new-data", config.new_data or "")]
    return [(registry, field, name) for registry, field, name in used if name in registry]


def digest_training(train: Any, plugins: Collection[str]) -> dict[str, str]:
    """Compute the digest of a user's function that carries out runs, by its name in `contents`.

    A function of a plug-in is part of the plug-in's digest.
    """
    module = str(getattr(train, "__module__", ""))
    file = getattr(sys.modules.get(module), "__file__", None)
    if (
        train is None
        or is_shipped(module)
        or file in [locate_plugin(plugin) for plugin in plugins]
        or module in plugins
    ):
        return {}
    return {TRAINING: read_code(train, find_definition(train)).digest}


def find_unshared_entry(config: RunConfig) -> str | None:
    """Find an entry that the run uses and only this process has registered, by its name in `contents`."""
    return next((name for name in config.contents if name.startswith(CODE) and name != TRAINING), None)


def check_reaches_processes(field: str, config: RunConfig) -> None:
    """Raise ConfigError if a run in other processes uses an entry that only this process has registered."""
    if code := find_unshared_entry(config):
        what = f"other processes do not have the {code.removeprefix(CODE)} that is registered here"
        raise ConfigError(f"{field}: {what}; put it into a file of its own, and give that as a plug-in")


def _check_paths(config: RunConfig, named: Mapping[str, Mapping[str, str]]) -> None:
    """Refuse a path before it is read: empty, rejected by the system, missing, or a folder in place of a file.

    Args:
        config: the request.
        named: section -> option -> path.
    """
    data = {"data.name": config.data.name, "new-data": config.new_data}
    places = {field: name for field, name in data.items() if name not in DATASETS}
    places |= {"data.root": config.data.root, "model.weights": config.model.weights}
    files = {"model.weights"}
    for section, own in named.items():
        fields = {f"{section}.{spell_option(name)}": path for name, path in own.items()}
        places |= fields
        if all(NAMING[field].ships(name) for field, name in list_option_owners(config, section).items()):
            files |= fields.keys()
    for field, path in {**places, "out": config.out}.items():
        if path == "":
            raise ConfigError(f"{field}: '' is no path; give one, or leave it out")
        try:
            mode = os.stat(os.path.expanduser(path or "")).st_mode
        except (FileNotFoundError, NotADirectoryError):
            pass  # which may be made, or is the name of a dataset
        except OSError as error:
            raise ConfigError(f"{field}: {path!r} cannot be looked up: {error.strerror}") from None
        else:
            if not stat.S_ISREG(mode) and (field in files or not stat.S_ISDIR(mode)):
                raise ConfigError(f"{field}: {path!r} is no file")


def _locate_dataset(name: str) -> str:
    """Make the path of a dataset in files absolute; the name of a registered dataset stays."""
    return name if name in DATASETS else str(_path(name))


def _path(path: str | None) -> str | None:
    """Make the path of an existing file absolute."""
    there = path and os.path.exists(os.path.expanduser(path))
    return _make_absolute(path) if path and there else path


def _make_absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))


def _is_path(path: str) -> bool:
    """Check whether a field holds the path of a file or folder; a dataset's name is no absolute path.

    A pipe or a device has no digest, since it may have no end.
    """
    return os.path.isabs(path) and (os.path.isfile(path) or os.path.isdir(path))


def _digest_path(field: str, path: str, whole: bool = False) -> str:
    """Compute the digest of a file, or of the names and contents of a folder's files; see `_list_files`."""
    try:
        found = ((file, file.stat()) for file in _list_files(path, whole))
        versions = ((file, at.st_size, at.st_mtime_ns, at.st_ctime_ns) for file, at in found)  # a copy may keep mtime
        return _digest_path_once(path, whole, hashlib.sha256(repr(list(versions)).encode()).hexdigest())
    except OSError as error:
        raise ConfigError(f"{field}: {error.filename or path!r} cannot be read: {error.strerror}") from None


@lru_cache(maxsize=4096)
def _digest_path_once(path: str, whole: bool, versions: str) -> str:
    """Compute the digest of a file or folder; it is cached until a size or a time of change differs."""
    if os.path.isfile(path):
        return digest_of_file(Path(path))
    folder = path.removesuffix("*")
    return digest_bytes({file.relative_to(folder).as_posix(): file for file in _list_files(path, whole)})


def _list_files(path: str, whole: bool) -> list[Path]:
    """List the files of a path: itself, the images of an image folder, or all files in another folder or a `whole` one.

    FOLDER/* stands for the files in it, without those of its subfolders.
    """
    if path.endswith("/*"):
        return sorted(file for file in Path(path[:-1]).iterdir() if file.is_file())
    if not os.path.isdir(path):
        return [Path(path)]
    images = [] if whole else list_image_files(Path(path))
    return images or sorted(file for file in Path(path).rglob("*") if file.is_file())
