"""What the keeper reads at every tick: memory, processes, scratch folder.

Where a control group holds a limit the kernel does the work and there is one file to look at. Elsewhere the tree of
processes is walked, cheaply first: the exact share of each page is only asked for when the upper bound is too high.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterable

from kerneldojo.contestant.sandbox import processes
from kerneldojo.contestant.sandbox.cgroups import Group
from kerneldojo.contestant.sandbox.enclosure import Plan
from kerneldojo.contestant.sandbox.policy import Cause

_SCRATCH_SHARE = 10
"""The scratch folder is measured at most this fraction of the time, one in so many."""
_LOOK_ANYWAY_SECONDS = 0.25
"""How long nobody is looked at who has used no processor time: a kernel may account for it later than it is used."""
_ROOM_BYTES, _ROOM_FILES = 3 << 29, 40_000
"""What nobody writes within a tenth of a second: it would be 16 GB and 400,000 files a second."""


class Guest:
    """A contestant that is not its keeper's descendant, by the pidfd that came with its process id."""

    def __init__(self, pid: int, pidfd: int) -> None:
        self.pid, self.pidfd = pid, pidfd
        self._poll = select.poll()
        self._poll.register(pidfd, select.POLLIN)

    def has_ended(self, patience: float = 0.0) -> bool:
        """Whether it has ended: from then on its process id may be another's. Waits for it up to `patience` seconds."""
        return bool(self._poll.poll(patience * 1000))


class Meters:
    """Limits of one contestant; made in the keeper before it forks.

    Args:
        plan: its world.
        group: its control groups, if any.
        given: (device, inode) of the files that the judge gave it, which are not its own doing.
    """

    def __init__(self, plan: Plan, group: Group | None, given: Iterable[tuple[int, int]]) -> None:
        self._plan, self._group, self._limits = plan, group, plan.policy.limits
        self._next_scratch = 0.0
        self._used: int | None = None
        self._look_anyway = 0.0
        self._scratch = plan.policy.scratch
        self._device = self._scratch.stat().st_dev
        self._given = set(given)
        self.guest: Guest | None = None
        self.peak_bytes = 0
        self.has_room = False
        """Whether so much was left of its scratch folder when it was last looked at that nobody fills it within a
        tenth of a second."""

    def below(self, at_most: int | None = None) -> list[int]:
        """The contestant, all below it and the first process inside, or the first `at_most` of them; a snapshot."""
        found = processes.descendants(os.getpid(), at_most)
        if self.guest is not None and not self.guest.has_ended():
            found += [self.guest.pid, *processes.descendants(self.guest.pid, at_most)]
        return found

    def exceeded(self) -> Cause | None:
        """The limit that does not hold now, if any; those who have not run since the last look exceed none."""
        if self._has_stood_still():
            return None
        if self._too_many():
            return "processes"
        cause = self._memory_exceeded()
        if cause is not None:
            return cause
        now = time.monotonic()
        if now >= self._next_scratch:
            too_much = self._scratch_exceeded()
            self._next_scratch = time.monotonic() + max(0.05, _SCRATCH_SHARE * (time.monotonic() - now))
            if too_much:
                return "scratch"
        return None

    def _has_stood_still(self) -> bool:
        """Whether nothing inside has run since this was last denied.

        Most contestants wait, or are frozen, most of the time, and a look costs a hundred times what this does.
        """
        used, now = self._group.used_microseconds() if self._group else None, time.monotonic()
        if used is not None and used == self._used and now < self._look_anyway:
            return True
        self._used, self._look_anyway = used, now + _LOOK_ANYWAY_SECONDS
        return False

    def memory_bytes(self) -> int:
        """Memory in use by the contestant and all below it, in bytes."""
        charged = self._group.memory_bytes() if self._group else None
        return self._proportional(self.below()) if charged is None else charged

    def _too_many(self) -> bool:
        """Whether there are more processes than allowed, counted no further than needed to know."""
        if (self._group and self._group.limits_processes) or self._plan.counts_processes_by_user:
            return False
        most = self._limits.num_processes + 1  # the first process inside is ours
        below = self.below(at_most=4 * most)
        return len(below) > most and sum(map(processes.is_alive, below)) > most

    def _memory_exceeded(self) -> Cause | None:
        """`memory`, or `processes` if they became too many while their memory was measured.

        The exact share of a large process takes long to read. A fork bomb would grow by thousands meanwhile, so they
        are counted again after each.
        """
        if self._group is not None and self._group.limits_memory:
            return "memory" if self._group.num_oom_kills() > 0 else None
        below = self.below()
        used = sum(map(processes.private_bytes, below)) + self._memory_files(below)
        if used > self._limits.memory_bytes:
            used = self._memory_files(below)
            for pid in below:
                used += processes.proportional_bytes(pid)
                if self._too_many():
                    return "processes"
        self.peak_bytes = max(self.peak_bytes, used)
        return "memory" if used > self._limits.memory_bytes else None

    def _proportional(self, below: list[int]) -> int:
        return sum(map(processes.proportional_bytes, below)) + self._memory_files(below)

    def _memory_files(self, below: list[int]) -> int:
        """Memory files that it made itself: only a uid of its own tells them from the judge's."""
        if self._plan.uid is None:
            return 0
        uid = self._plan.uid.number
        return processes.unlinked_bytes(below, lambda s: s.st_uid == uid and s.st_dev != self._device)

    def _scratch_exceeded(self) -> bool:
        most_files, most_bytes = self._limits.num_scratch_files, self._limits.scratch_bytes
        size, count = processes.folder_size(self._scratch, most_files)
        if count <= most_files and size <= most_bytes:
            size += processes.unlinked_bytes(
                self.below(),
                lambda s: s.st_dev == self._device and (s.st_dev, s.st_ino) not in self._given,
            )
        self.has_room = most_files - count >= _ROOM_FILES and most_bytes - size >= _ROOM_BYTES
        return count > most_files or size > most_bytes
