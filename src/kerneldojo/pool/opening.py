"""Opening a pool by name, and waiting for its verdicts from asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

from kerneldojo.pool.config import PoolConfig
from kerneldojo.pool.executor import Executor
from kerneldojo.schema import Evaluation, Job


def open_pool(
    executor: Literal["local", "ray"] = "local",
    devices: Sequence[str] = ("auto",),
    *,
    num_slots: int | None = None,
    address: str | None = None,
    config: PoolConfig | None = None,
) -> Executor:
    """A pool over `devices`.

    Args:
        executor: `local` for this machine, `ray` for all machines of a Ray cluster.
        devices: see `LocalPool` and `RayPool`.
        num_slots: verdicts at once; by default one a core on `cpu` and `model:` devices, and on a GPU one for two of
            its cores, at most eight (`PoolConfig.num_verdicts_per_gpu`).
        address: of the Ray cluster; None for the one that the environment names, else a new one on this machine.
        config: settings.

    Raises:
        ValueError: an unknown executor or device, or no device at all (in one line).
        RuntimeError: Ray is not installed, or cannot be reached.
    """
    if executor == "local":
        from kerneldojo.pool.local_pool import LocalPool

        return LocalPool(devices, num_slots, config)
    if executor == "ray":
        from kerneldojo.pool.ray_pool import RayPool

        return RayPool(address, devices, num_slots=num_slots, config=config)
    raise ValueError(f"unknown executor {executor!r}: choose local or ray")


async def evaluate(executor: Executor, job: Job) -> Evaluation:
    """Judge one job; cancelling the awaiting task cancels the job unless it is running.

    Raises:
        ValueError: no device of the executor can ever serve it.
        RuntimeError: the executor is closed.
        asyncio.CancelledError: the executor was closed before the job was begun.
    """
    return await asyncio.wrap_future(executor.submit(job))
