"""Jobs and processes that the tests of the pool share."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from kerneldojo import Candidate, Problem
from kerneldojo.contestant.sandbox import processes
from kerneldojo.pool import Executor, PoolConfig
from kerneldojo.schema import Job

SUITE = Path(__file__).parent.parent / "exploits"
MODEL = "model:h100"
QUICK = PoolConfig(
    backoff_seconds=0.05,
    accept_seconds=10.0,
    margin_seconds=6.0,
    num_retries=1,
    check_seconds=1.0,
    check_timeout_seconds=4.0,
)
"""Impatient with a job that names a timeout of its own; the others have the protocol's two minutes."""
SLEEPER = "import time\ntime.sleep(NAP)\nclass ModelNew: pass\n"


def problem(name: str = "swish") -> Problem:
    return Problem(name=name, source=(SUITE / "problems" / f"{name}.py").read_text())


def honest(name: str = "swish", salt: str = "", **options: object) -> Job:
    source = (SUITE / "honest" / f"{name}.py").read_text() + f"\n# {salt}\n"
    return Job.model_validate({"problem": problem(), "candidate": Candidate(source=source), "device": MODEL, **options})


def broken(salt: str = "", **options: object) -> Job:
    source = f"class ModelNew(:\n# {salt}"
    return Job.model_validate({"problem": problem(), "candidate": Candidate(source=source), "device": MODEL, **options})


def sleeper(seconds: float, salt: str = "", **options: object) -> Job:
    source = SLEEPER.replace("NAP", str(seconds)) + f"# {salt}\n"
    return Job.model_validate({"problem": problem(), "candidate": Candidate(source=source), "device": MODEL, **options})


def wait_until(condition: Callable[[], object], seconds: float = 120.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it never came about"
        time.sleep(0.05)


def workers(owner: int | None = None) -> list[int]:
    """Worker processes of ours, by id."""
    return [pid for pid in processes.children(owner or os.getpid()) if b"kerneldojo.pool.worker" in command(pid)]


def workers_for(device: str) -> list[int]:
    """Those of our workers that judge on a device."""
    return [pid for pid in workers() if device.encode() in command(pid).split(b"\0")]


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def is_running(pool: Executor) -> bool:
    """Whether a worker has said that it judges."""
    return any(not text.endswith(": starting") for state in pool.devices() for text in state.running)
