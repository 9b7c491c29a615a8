"""`semcom scene`: the map of a scene that ships, and requests that cannot be met."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from semcom.channels import raytrace
from semcom.cli import main as cli


def test_the_map_of_a_scene_that_ships(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["scene", "munich-20", "--plot", str(tmp_path / "map.png")]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("munich: 20 clients at 9 times in 120 s, ") and first.endswith(" at 3.5 GHz, 4 antennas")
    assert second == f"figure: {tmp_path / 'map.png'}"
    with Image.open(tmp_path / "map.png") as picture:
        colours = picture.convert("RGB").getcolors(1 << 24)
    assert len(colours) > 50  # streets, buildings and a radio map


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "scene: none is given; known are munich, etoile, "),
        (["munich-20"], "out: no file is named; give the .npz that is to be written, or --plot PICTURE"),
        (["munich-20", "--plot", "map.png", "--clients", "5"], "clients: it is for a scene that is traced; give --out"),
        (["munic", "--plot", "map.png"], "scene: 'munic' is no file, and none of those that ship: munich-20"),
        (["munich", "--out", "a.txt"], "out: 'a.txt' does not end in .npz; "),
        (["munich", "--out", "no/a.npz"], "out: there is no folder 'no'"),
        (["munich", "--out", "a.npz", "--clients", "0"], "clients: 0 is not a whole number of at least 1"),
        (["munich", "--out", "a.npz", "--at", "1,2"], "at: '1,2' is not x,y,z, three numbers of metres"),
        (["munich", "--out", "a.npz", "--times", "3"], "times: 3 has no effect, as nobody walks; "),
        (["munich", "--out", "a.npz", "--walk", "1"], "walk: 1 has no effect with a single time; give times"),
        (["munich", "--out", "a.npz", "--walk", "-1"], "walk: -1.0 is not a number from 0 to 100 m/s"),
    ],
)
def test_a_request_that_is_wrong(words: list[str], why: str, capsys: pytest.CaptureFixture[str], here: Path) -> None:
    assert cli.main(["scene", *words]) == 2
    assert capsys.readouterr().err.startswith(f"semcom: error: {why}")
    assert not list(here.iterdir())


def test_without_a_ray_tracer_it_says_what_to_install(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As LLVM does if it is too old: the process that compiles ends."""
    monkeypatch.setattr(raytrace, "TRY", "import sys; sys.exit('LLVM ERROR: Cannot select')")
    assert cli.main(["scene", "munich", "--out", str(tmp_path / "a.npz")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "pip install 'semcom[rt]'" in line and line.endswith("(LLVM ERROR: Cannot select)")
