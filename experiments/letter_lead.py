"""What FedCL's lead is made of: one factor at a time from the base of the letter's figures (docs/protocol.md).

Under each level of each factor FedCL, FedProto and FedAvg are trained with the same seeds as in the base. The *lead*
over an arm is FedCL's accuracy minus the arm's; the *effect* of a level is the lead under it minus the lead in the
base, paired by seed. Factors that FedCL alone has are held against the base's runs of the other arms, factors that
FedCL has not against the base's runs of FedCL; FedAvg is left out where it cannot run (encoders that differ).
FedProto's other view, the nearest prototype, and answers among a client's own classes are levels without runs of their
own.

    semcom sweep letter-lead --scale small
    python -m experiments.letter_lead results/letter-lead-small

prints a row for each level and rival.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from experiments.archive import stored_table
from experiments.base import Experiment, Grid, Variant, each_scale
from experiments.fedcl_letter import LAMBDA, MIXED, base, of_lambda, seeds
from experiments.fields import set_fields
from experiments.statistics import t_interval
from experiments.table import markdown, of_headline
from semcom.config import ChannelConfig

ARMS = ("fedcl", "fedproto", "fedavg")
"""The methods that the letter compares."""
RIVALS = ARMS[1:]
STATED = {"fedproto": (12.75, 25.09), "fedavg": (38.55, 66.24)}
"""Rival -> the letter's leads, with 20 clients and at 9 dB, as points."""
ROUNDS = {"small": 30, "paper": 200}
BASE = "base"
NOISY: Mapping[str, Any] = {
    **{"data.name": "noisy", "data.options": {"of": "cifar10", "snr_db": 9.0}},
    **{"channel.kind": "none", "channel.snr_db": ChannelConfig().snr_db},
}
"""Where the SNR is one of the images: they are noisy, and their features cross no channel, whose SNR is not given."""
PROTOTYPE, AMONG_OWN = "nearest prototype", "among own classes"
"""Levels that are other numbers of the runs in the base: another view of FedProto's, and other answers of all."""


@dataclass(frozen=True)
class Level:
    """One level of a factor.

    Attributes:
        factor: what it is a level of.
        name: its own name.
        set: dotted field -> value under it.
        arms: the methods that are run under it; what it does not change keeps its runs in the base.
        never: methods that cannot be run under it.
    """

    factor: str
    name: str
    set: Mapping[str, Any]
    arms: Sequence[str] = ARMS
    never: Sequence[str] = ()

    @property
    def title(self) -> str:
        """Its name and that of its factor."""
        return titled(self.factor, self.name)


def titled(factor: str, level: str) -> str:
    """Return what a level of a factor is called; the base has neither."""
    return f"{factor}: {level}" if level else BASE


def levels(scale: str) -> tuple[Level, ...]:
    """Return the levels of all factors, those of docs/protocol.md."""
    own, others = ("fedcl",), RIVALS
    other = "sgd" if base(scale).train.optimizer == "adam" else "adam"
    return (
        Level("exchange", "over the air", {"air.parameters": "analog"}, others),
        Level("training of the others", "no channel", {"train.through_link": False}, others),
        Level("training of FedCL", "no noise", {"channel.snr_db": math.inf, "channel.test_snr_db": 9.0}, own),
        Level("power", "free", {"channel.power": "free"}),
        Level("optimiser", "SGD 0.001 with batch 10", {"train.optimizer": "sgd", "train.batch_size": 10}),
        Level("optimiser", "Adam 0.001 with batch 50", {"train.optimizer": "adam", "train.batch_size": 50}),
        Level("5 local epochs", "as many passes", {"train.local_epochs": 5, "train.rounds": ROUNDS[scale] // 5}),
        Level("5 local epochs", "as many rounds", {"train.local_epochs": 5}),
        Level("initial weights", "own", {"model.init": "client"}, ARMS[:2]),  # FedAvg's model is common to all
        Level("clients", "5", {"clients": 5}),
        Level("clients", "50", {"clients": 50}),
        Level("classes at 300 images", "2", {"partition.ways": 2, "partition.shots": 150}),
        Level("classes at 300 images", "5", {"partition.ways": 5, "partition.shots": 60}),
        Level("images per class", "20", {"partition.shots": 20}),
        Level("classes of the tests", "all ten", {"partition.test_classes": "all"}),
        Level("features", "16", {"model.features": 16}),
        Level("head", "mlp", {"model.head": "mlp"}),
        Level("lambda", "0", {"hyper.lam": 0.0}, own),
        Level("lambda", "16 times", {"hyper.lam": 16 * LAMBDA[scale]}, own),
        Level("loss of the SCG", "InfoNCE", {"hyper.scg_loss": "infonce"}, own),
        Level("optimiser of the SCG", "the other one", {"hyper.scg_optimizer": other}, own),
        Level("centroids", "plain mean", {"hyper.centroids": "mean"}, own),
        Level("centroids", "none", {"hyper.centroids": "none"}, own),
        Level("decoder", "not averaged", {"hyper.average_decoder": False}, own),
        Level("encoders", "four in turn", {"model.encoder": MIXED}, ARMS[:2], ("fedavg",)),
        Level("channel", "Rayleigh with MMSE", {"channel.kind": "rayleigh"}),
        Level("channel", "Rayleigh without equaliser", {"channel.kind": "rayleigh", "channel.equaliser": "none"}),
        Level("SNR", "6 dB", {"channel.snr_db": 6.0}),
        Level("SNR", "12 dB", {"channel.snr_db": 12.0}),
        Level("SNR", "9 dB on the images", NOISY),
    )


def _grid(scale: str) -> Grid:
    start = set_fields(base(scale, 9.0), {"train.rounds": ROUNDS[scale]})
    return Grid(start, {"seed": seeds(scale)}, own=_own(scale))


def _variants(scale: str) -> list[Variant]:
    """Return the arms in the base and under each level, with what the level sets at a scale."""
    changed = [Variant(f"{arm} | {level.title}", arm, level.set) for level in levels(scale) for arm in level.arms]
    return [*(Variant(f"{arm} | {BASE}", arm) for arm in ARMS), *changed]


def _own(scale: str) -> dict[str, dict[str, Any]]:
    """Return variant -> its settings at a scale; the names are the same at all scales."""
    variants = _variants(scale)
    lam = of_lambda(scale, variants)
    return {variant.name: {**lam.get(variant.name, {}), **variant.set} for variant in variants}


LETTER_LEAD = Experiment(
    name="letter-lead",
    title="FedCL, FedProto and FedAvg with one factor changed at a time",
    paper="none (what the FedCL letter's lead could follow from)",
    variants=tuple(Variant(variant.name, variant.method) for variant in _variants("small")),
    scales=each_scale(_grid, ("small", "paper")),
    axis="seed",
    figures=("letter-lead",),
)
"""The screening of docs/protocol.md."""


def effects(frame: pd.DataFrame, scale: str = "small") -> pd.DataFrame:
    """Return lead and effect of each level on the lead over each rival, in points.

    Args:
        frame: the table of the sweep.
        scale: of it.

    Returns:
        Columns: factor, level, rival, lead, lead_low, lead_high, effect, low, high (95 % intervals, Student's t over
        the seeds' differences; NaN where there is none), seeds. The base comes first, without an effect.
    """
    runs = frame[frame["status"] == "done"].set_index(["variant", "seed"])
    accuracy = 100 * runs["accuracy"].astype(float)
    of_base = {arm: _seeds(accuracy, f"{arm} | {BASE}") for arm in ARMS}
    start = {rival: of_base["fedcl"] - of_base[rival] for rival in RIVALS}
    rows = [_row(BASE, "", rival, start[rival], None) for rival in RIVALS]
    for level in levels(scale):
        here = {arm: _seeds(accuracy, f"{arm} | {level.title}") if arm in level.arms else of_base[arm] for arm in ARMS}
        rows += [
            _row(level.factor, level.name, rival, here["fedcl"] - here[rival], start[rival])
            for rival in RIVALS
            if rival not in level.never
        ]
    own = {arm: _seeds(100 * _of_headline(runs, "among_own"), f"{arm} | {BASE}") for arm in ARMS}
    rows += [_row("answer", AMONG_OWN, rival, own["fedcl"] - own[rival], start[rival]) for rival in RIVALS]
    other = "views.prototype.accuracy"
    if other in runs:
        prototype = _seeds(100 * runs[other].astype(float), f"fedproto | {BASE}")
        lead = of_base["fedcl"] - prototype
        rows.append(_row("view of FedProto", PROTOTYPE, "fedproto", lead, start["fedproto"]))
    return pd.DataFrame(rows)


def _of_headline(runs: pd.DataFrame, metric: str) -> pd.Series:
    """Return a number of each run's first view; NaN where it has none."""
    return pd.Series([of_headline(row, metric) for row in runs.to_dict("records")], runs.index, dtype=float)


def strongest(found: pd.DataFrame) -> list[str]:
    """Return the titles of the two levels, of different factors, that move either lead most, by the protocol's rule.

    Args:
        found: what `effects` returned.

    Returns:
        At most two, the stronger first: of those whose interval excludes zero, and which have runs of their own.
    """
    runs = found[told(found) & ~found["level"].isin([PROTOTYPE, AMONG_OWN])]
    order = runs.assign(size=runs["effect"].abs()).sort_values("size", ascending=False, kind="stable")
    first = order.drop_duplicates("factor").head(2)
    return [titled(factor, level) for factor, level in zip(first["factor"], first["level"], strict=True)]


def told(found: pd.DataFrame) -> pd.Series:
    """Return which effects, of those that `effects` returned, have an interval that excludes zero."""
    return (found["low"] > 0) | (found["high"] < 0)


def _seeds(values: pd.Series, variant: str) -> pd.Series:
    """Return a variant's values by seed; none where it has no runs."""
    known = variant in values.index.get_level_values("variant")
    return values.xs(variant, level="variant") if known else pd.Series(dtype=float)


def _row(factor: str, level: str, rival: str, lead: pd.Series, start: pd.Series | None) -> dict[str, Any]:
    """Return a row of `effects` from the leads by seed, under a level and in the base."""
    lead = lead.dropna()
    moved = pd.Series(dtype=float) if start is None else (lead - start).dropna()
    whole, change = (t_interval(v.to_numpy()) if len(v) else None for v in (lead, moved))
    ends = {
        f"lead{end}": getattr(whole, name, np.nan) for end, name in (("", "mean"), ("_low", "low"), ("_high", "high"))
    }
    own = {end: getattr(change, name, np.nan) for end, name in (("effect", "mean"), ("low", "low"), ("high", "high"))}
    return {"factor": factor, "level": level, "rival": rival, **ends, **own, "seeds": len(lead)}


if __name__ == "__main__":
    found = effects(stored_table(sys.argv[1]))
    print(markdown(found.map(lambda v: f"{v:.1f}" if isinstance(v, float) else str(v))))
    print(f"\nto be combined and confirmed: {' and '.join(strongest(found)) or 'none'}")
