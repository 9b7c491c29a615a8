"""What features give away: accuracy against the leak to a near listener, by setting; and the rebuilt images."""

from __future__ import annotations

import pandas as pd

from semcom.config import ConfigError
from semcom.plots.base import Drawing, Plot
from semcom.plots.pareto import compute_pareto
from semcom.plots.points import SETTING
from semcom.studies.analysis.study import Study
from semcom_papers.experiments.privacy import FEW, FIELDS, HIDDEN, MANY, NEAR, OPPOSED, POOR

PANELS = {
    FEW: "64 features",
    MANY: "512 features",
    POOR: "64 features, 0 dB",
    HIDDEN: "64 features, own noise",
    OPPOSED: "64 features, adversary",
}


def compare_settings(study: Study, plot: Plot) -> pd.DataFrame:
    """Compute accuracy and leak in each setting, with the variants that no other one beats in both."""
    parts = []
    for setting, name in PANELS.items():
        at = dict(zip(FIELDS, setting, strict=True))
        if any(all(run.field(field) == value for field, value in at.items()) for run in study.stored):
            found = compute_pareto(study.where(at), plot)
            parts.append(found.assign(**{SETTING: name}))
    if not parts:
        raise ConfigError(f"results: no run is in a setting of the study, {' or '.join(PANELS.values())}")
    return pd.concat(parts, ignore_index=True)


PRIVACY = Drawing(
    "privacy",
    "privacy",
    Plot(kind="pareto", x=f"leak.{NEAR}psnr", hue="variant", facet=SETTING),
    compare_settings,
    shows=FIELDS,
)
PRIVACY_IMAGES = Drawing(
    "privacy-images",
    "privacy",
    shows=FIELDS,
    plot=Plot(kind="leak", at={"seed": 0, **dict(zip(FIELDS, MANY, strict=True))}),
)
