"""The user's own files: their content as this process imported it, and the files and variables that they read."""

from __future__ import annotations

import ast
import functools
import importlib.util
import os
import re
import stat
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import FrameType
from typing import Any, TypeGuard

from semcom.channels.registry import locate_code_source, read_executed_cell
from semcom.config.identity import READ
from semcom.packages import list_own_folders

_OURS = list_own_folders()
_PLACES = ("stdlib", "platstdlib", "purelib", "platlib", "scripts")
_INSTALLED = {os.path.join(sysconfig.get_path(name), "") for name in _PLACES}
_FOREIGN = (*_OURS, *{place for path in _INSTALLED for place in (path, os.path.join(os.path.realpath(path), ""))})
_SYSTEM = ("/proc/", "/sys/", "/etc/", "/usr/", os.path.join(os.path.expanduser("~"), "."))
"""Places of files that do not affect a run: the system's, and hidden ones of programs at home, such as caches."""
_SURROUNDINGS = re.compile(
    "HOME|USER|LOGNAME|PATH|PWD|SHELL|TERM|LANG|DISPLAY|T(E?MP|MPDIR)|HOSTNAME|(LOCAL_|NODE_)?RANK|(LOCAL_)?WORLD_SIZE|"
    "CUDA_VISIBLE_DEVICES|(XDG|LC|SLURM|PBS|LSB|MASTER|OMP|MKL|OPENBLAS|NCCL|GLOO|RAY|TORCHELASTIC|WANDB|PYTEST)_.*|"
    ".*(TOKEN|KEY|SECRET|PASSWORD).*"
)
"""Variables that describe the surroundings of a process, or hold a secret."""
_READERS = os.path.join(_OURS[0], "data", "")
"""Modules of functions that own code may call to read a file; all else that semcom opens is its own."""
_VARIABLE = re.compile(rb"""\b(?:environ(?:\.(?:get|pop|setdefault))?|getenv)\s*[\[(]\s*["'](\w+)["']""")
_WRITING = os.O_WRONLY | os.O_RDWR
_IMPORT = "<frozen importlib"

Version = tuple[int, int, int]
_kept: dict[str, bytes] = {}
"""Own file -> its content when this process imported it."""
_opened: dict[str, dict[int, dict[str, Version]]] = {}
"""Own file, or the text of a cell -> its line -> the files that it opened for reading as it was executed."""
_written = set[str]()
"""What runs wrote as they were set up, such as a cache, which they may read again."""
_watched: list[dict[str, Version]] = []
_busy = False


@dataclass(frozen=True)
class Code:
    """The sources and variables on which an entry of the user's own rests."""

    digest: str
    """Of its text, of the modules that this imports, and of values."""
    variables: set[str]
    """Environment variables that it asks for."""
    sources: Mapping[str, frozenset[int]]
    """Own file, or the text of a cell -> those of its lines that do not belong to it."""


def is_shipped(name: str) -> bool:
    """Check whether a module is part of semcom."""
    return name.partition(".")[0] in ("semcom", "semcom_papers")


def is_own_file(file: str | None) -> TypeGuard[str]:
    """Check whether a file is the user's: outside of semcom, Python and installed packages."""
    return file is not None and os.path.isabs(file) and _lies_outside(file)


@functools.lru_cache(maxsize=65536)
def _lies_outside(file: str) -> bool:
    return not file.startswith(_FOREIGN) and not {"site-packages", "dist-packages"} & {*file.split(os.sep)}


def read_source(file: Path | str) -> bytes:
    """Read an own file as this process imported it, or else its present content."""
    return _kept.get(os.path.abspath(file)) or Path(file).read_bytes()


# -- imports ---------------------------------------------------------------------------------------------------------


def add_imported_sources(
    files: Mapping[str, Path], path: Sequence[str] = (), text: str = "", package: str = ""
) -> dict[str, Path]:
    """Add all of the user's own modules that some modules import, directly or not, found as Python finds them.

    Args:
        files: name of a module -> its file.
        path: a folder in which modules are found before those of `sys.path`.
        text: code outside of any file, whose imports count too.
        package: the package of `text`.
    """
    found, left, seen = dict(files), [*files, *([""] if text else [])], set[str]()
    while left:
        name = left.pop()
        file = found.get(name)
        if file is None:
            wanted = _list_imports(text.encode(), "", package)
        else:
            within = name if file.name == "__init__.py" else name.rpartition(".")[0]
            wanted = frozenset[str]()
            with suppress(SyntaxError):  # of what this Python cannot read, and so not import, as for a later one
                wanted = _list_imports(read_source(file), str(file), within) if file.suffix == ".py" else wanted
        for module, place in (pair for each in sorted(wanted - seen) for pair in _find_own_files(each, path)):
            if module not in found:
                found[module] = place
                left.append(module)
        seen |= wanted
    return dict(sorted(found.items()))


@functools.lru_cache(maxsize=4096)  # each request asks anew, of a package for all of its files
def _list_imports(source: bytes, file: str, package: str) -> frozenset[str]:
    """List the dotted names that a file may import, anywhere in it; for `from a import b` both a and a.b."""
    found = set[str]()
    for node in ast.walk(ast.parse(source, file)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            with suppress(ImportError):  # a relative import without a package, or above it, fails when it is executed
                base = importlib.util.resolve_name("." * node.level + base, package or None)
                found |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    return frozenset(found)


def _find_own_files(name: str, first: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """Yield the user's own files of a module and of its packages; `a.*` is all of a."""
    path: Sequence[str] | None = None
    words = name.split(".")
    for count, word in enumerate(words, 1):
        module = ".".join(words[:count])
        if word == "*":
            for file in sorted(inside for folder in path or () for inside in Path(folder).glob("*.py")):
                if file.name != "__init__.py":
                    yield f"{module[:-1]}{file.stem}", file
            return
        spec = _find_spec(module, path, first)
        if spec is None:
            return
        if spec.origin and spec.has_location and is_own_file(spec.origin):
            yield module, Path(spec.origin)
        elif spec.origin:  # another's package holds nothing of the user's
            return
        path = spec.submodule_search_locations
        if path is None:
            return


def _find_spec(module: str, path: Sequence[str] | None, first: Sequence[str]) -> ModuleSpec | None:
    """Find where this process has a module from, or Python would find it, without any import."""
    if first and path is None and (beside := PathFinder.find_spec(module, first)) is not None and beside.origin:
        return beside
    there: ModuleSpec | None = getattr(sys.modules.get(module), "__spec__", None)
    if there is not None:
        return there
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        try:
            if find is not None and (spec := find(module, path)) is not None:
                return spec
        except KeyError:  # a folder without __init__.py inside another, which Python only finds once that is imported
            spec = ModuleSpec(module, None, is_package=True)
            spec.submodule_search_locations = [str(Path(folder, module.rpartition(".")[2])) for folder in path or ()]
            return spec
    return None


# -- what is read ----------------------------------------------------------------------------------------------------


def list_read_variables(sources: Iterable[bytes]) -> set[str]:
    """List the environment variables that code reads by a constant name, without those of its surroundings."""
    return {name for source in sources for name in _list_variables(source)}


@functools.lru_cache(maxsize=4096)
def _list_variables(source: bytes) -> frozenset[str]:
    found = {name.decode() for name in _VARIABLE.findall(source)}
    return frozenset(name for name in found if not _SURROUNDINGS.fullmatch(name))


def list_opened(code: Code) -> dict[str, Version]:
    """List the files that own code opened during its import or execution."""
    return {
        path: version
        for source, others in code.sources.items()
        for line, paths in _opened.get(source, {}).items()
        if line not in others
        for path, version in paths.items()
    }


@contextmanager
def watch_reads() -> Iterator[dict[str, Version]]:
    """Give the files that own code opens for reading while the context lasts."""
    reads: dict[str, Version] = {}
    _watched.append(reads)
    try:
        yield reads
    finally:
        _watched.pop()


def list_reads(contents: Mapping[str, str]) -> list[str]:
    """List the files that a run read during set-up."""
    return [name.removeprefix(READ) for name in contents if name.startswith(READ)]


def stat_version(path: str) -> Version | None:
    """Read the size and times of change of a file; None for a path that is no file."""
    try:
        at = os.stat(path)
    except OSError:
        return None
    return (at.st_size, at.st_mtime_ns, at.st_ctime_ns) if stat.S_ISREG(at.st_mode) else None


def _hear_opening(event: str, arguments: tuple[Any, ...]) -> None:
    """Note a file that is opened or replaced by another: an audit hook of Python's."""
    global _busy
    if _busy or event not in ("open", "os.rename"):
        return
    path, flags = (arguments[0], arguments[2]) if event == "open" else (arguments[1], _WRITING)
    if not isinstance(path, str | bytes):
        return
    _busy = True
    try:
        _note_opened(os.path.abspath(os.fsdecode(path)), flags or 0, sys._getframe(1))
    except Exception:  # whatever it is, the program that opens a file goes on
        pass
    finally:
        _busy = False


def _note_opened(path: str, flags: int, frame: FrameType) -> None:
    if path.endswith(".py") and not frame.f_code.co_filename.startswith(_IMPORT):
        if os.path.basename(frame.f_code.co_filename) in ("tokenize.py", "linecache.py", "inspect.py"):
            return  # it is read to be shown
    elif path.endswith((".py", ".pyc")):
        path = importlib.util.source_from_cache(path) if path.endswith(".pyc") else path
        if not is_own_file(path):
            return
        _note_own_file(path)
        while frame.f_back and frame.f_code.co_filename.startswith(_IMPORT):
            frame = frame.f_back
    if path.startswith((*_FOREIGN, *_SYSTEM)) or not is_own_file(path):
        return
    elif flags & _WRITING:
        _written.update([path] if _watched else [])
        for reads in _watched:
            reads.pop(path, None)
    elif path not in _written and (reads := _find_read_files(frame)) is not None and (version := stat_version(path)):
        reads[path] = version


def _find_read_files(frame: FrameType | None) -> dict[str, Version] | None:
    """Find the record for a file that a frame opens: of a line of own code, or of a run in set-up; None for others."""
    own = False
    while frame is not None:
        file = locate_code_source(frame.f_code)
        if (cell := read_executed_cell(frame.f_globals)) or is_own_file(file):
            own = True
            if frame.f_code.co_name == "<module>":
                return _opened.setdefault(cell or file, {}).setdefault(frame.f_lineno, {})
        elif file.startswith(_IMPORT) and not own:  # somebody else's module is imported
            return None
        elif file.startswith(_OURS) and (own or not file.startswith(_READERS)):
            break
        frame = frame.f_back
    return _watched[-1] if own and _watched else None


def _note_own_file(file: str) -> None:
    with suppress(OSError):
        _kept[file] = Path(file).read_bytes()


def listen_to_imports() -> None:
    """Begin to take note of own files that are imported, and of those that own code opens."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__dict__", {}).get("__file__")
        if isinstance(file, str) and file.endswith(".py") and is_own_file(os.path.abspath(file)):
            _note_own_file(os.path.abspath(file))
    sys.addaudithook(_hear_opening)
