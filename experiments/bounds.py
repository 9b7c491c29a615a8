"""The convergence theorems of the FedCL letter and of FedCoSR, with their symbols measured in runs.

experiments/bounds.md has the theorems, the measurements and the results. The steps are plain SGD, as both theorems
assume. Measuring makes a run several times as long.
"""

from __future__ import annotations

from semcom.config import ChannelConfig, DataConfig, ModelConfig, PartitionConfig, RunConfig, TrainConfig
from semcom.studies.experiment import Experiment, Grid
from semcom.studies.results.outcome import train_and_add_outcome


def train_and_measure_bounds(config: RunConfig) -> None:
    """Train, measuring after each round; then store both sides of the method's theorem as `bounds` in the summary.

    Raises:
        ConfigError: no theorem is about the run, see `find_theorem`.
    """
    from semcom.runs.request.resolve import resolve
    from semcom_papers.experiments.measures.bounds_report import report_bounds
    from semcom_papers.experiments.measures.bounds_round import find_theorem, measure_round

    theorem = find_theorem(resolve(config))
    train_and_add_outcome(
        config, lambda result: {"bounds": report_bounds(theorem, result.metrics)}, observe=measure_round
    )


def _make_grid(data: str, encoder: str, clients: int, shots: int, batch: int, rounds: int, rate: float = 1e-2) -> Grid:
    """Make the grid of a scale; a short run progresses further at a rate of 0.01 than at the letter's 0.001."""
    base = RunConfig(
        data=DataConfig(name=data),
        partition=PartitionConfig(options={"ways": 3, "shots": shots, "test_per_class": 100}),
        model=ModelConfig(encoder=encoder),
        channel=ChannelConfig(snr_db=10.0),
        clients=clients,
        train=TrainConfig(rounds=rounds, lr=rate, batch_size=batch, optimizer="sgd", eval_every=10),
    )
    return Grid(base, {"seed": (0,)})


CONVERGENCE_BOUND = Experiment(
    name="convergence-bound",
    title="What two convergence theorems promise, and what happens",
    paper="FedCL letter, Theorem 1; FedCoSR, Theorems 1 and 2",
    variants=("fedcl", "fedcosr"),
    scales={
        "smoke": _make_grid("digits", "dcgan-narrow", 3, 15, 15, 2),
        "small": _make_grid("cifar10", "dcgan-narrow", 5, 50, 50, 20),
        "paper": _make_grid("cifar10", "dcgan", 20, 100, 50, 200, 1e-3),
    },
    axis="channel.snr_db",
    figures=("convergence-bound",),
    train=train_and_measure_bounds,
)
