"""Seats: each timed process, and the thread that reads the clock, has a core to itself while a window is open.

On a busy machine a launch waits for a core, and a clock is read late; both lengthen what is measured. So whatever else
of ours still runs in a window (the judge's other threads, fork servers, keepers) is kept to cores that are never
reserved. Those of other verdicts are frozen anyway. Afterwards every thread may run again where it might before. Of
the others what is timed gets the quickest (`judging.cores`), and between rounds it looks whether they still are.
"""

from __future__ import annotations

import contextlib
import os
import random
import statistics
import threading
import time
from collections.abc import Generator, Iterable, Sequence

from kerneldojo.contestant.sandbox import processes
from kerneldojo.judging.cores import Cores

MOST_LOOKED_AT = 4
"""Cores that are looked at, from one round to the next, for those that have become slow."""
NUM_BEFORE_CLOCK = 2
"""Groups that have a quicker core than the thread that reads the clock: reference and contestant."""


@contextlib.contextmanager
def reserved_for(cores: Cores, timed: Iterable[Sequence[int]]) -> Generator[Reserved]:
    """Move this thread and the processes of each group in `timed` to a core each, and all others of ours off them.

    Args:
        cores: of which some are chosen.
        timed: ids of processes; those of one group share a core.
    """
    cleared = Cleared(cores)
    try:
        yield cleared.seat(timed)
    finally:
        cleared.end()


class Cleared:
    """Cores cleared for what is timed, in one window or in several in a row: everything else is moved but once.

    One thread at a time uses it: the one that has the window.
    """

    def __init__(self, cores: Cores) -> None:
        self._cores = cores
        self._before: dict[int, set[int]] = {}
        self._timed = set[int]()
        self._is_begun = False

    def seat(self, timed: Iterable[Sequence[int]]) -> Reserved:
        """Move this thread and the processes of each group to a core each; the first time all others of ours off them.

        Args:
            timed: as for `reserved_for`.
        """
        groups = [list(group) for group in timed]
        mine = {pid for group in groups for pid in group}
        self._timed |= mine
        if not self._is_begun:
            self._is_begun = True
            me = threading.get_native_id()
            for thread in _threads(pid for pid in _ours() if pid not in mine):
                if thread != me:
                    self._cores.move(thread, self._cores.rest, self._before)
        reserved = Reserved(self._cores, groups, self._before)
        reserved.settle()
        return reserved

    def leave(self, timed: Iterable[Sequence[int]]) -> None:
        """Move this thread and those processes off again: the window is another's now."""
        for thread in [threading.get_native_id(), *_threads(pid for group in timed for pid in group)]:
            self._cores.move(thread, self._cores.rest, self._before)

    def end(self) -> None:
        """Let every thread run again where it might before."""
        if not self._is_begun:
            return
        everywhere = self._cores.eligible | self._cores.rest
        for thread in _threads({*_ours(), *self._timed}):  # Also those that were born meanwhile.
            self._cores.move(thread, self._before.get(thread, everywhere), self._before)


class Reserved:
    """The cores of one window: one for each group of timed processes, and one for the thread that opened it."""

    def __init__(self, cores: Cores, groups: list[list[int]], before: dict[int, set[int]]) -> None:
        self._cores, self._before = cores, before
        self._me = threading.get_native_id()
        self._seats: list[list[int] | None] = [*groups]
        """Processes of each group, and None for this thread; the first have the quicker cores."""
        self._seats.insert(NUM_BEFORE_CLOCK, None)
        self.places: list[int] = []
        """The core of each seat."""
        self._slowest: list[float] = []
        """What the loop took at each look, on the slowest of the cores of reference, contestant and clock."""

    @property
    def mine(self) -> int:
        """The core of the thread that opened the window."""
        return self.places[self._seats.index(None)]

    def settle(self) -> None:
        """Look at all eligible cores, and take the quickest; wait a little where too few are quick now."""
        until = time.monotonic() + self._cores.patience_seconds
        has_waited = False
        while True:
            times = {core: self._time(core) for core in sorted(self._cores.eligible)}
            self._cores.quickest.append(min(times.values()))
            num_quick = sum(map(self._cores.is_quick, times.values()))
            is_enough = num_quick >= min(len(self._seats), len(times))
            if is_enough or time.monotonic() > until:
                break
            has_waited = True
        if has_waited or not is_enough:
            self._cores.waits.remember(was_worth_it=is_enough)
        chosen = self._cores.choose(times, len(self._seats))
        self.places = [chosen[number % len(chosen)] for number in range(len(self._seats))]
        for number in range(len(self._seats)):
            self._sit(number)
        self._remember([times[core] for core in self.places])

    def renew(self) -> None:
        """Leave the cores that have become slow, if others are quick. Only while no side is at work."""
        times = [self._time(core) for core in self.places]
        free = [other for other in self._cores.eligible if other not in self.places]
        random.shuffle(free)
        free.sort(key=lambda other: bool(set(self._cores.together.get(other, ())) & set(self.places)))
        others = iter(free[:MOST_LOOKED_AT])
        for number, taken in enumerate(times):
            if self._cores.is_quick(taken):
                continue
            for core in others:
                if self._cores.is_quick(taken := self._time(core)):
                    self.places[number], times[number] = core, taken
                    self._sit(number)
                    break
        self._cores.move(self._me, {self.mine}, self._before)
        self._remember(times)

    @property
    def slowness(self) -> float:
        """How many times as long as at its quickest the loop took where reference, contestant and clock ran.

        Where all cores are slow none of them looks slow beside the others, and launches are slow all the same. The
        clock counts, too: what it read at 24 us it read at 36 from a core on which the loop took twice as long.
        """
        return statistics.median(self._slowest) / self._cores.best

    def _remember(self, times: Sequence[float]) -> None:
        self._cores.best = min(self._cores.best, *times)
        self._slowest.append(max(times[: NUM_BEFORE_CLOCK + 1]))

    def _sit(self, number: int) -> None:
        group = self._seats[number]
        for thread in [self._me] if group is None else _threads(group):
            self._cores.move(thread, {self.places[number]}, self._before)

    def _time(self, core: int) -> float:
        self._cores.move(self._me, {core}, self._before)
        return self._cores.probe()


def _ours() -> list[int]:
    """This process, its fork servers, and two generations below them: porters, and keepers wherever they hang.

    Hosted processes hang below those, but for guests, whose parent is the fork server.
    """
    found, generation = [os.getpid()], [os.getpid()]
    for _ in range(3):
        generation = [child for pid in generation for child in processes.children(pid)]
        found += generation
    return found


def _threads(pids: Iterable[int]) -> list[int]:
    """Ids of all threads of these processes that still exist."""
    found: list[int] = []
    for pid in pids:
        with contextlib.suppress(OSError):
            found += map(int, os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208 - names are all that is needed
    return found
