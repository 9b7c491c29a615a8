"""Every method against SNR, over the air and against heterogeneity: no paper has this.

All 23 methods train the 5x5 network of FedCoSR on CIFAR-10, over three channels (AWGN, Rayleigh fading with MMSE, OFDM
over a 3GPP TDL profile), at 10 dB, with models and prototypes exchanged free of errors or uncoded over the air (`local`
and `fedcl` exchange none). A run is trained once and tested at all SNRs. Images are few, 150 of a client, so that what
others know matters. The choices are ours: nothing is taken from a paper. pFedMe and Per-FedAvg keep their own rates,
and have too few of their small steps to learn much. `fedcrl` is `fedcosr` here, with other defaults of a preset alone.

Over the air, methods are shown by different models: most average an encoder, and are tested with the base station's,
which no client has (the view `received` has it as the client receives it); FedALA with the model as received; FedProto,
FedGH, Ditto, pFedMe and FedAMP with the client's own, trained on what was received.

Numbers are those of the end of training (`last`): fine-tuned methods and RepPer are tested there alone, and a mean over
earlier rounds would be held against it.

Scale `small`: 20 clients, 20 rounds, 20 test images of a class per client, three seeds. Scale `paper`: 60 rounds, 100
test images, five seeds.
"""

from __future__ import annotations

from typing import Any

from experiments.arms import ALL
from semcom.config import ChannelConfig, DataConfig, ModelConfig, PartitionConfig, RunConfig, TrainConfig
from semcom.studies.experiment import Experiment, Grid, Variant, each_scale

NOTHING = {"air.parameters": "ideal"}
"""The setting of methods that exchange neither models nor prototypes: there is nothing to pass over the air."""
ARMS = tuple(Variant(str(arm), str(arm), NOTHING) if arm in ("local", "fedcl") else arm for arm in ALL)
"""All methods."""
SIZES: dict[str, dict[str, Any]] = {
    "smoke": {"rounds": 1, "clients": 3, "test": 3, "seeds": (0,)},
    "small": {"rounds": 20, "clients": 20, "test": 20, "seeds": (0, 1, 2)},
    "paper": {"rounds": 60, "clients": 20, "test": 100, "seeds": (0, 1, 2, 3, 4)},
}
SNRS = {
    "smoke": (10.0, 0.0),
    "small": (10.0, -15.0, -10.0, -5.0, 0.0, 5.0, 15.0),
    "paper": (10.0, *(float(snr) for snr in range(-15, 22, 3))),
}
"""Scale -> SNRs of the tests in dB; the first is that of training."""
CHANNELS = {"smoke": ("rayleigh",), "small": ("awgn", "rayleigh", "ofdm"), "paper": ("awgn", "rayleigh", "ofdm")}
WAYS = {
    "smoke": ((2, 5),),
    "small": ((2, 75), (3, 50), (5, 30), (10, 15)),
    "paper": ((2, 75), (3, 50), (5, 30), (10, 15)),
}
"""Scale -> classes of a client, and training images of each: their product is constant."""


def base(scale: str) -> RunConfig:
    """Return the configuration that the runs of a scale share."""
    size, smoke = SIZES[scale], scale == "smoke"
    split = {"ways": 3, "shots": 5 if smoke else 50, "test_per_class": size["test"]}
    return RunConfig(
        data=DataConfig(name="digits" if smoke else "cifar10", size=16 if smoke else 32),
        partition=PartitionConfig(options=split),
        model=ModelConfig(encoder="cnn-linear", features=64),
        channel=ChannelConfig(snr_db=10.0),
        clients=size["clients"],
        train=TrainConfig(rounds=size["rounds"], lr=1e-3, optimizer="adam", batch_size=16),
    )


def _snr(scale: str) -> Grid:
    vary = {"channel.kind": CHANNELS[scale], "channel.test_snr_db": SNRS[scale], "seed": SIZES[scale]["seeds"]}
    return Grid(base(scale), vary)


def _exchange(scale: str) -> Grid:
    exchanges = ("ideal", "analog") if scale != "smoke" else ("analog",)
    vary = {"air.parameters": exchanges, "channel.test_snr_db": SNRS[scale], "seed": SIZES[scale]["seeds"]}
    return Grid(base(scale), vary)


def _heterogeneity(scale: str) -> Grid:
    vary = {
        ("partition.ways", "partition.shots"): WAYS[scale],
        "channel.test_snr_db": SNRS[scale],  # those of `wireless-snr`, whose runs over AWGN are some of these
        "seed": SIZES[scale]["seeds"],
    }
    return Grid(base(scale), vary)


WIRELESS_SNR = Experiment(
    name="wireless-snr",
    title="All methods against test SNR over three channels, with exchange free of errors",
    paper="none",
    variants=ALL,
    scales=each_scale(_snr),
    axis="channel.test_snr_db",
    figures=("wireless-snr",),
)
"""All methods against SNR, trained at 10 dB."""
WIRELESS_EXCHANGE = Experiment(
    name="wireless-exchange",
    title="All methods against test SNR over AWGN, with exchange free of errors and over the air",
    paper="none",
    variants=ARMS,
    scales=each_scale(_exchange),
    axis="channel.test_snr_db",
    figures=("wireless-exchange",),
)
"""All methods over one channel, with what they exchange on the air too; `wireless-snr` has its error-free runs too."""
WIRELESS_HETEROGENEITY = Experiment(
    name="wireless-heterogeneity",
    title="All methods against classes per client at constant data, trained at 10 dB",
    paper="none",
    variants=ALL,
    scales=each_scale(_heterogeneity),
    axis="partition.ways",
    figures=("wireless-heterogeneity",),
)
"""All methods against m."""
