"""Named experiments: grids of runs, the sweep that carries them out, and the table of their results."""
