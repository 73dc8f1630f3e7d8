"""Tells whether a device is idle by how long a fixed short kernel takes."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable

NUM_CANARIES = 3
NUM_LEARNED = 15
SLOWEST_CANARY = 1.15
"""A canary is dirty if its best time is this many times the idle baseline: something else used the device."""
FALLEN_CLOCK = 0.95
"""A clock is fallen below this part of what it was at the baseline: the device had next to nothing to do."""
LEFT_SECONDS = 0.02
"""How long a device may still look busy after a window. The canary is timed by the host, and a core that has just
become slow makes it 1.2 to 1.5 times as slow, in one window of ten on a busy host: nobody answers for that. Who keeps a
device busy on purpose has to do so for longer; and work that is left for less can move no figure but its owner's."""


class Canary:
    """A device's.

    Args:
        sing: runs the kernel and returns its duration, in any unit.
        clock: reads the device's clock, in any unit; without it no clock is taken for fallen.
    """

    def __init__(self, sing: Callable[[], float], clock: Callable[[], float] = lambda: 1.0) -> None:
        self._sing = sing
        self._clock = clock
        self.baseline: float | None = None
        self._usual_clock = 0.0
        self._last = 0.0
        self.attendant = threading.Lock()
        """Held by whoever looks for all others when a device that is in use becomes idle."""

    def __str__(self) -> str:
        clocks = f"clock {self._clock():.0f}, {self._usual_clock:.0f} when idle"
        return f"the canary took {self._last:.1f}, {self.baseline or 0.0:.1f} when idle ({clocks})"

    def learn(self, warm_seconds: float = 0.0) -> None:
        """Take the idle baseline; the device must be idle now.

        Args:
            warm_seconds: how long to sing first: the clocks of a device that had nothing to do are low.
        """
        until = time.monotonic() + warm_seconds
        while time.monotonic() < until:
            self._sing()
        self.baseline = statistics.median(self._sing() for _ in range(NUM_LEARNED))
        self._usual_clock = self._clock()

    def is_clean(self) -> bool:
        """Whether the device is idle. A baseline that was taken too slow is corrected downwards."""
        if self.baseline is None:
            self.learn()
        assert self.baseline is not None
        best = self._last = min(self._sing() for _ in range(NUM_CANARIES))
        is_clean = best <= SLOWEST_CANARY * self.baseline
        self.baseline = min(self.baseline, max(best, self.baseline / SLOWEST_CANARY))
        return is_clean

    def becomes_clean(self, seconds: float) -> bool:
        """Whether the device is idle now or within `seconds`.

        What is frozen launches no more, but what it had launched still runs to its end; and a clock that fell rises.
        """
        until = time.monotonic() + seconds
        while not self.is_clean():
            if time.monotonic() > until:
                return False
        return True

    def was_clean(self, seconds: float, renew_cores: Callable[[], None] = lambda: None) -> bool:
        """Whether the device was left to its owner in a window that ends now.

        A clock falls while a candidate is busy on the host (it writes a log, say), which makes the canary slow, too. A
        device that somebody else uses has a high clock, so much time to become clean is given to a fallen clock alone.

        Args:
            seconds: how long a fallen clock may take to rise.
            renew_cores: leaves cores that have become slow, which make a canary slow.
        """
        has_fallen = self._clock() < FALLEN_CLOCK * self._usual_clock  # Before anything is sung: that lets it rise.
        if self.is_clean():
            return True
        renew_cores()
        return self.becomes_clean(seconds if has_fallen else LEFT_SECONDS)
