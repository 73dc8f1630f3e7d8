"""Reference runners that live on between verdicts on a GPU, each in a context of its own.

A runner holds its problem's code and nothing of any candidate's: it never sees a source. It has device memory only
while it serves: what it lets go of is freed rather than given to another, since nobody can see that it has unmapped it,
and what it shared with a contestant (the region of timed inputs) when that contestant is dead. While it waits it is a
context and no more, and frozen, so that it disturbs nobody's window, whatever its problem's code may do. One that did
anything unusual is ended, and so is the one that waited longest when there are too many: how many there may be follows
from the device's memory (`judging.division`).
"""

from __future__ import annotations

import logging
import threading
import time

from kerneldojo.contestant.wire import WireError
from kerneldojo.judging.ends import HostedEnd, Infrastructure
from kerneldojo.judging.processes import Session
from kerneldojo.judging.reference import Reference
from kerneldojo.judging.ruling import Ruling
from kerneldojo.judging.stock import close

MAX_USES = 50
"""Verdicts of one runner. Where its memory happens to lie may favour or harm its time by a little: not for ever."""

LONGEST_IDLE_SECONDS = 1800.0
"""How long one may wait. Its own patience (`contestant.serving.IDLE_SECONDS`) runs on while it is frozen."""

log = logging.getLogger(__name__)


class Runners:
    """The idle runners of one device, the one that waited longest first. Thread-safe.

    Whoever calls waits until what is to be ended has ended, so that a context's end falls into no window.

    Args:
        most: how many may wait.
        most_uses: verdicts of each.
    """

    def __init__(self, most: int, most_uses: int = MAX_USES) -> None:
        self._most, self._most_uses = most, most_uses
        self._lock = threading.Lock()
        self._idle: list[tuple[str, Reference, float]] = []

    def take(self, key: str) -> Reference | None:
        """One that waits for the problem which `key` names, if there is one that is well."""
        while True:
            with self._lock:
                place = next((i for i, (name, *_) in enumerate(self._idle) if name == key), None)
                if place is None:
                    return None
                _, reference, since = self._idle.pop(place)
            try:
                reference.hosted.session.thaw()
                if reference.hosted.session.is_idle() and time.monotonic() - since < LONGEST_IDLE_SECONDS:
                    reference.hosted.session.rest(False)
                    return reference
            except (WireError, Infrastructure) as fault:
                log.warning("a reference runner could not be used again: %s", fault)
            close(reference.hosted.session)

    def settle(self, reference: Reference) -> bool:
        """Have one leave nothing of the last verdict in it; whether it may then be kept."""
        if reference.is_doubtful or reference.num_uses >= self._most_uses or not self._most:
            return False
        try:
            if not reference.hosted.session.is_idle():
                return False
            has_left = reference.settle()
        except (Ruling, HostedEnd, WireError, Infrastructure):
            return False
        return has_left and not reference.is_doubtful

    def give_back(self, key: str, reference: Reference, *, is_settled: bool) -> None:
        """Keep one for the next verdict, or end it.

        Args:
            key: as for `take`.
            reference: whatever was shared with it must be dead.
            is_settled: what `settle` said; False if it is not to be used again in any case.
        """
        if not is_settled or not _rests(reference.hosted.session):
            close(reference.hosted.session)
            return
        try:
            reference.hosted.session.part_with_arena()
        except BaseException:  # The device is lost: nobody else knows of this runner.
            close(reference.hosted.session)
            raise
        with self._lock:
            self._idle.append((key, reference, time.monotonic()))
            surplus = [self._idle.pop(0)[1] for _ in range(len(self._idle) - self._most)]
        for old in surplus:
            close(old.hosted.session)

    def __len__(self) -> int:
        """How many wait."""
        with self._lock:
            return len(self._idle)

    def evict(self) -> int:
        """End all that wait, for their memory; returns how many."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, reference, _ in idle:
            reference.hosted.session.order_end()
        for _, reference, _ in idle:
            close(reference.hosted.session)
        return len(idle)

    def close(self) -> None:
        """End all."""
        self.evict()


def _rests(session: Session) -> bool:
    """Bring a runner's process to rest: frozen."""
    try:
        session.rest(True)
        session.freeze()
    except (WireError, Infrastructure):
        return False
    return session.ended is None
