"""A uid of its own for each contestant, from ranges that nothing else uses.

With it the kernel refuses signals and memory access to everyone else's processes by the oldest rule there is, and
RLIMIT_NPROC counts this contestant alone. A uid is held by binding an abstract Unix socket named after it: the kernel
frees the name when its keeper dies, however it dies, and every fork server of the host sees the same names.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

FIRST_UID, LAST_UID = 60600, 61183
"""Between systemd's ranges for home folders and for dynamic users; small enough for a rootless container's map."""
FURTHER_UIDS = 1_900_000_000, 1_900_016_383
"""Used when those are taken, as by dozens of judges on one machine: above systemd's range for containers."""
MAPS = Path("/proc/self/uid_map"), Path("/proc/self/gid_map")


class User:
    """A uid, and the gid of the same number, that somebody holds for a contestant."""

    def __init__(self, number: int) -> None:
        self.number = number

    def become(self, device_nodes: Iterable[Path]) -> None:
        """Turn the calling process (root) into this user, in the groups that own `device_nodes` where needed."""
        groups: set[int] = set()
        for node in device_nodes:
            if node.exists() and not node.stat().st_mode & stat.S_IROTH:
                groups.add(node.stat().st_gid)
        os.setgroups(sorted(groups - {0}))
        os.setresgid(self.number, self.number, self.number)
        os.setresuid(self.number, self.number, self.number)

    def take(self, folder: Path) -> None:
        """Make `folder` and all in it this user's, closed to everyone else."""
        os.chown(folder, self.number, self.number, follow_symlinks=False)
        folder.chmod(0o700)
        for parent, folders, files in os.walk(folder):
            for name in (*folders, *files):
                os.chown(Path(parent, name), self.number, self.number, follow_symlinks=False)


class HeldUid(User):
    """A uid (and gid of the same number) that is ours until this process ends or `close` is called.

    Raises:
        OSError: every uid is taken.
    """

    def __init__(self) -> None:
        self._lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        for self.number in numbers():
            if self._holds():
                return
        self._lock.close()
        raise OSError(errno.EAGAIN, "no uid is free for a contestant")

    def _holds(self) -> bool:
        try:
            self._lock.bind(f"\0kerneldojo-uid-{self.number}")
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise
        return True

    def close(self) -> None:
        """Give it back."""
        self._lock.close()


def numbers() -> Iterator[int]:
    """All uids that may be used, in the order in which they are tried."""
    yield from _from_within(FIRST_UID, LAST_UID)
    if exists(FURTHER_UIDS[-1]):
        yield from _from_within(*FURTHER_UIDS)


def _from_within(first: int, last: int) -> Iterator[int]:
    """A range, begun somewhere within it: so that those who come at once seldom meet."""
    span = last - first + 1
    start = os.getpid() % span
    return (first + (start + offset) % span for offset in range(span))


def exists(number: int, maps: Sequence[Path] = MAPS) -> bool:
    """Whether there is such a user and such a group in our user namespace."""
    for path in maps:
        rows = [[int(field) for field in line.split()] for line in path.read_text().splitlines()]
        if not any(first <= number < first + count for first, _, count in rows):
            return False
    return True


def open_to_everyone(path: Path) -> bool:
    """Whether any user may reach and read `path`, going by the permission bits of it and of all that leads there."""
    real = path.resolve()
    last = real.stat().st_mode
    needed = stat.S_IROTH | (stat.S_IXOTH if stat.S_ISDIR(last) else 0)
    return last & needed == needed and all(parent.stat().st_mode & stat.S_IXOTH for parent in real.parents)


def lets_everyone_through(path: Path) -> bool:
    """Whether any user may pass through `path` and all that leads there, to something below that is theirs."""
    real = path.resolve()
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in (real, *real.parents))
