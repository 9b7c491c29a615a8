"""`semcom attack`: what somebody learns of the clients' images from a stored run."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

import semcom
from semcom.attacks.options import Attack
from semcom.cli.analysis import read_analysis_words
from semcom.cli.fields import PLUGIN, TRUST
from semcom.config import ConfigError
from semcom.files import resolve_file
from semcom.screen import say


@dataclass(frozen=True)
class AttackFlags(Attack):
    """Try what a receiver of features, or an owner of models, learns of the clients' images; see docs/privacy.md.

    RUN comes first: the folder of a finished run. The numbers are kept in its summary.json.
    """

    out: str | None = None
    """Picture (.png) of images, what was rebuilt of them, and the mean image of their class (None: RUN/leak.png)."""
    plugins: PLUGIN = ()
    """Your Python file or module in the place of a plug-in that the run names (repeatable)."""
    trust: TRUST = False
    """Execute the plug-ins that the run names."""


def carry_out_attack_command(words: list[str]) -> None:
    """Carry out `semcom attack RUN`."""
    (folder,), wanted = read_analysis_words(words, ("RUN",), AttackFlags(), "semcom attack")
    own = {f.name: getattr(wanted, f.name) for f in fields(Attack)}
    if wanted.kind in ("member", "labels") and wanted.out is not None:
        raise ConfigError(f"out: {wanted.out!r} has no effect on kind {wanted.kind}, which draws nothing; leave it out")
    if wanted.out is not None and Path(wanted.out).suffix.lower() != ".png":
        raise ConfigError(f"out: {wanted.out!r} does not end in .png")
    found = semcom.attack(folder, plugins=wanted.plugins, trust=wanted.trust, **own)
    numbers = found.numbers
    if wanted.kind == "member":
        ends = f"{numbers['auc_low']:.3f} to {numbers['auc_high']:.3f}"
        say(f"membership: AUC {numbers['auc']:.3f} ({ends}); a guess has 0.5")
    if wanted.kind == "labels":
        error, guess = 100 * numbers["label"], 100 * numbers["label_guess"]
        say(f"shares of classes: {error:.1f} % in total variation off; without looking {guess:.1f} %")
    if found.rebuilt is None:
        return
    from semcom.attacks.attack import draw_rebuilt

    has_ssim, of = "ssim" in numbers, "features" if wanted.kind == "invert" else "an update"
    for name, end in ((f"rebuilt from {of}", ""), ("mean image", "_mean"), ("mean image of the class", "_class")):
        ssim = f", SSIM {numbers['ssim' + end]:.3f}" if has_ssim else ""
        say(f"{name + ':':<25}PSNR {numbers['psnr' + end]:.2f} dB{ssim}")
    right, most = 100 * numbers["accuracy"], 100 * numbers["accuracy_originals"]
    say(f"classes of rebuilt images: {right:.1f} % right, of the originals {most:.1f} %")
    name = "-".join(filter(None, ("leak", found.setting)))
    picture = resolve_file(folder) / f"{name}.png" if wanted.out is None else resolve_file(wanted.out)
    say(f"figure: {draw_rebuilt(found.rebuilt, picture)}")
