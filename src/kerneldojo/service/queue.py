"""Whose task is next: each client has a queue of its own, and clients take turns.

Next is the client with the fewest tasks running, and among those the one that was served longest ago: one that
submits ten thousand tasks, or very slow ones, delays another's single task by one slot and no more. Priorities order a
client's own tasks, so nobody gains on others by calling everything urgent. Of its tasks of one priority those may go
first, within bounds, for which the executor has something at hand (`pool.executor.Choosy`), and those for a device that
is busy are passed over (`places`). The queue holds what is needed to choose, never a job.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

from kerneldojo.pool.config import AFFINITY_WINDOW, MOST_OVERTAKEN
from kerneldojo.service.standing import Standing

MAX_LINES = 1024
"""Devices whose tasks a client may have in lines of their own: each choice looks at all of them. Who asks for more
devices than any cluster has gets the others' tasks in one line, in which each waits for those before it: handed over as
they come, they would take up the slots of devices that others ask for."""

ACCIDENTS = 2
"""Deaths of the service at which a task may be without going behind others: whatever kills a service time and again, it
is not to use up the attempts of those that happen to be first."""

Item = tuple[int, int, str]
"""What orders a line: the rank, the order of acceptance, and the id."""


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
    device: str = ""
    """That it asks for."""
    num_deaths: int = 0
    """How often the service died while it ran."""

    @property
    def rank(self) -> int:
        """Lower goes first within its client: by priority, then those who were not there at every death."""
        return -1000 * self.priority + min(999, max(0, self.num_deaths - ACCIDENTS))


class FairQueue:
    """Waiting tasks of all clients. Not thread-safe: its owner holds a lock."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._lines: dict[str, dict[str, list[Item]]] = {}
        """Of each client a heap for each device."""
        self._waiting: Counter[str] = Counter()
        self._wanted: Counter[str] = Counter()
        """Waiting tasks by the device that each asks for."""
        self._served: dict[str, int] = {}
        self._overtaken: Counter[str] = Counter()
        """How often tasks that waited first of their client's were."""
        self._turn = 0
        self._standing = Standing()
        self.num_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, task_id: str) -> bool:
        return task_id in self._entries

    def clients(self) -> dict[str, int]:
        """Number of waiting tasks of each client that has any."""
        return dict(self._waiting)

    def client_of(self, task_id: str) -> str | None:
        """Whose task it is; None if it does not wait."""
        entry = self._entries.get(task_id)
        return None if entry is None else entry.client

    def position(self, task_id: str) -> int | None:
        """Tasks of its client that go before it, whatever device is free first; None if it does not wait."""
        entry = self._entries.get(task_id)
        return None if entry is None else self._standing.num_before(entry.client, entry.rank, entry.sequence)

    def devices(self) -> Iterable[str]:
        """What the waiting tasks ask for."""
        return self._wanted.keys()

    def push(self, entry: Entry) -> None:
        """Add a task."""
        self._entries[entry.id] = entry
        lines = self._lines.setdefault(entry.client, {})
        line = entry.device if entry.device in lines or len(lines) < MAX_LINES else ""
        heapq.heappush(lines.setdefault(line, []), (entry.rank, entry.sequence, entry.id))
        self._waiting[entry.client] += 1
        self._wanted[entry.device] += 1
        self._served.setdefault(entry.client, 0)
        self._standing.add(entry.client, entry.rank, entry.sequence)
        self.num_bytes += entry.num_bytes

    def remove(self, task_id: str) -> bool:
        """Take a task out; whether it was there."""
        entry = self._entries.get(task_id)
        if entry is None:
            return False
        self._forget(entry)
        # A line keeps a stale item until it comes up; rebuilt when most are stale, so that they cannot pile up.
        lines = self._lines.get(entry.client, {})
        if sum(map(len, lines.values())) > 2 * self._waiting[entry.client] + 16:
            for line, heap in list(lines.items()):
                live = [item for item in heap if self._is_live(item)]
                heapq.heapify(live)
                if live:
                    lines[line] = live
                else:
                    del lines[line]
        return True

    def pop(
        self,
        running: Counter[str],
        rank: Callable[[str], int] = lambda _: 0,
        is_full: Callable[[str], bool] = lambda _: False,
    ) -> Entry | None:
        """Take the next task; None if none waits, or none that can be served now.

        Args:
            running: number of tasks of each client that run now.
            rank: how gladly the executor would take one on a problem, by its hash: see `pool.executor.Choosy`.
            is_full: whether a task that asks for this device would only wait at the executor.
        """
        # Asked with each task that comes, mostly when every device is busy: then no client is looked at.
        if all(map(is_full, self._wanted)):
            return None
        is_full = cache(is_full)
        order = sorted(self._waiting, key=lambda name: (running[name], self._served[name]))
        for client in order:
            heap = self._first_line(client, is_full)
            if heap:
                self._turn += 1
                self._served[client] = self._turn
                entry = self._choose(heap, rank)
                self._forget(entry)
                return entry
        return None

    def _first_line(self, client: str, is_full: Callable[[str], bool]) -> list[Item]:
        """The line whose first task is the client's first of those that can be served now; empty if there is none."""
        lines = self._lines[client]
        first: list[Item] = []
        for line, heap in list(lines.items()):
            while heap and not self._is_live(heap[0]):
                heapq.heappop(heap)
            if not heap:
                del lines[line]
            elif (not first or heap[0] < first[0]) and not is_full(line or self._entries[heap[0][2]].device):
                first = heap
        return first

    def _choose(self, heap: list[Item], rank: Callable[[str], int]) -> Entry:
        """Take the best of a line's first tasks of one priority out of it; of equally good ones the first."""
        passed: list[Item] = []
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
        assert best is not None, "a line that was chosen has a task"
        for item in passed:
            if item[2] != best[1].id:
                heapq.heappush(heap, item)
        if passed[0][2] != best[1].id:
            self._overtaken[passed[0][2]] += 1
        return best[1]

    def _is_live(self, item: Item) -> bool:
        entry = self._entries.get(item[2])
        return entry is not None and entry.sequence == item[1]

    def _forget(self, entry: Entry) -> None:
        del self._entries[entry.id]
        self._standing.remove(entry.client, entry.rank, entry.sequence)
        self._overtaken.pop(entry.id, None)
        self.num_bytes -= entry.num_bytes
        self._wanted[entry.device] -= 1
        if not self._wanted[entry.device]:
            del self._wanted[entry.device]
        self._waiting[entry.client] -= 1
        if not self._waiting[entry.client]:
            # A client without tasks leaves nothing behind; it starts as never served when it returns.
            del self._waiting[entry.client]
            del self._lines[entry.client]
            del self._served[entry.client]
