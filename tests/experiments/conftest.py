"""The fixtures of studies, for those of the papers."""

from tests.studies.conftest import fake_run, own_names, quick_resolve

__all__ = ["fake_run", "own_names", "quick_resolve"]
