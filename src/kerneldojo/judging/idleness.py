"""A measurement needs an idle device, and whoever keeps it from being idle answers for that.

A canary sings before and after what is measured. If it is slow, somebody else used the device, the window is void, and
it is tried again. That alone would be a way out for a candidate that expects a bad verdict: a thread of its own that
keeps the device busy makes every window void, and a fault of ours is never scored. So once the windows are used up, it
is found out whose doing it was:

- never idle, but idle as soon as the candidate's processes are ended: the candidate's;
- idle before and busy after in every window, but idle both times when nothing is run between: the candidate's, too;
- else somebody else's: a fault of ours, to be tried again. Beside others that is presumed where the device was not
  idle before a window, for another candidate may have launched much before it was frozen.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Sequence

from kerneldojo.judging.ends import Infrastructure
from kerneldojo.judging.gate import Guest
from kerneldojo.judging.processes import Session
from kerneldojo.judging.ruling import Ruling
from kerneldojo.judging.verdict import Findings
from kerneldojo.schema import Status

NUM_CANARIES = 3
NUM_LEARNED = 15
SLOWEST_CANARY = 1.15
"""A canary is dirty if its best time is this many times the idle baseline: something else used the device."""
FALLEN_CLOCK = 0.95
"""A clock is fallen below this part of what it was at the baseline: the device had next to nothing to do."""
NUM_WINDOWS = 3
"""How often it is tried."""
SETTLE_SECONDS = 1.0
"""How long a window waits for what others had launched before they were frozen, and for a clock that fell to rise."""
LEFT_SECONDS = 0.02
"""How long a device may still look busy after a window. The canary is timed by the host, and a core that has just
become slow makes it 1.2 to 1.5 times as slow, in one window of ten on a busy host: nobody answers for that. Who keeps a
device busy on purpose has to do so for longer; and work that is left for less can move no figure but its owner's."""
MOST_CONTROL_SECONDS = 0.5
"""At most so long is nothing run for comparison; else as long as the last window took."""


class Canary:
    """Tells whether a device is idle by how long a fixed short kernel takes.

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


def measure_idle(
    canary: Canary, guest: Guest, findings: Findings, action: Callable[[], None], of_candidate: Sequence[Session]
) -> None:
    """Run `action` in a window with the device idle before and after.

    Args:
        canary: of the device.
        guest, findings: the verdict under way.
        action: what is measured; run again if it was in vain.
        of_candidate: processes with something of the candidate's in them.

    Raises:
        Infrastructure: somebody else kept the device busy.
        Ruling: the candidate did.
    """
    num_left_busy, seconds = 0, 0.0
    for _ in range(NUM_WINDOWS):
        is_left_idle = False
        with contextlib.ExitStack() as stack:
            with findings.stage("gate"):
                stack.enter_context(guest.window())
                is_clean = canary.becomes_clean(SETTLE_SECONDS)
            if is_clean:
                started = time.monotonic()
                action()
                seconds = time.monotonic() - started
                is_left_idle = canary.was_clean(SETTLE_SECONDS, guest.renew_cores)
                num_left_busy += not is_left_idle
            with findings.stage("gate"):  # The next window may be somebody else's, and at once.
                stack.close()
        if is_left_idle:
            return
    with findings.stage("gate"), guest.window():
        is_always = num_left_busy == NUM_WINDOWS
        if canary.becomes_clean(SETTLE_SECONDS):
            if is_always and all(_stays_idle(canary, guest, seconds) for _ in range(NUM_WINDOWS)):
                raise Ruling(Status.RUNTIME_ERROR, "it left work on the device at the end of every window")
        elif (is_always or not guest.had_company) and _is_idle_without(canary, of_candidate):
            raise Ruling(Status.RUNTIME_ERROR, "the device was never idle until its processes were ended")
    raise Infrastructure(f"the device was not idle in {NUM_WINDOWS} windows: {canary}")


def _stays_idle(canary: Canary, guest: Guest, seconds: float) -> bool:
    """Whether the canary is content before and after a window in which nothing was run."""
    if not canary.becomes_clean(SETTLE_SECONDS):
        return False
    time.sleep(min(seconds, MOST_CONTROL_SECONDS))
    return canary.was_clean(SETTLE_SECONDS, guest.renew_cores)


def _is_idle_without(canary: Canary, sessions: Sequence[Session]) -> bool:
    for session in sessions:
        session.order_end()
    for session in sessions:
        session.close()
    return canary.becomes_clean(SETTLE_SECONDS)
