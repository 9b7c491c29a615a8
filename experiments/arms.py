"""The methods as arms of comparisons: all of them, in the order of tables and legends."""

from __future__ import annotations

from semcom.studies.grid import Variant

OWN_RATES = {"train.lr": None, "train.optimizer": None}
"""Schedule fields left open for methods with hyperparameters for their rates."""
PFEDME = Variant("pfedme", "pfedme", OWN_RATES)
PERFEDAVG = Variant("perfedavg", "perfedavg", OWN_RATES)
ALL: tuple[str | Variant, ...] = (
    "local", "fedavg", "fedprox", "moon", "fedavg_ft", "fedprox_ft", "ditto", PFEDME, PERFEDAVG,
    "fedper", "lg_fedavg", "fedrep", "fedbabu", "fedamp", "fedala", "fedproto", "fedgh", "fedpac", "fedcrc",
    "fedcrl", "fedcosr", "repper", "fedcl",
)  # fmt: skip
"""All 23 methods."""
