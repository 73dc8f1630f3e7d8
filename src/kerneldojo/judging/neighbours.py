"""A device that another verdict's candidate keeps busy is waited for: one endless kernel is one verdict's trouble.

What is frozen launches no more, but what it had launched runs on, and a kernel that never ends runs until an inquest
ends its process (`judging.inquest`). Meanwhile no window of anybody's finds the device idle. That is no fault of
theirs, and none that trying at once again would mend: so all go on with what needs no window, time passes for the one
who is at work, and now and then somebody looks whether the device is idle again.

Only those are waited for who were at work when the device was first found in use. Who wants to measure is not at work:
its processes have answered all that they were asked. Else a candidate that secretly keeps the device busy, and those
who are waiting for that to end, would wait for each other.
"""

from __future__ import annotations

import time

from kerneldojo.judging.canary import Canary
from kerneldojo.judging.guest import Guest
from kerneldojo.judging.verdict import Findings

MOST_SECONDS = 150.0
"""At most so long is the device waited for in one measurement: more than a candidate has by default (120 s), and half
of what a worker may take beyond that before it is said to hang."""
PAUSE_SECONDS = 1.0
"""Between two looks."""
LOOK_SECONDS = 0.1
"""How long a look lasts, while everybody stands still: little beside the pause, or their time would not pass."""


class Neighbours:
    """One verdict's, in one measurement.

    Args:
        canary: of the device; its `attendant` is held by whoever looks for all.
        guest, findings: the verdict, which is about to measure.
    """

    def __init__(self, canary: Canary, guest: Guest, findings: Findings) -> None:
        self._canary, self._guest, self._findings = canary, guest, findings
        self._at_work: frozenset[Guest] | None = None
        self._until = 0.0
        self._looks = False

    def leave_it_idle(self) -> bool:
        """Wait, outside of a window, until they do.

        Returns:
            Whether the device was idle again; if not, nobody is left who could be waited for, or it took too long.
        """
        if self._at_work is None:
            self._at_work = self._guest.neighbours_at_work()
            self._until = time.monotonic() + MOST_SECONDS
        if not self._at_work:
            return False
        try:
            with self._findings.stage("gate"):
                self._guest.wait_for_others(self._attends, self._until - time.monotonic())
            return self._looks and self._is_idle_again()
        finally:
            if self._looks:
                self._looks = False
                self._canary.attendant.release()

    def _attends(self, seconds: float) -> bool:
        self._looks = self._canary.attendant.acquire(timeout=seconds)
        return self._looks

    def _is_idle_again(self) -> bool:
        assert self._at_work is not None
        while time.monotonic() < self._until:
            with self._findings.stage("gate"), self._guest.window():
                if self._canary.becomes_clean(LOOK_SECONDS):
                    return True
            self._at_work &= self._guest.neighbours_at_work()
            if not self._at_work:
                return False
            with self._findings.stage("gate"):
                self._guest.wait_for_others(_passes, PAUSE_SECONDS)
        return False


def _passes(seconds: float) -> bool:
    """Nothing is waited for but time."""
    time.sleep(seconds)
    return False
