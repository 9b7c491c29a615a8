"""`semcom export`: the model of a run as a file of weights, with a card."""

from __future__ import annotations

from dataclasses import dataclass

import semcom
from semcom.cli.analysis import read_analysis_words
from semcom.cli.fields import PLUGIN, TRUST
from semcom.screen import say


@dataclass(frozen=True)
class ExportFlags:
    """Write a trained model as model.safetensors, and README.md, a card that says what it is and how to load it.

    RUN comes first: the folder of a finished run.
    """

    client: int | None = None
    """Client whose model it is (None: the one of all clients, where they have one)."""
    view: str | None = None
    """View of the method (None: the first one, its headline)."""
    out: str | None = None
    """Folder of the files (None: RUN/export)."""
    plugins: PLUGIN = ()
    """Your Python file or module in the place of a plug-in that the run names (repeatable)."""
    trust: TRUST = False
    """Execute the plug-ins that the run names."""


def carry_out_export(words: list[str]) -> None:
    """Carry out `semcom export RUN`."""
    (folder,), wanted = read_analysis_words(words, ("RUN",), ExportFlags(), "semcom export")
    from semcom.runs.result.export import export_model  # imports torch

    found = semcom.load(folder, plugins=wanted.plugins, trust=wanted.trust)
    for path in export_model(found, wanted.client, wanted.view, wanted.out):
        say(f"export: {path}")
