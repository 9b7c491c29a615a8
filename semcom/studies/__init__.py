"""Grids of runs: the fields that vary, how their values are written, what they are called, what a run costs."""
