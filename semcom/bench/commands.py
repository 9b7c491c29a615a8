"""`semcom bench`: what it takes, prints and writes. Its flags are the fields of these dataclasses."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import Any

from channels.registry import Registry
from semcom.config import ConfigError, RunError
from semcom.files import write_atomically


@dataclass(frozen=True)
class Outcome:
    """What a benchmark found: a table, the same and more as plain values, and a line for each thing that failed."""

    table: str
    values: dict[str, Any]
    failures: list[str]


@dataclass(frozen=True)
class Bench:
    """Measures speed: `semcom bench WHAT`; each of `semcom list benches` explains its own flags with --help."""

    quick: bool = False
    """Tiny workloads: shows that everything works; the numbers mean nothing."""
    json: str | None = None
    """File that everything measured is written to."""

    def carry_out(self) -> None:
        """Measures, prints the table, writes the file.

        Raises:
            ConfigError: flags that cannot be met; nothing has been measured then.
            RunError: some of it failed; the table and the file hold the rest.
        """
        if self.json is not None and Path(self.json).is_dir():
            raise ConfigError(f"json: {self.json!r} is a folder; give a file")
        outcome = self.measure()
        print(outcome.table)
        if self.json is not None:
            write_atomically(self.json, dumps(outcome.values, indent=2) + "\n")
            print(f"written to {self.json}")
        if outcome.failures:
            raise RunError(f"{len(outcome.failures)} measurements failed; the first: {outcome.failures[0]}")

    @abstractmethod
    def measure(self) -> Outcome:
        """Measures."""


@dataclass(frozen=True)
class BenchEngine(Bench):
    """Whole training rounds of the engine beside the plain per-client loop, on synthetic images.

    Case a: FedAvg with the 5x5 CNN 32-64-512. b: FedCL with the DCGAN encoder over AWGN. c: FedAvg with ResNet-18. The
    variants take turns, each in a process of its own, so nothing else should be at work on the machine.
    """

    cases: str = "a,b,c"
    """Which cases, separated by commas."""
    variants: str | None = None
    """Which variants, separated by commas: plain, loop, chunk, processes, bf16, those of a GPU (None: all that are)."""
    repeats: int | None = None
    """Rounds of each variant that count, after one that does not (None: 5; with --quick 2)."""
    growth: str | None = None
    """Numbers of clients to measure the best variant with (None: 5,20,80; with --quick 2,4; an empty text: none)."""

    def measure(self) -> Outcome:
        """See `semcom.bench.engine`."""
        from semcom.bench import engine, report

        found = engine.bench(self.cases, self.variants, self.growth, self.repeats, self.quick)
        return Outcome(report.table(found), report.as_json(found), found.failures())


@dataclass(frozen=True)
class BenchScale(Bench):
    """What a round costs when very many clients exist and 20 of them take part, beside 20 of 100.

    The clients share 60,000 synthetic images through overlapping index tables.
    """

    methods: str = "fedavg,fedproto,fedcl"
    """Which methods, separated by commas."""
    clients: int = 100_000
    """How many are very many."""
    rounds: int | None = None
    """Rounds that count, after one that does not (None: 50; with --quick 3)."""

    def measure(self) -> Outcome:
        """See `semcom.bench.scale`."""
        from semcom.bench import scale

        found = scale.bench(self.methods, self.clients, self.rounds, self.quick)
        return Outcome(scale.table(found), scale.as_json(found), found.failures())


@dataclass(frozen=True)
class BenchChannels(Bench):
    """A pass through each link, forward and backward, beside the bare training step of the DCGAN encoder.

    20 clients with 64 samples of 32 symbols, on one CPU thread, and on a GPU where there is one. Also what it takes to
    draw a client's realisation of a round.
    """

    links: str | None = None
    """Which links, separated by commas (None: all)."""
    repeats: int | None = None
    """Measurements of each that count, after one that does not (None: 15; with --quick 2)."""

    def measure(self) -> Outcome:
        """See `semcom.bench.channels`."""
        from semcom.bench import channels

        found = channels.bench(self.links, self.repeats, self.quick)
        return Outcome(channels.table(found), channels.as_json(found), [])


@dataclass(frozen=True)
class BenchArms(Bench):
    """What a round of each arm costs beside FedAvg's: passes through the encoder by count, time by measurement.

    Synthetic images in the setting of the experiment arms-small: the small network with dropout, 300 images per client,
    batch 16, SGD, an ideal link. Rounds of FedAvg and of an arm take turns on one thread of a processor.
    """

    arms: str | None = None
    """Which methods, separated by commas (None: all)."""
    clients: int | None = None
    """How many (None: 20; with --quick 2)."""
    repeats: int | None = None
    """Pairs of rounds that count, after three that do not (None: 5; with --quick 2)."""

    def measure(self) -> Outcome:
        """See `semcom.bench.arms`."""
        from semcom.bench import arms

        found = arms.bench(self.arms, self.clients, self.repeats, self.quick)
        return Outcome(arms.table(found), arms.as_json(found), [])


BENCHES: Registry[type[Bench]] = Registry(
    "bench",
    {
        "engine": "semcom.bench.commands:BenchEngine",
        "scale": "semcom.bench.commands:BenchScale",
        "channels": "semcom.bench.commands:BenchChannels",
        "arms": "semcom.bench.commands:BenchArms",
    },
)
"""What can be measured."""
