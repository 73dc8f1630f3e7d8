"""Time that is lent: a script is told how many seconds it has, and stops by itself before they are over."""

from __future__ import annotations

import os
import time
from pathlib import Path

LONGEST_START = 120.0
"""Seconds that a start may take; where the system tells of more, it is not believed."""


class Clock:
    """Counts down from `seconds` (None: no end), of which the last `reserve` are for stopping and packing.

    It began when the process did: importing takes seconds, too.
    """

    def __init__(self, seconds: float | None, reserve: float = 0.0) -> None:
        """Start counting."""
        self._began = time.monotonic() - process_age()
        self._seconds, self._reserve = seconds, reserve

    @property
    def spent(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    @property
    def left(self) -> float:
        """Seconds of work left."""
        return float("inf") if self._seconds is None else self._seconds - self._reserve - self.spent

    @property
    def is_over(self) -> bool:
        """Whether it is time to stop."""
        return self.left <= 0


def process_age() -> float:
    """Seconds since this process was started; 0 where the system does not tell, or it has been running for long."""
    try:
        fields = Path("/proc/self/stat").read_text("utf-8").rpartition(")")[2].split()
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0
    return age if 0 <= age < LONGEST_START else 0.0
