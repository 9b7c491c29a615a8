"""The numbers of a run, what is kept of it, and what its networks answer."""
