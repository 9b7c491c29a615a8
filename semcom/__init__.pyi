"""The names that `semcom` exports, each with the module that holds it: `__init__.py` imports that at first use."""

from semcom.attacks.attack import attack as attack
from semcom.channels import PATH_LOSSES as PATH_LOSSES
from semcom.channels.registry import depends as depends
from semcom.config import (
    AirConfig as AirConfig,
    ChannelConfig as ChannelConfig,
    ConfigError as ConfigError,
    DataConfig as DataConfig,
    FinishConfig as FinishConfig,
    ModelConfig as ModelConfig,
    NetworkConfig as NetworkConfig,
    PartitionConfig as PartitionConfig,
    RunConfig as RunConfig,
    RunError as RunError,
    TrainConfig as TrainConfig,
)
from semcom.data.augment import Augmentation as Augmentation
from semcom.data.dataset import Dataset as Dataset
from semcom.data.registry import AUGMENTATIONS as AUGMENTATIONS, DATASETS as DATASETS, PARTITIONS as PARTITIONS
from semcom.data.split import Partition as Partition, Split as Split
from semcom.engine.air.registry import (
    ACCESS as ACCESS,
    COMPRESSIONS as COMPRESSIONS,
    PLACES as PLACES,
    PRIVACY as PRIVACY,
    RATES as RATES,
    SPEEDS as SPEEDS,
)
from semcom.engine.air.schedulers import SCHEDULERS as SCHEDULERS
from semcom.engine.store.population import Population as Population, average as average
from semcom.methods.base import Method as Method
from semcom.methods.registry import METHODS as METHODS
from semcom.models.registry import ENCODERS as ENCODERS, HEADS as HEADS
from semcom.plots.base import Drawing as Drawing, Plot as Plot
from semcom.plots.registry import FIGURES as FIGURES
from semcom.plots.render import plot as plot
from semcom.plots.report.build import report as report
from semcom.runs.request.resolve import resolve as resolve
from semcom.runs.result.embedding import embedding as embedding, knn_purity as knn_purity, silhouette as silhouette
from semcom.runs.result.result import Result as Result
from semcom.runs.rounds.load import load as load
from semcom.runs.rounds.runner import run as run
from semcom.runs.rounds.tracking import TRACKERS as TRACKERS, Tracker as Tracker, scalars as scalars
from semcom.scenes import scene as scene
from semcom.studies.analysis.sheet import table as table
from semcom.studies.analysis.study import Study as Study, study as study
from semcom.studies.experiment import Experiment as Experiment
from semcom.studies.grid import Grid as Grid, Variant as Variant
from semcom.studies.registry import EXPERIMENTS as EXPERIMENTS
from semcom.studies.sweep.sweep import sweep as sweep
from semcom.tasks.metric import Metric as Metric
from semcom.tasks.registry import METRICS as METRICS, TASKS as TASKS
from semcom.tasks.scores import ScoreMetric as ScoreMetric
from semcom.tasks.task import Task as Task

__version__: str
