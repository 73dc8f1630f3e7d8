"""What runs on a machine of a Ray cluster: an actor that supervises one worker process and touches no device itself.

Whatever happens to its worker it tells as data, so that the actor survives it; only the loss of the actor or of its
machine reaches the pool as an error of Ray's. The worker dies with the actor: the kernel sees to that.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kerneldojo.devices.cores import cores_of_gpus
from kerneldojo.pool.config import PoolConfig
from kerneldojo.pool.faults import Sick, WorkerLost
from kerneldojo.pool.local_pool import check_device
from kerneldojo.pool.worker_process import WorkerProcess
from kerneldojo.schema import Job


class Supervisor:
    """One worker process on this machine; an actor.

    Args:
        device: as this machine names it, within the GPUs that Ray has given to this actor.
        num_verdicts: verdicts at once.
        part: with several at once on a GPU: which of so many even shares of this machine's cores its worker may use.
        config: a `PoolConfig`, as JSON.
    """

    def __init__(self, device: str, num_verdicts: int, part: tuple[int, int], config: str) -> None:
        self._device = device
        self._num_verdicts = num_verdicts
        position, num_parts = part
        is_shared = device.startswith("cuda") and num_verdicts > 1
        self._cores = cores_of_gpus(num_parts, list(os.sched_getaffinity(0)))[position] if is_shared else ()
        self._config = PoolConfig.model_validate_json(config)
        self._worker: WorkerProcess | None = None
        # A worker dies with the thread that started it, so that must be one that stays.
        self._starter = ThreadPoolExecutor(1)

    def start(self) -> dict[str, Any]:
        """See whether the device is well, and start the worker; says what the device is, or `sick`."""
        try:
            check_device(self._device, self._config.check_timeout_seconds)
            self._worker = self._starter.submit(
                WorkerProcess, self._device, self._num_verdicts, self._config, self._cores
            ).result()
            self._worker.ping()
        except (Sick, WorkerLost) as error:
            return {"sick": str(error)}
        return {"description": self._worker.description, "pid": self._worker.pid}

    def ping(self) -> dict[str, Any]:
        """See whether device and worker are well."""
        try:
            check_device(self._device, self._config.check_timeout_seconds)
            assert self._worker is not None
            self._worker.ping()
        except WorkerLost as lost:
            return {"lost": lost.cause, "reason": str(lost)}
        except Sick as sick:
            return {"sick": str(sick)}
        return {}

    def say_here(self) -> bool:
        """That this process listens, whatever its worker does."""
        return True

    def judge(self, job: str) -> dict[str, Any]:
        """Judge a job (JSON): a `verdict` (JSON), or how the worker was `lost`, or `sick`."""
        assert self._worker is not None
        try:
            evaluation = self._worker.judge(self._device, Job.model_validate_json(job), lambda _: None)
        except WorkerLost as lost:
            return {"lost": lost.cause, "reason": str(lost)}
        except Sick as sick:
            return {"sick": str(sick)}
        return {"verdict": evaluation.model_dump_json(exclude={"timing_source"})}

    def leave(self) -> None:
        """End the worker in order, then this process (`exit_actor` would leave it to Ray when)."""
        if self._worker is not None:
            self._worker.close()
        os._exit(0)
