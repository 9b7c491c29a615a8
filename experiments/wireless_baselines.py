"""Semantic features against digital ones, and against images that are sent, at 9 dB and equal channel uses.

FedCL is trained over AWGN, where its 64 features take 32 uses an image; over the digital link, with the same uses; and
over the link `ideal`, which has no noise. The last run is the classifier of the image chain: all runs have the same
network, data, power normalisation and schedule, and differ only in the transmission.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semcom.config import ChannelConfig, DataConfig, ModelConfig, PartitionConfig, RunConfig, TrainConfig
from semcom.studies.experiment import Experiment, Grid
from semcom.studies.results.outcome import train_and_add_outcome

if TYPE_CHECKING:
    from semcom.runs.result.result import Result

SNRS = (0.0, 9.0, 18.0)
"""SNRs of the image chain, in dB. Features are trained at 9 dB, and tested at all three."""
USES = tuple(2**i for i in range(5, 13))
"""Complex channel uses of an image: 32 to 4,096."""


def train_and_send_baselines(config: RunConfig) -> None:
    """Train; a run over the link `ideal` then sends its test images through the image chain (`images`)."""
    from semcom.engine.host.ranks import run_single_rank
    from semcom_papers.experiments.measures.image_curve import measure_chains

    def sent(result: Result) -> dict[str, Any]:
        if config.channel.kind != "ideal":
            return {}
        with run_single_rank():
            return {"images": measure_chains(result, SNRS, USES)}

    train_and_add_outcome(config, sent)


def _make_base(data: str, clients: int, shots: int, test: int, rounds: int) -> RunConfig:
    return RunConfig(
        data=DataConfig(name=data),
        model=ModelConfig(encoder="dcgan-narrow"),
        partition=PartitionConfig(options={"ways": 3, "shots": shots, "test_per_class": test}),
        channel=ChannelConfig(snr_db=9.0, test_snr_db="9,0,18"),
        clients=clients,
        train=TrainConfig(rounds=rounds, lr=1e-3, batch_size=50, eval_every=20),
    )


KINDS = {"channel.kind": ("ideal", "awgn", "digital"), "seed": (0, 1, 2)}
APART = {"channel.kind": {"ideal": {"channel.snr_db": 10.0, "channel.test_snr_db": None}}}
"""Settings of the runs over the link `ideal`, which has no SNR."""

WIRELESS_BASELINES = Experiment(
    name="wireless-baselines",
    title="Semantic features, digital features and compressed images at equal channel uses",
    paper="none",
    variants=("fedcl",),
    scales={
        "smoke": Grid(_make_base("digits", 2, 15, 4, 4), {**KINDS, "seed": (0,)}, APART),
        "small": Grid(_make_base("cifar10", 20, 100, 50, 60), KINDS, APART),
    },
    axis="channel.kind",
    figures=("wireless-baselines",),
    train=train_and_send_baselines,
)
