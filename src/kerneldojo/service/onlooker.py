"""Who reads everything that happens: a page, or a program that follows the stream of events.

Each holds a short buffer, which drops what it is too slow to read, and says so.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from kerneldojo.service.records import Missed
from kerneldojo.service.viewer import Viewer

ONLOOKER_BUFFER = 512
"""Events that an onlooker may be behind."""


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
            events.insert(0, ("missed", Missed(events=self._missed)))
            self._missed = 0
        return events
