"""Cores that belong to whatever is being timed, for as long as its window is open: the quickest there are just then.

On a busy machine a launch waits for a core, and a clock is read late; both lengthen what is measured. While a window is
open the judge's timing thread and each of the timed processes have a core to themselves, and whatever else of ours
still runs (the judge's other threads, fork servers, keepers) is kept to some that are never reserved. Those of other
verdicts are frozen anyway. Afterwards every thread may run again where it might before.

A virtual machine's cores are threads of a host's, and what the host runs on the other thread of a core is not ours to
see: a loop that takes 22 us takes 35 to 45 on a third to a half of the cores of an H200's machine, other ones every few
tenths of a second, and what is launched from there took up to 1.8 times as long. So the judge's own thread runs that
loop on each core in turn and takes those that are quick; between rounds it looks whether they still are.

Cores are reserved by affinity alone: a process that is not ours may still use them.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import random
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence

from kerneldojo.contestant.sandbox import processes
from kerneldojo.devices.cores import whole_cores

log = logging.getLogger(__name__)

LEAST_CORES = 8
"""Where there are fewer, reserving some would cost the rest more than it spares the timed."""
SHARE_OF_REST = 0.3
"""Cores that are never reserved: there whatever else of ours runs while a window is open."""
SLOW = 1.12
"""A core is slow if the loop takes so many times longer on it than on the quickest. Launches slow down with it: a
kernel bound by them took 16.1 us where the loop took 4.0, 18.5 where it took 4.5."""
PATIENCE_SECONDS = 0.05
"""How long a window waits for as many quick cores as it needs, where such waits were not in vain."""
NUM_WAITS = 8
"""Waits of this kind that are remembered."""
MOST_LOOKED_AT = 4
"""Cores that are looked at, from one round to the next, for those that have become slow."""
NUM_REMEMBERED = 64
"""Windows whose quickest core is remembered, for what quick means."""
NUM_BEFORE_CLOCK = 2
"""Groups that have a quicker core than the thread that reads the clock: reference and contestant."""
NUM_STEPS, NUM_LOOPS = 150, 8
"""Length of the loop, some 5 us, and how often it is run."""


class Cores:
    """Some cores that may be reserved for windows, and the others.

    Args:
        eligible: of which some are chosen in each window; nobody else uses any of them meanwhile.
        rest: for everything else while a window is open.
        together: which of them are threads of one core, as far as that is known.
        probe: how long the loop takes on the core that the calling thread is on, in any unit.

    Raises:
        ValueError: one of them is empty, or they overlap.
    """

    def __init__(
        self,
        eligible: Iterable[int],
        rest: Iterable[int],
        together: Mapping[int, Collection[int]] | None = None,
        probe: Callable[[], float] | None = None,
    ) -> None:
        self.eligible, self.rest = frozenset(eligible), frozenset(rest)
        if not self.eligible or not self.rest or self.eligible & self.rest:
            raise ValueError("reserved cores and the rest must be two sets that share nothing, neither of them empty")
        self.together = together or {}
        self.probe = probe or loop_us
        self.quickest = deque[float](maxlen=NUM_REMEMBERED)
        """What the loop took on the quickest core, at the beginning of each of the last windows."""
        self.best = math.inf
        """The least that it ever took, on any."""
        self._waits = deque[bool](maxlen=NUM_WAITS)
        """Whether waiting for quick cores ended with them, the last times that there were too few at once."""
        self._has_complained = False

    @classmethod
    def of(cls, cores: Iterable[int], siblings: Callable[[int], set[int]] | None = None) -> Cores | None:
        """`cores` divided; None if there are too few for that.

        Two threads of one core share its execution units, so no two of the reserved should be of one core, and no other
        thread of ours on their cores: whole cores are divided.

        Args:
            cores: those to divide.
            siblings: as for `whole_cores`.
        """
        own = set(cores)
        if len(own) < LEAST_CORES:
            return None
        groups = whole_cores(own, siblings)
        together = {core: group for group in groups for core in group}
        eligible = set[int]()
        for group in groups:
            if len(eligible | group) <= (1 - SHARE_OF_REST) * len(own):
                eligible |= group
        return cls(eligible, own - eligible, together) if eligible else None

    @property
    def patience_seconds(self) -> float:
        """How long to wait for quick cores: where it was in vain it is hardly tried, for nobody else goes on meanwhile.

        Never not at all, so that a host which has become quieter is noticed.
        """
        return PATIENCE_SECONDS * (1 + sum(self._waits)) / (1 + len(self._waits))

    def remember_wait(self, *, was_worth_it: bool) -> None:
        """Whether it ended with as many quick cores as were needed."""
        self._waits.append(was_worth_it)

    def choose(self, times: Mapping[int, float], num: int) -> list[int]:
        """The quickest `num` cores, no two of one core as long as there are others; fewer if there are not so many.

        Args:
            times: what the loop takes on each.
            num: how many are wanted.
        """
        ranked = sorted(times, key=lambda core: times[core])
        chosen: list[int] = []
        for core in ranked:
            if not set(self.together.get(core, ())) & set(chosen):
                chosen.append(core)
        return (chosen + [core for core in ranked if core not in chosen])[:num]

    @contextlib.contextmanager
    def reserved_for(self, timed: Iterable[Sequence[int]]) -> Generator[Reserved]:
        """Move this thread and the processes of each group in `timed` to a core each, and all others of ours off them.

        Args:
            timed: ids of processes; those of one group share a core.
        """
        cleared = Cleared(self)
        try:
            yield cleared.seat(timed)
        finally:
            cleared.end()

    def move(self, thread: int, cores: Iterable[int], before: dict[int, set[int]]) -> None:
        """Let a thread run on these cores alone; notes in `before` where it might at first."""
        try:
            if thread not in before:
                before[thread] = os.sched_getaffinity(thread)
            os.sched_setaffinity(thread, cores)
        except ProcessLookupError:
            pass  # It ended just now.
        except PermissionError as error:
            if not self._has_complained:
                self._has_complained = True
                log.warning("cores cannot be reserved for all that is timed: %s", error)


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
            timed: as for `Cores.reserved_for`.
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
            num_quick = sum(map(self._is_quick, times.values()))
            is_enough = num_quick >= min(len(self._seats), len(times))
            if is_enough or time.monotonic() > until:
                break
            has_waited = True
        if has_waited or not is_enough:
            self._cores.remember_wait(was_worth_it=is_enough)
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
            if self._is_quick(taken):
                continue
            for core in others:
                if self._is_quick(taken := self._time(core)):
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

    def _is_quick(self, taken: float) -> bool:
        return taken <= SLOW * min(self._cores.quickest)

    def _time(self, core: int) -> float:
        self._cores.move(self._me, {core}, self._before)
        return self._cores.probe()


def loop_us() -> float:
    """How long a short loop takes here, in microseconds: the mean of a few, but for the slowest.

    The mean, since neighbours come and go within a millisecond: on a core where the loop took 4.4 or 8.5 us by turns
    launches took 1.6 times as long, and the quickest of three loops seldom told. Not the slowest, which an interrupt
    may have met.
    """
    times: list[int] = []
    for _ in range(NUM_LOOPS):
        started, total = time.perf_counter_ns(), 0
        for step in range(NUM_STEPS):
            total += step * step
        times.append(time.perf_counter_ns() - started)
    return (sum(times) - max(times)) / (len(times) - 1) / 1000


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
