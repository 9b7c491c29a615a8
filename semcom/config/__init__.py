"""What a run is: its fields, their defaults and checks, and its identity. Nothing here imports torch."""

from semcom.config.errors import ConfigError, RunError
from semcom.config.fields import (
    AirConfig,
    ChannelConfig,
    DataConfig,
    ModelConfig,
    PartitionConfig,
    RunConfig,
    TrainConfig,
)
from semcom.config.identity import NOT_IDENTITY, from_dict, run_hash, to_dict
from semcom.config.presets import BELONGS, COMMON, fill, filled, participants, rate_factor
from semcom.config.snr import parse_snr

__all__ = [
    "AirConfig",
    "BELONGS",
    "COMMON",
    "ChannelConfig",
    "ConfigError",
    "DataConfig",
    "ModelConfig",
    "NOT_IDENTITY",
    "PartitionConfig",
    "RunConfig",
    "RunError",
    "TrainConfig",
    "fill",
    "filled",
    "from_dict",
    "parse_snr",
    "participants",
    "rate_factor",
    "run_hash",
    "to_dict",
]
