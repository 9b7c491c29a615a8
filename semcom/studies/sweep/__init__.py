"""The carrying out of sweeps: plan, estimate, processes or a cluster, progress, repetition, reuse."""
