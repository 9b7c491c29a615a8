"""Figures of experiments: requests as `semcom plot` takes them, with a name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from semcom.plots.base import Drawing, Plot, Styles
from semcom.plots.lines import LINES
from semcom.plots.points import SETTING, tabulate_by_setting
from semcom.plots.style import COLORS, DASHES, choose_line_styles
from semcom.studies.analysis.means import compute_means
from semcom.studies.analysis.study import Study
from semcom.studies.grid import TEST, TEST_SNR
from semcom.studies.overrides import format_number

SNR, WAYS = "channel.snr_db", "partition.ways"
KIND, DATA, BETA = "partition.kind", "data.name", "partition.beta"

RADIUS = ("network.radius_m",)
"""Field of wireless-time that could vary, and has one value."""
HEARD = {"fedavg-at-once": "received"}
"""Variant of wireless-time whose model its clients have over the air -> the view with that model."""
EXCHANGES = {"8bit": 1, "top": 3, "at-once": 2}
"""Ending of a variant's name, for its way of exchange -> its place in `DASHES`; lines without it are solid."""
OWN = " (own classes)"
"""Ending of the name of a method: its answers are taken among the classes of each client."""


def choose_exchange_styles(variants: Sequence[str]) -> Styles:
    """Choose a colour and a mark for each method; dashes and hollow marks distinguish its ways of exchange."""
    return style_by_method({name: name.partition("-")[::2] for name in variants}, EXCHANGES)


def style_by_method(parts: Mapping[str, tuple[str, str]], dashes: Mapping[str, int]) -> Styles:
    """Choose a colour and a mark for each method; dashes and hollow marks distinguish its variants.

    Args:
        parts: variant -> its method, and its difference; empty for the method itself, with a solid line.
        dashes: difference -> place of its dashes in `DASHES`.
    """
    methods = list(dict.fromkeys(method for method, _ in parts.values()))
    own = dict(zip(methods, choose_line_styles(max(len(methods), len(COLORS) + 1)), strict=False))
    return {
        variant: own[method]
        | {"linestyle": DASHES[dashes.get(other, 0)]}
        | {"markerfacecolor": "white" if other else own[method]["color"]}
        for variant, (method, other) in parts.items()
    }


def average_unmarked(study: Study, plot: Plot) -> pd.DataFrame:
    """Average over seeds, without marks: Holm's correction would be over test SNRs too, which are of the same runs."""
    return study.along(plot.fields).mean(plot.fields, metric=plot.y)


def average_answers(study: Study, plot: Plot) -> pd.DataFrame:
    """Average the accuracy of each method among all ten classes, and below it that among its clients' own classes.

    Runs whose clients have all classes lack the second number, which would equal the first.
    """
    study, by = study.along(plot.fields), list(plot.fields)
    among_ten = study.mean(by, metric=plot.y)
    numbers = [(run.field(WAYS), view) for run in study.stored if (view := run.view()) is not None]
    whole = {ways for ways, view in numbers if "among_own" not in view}
    fewer = list({ways for ways, _ in numbers} - whole)
    parts = [study.where({WAYS: fewer}).mean(by, metric="among_own")] if fewer else []
    own = pd.concat([*parts, among_ten[~among_ten[WAYS].isin(fewer)]])
    own = own.sort_values("variant", key=lambda names: names.map(study.variants.index), kind="stable")
    return pd.concat([among_ten, own.assign(variant=own["variant"] + OWN)], ignore_index=True)


def average_by_division(study: Study, plot: Plot) -> pd.DataFrame:
    """Average over seeds against tau, with partition and beta as one field, `setting`."""

    def name(_: object, beta: float) -> str:
        return "iid" if pd.isna(beta) else f"beta {format_number(beta)}"

    return tabulate_by_setting(study, plot, [str(plot.x)], [KIND, BETA], name)


def average_distances(study: Study, plot: Plot) -> pd.DataFrame:
    """Average the distance of two clients' predictors over seeds, by epochs and partition."""
    done = study.runs[study.runs["status"] == "done"]
    return compute_means(done, ["variant", *plot.fields], "predictor_distance")


# fmt: off
DEMO = Drawing("demo", "demo", Plot(kind="lines", x=SNR))
ARMS_SMALL = Drawing("arms-small", "arms-small", Plot(kind="dots", x="variant", hue=KIND))
WIRELESS_TIME = Drawing("wireless-time", "wireless-time", Plot(kind="curves", x="time_s", view=HEARD, window=5),
                        shows=RADIUS, look=choose_exchange_styles)
WIRELESS_TIME_ENERGY = Drawing("wireless-time-energy", "wireless-time",
                               Plot(kind="curves", x="energy_j", view=HEARD, window=5),
                               shows=RADIUS, look=choose_exchange_styles)
CITY = Drawing("city", "city", shows=("network.kind", "network.scheduling", "partition.length_m"), plot=Plot(
    kind="map", at={"network.kind": "scene", "network.scheduling": "random", "partition.length_m": 50.0}))
DEEPJSCC_FEDERATED = Drawing("deepjscc-federated", "deepjscc-federated",
                             Plot(kind="lines", x=TEST, y="psnr", hue="variant"), average_unmarked, shows=(TEST_SNR,))
DEEPJSCC_IMAGES = Drawing("deepjscc-images", "deepjscc-federated", shows=(TEST_SNR,), plot=Plot(
    kind="images", at={"seed": 0, "variant": ["central", "local", "fedavg", "digital-chain"]}))

# The FedCL letter: Fig. 2(b) is trained at each SNR, or at one SNR.
LETTER_FIG2A = Drawing("letter-fig2a", "letter-fig2a", Plot(kind="curves", facet="clients"))
LETTER_FIG2B = Drawing("letter-fig2b", "letter-fig2b", Plot(kind="lines", x=SNR))
LETTER_FIG2B_ONCE = Drawing("letter-fig2b-once", "letter-fig2b-once",
                            Plot(kind="lines", x=TEST, hue="variant", facet="model.features"),
                            average_unmarked, shows=(TEST_SNR, "model.features"))
LETTER_FIG3A = Drawing("letter-fig3a", "letter-fig3a", Plot(kind="curves", hue=WAYS), shows=(WAYS, "partition.shots"))
LETTER_FIG3B = Drawing(
    "letter-fig3b", "letter-fig3b", Plot(kind="lines", x=WAYS), shows=(WAYS, "partition.shots"),
    caption=lambda cells, plot: (
        f"{LINES.caption(cells, plot)} Clients answer among all ten classes; letter-fig3b-own has their accuracy among "
        "their own classes too."
    ),
)
LETTER_FIG3B_OWN = Drawing(
    "letter-fig3b-own", "letter-fig3b", Plot(kind="lines", x=WAYS, hue="variant"), average_answers,
    caption=lambda cells, plot: (
        f"{LINES.caption(cells, plot)} Clients answer among all ten classes, or, dotted and with hollow marks, among "
        "their own: the same outputs, of which those of other classes are left out."
    ),
    shows=(WAYS, "partition.shots"),
    look=lambda variants: style_by_method({name: name.partition(OWN)[:2] for name in variants}, {OWN: 3}),
)
LETTER_FIG4 = Drawing("letter-fig4", "letter-fig4", Plot(kind="embedding", at={"seed": 0}), shows=(SNR,))
LETTER_ABLATION = Drawing("letter-ablation", "letter-ablation", Plot(kind="lines", x=TEST, hue="variant"),
                          average_unmarked, shows=(TEST_SNR,))
LETTER_ENCODERS = Drawing("letter-encoders", "letter-encoders", Plot(kind="dots", x="variant", hue="model.encoder"))

FEDCOSR_TABLE2 = Drawing("fedcosr-table2", "fedcosr-table2", Plot(kind="dots", x="variant", hue=KIND, facet=DATA))
FEDCOSR_FIG4 = Drawing("fedcosr-fig4", "fedcosr-fig4", Plot(kind="divisions", facet=KIND))
# At scale `paper` ten evaluations are 50 rounds, but for the last ten rounds, which are all evaluated.
FEDCOSR_FIG5 = Drawing("fedcosr-fig5", "fedcosr-fig5", Plot(kind="curves", facet=KIND, window=10))
FEDCOSR_FIG6 = Drawing("fedcosr-fig6", "fedcosr-fig6", Plot(kind="clients", at={"seed": 0}),
                       shows=("partition.scarce_fraction",))
FEDCOSR_FIG7 = Drawing("fedcosr-fig7", "fedcosr-fig7", Plot(kind="lines", x="partition.fraction", facet=KIND),
                       shows=("partition.fraction", KIND, BETA, "partition.classes", "partition.min_size"))
FEDCOSR_FIG8 = Drawing("fedcosr-fig8", "fedcosr-fig8", Plot(kind="dots", x="variant", hue=KIND, facet=DATA))
FEDCOSR_FIG9 = Drawing("fedcosr-fig9", "fedcosr-fig9", Plot(kind="embedding", at={"seed": 0}), shows=(KIND,))
FEDCRL_TABLE2 = Drawing("fedcrl-table2", "fedcrl-table2", Plot(kind="dots", x="variant", hue=KIND, facet=DATA))
# At scale `paper` four evaluations are 20 rounds, but at the end.
FEDCRL_CURVES = Drawing("fedcrl-curves", "fedcrl-curves", Plot(kind="curves", facet=KIND, window=4))
FEDCRL_TSNE = Drawing("fedcrl-tsne", "fedcrl-tsne", Plot(kind="embedding", at={"seed": 0}), shows=(KIND,))
FEDCRC_FIG1 = Drawing(
    "fedcrc-fig1", "fedcrc-fig1", Plot(kind="lines", x="finish.epochs", y="predictor_distance", hue=KIND),
    average_distances,
    caption=lambda cells, plot: (
        "Euclidean distance between the heads of two clients after a common training, against the epochs in which "
        "each trains its head alone; mean over seeds, bars: 95 % intervals (Student's t)."
    ),
    shows=("finish.epochs", KIND, BETA),
)
FEDCRC_FIG3 = Drawing("fedcrc-fig3", "fedcrc-fig3", Plot(kind="curves", facet=KIND), shows=(KIND, BETA))
FEDCRC_TABLE3 = Drawing("fedcrc-table3", "fedcrc-table3", Plot(kind="lines", x="hyper.tau", hue=SETTING),
                        average_by_division, shows=("hyper.tau", KIND, BETA))

# RepPer is only tested after its last stage, so that all methods are shown at the end.
REPPER_TABLE2 = Drawing("repper-table2", "repper-table2",
                        Plot(kind="dots", x="variant", y="last", hue="data.name", facet=BETA))
REPPER_TABLE3 = Drawing("repper-table3", "repper-table3", Plot(kind="dots", x="variant", y="last", hue="finish.kind"))
REPPER_TABLE4 = Drawing("repper-table4", "repper-table4",
                        Plot(kind="dots", x="variant", y="last", hue="data.name", facet="model.encoder"),
                        shows=("data.name", "model.encoder", "model.features"))
REPPER_FIG3 = Drawing("repper-fig3", "repper-fig3", Plot(kind="divisions", facet=BETA))
