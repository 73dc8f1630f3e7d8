"""Finding, measuring and ending every process that descends from one.

The keeper is a *subreaper*: whatever a contestant forks, in whatever session, stays below the keeper when its parents
die. So "the keeper has no children left" is exactly "nothing is left", and no name, session or environment matters.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path


def children(pid: int) -> list[int]:
    """Direct children of `pid`, all its threads' included; empty if it is gone."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - names are all that is needed, and often
            with contextlib.suppress(OSError):
                found += map(int, _content(f"/proc/{pid}/task/{task}/children").split())
    return found


def _content(path: str) -> bytes:
    """What a file of /proc holds, without the objects that Python makes for a file: keepers ask many times a second."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return b"".join(iter(lambda: os.read(descriptor, 1 << 16), b""))
    finally:
        os.close(descriptor)


@functools.cache
def _has_lists() -> bool:
    """Whether the kernel lists children in /proc/PID/task/TID/children."""
    return Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").exists()


def descendants(pid: int, at_most: int | None = None) -> list[int]:
    """Everything below `pid`, or the first `at_most`. A snapshot: forks may be missed while the tree runs."""
    below = children if _has_lists() else _parents().get
    found, pending = [], [pid]
    while pending and (at_most is None or len(found) < at_most):
        fresh = below(pending.pop()) or []
        found += fresh
        pending += fresh
    return found


def _parents() -> dict[int, list[int]]:
    """Children by parent, for kernels without /proc/PID/task/TID/children."""
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            with contextlib.suppress(OSError):
                after_name = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
                parents.setdefault(int(after_name[1]), []).append(int(name))
    return parents


def num_tasks_of(uid: int) -> int:
    """Processes and threads that `uid` runs on this host now."""
    count = 0
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{name}").st_uid == uid:  # noqa: PTH116
                    count += len(os.listdir(f"/proc/{name}/task"))  # noqa: PTH208
    return count


def is_alive(pid: int) -> bool:
    """Whether `pid` exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Signal each of `pids` that still exists.

    Raises:
        ValueError: one is not the id of a process; 0, 1 and -1 mean our group, the first process and everybody.
    """
    for pid in pids:
        if pid <= 1:
            raise ValueError(f"{pid} is not a contestant")
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def private_bytes(pid: int) -> int:
    """Memory that counts against a limit, in bytes: anonymous and shared pages (an upper bound), never files.

    Pages shared with parents by copy-on-write count in each process; `proportional_bytes` is exact and slower.
    """
    total = 0
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(("RssAnon:", "RssShmem:", "VmSwap:")):
                total += int(line.split()[1]) * 1024
    return total


def proportional_bytes(pid: int) -> int:
    """Anonymous and shared memory, each page divided among those that map it, in bytes; the upper bound if hidden."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return private_bytes(pid)
    wanted = ("Pss_Anon:", "Pss_Shmem:", "SwapPss:")
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(wanted))


def unlinked_bytes(pids: Iterable[int], counts: Callable[[os.stat_result], bool]) -> int:
    """Size of open files that no folder lists any more (memory files are such) and that `counts` accepts, in bytes.

    Processes whose descriptors may not be listed (not dumpable, and we are not root) contribute nothing.
    """
    seen: dict[tuple[int, int], int] = {}
    for pid in pids:
        folder = f"/proc/{pid}/fd"
        with contextlib.suppress(OSError):
            for name in os.listdir(folder):  # noqa: PTH208
                with contextlib.suppress(OSError):
                    status = os.stat(f"{folder}/{name}")  # noqa: PTH116
                    if status.st_nlink == 0 and counts(status):
                        seen[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(seen.values())


def folder_size(folder: Path, most_files: int) -> tuple[int, int]:
    """(bytes on disk, number of entries) below `folder`; stops counting past `most_files` entries.

    What lies so deep that its path has no name counts as too many: it could not be looked into.
    """
    size = count = 0
    pending = [os.fspath(folder)]
    while pending and count <= most_files:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    count += 1
                    with contextlib.suppress(FileNotFoundError, PermissionError):
                        size += entry.stat(follow_symlinks=False).st_blocks * 512
                        if entry.is_dir(follow_symlinks=False):
                            pending.append(entry.path)
                    if count > most_files:
                        break
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return size, most_files + 1
    return size, count
