"""What a hosted process may see and use: paths, limits and environment, handed to the sandbox by its fork server."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import kerneldojo
from kerneldojo.contestant.sandbox import toolchain
from kerneldojo.judging.protocol import Protocol


@functools.cache
def readable_paths(*, gpu: bool) -> list[str]:
    """Paths a contestant may read and execute from: the toolchain, and our own package, which its runner imports.

    Found once: looking for compilers takes milliseconds, and an installation does not move while we run.
    """
    package = Path(kerneldojo.__file__).resolve().parent
    return [str(path) for path in (*toolchain(gpu=gpu), package)]


def request(protocol: Protocol, device: str, device_nodes: list[str] | None = None) -> dict[str, Any]:
    """What a session asks its fork server for."""
    return {
        "readable": readable_paths(gpu=device_nodes is not None),
        "device_nodes": device_nodes or [],
        "device": device,
        "environment": {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HF_HUB_OFFLINE": "1",  # There is no network: a hub's client would try for half a minute.
        },
        "limits": {
            "memory_bytes": protocol.host_memory_bytes,
            "num_processes": protocol.num_processes,
            "scratch_bytes": protocol.scratch_bytes,
        },
    }
