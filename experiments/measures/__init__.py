"""The numbers that an experiment adds to what a run measures: features, class groups, gradients, bounds."""
