"""Inversion: an attacker with images of his own learns to rebuild images from features, and is tried on the victims'.

He knows pairs of an image and its features, as received by him. They are of the victim's own encoder, which he has or
may ask (as everybody may whose encoder is the same), or only of other clients' encoders. None of his images is a
victim's. His decoder is the best linear one in closed form, or beside it a transposed convolutional network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from semcom.attacks.known import choose_known_images
from semcom.attacks.listen import BATCH, Ear, make_key
from semcom.attacks.options import Attack
from semcom.config import ConfigError
from semcom.data.federation import Federation, scale_bytes, to_bytes
from semcom.engine.host.keys import build_with_key, keyed
from semcom.engine.train.view import measure_pictures
from semcom.runs.folder.arrays import BASE, LEAK, PREFIX, Arrays
from semcom.runs.result.result import Result
from semcom.tasks.metric import PSNR, SSIM
from semcom.tasks.reconstruction import ROOM, Reconstruction

RATE = 1e-3
"""Rate of the attacker's Adam; a step has as many samples as a frame."""
AT_ONCE = 512
"""Samples that pass a network of his at once."""
KEPT = 4
"""Images that are kept with a run, at most."""
AGAIN = 4
"""His classifier learns rebuilt images for one step in so many of his training."""
LISTENS = 4
"""Times that he hears each of his images for the linear decoder, each with other noise."""


@dataclass(frozen=True)
class Rebuilt:
    """Images of victims and what was rebuilt: uint8 `[n, channels, size, size]`, and numbers by name.

    `psnr` and `ssim` are of the rebuilt images, `accuracy` that of the attacker's classifier on them; `*_mean` are of
    the mean image, and `*_class` of the mean image of the true class, which need no listening; `accuracy_originals` is
    the classifier's on the images themselves. All are means over the images of a client, then over clients. `sides` are
    height and width of the pictures in the images, `[n, 2]` (None: no image has a border).
    """

    originals: Tensor
    rebuilt: Tensor
    of_class: Tensor
    clients: np.ndarray
    numbers: Mapping[str, float]
    sides: Tensor | None = None

    def pick(self, count: int) -> np.ndarray:
        """Pick a few images, from the first to the last, by their places."""
        return np.linspace(0, len(self.originals) - 1, min(count, len(self.originals))).round().astype(int)

    def list_arrays(self, setting: str) -> Arrays:
        """List a few images and what was rebuilt as arrays of a run, see docs/metrics.md."""
        some = self.pick(KEPT)
        kept = {"originals": self.originals[some].numpy(), "rebuilt": self.rebuilt[some].numpy()}
        kept |= {"client": self.clients[some]} | ({} if self.sides is None else {"sides": self.sides[some].numpy()})
        return {f"{PREFIX[LEAK]}{setting or BASE}/{n}": t for n, t in kept.items()}


def refuse_other_inputs(kind: str, federation: Federation) -> None:
    """Raise ConfigError for a run whose data are no images of a multiple of 4 pixels a side."""
    size = federation.images.shape[-1]
    if not federation.pictured or size % 4:
        what = f"images of {size} pixels a side" if federation.pictured else "arrays of numbers"
        raise ConfigError(f"kind: {kind} rebuilds images of a multiple of 4 pixels a side, and the data are {what}")


class Judge:
    """What an attacker has without listening, beside which his rebuilt images are measured.

    Args:
        federation: of the run.
        index: of his images, `[n]`.
        steps, seed: of the training of his classifier.

    Attributes:
        target, labels: his images in [-1, 1], `[n, c, h, w]`, and their classes.
        by_class: their mean image for each class, `[C, c, h, w]`.
        classifier: images in [-1, 1] -> scores `[n, C]`.
        rows, parts: numbers, and images and whose they are, of what he has rebuilt so far.
    """

    def __init__(self, federation: Federation, index: Tensor, steps: int, seed: int) -> None:
        self.federation, self.steps, self.seed = federation, steps, seed
        self.images, self.labels = federation.images.cpu()[index], federation.labels.cpu()[index]
        self.target = scale_bytes(self.images, torch.float32)
        classes = len(federation.classes)
        self.by_class = _average_by_class(self.target, self.labels, classes)
        self.classifier = make_classifier(self.target, classes, seed)
        train_classifier(self.classifier, self.target, self.labels, steps, seed)
        self.rows: list[dict[str, float]] = []
        self.parts: list[tuple[int, Tensor, Tensor, Tensor]] = []
        self.sides: list[Tensor] = []

    def learn_rebuilt(self, rebuilt: Tensor) -> nn.Module:
        """Return a classifier that has also learnt his own images as they come out of a decoder, `[n, c, h, w]`."""
        again = deepcopy(self.classifier).train()
        return train_classifier(again, rebuilt, self.labels, max(1, self.steps // AGAIN), self.seed)

    def note(self, victim: int, index: Tensor, rebuilt: Tensor, classifier: nn.Module | None = None) -> None:
        """Measure what he rebuilt, in [-1, 1], of a victim's images at `index`."""
        originals, truth = self.federation.images.cpu()[index], self.federation.labels.cpu()[index]
        wanted = scale_bytes(originals, torch.float32)
        answers = {"": rebuilt, "_mean": self.target.mean(0).expand_as(wanted), "_class": self.by_class[truth]}
        known = self.federation.sides
        sides, least = (None, None) if known is None else (known.cpu()[index], int(known.min()))
        row = {
            f"{name}{end}": v
            for end, of in answers.items()
            for name, v in compare_images(of, wanted, sides, least).items()
        }
        for end, judge, of in (("", classifier or self.classifier, rebuilt), ("_originals", self.classifier, wanted)):
            row[f"accuracy{end}"] = float((_apply(judge, of).argmax(1) == truth).float().mean())
        self.rows.append(row)
        self.sides += [] if sides is None else [sides]
        self.parts.append((victim, originals, to_bytes(rebuilt), to_bytes(self.by_class[truth])))

    def sum_up(self) -> Rebuilt:
        """Average over the victims."""
        numbers = {name: float(np.mean([row[name] for row in self.rows])) for name in self.rows[0]}
        whose = np.repeat([part[0] for part in self.parts], [len(part[1]) for part in self.parts])
        originals, rebuilt, of_class = (torch.cat(each) for each in list(zip(*self.parts, strict=True))[1:])
        return Rebuilt(originals, rebuilt, of_class, whose, numbers, torch.cat(self.sides) if self.sides else None)


def invert(result: Result, ear: Ear, victims: np.ndarray, wanted: Attack) -> Rebuilt:
    """Train the attacker, and rebuild the victims' test images.

    Raises:
        ConfigError: the run's data are no images of a multiple of 4 pixels a side, or no image is left to him.
    """
    federation, seed, view = result.federation, wanted.seed, wanted.view
    refuse_other_inputs("invert", federation)
    knows = "own" if wanted.at == "client" else wanted.knows
    mine = choose_known_images(federation, victims, result.clients, knows, wanted.known, seed)
    judge = Judge(federation, mine.index, wanted.steps, seed)
    made: list[_Made] = []
    for victim in victims.tolist():
        key = make_key(wanted.secret, result.world, victim)
        raw = _encode_known(result, judge.images, mine.client, victim, view)
        raw = key(raw) if wanted.knows == "pairs" else raw
        decoder = _find_decoder(made, ear, victim, raw, judge, wanted)
        index = federation.test[victim].cpu()
        heard = ear.hear(
            key(result.encode(federation.images.cpu()[index], victim, view).float()), victim, "victim", seed
        )
        judge.note(victim, index, _apply(decoder.network, heard), decoder.classifier)
    return judge.sum_up()


def _encode_known(result: Result, images: Tensor, client: Tensor, victim: int, view: str | None) -> Tensor:
    """Compute the features of the known images, each by the encoder that he has them from, `[n, d]`."""
    found = torch.zeros(len(images), result.world.features)
    for k in client.unique().tolist():
        found[client == k] = result.encode(images[client == k], victim if k < 0 else k, view).float()
    return found


def _average_by_class(target: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Compute the mean image of each class, `[C, ...]`; that of all for a class without any."""
    own = [target[labels == c] for c in range(classes)]
    return torch.stack([of.mean(0) if len(of) else target.mean(0) for of in own])


def compare_images(
    found: Tensor, wanted: Tensor, sides: Tensor | None = None, least: int | None = None
) -> dict[str, float]:
    """Measure PSNR (dB) and SSIM of images in [-1, 1] `[n, c, h, w]`, means over them.

    Args:
        found: rebuilt images.
        wanted: the images.
        sides: height and width of the pictures inside, whose border does not count, `[n, 2]` (None: without a border).
        least: smallest side of all images that are compared, on which SSIM depends (None: of these).
    """
    task = Reconstruction()
    room = least or int((torch.tensor(wanted.shape[-2:]) if sides is None else sides).min())
    task.metrics = tuple(metric for metric in (PSNR, SSIM) if ROOM.get(metric, 0) <= room)
    each = measure_pictures(task, found[None], wanted[None], None if sides is None else sides[None])
    return {metric.label.lower(): float(each[metric.name].mean()) for metric in task.metrics}


@dataclass(frozen=True)
class _Made:
    """A decoder, a classifier of what it rebuilds, and the channel and the features for which they were trained."""

    channel: tuple[float, int]
    raw: Tensor
    network: nn.Module
    classifier: nn.Module


def _find_decoder(made: list[_Made], ear: Ear, victim: int, raw: Tensor, judge: Judge, wanted: Attack) -> _Made:
    """Train a decoder for a victim, or find that of another one with the same features and the same channel."""
    channel = ear.find_snr_db(victim), ear.world.session.draws.link.like(victim)
    known = next((one for one in made if one.channel == channel and torch.equal(one.raw, raw)), None)
    if known is None:
        if wanted.decoder == "linear":
            network: nn.Module = fit_linear(ear, victim, raw, judge.target, wanted.seed)
        else:
            network = train_decoder(ear, victim, raw, judge.target, wanted.steps, wanted.seed)
        rebuilt = _apply(network, ear.hear(raw, victim, "rebuilt", wanted.seed))
        known = _Made(channel, raw, network, judge.learn_rebuilt(rebuilt))
        made.append(known)
    return known


class Linear(nn.Module):
    """The affine function of features that least squares give, as images in [-1, 1]."""

    def __init__(self, weight: Tensor, shape: torch.Size) -> None:
        super().__init__()
        self.weight, self.shape = weight, shape

    def forward(self, x: Tensor) -> Tensor:
        """Apply it to features `[n, d]`."""
        ones = torch.ones(len(x), 1, dtype=self.weight.dtype)
        return (torch.cat([x.to(self.weight.dtype), ones], 1) @ self.weight).view(-1, *self.shape).float()


def fit_linear(ear: Ear, victim: int, raw: Tensor, target: Tensor, seed: int) -> Linear:
    """Find the linear decoder with the least squared error on the known images, each heard a few times."""
    heard = torch.cat([ear.hear(raw, victim, "known", seed, i) for i in range(LISTENS)]).double()
    x = torch.cat([heard, torch.ones(len(heard), 1, dtype=torch.float64)], 1)
    y = target.flatten(1).double().repeat(LISTENS, 1)
    # Features may be dependent: the solution of least norm.
    return Linear(torch.linalg.lstsq(x, y, driver="gelsd").solution, target.shape[1:])


class Refined(nn.Module):
    """A linear decoder, and a network that adds what it misses; both take features `[n, d]`."""

    def __init__(self, linear: Linear, network: nn.Module) -> None:
        super().__init__()
        self.linear, self.network = linear, network

    def forward(self, x: Tensor) -> Tensor:
        """Rebuild images `[n, c, h, w]`."""
        found = self.linear(x) + self.network(x)
        return found if self.training else found.clamp(-1, 1)


def train_decoder(ear: Ear, victim: int, raw: Tensor, target: Tensor, steps: int, seed: int) -> nn.Module:
    """Train a network on what the best linear decoder misses, by Adam; each batch is heard with other noise."""
    linear, d = fit_linear(ear, victim, raw, target, seed), raw.shape[1]
    network = Refined(linear, build_with_key(lambda: make_decoder(d, target.shape[1:]), seed, "decoder"))

    def compute_loss(at: Tensor, step: int) -> Tensor:
        heard = ear.hear(raw[at], victim, "known", seed, step)
        return (network(heard) - target[at]).square().mean()

    return _train(network, compute_loss, len(raw), steps, keyed(seed, "batches"))


def make_decoder(features: int, shape: torch.Size) -> nn.Module:
    """Make a network from features to images of a multiple of 4 pixels a side, at first all 0."""
    channels, side = shape[0], shape[-1] // 4
    last = nn.Conv2d(16, channels, 3, padding=1)
    for weights in last.parameters():
        nn.init.zeros_(weights)
    return nn.Sequential(
        nn.Linear(features, 64 * side * side),
        nn.Unflatten(1, (64, side, side)),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.ConvTranspose2d(64, 32, 4, 2, 1),  # of twice the widths it takes twice the time, for 0.1 dB or less
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.ConvTranspose2d(32, 16, 4, 2, 1),
        nn.ReLU(),
        last,
    )


def _train(
    network: nn.Module, compute_loss: Callable[[Tensor, int], Tensor], samples: int, steps: int, clock: torch.Generator
) -> nn.Module:
    """Train a network by Adam on the loss of random samples in each step, which `clock` draws."""
    optimizer = torch.optim.Adam(network.parameters(), RATE)
    for step in range(steps):
        loss = compute_loss(torch.randint(samples, (BATCH,), generator=clock), step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return network.eval()


def _apply(network: nn.Module, inputs: Tensor) -> Tensor:
    """Pass samples through a trained network."""
    with torch.no_grad():
        return torch.cat([network(part) for part in inputs.split(AT_ONCE)])


def make_classifier(target: Tensor, classes: int, seed: int) -> nn.Module:
    """Make a small convolutional network from images like `target` to scores `[n, C]`."""
    channels, side = target.shape[1], target.shape[-1] // 4

    def make() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(channels, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * side * side, classes),
        )

    return build_with_key(make, seed, "classifier")


def train_classifier(network: nn.Module, images: Tensor, labels: Tensor, steps: int, seed: int) -> nn.Module:
    """Train a classifier on images in [-1, 1]."""

    def compute_loss(at: Tensor, step: int) -> Tensor:
        return nn.functional.cross_entropy(network(images[at]), labels[at])

    return _train(network, compute_loss, len(images), steps, keyed(seed, "classifier batches"))
