"""Bursts: what a call takes at most, from a few windows in which nothing is sampled and nobody is compared with.

Whatever else a device and its host have to do makes a window longer and none shorter. So a single one can say that a
call takes little, whoever is at work beside it; that is enough for a question whose answer is nearly always "little".
Where it is not, it is asked again with the device idle, and the quickest windows of two lengths tell what a call takes.
A figure that counts for or against anybody otherwise comes from `trials`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from kerneldojo.devices.cuda import page as pages
from kerneldojo.devices.cuda.page import Page

NUM_TRIES = 8
"""Windows while others may use the device, until one is short enough: each costs a millisecond or two and keeps nobody
waiting, where a window with the device idle costs all others 40."""
NUM_BURSTS = 5
"""Windows of each length with the device idle."""
MOST_SECONDS = 0.5
"""Until it is not tried again."""
MOST_CALLS = 16
"""In a window, unless calls are known to be short."""
SHORT_US = 20_000
"""Such a window has as many as take so long: beside others, what it costs around its calls is several of them, for
threads take turns with one interpreter."""

Wait = Callable[[], None]
"""Waits until what a page was told last is over; raises if that will never be."""


def num_calls(longest: int, per_call_us: float) -> int:
    """Calls of a window beside others, of at most `longest`, if none takes longer than so much."""
    return min(longest, max(MOST_CALLS, int(SHORT_US / max(1.0, per_call_us))))


def is_little(page: Page, longest: int, wait: Wait, is_enough: Callable[[float], bool], flags: int = 0) -> bool:
    """Whether a call takes as little as `is_enough` says of so many microseconds; False if a call failed, too.

    What a window costs around its calls counts as theirs.

    Args:
        page: of a process whose call loop is serving; its series is not ended.
        longest: calls that a window may have, at least one.
        wait: see there.
        is_enough: whether a call that takes so long at most takes little.
        flags: of the windows.
    """
    started = time.monotonic()
    for _ in range(NUM_TRIES):
        if (taken_us := _window_us(page, longest, wait, flags)) is None:
            return False
        if is_enough(taken_us / longest):
            return True
        _tell(page, wait, pages.RELEASE)
        if time.monotonic() - started > MOST_SECONDS:
            break
    return False


def quickest_us(
    page: Page, longest: int, wait: Wait, before: Callable[[], object], flags: int = 0
) -> tuple[float, float] | None:
    """What a call takes with the device idle, and how far that may be wrong, in microseconds; None if a call failed.

    Args:
        page, longest, wait, flags: as for `is_little`. If a window may have one call only, what it costs around that
            is in the figure.
        before: called before each window.
    """
    many = min(longest, MOST_CALLS)
    taken: dict[int, list[float]] = {1: [], many: []}
    for _ in range(NUM_BURSTS):
        for length in sorted(taken):
            before()
            _tell(page, wait, pages.PRIME)
            if (taken_us := _window_us(page, length, wait, flags)) is None:
                return None
            taken[length].append(taken_us)
            _tell(page, wait, pages.RELEASE)
    one, all_of_them = sorted(taken[1]), sorted(taken[many])
    if many == 1:
        return one[0], one[1] - one[0]
    error_us = (one[1] - one[0] + all_of_them[1] - all_of_them[0]) / (many - 1)
    return max(0.0, (all_of_them[0] - one[0]) / (many - 1)), error_us


def _window_us(page: Page, length: int, wait: Wait, flags: int) -> float | None:
    page.put_last(0, page.last(0))
    start = time.perf_counter_ns()
    page.go(length, flags)
    wait()
    return (time.perf_counter_ns() - start) / 1000 if page.state == pages.OK else None


def _tell(page: Page, wait: Wait, flags: int) -> None:
    page.go(0, flags)
    wait()
