"""The arrays that a run keeps on request (`RunConfig.keep`), made by tests of its last state.

docs/metrics.md names them. Legend: K tested clients, C classes, E evaluations, n images with stored features, d
features.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor

from semcom.config import ConfigError, Resolved
from semcom.data.federation import Federation, Ragged, to_bytes
from semcom.engine.host.keys import keyed
from semcom.engine.train.view import View, count_confusions_of_views, show_tests
from semcom.engine.train.visit import Outputs
from semcom.engine.world import World
from semcom.runs.folder.arrays import CONFUSION, CURVES, FEATURES, IMAGES, Arrays
from semcom.runs.result.evaluation import is_evaluation_due, narrow_evaluated_views

Stages = Mapping[int, Mapping[str, View]]
"""Round that keys the draws of tests -> the tested views."""

MOST = 10_000
"""Largest number of test images with stored features."""
PICTURES, EACH = 64, 4
"""Number of test images that are kept as they come back, at most: of all clients, and of each."""
LARGEST = 2**28
"""Bytes of an array, at most."""


def check_artifacts(config: Resolved, members: Federation) -> None:
    """Raise ConfigError, before any work, for arrays that have no folder, or of too many clients."""
    if config.keep and config.out is None:
        raise ConfigError(f"keep: {','.join(config.keep)!r} has no effect without out; give a folder")
    clients = config.train.eval_clients or config.clients
    evaluations = sum(is_evaluation_due(config, round_) for round_ in range(1, config.train.rounds + 1))
    for what, numbers in ((CONFUSION, len(members.classes) ** 2), (CURVES, evaluations)):
        size = 8 * clients * numbers
        if what in config.keep and size > LARGEST:
            amounts = f"{size / 2**20:,.0f} MiB a view, and at most {LARGEST >> 20} are kept"
            raise ConfigError(f"keep: {what!r} of {clients:,} clients takes {amounts}; set train.eval-clients")


# -- what is kept ----------------------------------------------------------------------------------------------------


def collect_artifacts(
    world: World, stages: Stages, lines: Sequence[Mapping[str, Any]], keep: Collection[str]
) -> Arrays:
    """Collect the arrays of some kinds; every rank takes part, and all get the same.

    Tests are repeated with their draws, at the first test SNR, without any effect on counters.

    Args:
        world: the run, after its last round.
        stages: the tested stages.
        lines: the rounds' lines of metrics.jsonl, and that of the last stage.
        keep: the kinds.
    """
    ids = [world.tested(), *(view.population.ids for views in stages.values() for view in views.values())]
    clients = reduce(np.intersect1d, ids)
    found: Arrays = {"clients": clients}
    if {CONFUSION, FEATURES, IMAGES} & set(keep):
        found |= _collect_tests(world, stages, clients, keep)
    return found | (_collect_curves(lines) if CURVES in keep else {})


def _collect_tests(world: World, stages: Stages, clients: np.ndarray, keep: Collection[str]) -> Arrays:
    session, found = world.session, Arrays()
    federation = session.draws.federation
    samples = Samples.of(world, clients) if FEATURES in keep else None
    pictures = Pictures.of(world, clients) if IMAGES in keep else None
    for round_, views in stages.items():
        with session.tally.uncounted():
            session.tally.begin(round_)
            whole = all(len(view.population.ids) == len(clients) for view in views.values())
            chosen = views if whole else narrow_evaluated_views(views, clients)
            snrs = session.draws.test_snrs[: None if pictures is not None else 1]
            note = partial(_note_tests, samples, pictures, chosen)
            if CONFUSION in keep:
                tables = count_confusions_of_views(session, chosen, snrs, federation.test, metered=False, note=note)[0]
                found |= {f"confusion/{name}": t.cpu().numpy() for name, t in tables.items()}
            else:
                show_tests(session, chosen, snrs, federation.test, note, metered=False)
    if CONFUSION in keep:
        for name, table in (("train", federation.train), ("test", federation.test)):
            found[f"counts/{name}"] = count_artifact_classes(federation, table, clients)
    names = dict.fromkeys(name for views in stages.values() for name in views)
    found |= samples.arrays(names) if samples is not None else {}
    return found | (pictures.arrays(names) if pictures is not None else {})


def _note_tests(
    samples: Samples | None, pictures: Pictures | None, views: Mapping[str, View], names: Sequence[str], heard: Outputs
) -> None:
    if samples is not None and heard.test == 0:
        samples.note(names, heard)
    if pictures is not None:
        pictures.note(views, names, heard)


def _collect_curves(lines: Sequence[Mapping[str, Any]]) -> Arrays:
    """Collect each view's accuracies `[E, K]` and their rounds `[E]`."""
    found: Arrays = {}
    for name in dict.fromkeys(name for line in lines for name in line.get("views", {})):
        evaluated = [line for line in lines if name in line.get("views", {})]
        found[f"rounds/{name}"] = np.array([line["round"] for line in evaluated])
        found[f"curves/{name}"] = np.array([line["views"][name]["clients"] for line in evaluated])
    return found


def count_artifact_classes(federation: Federation, table: Ragged, clients: np.ndarray) -> np.ndarray:
    """Count the images of each class that some clients have in a table, int64 `[K, C]`."""
    c = len(federation.classes)
    owner = np.repeat(np.arange(len(table)), table.sizes)
    labels = federation.labels[table.flat].cpu().numpy()
    return np.bincount(owner * c + labels, minlength=len(table) * c).reshape(-1, c)[clients]


# -- features --------------------------------------------------------------------------------------------------------


class Samples:
    """The test images with stored features, and these features by view.

    Args:
        world: the run.
        at: their positions in the test lists, back to back, ascending, `[n]`.
    """

    def __init__(self, world: World, at: np.ndarray) -> None:
        self.world, self.at, self.row = world, at, _find_rows(world, at)
        self.found: dict[str, tuple[Tensor, Tensor]] = {}

    @classmethod
    def of(cls, world: World, clients: np.ndarray) -> Samples:
        """Draw images evenly over some clients, as many as `MOST` and `LARGEST` admit."""
        most = LARGEST // (world.features * world.session.draws.dtype.itemsize)
        return cls(world, _draw_tests(world, clients, min(MOST, most)))

    def note(self, names: Sequence[str], heard: Outputs) -> None:
        """Store a batch that some views have received."""
        rows = self.row[heard.at]
        mine = (rows >= 0) & (heard.batch.weight > 0)
        if names[0] not in self.found:
            size = len(self.at), self.world.features
            self.found |= dict.fromkeys(names, (self.world.zeros(*size), self.world.zeros(*size)))
        for kept, features in zip(self.found[names[0]], (heard.features, heard.raw), strict=True):
            kept[rows[mine]] = features[mine]

    def arrays(self, names: Collection[str]) -> Arrays:
        """Return features as received and raw, `[n, d]`, by all of some views; label, client and image of each, `[n]`.

        The ranks add up theirs; a rank without clients has none.
        """
        team, found = self.world.session.team, _describe_tests(self.world, self.at, "samples")
        nothing = self.world.zeros(len(self.at), self.world.features)
        for name in names:
            for kind, kept in zip(("received", "raw"), self.found.get(name, (nothing, nothing)), strict=True):
                found[f"{kind}/{name}"] = team.sum(kept).cpu().numpy()  # zero but on the rank that heard it
        return found


class Pictures:
    """A few test images as they come back at each test SNR, by view.

    Args:
        world: the run.
        at: their positions in the test lists, back to back, ascending, `[n]`.
    """

    def __init__(self, world: World, at: np.ndarray) -> None:
        self.world, self.at, self.row = world, at, _find_rows(world, at)
        draws = world.session.draws
        self.size = len(draws.test_snrs), len(at), *draws.task.shape(draws.federation)
        self.found: dict[str, Tensor] = {}

    @classmethod
    def of(cls, world: World, clients: np.ndarray) -> Pictures:
        """Draw images evenly over some clients: at most `EACH` of a client, and `PICTURES` in all."""
        return cls(world, _draw_tests(world, clients, PICTURES, EACH))

    def note(self, views: Mapping[str, View], names: Sequence[str], heard: Outputs) -> None:
        """Store a batch that some views have received."""
        rows = self.row[heard.at]
        mine = (rows >= 0) & (heard.batch.weight > 0)
        for name in names:
            kept = self.found.setdefault(name, self.world.zeros(*self.size))
            answers = views[name].answer(heard)
            kept[heard.test, rows[mine]] = answers[mine].view(-1, *self.size[2:])

    def arrays(self, names: Collection[str]) -> Arrays:
        """Return images by all of some views, uint8 `[tests, n, channels, size, size]`; originals, SNRs in dB.

        The ranks add up theirs; a rank without clients has none.
        """
        draws, found = self.world.session.draws, _describe_tests(self.world, self.at, "originals")
        index = torch.as_tensor(found["originals/image"], device=draws.federation.images.device)
        found["originals/images"] = draws.federation.images[index].cpu().numpy()
        whole = torch.tensor([self.size[-2:]]).expand(len(self.at), 2)
        sides = draws.federation.sides
        found["originals/sides"] = (whole if sides is None else sides[index.cpu()]).numpy()
        snrs = [np.nan if snr is None else snr for snr in draws.test_snrs]
        found["originals/snr_db"] = np.array(snrs)
        for name in names:
            summed = self.world.session.team.sum(self.found.get(name, self.world.zeros(*self.size)))
            found[f"images/{name}"] = to_bytes(summed).cpu().numpy()
        return found


def _find_rows(world: World, at: np.ndarray) -> Tensor:
    """Find the row of each position of the test lists, -1 for unstored ones, `[M]`."""
    draws = world.session.draws
    row = torch.full((len(draws.federation.test.flat),), -1, dtype=torch.int64, device=draws.device)
    row[torch.as_tensor(at, device=draws.device)] = torch.arange(len(at), device=draws.device)
    return row


def _draw_tests(world: World, clients: np.ndarray, most: int, each: int | None = None) -> np.ndarray:
    """Draw positions in the test lists, ascending, evenly over some clients; at most `most`, and `each` of a client."""
    draws = world.session.draws
    table = draws.federation.test
    sizes = table.sizes[clients]
    quota = share_sample_quota(sizes if each is None else np.minimum(sizes, each), most, draws.config.seed)
    chosen = [np.zeros(0, dtype=np.int64)]
    for client, n in zip(clients[quota > 0].tolist(), quota[quota > 0].tolist(), strict=True):
        order = torch.randperm(int(table.sizes[client]), generator=keyed(draws.config.seed, "kept", client))
        chosen.append(table.offsets[client] + np.sort(order[:n].numpy()))
    return np.concatenate(chosen)


def _describe_tests(world: World, at: np.ndarray, name: str) -> Arrays:
    """Look up label, client and image of the tests at some positions, `[n]`."""
    federation = world.session.draws.federation
    image = federation.test.flat[torch.as_tensor(at, device=federation.test.flat.device)]
    return {
        f"{name}/client": np.searchsorted(federation.test.offsets, at, side="right") - 1,
        f"{name}/label": federation.labels[image].cpu().numpy(),
        f"{name}/image": image.cpu().numpy(),
    }


def share_sample_quota(sizes: np.ndarray, total: int, seed: int) -> np.ndarray:
    """Share a quota of `total` images over clients with `sizes` `[K]`, as evenly as possible.

    All give the same number, or all that they have; the rest of `total` is one image each from clients that are drawn.
    """
    if sizes.sum() <= total:
        return sizes.copy()
    even = bisect_right(range(int(sizes.max()) + 1), total, key=lambda n: int(np.minimum(sizes, n).sum())) - 1
    quota = np.minimum(sizes, even)
    more = np.flatnonzero(sizes > even)
    order = torch.randperm(len(more), generator=keyed(seed, "kept")).numpy()
    quota[more[order[: total - int(quota.sum())]]] += 1
    return quota
