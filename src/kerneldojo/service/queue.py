"""Whose task is next: each client has a queue of its own, and clients take turns.

Next is the client with the fewest tasks running, and among those the one that was served longest ago: one that
submits ten thousand tasks, or very slow ones, delays another's single task by one slot and no more. Priorities order a
client's own tasks, so nobody gains on others by calling everything urgent. Of its tasks of one priority those may go
first, within bounds, for which the executor has something at hand (`pool.executor.Choosy`). The queue holds what is
needed to choose, never a job.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from kerneldojo.pool.config import AFFINITY_WINDOW, MOST_OVERTAKEN


@dataclass(frozen=True, slots=True)
class Entry:
    """One waiting task."""

    id: str
    sequence: int
    """Order of acceptance."""
    client: str
    priority: int
    """Higher goes first within its client."""
    num_bytes: int
    """Size of its job on disk."""
    problem: str = ""
    """Hash of its problem; empty for one that has waited since before the service was started."""


class FairQueue:
    """Waiting tasks of all clients. Not thread-safe: its owner holds a lock."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._heaps: dict[str, list[tuple[int, int, str]]] = {}
        self._waiting: Counter[str] = Counter()
        self._served: dict[str, int] = {}
        self._overtaken: Counter[str] = Counter()
        """How often tasks that waited first of their client's were."""
        self._turn = 0
        self.num_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, task_id: str) -> bool:
        return task_id in self._entries

    def clients(self) -> dict[str, int]:
        """Number of waiting tasks of each client that has any."""
        return dict(self._waiting)

    def push(self, entry: Entry) -> None:
        """Add a task."""
        self._entries[entry.id] = entry
        heapq.heappush(self._heaps.setdefault(entry.client, []), (-entry.priority, entry.sequence, entry.id))
        self._waiting[entry.client] += 1
        self._served.setdefault(entry.client, 0)
        self.num_bytes += entry.num_bytes

    def remove(self, task_id: str) -> bool:
        """Take a task out; whether it was there."""
        entry = self._entries.get(task_id)
        if entry is None:
            return False
        self._forget(entry)
        # The heap keeps a stale item until it comes up; rebuilt when most of it is stale, so that it cannot grow.
        heap = self._heaps.get(entry.client)
        if heap is not None and len(heap) > 2 * self._waiting[entry.client] + 16:
            live = [item for item in heap if self._is_live(item)]
            heapq.heapify(live)
            self._heaps[entry.client] = live
        return True

    def pop(self, running: Counter[str], rank: Callable[[str], int] = lambda _: 0) -> Entry | None:
        """Take the next task; None if none waits.

        Args:
            running: number of tasks of each client that run now.
            rank: how gladly the executor would take one on a problem, by its hash: see `pool.executor.Choosy`.
        """
        if not self._entries:
            return None
        client = min(self._waiting, key=lambda name: (running[name], self._served[name]))
        self._turn += 1
        self._served[client] = self._turn
        entry = self._choose(self._heaps[client], rank)
        self._forget(entry)
        return entry

    def _choose(self, heap: list[tuple[int, int, str]], rank: Callable[[str], int]) -> Entry:
        """Take the best of a client's first tasks of one priority out of its heap; of equally good ones the first."""
        passed: list[tuple[int, int, str]] = []
        best: tuple[int, Entry] | None = None
        ranks = {"": 0}
        while heap and len(passed) < AFFINITY_WINDOW:
            item = heapq.heappop(heap)
            if not self._is_live(item):
                continue
            if passed and (item[0] != passed[0][0] or self._overtaken[passed[0][2]] >= MOST_OVERTAKEN):
                heapq.heappush(heap, item)
                break
            passed.append(item)
            entry = self._entries[item[2]]
            if entry.problem not in ranks:
                ranks[entry.problem] = rank(entry.problem)
            if best is None or ranks[entry.problem] < best[0]:
                best = ranks[entry.problem], entry
            if not best[0]:
                break
        assert best is not None, "a client has a heap as long as it has tasks"
        for item in passed:
            if item[2] != best[1].id:
                heapq.heappush(heap, item)
        if passed[0][2] != best[1].id:
            self._overtaken[passed[0][2]] += 1
        return best[1]

    def _is_live(self, item: tuple[int, int, str]) -> bool:
        entry = self._entries.get(item[2])
        return entry is not None and entry.sequence == item[1]

    def _forget(self, entry: Entry) -> None:
        del self._entries[entry.id]
        self._overtaken.pop(entry.id, None)
        self.num_bytes -= entry.num_bytes
        self._waiting[entry.client] -= 1
        if not self._waiting[entry.client]:
            # A client without tasks leaves nothing behind; it starts as never served when it returns.
            del self._waiting[entry.client]
            del self._heaps[entry.client]
            del self._served[entry.client]
