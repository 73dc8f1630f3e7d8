"""On what, and with what, a figure was measured."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("kerneldojo", "torch", "triton", "numpy", "transformers", "tokenizers", "accelerate", "peft", "trl")


def machine() -> dict[str, Any]:
    """Processor, memory, GPUs and versions, as plain JSON."""
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "versions": {name: version for name in PACKAGES if (version := _version(name))},
        "commit": _commit(),
    }
    gpus = _output("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader")
    if gpus:
        found["gpus"] = gpus.splitlines()
    return found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _commit() -> str:
    return _output("git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty")


def _output(*command: str) -> str:
    """What a program says; nothing where it is not there or fails (a machine without git, or without a GPU)."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
