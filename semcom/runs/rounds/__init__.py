"""The rounds of a run, from the first to its summary."""
