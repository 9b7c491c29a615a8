"""The arms: one paper, one file, one State."""
