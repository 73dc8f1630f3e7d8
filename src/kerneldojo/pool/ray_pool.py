"""Every device of every machine of a Ray cluster: Ray places, watches and restarts; who is to blame is decided here.

One actor supervises each GPU (`num_gpus=1`), or each worker of a `cpu` or `model:` device (a CPU a verdict). It is
pinned to its machine and never restarted or retried by Ray (`max_restarts=0`, `max_task_retries=0`): the slot does
both, for it knows whether a candidate was alone. Machines that join later are taken up, lost ones are let go.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

try:
    import ray
except ImportError as error:
    raise RuntimeError(f"a pool over Ray needs the package ray: {error}") from None

from kerneldojo.pool.config import PoolConfig
from kerneldojo.pool.dispatcher import WANTING, Dispatcher
from kerneldojo.pool.placement import PooledDevice, describe, evenly, lanes_of_gpu, lanes_of_workers
from kerneldojo.pool.slot import Slot
from kerneldojo.pool.supervised_worker import SupervisedWorker

log = logging.getLogger(__name__)

SCAN_SECONDS = 1.0


class RayPool(Dispatcher):
    """An `Executor` over a Ray cluster.

    Args:
        address: of the cluster; None for the one this process is connected to, or that RAY_ADDRESS names, else a new
            one on this machine.
        devices: on every machine: `cuda` for all of its GPUs, `cpu`, `model:GPU`.
        num_slots: verdicts at once of all devices together on each machine, at least one a GPU; by default one a core
            of Ray's on `cpu` and `model:` devices, and on GPUs what `config` says.
        config: settings.

    Raises:
        ValueError: an unknown device, or none.
        RuntimeError: the cluster cannot be reached.
    """

    def __init__(
        self,
        address: str | None = None,
        devices: Sequence[str] = ("cuda",),
        *,
        num_slots: int | None = None,
        config: PoolConfig | None = None,
    ) -> None:
        self._wanted = [_parsed(name) for name in dict.fromkeys(devices)]
        if not self._wanted:
            raise ValueError("a pool needs at least one device")
        if num_slots is not None and num_slots < 1:
            raise ValueError(f"num_slots must be at least 1, not {num_slots}")
        self._num_slots_per_node = num_slots
        self._nodes: dict[str, str] = {}
        self._is_ours = not ray.is_initialized()
        if self._is_ours:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            try:
                ray.init(address=address, log_to_driver=False, include_dashboard=None if address else False)
            except Exception as error:
                raise RuntimeError(f"the Ray cluster cannot be reached: {str(error)[:300]}") from None
        # Ray readies itself for what is sent with the first of it, and not for two threads at once: of the keepers of
        # two machines one would find its modules half imported.
        ray.put(None)
        super().__init__(config or PoolConfig())
        self._scan()
        self._stop = threading.Event()
        self._scanner = threading.Thread(target=self._scan_often, name="scanner of the cluster", daemon=True)
        self._scanner.start()

    def _scan_often(self) -> None:
        while not self._stop.wait(SCAN_SECONDS):
            try:
                self._scan()
            except Exception:
                log.exception("the cluster could not be looked over")

    def _scan(self) -> None:
        """Take up machines that are new, let go of those that are lost."""
        alive = {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}
        fresh = [slot for node_id, node in alive.items() if node_id not in self._nodes for slot in self._join_in(node)]
        gone = [(node_id, name) for node_id, name in self._nodes.items() if node_id not in alive]
        with self._changed:
            self._slots = [*self._slots, *fresh]
            left: list[Slot] = []
            for node_id, name in gone:
                left += [slot for slot in self._slots if slot.device.name.startswith(f"{name}/")]
                self._slots = [slot for slot in self._slots if slot not in left]
                del self._nodes[node_id]
                log.warning("machine %s is lost", name)
            self._changed.notify_all()
        for slot in fresh:
            slot.start()
        for slot in left:
            threading.Thread(target=slot.close, name=f"end of {slot.device.name}", daemon=True).start()

    def _join_in(self, node: dict[str, Any]) -> list[Slot]:
        name = f"node-{len(self._devices_by_node())}"
        node_id = node["NodeID"]
        self._nodes[node_id] = name
        resources = node["Resources"]
        slots: list[Slot] = []
        num_gpus = int(resources.get("GPU", 0)) if "cuda" in self._wanted else 0
        num_cores = int(resources.get("CPU", 0))
        on_host = [wanted for wanted in self._wanted if wanted != "cuda"]
        told = evenly(self._num_slots_per_node, num_gpus + len(on_host)) if self._num_slots_per_node else []
        for index in range(num_gpus):
            device = PooledDevice(
                name=f"{name}/cuda:{index}",
                local_name=f"cuda:{index}",
                worker_name="cuda:0",
                kind="cuda",
                description=" ".join(sorted(key for key in resources if key.startswith("accelerator_type:"))),
            )
            wanted_lanes = max(1, told[index]) if told else self.config.num_verdicts_per_gpu
            num_lanes = lanes_of_gpu(wanted_lanes, num_cores // num_gpus)
            slots.append(self._slot(device, node_id, num_lanes, (index, num_gpus)))
        # More than its cores Ray would never place.
        num_on_host = min(sum(told[num_gpus:]), num_cores) if told else num_cores
        for wanted, share in zip(on_host, evenly(num_on_host, len(on_host)), strict=True):
            device = PooledDevice(
                name=f"{name}/{wanted}",
                local_name=wanted,
                kind="cpu" if wanted == "cpu" else "model",
                description=describe(wanted) if wanted != "cpu" else "Triton's interpreter",
            )
            lanes = lanes_of_workers(share, self.config.num_verdicts_per_worker)
            slots += [self._slot(device, node_id, num_lanes) for num_lanes in lanes]
        with self._changed:
            self._devices.update({slot.device.name: slot.device for slot in slots})
        return slots

    def _devices_by_node(self) -> set[str]:
        return {name.partition("/")[0] for name in self._devices} | set(self._nodes.values())

    def _slot(self, device: PooledDevice, node_id: str, num_lanes: int, part: tuple[int, int] = (0, 1)) -> Slot:
        make = partial(SupervisedWorker, device, node_id, num_lanes, part, self.config, lambda: self._state in WANTING)
        return Slot(self, device, num_lanes, make, lambda: None, self.config)

    def close(self, *, drain: bool = True, patience: float | None = None) -> None:
        """See `Executor.close`."""
        super().close(drain=drain, patience=patience)
        self._stop.set()
        self._scanner.join()
        if self._is_ours:
            ray.shutdown()


def _parsed(name: str) -> str:
    """A device that every machine may have.

    Raises:
        ValueError: unknown.
    """
    from kerneldojo import devices

    if name in ("cuda", "auto"):
        return "cuda"
    if name.startswith("cuda"):
        raise ValueError(f"over Ray say cuda for all GPUs of all machines, not {name!r}")
    return str(devices.parse(name))
