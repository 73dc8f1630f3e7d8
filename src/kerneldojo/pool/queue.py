"""Jobs that wait, in order of arrival, yet handed preferably to a slot that is warm for their problem.

A worker that has judged for a problem has something at hand for its next candidate, which is cheaper there, as long as
nobody else uses it (`pool.warmth`). A slot therefore looks a little way behind the head of the queue; how often a head
may be overtaken is bounded, so that nothing starves.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from kerneldojo.pool.placement import PooledDevice
from kerneldojo.schema import Evaluation, Job


@dataclass(eq=False)
class Task:
    """One job in the pool, and everybody who waits for it."""

    number: int
    """Order of arrival."""
    job: Job
    key: str
    """What its verdict is remembered under."""
    devices: frozenset[str]
    """Devices that may serve it."""
    futures: list[Future[Evaluation]] = field(default_factory=list[Future[Evaluation]])
    is_running: bool = False
    problem: str = field(init=False)
    """Hash of its problem, which is asked for by everybody who looks at the queue."""
    num_overtaken: int = 0
    num_retries: int = 0
    """Tries that a fault of ours has cost."""
    is_suspect: bool = False
    """It was present when a worker was lost: if that happens again while it is judged alone, that is its verdict."""
    is_alone: bool = False
    """It is judged with nobody beside it from now on: a suspect, or one that has its last try."""
    reserved_for: Any = None
    """The slot that is kept free for one that is judged alone."""
    num_nodes_lost_alone: int = 0
    """Machines that were lost while it ran alone on them."""

    def __post_init__(self) -> None:
        self.problem = self.job.problem.hash

    @property
    def is_cancelled(self) -> bool:
        """Whether nobody wants it any more."""
        return all(future.cancelled() for future in self.futures)


class WaitingTasks:
    """Queues by the set of devices that may serve. Not thread-safe: its owner holds a lock.

    Args:
        window: how many tasks from the head are looked at.
        most_overtaken: how often a head may be passed over.
    """

    def __init__(self, window: int, most_overtaken: int) -> None:
        self._window = window
        self._most_overtaken = most_overtaken
        self._queues: dict[frozenset[str], OrderedDict[int, Task]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def __iter__(self) -> Iterator[Task]:
        for queue in self._queues.values():
            yield from queue.values()

    def add(self, task: Task) -> None:
        """Put a task where its number belongs: at the end, or at the head if it was there before."""
        queue = self._queues.setdefault(task.devices, OrderedDict())
        is_last = not queue or next(reversed(queue)) < task.number
        queue[task.number] = task
        if not is_last:
            queue.move_to_end(task.number, last=False)

    def remove(self, task: Task) -> None:
        """Take a task out."""
        queue = self._queues[task.devices]
        del queue[task.number]
        if not queue:
            del self._queues[task.devices]

    def choose(
        self, device: PooledDevice, is_warm_here: Callable[[str], bool], num_met: Callable[[str], int]
    ) -> Task | None:
        """Take the task that a slot of `device` should do next; None if there is none for it.

        One of a problem that the slot is warm for, else of the one that fewest are at: a new one, if there is any.

        Args:
            device: the slot's.
            is_warm_here: whether the slot has something at hand for a problem, by its hash.
            num_met: how much all slots have, or will have when verdicts that are under way are there.
        """
        heads = [queue for names, queue in self._queues.items() if device.is_among(names)]
        if not heads:
            return None
        queue = min(heads, key=lambda queue: next(iter(queue)))
        task = head = next(iter(queue.values()))
        if head.num_overtaken < self._most_overtaken and not is_warm_here(head.problem):
            first: dict[str, Task] = {}
            for one in islice(queue.values(), self._window):
                first.setdefault(one.problem, one)
            warm = next((one for problem, one in first.items() if is_warm_here(problem)), None)
            task = warm or min(first.values(), key=lambda one: num_met(one.problem))
        if task is not head:
            head.num_overtaken += 1
        self.remove(task)
        return task
