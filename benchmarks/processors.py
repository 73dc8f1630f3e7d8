"""Processor seconds that a process, or the whole machine, has used so far."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

TICKS = os.sysconf("SC_CLK_TCK")


class Used(NamedTuple):
    """Seconds."""

    user: float
    system: float

    @property
    def total(self) -> float:
        return self.user + self.system


def machine() -> Used:
    """Of all of this machine's processes: an upper bound for ours if we are not alone."""
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    user, nice, system, _, _, irq, soft, stolen = (int(word) / TICKS for word in words[1:9])
    return Used(user + nice, system + irq + soft + stolen)


def process(pid: int, *, with_children: bool = False) -> Used:
    """Of one process, and of the children that it has waited for where that is asked.

    Raises:
        OSError: it is gone.
    """
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system, child_user, child_system = (int(word) / TICKS for word in words[11:15])
    return Used(user + child_user, system + child_system) if with_children else Used(user, system)
