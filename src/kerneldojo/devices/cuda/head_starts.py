"""Head starts: what a side may have computed before its calls are timed, told by how long it took until they began.

Between the last change of the inputs by the judge and the first call of a window a side's context is brought in, a call
that nobody times is made, and what came with the signal is written (`stamps`). All of it takes a host some time, more
on a slow one, and whoever computes ahead meanwhile takes longer than the reference runner does. What is beyond what
hosts need is charged, so that nobody gains by it and nobody is convicted for a slow host; who needs much more is
convicted. So is what the flushing of the caches takes longer before a side's windows than before the runner's, beside
which nobody runs: who has the device work on new content meanwhile shares it with the judge. Pure functions of windows;
times are in microseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from kerneldojo.devices.cuda.fits import Window
from kerneldojo.devices.cuda.quantiles import median, quantile

EARLY_US = 60.0
"""How much longer than the reference runner a side may take until its calls begin: to bring its context in and to write
what came with the signal. What is beyond this is charged, window by window. Of 370 honest series on a host whose cores
were twice as slow as at their quickest, 8 took longer than that at the median; half took no longer than the runner."""
MOST_EARLY_US = 250.0
"""How much longer it may take at all, at the median, or more: see `most_early_us`. Seven of some 540 honest series took
102 to 158 us on such hosts, and on one slower still four of 197 took 188 to 281."""
SOME = 0.25
"""Of the reference runner's windows of one call, which are few where it is known, so many tell what one takes: one that
was slow by chance (331 us of 65 once) let its candidate seem to have worked for 212 us before the clock."""
COLD_CALLS = 3.0
"""How many times what a call of its own takes, once its code is in the core's caches, the one before the clock may take
beyond that. Where cores are slow the first call after others have run there took up to 1.7 times as much, beyond it."""

USUAL_FLUSH, USUAL_FLUSH_US = 1.5, 50.0
"""Flushing the caches may take so many times as long as before the reference runner's windows, and so much longer: it
is read by the host, and no call of anybody's is in it."""


def early_us(measured: Sequence[Window], trusted: Sequence[Window]) -> float:
    """How much longer a side took than the reference runner until its calls began, beyond a call of its own.

    At the median. The inputs are there before, but for a part of the first call's, which comes with the signal. Whoever
    computes ahead in that time takes longer than the others for it. A call of its own is taken off only from windows
    that had one before the clock: long calls are not warmed up. 0 where there is nothing to compare.
    """
    beyond = _beyond(_begun_when_written(measured, trusted), trusted)
    return median(beyond) if len(beyond) else 0.0


def most_early_us(measured: Sequence[Window], trusted: Sequence[Window]) -> float:
    """What nobody exceeds who only brings its context in and makes a call, however slow the host is.

    At least `MOST_EARLY_US`; as long as the reference runner took itself, which is slow where cores are; and some calls
    of its own, where one is made before the clock. It need not be tight: what is beyond `EARLY_US` is paid for.
    """
    before = _before(trusted, SOME)
    theirs_us = median(before) if len(before) else 0.0
    is_warmed = any(window.is_warmed for window in measured)
    return max(MOST_EARLY_US, theirs_us, COLD_CALLS * (_one_call_us(measured) or 0.0) if is_warmed else 0.0)


def paid_us(measured: Sequence[Window], trusted: Sequence[Window]) -> float:
    """What a side's call is charged for its time before the clock, in the longest windows, at the median."""
    lengths = [window.length for window in measured]
    beyond = early_us(measured, trusted) - EARLY_US
    return max(0.0, beyond) / max(1, max(lengths) - min(lengths)) if lengths else 0.0


def with_time_before(measured: Sequence[Window], trusted: Sequence[Window]) -> list[Window]:
    """Windows that have paid for what was done before their calls: what that took beyond `EARLY_US` is in their times.

    Each for itself, so that nobody gains by windows that are few. The shortest do not pay: it is what long ones are
    spared that a slope lacks. Time that a slow host needs is paid for, too, so that nobody gains by it.
    """
    measured = _begun_when_written(measured, trusted)
    beyond = _beyond(measured, trusted)
    shortest = min((window.length for window in measured), default=0)
    paid: list[Window] = []
    for number, window in enumerate(measured):
        more = max(0.0, beyond[number] - EARLY_US) if len(beyond) and window.length > shortest else 0.0
        done_us = None if window.done_us is None else window.done_us + more
        paid.append(replace(window, wall_us=window.wall_us + more, done_us=done_us) if more else window)
    return paid


def _begun_when_written(measured: Sequence[Window], trusted: Sequence[Window]) -> list[Window]:
    """Windows whose calls do not begin before what came with the signal can have been written.

    Who says so too soon in short windows makes these longer, and a slope smaller. So soon as the reference runner in
    one window of ten is believed.
    """
    if not trusted:
        return list(measured)
    usual_us = quantile(np.sort([window.taken_us for window in trusted]), 0.1)
    found: list[Window] = []
    for window in measured:
        less = max(0.0, usual_us - window.taken_us)
        done_us = None if window.done_us is None else window.done_us - less
        changes = {"wall_us": window.wall_us - less, "done_us": done_us, "taken_us": window.taken_us + less}
        found.append(replace(window, **changes) if less else window)
    return found


def _beyond(measured: Sequence[Window], trusted: Sequence[Window]) -> npt.NDArray[np.float64]:
    """How much longer each window took until its calls began than the reference runner's at the median; empty where
    there is nothing to compare."""
    mine, theirs = _before(measured), _before(trusted, SOME)
    return mine - median(theirs) + _shared(measured, trusted) if len(mine) and len(theirs) else np.zeros(0)


def _shared(measured: Sequence[Window], trusted: Sequence[Window]) -> npt.NDArray[np.float64]:
    """How much longer the caches' flushing took before each window than it may."""
    usual_us = USUAL_FLUSH * median(np.array([window.prepare_us for window in trusted])) + USUAL_FLUSH_US
    return np.maximum(0.0, np.array([window.prepare_us for window in measured]) - usual_us)


def _before(windows: Sequence[Window], share: float = 0.5) -> npt.NDArray[np.float64]:
    """What each window took before its calls, without the call that warmed it up; empty where that is not known.

    That call took what a window of one call takes, in this share of them at most.
    """
    if any(window.prime_us is None for window in windows):
        return np.zeros(0)
    before = np.array([(window.prime_us or 0.0) + window.taken_us for window in windows])
    if not any(window.is_warmed for window in windows):
        return before
    one_us = _one_call_us(windows, share)
    return before - one_us if one_us is not None else np.zeros(0)


def _one_call_us(windows: Sequence[Window], share: float = 0.5) -> float | None:
    """What one call takes, the one before it made, in this share of such windows at most; None if there was none."""
    ones = [window.wall_us if window.done_us is None else window.done_us for window in windows if window.length == 1]
    return sorted(ones)[int(share * (len(ones) - 1))] if ones else None
