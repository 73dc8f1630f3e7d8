"""A measurement needs an idle device, and whoever keeps it from being idle answers for that.

A canary sings before and after what is measured. If it is slow, somebody else used the device, the window is void, and
it is tried again. That alone would be a way out for a candidate that expects a bad verdict: a thread of its own that
keeps the device busy makes every window void, and a fault of ours is never scored. So once the windows are used up, it
is found out whose doing it was:

- never idle, but idle as soon as the candidate's processes are ended: the candidate's;
- idle before and busy after in every window, but idle both times when nothing is run between: the candidate's, too;
- else somebody else's: a fault of ours, to be tried again. Beside others that is presumed where the device was not
  idle before a window, for another candidate may have launched much before it was frozen. Such a one is waited for
  first (`judging.neighbours`), and what it made void does not count.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence

from kerneldojo.judging.canary import Canary
from kerneldojo.judging.ends import Infrastructure
from kerneldojo.judging.guest import Guest
from kerneldojo.judging.neighbours import Neighbours
from kerneldojo.judging.processes import Session
from kerneldojo.judging.ruling import Ruling
from kerneldojo.judging.verdict import Findings
from kerneldojo.schema import Status

NUM_WINDOWS = 3
"""How often it is tried, but for windows that were void before they began while somebody was waited for."""
SETTLE_SECONDS = 1.0
"""How long a window waits for what others had launched before they were frozen, and for a clock that fell to rise."""
MOST_CONTROL_SECONDS = 0.5
"""At most so long is nothing run for comparison; else as long as the last window took."""


def measure_idle(
    canary: Canary, guest: Guest, findings: Findings, action: Callable[[], None], of_candidate: Sequence[Session]
) -> None:
    """Run `action` in a window with the device idle before and after.

    Args:
        canary: of the device.
        guest, findings: the verdict under way; it `is_measuring`.
        action: what is measured; run again if it was in vain.
        of_candidate: processes with something of the candidate's in them. Without any the candidate is dead, and
            nothing is its doing any more.

    Raises:
        Infrastructure: somebody else kept the device busy.
        Ruling: the candidate did.
    """
    neighbours = Neighbours(canary, guest, findings)
    num_windows, num_left_busy, seconds = 0, 0, 0.0
    while num_windows < NUM_WINDOWS:
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
        num_windows += is_clean or not neighbours.leave_it_idle()
    if of_candidate:
        _find_out(canary, guest, findings, of_candidate, seconds, is_always=num_left_busy == NUM_WINDOWS)
    raise Infrastructure(f"the device was not idle in {NUM_WINDOWS} windows: {canary}")


def _find_out(
    canary: Canary,
    guest: Guest,
    findings: Findings,
    of_candidate: Sequence[Session],
    seconds: float,
    *,
    is_always: bool,
) -> None:
    """Find out whose doing it was.

    Args:
        canary, guest, findings, of_candidate: as for `measure_idle`.
        seconds: how long the last window took.
        is_always: whether the device was idle before every window and busy after it.

    Raises:
        Ruling: it was the candidate's.
    """
    with findings.stage("gate"), guest.window():
        if canary.becomes_clean(SETTLE_SECONDS):
            if is_always and all(_stays_idle(canary, guest, seconds) for _ in range(NUM_WINDOWS)):
                raise Ruling(Status.RUNTIME_ERROR, "it left work on the device at the end of every window")
        elif (is_always or not guest.had_company) and _is_idle_without(canary, of_candidate):
            raise Ruling(Status.RUNTIME_ERROR, "the device was never idle until its processes were ended")


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
