"""`semcom.attack`: what somebody learns of the clients' images from a stored run; its numbers are kept beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from semcom.attacks.gradient import invert_gradients
from semcom.attacks.invert import Rebuilt, invert
from semcom.attacks.labels import infer_labels
from semcom.attacks.listen import Ear
from semcom.attacks.member import infer_membership
from semcom.attacks.options import Attack
from semcom.config import ConfigError
from semcom.engine.train.precision import reset_torch
from semcom.files import ARRAYS, resolve_file
from semcom.runs.folder.arrays import LEAK, add_arrays
from semcom.runs.folder.lock import LOCK, hold_lock
from semcom.runs.folder.summary import read_summary, write_summary
from semcom.runs.result.result import Result
from semcom.runs.rounds.load import load

SHOWN = 10
"""Images of a picture, at most."""
PATIENCE_S = 60.0
"""Seconds that an attack waits for the folder of its run, before its numbers are lost."""


@dataclass(frozen=True)
class Leak:
    """The result of an attack.

    Attributes:
        numbers: by name, see `semcom.attacks.invert.Rebuilt`, `semcom.attacks.member.infer_membership` and
            `semcom.attacks.labels.infer_labels`.
        rebuilt: rebuilt images, if there are any.
        setting: name of the listener's setting; "" for the base station.
    """

    numbers: dict[str, float]
    rebuilt: Rebuilt | None
    setting: str


def attack(
    folder: Path | str, *, plugins: Sequence[str] = (), trust: bool = False, device: str | None = None, **options: Any
) -> Leak:
    """Attack a finished run, and keep the numbers in its summary.json, as `leak`.

    Tables, figures and comparisons have them as metrics: `leak.psnr`, `leak.ssim`, `leak.accuracy`, `leak.auc`,
    `leak.label`; those of another listener or knowledge have its name between. Nothing of the run is trained again.

    Args:
        folder: of the run, which must have kept its models.
        plugins: as for `semcom.load`.
        trust: as for `semcom.load`.
        device: as for `semcom.load` (None: the processor).
        options: fields of `semcom.attacks.options.Attack`, such as `kind="invert", at="eavesdropper", snr_db=0.0`.

    Raises:
        ConfigError: a wrong option, or one without effect; the run's data are no images, or it asks for no classes;
            another process has its folder for longer than `PATIENCE_S`.
        RunError: as `semcom.load`.

    Example:
        >>> import semcom
        >>> small = semcom.RunConfig("fedavg", clients=3, train=semcom.TrainConfig(rounds=1), out="runs/victim")
        >>> accuracy = semcom.run(small).summary["accuracy"]
        >>> leak = semcom.attack("runs/victim", clients=1, steps=20)
        >>> sorted(leak.numbers)[:3]
        ['accuracy', 'accuracy_originals', 'psnr']
    """
    try:
        wanted = Attack(**options)
    except TypeError as error:
        raise ConfigError(f"attack: {str(error).split('__init__() ')[-1]}") from None
    folder = resolve_file(folder).absolute()
    result = load(folder, device=device or "cpu", plugins=plugins, trust=trust)
    found = carry_out_attack(result, wanted)
    store_leak(folder, wanted, found)
    return found


@reset_torch()
def carry_out_attack(result: Result, wanted: Attack) -> Leak:
    """Carry out an attack on the models of a result."""
    victims, setting = result.clients[: wanted.clients], wanted.name_setting()
    if wanted.kind == "member":
        return Leak(infer_membership(result, victims, wanted.view), None, setting)
    if wanted.kind == "labels":
        told = infer_labels(result, victims, known=wanted.known, seed=wanted.seed, view=wanted.view)
        return Leak(told, None, setting)
    if wanted.kind == "gradient":
        found = invert_gradients(result, victims, wanted)
    else:
        found = invert(result, Ear(result.world, wanted.snr_db, wanted.at), victims, wanted)
    return Leak(dict(found.numbers), found, setting)


def store_leak(folder: Path, wanted: Attack, found: Leak) -> None:
    """Add the numbers to summary.json, and a few images to arrays.npz; those of the same setting are replaced.

    Another attack that ends meanwhile waits for the folder's lock, so that neither loses what the other one adds.

    Raises:
        BusyError: the run's folder stays locked, for `PATIENCE_S`.
    """
    with hold_lock(folder / LOCK, PATIENCE_S, "repeat the attack when that has ended"):
        summary = read_summary(folder)
        assert summary is not None, "it has been loaded"
        if found.rebuilt is not None:
            add_arrays(folder / ARRAYS, found.rebuilt.list_arrays(found.setting), summary["hash"])
        leak: dict[str, Any] = dict(summary.get(LEAK, {}))
        note_leak(leak, wanted, found)
        write_summary(folder, {**summary, LEAK: leak})


def note_leak(leak: dict[str, Any], wanted: Attack, found: Leak) -> None:
    """Add the numbers of an attack, and its effort, to those of a run."""
    into = leak
    if found.setting:
        into = leak[found.setting] = dict(leak.get(found.setting, {}))
    into |= {**found.numbers, f"{wanted.kind}_with": wanted.describe_size()}


def draw_rebuilt(found: Rebuilt, path: Path) -> Path:
    """Write a picture of originals, what was rebuilt, and the mean image of the class, a row each; make its folder."""
    from PIL import Image

    some = found.pick(SHOWN)
    rows = [images[some].numpy() for images in (found.originals, found.rebuilt, found.of_class)]
    grid = np.concatenate([np.concatenate([image.transpose(1, 2, 0) for image in row], 1) for row in rows], 0)
    side = 64 // found.originals.shape[-1] or 1
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = Image.fromarray(grid[..., 0] if grid.shape[-1] < 3 else grid[..., :3])
    picture.resize((picture.width * side, picture.height * side), Image.Resampling.NEAREST).save(path)
    return path
