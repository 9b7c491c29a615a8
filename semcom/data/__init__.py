"""Datasets, their division over clients, and the federation that the engine reads from."""
