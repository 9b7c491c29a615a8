"""Grids of runs: the fields that vary, the spelling and names of their values, the cost of a run."""
