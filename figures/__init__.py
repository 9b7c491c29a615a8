"""Figures and tables, rendered from the stored results of sweeps."""

from figures.render import render

__all__ = ["render"]
