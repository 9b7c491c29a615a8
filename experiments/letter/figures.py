"""The figures of the FedCL letter, and an ablation of its gain.

Wang, Ni, Yi, Xu, Zhang, Nallanathan, "Federated Contrastive Learning for Personalized Semantic Communication", IEEE
Communications Letters, 2024.

The letter gives: CIFAR-10; 5 or 20 clients (20 in Fig. 2(b), 5 in Fig. 3); 200 rounds; DCGAN-like encoders with 64
features and a fully-connected decoder; rates of 0.001; 10 dB in Fig. 3(b) and 5 dB in Fig. 4; a constant number of
images per client in Fig. 3; steps of SGD (Eqs. 4 and 6).

It does not give: classes and images of a client (here 3 and 100 of each, FedProto's public setting, unless they vary),
widths of the encoder, batch size, local epochs, lambda of FedCL and of FedProto, SNRs of Figs. 2(a) and 2(b) (10 dB;
-15 to 18 dB), values of m in Fig. 3, clients of Fig. 4 (20), number of seeds, and test images. At scale `paper` these
are semcom's defaults, at scale `small` the choices of `semcom_papers.experiments.letter.search` on validation images.

Scale `small` has the narrow encoder, 60 rounds, at most 100 test images of a class per client, and three to five seeds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from semcom.config import ChannelConfig, DataConfig, ModelConfig, PartitionConfig, RunConfig, TrainConfig
from semcom.studies.experiment import Grid, Variant
from semcom_papers.experiments.measures.features import train_and_measure_features
from semcom_papers.experiments.papers.items import make_item
from semcom_papers.experiments.verdicts import Row, decide, describe, tabulate_by_seed

ARMS = ("fedcl", "fedproto", "fedavg")
"""The methods that the letter compares."""
ROUNDS = {"smoke": 2, "small": 60, "paper": 200}
SCHEDULES: dict[str, dict[str, Any]] = {
    "smoke": {"optimizer": "adam", "batch_size": 50},
    "small": {"optimizer": "sgd", "batch_size": 20},
    "paper": {"optimizer": "sgd", "batch_size": 50},
}
"""Scale -> optimiser and batch size: at `small` the choice of `letter-search` on validation images, with one local
epoch; the results of the search are in the repository."""
LAMBDA = {"smoke": 1 / 64, "small": 1 / 16, "paper": 1 / 64}
"""Scale -> lambda of FedCL: at `small` the choice of `letter-search-lambda`, elsewhere the method's default. FedProto's
default, 1, was chosen too."""
CURVE = {"smoke": 1, "small": 4, "paper": 4}
"""Scale -> rounds between the evaluations of a learning curve."""
WAYS = {
    "smoke": ((2, 15), (3, 10)),
    "small": ((2, 150), (3, 100), (5, 60), (6, 50), (10, 30)),
    "paper": ((2, 150), (3, 100), (5, 60), (6, 50), (10, 30)),
}
"""Scale -> classes of a client, and training images of each: their product is constant."""
TEST_SNRS = tuple(float(snr) for snr in range(-15, 19, 3))
MIXED = "dcgan-narrow,dcgan-deep,dcgan,cnn"
"""Encoders that clients take in turn."""


def base(scale: str, snr_db: float = 10.0, clients: int = 20, eval_every: int = 20) -> RunConfig:
    """Make the configuration that the runs of a scale share."""
    smoke = scale == "smoke"
    split: dict[str, Any] = {"ways": 3, "shots": 10 if smoke else 100}
    if scale != "paper":
        split["test_per_class"] = 10 if smoke else 100
    return RunConfig(
        data=DataConfig(name="digits" if smoke else "cifar10"),
        partition=PartitionConfig(options=split),
        model=ModelConfig(encoder="dcgan" if scale == "paper" else "dcgan-narrow"),
        channel=ChannelConfig(snr_db=snr_db),
        clients=min(4, clients) if smoke else clients,
        train=TrainConfig(rounds=ROUNDS[scale], lr=1e-3, **SCHEDULES[scale], eval_every=eval_every),
    )


def set_lambda_of_letter(scale: str, variants: Iterable[Variant | str] = ("fedcl",)) -> dict[str, dict[str, Any]]:
    """Set FedCL's lambda at a scale in the variants that are trained with it, for `Grid.own`."""
    found = [one if isinstance(one, Variant) else Variant(one, one) for one in variants]
    trained = [one for one in found if one.method == "fedcl" and one.set.get("hyper.centroids") != "none"]
    return {one.name: {"hyper.lam": LAMBDA[scale]} for one in trained}


def seeds(scale: str, small: int = 3) -> tuple[int, ...]:
    """List the seeds of a scale: one in a smoke test, five at `paper`."""
    return tuple(range({"smoke": 1, "small": small, "paper": 5}[scale]))


CHANGED = (
    "fedcl",
    Variant("mean centroids", "fedcl", {"hyper.centroids": "mean"}),
    Variant("no regulariser", "fedcl", {"hyper.centroids": "none"}),
    Variant("InfoNCE", "fedcl", {"hyper.scg_loss": "infonce"}),
    Variant("lambda / 4", "fedcl"),
    Variant("16 lambda", "fedcl"),
    Variant("from round 11", "fedcl", {"hyper.warmup": 10}),
    Variant("own decoders", "fedcl", {"hyper.average_decoder": False}),
    Variant("ideal downlink", "fedcl", {"channel.downlink_snr_db": "inf"}),
    "fedproto",
    "local",
)
"""FedCL, FedCL with one change, and other methods."""
SUMMED = Variant("fedcl by the sum of Eq. 9", "fedcl")
"""FedCL by Eq. 9 as it is printed, a sum over clients where `fedcl` has their mean: K times its step of SGD."""


def _make_grid(scale: str, start: RunConfig, vary: Mapping[Any, tuple[Any, ...]], small: int = 3) -> Grid:
    """Make a grid over the seeds of a scale, with the letter's lambda for FedCL."""
    return Grid(start, {**vary, "seed": seeds(scale, small)}, own=set_lambda_of_letter(scale))


def _make_letter_fig2a(scale: str) -> Grid:
    clients = (2, 4) if scale == "smoke" else (5, 20)
    return _make_grid(scale, base(scale, eval_every=CURVE[scale]), {"clients": clients}, small=5)


def _make_letter_fig2b(scale: str) -> Grid:
    snrs = {"smoke": (0.0, 9.0, 18.0), "small": (-15.0, -9.0, -3.0, 3.0, 9.0, 18.0), "paper": TEST_SNRS}[scale]
    return _make_grid(scale, base(scale), {"channel.snr_db": snrs})


def _make_letter_fig2b_once(scale: str) -> Grid:
    snrs, features = (TEST_SNRS, (16, 64)) if scale != "smoke" else ((-9.0, 9.0), (16,))
    return _make_grid(scale, base(scale, 9.0), {"channel.test_snr_db": snrs, "model.features": features})


def _make_letter_fig3(scale: str, eval_every: int = 20) -> Grid:
    vary = {("partition.ways", "partition.shots"): WAYS[scale]}
    return _make_grid(scale, base(scale, clients=5, eval_every=eval_every), vary, small=5)


def _make_letter_fig4(scale: str) -> Grid:
    return _make_grid(scale, replace(base(scale, 5.0), keep=("features",)), {})


def _make_letter_ablation(scale: str) -> Grid:
    snrs = (9.0, *(snr for snr in TEST_SNRS if snr != 9.0)) if scale != "smoke" else (9.0, -9.0)
    times = {"lambda / 4": 1 / 4, "16 lambda": 16}
    own = set_lambda_of_letter(scale, CHANGED) | {name: {"hyper.lam": by * LAMBDA[scale]} for name, by in times.items()}
    start = replace(base(scale, 9.0), keep=("features",))
    return Grid(start, {"channel.test_snr_db": snrs, "seed": seeds(scale, 5)}, own=own)


def _make_letter_sum(scale: str) -> Grid:
    start = base(scale, eval_every=CURVE[scale])
    own = set_lambda_of_letter(scale, ("fedcl", SUMMED))
    own[SUMMED.name]["hyper.scg_lr"] = start.clients * start.train.lr  # type: ignore[operator]
    return Grid(start, {"seed": seeds(scale, 5)}, own=own)


def _make_letter_encoders(scale: str) -> Grid:
    return _make_grid(scale, base(scale, 9.0), {"model.encoder": (base(scale).model.encoder, MIXED)})


# fmt: off
FIG2A = make_item("letter-fig2a", "FedCL letter, Fig. 2(a)", "Learning curves with 5 and 20 clients",
                  ARMS, _make_letter_fig2a, "clients")
# Fig. 2(b) if models are trained at the SNR at which they are tested.
FIG2B = make_item("letter-fig2b", "FedCL letter, Fig. 2(b)",
                  "Accuracy against SNR with 20 clients, trained and tested at each SNR",
                  ARMS, _make_letter_fig2b, "channel.snr_db")
# Fig. 2(b) if models are trained at one SNR; with 16 features the accuracy falls at a higher SNR than with 64.
FIG2B_ONCE = make_item("letter-fig2b-once", "FedCL letter, Fig. 2(b), another reading",
                       "Accuracy against test SNR with 20 clients, trained once at 9 dB",
                       ARMS, _make_letter_fig2b_once, "channel.test_snr_db")
FIG3A = make_item("letter-fig3a", "FedCL letter, Fig. 3(a)",
                  "Learning curves of FedCL for m classes per client, equal data",
                  ("fedcl",), lambda scale: _make_letter_fig3(scale, CURVE[scale]), "partition.ways")
FIG3B = make_item("letter-fig3b", "FedCL letter, Fig. 3(b)", "Accuracy against m classes per client, equal data",
                  ARMS, _make_letter_fig3, "partition.ways", ("letter-fig3b", "letter-fig3b-own"))
FIG4 = make_item("letter-fig4", "FedCL letter, Fig. 4", "Received features at 5 dB: their clusters",
                 ARMS, _make_letter_fig4, "channel.snr_db", train=train_and_measure_features)
# Trained at 9 dB and tested at other SNRs too, with numbers for the features.
ABLATION = make_item("letter-ablation", "none", "FedCL, and it with one thing changed",
                     CHANGED, _make_letter_ablation, "channel.test_snr_db", train=train_and_measure_features)
# 20 clients at 10 dB, as in Fig. 2(a).
SUM = make_item("letter-sum", "FedCL letter, Fig. 2(a)", "FedCL by the mean and by the sum of Eq. 9 over 20 clients",
                ("fedcl", SUMMED, "fedproto"), _make_letter_sum, "seed", figures=())
# Methods whose clients may have encoders of their own.
ENCODERS = make_item("letter-encoders", "none (the letter's text says that encoders may differ)",
                     "One encoder for all clients, and four in turn",
                     ("fedcl", "fedproto", "fedgh", "lg_fedavg", "local"), _make_letter_encoders, "model.encoder")
# fmt: on


def judge_letter_ablation(frame: pd.DataFrame) -> Iterator[Row]:
    """Judge the effect of FedCL's regulariser on the power of features, and of its common decoder on answers."""
    common, between = (tabulate_by_seed(frame, f"clusters.power_{part}") for part in ("common", "between"))
    title = "the regulariser gives power to what classes have in common"
    for other in ("no regulariser", "fedproto"):
        yield decide(title, f"FedCL minus {other}", common["fedcl"] - common[other])
    for other in ("no regulariser", "fedproto"):
        name = f"FedCL minus {other}"
        yield describe("power of what tells classes apart grows", name, between["fedcl"] - between[other])
    among_ten, among_own = (tabulate_by_seed(frame, metric, test_snr_db=-9) for metric in ("accuracy", "among_own"))
    g, h = (part["own decoders"] - part["fedcl"] for part in (among_ten, among_own))
    yield describe("own decoders gain", "-9 dB, among ten classes: g", g)
    yield describe("own decoders gain", "-9 dB, among own classes: h", h)
    title = "a common decoder answers classes that the client does not have"
    yield decide(title, "-9 dB: h - g / 2", h - g / 2, above=False)
