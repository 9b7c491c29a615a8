"""One run, from its configuration to its result."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from semcom.config import ConfigError, RunConfig, RunError, filled, parse_snr, run_hash
from semcom.data.datasets import load
from semcom.data.federation import Federation, federate
from semcom.data.partitions import partition
from semcom.engine import checkpoint
from semcom.engine.fit import Diverged
from semcom.engine.memory import keep_freed_memory
from semcom.engine.visit import View, confusion, predict
from semcom.engine.world import World
from semcom.methods.base import Method
from semcom.metrics.accuracy import LAST, headline, per_class, per_client, spread
from semcom.registry import METHODS
from semcom.request import find_device, resolve
from semcom.results import CHECKPOINT, Folder, commit, versions

OnRound = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Result:
    """What a run gives back.

    Attributes:
        config: the resolved configuration.
        summary: as in summary.json.
        metrics: one row per round, as in metrics.jsonl.
        out: the run's folder, or None.
        views: name -> `View` of the trained populations; the first one is the headline.
        world: data and channel of the run.
    """

    config: RunConfig
    summary: dict[str, Any]
    metrics: list[dict[str, Any]]
    out: Path | None
    views: Mapping[str, View]
    world: World

    def predict(self, client: int, images: np.ndarray | Tensor, view: str | None = None) -> Tensor:
        """Classes that a client's model gives to images, through the channel at its test SNR.

        Args:
            client: id.
            images: uint8 `[b, channels, 32, 32]`, as `world.federation.images`.
            view: a name in `views` (None: the headline).

        Returns:
            int64 `[b]` on the CPU.

        Raises:
            ConfigError: no such client or view, or images of another shape or type.
        """
        name = view or next(iter(self.views))
        if name not in self.views:
            raise ConfigError(f"view: {name!r} is unknown; known are {', '.join(self.views)}")
        return predict(self.world, self.views[name], client, torch.as_tensor(images), test_snrs(self.config)[0])


def test_snrs(config: RunConfig) -> tuple[float | None, ...]:
    """SNRs of the tests in dB, the headline's first; None: each client's training SNR."""
    text = config.channel.test_snr_db
    return (None,) if text is None else parse_snr(text, "channel.test-snr-db")[1]


def run(config: RunConfig, *, on_round: OnRound | None = None) -> Result:
    """Trains a method and evaluates it.

    Args:
        config: open fields are filled. With `out`, results are written there; a finished run is not repeated (its
            result is returned), an interrupted one goes on from its checkpoint.
        on_round: called with each metrics row.

    Raises:
        ConfigError: the request is wrong (nothing has been written then).
        RunError: the work failed, for example by divergence; the last good state is kept.
    """
    config = resolve(config)
    folder = Folder(Path(config.out), config) if config.out is not None else None
    if folder is not None:
        folder.check()
    dataset = load(config.data)
    split = partition(dataset, config.partition, config.clients, config.seed)
    device = find_device(config.device)
    keep_freed_memory()
    runner = Runner(config, federate(dataset, split, device), device, folder, on_round)
    with folder.open() if folder is not None else nullcontext():
        return runner.run()


class Runner:
    """The loop over rounds."""

    def __init__(
        self,
        config: RunConfig,
        federation: Federation,
        device: torch.device,
        folder: Folder | None,
        on_round: OnRound | None,
    ) -> None:
        self.config, self.folder, self.on_round = config, folder, on_round
        self.method: Method = METHODS.get(config.method)(config.hyper)
        self.world = World(config, federation, device, split=self.method.split)
        self.state = self.method.setup(self.world)
        self.rounds = filled(config.train.rounds)
        self.rows: list[dict[str, Any]] = []
        self.seconds = {"train": 0.0, "evaluate": 0.0}
        self.progress = self._progress(0)

    def run(self) -> Result:
        """All rounds that are not done yet, then the summary."""
        self._resume()
        try:
            for round_ in range(self.progress["round"] + 1, self.rounds + 1):
                self._round(round_)
        except (Diverged, KeyboardInterrupt) as stop:
            kept = self._keep()
            if isinstance(stop, KeyboardInterrupt):
                raise
            raise RunError(f"round {self.progress['round'] + 1}: {stop}; last good state: {kept}") from None
        summary = self.folder.summary() if self.folder else None
        if summary is None:
            summary = self._summary()
            if self.folder:
                self.folder.finish(summary)
        views = self.method.views(self.state, self.world)
        return Result(self.config, summary, self.rows, self.folder.path if self.folder else None, views, self.world)

    def _round(self, round_: int) -> None:
        """One round: train, evaluate where it is due, report, and keep the state."""
        begun = time.perf_counter()
        self.world.begin(round_)
        state = self.method.round(self.state, self.world)
        row: dict[str, Any] = {"round": round_, **self._losses()}
        trained = time.perf_counter()
        self.seconds["train"] += trained - begun
        if self._due(round_):
            row["views"] = self._evaluate(state)
        self.seconds["evaluate"] += time.perf_counter() - trained
        row["seconds"] = round(time.perf_counter() - begun, 4)
        if self.folder:
            self.folder.append(row)  # first: a row too many is cut off on resume, one too few would be missed
        self.rows.append(row)
        self.state, self.progress = state, self._progress(round_)  # together: what a checkpoint stores
        if self.on_round:
            self.on_round(row)
        if round_ % self.config.train.checkpoint_every == 0 or round_ == self.rounds:
            self._keep()

    def _due(self, round_: int) -> bool:
        """Every `eval_every`-th round, and each of those that the headline averages."""
        return round_ % self.config.train.eval_every == 0 or round_ > self.rounds - LAST

    def _losses(self) -> dict[str, float]:
        """Mean over the round's clients of what training logged."""
        return {name: float(values.mean()) for name, values in self.world.log.items()}

    def _evaluate(self, state: Any) -> dict[str, dict[str, Any]]:
        """Each view's accuracy, at the first test SNR and, where there is a curve, at all of them."""
        views = self.method.views(state, self.world)
        row: dict[str, dict[str, Any]] = {name: {} for name in views}
        for i, snr in enumerate(test_snrs(self.config)):
            for name, counts in confusion(self.world, views, snr, self.world.federation.test).items():
                table = counts.cpu().numpy()
                accuracies = per_client(table)
                if i == 0:
                    row[name] |= spread(accuracies) | {"clients": accuracies.tolist(), "classes": per_class(table)}
                if snr is not None:
                    row[name].setdefault("at", {})[f"{snr:g}"] = float(accuracies.mean())
        return row

    def _summary(self) -> dict[str, Any]:
        """What the run reports."""
        rows = [row for row in self.rows if "views" in row]
        views = {
            name: headline([r["round"] for r in rows], [r["views"][name] for r in rows]) for name in rows[-1]["views"]
        }
        first = next(iter(views.values()))
        meters = {name: meter.snr_db() for name, meter in self.world.meters.items()}
        return {
            "method": self.config.method,
            "accuracy": first["accuracy"],
            "accuracy_std": first["accuracy_std"],
            "views": views,
            "rounds": self.rounds,
            "clients": self.config.clients,
            "samples": self.world.visited,
            "samples_per_second": self.world.visited / max(self.seconds["train"], 1e-9),
            "seconds": {name: round(value, 3) for name, value in self.seconds.items()},
            "traffic": self.world.air.per_client_round(),
            "snr_received_db": {name: value if math.isfinite(value) else None for name, value in meters.items()},
            "seed": self.config.seed,
            "hash": run_hash(self.config),
            "device": self.world.device.type,
            "versions": versions(),
            "commit": commit(),
        }

    def _progress(self, round_: int) -> dict[str, Any]:
        """Clock and counters as plain numbers, for a checkpoint."""
        return {"round": round_, "seconds": dict(self.seconds), **self.world.counters()}

    def _keep(self) -> str:
        """Writes the last good state; says where it is."""
        if self.folder is None:
            return f"round {self.progress['round']}, not stored (no out folder)"
        path = self.folder.path / CHECKPOINT
        content = {"hash": run_hash(self.config), "progress": self.progress, "state": checkpoint.state_dict(self.state)}
        checkpoint.save(path, content)
        return f"round {self.progress['round']}, in {path}"

    def _resume(self) -> None:
        """Takes up a checkpoint, if the folder has one; rows of rounds that it does not cover are dropped."""
        if self.folder is None:
            return
        path = self.folder.path / CHECKPOINT
        if not path.exists():
            if self.folder.summary() is not None:
                raise RunError(f"{path} is missing though the run is finished; give another folder to train it again")
            self.folder.cut(0)
            return
        content = checkpoint.load(path)
        if content.get("hash") != run_hash(self.config):
            raise RunError(f"{path}: belongs to another run; move it away to start again")
        self.state = checkpoint.restore(self.state, content["state"])
        self.progress = content["progress"]
        self.seconds = dict(self.progress["seconds"])
        self.world.resume(self.progress)
        self.world.round = self.progress["round"]
        self.folder.cut(self.progress["round"])
        self.rows = self.folder.metrics()
