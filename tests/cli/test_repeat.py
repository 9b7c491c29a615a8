"""A run that fails in a sweep, for real: what is told of it, and that the command repeats it alone."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from semcom.cli import main as cli
from semcom.runs.folder import read_summary

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


def test_the_command_of_a_failed_run_repeats_it_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
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
        f'    File "{tmp_path / "breaks.py"}", line 16, in round',
        '      raise ValueError("no such luck")',
    ]
    command = told[at + 4].removeprefix("  this run alone: ")
    assert command == f"semcom train --config out/{key}/config.json --plugin {tmp_path / 'breaks.py'}"
    Path("broken").unlink()
    assert cli.main(shlex.split(command)[1:]) == 0
    done = [path.name for path in Path("out").iterdir() if path.is_dir() and read_summary(path, path.name)]
    assert done == [key] and len(list(Path("out").glob("*/config.json"))) == 2
    assert cli.main(sweep) == 0 and "1 of 2 runs were finished already" in capsys.readouterr().err
