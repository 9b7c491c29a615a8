"""Figures and tables, rendered from the stored results of sweeps."""

from figures.base import Plot
from figures.render import plot, render

__all__ = ["Plot", "plot", "render"]
