"""What the tests of experiments share."""

from __future__ import annotations

import pytest


@pytest.fixture
def without_stored_results(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results that come with the package are no evidence."""
    monkeypatch.setattr("semcom_papers.experiments.claims.evidence.COMMITTED", tmp_path_factory.mktemp("none"))
