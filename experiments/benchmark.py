"""The benchmark: methods in twelve settings, each with a searched rate, and their ranks.

No paper has this. 27 methods train one network without a radio on two datasets, divided in three ways, with all of 20
clients in each round and with 20 of 100. experiments/protocol.md ("The benchmark"), written before the first run,
defines the choices and the reported numbers; experiments/benchmark.md shows how to add another method.

Two methods are left out, as each is another one here: `fedcrl` is `fedcosr` where both have one schedule, and `fedbn`
is `fedavg` on a network without BatchNorm. `--methods fedbn --set model.encoder=resnet18` runs it on one that has some.

Scale `small`: LeNet-5; clients have 150 training images on average and 20 rounds, 100 and 40 where they are 100; five
seeds. Scale `paper`: all images, 500 rounds, the network 32-64-512 of the federated toolkits, and ResNet-18.

    semcom sweep benchmark-rates --scale small
    python -m semcom_papers.experiments.benchmark results/benchmark-rates-small      # the choice, for CHOSEN
    semcom sweep benchmark --scale small --vary clients=20 --seeds 0..2
    semcom sweep benchmark --scale small --seeds 0..2
    semcom sweep benchmark --scale small
    python -m semcom_papers.experiments.hypotheses results/benchmark-small
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from semcom.config import ROUND, ChannelConfig, DataConfig, ModelConfig, PartitionConfig, RunConfig, TrainConfig
from semcom.studies.experiment import Grid, Variant
from semcom.studies.grid import set_fields
from semcom_papers.experiments.arms import PERFEDAVG, PFEDME
from semcom_papers.experiments.fedcosr.items import DIVISION, KIND, Division
from semcom_papers.experiments.fedcosr.rates import FIRST, make_trials, print_rate_choice
from semcom_papers.experiments.fedcosr.rates import OWN as PAIRS
from semcom_papers.experiments.letter.search import SEED
from semcom_papers.experiments.papers.items import make_item
from semcom_papers.experiments.shell import run_on_named_studies

METHODS: tuple[str | Variant, ...] = (
    "local", "fedavg", "fedprox", "moon", "scaffold", "feddyn", "fedavg_ft", "fedprox_ft", PERFEDAVG, "ditto", PFEDME,
    "apfl", "fedamp", "fedala", "feddbe", "fedrod", "fedper", "fedrep", "fedbabu", "repper", "lg_fedavg", "fedgh",
    "fedcl", "fedproto", "fedpac", "fedcrc", "fedcosr",
)  # fmt: skip
"""Compared methods, in the order of `semcom list methods`."""
VIEWS: Mapping[str, str] = {"fedbabu": "personal", "fedproto": "prototype", "fedcrc": "own_body"}
"""Method -> view that counts, if the clients of its paper do not use its first view in the end."""

SMALLEST = 40
"""Training images of the smallest client in Dirichlet proportions before `partition.fraction`."""
DIGITS: tuple[Division, ...] = (("digits", "pathological", None, 2, None), ("digits", "dirichlet", 0.5, None, None))
"""Divisions of a smoke test, by the fields of `DIVISION`."""
CIFAR: tuple[Division, ...] = (
    ("cifar10", "pathological", None, 2, None),
    ("cifar10", "dirichlet", 0.1, None, SMALLEST),
    ("cifar10", "dirichlet", 0.5, None, SMALLEST),
    ("cifar100", "pathological", None, 10, None),
    ("cifar100", "dirichlet", 0.1, None, SMALLEST),
    ("cifar100", "dirichlet", 0.5, None, SMALLEST),
)
"""Divisions of the other scales."""
SIZES: dict[str, dict[str, Any]] = {
    "smoke": {"rounds": 1, "batch": 10, "features": 16, "clients": 4, "fraction": 1.0, "tests": 1.0, "pixels": 16},
    "small": {"rounds": 20, "batch": 20, "features": 84, "clients": 20, "fraction": 0.06, "tests": 0.3, "pixels": 32},
    "paper": {"rounds": 500, "batch": 10, "features": 512, "clients": 20, "fraction": 1.0, "tests": 1.0, "pixels": 32},
}
"""Scale -> its size with all clients in each round; `fraction` is of training images, `tests` of test images."""
DRAWN: Mapping[str, Mapping[int, dict[str, Any]]] = {
    "smoke": {8: {"train.participation": 0.5}},
    "small": {100: {"train.participation": 0.2, "partition.fraction": 0.2, "train.rounds": 40}},
    "paper": {100: {"train.participation": 0.2}},
}
"""Scale -> larger number of clients, of which as many as above take part in a round -> settings that differ."""
NETWORKS = {"smoke": ("cnn",), "small": ("lenet",), "paper": ("cnn", "resnet18")}
SEEDS = {"smoke": (0,), "small": (0, 1, 2, 3, 4), "paper": (0, 1, 2, 3, 4)}

Candidate = dict[str, Any]
COMMON: tuple[Candidate, ...] = ({"train.lr": 0.001}, {"train.lr": 0.003}, {"train.lr": 0.0003}, {"train.lr": 0.01})
"""Candidate rates of Adam."""
SGD: tuple[Candidate, ...] = tuple({"train.optimizer": "sgd", "train.lr": rate} for rate in (0.05, 0.1))
"""Rates of the optimiser that the papers of SCAFFOLD and FedDyn have."""
WHOLE: Candidate = {"hyper.tune": "all", "finish.epochs": 10}
"""Fine-tuning of the whole model."""
MUS: tuple[Candidate, ...] = ({"hyper.mu": 0.01}, {"hyper.mu": 1.0})
"""Other weights of FedProx's term, of those that its paper tries."""


def _add(*settings: Candidate) -> tuple[Candidate, ...]:
    """List Adam's rates, then each of some settings with the first two of these."""
    return (*COMMON, *({**rate, **more} for more in settings for rate in COMMON[:2]))


OWN: Mapping[str, tuple[Candidate, ...]] = {
    "moon": _add({"hyper.mu": 1.0}, {"hyper.mu": 0.1}),
    "scaffold": (*COMMON, *SGD),
    "feddyn": (*COMMON, *SGD, *({**rate, "hyper.alpha": 0.01} for rate in (*COMMON[:2], *SGD))),
    "fedprox": _add(*MUS),
    "fedavg_ft": _add(WHOLE),
    "fedprox_ft": _add(WHOLE, *MUS, *({**WHOLE, **mu} for mu in MUS)),
    "ditto": _add({"hyper.lam": 0.1}),
    "fedgh": _add({"hyper.server_lr": 0.1}),
    "fedproto": _add({"hyper.lam": 0.1}),
    "pfedme": (
        PAIRS["pfedme"][FIRST],
        PAIRS["pfedme"][2],
        {"hyper.eta": 0.1, "hyper.lr_p": 0.05},
        {"hyper.eta": 0.2, "hyper.lr_p": 0.05},
        {"hyper.eta": 0.4, "hyper.lr_p": 0.05},
    ),
    "perfedavg": (
        PAIRS["perfedavg"][FIRST],
        PAIRS["perfedavg"][2],
        {"hyper.alpha": 0.03, "hyper.beta": 0.1},
        {"hyper.alpha": 0.1, "hyper.beta": 0.1},
        {"hyper.alpha": 0.03, "hyper.beta": 0.2},
    ),
}
"""Method -> its candidates in place of Adam's rates alone, semcom's defaults first."""
CHOSEN: Mapping[str, Mapping[str, Mapping[str, int]]] = {
    "small": {
        "cifar10": {
            "apfl": 1, "ditto": 5, "fedala": 3, "fedamp": 1, "fedavg": 1, "fedavg_ft": 5, "fedbabu": 3, "fedcl": 1,
            "fedcosr": 1, "fedcrc": 1, "feddyn": 9, "fedgh": 5, "fedpac": 1, "fedper": 3, "fedprox": 7,
            "fedprox_ft": 13, "fedrep": 1, "fedrod": 1, "lg_fedavg": 1, "local": 1, "moon": 7, "perfedavg": 2,
            "pfedme": 4, "scaffold": 2,
        },
        "cifar100": {
            "apfl": 1, "ditto": 5, "fedala": 3, "fedamp": 1, "fedavg_ft": 5, "fedbabu": 1, "fedcl": 1, "fedcosr": 1,
            "fedcrc": 3, "feddbe": 3, "fedgh": 1, "fedpac": 1, "fedper": 1, "fedproto": 1, "fedprox": 3,
            "fedprox_ft": 3, "fedrep": 1, "fedrod": 1, "lg_fedavg": 1, "local": 1, "moon": 6, "perfedavg": 3,
            "pfedme": 3, "repper": 1,
        },
    },
}  # fmt: skip
"""Scale -> dataset -> method -> place of the candidate that `benchmark-rates` chose; others have the first."""


def make_benchmark_base(scale: str) -> RunConfig:
    """Make the configuration that the runs of a scale share: all clients in each round, the first rate."""
    size, first = SIZES[scale], COMMON[FIRST]
    return RunConfig(
        data=DataConfig(size=size["pixels"]),
        partition=PartitionConfig(
            options={"test": "own", "fraction": size["fraction"], "fraction_tests": size["tests"]}
        ),
        model=ModelConfig(encoder=NETWORKS[scale][0], features=size["features"]),
        channel=ChannelConfig(kind="none"),
        clients=size["clients"],
        train=TrainConfig(rounds=size["rounds"], optimizer="adam", batch_size=size["batch"], lr=first["train.lr"]),
    )


def list_benchmark_candidates(method: str) -> tuple[Candidate, ...]:
    """List the candidates of a method in their order."""
    return OWN.get(method, COMMON)


def list_divisions(scale: str) -> tuple[Division, ...]:
    """List the divisions of a scale."""
    return DIGITS if scale == "smoke" else CIFAR


def collect_chosen_rates(scale: str) -> dict[str, dict[str, dict[str, Candidate]]]:
    """Collect the choices at a scale for `Grid.apart_of`: variant -> data.name -> dataset -> settings."""
    found: dict[str, dict[str, dict[str, Candidate]]] = {}
    for data, places in CHOSEN.get(scale, {}).items():
        for method, place in places.items():
            found.setdefault(method, {"data.name": {}})["data.name"][data] = list_benchmark_candidates(method)[place]
    return found


def _make_grid(scale: str) -> Grid:
    """Make the settings of a scale; `paper` has two networks in each."""
    networks: dict[Any, Any] = {"model.encoder": NETWORKS[scale]} if len(NETWORKS[scale]) > 1 else {}
    clients = (SIZES[scale]["clients"], *DRAWN[scale])
    vary = {DIVISION: list_divisions(scale), "clients": clients, **networks, "seed": SEEDS[scale]}
    base = set_fields(make_benchmark_base(scale), {"finish.kind": ROUND})
    return Grid(base, vary, apart={"clients": DRAWN[scale]}, apart_of=collect_chosen_rates(scale))


BENCHMARK = make_item(
    "benchmark", "none", "27 methods in twelve settings, each with a rate of its own", METHODS, _make_grid, KIND
)


def _make_search(scale: str) -> Grid:
    """Make the divisions with all clients in each round, and a fifth of the training images set aside."""
    base = set_fields(make_benchmark_base(scale), {"partition.validation": 0.2})
    return Grid(base, {DIVISION: list_divisions(scale)[: 1 if scale == "smoke" else None], "seed": (SEED,)})


BENCHMARK_RATES = make_item(
    "benchmark-rates", "none", "Rates of the benchmark's methods, on validation images",
    tuple(make_trials(BENCHMARK.compared(), list_benchmark_candidates)), _make_search, KIND, figures=(),
)  # fmt: skip


if __name__ == "__main__":
    run_on_named_studies(partial(print_rate_choice, views=VIEWS))
