"""A Ray cluster of two nodes on this machine: two `ray start`, and all processes below them."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[3]
OPEN = {"RAY_AUTH_MODE": "disabled"}
"""Of the nodes and of who connects to them: otherwise Ray asks for a token where it has once left one."""
ENVIRONMENT = {**OPEN, "OMP_NUM_THREADS": "7", "RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": str(ROOT)}
"""Of the nodes; the threads are those of a careless user."""


@dataclass(frozen=True)
class Node:
    """One `ray start --block` and what it has started."""

    process: psutil.Process

    def pids(self) -> set[int]:
        """The ids of all its processes that are at work."""
        return {each.pid for each in self._family()}

    def kill(self) -> None:
        """End all of them at once, as a loss of power does."""
        family = self._family()
        for each in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        psutil.wait_procs(family, timeout=10)

    def _family(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            return [self.process, *self.process.children(recursive=True)]
        return []


@dataclass(frozen=True)
class Cluster:
    """Two nodes with one CPU each, the second one with a GPU that is none."""

    address: str
    head: Node
    other: Node


@contextlib.contextmanager
def cluster() -> Iterator[Cluster]:
    """Start a cluster, and end all of its processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as place:  # a short path
        port = ["--head", f"--port={address.rpartition(':')[2]}", "--include-dashboard=false", f"--temp-dir={place}"]
        nodes: list[Node] = []
        try:
            nodes.append(_start(Path(place) / "head.log", port))
            nodes.append(_start(Path(place) / "other.log", [f"--address={address}", "--num-gpus=1"]))
            yield Cluster(address, *nodes)
        finally:
            for node in nodes:
                node.kill()


def _start(log: Path, words: list[str]) -> Node:
    """Start a node and wait until it is there."""
    common = ["--block", "--node-ip-address=127.0.0.1", "--num-cpus=1", "--object-store-memory=80000000"]
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", *common, *words]
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, env={**os.environ, **ENVIRONMENT}, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
    node, deadline = Node(psutil.Process(process.pid)), time.monotonic() + 60
    while "Ray runtime started" not in log.read_text():
        if process.poll() is not None or time.monotonic() > deadline:
            node.kill()
            raise RuntimeError(log.read_text())
        time.sleep(0.1)
    return node
