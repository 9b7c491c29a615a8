"""Figures of the sources of FedCL's lead, beside the letter's numbers, and of the settings where its idea pays."""

from __future__ import annotations

import textwrap
from dataclasses import replace

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.figure import Figure

from semcom.config import ConfigError
from semcom.plots.base import Drawing, Plot
from semcom.plots.gain import OVER, compute_gains
from semcom.plots.points import SETTING, describe_points
from semcom.plots.style import choose_line_styles
from semcom.studies.analysis.sheet import describe_sheet_intervals
from semcom.studies.analysis.statistics import compute_t_interval
from semcom.studies.analysis.study import Study
from semcom.studies.names import METHODS
from semcom_papers.experiments.letter.lead import BASE, STATED, mark_significant, measure_effects, name_level
from semcom_papers.experiments.letter.low import LAMBDA, SNR, list_leads
from semcom_papers.experiments.letter.regime import COMPARED, SETTINGS, name_in_regime
from semcom_papers.experiments.letter.regime import PLACE as FIELDS

LEVEL, RIVAL, LEAD = "level", "rival", "lead"
PLACE, USES = "place", "uses"
DOUBTLESS = "told"
"""Column: whether the interval of a level's effect excludes zero."""


def tabulate_leads(study: Study, plot: Plot) -> pd.DataFrame:
    """Tabulate the lead under each level with its interval, a row for each level and rival; NaN without runs.

    Returns:
        Columns: rival, level, mean, low, high (the lead as a fraction of 1), n (seeds), effect, effect_low,
        effect_high, told.

    Raises:
        ConfigError: FedCL and a rival have not both finished a run of any level.
    """
    found = measure_effects(study.runs).dropna(subset=["lead"])
    if found.empty:
        raise ConfigError("results: FedCL and another arm have not both finished a run of any level")
    whole = found.rename(columns={"low": "effect_low", "high": "effect_high"})
    whole = whole.rename(columns={"lead": "mean", "lead_low": "low", "lead_high": "high", "seeds": "n"})
    names = [name_level(factor, level) for factor, level in zip(found["factor"], found["level"], strict=True)]
    rivals = whole["rival"].map(lambda name: f"Lead over {METHODS[name]}")
    cells = whole.assign(**{LEVEL: names, DOUBTLESS: mark_significant(found), RIVAL: rivals}).set_index([RIVAL, LEVEL])
    both = pd.MultiIndex.from_product([dict.fromkeys(rivals), dict.fromkeys(names)], names=[RIVAL, LEVEL])
    points = ["mean", "low", "high", "effect", "effect_low", "effect_high"]
    shown = pd.concat([cells[points] / 100, cells[["n", DOUBTLESS]]], axis=1).reindex(both)
    return shown.fillna({"n": 0, DOUBTLESS: False}).astype({"n": int, DOUBTLESS: bool}).reset_index()


def draw_stated_leads(figure: Figure, cells: pd.DataFrame) -> None:
    """Draw lines at the letter's leads, rings around leads that differ from the base's, and a legend of both."""
    levels = list(dict.fromkeys(cells[LEVEL]))[::-1]  # from below
    marks: list[Artist] = []
    for axes, (rival, part) in zip(figure.axes, cells.groupby(RIVAL, sort=False), strict=True):
        axes.axvline(0, color="0.5", linewidth=0.6, zorder=0)
        lines = [
            axes.axvline(value / 100, color="black", linewidth=0.9, linestyle=style, zorder=0)
            for value, style in zip(_find_stated_leads(rival), (":", "--"), strict=True)
        ]
        far = part[part[DOUBTLESS]]
        ring = axes.plot(far["mean"], far[LEVEL].map(levels.index), "o", markersize=8, fillstyle="none", color="black")
        axes.set_xlabel("FedCL minus the other arm (points)")
        marks = [*ring, *lines]
    names = ["differs from the base", "the letter, 20 clients", "the letter, 9 dB"]
    figure.legend(marks, names, loc="outside upper center", ncols=3, frameon=False, borderpad=0.1)


def _find_stated_leads(rival: object) -> tuple[float, float]:
    """Look up the letter's leads over a rival, by the title of its panel."""
    return next(values for name, values in STATED.items() if str(rival).endswith(METHODS[name]))


def describe_letter_leads(cells: pd.DataFrame, plot: Plot) -> str:
    """Explain marks, rings and lines."""
    return (
        "Accuracy of FedCL minus that of FedProto and of FedAvg in percentage points, in the base and with one factor "
        f"changed or another number taken; {describe_sheet_intervals(cells, 'bars')}, paired. Rings: the lead "
        "differs from the base's, or under a level such as 'many with InfoNCE' from that under 'many' (the interval of "
        "the effect excludes 0; not corrected for the number of levels). "
        "Lines: the letter's leads with 20 clients (dotted) and at 9 dB (dashed)."
    )


LETTER_LEAD = Drawing(
    "letter-lead", "letter-lead", Plot(kind="dots", x=LEVEL, y=LEAD, facet=RIVAL), numbers=tabulate_leads,
    caption=describe_letter_leads, shows=("seed",), finish=draw_stated_leads,
)  # fmt: skip
LARGE = 5.0
"""Least change of a lead, in points, of the levels in the figure of one column."""
LONGEST = 30
"""Characters of a line of a level's name there."""


def select_large_leads(study: Study, plot: Plot) -> pd.DataFrame:
    """Tabulate the leads of the base, and of the levels with an effect of `LARGE` points or more, and not about 0."""
    cells = tabulate_leads(study, plot)
    far = cells[cells[DOUBTLESS] & (100 * cells["effect"].abs() >= LARGE)]
    return cells[cells[LEVEL].isin([BASE, *far[LEVEL]])].reset_index(drop=True)


def draw_stated_leads_in_colours(figure: Figure, cells: pd.DataFrame) -> None:
    """Draw lines at the letter's leads, in the colours of the rivals, and break long names of levels."""
    (axes,) = figure.axes
    axes.axvline(0, color="0.5", linewidth=0.6, zorder=0)
    rivals = list(dict.fromkeys(cells[RIVAL]))
    for look, rival in zip(choose_line_styles(len(rivals)), rivals, strict=True):
        for value, style in zip(_find_stated_leads(rival), (":", "--"), strict=True):
            axes.axvline(value / 100, color=look["color"], linewidth=0.9, linestyle=style, zorder=1.9)
    names = [textwrap.fill(text.get_text(), LONGEST) for text in axes.get_yticklabels()]
    axes.set_yticks(axes.get_yticks(), names, linespacing=0.9)
    axes.set_xlabel("Lead of FedCL (points)")
    axes.set_ylabel("")


LETTER_LEAD_LARGE = Drawing(
    "letter-lead-large", "letter-lead", Plot(kind="dots", x=LEVEL, y=LEAD, hue=RIVAL), numbers=select_large_leads,
    caption=lambda cells, plot: (
        "Accuracy of FedCL minus that of FedProto and of FedAvg in percentage points, in the base and under the levels "
        f"of letter-lead that change one of the two by {LARGE:g} points or more, as far as can be told (those such as "
        f"'many with InfoNCE' against 'many'); {describe_sheet_intervals(cells, 'bars')}, paired. "
        "Lines in the colours of the marks: the letter's leads, with 20 clients (dotted) and at 9 dB (dashed)."
    ),
    shows=("seed",), finish=draw_stated_leads_in_colours,
)  # fmt: skip

SCHEME, WEIGHTS = "scheme", "weights"


def tabulate_readings(study: Study, plot: Plot) -> pd.DataFrame:
    """Tabulate FedCL's lead over FedProto at each SNR, under each reading, in each setting and with each weight."""
    done = study.runs[study.runs["status"] == "done"]
    rows = []
    for air, weights, reading, lead in list_leads(done):
        for snr, of in lead.groupby(SNR):
            found = compute_t_interval(of.to_numpy() / 100)
            ends = {"mean": found.mean, "low": found.low, "high": found.high, "n": len(of)}
            rows.append({WEIGHTS: weights, SETTING: f"{air}, {weights}", SCHEME: reading, SNR: snr, **ends})
    order = ["chosen lambda", *dict.fromkeys(row[WEIGHTS] for row in rows)]
    return pd.DataFrame(sorted(rows, key=lambda row: order.index(row[WEIGHTS]))).drop(columns=WEIGHTS)


def mark_stated(figure: Figure, cells: pd.DataFrame) -> None:
    """Draw lines at a lead of 0, and at the letter's lead with 20 clients."""
    for axes in figure.axes:
        axes.axhline(0, color="0.5", linewidth=0.6, zorder=0)
        axes.axhline(STATED["fedproto"][0] / 100, color="black", linewidth=0.9, linestyle=":", zorder=0)
        if axes.get_ylabel():
            axes.set_ylabel("Lead of FedCL (points)")


LETTER_LOW = Drawing(
    "letter-low", "letter-low", Plot(kind="lines", x=SNR, y=LEAD, hue=SCHEME, facet=SETTING), numbers=tabulate_readings,
    caption=lambda cells, plot: (
        "Accuracy of FedCL minus that of FedProto in percentage points, trained and tested at each SNR, held against "
        "FedProto's head and against its paper's own rule, the nearest prototype of a client's own classes; "
        f"{describe_sheet_intervals(cells, 'bars')}, paired. FedCL answers among all ten classes, or, where both "
        "do, among its client's own. Error-free: features alone are noisy; over the air: FedCL's gradients and "
        "FedProto's prototypes too. Lambda, the weight of the mean squared distance for both: chosen for each arm and "
        "SNR on validation images, 1 (the default of both), and 4. Dotted: the letter's 12.75 with 20 clients, as "
        "points."
    ),
    shows=(LAMBDA,), finish=mark_stated,
)  # fmt: skip


def average_best_lambdas(study: Study, plot: Plot) -> pd.DataFrame:
    """Average the letter's methods at its own size, each with its lambda chosen at an SNR, by two numbers."""
    parts = []
    for number, among in {"accuracy": "Among ten classes", "among_own": "Among own classes"}.items():
        cells = study.mean(["variant", SNR], metric=number)
        names = cells["variant"].str.partition(" with lambda chosen")
        tuned_last = names[1].sort_values(kind="stable").index
        found = cells.assign(variant=names[0]).loc[tuned_last].drop_duplicates(["variant", SNR], keep="last")
        parts.append(found.sort_index().assign(**{SETTING: among}))
    return pd.concat(parts, ignore_index=True)


LETTER_FULL = Drawing(
    "letter-full", "letter-full", Plot(kind="lines", x=SNR, hue="variant", facet=SETTING), numbers=average_best_lambdas,
    caption=lambda cells, plot: (
        f"{describe_points(cells, plot)} Trained and tested at each SNR, 200 rounds with DCGAN's widths; lambda of "
        "FedCL and FedProto chosen on validation images, that of FedCL with plain means 1/64, the default."
    ),
)  # fmt: skip

LETTER_WEIGHT = Drawing(
    "letter-weight", "letter-weight", Plot(kind="lines", x="hyper.lam", facet="model.encoder"),
    caption=lambda cells, plot: (
        "Test accuracy against lambda, the weight of both methods' regulariser: the mean of the squared distance over "
        f"the features; {describe_sheet_intervals(cells, 'bars')}."
    ),
    shows=("hyper.lam", "model.encoder", "train.rounds"),
)  # fmt: skip


# Where FedCL helps ----------------------------------------------------------------------------------------------------


def compute_gains_by_place(study: Study, plot: Plot) -> pd.DataFrame:
    """Compute the gains over one method at each place of the map by `compute_gains`."""
    return _name_places(compute_gains(study.along(FIELDS), plot))


def compute_gains_by_uses(study: Study, plot: Plot) -> pd.DataFrame:
    """Compute the same with the channel uses of the whole run, and whether no other method is better in both."""
    costs = _name_places(study.along(FIELDS).pareto(USES)).rename(columns={"cost": USES})
    found = compute_gains_by_place(study, replace(plot, y="accuracy"))
    return found.merge(costs[["variant", PLACE, USES, "efficient"]], on=["variant", PLACE])


def _name_places(cells: pd.DataFrame) -> pd.DataFrame:
    q, m, k = FIELDS
    if cells[list(FIELDS)].isna().any(axis=None):
        raise ConfigError(f"results: not every run has {', '.join(FIELDS)}")
    names = [f"q {row[q]:g}, m {row[m]:g}, K {row[k]:g}" for row in cells.to_dict("records")]
    return cells.assign(**{PLACE: names}).drop(columns=[q, m, k])


def label_gain(figure: Figure, cells: pd.DataFrame) -> None:
    """Name the ordinate, and draw a line at a gain of 0."""
    for axes in figure.axes:
        axes.axhline(0, color="0.5", linewidth=0.6, zorder=0)
        if axes.get_ylabel():
            axes.set_ylabel("Gain over Local (points)")


LETTER_REGIME = Drawing(
    "letter-regime", "letter-regime", Plot(kind="gain", x=PLACE, hue="variant", over=OVER), compute_gains_by_place,
    shows=FIELDS,
)  # fmt: skip
LETTER_REGIME_USES = Drawing(
    "letter-regime-uses", "letter-regime", Plot(kind="pareto", x=USES, y="gain", hue="variant", facet=PLACE, over=OVER),
    numbers=compute_gains_by_uses,
    caption=lambda cells, plot: (
        "Gain over Local against the channel uses of the whole run, both ways, over all clients; runs are paired by "
        "seed, bars: 95 % intervals (Student's t over seeds). Circled: no other method, Local included, is at least as "
        "accurate at no higher cost (by the means); a step joins them."
    ),
    shows=FIELDS, finish=label_gain,
)  # fmt: skip


# Where a common encoder gains -----------------------------------------------------------------------------------------


def compute_gains_in_settings(study: Study, plot: Plot) -> pd.DataFrame:
    """Compute the gain of each method over local training in the same setting: a row per setting, method and place.

    Returns:
        Columns: place, setting, variant, mean, low, high (as a fraction of 1), n (seeds).

    Raises:
        ConfigError: two methods of a setting have not both finished a seed.
    """
    _, *methods = COMPARED
    rows = [
        {PLACE: f"{one.point[FIELDS[0]]:g} images of a class", SETTING: setting, "variant": method.name}
        | {"mean": one.difference, "low": one.low, "high": one.high, "n": len(one.seeds)}
        for setting in SETTINGS
        for method in methods
        for one in study.compare_all([name_in_regime(method.name, setting), name_in_regime("local", setting)])
    ]
    return pd.DataFrame(rows).sort_values(PLACE, key=lambda names: names.str.split().str[0].astype(int), kind="stable")


def label_gain_over_local(figure: Figure, cells: pd.DataFrame) -> None:
    """Name the abscissa, and draw a line at a gain of 0."""
    for axes in figure.axes:
        axes.axvline(0, color="0.5", linewidth=0.6, zorder=0)
        axes.set_xlabel("Gain over Local (points)")
        axes.set_ylabel("")


LETTER_ENCODER = Drawing(
    "letter-encoder", "letter-encoder", Plot(kind="dots", x=SETTING, y="gain", hue="variant", facet=PLACE),
    numbers=compute_gains_in_settings,
    caption=lambda cells, plot: (
        "Accuracy of methods with a common encoder and own decoders minus that of Local in the same setting, in "
        f"percentage points, paired by seed; {describe_sheet_intervals(cells, 'bars')}. The first setting is that of "
        "the figure letter-regime, 'all four' that of collaboration but for its numbers of classes and images; "
        "the others change one thing of the first."
    ),
    shows=FIELDS, finish=label_gain_over_local,
)  # fmt: skip
