"""The results of a sweep: the folders of its runs, their owner, the table of results, a study as one file."""
