"""docs/notebooks: every notebook runs from its first cell to its last, in a folder of its own."""

from __future__ import annotations

from pathlib import Path

import jupytext
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
NOTEBOOKS = sorted(path.stem for path in FOLDER.glob("*.py"))


def test_there_are_three() -> None:
    assert NOTEBOOKS == ["first_study", "own_method_and_channel", "reading_results"]


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    nodes = jupytext.read(FOLDER / f"{name}.py")
    client = NotebookClient(nodes, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}})
    client.execute()  # raises CellExecutionError
    printed = [output for cell in nodes.cells for output in cell.get("outputs", [])]
    assert "paired t over" in str(printed), "it compares two methods"
