"""A judge in this very process, for what looks into it: driver calls, processor time."""

from __future__ import annotations

import contextlib
import os
import selectors
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from cases import Case

from kerneldojo.judging import Judge
from kerneldojo.judging.guest import Guest
from kerneldojo.judging.processes import Session
from kerneldojo.pool.worker import SWITCH_SECONDS
from kerneldojo.schema.pace import Pace

WARM_NUMBERS = 90_000
"""Numbers of candidates that are judged before the clock starts; never those of counted ones."""


@contextlib.contextmanager
def warmed(chosen: list[Case], device: str, at_once: int, pace: Pace) -> Generator[Callable[[int], Counter[str]]]:
    """What judges so many Triton candidates, the problems in turn, and counts the statuses; warmed up."""
    sys.setswitchinterval(SWITCH_SECONDS)
    judge = Judge(num_verdicts=at_once, reuse_reference_times=True, pace=pace)

    def status(number: int) -> str:
        case = chosen[number % len(chosen)]
        return judge.judge(case.problem, case.candidate(number, "triton"), device=device).status.value

    with ThreadPoolExecutor(at_once) as threads:
        list(threads.map(status, range(WARM_NUMBERS, WARM_NUMBERS + len(chosen) + at_once)))
        yield lambda num: Counter(threads.map(status, range(num)))
    judge.close()


def watch_posts(note: Callable[[Session, str], None]) -> None:
    """Call `note` with a session and the name of the command that it is about to be sent."""
    post = Session.post

    def noted(self: Session, operation: str, *given: Any, **fields: Any) -> None:
        note(self, f"{operation}: {fields['what']}" if operation == "platform" else operation)
        post(self, operation, *given, **fields)

    Session.post = noted  # type: ignore[method-assign]


def watch_windows(begin: Callable[[], Any], end: Callable[[Any], None]) -> None:
    """Call `begin` when a window has opened, and `end` with what it returned before the window closes."""
    window = Guest.window

    @contextlib.contextmanager
    def watched(self: Guest) -> Generator[None]:
        with window(self):
            begun = begin()
            try:
                yield
            finally:
                end(begun)

    Guest.window = watched  # type: ignore[method-assign]


def watch_ends(note: Callable[[int, int], None]) -> None:
    """Call `note`, in a thread of its own, with when a process was ordered to end and when it had (monotonic ns).

    A process has ended when its files are closed, and with them what the driver kept for it.
    """
    ordered, order = selectors.EpollSelector(), Session.order_end

    def noted(self: Session) -> None:
        if self.ended is None and not self._is_dying and self._pid:
            with contextlib.suppress(ProcessLookupError):
                ordered.register(os.pidfd_open(self._pid), selectors.EVENT_READ, time.monotonic_ns())
        order(self)

    def listen() -> None:
        while True:
            for key, _ in ordered.select(0.05):
                note(key.data, time.monotonic_ns())
                ordered.unregister(key.fileobj)
                os.close(key.fd)

    Session.order_end = noted  # type: ignore[method-assign]
    threading.Thread(target=listen, name="ends", daemon=True).start()
