"""The analysis of a study's runs: tables, intervals, comparisons, curves, orders."""
