"""What a run was carried out on: with the versions, all that the last digits of its numbers depend on."""

from __future__ import annotations

import os
import platform
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
