"""Views of a method's result: its models in use, their decisions and their answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from semcom.channels import Link
from semcom.config import ConfigError
from semcom.data.dataset import find_picture
from semcom.data.federation import Ragged
from semcom.engine.host.sending import send_to_device
from semcom.engine.store.population import Population
from semcom.engine.train.descent import Diverged
from semcom.engine.train.session import Session
from semcom.engine.train.visit import Outputs, infer_on_visit
from semcom.tasks.task import Task

Scores = Callable[[Tensor, Tensor, Mapping[str, Tensor]], Tensor]
"""`(received features [k, b, d], logits [k, b, C], per_client) -> scores [k, b, C]`; the largest one is the answer."""


@dataclass(frozen=True)
class View:
    """A way to use trained models: a population and, if it is not the head's logits, its decision.

    Attributes:
        population: the models of K clients.
        scores: the decision (None: the logits).
        per_client: context of `scores`, `[K, ...]` each, in the order of `population.ids`.
    """

    population: Population
    scores: Scores | None = None
    per_client: Mapping[str, Tensor] = field(default_factory=dict)

    def check_client(self, client: int) -> None:
        """Raise ConfigError unless there is a model of a client."""
        ids = self.population.ids
        if client not in ids:
            known = f"there are {len(ids)}, {ids[0]} to {ids[-1]}"
            raise ConfigError(f"client: there is no model of client {client}; {known}")

    def answer(self, heard: Outputs) -> Tensor:
        """Compute the scores or other outputs of a batch that has passed the models, `[k, b, ...]`.

        They are computed once for all who ask: metrics, accuracies among own classes, and stored scores.
        """
        if id(self) not in heard.answers:
            heard.answers[id(self)] = self._answer(heard)
        return heard.answers[id(self)]

    def _answer(self, heard: Outputs) -> Tensor:
        if self.scores is None:
            return heard.logits
        return self.scores(heard.features, heard.logits, {n: t[heard.where] for n, t in self.per_client.items()})

    def decide(self, heard: Outputs, among: Tensor | None = None) -> Tensor:
        """Choose the classes of a batch, `[k, b]`.

        Args:
            heard: the batch after the models.
            among: classes that may be the answer of each client, bool `[k, C]` (None: all).
        """
        scores = self.answer(heard)
        if among is not None:
            scores = scores.masked_fill(~among[:, None], -torch.inf)
        return scores.argmax(-1)


AMONG = "among_own"
"""Accuracy of answers among the classes of a client's training images."""
Note = Callable[[Sequence[str], Outputs], None]
"""`(views, outputs)`: a function that gets each batch of a test, for the views of one population."""


def count_confusion(
    session: Session,
    views: Mapping[str, View],
    snr_db: float | None,
    table: Ragged,
    stream: str = "test",
    metered: bool = True,
) -> dict[str, Tensor]:
    """Count (true, predicted) classes per view and client, `[K, C, C]`, at one SNR; see `count_confusions_of_views`."""
    return count_confusions_of_views(session, views, (snr_db,), table, stream, metered)[0]


def count_confusions_of_views(
    session: Session,
    views: Mapping[str, View],
    snrs_db: Sequence[float | None],
    table: Ragged,
    stream: str = "test",
    metered: bool = True,
    note: Note | None = None,
) -> list[dict[str, Tensor]]:
    """Count (true, predicted) classes per view and client, int64 `[K, C, C]`, at each SNR.

    Views and SNRs share the realisation of the channel, and encoders wherever they are the same.

    Args:
        session: the run.
        views: views to test.
        snrs_db: SNR of all clients in each test, or None: their training SNR.
        table: which samples, usually those of `federation.test`.
        stream: names the realisation of the channel.
        metered: whether the received SNR counts as that of the run's test at the same SNR.
        note: is shown each batch of this rank's clients.

    Raises:
        Diverged: a score is NaN.
    """
    draws = session.draws
    c, tests = len(draws.federation.classes), len(snrs_db)
    sizes = {name: (tests, len(view.population.ids), c * c) for name, view in views.items()}
    counts = {name: torch.zeros(size, dtype=torch.int64, device=draws.device) for name, size in sizes.items()}
    wrong = {name: torch.zeros(size[1], dtype=torch.int64, device=draws.device) for name, size in sizes.items()}

    def count(names: Sequence[str], heard: Outputs) -> None:
        for name in names:
            real = heard.batch.weight.to(torch.int64)
            cell = heard.batch.y * c + views[name].decide(heard)
            rows = counts[name][heard.test]
            rows[heard.where] = rows[heard.where].scatter_add(1, cell, real)
            wrong[name][heard.where] += (views[name].answer(heard).isnan().any(-1) * real).sum(1)
        if note is not None:
            note(names, heard)

    show_tests(session, views, snrs_db, table, count, stream, metered)
    for name, t in wrong.items():
        _check_answers(stream, views[name], session.team.sum(t).cpu().numpy() > 0)
    found = {name: session.team.sum(t).unflatten(-1, (c, c)) for name, t in counts.items()}
    return [{name: t[test] for name, t in found.items()} for test in range(tests)]


@dataclass(frozen=True)
class Measured:
    """A metric of some clients.

    Attributes:
        clients: mean over the samples of each, `[K]`; NaN for a client without samples.
        pooled: mean over all samples.
    """

    clients: np.ndarray
    pooled: float


def measure_views(
    session: Session,
    views: Mapping[str, View],
    snrs_db: Sequence[float | None],
    table: Ragged,
    stream: str = "test",
    metered: bool = True,
    note: Note | None = None,
    among: Mapping[str, Tensor] | None = None,
) -> list[dict[str, dict[str, Measured]]]:
    """Measure answers by the task's metrics: at each SNR of each view, by name.

    Arguments as for `count_confusions_of_views`; with `among`, for each view classes of its clients, bool `[K, C]`,
    also the accuracy `among_own` of answers among these.

    Raises:
        Diverged: an answer is NaN, or a metric of some client's samples is not finite.
    """
    task, tests = session.draws.task, len(snrs_db)
    names = [*(metric.name for metric in task.metrics), *([] if among is None else [AMONG])]
    shape = {name: (tests, len(view.population.ids), len(names) + 1) for name, view in views.items()}
    sums = {name: torch.zeros(of, dtype=torch.float64, device=session.draws.device) for name, of in shape.items()}

    def add(of: Sequence[str], heard: Outputs) -> None:
        for name in of:
            answers = views[name].answer(heard)
            each = {**_measure_pictures(task, heard, answers)}
            if among is not None:
                each[AMONG] = views[name].decide(heard, among[name][heard.where]) == heard.batch.y
            each[""] = answers.isnan().reshape(*heard.batch.y.shape, -1).any(-1)
            for i, metric in enumerate((*names, "")):
                real = torch.where(heard.batch.weight > 0, each[metric], 0).double()
                sums[name][heard.test, heard.where, i] += real.sum(1)
        if note is not None:
            note(of, heard)

    show_tests(session, views, snrs_db, table, add, stream, metered)
    found: list[dict[str, dict[str, Measured]]] = [{} for _ in snrs_db]
    for name, t in sums.items():
        *totals, wrong = np.moveaxis(session.team.sum(t).cpu().numpy(), -1, 0)  # `[tests, K]` each
        sizes = table.sizes[views[name].population.ids]
        means = [total / np.where(sizes, sizes, np.nan) for total in totals]
        finite = np.isfinite(means).all((0, 1)) & (wrong == 0).all(0)
        _check_answers(stream, views[name], ~finite & (sizes > 0))
        for test in range(tests):
            found[test][name] = {
                metric: Measured(mean[test], float(total[test].sum() / max(1, sizes.sum())))
                for metric, mean, total in zip(names, means, totals, strict=True)
            }
    return found


def _measure_pictures(task: Task, heard: Outputs, answers: Tensor) -> dict[str, Tensor]:
    sides = heard.federation.sides if task.pictures else None
    return measure_pictures(task, answers, heard.batch.target, None if sides is None else sides[heard.index.cpu()])


def measure_pictures(task: Task, answers: Tensor, target: Tensor, sides: Tensor | None) -> dict[str, Tensor]:
    """Measure answers by a task's metrics, `[k, b]` by name, without the border around each picture.

    `sides`: height and width of the pictures, `[k, b, 2]` on the host (None: without a border).
    """
    if sides is None:
        return task.measure(answers, target)
    answers, size, found = answers.reshape(target.shape), target.shape[-1], dict[str, Tensor]()
    for height, width in sides.flatten(0, 1).unique(dim=0).tolist():
        alike = (sides == torch.tensor([height, width])).all(-1).to(answers.device)
        inside = find_picture(size, height, width)
        for name, values in task.measure(answers[alike][None][inside], target[alike][None][inside]).items():
            found.setdefault(name, values.new_zeros(alike.shape))[alike] = values[0]
    return found


def _check_answers(stream: str, view: View, wrong: np.ndarray) -> None:
    """Raise Diverged where answers of some clients of a view, bool `[K]`, are not finite."""
    if wrong.any():
        raise Diverged(stream, view.population.ids[wrong].tolist(), "answers in tests")


def show_tests(
    session: Session,
    views: Mapping[str, View],
    snrs_db: Sequence[float | None],
    table: Ragged,
    note: Note,
    stream: str = "test",
    metered: bool = True,
) -> None:
    """Pass the tests of this rank's clients at each SNR to `note`; arguments as for `count_confusions_of_views`."""
    names: dict[str, list[str]] = {}
    for name, view in views.items():
        names.setdefault(str(id(view.population)), []).append(name)
    pops = {key: views[same[0]].population for key, same in names.items()}
    named = dict(zip(session.draws.test_snrs, session.tally.tests, strict=True))
    meters = [session.tally.meters[named[snr]] if metered and snr in named else None for snr in snrs_db]

    def shown(heard: Outputs) -> None:
        note(names[heard.name], heard)

    infer_on_visit(session, pops, table, shown, stream=stream, snrs_db=snrs_db, meters=meters)


def predict_in_view(session: Session, view: View, client: int, images: Tensor, snr_db: float | None) -> Tensor:
    """Predict the classes, int64 `[b]`, of images by a client's model, through the channel; see `infer_in_view`."""
    heard = infer_in_view(session, view, client, images, snr_db)
    answers = [view.decide(each) for each in heard]
    none = torch.zeros(1, 0, dtype=torch.int64, device=session.draws.device)  # the answer to no image at all
    return torch.cat([none, *answers], 1)[0].cpu()


def infer_in_view(
    session: Session, view: View, client: int, images: Tensor, snr_db: float | None, link: Link | None = None
) -> list[Outputs]:
    """Run a client's model on images, and return its outputs per batch: `[1, b, ...]` each.

    Args:
        session: the run.
        view: the models and their decision.
        client: id.
        images: uint8 `[b, channels, size, size]`, or other inputs as the data of the run.
        snr_db: test SNR, or None: the client's training SNR.
        link: the link for the features (None: the run's).

    Raises:
        ConfigError: images of another shape or type, or a client that has no model in the view.
    """
    draws, device = session.draws, session.draws.device
    shape = tuple(draws.federation.images.shape[1:])
    kind = draws.federation.images.dtype
    if images.dtype != kind or tuple(images.shape[1:]) != shape:
        wanted = f"{str(kind).removeprefix('torch.')} [b, {', '.join(map(str, shape))}]"
        raise ConfigError(f"images: {images.dtype} {tuple(images.shape)} is not {wanted}")
    view.check_client(client)
    n = len(images)
    labels = torch.zeros(n, dtype=torch.int64, device=device)
    guest = replace(draws.federation, images=images.to(device), labels=labels)
    offsets = np.where(np.arange(draws.config.clients + 1) > client, n, 0)
    table = Ragged(torch.arange(n, device=device), offsets)
    heard: list[Outputs] = []
    one = {"": view.population.select(np.array([client]))}
    alone = replace(session, tally=session.tally.alone())  # which of a run's processes asks makes no difference
    stream = "predict"
    infer_on_visit(alone, one, table, heard.append, stream=stream, snrs_db=(snr_db,), link=link, federation=guest)
    where = send_to_device(np.searchsorted(view.population.ids, [client]), device)
    return [replace(each, where=where) for each in heard]
