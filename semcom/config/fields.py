"""The fields of a run: frozen dataclasses that the command line, the results and Python share.

A field that is `None` is open: `semcom.resolve` fills it from the preset or the common defaults, and the resolved
configuration is stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self

from semcom.channels.options import COUNT, MEASURE, NOT_NEGATIVE, POSITIVE, SHARE, WHOLE, Rule
from semcom.config.errors import ConfigError
from semcom.config.misplaced import describe_misplaced_field

LATER_ROUND = Rule(lambda v: v >= 2, "a whole number of at least 2", whole=True)


def setting(default: Any, rule: Rule | None = None, later: bool = False) -> Any:
    """Declare a field with a default value, or a section with its class.

    Args:
        default: the value, or the class.
        rule: the range of a number, or of each number in a list.
        later: whether the field is younger than the first stored runs. Those ran with its default, and with that value
            it is in no hash; likewise a section whose fields all have their defaults.
    """
    kind = "default_factory" if isinstance(default, type) else "default"
    return field(**{kind: default}, metadata={"rule": rule, "later": later})  # type: ignore[call-overload]


class Section:
    """Base of the sections of a configuration, with an error of one line for an unknown argument."""

    def __new__(cls, *args: Any, **given: Any) -> Self:
        """Check the names of the arguments. Raises ConfigError for an unknown field."""
        known = {f.name for f in fields(cls)}  # type: ignore[arg-type]  # its subclasses are dataclasses
        for name in given:
            if name not in known:
                raise ConfigError(describe_misplaced_field(cls, f"{cls.__name__}.", name, given[name]))
        return super().__new__(cls)


@dataclass(frozen=True)
class DataConfig(Section):
    """The images of a run."""

    name: str = "digits"
    """A dataset (see: semcom list datasets), or the path of an .npz file or of an image folder."""
    root: str | None = None
    """Folder where datasets lie and are downloaded to (None: the user's cache folder)."""
    options: Any = None
    """The dataset's own options: its `Options` dataclass, or a mapping with some of its fields."""
    size: int = setting(32, COUNT, later=True)
    """Height and width that images are brought to, in pixels."""
    augment: str = setting("none", later=True)
    """What happens to training images whenever they are visited (see: semcom list augmentations)."""


@dataclass(frozen=True)
class PartitionConfig(Section):
    """The division of the images over the clients."""

    kind: str = "shots"
    """Name of the partition (see: semcom list partitions)."""
    scarce: tuple[int, ...] = ()
    """Clients that keep only `scarce_fraction` of their training samples, and all of their test samples."""
    scarce_fraction: float = setting(0.1, SHARE)
    """Part of their training samples that `scarce` clients keep."""
    validation: float = setting(0.0, Rule(lambda v: 0 <= v < 1, "a number in [0, 1)"))
    """Part of each client's training samples that is set aside for validation."""
    options: Any = None
    """The partition's own options: its `Options` dataclass, or a mapping with some of its fields."""


@dataclass(frozen=True)
class ModelConfig(Section):
    """The split model: semantic encoder at the client, semantic decoder (head) at the base station."""

    encoder: str = "dcgan"
    """Name of the encoder (see: semcom list encoders), or a comma list that clients take in turn."""
    head: str = "linear"
    """Name of the head (see: semcom list heads)."""
    features: int = setting(64, COUNT)
    """d: real features per image, d/2 complex symbols."""
    bandwidth_ratio: str | None = setting(None, later=True)
    """k/n: complex symbols per number of an image, such as 1/12, in place of `features` (None: what these give)."""
    snr_input: bool = setting(False, later=True)
    """Let encoder and head see the client's SNR, by the attention block of ADJSCC behind the one and before the other,
    which scales numbers, or whole maps."""
    weights: str | None = setting(None, later=True)
    """File of weights to begin with (.safetensors, or of torch.save): `encoder.*` and `head.*`, or those of an encoder
    alone (None: drawn ones)."""
    init: Literal["common", "client"] = "common"
    """Initial weights: the same for all clients (of one architecture), or drawn per client."""


@dataclass(frozen=True)
class ChannelConfig(Section):
    """The link between encoder and head. SNR is per complex symbol, as `docs/channels.md` defines it."""

    kind: str = "awgn"
    """Name of the link (see: semcom list channels)."""
    snr_db: float | str = 10.0
    """Uplink SNR in dB: a number, one per client ("9,12,6"), a range drawn per client and round ("0:18"), or inf."""
    downlink_snr_db: float | str | None = None
    """SNR in dB of what comes down (None: as `snr_db`)."""
    test_snr_db: float | str | None = None
    """SNR in dB of the tests (None: as `snr_db`); a comma list gives a curve."""
    options: Any = None
    """The link's own options: its `Options` dataclass, or a mapping with some of its fields."""


@dataclass(frozen=True)
class AirConfig(Section):
    """The exchange of all but features and gradients (parameters, prototypes), and how it is counted."""

    parameters: Literal["ideal", "analog"] = "ideal"
    """`ideal`: error-free; `analog`: uncoded through the run's channel, models up as their update."""
    access: str = setting("orthogonal", later=True)
    """How what is averaged reaches the base station (see: semcom list accesses): sent by each client for itself
    (`orthogonal`), or by all at once, so that the channel adds it up (`superposed`: over-the-air computation)."""
    bits_per_float: int = setting(32, COUNT)
    """Size of a number that is sent error-free."""
    compress: str = setting("none", later=True)
    """What is done to what goes up error-free (see: semcom list compressions): `quantise`, each number is rounded;
    `top-k`, only the largest numbers of an update are sent."""
    privacy: str = setting("none", later=True)
    """Protection of what is averaged (see: semcom list privacies): `gaussian`, updates are clipped, and noise is
    added to their mean: differential privacy of each client."""
    rate: str = setting("fixed", later=True)
    """Rate of error-free exchange (see: semcom list rates): `fixed`, whatever the SNR; `capacity`, what each client's
    SNR allows less a backoff; `mcs`, the fastest of 5G's schemes that is not above that."""
    options: Any = None
    """Options of the access, the compression, the privacy and the rate: a mapping with some of their fields."""
    bandwidth_hz: float | None = setting(None, MEASURE)
    """Band that the participating clients share (None: that of the link's subcarriers if it has any, or 1 MHz)."""
    symbol_energy: float = setting(1.0, MEASURE)
    """Es: energy of one complex symbol, in joule; with 1, energies are numbers of symbols."""


@dataclass(frozen=True)
class NetworkConfig(Section):
    """Where clients are, how fast they compute, and which of them take part."""

    kind: str = "list"
    """Source of the clients' SNRs (see: semcom list places): `list`, what `channel.snr_db` says; `cell`, places drawn
    in a disc around the base station, path loss, shadowing and transmit powers; `scene`, places and path gains that a
    ray tracer has found."""
    path_loss: str = "umi"
    """Path loss (see: semcom list path-losses): 3GPP's urban micro cell (TR 38.901, street canyon), or a plain
    exponent."""
    scheduling: str = "random"
    """Choice of a round's clients (see: semcom list schedulers): at random, in turns (`round-robin`), those with the
    highest uplink SNR in that round (`best-snr`), or with the highest rate over what they got (`proportional-fair`)."""
    speeds: str = setting("log-normal", later=True)
    """Speeds at which the clients compute (see: semcom list speeds)."""
    options: Any = None
    """Options of the places, the path loss and the speeds: a mapping with some of their fields."""


@dataclass(frozen=True)
class TrainConfig(Section):
    """The schedule and the optimiser, the same for every method unless the user or the preset says otherwise."""

    rounds: int | None = setting(None, COUNT)
    """T: communication rounds (None: 60, or the preset's)."""
    local_epochs: int | tuple[int, ...] | None = setting(None, COUNT)
    """E: local epochs per round, one value or one per client (None: 1, or the preset's)."""
    local_steps: int | None = setting(None, COUNT)
    """Steps per client and round instead of local epochs (None: epochs, or the preset's steps)."""
    batch_size: int | None = setting(None, COUNT)
    """Size of a mini-batch (None: 50, or the preset's)."""
    lr: float | tuple[float, ...] | None = setting(None, POSITIVE)
    """Learning rate, one value or one per client (None: 1e-3, or the preset's)."""
    lr_schedule: Literal["milestones", "cosine"] = setting("milestones", later=True)
    """Course of the rate over the rounds: constant between `lr_milestones`, or along half a cosine, from `lr` in the
    first round to 0 after the last."""
    lr_milestones: tuple[int, ...] | None = setting(None, LATER_ROUND)
    """Rounds from which on the rate is `lr_decay` times what it was (None: none, or those of the preset's rate)."""
    lr_decay: float | tuple[float, ...] | None = setting(None, POSITIVE)
    """Factor at each milestone, one for all or one per milestone (None: 0.1, or those of the preset's milestones)."""
    lr_parts: tuple[str, ...] = setting((), later=True)
    """Rates of parts of the network as factors of `lr`, such as encoder.backbone=0.1,head=10; the longest name counts.
    A part with 0 is frozen: it is neither trained nor sent, and its BatchNorm keeps its statistics."""
    optimizer: Literal["adam", "adamw", "sgd"] | None = None
    """Local optimiser, new at every round; `adamw` is Adam with a weight decay beside the gradient (None: adam, or the
    preset's)."""
    momentum: float | None = setting(None, NOT_NEGATIVE)
    """Momentum of `sgd` (None: 0, or the preset's)."""
    weight_decay: float | None = setting(None, NOT_NEGATIVE)
    """Weight decay (None: 0, or the preset's)."""
    participation: float | None = setting(None, SHARE)
    """Part of the clients that takes part in a round (None: 1, or the preset's)."""
    preset: Literal["common", "paper"] = "common"
    """Source of open fields: the common defaults, or the setting of the method's own paper."""
    adversary: float = setting(0.0, NOT_NEGATIVE, later=True)
    """Weight of the adversary: encoders also learn to leave the best linear inverter of their features in error."""
    through_link: bool = True
    """Simulate the channel in the local training of methods that are not split."""
    deadline_s: float | None = setting(None, MEASURE, later=True)
    """Longest time of a round by `network.flops`: what arrives later is left out (None: all is waited for)."""
    eval_every: int = setting(10, COUNT)
    """Rounds between evaluations; the first round and each of the last ten are evaluated too."""
    patience: int | None = setting(None, COUNT, later=True)
    """Evaluations that were no better on validation images than the best one so far, after which the run ends (None: it
    goes through all rounds)."""
    eval_clients: int | None = setting(None, COUNT)
    """Clients that are evaluated, drawn once per run (None: all)."""
    metrics: tuple[str, ...] = setting((), later=True)
    """Metrics of a classification beside those of its task, such as ece,f1,top5,auc; see: semcom list metrics."""
    checkpoint_every: int = setting(10, COUNT)
    """Largest number of rounds between checkpoints; there is one at the end too."""
    checkpoint_minutes: float = setting(10.0, POSITIVE)
    """Largest number of minutes between checkpoints; they are written at the ends of rounds."""
    drop_checkpoints: bool = False
    """Remove the checkpoints once the run is finished: its numbers stay, its models are gone."""


@dataclass(frozen=True)
class FinishConfig(Section):
    """The last stage: what each client trains for itself after the rounds, by an optimiser without a schedule."""

    kind: str | None = None
    """Classifier that each client trains on the frozen encoder, whatever the method: a head, svm or lr; or `round`: one
    more round, of all tested clients; see: semcom list heads (None: the method's own last stage, if it has one)."""
    epochs: int | None = setting(None, WHOLE)
    """Epochs of a last stage (None: 100, or the method's)."""
    lr: float | None = setting(None, POSITIVE)
    """Learning rate of a last stage and of new clients' heads, in all epochs (None: 0.003, or the method's)."""
    optimizer: Literal["adam", "sgd"] | None = None
    """Optimiser of a last stage and of new clients' heads, without momentum (None: adam, or the method's)."""


@dataclass(frozen=True)
class RunConfig(Section):
    """One run: a method on data, divided over clients, through a channel."""

    method: str = "fedcl"
    """Name of the method (see: semcom list methods)."""
    task: str = setting("classification", later=True)
    """What is asked of the received features (see: semcom list tasks)."""
    hyper: Any = None
    """The method's hyperparameters: its `Hyper` dataclass, or a mapping with some of its fields."""
    data: DataConfig = field(default_factory=DataConfig)
    partition: PartitionConfig = field(default_factory=PartitionConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    channel: ChannelConfig = field(default_factory=ChannelConfig)
    air: AirConfig = field(default_factory=AirConfig)
    network: NetworkConfig = setting(NetworkConfig, later=True)
    train: TrainConfig = field(default_factory=TrainConfig)
    finish: FinishConfig = setting(FinishConfig, later=True)
    clients: int = setting(20, COUNT)
    """K: number of clients."""
    new_clients: int = setting(0, WHOLE)
    """Further clients, which take no part in training and join at the end; they too get a part of the images."""
    new_data: str | None = None
    """A dataset that the new clients divide among themselves (None: the run's images are divided over all clients)."""
    new_steps: int = setting(100, COUNT)
    """Steps for which a new client trains a head of its own, by the optimiser of `finish`."""
    seed: int = setting(0, NOT_NEGATIVE)
    """Seed from which every draw of the run follows."""
    plugins: tuple[str, ...] = ()
    """Python files or modules that are imported first and register own methods, channels, encoders, datasets ..."""
    contents: dict[str, str] = field(default_factory=dict)
    """File, plug-in, or code of what a script has registered -> digest of its content, filled in by `semcom.resolve`,
    which refuses any other content."""
    out: str | None = None
    """Folder of the run's results (None: nothing is written)."""
    keep: tuple[Literal["confusion", "features", "curves-per-client", "images", "weights", "checkpoint"], ...] = ()
    """What is kept beside the numbers, in arrays.npz: confusion (matrices per client), features (of test images),
    curves-per-client, images (a few test images as they come back, of a task that rebuilds them); of the models:
    weights (once, in float32, without the checkpoints) or checkpoint (as it is; a sweep drops it otherwise)."""
    device: str = "auto"
    """Device, such as cpu, cuda or cuda:1 (auto: CUDA where there is one)."""
    precision: Literal["float32", "tf32", "bf16", "float64"] = "float32"
    """Arithmetic; `tf32` and `bf16` (autocast) round the factors of products in encoders and heads, `tf32`, a switch of
    CUDA's, those of distances and of metrics too."""
    chunk: int | Literal["auto"] = "auto"
    """k: largest number of clients that are trained at once (auto: from the device, the network and free memory)."""
    processes: int | Literal["auto"] = setting(1, COUNT)
    """Processes that share the clients of this run, on a CPU with one thread each (auto: one for each core, or for each
    GPU); `torchrun` starts its own."""
    store: Literal["auto", "device", "host", "disk"] = "auto"
    """Place for models of clients that take no part: device or host memory, or a file (auto: first that fits)."""

    @property
    def sharers(self) -> int:
        """Number of clients that share the images: new clients too, unless they have data of their own."""
        return self.clients + (self.new_clients if self.new_data is None else 0)
