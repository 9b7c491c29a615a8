"""What a sweep leaves: the folders of its runs, whose they are, the table of their results, all as one file."""
