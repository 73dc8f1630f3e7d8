"""Every device of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from functools import partial

from kerneldojo.devices.cores import cores_of_gpus
from kerneldojo.pool.config import PoolConfig
from kerneldojo.pool.dispatcher import WANTING, Dispatcher
from kerneldojo.pool.faults import Sick
from kerneldojo.pool.placement import PooledDevice, evenly, lanes_of_gpu, lanes_of_workers, local_device
from kerneldojo.pool.slot import Slot
from kerneldojo.pool.worker_process import WorkerProcess


class LocalPool(Dispatcher):
    """An `Executor` over the devices of this machine; returns at once, devices warm up meanwhile.

    Each `cpu` or `model:` device has worker processes of its own, each with up to `config.num_verdicts_per_worker`
    verdicts under way; a GPU has one worker, with `config.num_verdicts_per_gpu`. They share this process's cores, or
    those that `config.cores` names.

    Args:
        devices: names: `cuda:N`, `cuda` (all GPUs), `cpu`, `model:GPU`, or `auto` (GPUs if there are any, else
            `model:h100`).
        num_slots: verdicts at once of all devices together, at least one each; by default one a core on `cpu` and
            `model:` devices, and on GPUs what `config` says.
        config: settings.

    Raises:
        ValueError: an unknown device, a GPU that is not there, or no device at all.
    """

    def __init__(
        self, devices: Sequence[str] = ("auto",), num_slots: int | None = None, config: PoolConfig | None = None
    ) -> None:
        config = config or PoolConfig()
        if num_slots is not None and num_slots < 1:
            raise ValueError(f"num_slots must be at least 1, not {num_slots}")
        chosen = {device.name: device for name in devices for device in resolve(name)}
        if not chosen:
            raise ValueError("a pool needs at least one device")
        super().__init__(config)
        self._devices = chosen
        gpus = [device for device in chosen.values() if device.kind == "cuda"]
        on_host = [device for device in chosen.values() if device.kind != "cuda"]
        told = dict(zip(chosen, evenly(max(num_slots, len(chosen)), len(chosen)), strict=True)) if num_slots else {}
        cores = config.cores or tuple(os.sched_getaffinity(0))
        for device, mine in zip(gpus, cores_of_gpus(len(gpus), cores) if gpus else [], strict=True):
            num_lanes = lanes_of_gpu(told.get(device.name) or config.num_verdicts_per_gpu, len(mine))
            self._add(device, num_lanes, mine if num_lanes > 1 or config.cores else ())
        for device, share in zip(on_host, evenly(max(len(cores), len(on_host)), len(on_host)), strict=True):
            for num_lanes in lanes_of_workers(told.get(device.name, share), config.num_verdicts_per_worker):
                self._add(device, num_lanes, config.cores)
        for slot in self._slots:
            slot.start()

    def _add(self, device: PooledDevice, num_lanes: int, cores: Sequence[int] = ()) -> None:
        make = partial(WorkerProcess, device.local_name, num_lanes, self.config, cores, lambda: self._state in WANTING)
        check = partial(check_device, device.local_name, self.config.check_timeout_seconds)
        self._slots.append(Slot(self, device, num_lanes, make, check, self.config))


def resolve(name: str) -> list[PooledDevice]:
    """Devices of this machine that `name` stands for.

    Raises:
        ValueError: unknown, or not there.
    """
    from kerneldojo import devices

    return [local_device(one) for one in devices.every(name)]


def check_device(local_name: str, timeout: float) -> None:
    """See whether a GPU still runs kernels, in a fresh process; other devices are as well as their worker.

    Raises:
        Sick: it does not, or not in time.
    """
    if not local_name.startswith("cuda"):
        return
    command = [sys.executable, "-P", "-m", "kerneldojo.pool.probe", local_name.partition(":")[2] or "0"]
    probe = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        _, errors = probe.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        probe.kill()  # Not waited for: inside a driver that hangs, it dies only when the driver lets go.
        raise Sick(f"a tiny kernel did not end within {timeout:.0f} s") from None
    if probe.returncode:
        lines = errors.decode(errors="replace").strip().splitlines()
        raise Sick(f"a tiny kernel failed: {lines[-1][:200] if lines else probe.returncode}")
