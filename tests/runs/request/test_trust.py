"""Looking at results executes nothing that they name; what needs a plug-in says which, and asks."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

import semcom
from semcom.cli import main as cli
from semcom.files import digest_of_file
from semcom.runs.folder.summary import format_summary, read_summary
from tests.processes import Forked

PLUGIN = '''
from pathlib import Path

from semcom import METHODS
from semcom.methods.fedavg import FedAvg

Path("executed").touch()


@METHODS.register("test-owned")
class Owned(FedAvg):
    """FedAvg under another name."""

    paper, shares, personal, sends = "none", "both", "none", "both"
'''
SMALL = "--clients 2 --partition.shots 4 --train.rounds 1 --model.encoder dcgan-narrow --model.features 64"
RADIO = "--channel.kind ofdm --device cpu --keep confusion"


def carry_out(each: Sequence[Sequence[str]], wanted: int) -> int:
    """Carry out commands one after the other, and return the first status that is not the wanted one, or that."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return next((status for words in each if (status := cli.main(list(words))) != wanted), wanted)


def check(each: Sequence[Sequence[str]], wanted: int = 0) -> str:
    """Carry out commands where no plug-in is loaded yet, which all end with a status; return what they say on stderr.

    What the plug-in leaves when it is executed is removed before.
    """
    Path("executed").unlink(missing_ok=True)
    with Forked(carry_out, each, wanted) as process:
        said = process.stderr.read()
        assert process.wait() == wanted, said
    return said


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of one run of a plug-in's method, trained where it lies."""
    place = tmp_path_factory.mktemp("author")
    (place / "owned.py").write_text(PLUGIN)
    with pytest.MonkeyPatch.context() as here:
        here.chdir(place)
        words = ["train", "test-owned", "--plugin", "owned.py", *f"{SMALL} {RADIO}".split()]
        check([[*words, "--out", "study/run"]])
        assert Path("executed").exists()
        key = semcom.study("study").stored[0].hash
        (place / "study" / "run").rename(place / "study" / key)
    return place / "study"


@pytest.fixture(params=["the author's path", "a file of this folder", "a module of this folder", "an archive"])
def named(
    study: Path, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """The study, or its archive, with its plug-in named in one of the ways, in a folder where it can be found."""
    place = tmp_path / "reader"
    shutil.copytree(study, place / "study")
    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(str(place))
    shutil.copy(study.parent / "owned.py", place / "owned.py")
    (config,) = place.glob("study/*/config.json")
    if request.param == "an archive":
        assert cli.main(["pack", "study", "--arrays"]) == 0
        yield Path("study.zip")
        return
    name = {"the author's path": str(study.parent / "owned.py"), "a file of this folder": "owned.py"}
    found = json.loads(config.read_text())
    ((old, digest),) = found["contents"].items()
    plugin = name.get(request.param, "owned")
    config.write_text(json.dumps({**found, "plugins": [plugin], "contents": {plugin: digest}}))
    yield Path("study")


def test_no_look_at_a_result_executes_what_it_names(named: Path) -> None:
    looks = [
        *(["show", str(named)], ["show", str(named / semcom.study(named).stored[0].hash)], ["report", str(named)]),
        *(["results", str(named), "--csv", "tables"], ["table", str(named)], ["plot", str(named)]),
        *(["plot", str(named), "--kind", "confusion"], ["plot", str(named), "--x", "round"]),
    ]
    check(looks)
    assert not Path("executed").exists()
    assert semcom.study(named).runs["method"].tolist() == ["test-owned"], "by its name"


@pytest.mark.parametrize("named", ["a file of this folder", "an archive"], indirect=True)
def test_what_needs_the_code_asks_and_says_what_it_would_execute(named: Path) -> None:
    run = named / semcom.study(named).stored[0].hash
    wanted = [["train", "--config", str(run), "--out", "again"], ["plot", str(named), "--kind", "response"]]
    wanted += [["export", str(run), "--client", "0", "--out", "exported"]] if run.is_dir() else []
    told = check(wanted, 2).splitlines()
    assert len(told) == len(wanted) and not Path("executed").exists()
    for words, line in zip(wanted, told, strict=True):
        assert line.startswith("semcom: error: plugin: ") and "--plugin FILE" in line
        if named.suffix != ".zip" or words[0] == "train":  # an archive names no folder, and a plot looks for none
            assert digest_of_file(Path("owned.py"))[:12] in line
    check([[*words, "--plugin", "owned.py"] for words in wanted])
    assert Path("executed").exists()
    if named.suffix != ".zip":
        for words in wanted[1:]:
            check([[*words, "--trust"]])
            assert Path("executed").exists(), words


def load_it(run: str, **asked: object) -> int:
    """Load a run, and return 0; 2 where it is refused."""
    try:
        semcom.load(run, **asked)  # type: ignore[arg-type]
    except semcom.ConfigError as error:
        assert error.field == "plugin"
        return 2
    return 0


def test_loading_executes_on_the_users_word(study: Path, here: Path) -> None:
    (run,) = map(str, study.iterdir())
    shutil.copy(study.parent / "owned.py", "owned.py")
    given = partial(load_it, plugins=("owned.py",))
    for work, status in ((load_it, 2), (given, 0), (partial(load_it, trust=True), 0)):
        with Forked(work, run) as process:
            assert process.wait() == status, process.stderr.read()
        assert Path("executed").exists() is (status == 0)
        Path("executed").unlink(missing_ok=True)
    Path("owned.py").write_text(f"{PLUGIN}\nmore = 1\n")
    with Forked(given, run) as process:
        assert process.wait() != 0, "another content is another run"


def test_a_summary_that_names_a_file_as_its_method_or_experiment_is_only_text(study: Path, here: Path) -> None:
    """`.py` names are looked up as experiments where a user gives them; nothing that is stored is looked up so."""
    shutil.copytree(study, "study")
    Path("owned.py").write_text(PLUGIN)
    (run,) = Path("study").iterdir()
    found = read_summary(run) or {}
    (run / "summary.json").write_text(format_summary({**found, "method": "owned.py", "label": "owned.py"}))
    variants = {run.name: "owned.py"}
    record = {"experiment": "owned.py", "scale": "owned.py", "command": "semcom sweep owned.py", "variants": variants}
    Path("study/sweep.json").write_text(json.dumps({**record, "plugins": ["owned.py"], "set": {}, "axes": {}}))
    check([["show", "study"], ["report", "study"], ["table", "study"], ["pack", "study"]])
    assert not Path("executed").exists()
