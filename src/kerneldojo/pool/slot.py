"""A slot: one worker process on one device, and the threads of ours (lanes) that hand it jobs.

A lane takes a job, has it judged and reports; then it takes the next. When the worker is lost, all its lanes hear so
at once, one of them sees to the device's health and starts another worker, and the slot goes on. A slot is healthy as
long as that works, and tries again, ever more patiently, while it does not.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

from kerneldojo.judging.shares import most_runners
from kerneldojo.pool.config import PoolConfig
from kerneldojo.pool.faults import Cause, Sick, WorkerLost
from kerneldojo.pool.placement import PooledDevice
from kerneldojo.pool.queue import Task
from kerneldojo.pool.warmth import Warmth
from kerneldojo.schema import Evaluation, Job

log = logging.getLogger(__name__)

NUM_WARM_PROBLEMS = 4
"""Problems for which a worker of the host is taken to be warm: the last ones."""


class AnyWorker(Protocol):
    """What a slot needs of a worker, wherever it runs; see `WorkerProcess`."""

    description: str

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked."""
        ...

    @property
    def is_gone(self) -> bool:
        """Whether nothing is left of it, once it was killed or closed: what hangs in a driver outlives a SIGKILL."""
        ...

    def judge(self, device: str, job: Job, on_stage: Callable[[str], None]) -> Evaluation:
        """Have a job judged; raises `WorkerLost` or `Sick`."""
        ...

    def ping(self) -> None:
        """See whether it answers; raises `WorkerLost`."""
        ...

    def kill(self, cause: Cause, reason: str) -> None:
        """End it now; whoever waits for it hears why."""
        ...

    def close(self) -> None:
        """End it in order."""
        ...


class Owner(Protocol):
    """What a slot needs of its pool."""

    def next_task(self, slot: Slot, timeout: float) -> Task | None:
        """Wait for a job; None if there is none for now."""
        ...

    def finish(self, slot: Slot, task: Task, evaluation: Evaluation) -> None:
        """A verdict is there."""
        ...

    def lost(self, slot: Slot, task: Task, loss: WorkerLost) -> None:
        """The worker is gone, and the task was in it."""
        ...

    def note(self, slot: Slot, task: Task, stage: str) -> None:
        """A task that is in the slot, if it still is, has come to a stage."""
        ...

    def change_health(self, slot: Slot, reason: str) -> None:
        """The slot became sick for a reason, or well (empty)."""
        ...

    def is_closed(self, slot: Slot) -> bool:
        """Whether the slot is to end."""
        ...


class Slot:
    """One worker's place.

    Args:
        owner: the pool.
        device: what it judges on.
        num_lanes: jobs at once.
        make_worker: starts a worker; raises `Sick`. Called from a thread that lives as long as the slot.
        check: sees whether the device itself is well; raises `Sick`.
        config: how patient to be.
    """

    def __init__(
        self,
        owner: Owner,
        device: PooledDevice,
        num_lanes: int,
        make_worker: Callable[[], AnyWorker],
        check: Callable[[], None],
        config: PoolConfig,
    ) -> None:
        self.device = device
        self.num_lanes = num_lanes
        self.reason = "starting"
        """Why it takes no jobs; empty if it does. Written by the owner under its lock, as are the next three."""
        self.running: dict[Task, str] = {}
        """Jobs in it, with the stage each is in."""
        self.num_done = 0
        self.warmth = _warmth(device, num_lanes)
        """For which problems there is something at hand. Written by the owner under its lock, too."""
        self._owner, self._config = owner, config
        self._make_worker, self._check = make_worker, check
        self._worker: AnyWorker | None = None
        self._well = threading.Event()
        self._num_faults = 0
        self._closed = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name=f"keeper of {device.name}", daemon=True)
        self._lanes = [
            threading.Thread(target=self._work, name=f"lane {i} of {device.name}", daemon=True)
            for i in range(num_lanes)
        ]

    def start(self) -> None:
        """Begin; returns at once."""
        self._keeper.start()
        for lane in self._lanes:
            lane.start()

    def abort(self) -> None:
        """Kill the worker, whatever it does; call `close` next."""
        if self._worker is not None:
            self._worker.kill("elsewhere", "the pool was stopped")

    def close(self) -> None:
        """End the worker once its lanes have nothing in it; the owner has said before that it is closed."""
        self.begin_to_close()
        self._keeper.join()

    def begin_to_close(self) -> None:
        """The same, without waiting for the worker's end: one that does not listen takes its time."""
        for lane in self._lanes:
            lane.join()
        self._closed.set()

    # The keeper: the thread that starts workers, since a worker dies with the thread that started it.

    def _keep(self) -> None:
        pause = self._config.backoff_seconds
        try:
            while not self._closed.is_set() and not self._owner.is_closed(self):
                try:
                    self._revive()
                except Exception as error:  # Whatever it is: a slot without its keeper would never come back.
                    if self._owner.is_closed(self):
                        break
                    is_sick = isinstance(error, Sick)
                    reason = (str(error) or "sick") if is_sick else f"{type(error).__name__} in the pool"
                    self._well.clear()  # It may have been well until this check: its lanes wait, and do not spin.
                    self._owner.change_health(self, reason)
                    log.warning("%s is not well: %s", self.device.name, reason, exc_info=None if is_sick else error)
                    self._closed.wait(pause)
                    pause = min(2 * pause, self._config.longest_backoff_seconds)
                    continue
                pause = self._config.backoff_seconds
                self._owner.change_health(self, "")
                self._well.set()
                self._watch()
            self._closed.wait()
        finally:
            if self._worker is not None:
                self._worker.close()
                self._worker = None

    def _revive(self) -> None:
        """Have a live worker on a device that is well.

        Raises:
            Sick: not now.
        """
        self._check()
        if self._worker is None or not self._worker.is_alive:
            if self._worker is not None:
                self._worker.close()  # Its reader may not have left yet.
                if not self._worker.is_gone:
                    raise Sick("its worker was killed and does not end: the device's driver holds it")
            self._worker = self._make_worker()
        try:
            self._worker.ping()
        except WorkerLost as lost:
            raise Sick(str(lost)) from None

    def _watch(self) -> None:
        """Return when something is to be seen to: the worker is gone, faults pile up, or it is time for a check."""
        next_check = time.monotonic() + self._config.check_seconds
        worker = self._worker
        assert worker is not None
        while not self._closed.wait(0.05) and not self._owner.is_closed(self):
            if not worker.is_alive:
                self._well.clear()
                self._owner.change_health(self, "its worker is being started again")
                return
            if self._num_faults >= 2:
                self._replace(worker)
                return
            if time.monotonic() > next_check:
                if not self.running:  # What runs has a deadline of its own; a check beside it would disturb timing.
                    return
                next_check = time.monotonic() + self._config.check_seconds

    def _replace(self, worker: AnyWorker) -> None:
        """Take nothing new, wait for what runs, and end the worker: a queue behind it would never leave it empty."""
        self._well.clear()
        self._owner.change_health(self, "faults in a row: its worker is being replaced")
        while self.running and worker.is_alive:
            if self._closed.wait(0.05):
                return
        self._num_faults = 0  # Not before: what ran had its faults in this worker, too.
        worker.close()

    # The lanes.

    def _work(self) -> None:
        while not self._owner.is_closed(self):
            if not self._well.wait(0.2):
                continue
            task = self._owner.next_task(self, 0.5)
            if task is not None:
                self._judge(task)

    def _judge(self, task: Task) -> None:
        worker = self._worker
        try:
            if worker is None:
                raise WorkerLost("elsewhere", "the worker was being replaced")
            evaluation = worker.judge(
                self.device.judged_as, task.job, lambda stage: self._owner.note(self, task, stage)
            )
        except WorkerLost as lost:
            self._owner.lost(self, task, lost)
        except Sick as sick:
            self._num_faults += 1
            self._owner.lost(self, task, WorkerLost("fault", str(sick)))
        except Exception as bug:
            log.exception("a bug in the pool")
            self._num_faults += 1
            self._owner.lost(self, task, WorkerLost("fault", f"{type(bug).__name__} in the pool"))
        else:
            self._num_faults = self._num_faults + 1 if evaluation.status == "infrastructure_error" else 0
            self._owner.finish(self, task, evaluation)


def _warmth(device: PooledDevice, num_lanes: int) -> Warmth:
    if device.kind == "cuda":
        return Warmth(most_runners(num_lanes), is_shared=False)
    return Warmth(NUM_WARM_PROBLEMS, is_shared=True)
