"""Whether something that costs others time was worth it lately, and so how often, or for how long, it is tried again.

On a host whose cores are slow now and then it helps to wait for quick ones, or to time once more. On one whose cores
are always slow neither does, and all others stand still meanwhile.
"""

from __future__ import annotations

import random
import threading
from collections import deque

NUM_REMEMBERED = 8


class Tries:
    """The last tries of one kind. Thread-safe."""

    def __init__(self) -> None:
        self._outcomes = deque[bool](maxlen=NUM_REMEMBERED)
        self._lock = threading.Lock()
        self._chance = random.SystemRandom()

    @property
    def share(self) -> float:
        """How much to try: 1 where all were worth it, never 0, so that a host which has changed is noticed."""
        with self._lock:
            return (1 + sum(self._outcomes)) / (1 + len(self._outcomes))

    def draw(self) -> bool:
        """Whether to try this time, by chance: nobody may know for whom."""
        return self._chance.random() < self.share

    def remember(self, *, was_worth_it: bool) -> None:
        """How one ended."""
        with self._lock:
            self._outcomes.append(was_worth_it)
