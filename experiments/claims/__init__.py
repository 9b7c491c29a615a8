"""What the papers claim, held against numbers: their own and those of our runs."""
