"""The tables and figures of FedCRC.

Wang et al., "FedCRC: Federated Learning with Common Representation Learning Criterion and Personalized Predictor".

The paper gives: 100 clients of equal size, a tenth of which takes part in a round; 100 rounds of five local epochs; SGD
with momentum 0.9 at 0.05, 0.01 from round 50 and 0.001 from round 75; mu of FedProx 0.1 and tau of FedCRC 0.99, which
are semcom's defaults; one vector of class probabilities per client, Dir(beta) with beta 0.1, 0.5 and 1, and equal
divisions; 80 % of a client's images for training; a network of four convolutions and one fully-connected layer, and
ResNet-18 for CIFAR-100; 60 clients that train and 40 that join (Table II); tau of 0.99, 0.9, 0.5 and 0.2 (Table III);
all clients in each round and one local epoch in Fig. 3, and two clients of MNIST in Fig. 1.

It does not give: batch size (50), number of repetitions (three), filters and features (FedBABU's network: 64, and 256
numbers), epochs of the other methods' heads (their defaults), dataset and divisions of Fig. 3 (CIFAR-10 with beta 0.1,
and equal parts). In Fig. 1 two clients train their predictors after a common training, of unknown length: here 10
rounds of FedAvg on a twentieth of the images, then up to 20 epochs of the predictor alone by SGD at 0.05. No radio: the
link is `none`.

Scale `small` has MNIST, CIFAR-10 and, in Table I with beta 0.1, CIFAR-100 (with the network of the others, where the
paper has ResNet-18), a quarter of the images (120 or 140 for training at a client, so three steps an
epoch, where the paper has about ten), 80 rounds of one local epoch with the rate falling at 40 and 60, and 64 features,
which take a layer more than the paper's network has. A client takes part eight times, half of them at the full rate.
FedRep's heads have two epochs a round there, in the paper's proportion to E, and FedBABU's fine-tuning, which the paper
does not report, one. There a global head, which takes one epoch of three steps, moves far less than in the paper, so
that FedCRC stays close to FedBABU, which it is with tau 1. Table I has beta 0.1 alone, at which FedPer collapses in the
paper and FedRep wins on CIFAR-10, and equal divisions of CIFAR-10; Table III the first and the last tau, beta 0.1 and
equal divisions, and six seeds; Fig. 3 20 rounds; Fig. 1 ten seeds. The predictors of Fig. 1 are trained alone without
the paper's momentum, which a last stage does not have. FedCRC-Per has each client's head on the newest mean of the
bodies (view `personal`); `own_body` has it on the body that it was trained with.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd

from semcom.config import ChannelConfig, DataConfig, ModelConfig, PartitionConfig, RunConfig, TrainConfig
from semcom.studies.experiment import Grid
from semcom.studies.grid import set_fields
from semcom.studies.results.outcome import train_and_add_outcome
from semcom_papers.experiments.papers.items import make_item
from semcom_papers.experiments.verdicts import Row, decide, decide_at_each, describe, level, over_places, read_variant

if TYPE_CHECKING:
    from semcom.engine.store.population import Population
    from semcom.runs.result.result import Result

TAU = "hyper.tau"
ARMS = ("fedavg", "fedprox", "fedbabu", "fedper", "fedrep", "fedcrc")
"""The methods of its tables; FedCRC-Per is the view `personal` of `fedcrc`."""
DIVISION = ("data.name", "partition.kind", "partition.beta")
"""Fields of a division; equal divisions have no beta."""
Division = tuple[str, str, float | None]
SIZES: dict[str, dict[str, Any]] = {
    "smoke": {"rounds": 2, "epochs": 1, "milestones": (2,), "decay": (0.2,), "clients": 10, "fraction": 0.2},
    "small": {"rounds": 80, "epochs": 1, "milestones": (40, 60), "decay": (0.2, 0.1), "clients": 100, "fraction": 0.25},
    "paper": {"rounds": 100, "epochs": 5, "milestones": (50, 75), "decay": (0.2, 0.1), "clients": 100, "fraction": 1.0},
}
SEEDS = {"smoke": (0,), "small": (0, 1, 2), "paper": (0, 1, 2)}
SKEWED: dict[str, tuple[Division, ...]] = {
    "smoke": (("digits", "dirichlet-client", 0.5),),
    "small": (
        ("mnist", "dirichlet-client", 0.1),
        ("cifar10", "dirichlet-client", 0.1),
        ("cifar10", "iid", None),
        ("cifar100", "dirichlet-client", 0.1),
    ),
    "paper": tuple(
        (name, "iid" if beta is None else "dirichlet-client", beta)
        for name in ("mnist", "cifar10", "cifar100")
        for beta in (0.1, 0.5, 1.0, None)
    ),
}
"""Scale -> the columns of Table I."""
BETAS = {"smoke": (0.5,), "small": (0.1, 0.5, 1.0), "paper": (0.1, 0.5, 1.0)}
"""Scale -> values of beta, if only these vary."""
TAUS = {"smoke": (0.99, 0.2), "small": (0.99, 0.2), "paper": (0.99, 0.9, 0.5, 0.2)}
"""Scale -> values of tau."""
HEADS: dict[str, dict[str, dict[str, Any]]] = {
    "small": {"fedrep": {"hyper.head_epochs": 2}, "fedbabu": {"finish.epochs": 1}}
}
"""Scale -> method -> epochs of heads, if they differ from the defaults."""
EPOCHS = {"smoke": (1, 4), "small": (1, 2, 5, 10, 20), "paper": (1, 2, 5, 10, 20)}
"""Scale -> epochs of the predictor alone in Fig. 1."""


def make_fedcrc_base(scale: str, data: str = "cifar10") -> RunConfig:
    """Make the configuration that the runs of a scale share; the axes set the division."""
    size, smoke = SIZES[scale], scale == "smoke"
    return RunConfig(
        data=DataConfig(name="digits" if smoke else data, size=16 if smoke else 32),
        partition=PartitionConfig(kind="iid", options={"fraction": size["fraction"], "test_fraction": 0.2}),
        model=ModelConfig(encoder="conv4", features=256 if scale == "paper" else 64),
        channel=ChannelConfig(kind="none"),
        clients=size["clients"],
        train=TrainConfig(
            rounds=size["rounds"],
            local_epochs=size["epochs"],
            participation=0.2 if smoke else 0.1,
            batch_size=50,
            optimizer="sgd",
            lr=0.05,
            momentum=0.9,
            lr_milestones=size["milestones"],
            lr_decay=size["decay"],
        ),
    )


def _make_fedcrc_table1(scale: str) -> Grid:
    apart = {"data.name": {"cifar100": {"model.encoder": "resnet18-pooled", "model.features": 512}}}
    vary = {DIVISION: SKEWED[scale], "seed": SEEDS[scale]}
    return Grid(make_fedcrc_base(scale), vary, apart if scale == "paper" else {}, own=HEADS.get(scale, {}))


def _make_fedcrc_table2(scale: str) -> Grid:
    few, new = (6, 4) if scale == "smoke" else (60, 40)
    fixed = {"partition.kind": "dirichlet-client", "clients": few, "new_clients": new}
    vary = {"partition.beta": BETAS[scale], "seed": SEEDS[scale]}
    return Grid(set_fields(make_fedcrc_base(scale), fixed), vary, own=HEADS.get(scale, {}))


def _make_fedcrc_table3(scale: str) -> Grid:
    small = scale == "small"
    betas: list[float | None] = [*BETAS[scale][: 1 if small else None], *([] if scale == "smoke" else [None])]
    divisions = [("iid" if beta is None else "dirichlet-client", beta) for beta in betas]
    seeds = tuple(range(6)) if small else SEEDS[scale]
    return Grid(make_fedcrc_base(scale), {DIVISION[1:]: tuple(divisions), TAU: TAUS[scale], "seed": seeds})


def _make_fedcrc_fig3(scale: str) -> Grid:
    fixed: dict[str, Any] = {"train.participation": 1.0, "train.local_epochs": 1, "train.eval_every": 1}
    if scale == "small":
        fixed |= {"train.rounds": 20, "train.lr_milestones": (10, 15)}
    divisions = (("dirichlet-client", BETAS[scale][0]), ("iid", None))
    return Grid(set_fields(make_fedcrc_base(scale), fixed), {DIVISION[1:]: divisions, "seed": SEEDS[scale]})


def train_and_compare(config: RunConfig) -> None:
    """Train two clients with personal heads in the first view; then store `predictor_distance`."""

    def measure(result: Result) -> dict[str, float]:
        return {"predictor_distance": measure_predictor_distance(next(iter(result.views.values())).population)}

    train_and_add_outcome(config, measure)


def measure_predictor_distance(population: Population) -> float:
    """Measure the Euclidean distance between the parameters of two clients' heads."""
    heads = [population.named(part)[part] for part in population.parameters("head.")]
    return math.sqrt(sum(float((head[0] - head[1]).double().square().sum()) for head in heads))


def _make_fedcrc_fig1(scale: str) -> Grid:
    whole = {
        "clients": 2,
        "partition.fraction": 0.2 if scale == "smoke" else 0.05,
        "train.participation": 1.0,
        "train.rounds": 2 if scale == "smoke" else 10,
        "train.lr_milestones": None,
        "train.lr_decay": None,
        "finish.lr": 0.05,
        "finish.optimizer": "sgd",
    }
    divisions = (("iid", None), ("dirichlet-client", 0.1))
    seeds = tuple(range(10)) if scale == "small" else SEEDS[scale]
    vary = {DIVISION[1:]: divisions, "finish.epochs": EPOCHS[scale], "seed": seeds}
    return Grid(set_fields(make_fedcrc_base(scale, "mnist"), whole), vary)


# fmt: off
TABLE1 = make_item("fedcrc-table1", "FedCRC, Table I",
                   "Global and personal models of six methods for different skews of labels",
                   ARMS, _make_fedcrc_table1, "data.name", figures=())
# Its numbers are those of the new clients (`new_clients` in a run's summary), not those of the table that a sweep
# prints. FedPer and FedRep have no global model: the average of their personal ones stands for it.
TABLE2 = make_item("fedcrc-table2", "FedCRC, Table II", "Global models on clients that took no part",
                   ARMS, _make_fedcrc_table2, "partition.beta", figures=())
TABLE3 = make_item("fedcrc-table3", "FedCRC, Table III", "FedCRC against tau, the weight of the moving average",
                   ("fedcrc",), _make_fedcrc_table3, TAU)
# A last stage of the predictor alone, after a common training.
FIG1 = make_item("fedcrc-fig1", "FedCRC, Fig. 1",
                 "Distance between the predictors of two clients against their updates",
                 ("fedavg_ft",), _make_fedcrc_fig1, "finish.epochs", train=train_and_compare)
FIG3 = make_item("fedcrc-fig3", "FedCRC, Fig. 3", "Learning curves with all clients in each round",
                 ("fedavg", "fedcrc"), _make_fedcrc_fig3, "partition.kind")
# fmt: on

PLACE = "division"
"""Column of the judged tables with the name of a division."""
LATER = "cifar100 beta 0.1"
"""A division that was added when the others had been seen: the protocol's average is over those."""


def judge_fedcrc_table1(frame: pd.DataFrame) -> Iterator[Row]:
    """Judge whether FedCRC's models are above or level with others at the end, at each division and on average."""
    frame = frame.assign(division=_name_divisions(frame))

    def of(method: str, view: str) -> pd.Series:
        return read_variant(frame, method, "last", [PLACE], view)

    def and_mean(title: str, difference: pd.Series) -> Iterator[Row]:
        yield from decide_at_each(title, difference, [PLACE])
        declared = difference.drop(LATER, level=PLACE, errors="ignore")
        yield decide(title, "mean over the divisions", over_places(declared))
        if len(declared) < len(difference):
            yield describe(title, "mean with CIFAR-100 too", over_places(difference))

    yield from and_mean("FedCRC's global model is above fedavg", of("fedcrc", "global") - of("fedavg", "global"))
    title = "FedCRC's global model is level with fedbabu"
    for row in and_mean(title, of("fedcrc", "global") - of("fedbabu", "global")):
        yield {**row, "answer": level(row["low"], row["high"])} if row["answer"] else row
    for view in ("personal", "own_body"):
        for rival in ("fedper", "fedrep"):
            yield from and_mean(f"FedCRC's {view} model is above {rival}", of("fedcrc", view) - of(rival, "personal"))
        title = f"FedCRC's {view} model is above its global one"
        yield from and_mean(title, of("fedcrc", view) - of("fedcrc", "global"))


def judge_fedcrc_table2(frame: pd.DataFrame) -> Iterator[Row]:
    """Judge whether FedCRC's global model is above FedAvg's on clients that took no part, at each beta."""
    places, number = ["partition.beta"], "new_clients.global.accuracy"
    difference = read_variant(frame, "fedcrc", number, places) - read_variant(frame, "fedavg", number, places)
    yield from decide_at_each("on new clients FedCRC is above FedAvg", difference, places, "beta {:g}")


def judge_fedcrc_table3(frame: pd.DataFrame) -> Iterator[Row]:
    """Judge whether a tau of 0.99 is better than 0.2 at each division, and compare personal models."""
    frame = frame.assign(division=_name_divisions(frame))
    found = read_variant(frame, "fedcrc", "accuracy", [TAU, PLACE])
    yield from decide_at_each("tau 0.99 is better than 0.2", found[0.99] - found[0.2], [PLACE])
    for view in ("personal", "own_body"):
        own = read_variant(frame, "fedcrc", "accuracy", [TAU, PLACE], view)
        yield from decide_at_each(f"{view}: tau 0.99 minus 0.2", own[0.99] - own[0.2], [PLACE], of=describe)
        yield from decide_at_each(f"{view} minus global", own - found, [TAU, PLACE], "tau {:g}, {}", describe)


def _name_divisions(frame: pd.DataFrame) -> pd.Series:
    """Name the divisions of FedCRC's runs: dataset and beta, or iid."""
    iid = frame["partition.kind"] == "iid"
    beta = frame["partition.beta"].astype(float).map("beta {:g}".format)
    return frame["data.name"] + " " + beta.where(~iid, "iid")
