"""Every device of every machine of a Ray cluster: Ray places, watches and restarts; who is to blame is decided here.

One actor supervises each GPU (`num_gpus=1`), or each worker of a `cpu` or `model:` device (a CPU a verdict). It is
pinned to its machine and never restarted or retried by Ray (`max_restarts=0`, `max_task_retries=0`): the slot does
both, for it knows whether a candidate was alone. Machines that join later are taken up, lost ones are let go.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

try:
    import ray
    from ray.exceptions import GetTimeoutError, RayActorError, RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ImportError as error:
    raise RuntimeError(f"a pool over Ray needs the package ray: {error}") from None

from kerneldojo.pool.config import PoolConfig
from kerneldojo.pool.dispatcher import WANTING, Dispatcher
from kerneldojo.pool.faults import Cause, Sick, WorkerLost
from kerneldojo.pool.placement import PooledDevice, describe, evenly, lanes_of_gpu, lanes_of_workers
from kerneldojo.pool.slot import Slot
from kerneldojo.pool.supervisor import Supervisor
from kerneldojo.schema import Evaluation, Job

log = logging.getLogger(__name__)

SCAN_SECONDS = 1.0
GLANCE_SECONDS = 0.2
"""How often whoever waits for a worker to start looks whether it is still wanted."""
NODE_LOSS_SECONDS = 15.0
"""How long after the loss of an actor Ray may take to notice that its whole machine is gone."""
LAST_WORDS_SECONDS = 10.0
"""How long all who were present at a loss may take to hear of it."""


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


class SupervisedWorker:
    """A worker on another machine, as a slot wants it.

    Args:
        device: what it judges on.
        node_id: Ray's name of its machine.
        num_verdicts: verdicts at once.
        part: which of its machine's GPUs it is, and of how many; see `Supervisor`.
        config: how patient to be.
        is_wanted: asked while it starts, so that a pool that is closed meanwhile does not wait for it, or for a place
            that somebody else has.

    Raises:
        Sick: it did not come up.
    """

    def __init__(
        self,
        device: PooledDevice,
        node_id: str,
        num_verdicts: int,
        part: tuple[int, int],
        config: PoolConfig,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        self._config, self._node_id, self._is_wanted = config, node_id, is_wanted
        self._is_lost = self._is_killed = False
        self._changed = threading.Condition()
        self._num_asked = 0
        """Questions that are under way."""
        resources = {"num_gpus": 1, "num_cpus": 0} if device.kind == "cuda" else {"num_cpus": num_verdicts}
        actor: Any = ray.remote(Supervisor)
        self._actor: Any = actor.options(
            **resources,
            max_restarts=0,
            max_task_retries=0,
            max_concurrency=num_verdicts + 2,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False),
        ).remote(device.judged_as, num_verdicts, part, config.model_dump_json())
        try:
            answer = self._ask("start", config.start_seconds + config.check_timeout_seconds)
        except WorkerLost as lost:
            raise Sick(str(lost)) from None
        if "sick" in answer:
            self._kill_actor()
            raise Sick(str(answer["sick"]))
        self.description = str(answer["description"])

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked."""
        return not self._is_lost

    @property
    def is_gone(self) -> bool:
        """Not known from afar: whether the device is well is asked before a worker is started there."""
        return True

    def judge(self, device: str, job: Job, on_stage: Callable[[str], None]) -> Evaluation:
        """See `slot.AnyWorker`; stages are not told from afar."""
        on_stage("judging")
        answer = self._ask("judge", None, job.model_dump_json())
        return Evaluation.model_validate_json(answer["verdict"])

    def ping(self) -> None:
        """See `slot.AnyWorker`."""
        self._ask("ping", 2 * self._config.check_timeout_seconds)

    def kill(self, cause: Cause, reason: str) -> None:
        """See `slot.AnyWorker`."""
        self._kill_actor()

    def close(self) -> None:
        """See `slot.AnyWorker`."""
        if self._is_lost:  # What the others are told is on its way: with the actor it would be lost.
            with self._changed:
                self._changed.wait_for(lambda: not self._num_asked, LAST_WORDS_SECONDS)
        else:
            with contextlib.suppress(RayError):
                ray.get(self._actor.leave.remote(), timeout=30.0)
        self._kill_actor()

    def _kill_actor(self) -> None:
        self._is_lost = self._is_killed = True
        with contextlib.suppress(RayError, ValueError):
            ray.kill(self._actor)

    def _ask(self, what: str, patience: float | None, *arguments: str) -> dict[str, Any]:
        """Without `patience` for as long as the supervisor is there: how long its worker may take it knows itself."""
        with self._changed:
            if self._is_lost:  # A lane may be quicker than its keeper, and who was not in it has no part in the loss.
                raise WorkerLost("elsewhere", "the worker was gone before the job reached it")
            self._num_asked += 1
        try:
            answer = self._answer(what, patience, *arguments)
        finally:
            with self._changed:
                self._num_asked -= 1
                self._changed.notify_all()
        if "lost" in answer:
            self._is_lost = True
            raise WorkerLost(answer["lost"], str(answer["reason"]))
        if "sick" in answer and what != "start":
            self._is_lost = True
            raise Sick(str(answer["sick"]))
        return answer

    def _answer(self, what: str, patience: float | None, *arguments: str) -> dict[str, Any]:
        try:
            asked = getattr(self._actor, what).remote(*arguments)
            until = time.monotonic() + (float("inf") if patience is None else patience)
            glance = GLANCE_SECONDS if what == "start" else patience or self._config.check_seconds
            while True:
                try:
                    answer: dict[str, Any] = ray.get(asked, timeout=glance)
                    break
                except GetTimeoutError:
                    if time.monotonic() >= until or (what == "start" and not self._is_wanted()):
                        raise
                    if patience is None:
                        ray.get(self._actor.say_here.remote(), timeout=2 * self._config.check_timeout_seconds)
        except GetTimeoutError:
            self._kill_actor()
            raise WorkerLost("node", "its supervisor did not answer in time") from None
        except RayActorError as error:
            if self._is_killed:
                raise WorkerLost("elsewhere", "its supervisor was ended for another's sake") from None
            self._is_lost = True
            if self._is_node_lost():
                raise WorkerLost("node", "its machine was lost") from None
            raise WorkerLost("died", f"its supervisor died: {str(error).splitlines()[0][:200]}") from None
        except RayError as error:
            self._kill_actor()
            raise Sick(f"Ray failed: {str(error)[:200]}") from None
        return answer

    def _is_node_lost(self) -> bool:
        """Whether the whole machine is gone; Ray notices that a little later than the loss of an actor."""
        until = time.monotonic() + NODE_LOSS_SECONDS
        while time.monotonic() < until:
            if not any(node["NodeID"] == self._node_id and node["Alive"] for node in ray.nodes()):
                return True
            time.sleep(0.5)
        return False


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
