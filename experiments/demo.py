"""The first thing to run: the methods of the FedCL letter's Fig. 2(b) on digits, in a few minutes, without network."""

from __future__ import annotations

from semcom.config import DataConfig, ModelConfig, PartitionConfig, RunConfig, TrainConfig
from semcom.studies.experiment import Experiment, Grid

DEMO = Experiment(
    name="demo",
    title="Accuracy against SNR on digits, trained and tested at each SNR",
    paper="none (a small relative of the FedCL letter's Fig. 2(b))",
    variants=("fedcl", "fedproto", "fedavg"),
    scales={
        "smoke": Grid(
            RunConfig(
                data=DataConfig(name="digits"),
                partition=PartitionConfig(options={"ways": 3, "shots": 15}),
                clients=20,
                model=ModelConfig(encoder="dcgan-narrow"),
                train=TrainConfig(rounds=20, lr=1e-3, batch_size=50, eval_every=10),
            ),
            {"channel.snr_db": (0.0, 9.0, 18.0), "seed": (0,)},
        )
    },
    figures=("demo",),
)
