"""The figures of RepPer's items, in the kinds of any study, with their own numbers from the stored results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from semcom.config import ConfigError
from semcom.plots import classes, embedding, lines
from semcom.plots.bars import DOTS
from semcom.plots.base import Drawing, Plot
from semcom.plots.points import SETTING, tabulate_by_setting
from semcom.runs.folder.arrays import CONFUSION
from semcom.studies.analysis.means import compute_means, cut_intervals
from semcom.studies.analysis.study import Study
from semcom.studies.names import METHODS
from semcom.studies.overrides import format_number
from semcom.studies.results.run import Stored
from semcom.tasks.metric import ACCURACY
from semcom_papers.experiments.measures.class_groups import GROUPS

ALPHA, SHARE, EPOCHS = "partition.beta", "train.participation", "train.local_epochs"
PARAMETER = "The Dirichlet distribution's beta is the paper's alpha."
EVERYONE = "all clients"
SHOWN = 2
"""Clients whose classes Fig. 5 shows, beside the mean over all."""
LOCAL = 7
"""Clients whose features Fig. 4 shows, beside those of all."""
RANK, WHOSE, CLIENT, LOSS, MODEL, THIRD = "rank", "whose", "client", "loss", "model", "third"


def _list_done(study: Study) -> list[Stored]:
    return [run for run in study.stored if run.status == "done"]


# Table 1 --------------------------------------------------------------------------------------------------------------


def average_repper_by_schedule(study: Study, plot: Plot) -> pd.DataFrame:
    """Average over seeds, with clients per round and local epochs as one field, `setting`."""

    def name(share: Any, epochs: Any) -> str:
        return f"C {format_number(float(share))}, E {epochs}"

    return tabulate_by_setting(study, plot, ["variant", ALPHA], [SHARE, EPOCHS], name)


def share_abscissa(figure: Figure, cells: pd.DataFrame) -> None:
    """Give all panels one axis of accuracies."""
    ends = [end for axes in figure.axes for end in axes.get_xlim()]
    for axes in figure.axes:
        axes.set_xlim(min(ends), max(ends))


# Figs. 1 and 4 --------------------------------------------------------------------------------------------------------


def embed_client_0(study: Study, plot: Plot) -> pd.DataFrame:
    """Compute `embedding.compute_embedding` of the images of client 0, a panel for each method, seed 0."""
    runs = _list_seed_0(study)
    for variant in study.variants:
        _check_alone([run for run in runs if run.variant == variant])
    panels = [embedding.place_images(run, plot.view, client=0).assign(variant=run.variant) for run in runs]
    return _join_panels(panels, "variant")


def embed_clients(study: Study, plot: Plot) -> pd.DataFrame:
    """Compute `embedding.compute_embedding` of the images of the first seven clients, a panel for each, and of all.

    Clients with more even classes come first, by the share of the most frequent class.
    """
    run, *_ = runs = _list_seed_0(study)
    _check_alone(runs)
    panels = [embedding.place_images(run, plot.view).assign(**{WHOSE: EVERYONE})]
    counts = run.arrays()["counts/train"]
    some = np.arange(min(LOCAL, len(counts)))
    for client in some[np.argsort((counts.max(1) / counts.sum(1))[some], kind="stable")].tolist():
        name = f"client {client}: {(counts[client] > 0).sum()} classes"
        panels.append(embedding.place_images(run, plot.view, client=client).assign(**{WHOSE: name}))
    return _join_panels(panels, WHOSE)


def _list_seed_0(study: Study) -> list[Stored]:
    """List the finished runs of seed 0. Raises ConfigError without any."""
    found = [run for run in _list_done(study) if run.fields.get("seed") == 0]
    if not found:
        raise ConfigError("results: no run of seed 0 finished, which is the one that is shown")
    return found


def _check_alone(runs: Sequence[Stored]) -> None:
    """Check that no run of seed 0 would hide others. Raises ConfigError."""
    if len(runs) > 1:
        raise ConfigError(f"results: {len(runs)} runs of seed 0 would be shown as one; give one with --at")


def _join_panels(panels: list[pd.DataFrame], name: str) -> pd.DataFrame:
    """Join the rows of all panels, with the column that distinguishes panels in front."""
    cells = pd.concat(panels, ignore_index=True)
    return cells[[name, *(column for column in cells if column != name)]]


# Fig. 5 ---------------------------------------------------------------------------------------------------------------


def average_repper_rank(study: Study, plot: Plot) -> pd.DataFrame:
    """Average the accuracy of a client's classes by their rank, the class with the most training images first.

    For the first two clients of seed 0, and for the mean over all clients of a run that test such a class, over seeds.

    Raises:
        ConfigError: a run kept no matrices.
    """
    rows = [row for run in _list_done(study) for row in _rank_classes(run)]
    frame = study.of_runs(rows)
    whole = frame.groupby(["hash", RANK], sort=False)["accuracy"].transform("mean")
    mean = frame.assign(accuracy=whole).drop_duplicates(["hash", RANK]).assign(**{WHOSE: EVERYONE})
    clients = frame[(frame["seed"] == 0) & (frame[CLIENT] < SHOWN)]
    shown = pd.concat([mean, clients.assign(**{WHOSE: clients[CLIENT].map("client {}".format)})])
    parts = (part for _, part in shown.groupby(WHOSE, sort=False))
    return pd.concat([cut_intervals(compute_means(p, ["variant", WHOSE, RANK], "accuracy"), ACCURACY) for p in parts])


def _rank_classes(run: Stored) -> Iterator[dict[str, Any]]:
    """Yield the accuracy of each class that a client of a run trains and tests, with its rank."""
    kept = run.arrays()
    view = next(iter((run.summary or {}).get("views", {})), "")
    if f"{CONFUSION}/{view}" not in kept:
        raise ConfigError(f"results: {run.variant} kept no matrices; repeat it with --keep {CONFUSION}")
    for client, matrix, counts in zip(kept["clients"], kept[f"{CONFUSION}/{view}"], kept["counts/train"], strict=True):
        order = [c for c in np.argsort(-counts, kind="stable") if counts[c]]
        for rank, c in enumerate(order, start=1):
            if matrix[c].sum():
                share = float(matrix[c, c] / matrix[c].sum())
                yield {"hash": run.hash, CLIENT: int(client), RANK: rank, "accuracy": share}


# Fig. 6 ---------------------------------------------------------------------------------------------------------------


def average_repper_new(study: Study, plot: Plot) -> pd.DataFrame:
    """Average the accuracy of each new client with its own head; over several seeds that of the k-th least accurate.

    Raises:
        ConfigError: a run had no new clients.
    """
    rows, done = [], _list_done(study)
    several = len({run.fields.get("seed") for run in done}) > 1
    for run in done:
        each = (run.summary or {}).get("new_clients", {}).get("head", {}).get("clients", [])
        if not each:
            raise ConfigError(f"results: {run.variant} had no new clients")
        each = sorted(each) if several else each
        rows += [{"hash": run.hash, CLIENT: i, "accuracy": value} for i, value in enumerate(each)]
    cells = compute_means(study.of_runs(rows), ["variant", CLIENT], "accuracy")
    return cut_intervals(cells, ACCURACY).assign(**{classes.SORTED: several})


# Section 5 ------------------------------------------------------------------------------------------------------------

LOSSES: Mapping[str, str] = {"contrast": "contrastive loss (Eq. 5)", "cross_entropy": "cross-entropy"}
STATES: Mapping[str, str] = {"groups_initial": "before training", "groups": "trained"}


def average_repper_gradients(study: Study, plot: Plot) -> pd.DataFrame:
    """Average an image's gradient by the third of its class, in units of the mean over all images of a run."""
    rows = []
    for run in _list_done(study):
        for state, when in STATES.items():
            for third, numbers in (run.summary or {}).get(state, {}).items():
                place = {"hash": run.hash, MODEL: f"{METHODS[run.fields['method']]}, {when}", THIRD: third}
                for loss, name in LOSSES.items():
                    relative = numbers[f"{loss}_share"] / numbers["image_share"]
                    rows.append({**place, LOSS: name, plot.y: relative})
    cells = compute_means(study.of_runs(rows), [MODEL, LOSS, THIRD], plot.y)
    return cells.sort_values(THIRD, key=lambda column: column.map(GROUPS.index), kind="stable", ignore_index=True)


# fmt: off
# A panel for each number of clients per round and of local epochs.
TABLE1 = Drawing("repper-table1", "repper-table1",
                 Plot(kind="dots", x="variant", y="last", hue=ALPHA, facet=SETTING), average_repper_by_schedule,
                 lambda cells, plot: f"{DOTS.caption(cells, plot)} {PARAMETER}",
                 shows=(ALPHA, SHARE, EPOCHS), finish=share_abscissa)
FIG1 = Drawing("repper-fig1", "repper-fig1", Plot(kind="embedding", facet="variant"), embed_client_0,
               lambda cells, plot: (
                   f"{embedding.describe_embedding(cells, plot)} All of client 0 (its test images), seed 0."
               ), shows=(ALPHA,))
# With the common body in the place of the clients' local models.
FIG4 = Drawing("repper-fig4", "repper-fig4", Plot(kind="embedding", facet=WHOSE), embed_clients, shows=(ALPHA,))
FIG5 = Drawing("repper-fig5", "repper-fig5", Plot(kind="lines", x=RANK, hue="variant", facet=WHOSE),
               average_repper_rank,
               lambda cells, plot: (
                   f"{lines.describe_lines(cells, plot)} Of a client's classes the first is that of which it has the "
                   "most training images. Clients: seed 0."
               ), shows=(ALPHA,))
FIG6 = Drawing("repper-fig6", "repper-fig6", Plot(kind="clients", x=CLIENT, facet="variant"), average_repper_new,
               lambda cells, plot: (
                   f"{classes.describe_clients(cells, plot)} New clients, each with a head of its own."
               ), shows=(ALPHA,))
GRADIENTS = Drawing("repper-gradients", "repper-gradients",
                    Plot(kind="bars", x=THIRD, y="relative gradient", hue=LOSS, facet=MODEL), average_repper_gradients,
                    lambda cells, plot: (
                        "Length of the gradient of an image's loss by its features, in units of the mean over all "
                        "images; the classes of each client are cut into thirds, from those with the most images "
                        "(head) to those with the fewest (tail)."
                    ), shows=(ALPHA,))
