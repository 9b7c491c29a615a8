"""Figures of studies: kinds of drawings, their files and pages, and the report."""

from semcom.plots.base import Plot
from semcom.plots.render import plot, render

__all__ = ["Plot", "plot", "render"]
