"""Cores that belong to whatever is being timed, for as long as its window is open.

On a busy machine a launch waits for a core, and a clock is read late; both lengthen what is measured. While a window is
open the judge's timing thread and the timed processes have a few cores to themselves, and whatever else of ours still
runs (the judge's other threads, fork servers, keepers) is kept to the rest. Those of other verdicts are frozen anyway.
Afterwards every thread may run again where it might before.

Cores are reserved by affinity alone: a process that is not ours may still use them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Generator, Iterable
from pathlib import Path

from kerneldojo.contestant.sandbox import processes

log = logging.getLogger(__name__)

NUM_RESERVED = 5
"""For the judge's thread, reference, contestant and twin, and the driver's threads in them."""
SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
LEAST_CORES = 8
"""Where there are fewer, reserving some would cost the rest more than it spares the timed."""


class Cores:
    """Some cores reserved for windows, and the others.

    Args:
        reserved: for what is timed.
        rest: for everything else while a window is open.
        idle: for nobody while a window is open: the other threads of the reserved cores.

    Raises:
        ValueError: one of them is empty, or they overlap.
    """

    def __init__(self, reserved: Iterable[int], rest: Iterable[int], idle: Iterable[int] = ()) -> None:
        self.reserved, self.rest, self.idle = frozenset(reserved), frozenset(rest), frozenset(idle)
        if not self.reserved or not self.rest or self.reserved & self.rest:
            raise ValueError("reserved cores and the rest must be two sets that share nothing, neither of them empty")
        self._has_complained = False

    @classmethod
    def of(cls, cores: Iterable[int], siblings: Callable[[int], set[int]] | None = None) -> Cores | None:
        """The first few of `cores` reserved; None if there are too few to do so.

        Two threads of one core share its execution units (Python beside Python ran at three quarters of its speed on
        the machine of an H200, and what it launches comes later), so no two of the reserved are of one core, and their
        other threads stay idle, where there are cores enough for that. Virtual machines often hide which threads belong
        together: where every thread is said to be a core, neighbours are taken to be one.

        Args:
            cores: those to divide.
            siblings: the threads of the core that one is of; asked of the system by default.
        """
        ordered = sorted(cores)
        if len(ordered) < LEAST_CORES:
            return None
        own = set(ordered)
        told = {core: {core} | (siblings or siblings_of)(core) for core in ordered}
        if all(len(group) == 1 for group in told.values()):
            told = {core: {core, core ^ 1} for core in ordered}
        together = {core: group & own for core, group in told.items()}
        firsts = sorted({min(group) for group in together.values()})[:NUM_RESERVED]
        idle = set[int]().union(*(together[first] for first in firsts)) - set(firsts)
        rest = own - idle - set(firsts)
        if len(firsts) == NUM_RESERVED and rest:
            return cls(firsts, rest, idle)
        return cls(ordered[:NUM_RESERVED], ordered[NUM_RESERVED:])

    @contextlib.contextmanager
    def reserved_for(self, timed: Iterable[int], others: Iterable[int] = ()) -> Generator[None]:
        """Move this thread and the processes `timed` to the reserved cores, `others` and what else is ours off them."""
        timed, others = list(timed), list(others)
        me = threading.get_native_id()
        beside = [pid for pid in (*_ours(), *others) if pid not in timed]
        before: dict[int, set[int]] = {}
        try:
            for thread in _threads(beside):
                if thread != me:
                    self._move(thread, self.rest, before)
            for thread in (me, *_threads(timed)):
                self._move(thread, self.reserved, before)
            yield
        finally:
            for thread in _threads({*_ours(), *timed, *others}):  # Also those that were born meanwhile.
                self._move(thread, before.get(thread, self.reserved | self.rest | self.idle), {})

    def _move(self, thread: int, cores: Iterable[int], before: dict[int, set[int]]) -> None:
        try:
            before[thread] = os.sched_getaffinity(thread)
            os.sched_setaffinity(thread, cores)
        except ProcessLookupError:
            pass  # It ended just now.
        except PermissionError as error:
            if not self._has_complained:
                self._has_complained = True
                log.warning("cores cannot be reserved for all that is timed: %s", error)


def siblings_of(core: int) -> set[int]:
    """The threads of the core that `core` is one of, as far as the system tells."""
    try:
        text = Path(SIBLINGS.format(core)).read_text()
        ends = [part.split("-") for part in text.strip().split(",")]
        return {number for part in ends for number in range(int(part[0]), int(part[-1]) + 1)}
    except (OSError, ValueError):
        return {core}


def _ours() -> list[int]:
    """This process, its fork servers, and their keepers; hosted processes hang below those."""
    servers = processes.children(os.getpid())
    return [os.getpid(), *servers, *(keeper for server in servers for keeper in processes.children(server))]


def _threads(pids: Iterable[int]) -> list[int]:
    """Ids of all threads of these processes that still exist."""
    found: list[int] = []
    for pid in pids:
        with contextlib.suppress(OSError):
            found += map(int, os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208 - names are all that is needed
    return found
