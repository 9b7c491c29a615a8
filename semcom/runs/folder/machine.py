"""What a run was carried out on: with the versions, all that the last digits of its numbers depend on."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch


def describe_machine(device: torch.device) -> dict[str, Any]:
    """Describe the processor and the build of torch that a run uses, for its summary.

    It is no part of a run's identity: runs of several machines are the same run, and differ in the last digits.

    Args:
        device: on which the run trains.

    Returns:
        processor (its model), vector (the vector units that torch uses, such as AVX512), threads (of torch), torch (its
        whole version, with the build), build (the commit that it was built from) and, on a GPU, accelerator (its name).

    Example:
        >>> sorted(describe_machine(torch.device("cpu")))
        ['build', 'processor', 'threads', 'torch', 'vector']
    """
    found = {
        "processor": name_processor(),
        "vector": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "torch": str(torch.__version__),
        "build": str(torch.version.git_version)[:10],
    }
    return found | ({"accelerator": torch.cuda.get_device_name(device)} if device.type == "cuda" else {})


def name_processor() -> str:
    """Read the model of the processor, or its architecture if the system does not name the model."""
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            models = (line.partition(":")[2].strip() for line in file if line.startswith("model name"))
            if model := next(models, ""):
                return model
    return platform.processor() or platform.machine()


def read_versions() -> dict[str, str]:
    """Read the versions of packages on which a result depends."""
    names = ("semcom", "torch", "torchvision", "numpy", "scipy", "pillow", "sionna-no-rt")
    found = {"python": platform.python_version()}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def read_commit() -> str | None:
    """Read the commit of this package's checkout, with "-dirty" if it was changed; None outside a checkout."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)  # a wheel inside somebody's checkout is not in it
        return git("describe", "--always", "--dirty", "--abbrev=10", "--exclude=*")
    except (OSError, subprocess.SubprocessError):
        return None
