"""Measure the gradient of an image's loss by its features, for frequent and rare classes.

RepPer, section 5: under the contrastive loss an image of a rare class should have a large gradient, an image of a
frequent class a small gradient. Here the gradients are measured: of Eq. 5 by Eqs. 10 to 15 (by `anchor_gradient`, with
the factor 1 / (tau ||r||) that Eqs. 15 and 25 lack in print), and of the cross-entropy of a client's head.

The images are a client's training images in mini-batches of the run's size, in a random order, two random views of
each, as in training; the encoder is fixed and in evaluation mode. Legend: b samples, d features, C classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from semcom_papers.experiments.measures.class_groups import (
    GROUPS,
    average_thirds,
    count_training_images,
    merge_tables,
    split_in_thirds,
)

if TYPE_CHECKING:
    from torch import Tensor, nn

    from semcom.engine.train.view import View
    from semcom.runs.result.result import Result

TAU = 0.1
"""Temperature of Eq. 5 in the paper."""
CONTRAST, ENTROPY, SINE = "contrast", "cross_entropy", "sine"
"""Length of the gradient of Eq. 5 and of the cross-entropy, and the sine of Eqs. 16 and 17."""


def measure_contrast_gradients(features: Tensor, labels: Tensor, tau: float = TAU) -> Tensor:
    """Measure the length of the gradient of each anchor's l_j by its own r_j (Eqs. 13 to 15), `[b]`.

    Args:
        features: r, `[b, d]`.
        labels: `[b]`; the only sample of a class is no anchor and has NaN.
        tau: temperature.
    """
    from semcom.methods.parts.contrast import anchor_gradient

    parts = anchor_gradient(features[None], labels[None], None, tau)
    alone = (labels[:, None] == labels).sum(1) == 1
    return (parts.positives + parts.negatives)[0].norm(dim=1).masked_fill(alone, float("nan"))


def compute_sine(features: Tensor, labels: Tensor) -> Tensor:
    """Compute the mean of sqrt(1 - (z_j . z_p)^2) over the positives p of each anchor j, `[b]`; NaN without positives.

    Section 5 assumes 1 for rare classes (Eq. 16) and 0 for frequent classes (Eq. 17).
    """
    import torch

    z = torch.nn.functional.normalize(features, dim=1)
    positive = (labels[:, None] == labels) & ~torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    away = (1 - (z @ z.T).square()).clamp(min=0).sqrt()
    return (away * positive).sum(1) / positive.sum(1)


def measure_cross_entropy_gradients(
    features: Tensor, labels: Tensor, head: nn.Module, weights: dict[str, Tensor]
) -> Tensor:
    """Measure the length of the gradient of each sample's cross-entropy by its own r_j, `[b]`.

    Args:
        features: r, `[b, d]`.
        labels: `[b]`.
        head: the network behind the features, without running statistics.
        weights: its parameters by name.
    """
    import torch
    from torch.func import functional_call

    with torch.enable_grad():
        r = features.detach().clone().requires_grad_()
        loss = torch.nn.functional.cross_entropy(functional_call(head, weights, (r,)), labels, reduction="sum")
        (found,) = torch.autograd.grad(loss, r)
    return found.norm(dim=1)


def measure_view(result: Result, view: View) -> dict[str, dict[str, float]]:
    """Measure the mean lengths of gradients in each third of a client's classes, over all clients' training images.

    Returns:
        third -> `contrast`, `contrast_share`, `cross_entropy`, `cross_entropy_share` (share of the third in the sum of
        lengths of all images), `sine`, and `image_share` (its share of the images).
    """
    third, rows, group = split_in_thirds(count_training_images(result)), [], []
    for client in map(int, view.population.ids):
        for labels, numbers in _measure_batches(result, view, client):
            rows.append(numbers)
            group.append(third[client, labels])
    values, of = np.concatenate(rows, axis=1), np.concatenate(group)
    names = (CONTRAST, ENTROPY, SINE)
    means = [average_thirds(row, of, name) for name, row in zip(names, values, strict=True)]
    shares = [_measure_shares(row, of, name) for name, row in zip(names[:2], values[:2], strict=True)]
    return merge_tables(*means, *shares, _measure_shares(np.ones(len(of)), of, "image"))


def _measure_shares(values: np.ndarray, of: np.ndarray, name: str) -> dict[str, dict[str, float]]:
    """Measure the share of each third in the sum of some values without NaN."""
    whole = np.nansum(values)
    return {g: {f"{name}_share": float(np.nansum(values[of == i]) / whole)} for i, g in enumerate(GROUPS) if whole}


def _measure_batches(result: Result, view: View, client: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the classes of each mini-batch of a client, `[2 b]`, and its three numbers, `[3, 2 b]`."""
    import torch

    from semcom.engine.host.keys import keyed

    config, members = result.config, result.federation
    generator = keyed(config.seed, "gradients", client)
    images = members.train[client].cpu()
    (cohort,) = view.population.select(np.array([client])).stacks()
    head = cohort.network.get_submodule("head")
    weights = {name[5:]: t[0] for name, t in cohort.tensors.items() if name.startswith("head.")}
    for some in images[torch.randperm(len(images), generator=generator)].split(config.train.batch_size):
        features = torch.cat([_infer_features(result, view, client, some, generator) for _ in range(2)])
        labels = members.labels[some.to(members.labels.device)].repeat(2).to(features.device)
        numbers = (
            measure_contrast_gradients(features, labels),
            measure_cross_entropy_gradients(features, labels, head, weights),
            compute_sine(features, labels),
        )
        yield labels.cpu().numpy(), torch.stack(numbers).cpu().double().numpy()


def _infer_features(result: Result, view: View, client: int, some: Tensor, generator: object) -> Tensor:
    """Infer the received features of a random view of some images, `[b, d]`."""
    import torch

    from semcom.engine.train.view import infer_in_view
    from semcom.methods.parts.augment import UNIFORMS, augment

    pixels = result.federation.images[some.to(result.federation.images.device)].cpu()
    uniforms = torch.rand(len(some), UNIFORMS, generator=generator)  # type: ignore[call-overload]
    views = (127.5 * (augment(pixels / 127.5 - 1, uniforms) + 1)).round().clamp(0, 255).to(torch.uint8)
    session = result.world.session
    return torch.cat(
        [each.features[0] for each in infer_in_view(session, view, client, views, session.draws.test_snrs[0])]
    )
