"""The supervised contrastive loss of each client in a stack.

Legend: k clients, b samples, d features. All views of a client's mini-batch are samples here.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Form = Literal["inside", "outside"]


def supervised_contrastive(
    features: Tensor, labels: Tensor, mask: Tensor | None, tau: float, form: Form = "inside"
) -> Tensor:
    """Contrast samples of one class with the others, and average over samples that have another of their class.

    With z = r / ||r||, s_ja = z_j . z_a / tau, A(j) the client's other samples and P(j) those of j's class among them:
    `inside` is -log mean_P [exp(s_jp) / sum_A exp(s_ja)] (RepPer, Eq. 5; Khosla et al.'s L_in), `outside` is
    -mean_P log[exp(s_jp) / sum_A exp(s_ja)] (Khosla et al.'s L_out). Where P(j) has one sample, both are NT-Xent.

    Args:
        features: r, `[k, b, d]`.
        labels: `[k, b]`.
        mask: True for samples, False for padding, `[k, b]`; None where nothing is padded.
        tau: temperature.
        form: whether the mean over P is inside the logarithm or outside.

    Returns:
        the loss per client, `[k]`.
    """
    z = torch.nn.functional.normalize(features, dim=-1)
    similar = z @ z.mT / tau
    others = ~torch.eye(labels.shape[1], dtype=torch.bool, device=labels.device).expand(len(labels), -1, -1)
    if mask is not None:
        others = others & mask.unsqueeze(1) & mask.unsqueeze(2)
    positives = others & (labels.unsqueeze(1) == labels.unsqueeze(2))
    count = positives.sum(2)
    many = count.clamp(min=1)
    if form == "inside":
        pull = _log_sum(similar, positives) - many.to(z.dtype).log()
    else:
        pull = (similar * positives).sum(2) / many
    anchors = count > 0
    each = torch.where(anchors, _log_sum(similar, others) - pull, 0)
    return each.sum(1) / anchors.sum(1).clamp(min=1)


def _log_sum(values: Tensor, among: Tensor) -> Tensor:
    """Return log sum exp over the last axis, `among` some: `[k, b, b] -> [k, b]`.

    Where there are none, it is finite, with its gradient.
    """
    among = among | ~among.any(-1, keepdim=True)
    return values.masked_fill(~among, -torch.inf).logsumexp(-1)
