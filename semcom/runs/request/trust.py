"""The user's consent to code that stored results name: without it no plug-in is executed, and no file is read."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path

from semcom.config import ConfigError, RunConfig
from semcom.files import digest_of_file
from semcom.runs.request.plugins import digest_plugin, list_loaded_plugins, load_plugins, locate_plugin

_TRUSTED: ContextVar[bool] = ContextVar("trusted", default=False)


@contextmanager
def trust_results(trust: bool) -> Iterator[None]:
    """Take the user's word for all that stored results name while the context lasts."""
    token = _TRUSTED.set(trust)
    try:
        yield
    finally:
        _TRUSTED.reset(token)


def check_trusted_file(field: str, path: str) -> None:
    """Raise ConfigError for a file that a stored result names, unless `trust_results` surrounds the call."""
    if not _TRUSTED.get():
        raise ConfigError(f"{field}: {path!r}, which the run names, would be read; give --trust (trust=True) to do so")


def take_trusted_plugins(config: RunConfig, trust: bool = False) -> RunConfig:
    """Replace the plug-ins of a stored configuration by those that this process has imported.

    A file that it names, as an archive without its folder, is replaced by a loaded one of the same content, or else of
    the same name. `resolve` refuses the configuration if the content differs.

    Args:
        config: as it was read, from anybody's folder or archive.
        trust: whether plug-ins that are not loaded yet are executed.

    Raises:
        ConfigError: a plug-in is neither loaded nor trusted; the line names the file.
    """
    loaded = list_loaded_plugins()
    names = {os.path.basename(plugin): plugin for plugin in loaded}
    digests = {digest_plugin(plugin): plugin for plugin in loaded}
    found = {}
    for plugin in config.plugins:
        place = locate_plugin(plugin)
        alike = digests.get(config.contents.get(plugin, ""), names.get(os.path.basename(plugin)))
        same = place if place in loaded else alike
        if same is None and not (trust or _TRUSTED.get()):
            raise ConfigError(f"plugin: {_describe_plugin(plugin)} would be executed; look at it, then {_ASK}")
        found[plugin] = same or place
    load_plugins(found.values())
    contents = {found.get(name, name): digest for name, digest in config.contents.items()}
    return replace(config, plugins=tuple(found.values()), contents=contents)


_ASK = "give --plugin FILE (Python: plugins=) with yours, or --trust (trust=True)"


def _describe_plugin(plugin: str) -> str:
    """Describe the file of a plug-in, with the beginning of its digest, without any import."""
    file = locate_plugin(plugin)
    if not file.endswith(".py"):
        try:
            found = importlib.util.find_spec(plugin.partition(".")[0])  # of a name with dots, all but the last
        except (ImportError, ValueError):
            found = None
        file = found.origin if found is not None and found.origin else ""
    try:
        return f"{plugin!r} ({file}, sha256 {digest_of_file(Path(file))[:12]})"
    except (OSError, ValueError):
        return f"{plugin!r} (which is not here)"
