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

DEMO = Drawing("demo", "demo", Plot(kind="lines", x=SNR))
"""The figure of `make demo`."""
ARMS_SMALL = Drawing("arms-small", "arms-small", Plot(kind="dots", x="variant", hue=KIND))
"""All methods side by side, a mark for each partition."""

RADIUS = ("network.radius_m",)
"""The field of the experiment below that could vary, and has one value."""
EXCHANGES = {"8bit": 1, "top": 3, "at-once": 2}
"""Ending of a variant's name, which says how it exchanges -> its place in `DASHES`; without one lines are solid."""


def choose_exchange_styles(variants: Sequence[str]) -> Styles:
    """Return a colour and a mark for each method; dashes and hollow marks tell how a variant of it exchanges."""
    return style_by_method({name: name.partition("-")[::2] for name in variants}, EXCHANGES)


def style_by_method(parts: Mapping[str, tuple[str, str]], dashes: Mapping[str, int]) -> Styles:
    """Return a colour and a mark for each method; dashes and hollow marks tell its variants apart.

    Args:
        parts: variant -> its method, and what else it is; nothing for the method itself, whose line is solid.
        dashes: what else a variant is -> the place of its dashes in `DASHES`.
    """
    methods = list(dict.fromkeys(method for method, _ in parts.values()))
    own = dict(zip(methods, choose_line_styles(max(len(methods), len(COLORS) + 1)), strict=False))
    return {
        variant: own[method]
        | {"linestyle": DASHES[dashes.get(other, 0)]}
        | {"markerfacecolor": "white" if other else own[method]["color"]}
        for variant, (method, other) in parts.items()
    }


WIRELESS_TIME = Drawing(
    "wireless-time",
    "wireless-time",
    Plot(kind="curves", x="time_s", window=5),
    shows=RADIUS,
    look=choose_exchange_styles,
)
"""Training alone and together, against the seconds that the rounds take."""
WIRELESS_TIME_ENERGY = Drawing(
    "wireless-time-energy",
    "wireless-time",
    Plot(kind="curves", x="energy_j", window=5),
    shows=RADIUS,
    look=choose_exchange_styles,
)
"""The same against the energy of what is sent."""

DEEPJSCC_IMAGES = Drawing(
    "deepjscc-images",
    "deepjscc-federated",
    Plot(kind="images", at={"seed": 0, "variant": ["central", "local", "fedavg", "digital-chain"]}),
    shows=(TEST_SNR,),
)
"""Images rebuilt by clients of three classes, as they come back."""

LETTER_FIG2A = Drawing("letter-fig2a", "letter-fig2a", Plot(kind="curves", facet="clients"))
"""Fig. 2(a) of the FedCL letter."""
LETTER_FIG2B = Drawing("letter-fig2b", "letter-fig2b", Plot(kind="lines", x=SNR))
"""Fig. 2(b) of the FedCL letter, trained at each SNR."""


def unmarked(study: Study, plot: Plot) -> pd.DataFrame:
    """Average over seeds, without marks: Holm's correction would be over test SNRs too, which are of the same runs."""
    return study.along(plot.fields).mean(plot.fields, metric=plot.y)


DEEPJSCC_FEDERATED = Drawing(
    "deepjscc-federated",
    "deepjscc-federated",
    Plot(kind="lines", x=TEST, y="psnr", hue="variant"),
    numbers=unmarked,
    shows=(TEST_SNR,),
)
"""PSNR of images that come back against test SNR, beside the digital chain."""
LETTER_FIG2B_ONCE = Drawing(
    "letter-fig2b-once",
    "letter-fig2b-once",
    Plot(kind="lines", x=TEST, hue="variant", facet="model.features"),
    numbers=unmarked,
    shows=(TEST_SNR, "model.features"),
)
"""Fig. 2(b) of the FedCL letter, trained at one SNR."""
LETTER_FIG3A = Drawing("letter-fig3a", "letter-fig3a", Plot(kind="curves", hue=WAYS), shows=(WAYS, "partition.shots"))
"""Fig. 3(a) of the FedCL letter."""
LETTER_FIG3B = Drawing(
    "letter-fig3b",
    "letter-fig3b",
    Plot(kind="lines", x=WAYS),
    caption=lambda cells, plot: (
        f"{LINES.caption(cells, plot)} Clients answer among all ten classes; letter-fig3b-own has their accuracy among "
        "their own classes too."
    ),
    shows=(WAYS, "partition.shots"),
)
"""Fig. 3(b) of the FedCL letter."""
OWN = " (own classes)"
"""Behind the name of a method: its answers are taken among the classes of each client."""


def answers(study: Study, plot: Plot) -> pd.DataFrame:
    """Return the means of each method among all ten classes, and below them those among its clients' own classes.

    Runs whose clients have all classes tell no second number, which would be the first.
    """
    study, by = study.along(plot.fields), list(plot.fields)
    among_ten = study.mean(by, metric=plot.y)
    untold = {run.field(WAYS) for run in study.stored if "among_own" not in (run.view() or {})}
    told = list({run.field(WAYS) for run in study.stored} - untold)
    parts = [study.where({WAYS: told}).mean(by, metric="among_own")] if told else []
    own = pd.concat([*parts, among_ten[~among_ten[WAYS].isin(told)]])
    own = own.sort_values("variant", key=lambda names: names.map(study.variants.index), kind="stable")
    return pd.concat([among_ten, own.assign(variant=own["variant"] + OWN)], ignore_index=True)


LETTER_FIG3B_OWN = Drawing(
    "letter-fig3b-own",
    "letter-fig3b",
    Plot(kind="lines", x=WAYS, hue="variant"),
    numbers=answers,
    caption=lambda cells, plot: (
        f"{LINES.caption(cells, plot)} Clients answer among all ten classes, or, dotted and with hollow marks, among "
        "their own: the same outputs, of which those of other classes are left out."
    ),
    shows=(WAYS, "partition.shots"),
    look=lambda variants: style_by_method({name: name.partition(OWN)[:2] for name in variants}, {OWN: 3}),
)
"""The same with the accuracy among the clients' own classes."""
LETTER_FIG4 = Drawing("letter-fig4", "letter-fig4", Plot(kind="embedding", at={"seed": 0}), shows=(SNR,))
"""Fig. 4 of the FedCL letter."""
LETTER_ABLATION = Drawing(
    "letter-ablation",
    "letter-ablation",
    Plot(kind="lines", x=TEST, hue="variant"),
    numbers=unmarked,
    shows=(TEST_SNR,),
)
"""FedCL with one thing changed, against test SNR."""
LETTER_ENCODERS = Drawing("letter-encoders", "letter-encoders", Plot(kind="dots", x="variant", hue="model.encoder"))
"""One encoder for all, and four in turn."""

FEDCOSR_TABLE2 = Drawing("fedcosr-table2", "fedcosr-table2", Plot(kind="dots", x="variant", hue=KIND, facet=DATA))
"""Table II of FedCoSR as a figure."""
FEDCOSR_FIG4 = Drawing("fedcosr-fig4", "fedcosr-fig4", Plot(kind="divisions", facet=KIND))
"""Fig. 4 of FedCoSR."""
FEDCOSR_FIG5 = Drawing("fedcosr-fig5", "fedcosr-fig5", Plot(kind="curves", facet=KIND, window=10))
"""Fig. 5 of FedCoSR: at scale `paper` ten evaluations are 50 rounds, but for the last ten rounds, all evaluated."""
FEDCOSR_FIG6 = Drawing(
    "fedcosr-fig6", "fedcosr-fig6", Plot(kind="clients", at={"seed": 0}), shows=("partition.scarce_fraction",)
)
"""Fig. 6 of FedCoSR."""
FEDCOSR_FIG7 = Drawing(
    "fedcosr-fig7",
    "fedcosr-fig7",
    Plot(kind="lines", x="partition.fraction", facet=KIND),
    shows=("partition.fraction", KIND, BETA, "partition.classes", "partition.min_size"),
)
"""Fig. 7 of FedCoSR."""
FEDCOSR_FIG8 = Drawing("fedcosr-fig8", "fedcosr-fig8", Plot(kind="dots", x="variant", hue=KIND, facet=DATA))
"""Fig. 8 of FedCoSR."""
FEDCOSR_FIG9 = Drawing("fedcosr-fig9", "fedcosr-fig9", Plot(kind="embedding", at={"seed": 0}), shows=(KIND,))
"""Fig. 9 of FedCoSR."""
FEDCRL_TABLE2 = Drawing("fedcrl-table2", "fedcrl-table2", Plot(kind="dots", x="variant", hue=KIND, facet=DATA))
"""Table II of FedCRL as a figure."""
FEDCRL_CURVES = Drawing("fedcrl-curves", "fedcrl-curves", Plot(kind="curves", facet=KIND, window=4))
"""The learning curves of FedCRL: at scale `paper` four evaluations are 20 rounds, but at the end, as in Fig. 5."""
FEDCRL_TSNE = Drawing("fedcrl-tsne", "fedcrl-tsne", Plot(kind="embedding", at={"seed": 0}), shows=(KIND,))
"""The t-SNE of FedCRL."""

FEDCRC_FIG3 = Drawing("fedcrc-fig3", "fedcrc-fig3", Plot(kind="curves", facet=KIND), shows=(KIND, BETA))
"""Fig. 3 of FedCRC."""


def by_division(study: Study, plot: Plot) -> pd.DataFrame:
    """Return means over seeds against tau, with partition and beta as one field, `setting`."""
    return tabulate_by_setting(
        study,
        plot,
        [str(plot.x)],
        [KIND, BETA],
        lambda _, beta: "iid" if pd.isna(beta) else f"beta {format_number(beta)}",
    )


FEDCRC_TABLE3 = Drawing(
    "fedcrc-table3",
    "fedcrc-table3",
    Plot(kind="lines", x="hyper.tau", hue=SETTING),
    numbers=by_division,
    shows=("hyper.tau", KIND, BETA),
)
"""Table III of FedCRC as a figure."""


def distances(study: Study, plot: Plot) -> pd.DataFrame:
    """Return the mean distance of two clients' predictors over seeds, with its interval, by epochs and partition."""
    done = study.runs[study.runs["status"] == "done"]
    return compute_means(done, ["variant", *plot.fields], "predictor_distance")


FEDCRC_FIG1 = Drawing(
    "fedcrc-fig1",
    "fedcrc-fig1",
    Plot(kind="lines", x="finish.epochs", y="predictor_distance", hue=KIND),
    numbers=distances,
    caption=lambda cells, plot: (
        "Euclidean distance between the heads of two clients after a common training, against the epochs in which "
        "each trains its head alone; mean over seeds, bars: 95 % intervals (Student's t)."
    ),
    shows=("finish.epochs", KIND, BETA),
)
"""Fig. 1 of FedCRC."""

# RepPer is tested once, after its last stage: at the end all methods are.
REPPER_TABLE2 = Drawing(
    "repper-table2", "repper-table2", Plot(kind="dots", x="variant", y="last", hue="data.name", facet=BETA)
)
"""Table 2 of RepPer."""
REPPER_TABLE3 = Drawing("repper-table3", "repper-table3", Plot(kind="dots", x="variant", y="last", hue="finish.kind"))
"""Table 3 of RepPer."""
REPPER_TABLE4 = Drawing(
    "repper-table4",
    "repper-table4",
    Plot(kind="dots", x="variant", y="last", hue="data.name", facet="model.encoder"),
    shows=("data.name", "model.encoder", "model.features"),
)
"""Table 4 of RepPer."""
REPPER_FIG3 = Drawing("repper-fig3", "repper-fig3", Plot(kind="divisions", facet=BETA))
"""Fig. 3 of RepPer."""
