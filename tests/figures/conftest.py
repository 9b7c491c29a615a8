"""The fixtures of plots, for the figures that have names."""

from tests.plots.conftest import quick_resolve, stored

__all__ = ["quick_resolve", "stored"]
