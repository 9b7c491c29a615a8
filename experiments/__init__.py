"""Named experiments, a file for each paper or question; the rooms hold what all of them need."""
