"""Control groups that a killed keeper left behind, and whatever still runs in them.

A keeper removes its group itself. One that was killed from outside (by an administrator, or by the kernel for want of
memory) cannot, and the kernel keeps the group, with any process in it, until somebody else does: the next fork server,
before it takes its first contestant.

A group bears its keeper's name: process id, time of birth in clock ticks since the host started, and PID namespace. An
id alone may have been given to another process since; together the three belong to one process for ever. Groups of
another PID namespace are left alone, for whether their keepers live cannot be seen from here.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from kerneldojo.contestant.sandbox import processes
from kerneldojo.contestant.sandbox.cgroups import host_groups

_NAME = re.compile(r"dojo-(?:probe-)?(?P<pid>\d+)-(?P<born>\d+)-(?P<namespace>\d+)")
_PATIENCE_SECONDS = 2.0
"""How long all that was killed may take to leave its groups."""


def group_name(kind: str = "dojo") -> str:
    """Name of a control group of this process, which no other process ever has."""
    pid = os.getpid()
    return f"{kind}-{pid}-{_born(pid)}-{_namespace()}"


def sweep_groups() -> list[str]:
    """Kill what is left in the groups of dead keepers, and remove them; the names of those removed."""
    until = time.monotonic() + _PATIENCE_SECONDS
    return [folder.name for folder in left_groups() if _remove(folder, until)]


def left_groups() -> Iterator[Path]:
    """Groups below ours whose keeper is dead."""
    groups = host_groups()
    parents = {groups.unified, groups.memory, groups.pids, groups.freezer} - {None}
    namespace = _namespace()
    for parent in parents:
        assert parent is not None
        for folder in parent.glob("dojo-*-*-*"):
            name = _NAME.fullmatch(folder.name)
            if name and name["namespace"] == namespace and not _lives(int(name["pid"]), name["born"]):
                yield folder


def _lives(pid: int, born: str) -> bool:
    return _born(pid) == born and processes.is_alive(pid)


def _born(pid: int) -> str:
    """When it was born, in clock ticks since the host started; empty if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def _namespace() -> str:
    return re.sub(r"\D", "", os.readlink("/proc/self/ns/pid"))  # noqa: PTH115 - it is no path that it points to


def _remove(folder: Path, until: float) -> bool:
    is_last = False
    while not is_last:
        is_last = time.monotonic() > until
        try:
            folder.rmdir()
        except FileNotFoundError:
            return False  # Another fork server was first.
        except OSError:
            with contextlib.suppress(OSError):
                _kill_all(folder)
            time.sleep(0.005)
        else:
            return True
    return False


def _kill_all(folder: Path) -> None:
    for file, order in (("cgroup.kill", "1"), ("freezer.state", "THAWED")):
        if (folder / file).exists():
            (folder / file).write_text(order)
    pids = [int(line) for line in (folder / "cgroup.procs").read_text().split()]
    processes.send([pid for pid in pids if pid > 1], signal.SIGKILL)
