"""The tables and figures of FedCoSR.

Huang et al., "FedCoSR: Personalized Federated Learning with Contrastive Shareable Representations for Label
Heterogeneity in Non-IID Data", arXiv:2404.17916v3.

The paper gives: 20 clients (100 for scalability); three datasets; a division by Dirichlet proportions (beta 0.1, also
0.01 and 1) or by classes of a client (2 of CIFAR-10, 10 of EMNIST, 20 of CIFAR-100, there also 10 and 50); 75 % of a
client's images for training; one local epoch; two convolutions and two fully-connected layers; five repetitions; five
clients with 10 % of their images (Fig. 6; here of their training images), 5 to 25 % for all of them (Fig. 7; here of
their test images too); a window of 50 rounds (Fig. 5); the other methods' hyperparameters, which are those of their own
papers (here semcom's defaults; MOON's mu is 5 on CIFAR-100 too, where its paper has 1; pFedMe and Per-FedAvg keep their
own rates: at scale `small` their few small steps leave Per-FedAvg and pFedMe nearly untrained).

It does not give: optimiser, rate, batch size, number of features and dropout (here those of Table I of FedCRL, an
earlier version of the paper; the dropout is on the features, which have no ReLU, as the texts have them), rounds
(1,000), which evaluation is reported (mean of the last ten), kernels (5x5), filters (32, 64), and which methods its
figures call well-performing (here all personalised methods). Its clients' sizes, 8,000 to 10,000 images, exceed the
dataset: ours follow from the divisions, which are drawn again until no client of a default Dirichlet division has fewer
than 600 images, as the paper's clients are of about the same size. No radio: the link is `none`.

Scale `small` is CIFAR-10 with 8,000 of 60,000 images: about 300 for training and 100 for tests of each of 20 clients;
30 rounds, three seeds, five in Figs. 6 and 8. In Fig. 7 clients keep 5 % of all images, and 13 % for the paper's 15:
the runs of Table II. Tables II and III have CIFAR-100 too, as many images of it. EMNIST is at scale `paper` only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from semcom.config import ChannelConfig, DataConfig, ModelConfig, PartitionConfig, RunConfig, TrainConfig
from semcom.studies.experiment import Grid, Variant
from semcom.studies.grid import set_fields
from semcom_papers.experiments.arms import PERFEDAVG, PFEDME
from semcom_papers.experiments.measures.features import train_and_measure_features
from semcom_papers.experiments.papers.items import make_item

PERSONAL: tuple[str | Variant, ...] = (
    PFEDME, "ditto", PERFEDAVG, "fedrep", "lg_fedavg", "fedper", "fedamp", "fedala", "fedproto", "fedpac", "fedgh",
)  # fmt: skip
"""Personalised methods that the paper compares with its own, in the order of its tables."""
ARMS: tuple[str | Variant, ...] = ("local", "fedavg", "fedprox", "moon", *PERSONAL, "fedcosr")
"""All methods of its tables."""
FEATURES = ("fedavg", "lg_fedavg", "fedgh", "fedproto", "fedcosr")
"""The methods of Fig. 9."""
FAIRNESS = ("fedavg", "fedper", "fedproto", "ditto", "fedcosr")
"""The methods of Fig. 6."""
WITHOUT = (
    Variant("fedcosr-without-la", "fedcosr", {"hyper.local_aggregation": False}),
    Variant("fedcosr-without-sep", "fedcosr", {"hyper.separate": False}),
    Variant("fedcosr-without-crl", "fedcosr", {"hyper.alpha": 0.0}),
)
"""FedCoSR without one of its parts: the methods of Fig. 8."""
KIND = "partition.kind"
DIVISION = ("data.name", KIND, "partition.beta", "partition.classes", "partition.min_size")
"""Fields of a division; an option that a partition does not have is None."""
Division = tuple[str, str, float | None, int | None, int | None]
DEFAULT: dict[str, tuple[Division, ...]] = {
    "smoke": (("digits", "dirichlet", 0.1, None, None), ("digits", "pathological", None, 2, None)),
    "small": (("cifar10", "dirichlet", 0.1, None, 600), ("cifar10", "pathological", None, 2, None)),
    "paper": (
        ("cifar10", "dirichlet", 0.1, None, 600),
        ("emnist", "dirichlet", 0.1, None, 600),
        ("cifar100", "dirichlet", 0.1, None, 600),
        ("cifar10", "pathological", None, 2, None),
        ("emnist", "pathological", None, 10, None),
        ("cifar100", "pathological", None, 20, None),
    ),
}
"""Scale -> the columns of Table II."""
CIFAR100: tuple[Division, ...] = (
    ("cifar100", "dirichlet", 0.1, None, 600),
    ("cifar100", "pathological", None, 20, None),
)
"""Further columns of Table II at scale `small`; other items have CIFAR-10 only."""
HARDER: dict[str, tuple[tuple[int, *Division], ...]] = {
    "smoke": ((8, "digits", "dirichlet", 1.0, None, None),),
    "small": (
        (20, "cifar10", "dirichlet", 0.01, None, None),
        (20, "cifar10", "dirichlet", 1.0, None, None),
        (20, "cifar100", "pathological", None, 10, None),
        (20, "cifar100", "pathological", None, 50, None),
        (100, "cifar10", "dirichlet", 0.1, None, None),
        (100, "cifar10", "pathological", None, 2, None),
    ),
    "paper": (
        (100, "cifar10", "dirichlet", 0.1, None, None),
        (100, "cifar10", "pathological", None, 2, None),
        (20, "cifar10", "dirichlet", 0.01, None, None),
        (20, "cifar10", "dirichlet", 1.0, None, None),
        (20, "cifar100", "pathological", None, 10, None),
        (20, "cifar100", "pathological", None, 50, None),
    ),
}
"""Scale -> columns of Table III: clients, and their division."""
SCARCE = {"smoke": (2, 3), "small": (15, 16, 17, 18, 19), "paper": (15, 16, 17, 18, 19)}
"""Scale -> clients with a tenth of their images: the last clients."""
WHOLE = 8000 / 60000
"""Fraction of all images at scale `small`."""
FRACTIONS = {"smoke": (0.3,), "small": (0.05, WHOLE), "paper": (0.05, 0.1, 0.15, 0.2, 0.25, 1.0)}
"""Scale -> fraction of their images that all clients keep."""
REDUCED = {"small": {"partition.fraction": {WHOLE: 0.15}}}
"""Scale -> field -> fraction -> the paper's fraction that it stands for."""
SIZES: dict[str, dict[str, Any]] = {
    "smoke": {"rounds": 2, "features": 16, "clients": 4, "fraction": 0.1, "pixels": 16},
    "small": {"rounds": 30, "features": 128, "clients": 20, "fraction": WHOLE, "pixels": 32},
    "paper": {"rounds": 1000, "features": 128, "clients": 20, "fraction": 1.0, "pixels": 32},
}
SEEDS = {"smoke": (0,), "small": (0, 1, 2), "paper": (0, 1, 2, 3, 4)}
MORE_SEEDS = {**SEEDS, "small": SEEDS["paper"]}
"""Seeds of the figures with few methods."""


def make_fedcosr_base(scale: str, eval_every: int = 10) -> RunConfig:
    """Make the configuration that the runs of a scale share; the axes set the division."""
    size = SIZES[scale]
    return RunConfig(
        data=DataConfig(size=size["pixels"]),
        partition=PartitionConfig(options={"fraction": size["fraction"]}),
        model=ModelConfig(encoder="cnn-linear-dropout", features=size["features"]),
        channel=ChannelConfig(kind="none"),
        clients=size["clients"],
        train=TrainConfig(rounds=size["rounds"], lr=0.003, optimizer="adam", batch_size=16, eval_every=eval_every),
    )


def make_table2(scale: str) -> Grid:
    """Make the grid of Table II. A smoke test has one of its divisions."""
    divisions = {"smoke": DEFAULT[scale][:1], "small": (*DEFAULT[scale], *CIFAR100)}.get(scale, DEFAULT[scale])
    return Grid(make_fedcosr_base(scale), {DIVISION: divisions, "seed": SEEDS[scale]})


def make_table3(scale: str, columns: Mapping[str, Sequence[tuple[int, *Division]]] = HARDER) -> Grid:
    """Make the grid of Table III, or of some of its columns at each scale."""
    return Grid(make_fedcosr_base(scale), {("clients", *DIVISION): columns[scale], "seed": SEEDS[scale]})


def make_curves(scale: str) -> Grid:
    """Make the grid of Fig. 5: the default divisions, with an evaluation every few rounds."""
    every = {"smoke": 1, "small": 1, "paper": 5}[scale]
    return Grid(make_fedcosr_base(scale, every), {DIVISION: _list_first(scale), "seed": SEEDS[scale]})


def _make_fedcosr_labels(scale: str) -> Grid:
    one = set_fields(replace(make_fedcosr_base(scale), keep=("confusion",)), {"train.rounds": 1})
    return Grid(one, {DIVISION: _list_first(scale), "seed": (0,)})


def make_features(scale: str) -> Grid:
    """Make the grid of Fig. 9: CIFAR-10 in Dirichlet proportions, with the test images' features."""
    start = replace(make_fedcosr_base(scale), keep=("features",))
    return Grid(set_fields(start, get_first_division(scale)), {"seed": SEEDS[scale]})


def get_first_division(scale: str) -> dict[str, Any]:
    """Return the first default division of a scale as fields: CIFAR-10 in Dirichlet proportions, or digits."""
    return dict(zip(DIVISION, DEFAULT[scale][0], strict=True))


def _list_first(scale: str) -> tuple[Division, ...]:
    """List the default divisions of the first dataset; others by `--set data.name=emnist`."""
    return tuple(division for division in make_table2(scale).vary[DIVISION] if division[0] == DEFAULT[scale][0][0])


def _make_fedcosr_scarce(scale: str) -> Grid:
    fixed = {**get_first_division(scale), "partition.scarce": SCARCE[scale], "partition.scarce_fraction": 0.1}
    return Grid(set_fields(make_fedcosr_base(scale), fixed), {"seed": MORE_SEEDS[scale]})


def _make_fedcosr_fractions(scale: str) -> Grid:
    vary = {DIVISION: _list_first(scale), "partition.fraction": FRACTIONS[scale], "seed": SEEDS[scale]}
    return Grid(make_fedcosr_base(scale), vary)


def _make_fedcosr_ablation(scale: str) -> Grid:
    return Grid(make_fedcosr_base(scale), {DIVISION: DEFAULT[scale], "seed": MORE_SEEDS[scale]})


# fmt: off
TABLE2 = make_item("fedcosr-table2", "FedCoSR, Table II", "Sixteen methods in the default divisions",
                   ARMS, make_table2, KIND)
TABLE3 = make_item("fedcosr-table3", "FedCoSR, Table III",
                   "Sixteen methods with 100 clients, and in more and less skewed divisions",
                   ARMS, make_table3, KIND, figures=())
# One round of one method is trained, so that each run stores its division.
FIG4 = make_item("fedcosr-fig4", "FedCoSR, Fig. 4", "What the clients own in the default divisions",
                 ("local",), _make_fedcosr_labels, KIND)
FIG5 = make_item("fedcosr-fig5", "FedCoSR, Fig. 5", "Learning curves of personalised methods in the default divisions",
                 (*PERSONAL, "fedcosr"), make_curves, KIND)
FIG6 = make_item("fedcosr-fig6", "FedCoSR, Fig. 6",
                 "Accuracy of each client, five of which have a tenth of their images",
                 FAIRNESS, _make_fedcosr_scarce, "partition.scarce_fraction")
# The paper does not say which methods it shows. `local` is for its statements on the gain from taking part.
FIG7 = make_item("fedcosr-fig7", "FedCoSR, Fig. 7", "Accuracy against the part of their images that all clients keep",
                 ("local", *PERSONAL, "fedcosr"), _make_fedcosr_fractions, "partition.fraction", reduced=REDUCED)
FIG8 = make_item("fedcosr-fig8", "FedCoSR, Fig. 8", "FedCoSR without one of its parts",
                 ("fedcosr", *WITHOUT), _make_fedcosr_ablation, KIND)
FIG9 = make_item("fedcosr-fig9", "FedCoSR, Fig. 9", "Features of the test images: their clusters",
                 FEATURES, make_features, KIND, train=train_and_measure_features)
# fmt: on
