"""Cores for whatever is being timed: which there are, which of them are quick just now, and who may run where.

A virtual machine's cores are threads of a host's, and what the host runs on the other thread of a core is not ours to
see: a loop that takes 22 us takes 35 to 45 on a third to a half of the cores of an H200's machine, other ones every few
tenths of a second, and what is launched from there took up to 1.8 times as long. So the judge's own thread runs that
loop on each core in turn and takes those that are quick (`judging.seats`).

Cores are reserved by affinity alone: a process that is not ours may still use them.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping

from kerneldojo.devices.cores import whole_cores
from kerneldojo.judging.tries import Tries

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
NUM_REMEMBERED = 64
"""Windows whose quickest core is remembered, for what quick means."""
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
        self.waits = Tries()
        """For as many quick cores as are needed, when there were too few at once."""
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
        """How long to wait for quick cores: hardly at all where it was in vain, for nobody else goes on meanwhile."""
        return PATIENCE_SECONDS * self.waits.share

    def is_quick(self, taken: float) -> bool:
        """Whether the loop took no longer than on the quickest core of the last windows, or not by much."""
        return taken <= SLOW * min(self.quickest)

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
