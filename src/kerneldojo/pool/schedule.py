"""Where jobs are while they are not in a worker: waiting, resting before another try, or suspect.

Not thread-safe: the dispatcher holds a lock around every call.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Sequence

from kerneldojo.pool.config import PoolConfig
from kerneldojo.pool.queue import Task, WaitingTasks
from kerneldojo.pool.slot import Slot


class Schedule:
    """Which slot does what next."""

    def __init__(self, config: PoolConfig) -> None:
        self._config = config
        self._waiting = WaitingTasks(config.affinity_window, config.most_overtaken)
        self._loners: list[Task] = []
        self._resting: list[tuple[float, int, Task]] = []

    def add(self, task: Task) -> None:
        """Put a task where it belongs: some are to be judged alone, the others wait in order of arrival."""
        if task.is_alone:
            task.reserved_for = None
            self._loners.append(task)
        else:
            self._waiting.add(task)

    def rest(self, task: Task) -> None:
        """Add it again after a pause that doubles with each try."""
        pause = self._config.backoff_seconds * 2.0 ** max(0, task.num_retries - 1)
        until = time.monotonic() + min(pause, self._config.longest_backoff_seconds)
        heapq.heappush(self._resting, (until, task.number, task))

    def next_due(self) -> float:
        """Seconds until a resting task is due; infinite if none rests."""
        return max(0.0, self._resting[0][0] - time.monotonic()) if self._resting else float("inf")

    def idle(self) -> list[Task]:
        """All tasks that are in no worker."""
        return [*self._waiting, *self._loners, *(task for _, _, task in self._resting)]

    def discard(self, task: Task) -> None:
        """Take an idle task out of wherever it is."""
        if task in self._loners:
            self._loners.remove(task)
        elif any(resting is task for _, _, resting in self._resting):
            self._resting = [entry for entry in self._resting if entry[2] is not task]
            heapq.heapify(self._resting)
        else:
            self._waiting.remove(task)

    def take(self, slot: Slot, slots: Sequence[Slot]) -> Task | None:
        """The task that `slot`, one of `slots`, does next; None if there is none for it now.

        One that is to be judged alone gets a slot to itself: the first that asks is kept for it, takes nothing new,
        and is its own once it is empty.
        """
        while self._resting and self._resting[0][0] <= time.monotonic():
            self.add(heapq.heappop(self._resting)[2])
        if any(task.is_alone for task in slot.running):
            return None
        loner = self._alone_for(slot, slots)
        if loner is not None:
            if slot.running:
                return None
            self._loners.remove(loner)
            return loner

        def num_met(problem_hash: str) -> int:
            return sum(other.warmth.num_met(problem_hash) for other in slots)

        return self._waiting.choose(slot.device, slot.warmth.is_free, num_met)

    def _alone_for(self, slot: Slot, slots: Sequence[Slot]) -> Task | None:
        mine = [task for task in self._loners if task.reserved_for is slot]
        if mine:
            return mine[0]
        for task in self._loners:
            holder = task.reserved_for
            is_held = holder is not None and holder in slots and not holder.reason
            if not is_held and slot.device.is_among(task.devices):
                task.reserved_for = slot
                return task
        return None
