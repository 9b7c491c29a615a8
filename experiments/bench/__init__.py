"""Benchmarks: the engine beside the plain per-client loop, and the cost of a round with very many clients."""
