"""How much arithmetic a workload is: products and sums of its convolutions and matrices, forward and backward."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from semcom.bench.plain import Network
from semcom.bench.workloads import Workload


def flops_per_sample(workload: Workload) -> float:
    """Floating-point operations of a training step over its samples; a product and its sum are two.

    Counted on the plain network for one batch, on the meta device: nothing is computed. What is no product of matrices
    (normalisation, ReLU, link, optimiser) counts nothing, so the share of the peak that follows is a lower bound.
    """
    with torch.device("meta"), torch.random.fork_rng(devices=[]):
        network = Network(workload, snr_db=None)
        images = torch.empty(workload.batch, 3, 32, 32)
        labels = torch.zeros(workload.batch, dtype=torch.int64)
    counter = FlopCounterMode(display=False)
    with counter:
        _, logits = network(images)
        F.cross_entropy(logits, labels).backward()
    return counter.get_total_flops() / workload.batch
