"""Probes of a device, each in a process of its own: whoever calls them must never hold a context itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from cases import Case

PROBES = Path(__file__).parent / "probes"


def distinct(chosen: list[Case], num: int, target: int) -> dict[str, Any]:
    """Compile every candidate's kernel without running it, and count different binaries."""
    rows = [
        {
            "source": chosen[number % len(chosen)].candidate(number).source,
            "signature": chosen[number % len(chosen)].signature,
            "block": 64 if chosen[number % len(chosen)].problem.name == "product" else 1024,
        }
        for number in range(num)
    ]
    return child("distinct", str(target), given=json.dumps(rows))


def floor(num: int, at_once: int, how: str, num_gpus: int = 1, **environment: str) -> dict[str, Any]:
    """Fresh CUDA contexts a minute, in forks of a process that has imported torch, on so many GPUs in turn."""
    return child("floor", str(num), str(at_once), how, str(num_gpus), **environment) | environment


def disturbance(device: str, seconds: float) -> dict[str, Any]:
    """A fixed kernel's time with and without another process that makes and destroys contexts."""
    return child("disturbance", device, str(seconds))


def child(probe: str, *arguments: str, given: str = "", **extra: str) -> dict[str, Any]:
    """Run a probe, which prints one JSON object last; what goes wrong becomes `error`."""
    command = [sys.executable, str(PROBES / f"{probe}.py"), *arguments]
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "TRITON_CACHE_DIR": cache, **extra}
        done = subprocess.run(command, input=given, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1][:300]}
    return json.loads(done.stdout.splitlines()[-1])
