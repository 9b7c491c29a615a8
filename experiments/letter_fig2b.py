"""Fig. 2(b) of the FedCL letter: accuracy against SNR with 20 clients, trained and tested at each SNR.

The letter gives CIFAR-10, K = 20, the rate 0.001 and 64 features. Its SNR axis, the ways and shots, the batch size,
the rounds of this figure (200 are those of Fig. 2(a)) and the number of seeds are not given: they are chosen here.
"""

from __future__ import annotations

from experiments.base import Experiment, Grid
from semcom.config import ChannelConfig, DataConfig, PartitionConfig, RunConfig, TrainConfig


def _base(data: str, shots: int, rounds: int) -> RunConfig:
    """Return the configuration that the scales share."""
    return RunConfig(
        data=DataConfig(name=data),
        partition=PartitionConfig(options={"ways": 3, "shots": shots}),
        channel=ChannelConfig(kind="awgn"),
        clients=20,
        train=TrainConfig(rounds=rounds, lr=1e-3, batch_size=50, eval_every=20),
    )


LETTER_FIG2B = Experiment(
    name="letter-fig2b",
    title="Accuracy against SNR with 20 clients, trained and tested at each SNR",
    paper="FedCL letter, Fig. 2(b)",
    variants=("fedcl", "fedproto", "fedavg"),
    scales={
        "smoke": Grid(_base("digits", 15, 4), {"channel.snr_db": (0.0, 9.0, 18.0), "seed": (0,)}),
        "small": Grid(_base("cifar10", 100, 60), {"channel.snr_db": (0.0, 9.0, 18.0), "seed": (0,)}),
        "paper": Grid(
            _base("cifar10", 100, 200),
            {"channel.snr_db": tuple(float(snr) for snr in range(-6, 19, 3)), "seed": (0, 1, 2, 3, 4)},
        ),
    },
    figures=("letter-fig2b",),
)
"""The methods fedcl, fedproto and fedavg."""
