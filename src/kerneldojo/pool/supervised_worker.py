"""A worker on another machine, held through the Ray actor that supervises it.

What becomes of the worker its supervisor tells as data. That the supervisor itself is lost Ray tells, and whether its
whole machine went with it; how long a verdict may take the supervisor knows, so here it is only asked now and then
whether it is there.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from kerneldojo.pool.config import PoolConfig
from kerneldojo.pool.faults import Cause, Sick, WorkerLost
from kerneldojo.pool.placement import PooledDevice
from kerneldojo.pool.supervisor import Supervisor
from kerneldojo.schema import Evaluation, Job

GLANCE_SECONDS = 0.2
"""How often whoever waits for a worker to start looks whether it is still wanted."""
NODE_LOSS_SECONDS = 15.0
"""How long after the loss of an actor Ray may take to notice that its whole machine is gone."""
LAST_WORDS_SECONDS = 10.0
"""How long all who were present at a loss may take to hear of it."""


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
