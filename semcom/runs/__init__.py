"""Runs, from a request to a result: resolve, run, checkpoint, evaluate."""
