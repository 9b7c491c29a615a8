"""Inversion: an attacker with images of his own learns to rebuild images from features, and is tried on the victims'.

He knows pairs of an image and its features, as received by him. They are of the victim's own encoder, which he has or
may ask (as everybody may whose encoder is the same), or only of other clients' encoders. None of his images is a
victim's. His decoder is a transposed convolutional network, or the best linear one in closed form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from semcom.attacks.listen import BATCH, Ear
from semcom.attacks.options import Decoder, Knows
from semcom.config import ConfigError
from semcom.data.federation import Federation, scale_bytes, to_bytes
from semcom.engine.host.keys import build_with_key, keyed
from semcom.runs.result.result import Result
from semcom.tasks.metric import PSNR, SSIM
from semcom.tasks.reconstruction import ROOM, Reconstruction

RATE = 1e-3
"""Rate of the attacker's Adam; a step has as many samples as a frame."""
AT_ONCE = 512
"""Samples that pass a network of his at once."""
LISTENS = 4
"""Times that he hears each of his images for the linear decoder, each with other noise."""


@dataclass(frozen=True)
class Known:
    """The attacker's images: n of them, with their classes, and whose encoder he has their features from.

    Attributes:
        index: their places among the run's images, int64 `[n]`.
        client: of each, whose encoder it has passed, int64 `[n]`; -1: the victim's.
    """

    index: Tensor
    client: Tensor


@dataclass(frozen=True)
class Rebuilt:
    """Images of victims and what was rebuilt: uint8 `[n, channels, size, size]`, and numbers by name.

    `psnr` and `ssim` are of the rebuilt images, `accuracy` that of the attacker's classifier on them; `*_mean` are of
    the mean image, and `*_class` of the mean image of the true class, which need no listening; `accuracy_originals` is
    the classifier's on the images themselves. All are means over the images of a client, then over clients.
    """

    originals: Tensor
    rebuilt: Tensor
    of_class: Tensor
    clients: np.ndarray
    numbers: Mapping[str, float]


def choose_known_images(federation: Federation, victims: np.ndarray, knows: Knows, known: int, seed: int) -> Known:
    """Choose images that no victim has: any others of the run's data, or the training images of other clients.

    Raises:
        ConfigError: there are none.
    """
    others = np.setdiff1d(np.arange(len(federation.train)), victims)
    theirs = [of[k] for of in (federation.train, federation.test, federation.validation) for k in victims.tolist()]
    taken = torch.zeros(len(federation.images), dtype=torch.bool)
    taken[torch.cat(theirs).cpu()] = True
    if knows == "clients":
        pool = torch.cat([federation.train[k] for k in others.tolist()] or [federation.train.flat[:0]]).cpu()
        client = torch.from_numpy(np.repeat(others, federation.train.sizes[others]))
        pool, client = pool[~taken[pool]], client[~taken[pool]]  # clients may share an image
    else:
        pool = (~taken).nonzero().flatten()
        client = torch.full_like(pool, -1)
    if not len(pool):
        raise ConfigError(f"clients: all {len(federation.train)} are victims, and no image is left to the attacker")
    some = torch.randperm(len(pool), generator=keyed(seed, "known"))[:known]
    return Known(pool[some], client[some])


def invert(
    result: Result,
    ear: Ear,
    victims: np.ndarray,
    *,
    knows: Knows,
    known: int,
    decoder: Decoder,
    steps: int,
    view: str | None,
    seed: int,
) -> Rebuilt:
    """Train the attacker, and rebuild the victims' test images.

    Raises:
        ConfigError: the run's data are no images of a multiple of 4 pixels a side, or no image is left to him.
    """
    federation = result.federation
    size = federation.images.shape[-1]
    if not federation.pictured or size % 4:
        what = f"images of {size} pixels a side" if federation.pictured else "arrays of numbers"
        raise ConfigError(f"kind: invert rebuilds images of a multiple of 4 pixels a side, and the data are {what}")
    mine = choose_known_images(federation, victims, knows, known, seed)
    images, labels = federation.images.cpu()[mine.index], federation.labels.cpu()[mine.index]
    target = scale_bytes(images, torch.float32)
    classifier = train_classifier(target, labels, len(federation.classes), steps, seed)
    by_class = _average_by_class(target, labels, len(federation.classes))
    made: list[tuple[tuple[float, int], Tensor, nn.Module]] = []
    rows, parts = [], []
    for victim in victims.tolist():
        raw = _encode_known(result, images, mine.client, victim, view)
        network = _find_decoder(made, ear, victim, raw, target, decoder, steps, seed)
        index = federation.test[victim].cpu()
        originals, truth = federation.images.cpu()[index], federation.labels.cpu()[index]
        heard = ear.hear(result.encode(originals, victim, view).float(), victim, "victim", seed)
        rebuilt = _apply(network, heard)
        wanted = scale_bytes(originals, torch.float32)
        answers = {"": rebuilt, "_mean": target.mean(0).expand_as(wanted), "_class": by_class[truth]}
        row = {f"{name}{end}": v for end, of in answers.items() for name, v in compare_images(of, wanted).items()}
        right = {
            end: float((_apply(classifier, of).argmax(1) == truth).float().mean())
            for end, of in (("", rebuilt), ("_originals", wanted))
        }
        rows.append(row | {f"accuracy{end}": share for end, share in right.items()})
        parts.append((originals, to_bytes(rebuilt), to_bytes(by_class[truth])))
    numbers = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    whose = np.repeat(victims, [len(part[0]) for part in parts])
    originals, rebuilt, of_class = (torch.cat(each) for each in zip(*parts, strict=True))
    return Rebuilt(originals, rebuilt, of_class, whose, numbers)


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


def compare_images(found: Tensor, wanted: Tensor) -> dict[str, float]:
    """Measure PSNR (dB) and SSIM of images in [-1, 1] `[n, c, h, w]`, means over them."""
    task = Reconstruction()
    task.metrics = tuple(metric for metric in (PSNR, SSIM) if ROOM.get(metric, 0) <= min(wanted.shape[-2:]))
    each = task.measure(found[None], wanted[None])
    return {metric.label.lower(): float(each[metric.name].mean()) for metric in task.metrics}


def _find_decoder(
    made: list[tuple[tuple[float, int], Tensor, nn.Module]],
    ear: Ear,
    victim: int,
    raw: Tensor,
    target: Tensor,
    decoder: Decoder,
    steps: int,
    seed: int,
) -> nn.Module:
    """Train a decoder for a victim, or find that of another one with the same features and the same channel."""
    channel = ear.find_snr_db(victim), ear.world.session.draws.link.like(victim)
    known = next((one for at, features, one in made if at == channel and torch.equal(features, raw)), None)
    if known is None:
        if decoder == "linear":
            known = fit_linear(ear, victim, raw, target, seed)
        else:
            known = train_decoder(ear, victim, raw, target, steps, seed)
        made.append((channel, raw, known))
    return known


class Linear(nn.Module):
    """The affine function of features that least squares give, as images."""

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


def train_decoder(ear: Ear, victim: int, raw: Tensor, target: Tensor, steps: int, seed: int) -> nn.Module:
    """Train a network by Adam on the mean squared error; each batch is heard with other noise."""
    network = build_with_key(lambda: make_decoder(raw.shape[1], target.shape[1:]), seed, "decoder")

    def compute_loss(at: Tensor, step: int) -> Tensor:
        heard = ear.hear(raw[at], victim, "known", seed, step)
        return (network(heard) - target[at]).square().mean()

    return _train(network, compute_loss, len(raw), steps, keyed(seed, "batches"))


def make_decoder(features: int, shape: torch.Size) -> nn.Module:
    """Make a network from features to images in [-1, 1], of a multiple of 4 pixels a side."""
    channels, side = shape[0], shape[-1] // 4
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
        nn.Conv2d(16, channels, 3, padding=1),
        nn.Tanh(),
    )


def _train(
    network: nn.Module,
    compute_loss: Callable[[Tensor, int], Tensor],
    samples: int,
    steps: int,
    clock: torch.Generator,
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


def train_classifier(target: Tensor, labels: Tensor, classes: int, steps: int, seed: int) -> nn.Module:
    """Train a small convolutional network on the attacker's own images: from images in [-1, 1] to scores `[n, C]`."""
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

    network = build_with_key(make, seed, "classifier")

    def compute_loss(at: Tensor, step: int) -> Tensor:
        return nn.functional.cross_entropy(network(target[at]), labels[at])

    return _train(network, compute_loss, len(target), steps, keyed(seed, "classifier batches"))
