"""Values of hyperparameters that an arm refuses, and encoders that it cannot average."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from semcom.config import ConfigError
from tests.methods.arms import ARMS
from tests.worlds import world

NAN, INF = math.nan, math.inf
WANTED: dict[str, dict[str, tuple[Any, ...]]] = {
    "a number of at least 0": {
        "ditto lam": (-1.0, NAN),
        "fedala eta": (-1.0,),
        "fedamp lam": (-1.0,),
        "fedcl lam": (NAN,),
        "fedcosr alpha": (-1.0,),
        "fedcosr gamma": (-0.1, NAN),
        "fedgh server-lr": (-0.1, NAN, INF),
        "fedpac lam": (-1.0,),
        "fedproto lam": (-1.0,),
        "fedprox mu": (-0.1, NAN, INF),
        "fedprox_ft mu": (-1.0,),
        "moon mu": (-1.0,),
        "perfedavg alpha": (-1.0,),
        "pfedme lam": (-1.0,),
        "pfedme nu": (-1.0,),
    },
    "a positive number": {
        "fedamp sigma": (0.0,),
        "fedamp alpha": (NAN,),
        "fedamp alpha-decay": (0.0,),
        "fedcl tau": (0.0,),
        "fedcl scg-lr": (-1.0,),
        "fedcosr tau-cl": (0.0,),
        "fedcrl tau-cl": (0.0,),
        "fedpac head-lr": (0.0,),
        "moon tau": (0.0,),
        "perfedavg beta": (0.0,),
        "perfedavg delta": (0.0,),
        "pfedme lr-p": (0.0,),
        "pfedme eta": (-0.1,),
        "pfedme beta": (0.0,),
        "repper tau": (0.0,),
    },
    "a number in (0, 1]": {"fedala s": (0.0, 1.1), "repper crop": (1.5,)},
    "a number in [0, 1]": {"fedcrc tau": (-0.1, 1.5, NAN)},
    "a whole number": {"fedavg_ft epochs": (1.5,), "fedprox_ft epochs": (1.5,), "fedrep head-epochs": (0.5,)},
    "a whole number of at least 0": {
        "fedala p": (-1,),
        "fedavg_ft epochs": (-1,),
        "fedbabu epochs": (-1,),
        "fedcl warmup": (-1,),
        "fedpac head-epochs": (-1,),
        "fedprox_ft epochs": (-1,),
        "fedrep head-epochs": (-1,),
        "lg_fedavg pretraining": (-1,),
    },
    "a whole number of at least 1": {
        "fedala cap": (0,),
        "fedamp alpha-every": (0,),
        "fedcl scg-steps": (0,),
        "pfedme inner-steps": (0,),
    },
    "one of head, all": {"fedavg_ft tune": ("body",), "fedprox_ft tune": ("body",)},
    "one of forward, reverse": {"fedcrc divergence": ("both",)},
    "one of fo, hf": {"perfedavg variant": ("second",)},
    "one of inside, outside": {"repper form": ("both",)},
}
"""What is accepted -> arm and hyperparameter (or epochs of its last stage) -> values that are not."""


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [(name, value, wanted) for wanted, names in WANTED.items() for name, values in names.items() for value in values],
)
def test_bad_values_are_refused(name: str, value: Any, wanted: str) -> None:
    arm, field = name.split()
    section = "finish" if field == "epochs" else "hyper"
    with pytest.raises(ConfigError, match=re.escape(f"{section}.{field}: {value!r} is not {wanted}") + "$"):
        world(arm, **{section: {field.replace("-", "_"): value}})


ANY_ENCODER = ("fedcl", "fedgh", "fedproto", "lg_fedavg", "local")
"""Arms that average no encoder."""


@pytest.mark.parametrize("arm", ARMS)
def test_what_averages_encoders_takes_one_architecture(arm: str) -> None:
    mixed = {"encoder": "test-conv,test-conv-wide"}
    if arm in ANY_ENCODER:
        assert len(world(arm, **mixed).population().cohorts) == 2
        return
    words = f"^model.encoder: {arm} averages the encoder, which test-conv and test-conv-wide do not share$"
    with pytest.raises(ConfigError, match=words):
        world(arm, **mixed)
