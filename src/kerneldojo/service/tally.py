"""How many tasks ended lately."""

from __future__ import annotations

from collections import deque


class Tally:
    """In constant memory: a ring of seconds and a ring of minutes."""

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
