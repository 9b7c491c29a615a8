"""Images sent and rebuilt by clients of few classes, beside the separate digital chain at as many channel uses.

DeepJSCC (Bourtsoulatze et al., 2019) trained in five ways on the same images: by one client that has all of them, by
each client alone, and with FedAvg, FedPer and FedRep; 3 classes a client, AWGN of 10 dB in training, k/n = 1/12. Beside
them the digital chain (`semcom.methods.digital_chain`): the codec and scheme that are best for each SNR, and those for
10 dB at all of them; and its bound, the codec at capacity.

Scale `small`: CIFAR-10, 10 clients, 100 images of a class, 60 rounds, three seeds. `paper`: 20 clients, 200 rounds.
"""

from __future__ import annotations

from typing import Any

from semcom.config import ChannelConfig, DataConfig, ModelConfig, PartitionConfig, RunConfig, TrainConfig
from semcom.studies.experiment import Grid, Variant
from semcom.studies.grid import TEST_SNR
from semcom_papers.experiments.papers.items import make_item

TRAINED = 10.0
"""SNR of the training, in dB."""
SNRS = {"smoke": (10.0, 0.0), "small": (10.0, 0.0, 5.0, 15.0, 20.0), "paper": (10.0, -5.0, 0.0, 5.0, 15.0, 20.0, 25.0)}
"""Scale -> SNRs of the tests in dB; the first is that of training."""
SIZES: dict[str, dict[str, Any]] = {
    "smoke": {"clients": 2, "rounds": 1, "shots": 5, "test": 3, "seeds": (0,)},
    "small": {"clients": 10, "rounds": 60, "shots": 100, "test": 20, "seeds": (0, 1, 2)},
    "paper": {"clients": 20, "rounds": 200, "shots": 500, "test": 100, "seeds": (0, 1, 2, 3, 4)},
}
WAYS, CLASSES = 3, 10


def _make_grid(scale: str) -> Grid:
    size, smoke = SIZES[scale], scale == "smoke"
    fixed = RunConfig(
        task="reconstruction",
        data=DataConfig(name="digits" if smoke else "cifar10", size=16 if smoke else 32),
        partition=PartitionConfig(options={"ways": WAYS, "shots": size["shots"], "test_per_class": size["test"]}),
        model=ModelConfig(encoder="deepjscc", head="deepjscc", features=32 if smoke else 512),
        channel=ChannelConfig(snr_db=TRAINED),
        clients=size["clients"],
        train=TrainConfig(rounds=size["rounds"], lr=1e-3, optimizer="adam", batch_size=20),
        keep=() if smoke else ("images",),
    )
    images = size["clients"] * WAYS * size["shots"]
    one = {"clients": 1, "partition.ways": CLASSES, "partition.shots": images // CLASSES}
    return Grid(fixed, {TEST_SNR: SNRS[scale], "seed": size["seeds"]}, own={"central": one})


CHAINS = (
    Variant("digital-chain", "digital-chain"),
    Variant("digital-chain for 10 dB", "digital-chain", {"hyper.scheme_db": TRAINED}),
    Variant("digital-chain at capacity", "digital-chain", {"hyper.code": "capacity"}),
)
"""The digital chain with known headers: the best choice for each SNR, one choice for all, and an upper bound."""

DEEPJSCC_FEDERATED = make_item(
    "deepjscc-federated", "none",
    "Images rebuilt against SNR: trained centrally, alone and federated, beside the digital chain",
    (Variant("central", "local"), "local", "fedavg", "fedper", "fedrep", *CHAINS), _make_grid, TEST_SNR,
)  # fmt: skip
