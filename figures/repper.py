"""The figures of RepPer's items, in the kinds that any study can have; what is of their own is which numbers they show.

All of them come from the stored results of `experiments.repper.items`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.measures.class_groups import GROUPS
from semcom.config import ConfigError
from semcom.plots import classes, embedding, lines
from semcom.plots.bars import DOTS
from semcom.plots.base import Drawing, Plot
from semcom.plots.points import SETTING, tabulate_by_setting
from semcom.runs.folder.arrays import CONFUSION
from semcom.studies.analysis.means import compute_means
from semcom.studies.analysis.study import Study
from semcom.studies.names import METHODS
from semcom.studies.overrides import format_number
from semcom.studies.results.run import Stored

ALPHA, SHARE, EPOCHS = "partition.beta", "train.participation", "train.local_epochs"
PARAMETER = "The Dirichlet distribution's beta is the paper's alpha."
EVERYONE = "all clients"
SHOWN = 2
"""Clients whose classes Fig. 5 shows, beside the mean over all."""
LOCAL = 7
"""Clients whose features Fig. 4 shows, beside those of all."""
RANK, WHOSE, CLIENT, LOSS, MODEL, THIRD = "rank", "whose", "client", "loss", "model", "third"


def _done(study: Study) -> list[Stored]:
    """Return the finished runs."""
    return [run for run in study.stored if run.status == "done"]


# Table 1 --------------------------------------------------------------------------------------------------------------


def by_schedule(study: Study, plot: Plot) -> pd.DataFrame:
    """Return means over seeds, with clients per round and local epochs as one field, `setting`."""
    return tabulate_by_setting(
        study,
        plot,
        ["variant", ALPHA],
        [SHARE, EPOCHS],
        lambda share, epochs: f"C {format_number(float(share))}, E {epochs}",
    )


def level(figure: Figure, cells: pd.DataFrame) -> None:
    """Give all panels one axis of accuracies."""
    ends = [end for axes in figure.axes for end in axes.get_xlim()]
    for axes in figure.axes:
        axes.set_xlim(min(ends), max(ends))


TABLE1 = Drawing(
    name="repper-table1",
    experiment="repper-table1",
    plot=Plot(kind="dots", x="variant", y="last", hue=ALPHA, facet=SETTING),
    numbers=by_schedule,
    caption=lambda cells, plot: f"{DOTS.caption(cells, plot)} {PARAMETER}",
    shows=(ALPHA, SHARE, EPOCHS),
    finish=level,
)
"""Table 1, a panel for each number of clients per round and of local epochs."""


# Figs. 1 and 4 --------------------------------------------------------------------------------------------------------


def of_one_client(study: Study, plot: Plot) -> pd.DataFrame:
    """Return `embedding.compute_embedding` of the images of client 0 alone, a panel for each method, seed 0."""
    runs = _of_seed_0(study)
    panels = [embedding.place_images(run, plot.view, client=0).assign(variant=run.variant) for run in runs]
    return _whole(panels, "variant")


def of_clients(study: Study, plot: Plot) -> pd.DataFrame:
    """Return `embedding.compute_embedding` of the images of the first seven clients, a panel for each, and of all.

    The clients are those with the most even classes first, by the share of the most frequent class.
    """
    run, *others = _of_seed_0(study)
    if others:
        raise ConfigError(f"results: {1 + len(others)} runs of seed 0 would be shown as one; give one with --at")
    panels = [embedding.place_images(run, plot.view).assign(**{WHOSE: EVERYONE})]
    counts = run.arrays()["counts/train"]
    some = np.arange(min(LOCAL, len(counts)))
    for client in some[np.argsort((counts.max(1) / counts.sum(1))[some], kind="stable")].tolist():
        name = f"client {client}: {(counts[client] > 0).sum()} classes"
        panels.append(embedding.place_images(run, plot.view, client=client).assign(**{WHOSE: name}))
    return _whole(panels, WHOSE)


def _of_seed_0(study: Study) -> list[Stored]:
    """Return the finished runs of seed 0. Raises ConfigError where there is none."""
    found = [run for run in _done(study) if run.fields.get("seed") == 0]
    if not found:
        raise ConfigError("results: no run of seed 0 finished, which is the one that is shown")
    return found


def _whole(panels: list[pd.DataFrame], name: str) -> pd.DataFrame:
    """Return the rows of all panels, with the column that tells these apart in front."""
    cells = pd.concat(panels, ignore_index=True)
    return cells[[name, *(column for column in cells if column != name)]]


def of_client_0(cells: pd.DataFrame, plot: Plot) -> str:
    """Return what the dots are."""
    return f"{embedding.describe_embedding(cells, plot)} All of client 0 (its test images), seed 0."


FIG1 = Drawing(
    name="repper-fig1",
    experiment="repper-fig1",
    plot=Plot(kind="embedding", facet="variant"),
    numbers=of_one_client,
    caption=of_client_0,
    shows=(ALPHA,),
)
"""Fig. 1."""
FIG4 = Drawing(
    name="repper-fig4",
    experiment="repper-fig4",
    plot=Plot(kind="embedding", facet=WHOSE),
    numbers=of_clients,
    shows=(ALPHA,),
)
"""Fig. 4, with the common body in the place of the clients' local models."""


# Fig. 5 ---------------------------------------------------------------------------------------------------------------


def by_rank(study: Study, plot: Plot) -> pd.DataFrame:
    """Return the accuracy of a client's classes by their place among its classes, the one with most images first.

    Of the first two clients of seed 0, and the mean over all clients of a run that test such a class, over seeds.

    Raises:
        ConfigError: a run kept no matrices.
    """
    rows = [row for run in _done(study) for row in _ranked(run)]
    frame = study.of_runs(rows)
    whole = frame.groupby(["hash", RANK], sort=False)["accuracy"].transform("mean")
    mean = frame.assign(accuracy=whole).drop_duplicates(["hash", RANK]).assign(**{WHOSE: EVERYONE})
    clients = frame[(frame["seed"] == 0) & (frame[CLIENT] < SHOWN)]
    shown = pd.concat([mean, clients.assign(**{WHOSE: clients[CLIENT].map("client {}".format)})])
    order = [WHOSE, RANK]
    return pd.concat(
        [compute_means(part, ["variant", *order], "accuracy") for _, part in shown.groupby(WHOSE, sort=False)]
    )


def _ranked(run: Stored) -> Iterator[dict[str, Any]]:
    """Yield the accuracy of each class that a client of a run has training images of and tests, with its place."""
    kept = run.arrays()
    view = next(iter((run.summary or {}).get("views", {})), "")
    if f"{CONFUSION}/{view}" not in kept:
        raise ConfigError(f"results: {run.variant} kept no matrices; repeat it with --keep {CONFUSION}")
    for client, matrix, counts in zip(kept["clients"], kept[f"{CONFUSION}/{view}"], kept["counts/train"], strict=True):
        order = [c for c in np.argsort(-counts, kind="stable") if counts[c]]
        for rank, c in enumerate(order, start=1):
            if matrix[c].sum():
                share = float(matrix[c, c] / matrix[c].sum())
                place = {CLIENT: int(client), RANK: rank, "accuracy": share}
                yield {"hash": run.hash, **place}


def of_ranks(cells: pd.DataFrame, plot: Plot) -> str:
    """Return what the lines are."""
    text = lines.describe_lines(cells, plot)
    return f"{text} Of a client's classes the first is that of which it has the most training images. Clients: seed 0."


FIG5 = Drawing(
    name="repper-fig5",
    experiment="repper-fig5",
    plot=Plot(kind="lines", x=RANK, hue="variant", facet=WHOSE),
    numbers=by_rank,
    caption=of_ranks,
    shows=(ALPHA,),
)
"""Fig. 5: two clients, and the mean over all."""


# Fig. 6 ---------------------------------------------------------------------------------------------------------------


def of_newcomers(study: Study, plot: Plot) -> pd.DataFrame:
    """Return the accuracy of each new client with a head of its own; of several seeds that of the k-th least accurate.

    Raises:
        ConfigError: a run had no new clients.
    """
    rows = []
    for run in _done(study):
        each = (run.summary or {}).get("new_clients", {}).get("head", {}).get("clients", [])
        if not each:
            raise ConfigError(f"results: {run.variant} had no new clients")
        each = each if study.runs["seed"].nunique() == 1 else sorted(each)
        rows += [{"hash": run.hash, CLIENT: i, "accuracy": value} for i, value in enumerate(each)]
    return compute_means(study.of_runs(rows), ["variant", CLIENT], "accuracy")


def of_each(cells: pd.DataFrame, plot: Plot) -> str:
    """Return what the bars are."""
    return f"{classes.describe_clients(cells, plot)} New clients, each with a head of its own."


FIG6 = Drawing(
    name="repper-fig6",
    experiment="repper-fig6",
    plot=Plot(kind="clients", x=CLIENT, facet="variant"),
    numbers=of_newcomers,
    caption=of_each,
    shows=(ALPHA,),
)
"""Fig. 6, a panel for each method."""


# Section 5 ------------------------------------------------------------------------------------------------------------

LOSSES: Mapping[str, str] = {"contrast": "contrastive loss (Eq. 5)", "cross_entropy": "cross-entropy"}
STATES: Mapping[str, str] = {"groups_initial": "before training", "groups": "trained"}


def of_gradients(study: Study, plot: Plot) -> pd.DataFrame:
    """Return an image's gradient by the third that its class is in, in units of the mean over all images of a run."""
    rows = []
    for run in _done(study):
        for state, when in STATES.items():
            for third, numbers in (run.summary or {}).get(state, {}).items():
                place = {"hash": run.hash, MODEL: f"{METHODS[run.fields['method']]}, {when}", THIRD: third}
                for loss, name in LOSSES.items():
                    relative = numbers[f"{loss}_share"] / numbers["image_share"]
                    rows.append({**place, LOSS: name, plot.y: relative})
    cells = compute_means(study.of_runs(rows), [MODEL, LOSS, THIRD], plot.y)
    return cells.sort_values(THIRD, key=lambda column: column.map(GROUPS.index), kind="stable", ignore_index=True)


def of_thirds(cells: pd.DataFrame, plot: Plot) -> str:
    """Return what the bars are."""
    return (
        "Length of the gradient of an image's loss by its features, in units of the mean over all images; the classes "
        "of each client are cut into thirds, from those with the most images (head) to those with the fewest (tail)."
    )


GRADIENTS = Drawing(
    name="repper-gradients",
    experiment="repper-gradients",
    plot=Plot(kind="bars", x=THIRD, y="relative gradient", hue=LOSS, facet=MODEL),
    numbers=of_gradients,
    caption=of_thirds,
    shows=(ALPHA,),
)
"""The gradients of section 5."""
