"""A run's configuration: its fields, their defaults and checks, and its identity. Nothing here imports torch."""

from semcom.config.errors import ConfigError, NoEffect, RunError
from semcom.config.fields import (
    AirConfig,
    ChannelConfig,
    DataConfig,
    FinishConfig,
    ModelConfig,
    NetworkConfig,
    PartitionConfig,
    RunConfig,
    TrainConfig,
)
from semcom.config.identity import (
    CODE,
    DEPENDS,
    FORMER,
    LATER,
    NOT_IDENTITY,
    READ,
    VARIABLE,
    complete_config,
    from_dict,
    list_earlier_hashes,
    list_identity_differences,
    run_hash,
    to_dict,
)
from semcom.config.presets import BAND_HZ, COMMON, FINISH, PRESET_DEPENDS_ON, ROUND, fill_from_preset
from semcom.config.resolved import Resolved, Schedule
from semcom.config.snr import SNR, parse_snr
