"""`semcom env`: what a report of a fault has to say of the machine, without a path or a name of its user."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata

from semcom.cli.analysis import read_analysis_words
from semcom.screen import say


@dataclass(frozen=True)
class EnvFlags:
    """Print versions, devices and the kind of installation, for a report of a fault. No folder is named."""


def print_environment(words: list[str]) -> None:
    """Carry out `semcom env`."""
    read_analysis_words(words, (), EnvFlags(), "semcom env")
    say("\n".join(f"{name + ':':<14} {value}" for name, value in _describe_environment()))


def _describe_environment() -> Iterator[tuple[str, str]]:
    import psutil
    import torch

    from semcom.data.sources import PUBLISHED, is_dataset_cached
    from semcom.runs.folder.machine import describe_machine
    from semcom.runs.folder.versions import read_commit

    commit, machine = read_commit(), describe_machine(torch.device("cpu"))
    yield "semcom", f"{metadata.version('semcom')}, " + (f"checkout at {commit}" if commit else "wheel")
    yield "python", f"{platform.python_version()} ({platform.python_implementation()}) on {platform.platform()}"
    yield "torch", f"{machine['torch']}, build {machine['build']}, {machine['threads']} threads, {machine['vector']}"
    memory = f"{psutil.virtual_memory().total / 2**30:.0f} GiB"
    yield "processor", f"{machine['processor']}, {psutil.cpu_count(logical=False)} cores, {memory}"
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    yield "GPU", f"{', '.join(gpus)}, CUDA {torch.version.cuda}" if gpus else "none that torch can use"
    required, extra = (dict(_list_requirements(extra)) for extra in (False, True))
    yield "packages", ", ".join(f"{name} {version or 'missing'}" for name, version in required.items())
    yield "of extras", ", ".join(f"{name} {version}" for name, version in extra.items() if version) or "none"
    cached = [name for name in (*PUBLISHED, "cinic10") if is_dataset_cached(name)]
    yield "images", f"{', '.join(cached) or 'none'} in the cache"


def _list_requirements(of_extras: bool) -> Iterator[tuple[str, str | None]]:
    """List the packages that semcom, or one of its extras, names, with their versions here (None: not installed)."""
    for line in metadata.requires("semcom") or ():
        name = re.split(r"[\s<>=!~;\[]", line, maxsplit=1)[0]
        if ("extra ==" in line) != of_extras or name == "semcom":
            continue
        try:
            yield name, metadata.version(name)
        except metadata.PackageNotFoundError:
            yield name, None
