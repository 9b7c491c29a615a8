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


def test_without_a_ray_tracer_it_says_what_to_install(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As LLVM does if it is too old: the process that compiles ends."""
    monkeypatch.setattr(raytrace, "TRY", "import sys; sys.exit('LLVM ERROR: Cannot select')")
    assert cli.main(["scene", "munich", "--out", str(tmp_path / "a.npz")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "pip install 'semcom[rt]'" in line and line.endswith("(LLVM ERROR: Cannot select)")
