"""From the runs of a study to what they say: tables, intervals, comparisons, curves, orders."""
