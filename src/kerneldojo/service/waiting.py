"""Who waits for what: requests for certain tasks, and onlookers for everything that happens.

Both hold a bounded amount of memory each: a request the ids that it asked for, an onlooker a short buffer that drops
what it is too slow to read, and says so.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Iterable
from typing import Any

from kerneldojo.service.viewer import Viewer

ONLOOKER_BUFFER = 512
"""Events that an onlooker may be behind."""


class Waiters:
    """Requests that wait for tasks to end. Lives on the event loop's thread."""

    def __init__(self) -> None:
        self._mailboxes: defaultdict[str, set[asyncio.Queue[str | None]]] = defaultdict(set)
        self._open: set[asyncio.Queue[str | None]] = set()

    def __len__(self) -> int:
        return len(self._open)

    def join(self, task_ids: Iterable[str]) -> asyncio.Queue[str | None]:
        """A mailbox that gets each id when its task ends, and None when the service stops."""
        mailbox: asyncio.Queue[str | None] = asyncio.Queue()
        for task_id in task_ids:
            self._mailboxes[task_id].add(mailbox)
        self._open.add(mailbox)
        return mailbox

    def leave(self, mailbox: asyncio.Queue[str | None], task_ids: Iterable[str]) -> None:
        """Forget a mailbox."""
        self._open.discard(mailbox)
        for task_id in task_ids:
            mailboxes = self._mailboxes.get(task_id)
            if mailboxes is not None:
                mailboxes.discard(mailbox)
                if not mailboxes:
                    del self._mailboxes[task_id]

    def tell(self, task_id: str) -> None:
        """A task has ended."""
        for mailbox in self._mailboxes.get(task_id, ()):
            mailbox.put_nowait(task_id)

    def dismiss(self) -> None:
        """The service stops."""
        for mailbox in self._open:
            mailbox.put_nowait(None)


class Onlooker:
    """One reader of the stream of events, and who that is."""

    def __init__(self, viewer: Viewer) -> None:
        self.viewer = viewer
        self._events: deque[tuple[str, Any]] = deque()
        self._missed = 0
        self._wake = asyncio.Event()
        self.is_dismissed = False

    def offer(self, kind: str, data: Any) -> None:
        """Give it an event; the oldest is dropped where it reads too slowly."""
        if len(self._events) >= ONLOOKER_BUFFER:
            self._events.popleft()
            self._missed += 1
        self._events.append((kind, data))
        self._wake.set()

    def dismiss(self) -> None:
        """The service stops."""
        self.is_dismissed = True
        self._wake.set()

    async def read(self, timeout: float) -> list[tuple[str, Any]]:
        """What has happened since; empty after `timeout` seconds of nothing. `missed` counts what was dropped."""
        try:
            await asyncio.wait_for(self._wake.wait(), timeout)
        except TimeoutError:
            return []
        self._wake.clear()
        events = list(self._events)
        self._events.clear()
        if self._missed:
            events.insert(0, ("missed", {"events": self._missed}))
            self._missed = 0
        return events


class Tally:
    """How many tasks ended lately, in constant memory: a ring of seconds and a ring of minutes."""

    def __init__(self) -> None:
        self._seconds: deque[tuple[int, int]] = deque(maxlen=61)
        self._minutes: deque[tuple[int, int]] = deque(maxlen=60)
        self.total = 0

    def count(self, now: float) -> None:
        """One task ended."""
        self.total += 1
        for ring, unit in ((self._seconds, 1), (self._minutes, 60)):
            bucket = int(now // unit)
            if ring and ring[-1][0] == bucket:
                ring[-1] = (bucket, ring[-1][1] + 1)
            else:
                ring.append((bucket, 1))

    def per_minute(self, now: float) -> float:
        """Tasks that ended in the last 60 seconds."""
        return float(sum(number for second, number in self._seconds if now - 61 < second <= now))

    def history(self, now: float) -> tuple[int, ...]:
        """Tasks that ended in each of the last 60 minutes, the oldest first."""
        found = dict(self._minutes)
        last = int(now // 60)
        return tuple(found.get(minute, 0) for minute in range(last - 59, last + 1))
