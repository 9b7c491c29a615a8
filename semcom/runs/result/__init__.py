"""The results of a run: its numbers, its stored arrays, and its networks' answers."""
