"""Every shell block of every page runs as it stands, in a folder with the stored results, or says that it does not.

The blocks of a page share a folder. Those of the pages of results, which read all archives, take minutes and are run
where `SEMCOM_BLOCKS` is set. Those of the pages and sections in `FOLLOWED` are run by other tests; of those that
are not run each `semcom` command is a request that is accepted as far as that can be seen without its data.
"""

from __future__ import annotations

import contextlib
import glob
import io
import os
import runpy
import shlex
import string
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from semcom.cli import flags, grids
from semcom.cli import main as cli
from semcom.config import RunConfig
from semcom.runs.request.resolve import resolve
from semcom.studies.registry import find_experiment
from semcom.studies.sweep import divisions
from semcom.studies.sweep.plan import make_plan
from semcom.studies.sweep.request import parse_request
from tests.pages import PAGES, ROOT, SKIP, Block, make_smaller, sections
from tests.test_readme import TESTED

pytestmark = pytest.mark.usefixtures("own_names", "thin")
SHELLS = ("bash", "sh", "shell", "console", "zsh")
FOLLOWED = {
    **TESTED,
    "docs/data.md": ("Clients with little data", "Splits that are written, and those of others"),
    "docs/metrics.md": ("New clients",),
    "docs/methods.md": ("The last stage",),
    "docs/studies.md": tuple(sections("docs/studies.md")),
    "docs/tutorial.md": tuple(sections("docs/tutorial.md")),
}
"""Page -> sections whose blocks the tests of that page run."""


def blocks(page: str, run: bool) -> Iterator[Block]:
    """Yield the shell blocks of a page that are run here, with its Python files, or those that are not run."""
    for heading, found in sections(page).items():
        for block in found:
            if block.language in SHELLS and (block.comment == SKIP) != run:
                if not run or heading not in FOLLOWED.get(page, ()):
                    yield block
            elif run and block.file:
                yield block


def words(text: str) -> Iterator[list[str]]:
    """Yield the words of each line of a block as a shell would expand them."""
    variables: dict[str, str] = {}
    for line in text.replace("\\\n", " ").splitlines():
        found = [string.Template(word).safe_substitute(variables) for word in shlex.split(line, comments=True)]
        if len(found) == 1 and "=" in found[0]:
            variables.update([found[0].split("=", 1)])
        elif found:
            yield [path for word in found for path in ((sorted(glob.glob(word)) if "*" in word else []) or [word])]


def carry_out(command: list[str]) -> None:
    if command[0] == "semcom":
        assert cli.main(command[1:]) == 0, command
        return
    assert command[:2] == ["python", "-m"], command
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(SystemExit):
        patch.setattr(sys, "argv", command[2:])
        runpy.run_module(command[2], run_name="__main__")


def test_every_language_is_one_that_is_looked_at() -> None:
    languages = {block.language for page in PAGES for found in sections(page).values() for block in found}
    assert languages <= {"bash", "python", "text", "bibtex", "latex", "json", "toml", "yaml"}


QUICK = ("arms_small", "benchmark", "bounds", "catalogue", "protocol")
"""Pages beside the experiments that do not read the stored results of a whole paper."""


def long(page: str) -> bool:
    results = page.startswith("experiments/") and Path(page).stem not in QUICK
    return results and not os.environ.get("SEMCOM_BLOCKS")


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if any(b.language != "python" for b in blocks(page, True)) and not long(page)],
)
def test_blocks_run_as_they_stand(page: str, here: Path) -> None:
    (here / "experiments").symlink_to(ROOT / "experiments")
    for block in blocks(page, True):
        if block.language == "python":
            block.write(here)
            continue
        for command in words(make_smaller(block.text, page)):
            with contextlib.redirect_stdout(io.StringIO()):
                carry_out(command)


def accept(command: list[str]) -> None:
    """Read and check the request of a `semcom` command; of digits, which are there, the data too."""
    at = command.index("semcom") + 1 if "semcom" in command else 0
    if command[at] not in ("train", "sweep"):
        return
    early = flags.read_early_flags(command[at + 1 :])
    if command[at] == "train":
        config: RunConfig = flags.read_train_flags(early)
        resolve(config)
        return
    declared = None if early.name is None or early.name.endswith(".py") else find_experiment(early.name)
    if early.name and declared is None:
        return  # a file of the reader's
    wanted = flags.parse_flags(flags.SweepFlags(), "semcom sweep", early.rest)
    request = parse_request(**grids.read_grid_request(wanted, *grids.find_grid_in_use(declared, wanted.scale)))
    plan = make_plan(early.name, wanted.scale, request, early.plugins, "out")
    divisions.check_sweep_data(config for config in plan.runs.values() if config.data.name == "digits")


@pytest.mark.parametrize("page", [page for page in PAGES if list(blocks(page, False))])
def test_blocks_that_are_not_run_are_requests_that_are_accepted(page: str, here: Path) -> None:
    (here / "data").mkdir()
    for block in blocks(page, False):
        for command in words(block.text.replace("/shared/", "").replace("&\n", "\n")):
            if not {"city.npz", "mine.py", "--from-pfllib"} & set(command):  # files of the reader's
                accept(command)
