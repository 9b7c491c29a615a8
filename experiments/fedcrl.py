"""The tables and figures of FedCRL, an earlier version of FedCoSR.

Huang et al., "FedCRL: Personalized Federated Learning with Contrastive Shared Representations for Label Heterogeneity
in Non-IID Data", arXiv:2404.17916v1.

The experiments are those of FedCoSR, and so are nearly all numbers of its baselines:
`semcom_papers.experiments.fedcosr.items` has what they share, and says what the papers leave open. This paper alone
gives the setting of its Table I, which is used for both: Adam at 0.003, batches of 16, 128 features, dropout of 0.3,
and alpha, tau_CL and gamma, which are semcom's defaults. Its curves are smoothed over 20 rounds. Its headline is the
mixture of own and common encoder (view `personal`); line 28 of its Algorithm 1 returns the model as trained (view
`trained`).
"""

from __future__ import annotations

from semcom_papers.experiments.fedcosr.items import (
    ARMS,
    KIND,
    PERSONAL,
    make_curves,
    make_features,
    make_table2,
    make_table3,
)
from semcom_papers.experiments.measures.features import train_and_measure_features
from semcom_papers.experiments.papers.items import make_item

METHODS = (*(arm for arm in ARMS if arm != "fedcosr"), "fedcrl")
"""The methods of its tables."""

# fmt: off
TABLE2 = make_item("fedcrl-table2", "FedCRL, Table II", "Sixteen methods in the default divisions",
                   METHODS, make_table2, KIND)
TABLE3 = make_item("fedcrl-table3", "FedCRL, Table III",
                   "Sixteen methods with 100 clients, and in more and less skewed divisions",
                   METHODS, make_table3, KIND, figures=())
CURVES = make_item("fedcrl-curves", "FedCRL, the figure of its learning curves",
                   "Learning curves of personalised methods in the default divisions",
                   (*PERSONAL, "fedcrl"), make_curves, KIND)
TSNE = make_item("fedcrl-tsne", "FedCRL, the figure of t-SNE",
                 "Features of the test images of FedCRL and FedAvg: their clusters",
                 ("fedavg", "fedcrl"), make_features, KIND, train=train_and_measure_features)
