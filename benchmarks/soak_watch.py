"""For `soak.py`: kills workers at random, and finds whatever is left on this host."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import threading
import time
from pathlib import Path
from typing import Any

from kerneldojo.contestant.sandbox import processes
from kerneldojo.contestant.sandbox.cgroups import host_groups
from kerneldojo.contestant.sandbox.leftovers import left_groups

WORKER = b"kerneldojo.pool.worker"
DEVICE_MEMORY_SLACK = 64 << 20
"""Bytes of device memory by which a driver's own use may differ."""


class Watch:
    """Kills workers at random, and buries the orphans that this process inherits."""

    def __init__(self, mean_seconds: float, most_kills: int | None, seed: int, known: set[int]) -> None:
        self.num_kills = 0
        self._known = known
        """Children of ours that somebody else waits for."""
        self._mean, self._most, self._draw = mean_seconds, most_kills, random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        next_kill = time.monotonic() + self._mean
        while not self._stop.wait(0.2):
            below = processes.descendants(os.getpid())
            self.reap()
            if time.monotonic() < next_kill or (self._most is not None and self.num_kills >= self._most):
                continue
            workers = [pid for pid in below if WORKER in command(pid)]
            # Also where there is no worker: a kill that waited for one would meet every worker at its birth.
            next_kill = time.monotonic() + self._draw.expovariate(1 / self._mean)
            if workers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._draw.choice(workers), signal.SIGKILL)
                    self.num_kills += 1

    def reap(self) -> None:
        """Let orphans that we inherited and that have ended go."""
        for pid in processes.children(os.getpid()):
            if pid not in self._known:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def host_state(device: str) -> dict[str, Any]:
    """What could be left on this host outside of any process."""
    groups = host_groups()
    folders = {parent for parent in (groups.unified, groups.memory, groups.pids, groups.freezer) if parent is not None}
    state: dict[str, Any] = {
        "shared_memory": {path.name for path in Path("/dev/shm").iterdir()},
        "control_groups": {str(path) for folder in folders for path in folder.glob("dojo-*")},
        "user_ids": set(re.findall(r"@(kerneldojo-uid-\d+)", Path("/proc/net/unix").read_text())),
    }
    if device.startswith("cuda"):
        state["device_memory"] = device_memory()
    return state


def descriptors() -> dict[int, str]:
    """What this process holds open, with numbers of sockets and pipes left out."""
    found: dict[int, str] = {}
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found[int(path.name)] = re.sub(r"\[\d+\]", "", str(path.readlink()))
    return found


def device_memory() -> list[int]:
    """Bytes in use on each GPU."""
    import pynvml

    pynvml.nvmlInit()
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    return [int(pynvml.nvmlDeviceGetMemoryInfo(handle).used) for handle in handles]


def left_behind(before: dict[str, Any], device: str, watch: Watch, scratch: Path) -> dict[str, list[str]]:
    """What is there now and was not before; other users of the host are told apart where that can be done."""
    watch.reap()
    now = host_state(device)
    alive = [pid for pid in processes.descendants(os.getpid()) if processes.is_alive(pid)]
    left = {str(folder) for folder in left_groups()}  # Those of living keepers are other judges'.
    found = {
        "processes": [f"{pid}: {command(pid).replace(bytes(1), b' ').decode(errors='replace')[:120]}" for pid in alive],
        "shared_memory": sorted(now["shared_memory"] - before["shared_memory"]),
        "control_groups": sorted(left & (now["control_groups"] - before["control_groups"])),
        # A user id is a socket's name: with no process of ours left, those that are held are others'.
        "user_ids": sorted(now["user_ids"] - before["user_ids"]) if alive else [],
        "temporary_files": sorted(str(path.relative_to(scratch)) for path in scratch.rglob("*"))[:50],
    }
    if "device_memory" in now:
        pairs = enumerate(zip(before["device_memory"], now["device_memory"], strict=True))
        grown = [f"GPU {index}: {new - old} bytes" for index, (old, new) in pairs if new - old > DEVICE_MEMORY_SLACK]
        found["device_memory"] = grown
    return found
