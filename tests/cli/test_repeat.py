"""A run that fails in a sweep, for real: what is told of it, and that the command repeats it alone."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from semcom.cli import main as cli
from semcom.config import run_hash
from semcom.runs.folder.summary import read_summary
from semcom.studies.results import failures
from semcom.studies.results.archive import pack_archive
from semcom.studies.results.failures import Repeat, read_repeat
from tests.studies.folders import config, line, scored, write

PLUGIN = '''
from pathlib import Path

from semcom import METHODS
from semcom.methods.fedavg import FedAvg


@METHODS.register("test-breaks")
class Breaks(FedAvg):
    """FedAvg that breaks in round 2 while a file is there."""

    paper, shares, personal, sends = "none", "both", "none", "both"

    def round(self, state, world):
        if world.session.draws.round == 2 and Path("broken").exists():
            raise ValueError("no such luck")
        return super().round(state, world)
'''
SMALL = "clients=2 partition.shots=4 train.rounds=3 model.encoder=dcgan-narrow device=cpu"


def test_the_command_of_a_failed_run_repeats_it_alone(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("breaks.py").write_text(PLUGIN)
    Path("broken").touch()
    words = [word for setting in SMALL.split() for word in ("--set", setting)]
    sweep = ["sweep", "--methods", "test-breaks", "--seeds", "0..1", "--plugin", "breaks.py", "--out", "out", *words]
    assert cli.main(sweep) == 1
    told = capsys.readouterr().err.splitlines()
    at = next(i for i, text in enumerate(told) if text.startswith("FAILED"))
    key = told[at].rpartition(", ")[2]
    assert told[at] in (f"FAILED test-breaks, seed=0, {key}", f"FAILED test-breaks, seed=1, {key}")
    assert told[at + 1].startswith(
        "  RunError: round 2: ValueError: no such luck (breaks.py, line 16); last good state"
    )
    assert told[at + 2 : at + 4] == [
        f'    File "{here / "breaks.py"}", line 16, in round',
        '      raise ValueError("no such luck")',
    ]
    command = told[at + 4].removeprefix("  this run alone: ")
    assert command == f"semcom train --config out/{key}/config.json --plugin {here / 'breaks.py'}"
    Path("broken").unlink()
    assert cli.main(shlex.split(command)[1:]) == 0
    done = [path.name for path in Path("out").iterdir() if path.is_dir() and read_summary(path, path.name)]
    assert done == [key] and len(list(Path("out").glob("*/config.json"))) == 2
    assert cli.main(sweep) == 0 and "1 of 2 runs were finished already" in capsys.readouterr().err


def strip_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has imported no plug-in."""
    monkeypatch.setattr(failures, "list_loaded_plugins", list)


NAMED = [
    ("/home/somebody/own.py",),
    ("own.py",),
    ("../up/own.py", "/srv/with spaces/other.py"),
    ("json.tool",),
    ("~somebody/own.py", "train"),
    ("/x\x1b[2J/own.py",),
]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("plugins", NAMED)
def test_no_path_of_somebody_else_is_in_a_command_to_paste(
    plugins: tuple[str, ...],
    packed: bool,
    here: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In `show` of a run and of a study with a failed one, and in a report, be it a folder or an archive."""
    monkeypatch.setenv("COLUMNS", "400")
    strip_loaded(monkeypatch)
    for seed in (0, 1):
        of = replace(config("fedcl", seed, rounds=1), plugins=plugins)
        run = write(Path("s") / f"run{seed}", of, [line(1, {"personal": scored((0.1, 0.2))})])
    (run / "summary.json").unlink()
    (run / "error.txt").write_text("ValueError: no such luck\n")
    place = pack_archive("s") if packed else Path("s")
    assert cli.main(["show", f"{place}/run0"]) == 0
    assert cli.main(["show", str(place)]) == 0
    told = capsys.readouterr()
    shown = [text for text in (told.out + told.err).splitlines() if "semcom train --config" in text]
    assert len(shown) == 2
    for text in shown:
        words = shlex.split(text[text.index("semcom train") :])
        given = [word for before, word in zip(words, words[1:], strict=False) if before == "--plugin"]
        assert given == ["FILE"] * len(plugins)
        assert not any(plugin in text for plugin in plugins if "/" in plugin)
    assert sum("FILE" in text and "read it first" in text for text in (told.out + told.err).splitlines()) == 2
    assert cli.main(["report", str(place), "--out", "report.html"]) == 0
    page = Path("report.html").read_text()
    assert "--plugin FILE" in page and "read it first" in page and "--plugin /" not in page


def test_a_page_and_a_report_have_no_other_command_than_that_of_a_sweep(here: Path) -> None:
    of = config("fedcl", 0, rounds=1)
    write(Path("s") / run_hash(of), of, [line(1, {"personal": scored((0.1, 0.2))})])
    record = {"experiment": "study", "scale": "own", "plugins": [], "set": {}, "axes": {"seed": [0]}}
    for command, told in (("curl example.org | sh", False), ("semcom sweep /srv/theirs.py --seeds 0", True)):
        record |= {"command": command, "variants": {run_hash(of): "fedcl"}}
        Path("s/sweep.json").write_text(json.dumps(record))
        assert cli.main(["plot", "s", "--kind", "bars", "--x", "method", "--out", "drawn"]) == 0
        assert cli.main(["report", "s", "--out", "report.html"]) == 0
        for text in (Path("drawn/bars.md").read_text(), Path("report.html").read_text()):
            assert "curl example" not in text and "sweep /srv" not in text
            assert ("semcom sweep FILE --seeds 0" in text and "copy of /srv/theirs.py" in text) is told


def test_a_plugin_that_is_imported_here_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "list_loaded_plugins", lambda: [str(Path("mine.py").absolute())])
    found = read_repeat("semcom sweep benchmark --plugin mine.py --plugin other.py")
    assert found == Repeat("semcom sweep benchmark --plugin mine.py --plugin FILE", ("other.py",))


@pytest.mark.parametrize(
    ("left", "handed"),
    [
        ("semcom sweep letter-fig4 --scale small", "semcom sweep letter-fig4 --scale small"),
        ("semcom sweep /home/ann/study.py --scale small", "semcom sweep FILE --scale small"),
        ("semcom sweep a --plugin=evil --set x=1", "semcom sweep a --plugin FILE --set x=1"),
        ("semcom sweep a; rm -rf ~", "semcom sweep 'a;' rm -rf '~'"),
        ("semcom sweep $(touch x) `touch y` > z", "semcom sweep '$(touch' 'x)' '`touch' 'y`' '>' z"),
        ("curl example.org | sh", None),
        ("semcom train --config x", None),
        ("semcom sweep 'a", None),
        ("semcom sweep a\nsemcom sweep b --plugin=c", "semcom sweep a\nsemcom sweep b --plugin FILE"),
        ("semcom sweep a\ncurl example.org | sh", None),
        ("semcom.sweep('a')", None),
        (7, None),
        (None, None),
    ],
)
def test_a_command_that_a_sweep_has_left_carries_out_a_sweep_alone(left: object, handed: str | None) -> None:
    found = read_repeat(left)
    assert (found and found.command) == handed
