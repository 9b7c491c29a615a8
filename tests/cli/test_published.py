"""What is drawn, written and exported for others names no folder."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

import semcom
from semcom.cli import main as cli
from semcom.runs.result.export import export_model


def test_what_is_published_names_no_folder(here: Path) -> None:
    """Tables, LaTeX, figures, their numbers, the report and a model's card have the file's name."""
    own = here / "of me" / "animals.npz"
    own.parent.mkdir()
    images, labels = np.zeros((40, 8, 8, 3), np.uint8), np.arange(40) % 4
    np.savez(own, x_train=images, y_train=labels, x_test=images, y_test=labels)
    size = {"clients": 2, "train.rounds": 1, "partition.shots": 5, "partition.ways": 2, "model.encoder": "mlp"}
    table = semcom.sweep(methods="local", seeds=0, keep="weights", set={**size, "data.name": str(own)}, out="study")
    files = [*semcom.plot("study", semcom.Plot(x="data.name", kind="bars")), semcom.report("study", out="page.html")]
    folder = next(path for path in Path("study").iterdir() if path.is_dir())
    files += export_model(semcom.load(folder), client=0)
    for name in ("table.md", "table.tex", "table.csv"):
        assert cli.main(["table", "study", "--out", name]) == 0
        files.append(Path(name))
    texts = {
        path.name: path.read_text() for path in map(Path, files) if path.suffix in (".csv", ".md", ".tex", ".html")
    }
    assert [name for name, text in texts.items() if str(own.parent) in text or str(here) in text] == []
    assert "animals.npz" in texts["bars.csv"] and "animals.npz" in texts["table.md"]
    assert f"SHA-256 {hashlib.sha256(own.read_bytes()).hexdigest()[:12]}" in texts["README.md"]
    assert str(here) not in (table.parent / "results.md").read_text()
