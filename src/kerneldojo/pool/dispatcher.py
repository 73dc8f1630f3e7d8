"""The heart of every pool: jobs go to slots, verdicts come back, and faults are laid at the right door.

The rules of faults, in order:

1. A job that was in a worker when it was lost is a *suspect*: it is judged again, alone on one slot. Not so if the
   loss is known to be another's doing (another job hung in that worker; the pool was asked to stop).
2. If the worker is lost again while a suspect is alone in it, that is the candidate's own `runtime_error` (`timeout`,
   if it hung), and is scored: whoever breaks the judge does not get away unscored.
3. A machine that is lost counts against the machine the first time that a suspect was alone on it; the second time,
   on another machine, against the candidate.
4. `infrastructure_error`, and faults of a device beside the job, are tried again a bounded number of times, ever more
   patiently and at last alone; then the verdict is `infrastructure_error`, which nobody scores.
"""

from __future__ import annotations

import atexit
import itertools
import json
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future

from kerneldojo.contestant.wire import MAX_FRAME_BYTES
from kerneldojo.pool.config import PoolConfig
from kerneldojo.pool.executor import DeviceState
from kerneldojo.pool.faults import WorkerLost
from kerneldojo.pool.placement import PooledDevice, canonical, eligible
from kerneldojo.pool.queue import Task
from kerneldojo.pool.schedule import Schedule
from kerneldojo.pool.slot import Slot
from kerneldojo.pool.verdict_cache import VerdictCache, environment_hash
from kerneldojo.schema import Evaluation, Job, Status, content_hash

WANTING = ("open", "draining")
"""States of a pool in which a worker that starts is worth waiting for."""
_MOST_JOB_BYTES = MAX_FRAME_BYTES - (1 << 20)
_MOST_NODES = 2
"""Machines that a suspect may take with it before that is held against it."""


class Dispatcher:
    """An `Executor` over slots; what `LocalPool` and `RayPool` have in common.

    Args:
        config: settings.

    Raises:
        ValueError: the cache folder cannot be used.
    """

    def __init__(self, config: PoolConfig) -> None:
        self.config = config
        self._changed = threading.Condition()
        self._slots: list[Slot] = []
        self._devices: dict[str, PooledDevice] = {}
        self._schedule = Schedule(config)
        self._tasks: dict[str, Task] = {}
        """Under way, by key: equal jobs join these."""
        self._num_open = 0
        self._numbers = itertools.count()
        self._cache = VerdictCache(config.remember, config.cache_folder)
        self._environment = environment_hash()
        self._state = "open"
        atexit.register(self._close_at_exit)

    # What an executor does.

    @property
    def num_slots(self) -> int:
        """Jobs that can be under way at once."""
        with self._changed:
            return sum(slot.num_lanes for slot in self._slots)

    def submit(self, job: Job) -> Future[Evaluation]:
        """See `Executor.submit`."""
        future: Future[Evaluation] = Future()
        if len(json.dumps(job.model_dump(mode="json"))) > _MOST_JOB_BYTES:
            raise ValueError(f"the job is too large: at most {_MOST_JOB_BYTES >> 20} MiB in all are judged")
        with self._changed:
            if self._state != "open":
                raise RuntimeError("the pool is closed")
            devices = list(self._devices.values())
            names = eligible(job.device, devices)
            settled = job.model_copy(update={"device": canonical(names, devices)})
            key = content_hash("verdict", settled.hash, self._environment)
            if not job.fresh:
                known = self._cache.get(key)
                if known is not None:
                    future.set_running_or_notify_cancel()
                    future.set_result(known)
                    return future
                if key in self._tasks:
                    return _join(self._tasks[key], future)
            task = Task(next(self._numbers), job, key, names, [future])
            if not job.fresh:
                self._tasks[key] = task
            self._num_open += 1
            self._schedule.add(task)
            self._changed.notify_all()
        return future

    def rank(self, problem_hash: str) -> int:
        """See `Choosy.rank`. On the host nothing is made that serves one verdict at a time."""
        with self._changed:
            free = [slot for slot in self._slots if not slot.reason and len(slot.running) < slot.num_lanes]
            if any(slot.device.kind != "cuda" or slot.warmth.is_free(problem_hash) for slot in free):
                return 0
            return 1 + sum(slot.warmth.num_met(problem_hash) for slot in self._slots)

    def devices(self) -> Sequence[DeviceState]:
        """See `Executor.devices`."""
        with self._changed:
            return [self._describe(device) for device in self._devices.values()]

    def _describe(self, device: PooledDevice) -> DeviceState:
        slots = [slot for slot in self._slots if slot.device.name == device.name]
        running = [(task.job.problem.name, stage) for slot in slots for task, stage in slot.running.items()]
        is_healthy = any(not slot.reason for slot in slots)
        reasons = [slot.reason for slot in slots if slot.reason] or ["its machine is lost"]
        return DeviceState(
            name=device.name,
            kind=device.kind,
            description=device.description,
            is_healthy=is_healthy,
            reason="" if is_healthy else reasons[0],
            running=tuple(f"{name}: {stage}" for name, stage in running),
            num_done=sum(slot.num_done for slot in slots),
            num_slots=sum(slot.num_lanes for slot in slots),
        )

    def close(self, *, drain: bool = True, patience: float | None = None) -> None:
        """See `Executor.close`; what no device can do any more ends as `infrastructure_error`."""
        with self._changed:
            if self._state == "open":
                self._state = "draining"
            if patience is not None:
                threading.Thread(target=self._abort, args=(patience,), name="end of a pool", daemon=True).start()
            if not drain:
                for future in [future for task in self._schedule.idle() for future in task.futures]:
                    future.cancel()
            self._changed.notify_all()
            hopeless_since: dict[Task, float] = {}
            while self._num_open:
                for task in self._schedule.idle():
                    if task.is_cancelled or (not drain and all(future.done() for future in task.futures)):
                        self._schedule.discard(task)
                        self._forget(task)
                for task in self._schedule.idle():
                    if self._has_hope(task):
                        hopeless_since.pop(task, None)
                    elif (
                        time.monotonic() - hopeless_since.setdefault(task, time.monotonic()) > self.config.start_seconds
                    ):
                        self._give_up(task, "no device of its own became well before the pool was closed")
                if self._num_open:
                    self._changed.wait(0.2)
            self._state = "closed"
            self._changed.notify_all()
            slots = list(self._slots)
        for slot in slots:
            slot.begin_to_close()
        for slot in slots:
            slot.close()
        self._cache.close()
        atexit.unregister(self._close_at_exit)

    def _abort(self, patience: float) -> None:
        """End what is still open then, until nothing is: a worker may have come up, or a job gone in, meanwhile."""
        with self._changed:
            self._changed.wait_for(lambda: not self._num_open, patience)
        while self._stop_all():
            with self._changed:
                self._changed.wait_for(lambda: not self._num_open, 0.5)

    def _stop_all(self) -> bool:
        """Give up what waits and kill what runs; whether there was anything."""
        with self._changed:
            if not self._num_open:
                return False
            slots = self._give_up_all()
        aborts = [threading.Thread(target=slot.abort, daemon=True) for slot in slots]
        for abort in aborts:
            abort.start()
        for abort in aborts:
            abort.join()
        return True

    def _close_at_exit(self) -> None:
        with self._changed:
            slots = self._give_up_all()
        for slot in slots:  # The interpreter is ending: it starts no more threads.
            slot.abort()
        self.close(drain=False)

    def _give_up_all(self) -> list[Slot]:
        """Begin no more, and give up what waits; the slots, in which something may run."""
        self._state = "stopping"
        for task in self._schedule.idle():
            self._give_up(task, "the pool was stopped")
        return list(self._slots)

    def _has_hope(self, task: Task) -> bool:
        """Whether a device that may serve it is well, or at work."""
        return any(slot.device.is_among(task.devices) and (not slot.reason or slot.running) for slot in self._slots)

    def _give_up(self, task: Task, reason: str) -> None:
        self._schedule.discard(task)
        self._settle(task, failure(task.job, Status.INFRASTRUCTURE_ERROR, reason))

    # What slots ask for and tell.

    def next_task(self, slot: Slot, timeout: float) -> Task | None:
        """See `slot.Owner`."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while not self.is_closed(slot) and not slot.reason:
                task = self._schedule.take(slot, self._slots)
                if task is not None and self._begin(task):
                    slot.running[task] = "starting"
                    slot.warmth.begin(task.problem)
                    return task
                if task is None:
                    remaining = deadline - time.monotonic()
                    if remaining <= 0:
                        return None
                    self._changed.wait(min(remaining, self._schedule.next_due()))
        return None

    def _begin(self, task: Task) -> bool:
        """Whether anybody still wants it; from now on it cannot be cancelled."""
        task.futures = [future for future in task.futures if future.running() or future.set_running_or_notify_cancel()]
        task.is_running = bool(task.futures)
        if not task.futures:
            self._forget(task)
        return task.is_running

    def finish(self, slot: Slot, task: Task, evaluation: Evaluation) -> None:
        """See `slot.Owner`."""
        with self._changed:
            slot.running.pop(task, None)
            slot.warmth.end(task.problem)
            if evaluation.status is Status.INFRASTRUCTURE_ERROR:
                self._retry(task, evaluation)
                return
            slot.num_done += 1
            self._cache.put(task.key, evaluation)
            self._settle(task, evaluation)

    def lost(self, slot: Slot, task: Task, loss: WorkerLost) -> None:
        """See `slot.Owner`."""
        with self._changed:
            slot.running.pop(task, None)
            slot.warmth.end(task.problem)
            if loss.cause != "fault":
                slot.warmth.lose()
            if self._state in ("stopping", "closed"):
                self._settle(task, failure(task.job, Status.INFRASTRUCTURE_ERROR, "the pool was stopped"))
            elif loss.cause == "elsewhere":
                self._schedule.rest(task)
            elif loss.cause == "fault":
                self._retry(task, failure(task.job, Status.INFRASTRUCTURE_ERROR, f"our fault: {loss}"))
            elif task.is_suspect and not self._is_excused(task, loss):
                slot.num_done += 1
                self._settle(task, convicted(task.job, loss, slot.device.name))
            else:
                task.is_suspect = task.is_alone = True
                self._schedule.add(task)
            self._changed.notify_all()

    def _is_excused(self, task: Task, loss: WorkerLost) -> bool:
        if loss.cause != "node":
            return False
        task.num_nodes_lost_alone += 1
        return task.num_nodes_lost_alone < _MOST_NODES

    def _retry(self, task: Task, evaluation: Evaluation) -> None:
        if task.num_retries >= self.config.num_retries:
            self._settle(task, evaluation)
            return
        task.num_retries += 1
        if task.num_retries == self.config.num_retries:
            task.is_alone = True  # What it may have caused itself is then seen to be its own: masking must not pay.
        self._schedule.rest(task)
        self._changed.notify_all()

    def _settle(self, task: Task, evaluation: Evaluation) -> None:
        self._forget(task)
        for future in task.futures:
            if future.running() or future.set_running_or_notify_cancel():
                future.set_result(evaluation)

    def _forget(self, task: Task) -> None:
        self._num_open -= 1
        if self._tasks.get(task.key) is task:
            del self._tasks[task.key]
        self._changed.notify_all()

    def note(self, slot: Slot, task: Task, stage: str) -> None:
        """See `slot.Owner`."""
        with self._changed:
            if task in slot.running:
                slot.running[task] = stage

    def change_health(self, slot: Slot, reason: str) -> None:
        """See `slot.Owner`."""
        with self._changed:
            slot.reason = reason
            self._changed.notify_all()

    def is_closed(self, slot: Slot) -> bool:
        """See `slot.Owner`."""
        return self._state == "closed" or slot not in self._slots


def _join(task: Task, future: Future[Evaluation]) -> Future[Evaluation]:
    if task.is_running:
        future.set_running_or_notify_cancel()
    task.futures.append(future)
    return future


def failure(job: Job, status: Status, message: str) -> Evaluation:
    """A verdict that a judge did not live to write."""
    return Evaluation(status=status, message=message, problem_hash=job.problem.hash, candidate_hash=job.candidate.hash)


def convicted(job: Job, loss: WorkerLost, device: str) -> Evaluation:
    """The verdict on a candidate that lost its worker whenever it was judged, the last time alone."""
    status = Status.TIMEOUT if loss.cause == "hung" else Status.RUNTIME_ERROR
    what = "machine" if loss.cause == "node" else "worker"
    message = f"the {what} that judged it was lost every time, at last while it was judged alone: {loss}"
    return failure(job, status, message).model_copy(update={"device": device})
