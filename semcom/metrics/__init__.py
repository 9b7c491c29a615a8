"""Numbers from what the engine measured; NumPy only."""
