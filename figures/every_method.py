"""Figures of all 23 methods: the gain of each over local training without a radio, and its accuracy over the air.

Numbers are those of the end of training, where methods with a last stage are tested too, and a method whose first view
is not yet a client's own model has a second row.
"""

from __future__ import annotations

import pandas as pd

from semcom.config import ConfigError
from semcom.plots import gain
from semcom.plots.base import Drawing, Plot
from semcom.plots.gain import GAIN, OVER
from semcom.plots.heatmap import HEATMAP
from semcom.studies.analysis.compare import read_compared_value
from semcom.studies.analysis.statistics import LEVEL, compute_t_interval, correct_by_holm
from semcom.studies.analysis.study import Study
from semcom.studies.grid import TEST, TEST_SNR
from semcom.studies.results.run import Stored

WAYS, SHOTS = "partition.ways", "partition.shots"
LATER_VIEWS = {"fedbabu": "personal", "fedala": "trained", "fedcrc": "personal"}
"""Methods whose first view is not yet a client's own model -> the view of that model."""
TWIN = "fedcrl"
"""Method with the runs of another method of the study (`fedcosr`)."""
VIEWS = (
    "Each method by its first view. That of FedBABU and FedCRC is one model for all, that of FedALA the one that "
    "training begins with; their other rows have what clients have made of these."
)

COLLABORATION = Drawing(
    "collaboration", "collaboration", Plot(kind="gain", x=SHOTS, y="last", hue="variant", facet=WAYS, over=OVER),
    numbers=lambda study, plot: gain.compute_gain(study, plot, LATER_VIEWS),
    caption=lambda cells, plot: f"{GAIN.caption(cells, plot)} {VIEWS}",
)  # fmt: skip


def average_gains_by_ways(study: Study, plot: Plot) -> pd.DataFrame:
    """Compute the gains over one method, for each seed the mean over numbers of images: a row per method and ways.

    Returns:
        Columns: variant, partition.ways, mean, low, high (95 % interval over seeds; fractions of 1), n, interval,
        p_holm (after Holm's correction over all cells), supported.

    Raises:
        ConfigError: a method, or the method that is subtracted, is not finished at every place.
    """
    rows = [
        {"variant": name, **{field: run.fields.get(field) for field in (WAYS, SHOTS, "seed")}, "value": value}
        for run in study.stored
        if run.status == "done" and run.variant != TWIN
        for name, value in _read_views(run, plot.y)
    ]
    wide = pd.DataFrame(rows).pivot(index=[WAYS, SHOTS, "seed"], columns="variant", values="value")
    if plot.over not in wide:
        raise ConfigError(f"results: no run of {plot.over} finished")
    if wide.isna().any(axis=None):
        raise ConfigError(f"results: {wide.columns[wide.isna().any()][0]} is not finished at every place")
    known = [row for name in study.variants for row in (name, f"{name} {LATER_VIEWS.get(name)}")]
    order = [name for name in known if name in wide and name != plot.over]
    if not order:
        raise ConfigError(f"results: no run of another method than {plot.over} finished")
    gains = wide[order].sub(wide[str(plot.over)], axis=0).groupby([WAYS, "seed"]).mean()
    found = [
        {"variant": name, WAYS: ways, "n": len(values), **vars(compute_t_interval(values.to_numpy()))}
        for name in order
        for ways, values in gains[name].groupby(WAYS)
    ]
    seeds = wide.index.get_level_values("seed").nunique()
    cells = pd.DataFrame(found).assign(interval=f"paired t over {seeds} seeds" if seeds > 1 else "there is one seed")
    cells["p_holm"] = correct_by_holm(cells["p"])
    cells["supported"] = cells["p_holm"] < 1 - LEVEL
    return cells.drop(columns="p")


def _read_views(run: Stored, metric: str) -> list[tuple[str, float]]:
    """Read a number of a run's headline, and of its later view if it has one, by the names of their rows."""
    later = LATER_VIEWS.get(run.variant)
    own = [(f"{run.variant} {later}", read_compared_value(run, later, metric))] if later else []
    return [(run.variant, read_compared_value(run, None, metric)), *own]


COLLABORATION_WAYS = Drawing(
    "collaboration-ways", "collaboration", Plot(kind="gain", x=WAYS, y="last", hue="variant", over=OVER),
    numbers=average_gains_by_ways,
    caption=lambda cells, plot: (
        f"{GAIN.caption(cells, plot)} Of each seed the mean over the numbers of images of a class. {VIEWS} FedCRL is "
        "left out, which is FedCoSR here."
    ),
    shows=(WAYS, SHOTS),
)  # fmt: skip


# Over the air ---------------------------------------------------------------------------------------------------------


def average_at_end(study: Study, plot: Plot) -> pd.DataFrame:
    """Average the numbers of a heatmap by test SNR, with a later view of a method below its first view."""
    parts, study = [], study.along(plot.fields)
    done = {run.variant for run in study.stored if run.status == "done"}
    for name in (name for name in study.variants if name in done):
        own = study.where({"variant": name})
        parts.append(own.mean(plot.fields, metric=plot.y))
        if name in LATER_VIEWS:
            of_view = own.mean(plot.fields, view=LATER_VIEWS[name], metric=plot.y)
            parts.append(of_view.assign(variant=f"{name} {LATER_VIEWS[name]}"))
    panels = pd.concat(parts).groupby(plot.facet, sort=False)
    return pd.concat([cells.sort_values(TEST, kind="stable") for _, cells in panels], ignore_index=True)


WIRELESS_SNR = Drawing(
    "wireless-snr", "wireless-snr", Plot(kind="heatmap", x=TEST, y="last", hue="variant", facet="channel.kind"),
    numbers=average_at_end, caption=lambda cells, plot: f"{HEATMAP.caption(cells, plot)} {VIEWS}",
    shows=(TEST_SNR, "channel.kind"),
)  # fmt: skip
AVERAGED = ("fedavg", "fedprox", "moon", "fedper", "fedrep", "fedpac")
"""Methods whose first view has the base station's averaged encoder, which over the air no client has."""
RECEIVED = "received"
"""View of that encoder as clients receive it."""


def average_by_exchange(study: Study, plot: Plot) -> pd.DataFrame:
    """Average `average_at_end` of the methods with an exchange, over the air with the encoder as clients receive it."""
    kind, cells = str(plot.facet), average_at_end(study, plot)
    over_air = cells[kind] == "analog"
    there = set(cells.loc[over_air, "variant"])
    if not there:
        raise ConfigError("results: no run finished that exchanges something over the air")
    study = study.along([kind])
    parts = [cells[cells["variant"].isin(there) & ~(over_air & cells["variant"].isin(AVERAGED))]]
    for name in (name for name in AVERAGED if name in there):
        over = study.where({"variant": name, kind: "analog"})
        parts.append(over.mean(plot.fields, view=RECEIVED, metric=plot.y))
    order = {value: place for place, value in enumerate(("ideal", "analog", *dict.fromkeys(cells["variant"])))}
    by = [kind, TEST, "variant"]
    return pd.concat(parts).sort_values(by, key=lambda c: c if c.name == TEST else c.map(order), ignore_index=True)


WIRELESS_EXCHANGE = Drawing(
    "wireless-exchange", "wireless-exchange",
    Plot(kind="heatmap", x=TEST, y="last", hue="variant", facet="air.parameters"), numbers=average_by_exchange,
    caption=lambda cells, plot: (
        f"{HEATMAP.caption(cells, plot)} {VIEWS} "
        "Models and prototypes pass free of errors (ideal), or uncoded over AWGN at 10 dB (analog). An averaged "
        "encoder is shown as clients receive it (view `received`), except those of FedBABU and FedCRC, and what "
        "begins with one after the last round, fine-tuning and RepPer's heads: these are the base station's. "
        "Local and FedCL exchange nothing and are left out."
    ),
    shows=(TEST_SNR, "air.parameters"),
)  # fmt: skip
SHOWN = (10.0, 0.0)
"""Test SNRs in dB of the figure against classes; the runs have more, as another study uses them too."""


def average_at_two_snrs(study: Study, plot: Plot) -> pd.DataFrame:
    """Average `average_at_end` at the test SNRs that are shown, the higher SNR first."""
    cells = average_at_end(study, plot)
    shown = cells[cells[TEST].isin(SHOWN)]
    if shown.empty:
        raise ConfigError(f"results: no run was tested at {' or '.join(f'{snr:g}' for snr in SHOWN)} dB")
    return shown.sort_values(TEST, ascending=False, kind="stable", ignore_index=True)


WIRELESS_HETEROGENEITY = Drawing(
    "wireless-heterogeneity", "wireless-heterogeneity",
    Plot(kind="heatmap", x=WAYS, y="last", hue="variant", facet=TEST), numbers=average_at_two_snrs,
    caption=lambda cells, plot: f"{HEATMAP.caption(cells, plot)} {VIEWS}", shows=(WAYS, SHOTS, TEST_SNR),
)  # fmt: skip
