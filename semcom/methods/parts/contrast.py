"""The supervised contrastive loss of each client in a stack, and the parts of an anchor's gradient.

Legend: k clients, b samples, d features. All views of a client's mini-batch are samples here.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

Form = Literal["inside", "outside"]


def supervised_contrastive(
    features: Tensor, labels: Tensor, mask: Tensor | None, tau: float, form: Form = "inside"
) -> Tensor:
    """Contrast samples of one class with the others, and average over samples that have another of their class.

    With z = r / ||r||, s_ja = z_j . z_a / tau, A(j) the client's other samples and P(j) those of j's class among them:
    `inside` is -log mean_P [exp(s_jp) / sum_A exp(s_ja)] (RepPer, Eq. 5; Khosla et al.'s L_in), `outside` is
    -mean_P log[exp(s_jp) / sum_A exp(s_ja)] (Khosla et al.'s L_out). If P(j) has a single sample, both are NT-Xent.

    Args:
        features: r, `[k, b, d]`.
        labels: `[k, b]`.
        mask: True for samples, False for padding, `[k, b]` (None: no padding).
        tau: temperature.
        form: whether the mean over P is inside the logarithm or outside.

    Returns:
        the loss per client, `[k]`.
    """
    z = torch.nn.functional.normalize(features, dim=-1)
    similar = z @ z.mT / tau
    others, positives = _mark_pairs(labels, mask)
    count = positives.sum(2)
    many = count.clamp(min=1)  # samples without positives are no anchors, and dropped below
    if form == "inside":
        pull = _log_sum_exp(similar, positives) - many.to(z.dtype).log()
    else:
        pull = (similar * positives).sum(2) / many
    anchors = count > 0
    each = torch.where(anchors, _log_sum_exp(similar, others) - pull, 0)
    return each.sum(1) / anchors.sum(1).clamp(min=1)


class AnchorGradient(NamedTuple):
    """The gradients of the anchors' losses by their own representations, `[k, b, d]`, in two parts that add up."""

    positives: Tensor
    """The part that comes from the samples of the anchor's class."""
    negatives: Tensor
    """The part that comes from the samples of other classes."""


def anchor_gradient(features: Tensor, labels: Tensor, mask: Tensor | None, tau: float) -> AnchorGradient:
    """Compute the gradient of each anchor's loss l_j by its own r_j, in closed form (RepPer, section 5, appendix A).

    l_j is the term of anchor j in the `inside` form. With P_ja = exp(s_ja) / sum_A exp(s_ja) and X_jp = exp(s_jp) /
    sum_P exp(s_jp) (Eqs. 11 and 12), the positives' part is 1 / (tau ||r_j||) sum_P (z_p - (z_j . z_p) z_j) (P_jp -
    X_jp) (Eqs. 14 and 24), and the negatives' part is 1 / (tau ||r_j||) sum_N (z_n - (z_j . z_n) z_j) P_jn. Eqs. 15 and
    25 print the latter without 1 / (tau ||r_j||), which the preceding line of Eq. 23 has in front of both. As printed
    it is no gradient.

    The effect of r_j on the losses of other anchors is left out. The mean loss divides by the number of anchors.

    Args:
        features: r, `[k, b, d]`.
        labels: `[k, b]`.
        mask: True for samples, False for padding, `[k, b]` (None: no padding).
        tau: temperature.

    Returns:
        both parts. Padding, and a sample without another of its class, is no anchor and gets zeros.
    """
    length = features.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    z = features / length
    others, positives = _mark_pairs(labels, mask)
    similar = z @ z.mT / tau
    among_others = _mask_with_infinity(similar, others).softmax(-1)
    among_positives = _mask_with_infinity(similar, positives).softmax(-1)
    anchors = positives.any(-1, keepdim=True)

    def part(weights: Tensor) -> Tensor:
        pull = weights @ z
        return torch.where(anchors, (pull - (pull * z).sum(-1, keepdim=True) * z) / (tau * length), 0)

    return AnchorGradient(
        part((among_others - among_positives) * positives), part(among_others * (others & ~positives))
    )


def _mark_pairs(labels: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Mark A and P: each sample's others, and those of its class among them, bool `[k, b, b]`."""
    others = ~torch.eye(labels.shape[1], dtype=torch.bool, device=labels.device).expand(len(labels), -1, -1)
    if mask is not None:
        others = others & mask.unsqueeze(1) & mask.unsqueeze(2)
    return others, others & (labels.unsqueeze(1) == labels.unsqueeze(2))


def _log_sum_exp(values: Tensor, among: Tensor) -> Tensor:
    """Compute log sum exp over the entries `among` of the last axis: `[k, b, b] -> [k, b]`."""
    return _mask_with_infinity(values, among).logsumexp(-1)


def _mask_with_infinity(values: Tensor, among: Tensor) -> Tensor:
    """Set `values` outside `among` to -inf. Rows without any stay unchanged, for a finite sum with its gradient."""
    return values.masked_fill(~(among | ~among.any(-1, keepdim=True)), -torch.inf)
