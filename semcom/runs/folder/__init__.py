"""What a run writes, and reads again: its folder, its lines, its checkpoints."""
