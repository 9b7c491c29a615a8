"""Values for the open fields of a schedule: the common defaults, or the setting of a method's own paper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from semcom.config.fields import TrainConfig
from semcom.config.resolved import Schedule

COMMON: Mapping[str, Any] = {
    "rounds": 60,
    "local_epochs": 1,
    "batch_size": 50,
    "lr": 1e-3,
    "lr_milestones": (),
    "lr_decay": 0.1,
    "optimizer": "adam",
    "momentum": 0.0,
    "weight_decay": 0.0,
    "participation": 1.0,
}
"""Common defaults of TrainConfig's open fields; `local_steps` has none, since it takes the place of `local_epochs`."""

BAND_HZ = 1e6
"""Band that the participating clients share, if neither the request nor the link sets it."""

FINISH: Mapping[str, Any] = {"epochs": 100, "lr": 0.003, "optimizer": "adam"}
"""Common defaults of FinishConfig's open fields, chosen on validation images: `semcom sweep finish-search`."""
ROUND = "round"
"""Last stage that is one more round."""

PRESET_DEPENDS_ON: Mapping[str, tuple[str, ...]] = {
    "lr_milestones": ("lr",),
    "lr_decay": ("lr", "lr_milestones"),
    "local_steps": ("local_epochs",),
}
"""Field -> fields on which a preset's value of it depends: it is left out if the user sets one of them."""


def fill_from_preset(train: TrainConfig, preset: Mapping[str, Any]) -> Schedule:
    """Fill open fields of `train` from `preset`, then from the common defaults.

    A user's own rate comes without the preset's milestones, own milestones without its factors, own epochs without its
    steps. Either `local_steps` or `local_epochs` stays None.
    """
    own = {name for name, value in vars(train).items() if value is not None}
    values = {**COMMON, **{name: v for name, v in preset.items() if not own & {*PRESET_DEPENDS_ON.get(name, ())}}}
    if (train.optimizer or values["optimizer"]) != "sgd":
        values["momentum"] = 0.0  # a preset's momentum belongs to its SGD
    if train.lr_schedule == "cosine":
        values |= {name: COMMON[name] for name in ("lr_milestones", "lr_decay")}
    if "local_steps" in own | values.keys():
        del values["local_epochs"]
    return Schedule(**{**vars(train), **{name: value for name, value in values.items() if name not in own}})
