"""The tables and figures of FedCRL, an earlier version of FedCoSR.

Huang et al., "FedCRL: Personalized Federated Learning with Contrastive Shared Representations for Label Heterogeneity
in Non-IID Data", arXiv:2404.17916v1.

The experiments are those of FedCoSR, and so are nearly all numbers of its baselines: `experiments.fedcosr.items` has
what they share, and says what the papers leave open. This paper alone gives the setting of its Table I, which is used
for both: Adam at 0.003, batches of 16, 128 features, dropout of 0.3, and alpha, tau_CL and gamma, which are semcom's
defaults. Its curves are smoothed over 20 rounds. Its headline is the mixture of own and common encoder (view
`personal`); line 28 of its Algorithm 1 returns the model as trained (view `trained`).
"""

from __future__ import annotations

from experiments.fedcosr.items import ARMS, PERSONAL, features, make_curves, make_table2, table3
from experiments.measures.features import train_and_measure_features
from semcom.studies.experiment import Experiment, each_scale

METHODS = tuple(arm for arm in ARMS if arm != "fedcosr")
"""The methods that the paper compares with its own."""

TABLE2 = Experiment(
    name="fedcrl-table2",
    title="Sixteen methods in the default divisions",
    paper="FedCRL, Table II",
    variants=(*METHODS, "fedcrl"),
    scales=each_scale(make_table2),
    axis="partition.kind",
    figures=("fedcrl-table2",),
)
"""Table II."""
TABLE3 = Experiment(
    name="fedcrl-table3",
    title="Sixteen methods with 100 clients, and in more and less skewed divisions",
    paper="FedCRL, Table III",
    variants=(*METHODS, "fedcrl"),
    scales=each_scale(table3),
    axis="partition.kind",
)
"""Table III."""
CURVES = Experiment(
    name="fedcrl-curves",
    title="Learning curves of personalised methods in the default divisions",
    paper="FedCRL, the figure of its learning curves",
    variants=(*PERSONAL, "fedcrl"),
    scales=each_scale(make_curves),
    axis="partition.kind",
    figures=("fedcrl-curves",),
)
"""The figure of learning curves."""
TSNE = Experiment(
    name="fedcrl-tsne",
    title="Features of the test images of FedCRL and FedAvg: their clusters",
    paper="FedCRL, the figure of t-SNE",
    variants=("fedavg", "fedcrl"),
    scales=each_scale(features),
    axis="partition.kind",
    figures=("fedcrl-tsne",),
    train=train_and_measure_features,
)
"""The figure of features, with two numbers for what it shows."""
